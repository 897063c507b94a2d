"""What hubs say to each other: whole messages in and out, and whatever a hostile neighbour may send."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.model.address import check_handle
from angelia.model.envelope import Envelope, Intent, Kind, Lane, Origin, Replay, check_id, fingerprint
from angelia.model.errors import AngeliaError, BadName, BadRequest, CallerError, IdReused, MailboxFull
from angelia.model.failure import Reason
from angelia.protocol import hub as shapes
from angelia.protocol.hub import HubRow, Item, Outcome, Spot, Stored
from angelia.protocol.times import rfc3339

ME, A, B, C = "0" * 31 + "1", "a" * 32, "b" * 32, "c" * 32
NOW = 1_800_000_000_000
ORIGIN = Origin(A, "Bob", "ANN@b", "request", "message", None)
TEXT, BODY = "Grüße 🤖", b'{"a":[1,2.5,null]}'
MARK = fingerprint("bob", "ann@b", "request", "message", TEXT, BODY, None, None)

ENVELOPE = Envelope(
    id="1" * 32, sender="Bob", to="ann@b", intent=Intent.REQUEST, kind=Kind.MESSAGE, text=TEXT, body=BODY,
    thread="2" * 32, chain="3" * 32, created_at=NOW - 5, expires_at=NOW + 60_000, fingerprint=MARK, depth=4,
    via=(C,), lane=Lane.PERSON, replay=Replay.NEVER, verified=True, origin=ORIGIN,
)  # fmt: skip
ITEM = shapes.item_of(ENVELOPE, Spot("Bob", A), "lap", Spot("ann", B), A, NOW)
PLAIN: dict[str, Any] = msgspec.to_builtins(ITEM)
ROW: dict[str, Any] = {"handle": "ann", "hub": B, "name": "rack", "way": [B]}


def changed(**fields: Any) -> dict[str, Any]:
    return {**PLAIN, **fields}


# ----------------------------------------------------------------------------------------------------------- messages


def test_a_message_crosses_as_it_is() -> None:
    item = shapes.read_item(msgspec.json.decode(msgspec.json.encode(PLAIN)))
    assert item == ITEM
    e = ENVELOPE
    assert (item.id, item.thread, item.chain, item.depth) == (e.id, e.thread, e.chain, 4)
    assert (item.intent, item.kind, item.lane, item.replay) == (e.intent, e.kind, e.lane, e.replay)
    assert (item.text, item.body, item.verified, item.created_at) == (TEXT, BODY.decode(), True, e.created_at)
    assert (item.sender, item.called, item.recipient) == (Spot("Bob", A), "lap", Spot("ann", B))
    assert (item.origin, item.fingerprint, item.in_reply_to, item.about) == (ORIGIN, MARK.hex(), None, None)


def test_the_hub_that_hands_it_on_stands_at_the_end_of_the_way() -> None:
    assert ITEM.via == (C, A)


def test_what_is_left_to_live_crosses_and_never_an_instant() -> None:
    assert ITEM.expires_in == 60_000
    late = shapes.item_of(ENVELOPE, Spot("Bob", A), "lap", Spot("ann", B), A, NOW + 70_000)
    assert late.expires_in == 1
    assert shapes.read_item(msgspec.to_builtins(late)).expires_in == 1


def test_its_fingerprint_holds_under_any_name_that_it_gets_on_the_way() -> None:
    assert shapes.is_whole(ITEM)
    assert shapes.is_whole(shapes.read_item(changed(called="other", via=[A, B, C], depth=9, verified=False)))


@pytest.mark.parametrize(
    "flipped",
    [{"text": "Gruße 🤖"}, {"text": None}, {"body": '{"a":[1,2.5,true]}'}, {"body": None}, {"in_reply_to": C},
     {"fingerprint": "0" * 64}, {"fingerprint": ""}, {"fingerprint": MARK.hex().upper()},
     {"origin": [A, "eve", "ann@b", "request", "message", None]},
     {"origin": [A, "bob", "cat", "request", "message", None]},
     {"origin": [A, "bob", "ann@b", "inform", "message", None]},
     {"origin": [A, "bob", "ann@b", "request", "reply", None]},
     {"origin": [A, "bob", "ann@b", "request", "message", C]}],
    ids=str,
)  # fmt: skip
def test_a_bit_that_flipped_is_seen(flipped: dict[str, Any]) -> None:
    content = {key: each for key, each in changed(**flipped).items() if each is not None}
    assert not shapes.is_whole(shapes.read_item(content))


@pytest.mark.parametrize(
    "wrong",
    [{"id": "1" * 31}, {"id": "A" * 32}, {"id": "1" * 32 + "\n"}, {"thread": ""}, {"chain": "../" * 10}, {"about": "x"},
     {"in_reply_to": 7}, {"from": {"handle": "a b", "hub": A}}, {"from": {"handle": "ann@x", "hub": A}},
     {"from": {"handle": "ann", "hub": "x"}}, {"from": "ann"}, {"to": {"handle": "", "hub": B}},
     {"to": {"handle": "*", "hub": B}},
     {"to": {"handle": "ann", "hub": None}}, {"called": "a/b"}, {"called": ""}, {"via": ["x"]}, {"via": A},
     {"via": None},
     {"intent": "shout"}, {"kind": "secret"}, {"lane": "fast"}, {"replay": "always"}, {"depth": -1}, {"depth": 1.5},
     {"expires_in": 0}, {"expires_in": True}, {"verified": "yes"}, {"text": 7}, {"body": {"a": 1}}, {"origin": None},
     {"origin": []}, {"origin": ["x", "bob", "ann", None, "message", None]},
     {"origin": [A, "bob", "ann", None, "message", "x"]},
     # What a store cannot hold, nor a float: one such must not cost the others of its batch.
     {"depth": 2**63}, {"created_at": 2**63}, {"created_at": -1},
     {"created_at": 253_402_300_800_000}, {"expires_in": 10**400},
     {"origin": [A, "b" * 600, "ann", None, "message", None]}, {"origin": [A, "bob", "a" * 600, None, "message", None]},
     {"text": "half \ud83e"}, {"body": '"\udd16"'}, {"fingerprint": "\ud83e"}, {"reason": "x" * 600}],
    ids=lambda wrong: str(wrong)[:60].encode("ascii", "backslashreplace").decode(),
)  # fmt: skip
def test_what_is_no_message_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((BadRequest, BadName)):
        shapes.read_item(changed(**wrong))


@pytest.mark.parametrize("field", ["id", "from", "to", "called", "origin", "via", "fingerprint", "expires_in", "kind"])
def test_nothing_that_is_needed_may_be_missing(field: str) -> None:
    with pytest.raises(BadRequest):
        shapes.read_item({key: each for key, each in PLAIN.items() if key != field})


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(),
        st.text("\ud800\udfffa", max_size=3), st.sampled_from([A, B, ME, "ann", "", "ann@b", "*", "x" * 65, -1, 2**64]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=8,
)  # fmt: skip
HURT = st.dictionaries(st.sampled_from(sorted({*PLAIN, "about", "in_reply_to", "reason", "flat"})), JSON, max_size=3)


def takes(read: Callable[[object], Any], content: object) -> Any:
    """What it reads; None where it refuses, as the caller's fault and nothing else."""
    try:
        return read(content)
    except CallerError:
        return None


@given(st.one_of(JSON, HURT.map(lambda hurt: {**PLAIN, **hurt})))
def test_whatever_comes_is_a_message_with_good_names_or_the_callers_fault(content: object) -> None:
    item = takes(shapes.read_item, content)
    if item is None:
        return
    assert isinstance(item, Item)
    for id in (item.id, item.thread, item.chain, item.sender.hub, item.recipient.hub, item.origin.hub, *item.via):
        check_id(id)
    for optional in (item.in_reply_to, item.about, item.origin.thread):
        assert optional is None or check_id(optional)
    for name in (item.sender.handle, item.recipient.handle, item.called):
        check_handle(name)
    assert max(item.depth, item.expires_in) < 2**63
    assert rfc3339(item.created_at)
    assert shapes.is_whole(item) in (True, False)
    msgspec.json.encode(item)


# ------------------------------------------------------------------------------------------------------------- rosters


def rows(*given: Any) -> list[HubRow]:
    return shapes.read_rows(list(given), ME)


def test_a_row_is_read_as_it_was_told() -> None:
    told = {**ROW, "title": "Ann", "description": "does things", "online": True}
    (row,) = rows(told)
    assert row == HubRow("ann", B, "rack", (B,), "Ann", "does things", True)
    assert shapes.plain([row]) == [{**told, "way": (B,)}]


def test_online_is_true_false_or_not_said() -> None:
    assert [row.online for row in rows(ROW, {**ROW, "handle": "b", "online": False})] == [None, False]
    assert rows({**ROW, "online": "yes"}) == []


@pytest.mark.parametrize(
    "bad",
    [{"hub": ME}, {"way": [B, ME]}, {"way": [ME]}, {"way": []}, {"way": None}, {"hub": "x"}, {"way": [B, "x"]},
     {"handle": ""},
     {"handle": "a@b"}, {"handle": "a" * 65}, {"name": "x y"}, {"name": 7}, {"title": ["x"]}, {"title": "\ud83e"}],
    ids=str,
)  # fmt: skip
def test_one_that_cannot_be_used_costs_no_other(bad: dict[str, Any]) -> None:
    """Above all none of this hub's own, and none that has passed it."""
    assert [row.handle for row in rows({**ROW, **bad}, 7, None, {**ROW, "handle": "cat"})] == ["cat"]


def test_the_first_of_an_agent_counts_whatever_its_case() -> None:
    found = rows({**ROW, "title": "first"}, {**ROW, "handle": "ANN"}, {**ROW, "hub": C, "way": [C, B]})
    assert [(row.hub, row.title) for row in found] == [(B, "first"), (C, "")]


def test_texts_are_one_line_and_cut() -> None:
    (row,) = rows({**ROW, "title": " a\n b\t" + "x" * 500, "description": "y\r\n" * 5000})
    assert row.title.startswith("a b x")
    assert (len(row.title), len(row.description)) == (shapes.TITLE_CHARS, shapes.DESCRIPTION_CHARS)


def test_there_are_no_more_rows_than_a_hub_knows_names() -> None:
    many = [{**ROW, "handle": f"a{number}"} for number in range(5)]
    assert len(shapes.read_rows(many, ME, 3)) == 3


@given(
    st.one_of(
        JSON, st.lists(st.one_of(JSON, st.dictionaries(st.sampled_from(sorted(ROW)), JSON).map(lambda h: {**ROW, **h})))
    )
)
def test_whatever_comes_is_a_list_of_good_rows(content: object) -> None:
    found = shapes.read_rows(content, ME)
    for row in found:
        assert ME not in {row.hub, *row.way}
        for id in (row.hub, *row.way):
            check_id(id)
        check_handle(row.handle)
        check_handle(row.name)
    assert len({(row.hub, row.handle.lower()) for row in found}) == len(found)
    msgspec.json.encode(found)


# ------------------------------------------------------------------------------------------------------------ outcomes


def test_an_outcome_comes_as_it_was_told() -> None:
    for outcome in (Outcome(C, "ann", "delivered"), Outcome(C, "ann", "dead", Reason.ATTEMPTS_USED_UP)):
        assert shapes.read_outcome(msgspec.to_builtins(outcome)) == outcome


@given(JSON)
def test_whatever_comes_is_an_outcome_or_the_callers_fault(content: object) -> None:
    found = takes(shapes.read_outcome, content)
    if found is not None:
        check_id(found.id)
        check_handle(found.handle)


def test_an_answer_speaks_of_each_message_or_is_none() -> None:
    answer = [{"stored": True}, {"stored": False, "code": "mailbox_full", "detail": "full"}]
    assert shapes.read_stored(answer, 2) == [Stored(True), Stored(False, False, "mailbox_full", "full")]
    wrongs: list[object] = [answer, [], None, {"stored": True}, [{"stored": 1}] * 3, [{}] * 3]
    for wrong in wrongs:
        with pytest.raises(BadRequest):
            shapes.read_stored(wrong, 3)


def test_a_refusal_carries_its_code_and_its_words() -> None:
    assert shapes.refusal(IdReused("used")) == Stored(stored=False, code="id_reused", detail="used")


@pytest.mark.parametrize(
    ("code", "reason"),
    [("unknown_agent", Reason.RUNTIME_OFFLINE), ("runtime_offline", Reason.RUNTIME_OFFLINE),
     ("too_large", Reason.TOO_LARGE), ("hop_limit", Reason.LOOP), ("ambiguous_name", Reason.RUNTIME_OFFLINE),
     ("not_allowed", Reason.AGENT_BLOCKED), ("anything", Reason.AGENT_BLOCKED), (None, Reason.AGENT_BLOCKED)],
)  # fmt: skip
def test_what_a_sender_is_told_of_a_refusal(code: str | None, reason: Reason) -> None:
    assert shapes.reason_of(code) is reason


def test_what_only_time_stands_against_is_tried_again_and_nothing_else() -> None:
    codes = {each.code for each in _all(AngeliaError)}
    ours = {"disk_full", "outcome_unknown", "stopping", "unwell"}
    assert not shapes.AGAIN - codes
    assert not shapes.AGAIN ^ (ours | {MailboxFull.code, "rate_limited"})


def _all(kind: type[AngeliaError]) -> list[type[AngeliaError]]:
    return [
        kind,
        *(each for sub in kind.__subclasses__() if sub.__module__.startswith("angelia.model") for each in _all(sub)),
    ]
