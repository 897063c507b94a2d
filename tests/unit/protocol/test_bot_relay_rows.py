"""Rows of the roster: what is kept, what is dropped and why, and a file that is never an error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.protocol.bot_relay_rows import Row, is_name, merge, normalise, read_roster, roster_bytes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["ops", "default", "hermes", "@ops", " ops ", "vps-1", "", "a b", "x" * 65]) | VALUES
LONG = st.text(st.characters(), max_size=200) | VALUES
GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "profile": NAMES, "connection_id": NAMES, "handle": NAMES, "connection_label": LONG, "title": LONG,
        "description": LONG, "online": VALUES, "private": VALUES, "other": VALUES,
    },
)  # fmt: skip
PUSHES = st.lists(GIVEN | VALUES, max_size=6) | VALUES


def row(**fields: Any) -> dict[str, Any]:
    return {"profile": "ops", "connection_id": "vps-1", **fields}


def only(**fields: Any) -> Row:
    found = normalise([row(**fields)])
    assert found.rejected == ()
    return found.rows[0]


def why(**fields: Any) -> str:
    found = normalise([row(**fields)])
    assert found.rows == ()
    return found.rejected[0].reason


def test_good_rows_are_kept_sorted_and_bad_ones_named() -> None:
    """9.1 roster_roundtrip_and_validation, 9.2 roster_sync_persists_and_counts: two good rows among an empty profile, a
    bad name, no object and a duplicate; the first duplicate's title is kept."""
    found = normalise(
        [
            row(profile="zeta", connection_id="b", title="first"),
            row(profile=""),
            row(profile="no spaces"),
            "no object",
            row(profile="alpha", connection_id="a"),
            row(profile="zeta", connection_id="b", title="second"),
        ]
    )
    assert [(kept.connection_id, kept.profile, kept.title) for kept in found.rows] == [
        ("a", "alpha", ""),
        ("b", "zeta", "first"),
    ]
    assert [place for place, _ in found.rejected] == [1, 2, 3, 5]
    assert found.rejected[0].content() == {"row": 1, "reason": "profile is missing"}
    words = ("missing", "letters", "object", "came first")
    assert all(word in reason for word, (_, reason) in zip(words, found.rejected, strict=True))
    assert read_roster(roster_bytes(found.rows, 1)) == found.rows


@pytest.mark.parametrize("agents", [None, {}, "ops", 5, True, {"profile": "ops"}])
def test_what_is_no_list_is_an_empty_roster(agents: object) -> None:
    """2.1 a non-list `agents`."""
    assert normalise(agents) == ((), ())


@pytest.mark.parametrize(
    "connection", ['a");(', "a'b", "a b", "x" * 65, "-a", "_a", "", None, [], "a\n", "ä", "a/b", ".."]
)
def test_a_connection_that_is_no_name_is_dropped(connection: object) -> None:
    """9.1 roster_rejects_connection_id_outside_handle_charset."""
    found = normalise([row(connection_id=connection), row(connection_id="ssh-vps")])
    if connection == "a\n":  # trimmed, it is one
        assert len(found.rows) == 2
        return
    assert [kept.connection_id for kept in found.rows] == ["ssh-vps"]
    assert found.rejected[0].row == 0


def test_the_whole_of_a_name_counts() -> None:
    """14.3 whole-string matching: an end of line after it is not of it."""
    assert is_name("a" * 64)
    assert not any(map(is_name, ["a\n", "a" * 65, "", "é", "a.b", None, 5]))


def test_a_handle_is_trimmed_of_its_at_signs_or_made_from_the_profile() -> None:
    """2.1 the handle."""
    assert only(handle="@@Ops").handle == "Ops"
    assert only(profile="default").handle == "hermes"
    assert only(profile="default", handle=" @ ").handle == "hermes"
    assert only(profile="nightly", handle=None).handle == "nightly"
    assert "handle" in why(handle="@ops@there")


def test_fields_are_cut_to_their_lengths_and_a_description_to_one_line() -> None:
    """2.1 the lengths."""
    kept = only(connection_label="l" * 99, title=" t" * 99, description=" a \n\t b " + "d" * 200)
    assert len(kept.connection_label) == 80
    assert len(kept.title) == 119  # the 120th was a blank
    assert kept.description.startswith("a b dd")
    assert len(kept.description) == 160
    assert only(connection_label="l" * 79 + " cut").connection_label == "l" * 79
    assert only(title=5).title == "5"
    assert only(title=["x"]).title == only(title=None).title == only(title=False).title == ""


@pytest.mark.parametrize("flag", [True, 1, "true", "yes", " ON ", "1"])
def test_a_private_agent_is_dropped_however_that_is_spelled(flag: object) -> None:
    """9.1 the_remote_roster_drops_a_private_agent_however_the_flag_is_spelled."""
    assert why(private=flag) == "it is private"


@pytest.mark.parametrize("flag", [False, 0, "false", "no", "off", "", None, "perhaps", 2, [True], {}])
def test_an_agent_that_is_not_private_is_kept(flag: object) -> None:
    """9.1 the same: the other spellings keep the row."""
    assert only(private=flag).profile == "ops"


@pytest.mark.parametrize(
    ("given_as", "online"), [(True, True), (False, False), (1, None), ("true", None), (None, None)]
)
def test_only_a_true_boolean_says_who_is_online(given_as: object, online: bool | None) -> None:
    """2.1 online; 11.2 it is honoured where a client sends it."""
    kept = only(online=given_as)
    assert kept.online is online
    assert ("online" in kept.content()) == (online is not None)


def test_the_file_is_that_of_hermes() -> None:
    """2.1 the example: keys sorted, letters not escaped."""
    kept = only(connection_label="Rack 3", description="nightly builds", online=True, title="Öps 🤖")
    assert roster_bytes([kept], 1790000000).decode() == (
        '{"agents":[{"connection_id":"vps-1","connection_label":"Rack 3","description":"nightly builds","handle":"ops",'
        '"online":true,"profile":"ops","title":"Öps 🤖"}],"updated_at":1790000000}'
    )


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b'{"agents":null}',
        b'{"agents":{}}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"\0" * 99,
    ],
)
def test_a_missing_or_broken_file_is_an_empty_roster(data: bytes | None) -> None:
    """9.1 roster_read_missing_and_corrupt."""
    assert read_roster(data) == ()


def test_a_file_with_a_byte_order_mark_is_read() -> None:
    """2 some builds read BOM-tolerantly."""
    assert read_roster(b"\xef\xbb\xbf" + roster_bytes([only()], 1)) == (only(),)


def test_one_row_of_a_file_that_was_tampered_with_is_dropped_alone() -> None:
    """2.1 reading re-applies the rules."""
    agents = [row(), row(profile="../../x"), row(profile="b", title="cut \ud83d")]
    kept = read_roster(json.dumps({"agents": agents}).encode())
    assert [(found.profile, found.title) for found in kept] == [("b", "cut \ufffd"), ("ops", "")]


def test_our_rows_are_merged_in_and_what_was_ours_goes() -> None:
    ours = [only(connection_id="angelia", profile="claude"), only(connection_id="angelia", profile="codex")]
    found = [
        only(),
        only(connection_id="angelia", profile="gone"),
        only(connection_id="angelia", profile="codex", title="x"),
    ]
    merged = merge(ours, found)
    assert [(kept.connection_id, kept.profile, kept.title) for kept in merged] == [
        ("angelia", "claude", ""),
        ("angelia", "codex", ""),
        ("vps-1", "ops", ""),
    ]
    assert merge(ours, merged) == merged


@given(PUSHES)
def test_whatever_is_pushed_each_row_is_kept_or_named(agents: object) -> None:
    found = normalise(agents)
    assert len(found.rows) + len(found.rejected) == (len(agents) if isinstance(agents, list) else 0)
    assert list(found.rows) == sorted(found.rows, key=lambda kept: kept[:2])
    for kept in found.rows:
        assert all(map(is_name, kept[:3]))


@given(PUSHES)
def test_what_was_kept_is_kept_unchanged_when_it_is_read_again(agents: object) -> None:
    kept = normalise(agents).rows
    assert normalise([found.content() for found in kept]) == (kept, ())
    once = read_roster(roster_bytes(kept, 0))
    assert read_roster(roster_bytes(once, 0)) == once
