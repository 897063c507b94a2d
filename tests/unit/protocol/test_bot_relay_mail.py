"""Envelopes and replies: each file is judged by itself, and nothing that stands in one is an error for the others."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.protocol.bot_relay_mail import (
    BadEnvelope,
    RelayReply,
    author,
    check_id,
    new_envelope,
    new_reply,
    read_envelope,
    read_reply,
)

ID = "5f0c" + "0" * 28
WHOLE: dict[str, Any] = {
    "id": ID,
    "created_at": 1790000000,
    "from_profile": "default",
    "from_handle": "hermes",
    "target_connection": "vps-1",
    "target_profile": "ops",
    "target_handle": "Ops",
    "message": "Message from 🤖 hermes (@hermes): build status?",
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
BAD_IDS = [
    "",
    "x",
    ID.upper(),
    ID + "0",
    ID[:-1],
    f"{ID}\n",
    f"../{ID}",
    "../../etc/passwd",
    f"{ID[:-1]}\0",
    "\u0660" * 32,
]


def file(**changes: object) -> bytes:
    return json.dumps({key: value for key, value in {**WHOLE, **changes}.items() if value is not ...}).encode()


def bad(data: bytes) -> BadEnvelope:
    with pytest.raises(BadEnvelope) as caught:
        read_envelope(data)
    return caught.value


# ---- envelopes


def test_an_envelope_of_hermes_is_read() -> None:
    """2.2 the example, as G1 to G3 write it."""
    read = read_envelope(file())
    assert (read.id, read.created_at, read.reoffered_at) == (ID, 1790000000, None)
    assert (read.from_profile, read.from_handle) == ("default", "hermes")
    assert (read.target_connection, read.target_profile, read.target_handle) == ("vps-1", "ops", "Ops")
    assert read.message == WHOLE["message"]
    assert read_envelope(b"\xef\xbb\xbf" + file()) == read


def test_the_mark_of_a_second_offer_is_written_beside_all_that_was_there() -> None:
    """2.2 `reoffered_at`; what a later Hermes puts in beside it stays."""
    read = read_envelope(file(later={"field": [1]}))
    again = read_envelope(read.reoffered(1790001560).file())
    assert again.reoffered_at == 1790001560
    assert again.content == {**WHOLE, "later": {"field": [1]}, "reoffered_at": 1790001560}
    assert read.reoffered_at is None
    assert "🤖".encode() in again.file()


@pytest.mark.parametrize("data", [b"", b"{", b'"x"', b"[]", b"null", b"5", b"\xff", b"[" * 100_000, b"\0" * 10])
def test_what_is_no_object_is_a_bad_envelope_and_no_error(data: bytes) -> None:
    """9.1 claim_skips_non_dict_envelope, and 11.4 its second half: it made every drain of G1 and G2 fail."""
    assert bad(data).id is None


@pytest.mark.parametrize("id", [*BAD_IDS, None, 5, [], {}, ...])
def test_an_id_that_is_none_is_never_an_id(id: object) -> None:
    """14.3 whole-string matching: it becomes a file's name."""
    assert bad(file(id=id)).id is None


@pytest.mark.parametrize(
    "created_at",
    ["1790000000", "soon", [1790000000], {"at": 1}, True, 10**20, -1, 1e300, 253402300800],
)
def test_a_time_that_is_none_costs_this_envelope_alone_and_its_sender_can_be_told(created_at: object) -> None:
    """11.4: a list or a huge number made every drain fail for six hours."""
    assert (bad(file(created_at=created_at)).id, bad(file(created_at=created_at)).connection) == (ID, "vps-1")
    assert bad(file(reoffered_at=created_at)).id == ID


@pytest.mark.parametrize("digits", [400, 5_000])
def test_a_number_without_end_is_a_bad_envelope(digits: int) -> None:
    """11.4 a huge integer, also beyond what Python turns into one."""
    assert bad(file().replace(b"1790000000", b"9" * digits)).id in (ID, None)


@pytest.mark.parametrize("created_at", [None, 0, 0.0, "", False, [], ...])
def test_without_a_time_the_files_own_counts(created_at: object) -> None:
    """3.4 falsy created_at ⇒ mtime."""
    assert read_envelope(file(created_at=created_at)).created_at is None


@pytest.mark.parametrize("key", ["target_connection", "target_profile"])
@pytest.mark.parametrize("given", ["", "a b", "../x", "x" * 65, "a\n", None, 5, ["ops"], ...])
def test_without_a_target_it_is_bad_and_its_sender_can_be_told(key: str, given: object) -> None:
    found = bad(file(**{key: given}))
    assert (found.id, found.connection) == (ID, None if key == "target_connection" else "vps-1")


@pytest.mark.parametrize("message", ["", "  \n", None, 5, ["x"], ...])
def test_without_a_message_it_is_bad(message: object) -> None:
    found = bad(file(message=message))
    assert (found.id, found.connection, found.why) == (ID, "vps-1", "The envelope has no message.")


def test_what_is_too_large_is_bad_and_its_sender_can_be_told() -> None:
    data = file()
    assert read_envelope(data, len(data)).id == ID
    with pytest.raises(BadEnvelope) as caught:
        read_envelope(data, len(data) - 1)
    assert (caught.value.id, caught.value.connection) == (ID, "vps-1")


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "my.profile", None, 5, ["ops"], ...])
def test_a_sender_that_is_no_name_is_nobody_and_the_message_goes_on(given: object) -> None:
    """G1 took any folder for a profile; a message from such a one is delivered, under no name."""
    read = read_envelope(file(from_profile=given, from_handle=given, target_handle=given))
    assert (read.from_profile, read.from_handle, read.target_handle) == ("", "", "ops")


def test_one_that_is_made_here_is_that_of_hermes() -> None:
    """9.1 enqueue: the file's shape; the id is 32 hex digits."""
    made = new_envelope(ID, 1790000000, ("default", "hermes"), ("vps-1", "ops", "Ops"), WHOLE["message"])
    assert json.loads(made.file()) == WHOLE
    with pytest.raises(BadEnvelope):
        new_envelope("x", 1790000000, ("default", "hermes"), ("vps-1", "ops", "Ops"), "hi")
    assert new_envelope(ID, 1, ("", ""), ("a", "b", "c"), "cut \ud83d").message == "cut \ufffd"


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_file_is_an_envelope_or_a_bad_one(data: bytes) -> None:
    with suppress(BadEnvelope):
        read_envelope(data)


@given(
    st.fixed_dictionaries(
        {"id": st.just(ID)}, optional={key: VALUES for key in [*WHOLE, "reoffered_at"] if key != "id"}
    )
)
def test_any_field_of_any_type_is_judged_and_never_an_error(content: dict[str, Any]) -> None:
    """11.4 every type error is caught, file by file; what was read is read the same again."""
    try:
        read = read_envelope(json.dumps({**WHOLE, **content}).encode())
    except BadEnvelope:
        return
    assert read_envelope(read.file()) == read


# ---- replies


@pytest.mark.parametrize("id", [*(bad_id for bad_id in BAD_IDS if bad_id.strip() != ID), None, 5, [ID], {}])
def test_a_reply_to_what_is_no_id_is_refused(id: object) -> None:
    """9.1 write_reply_validates_envelope_id, 9.2 reply_roundtrip_and_id_validation: a path above all."""
    with pytest.raises(ValueError, match="32 lowercase hex"):
        check_id(id)
    with pytest.raises(ValueError, match="32 lowercase hex"):
        new_reply(id, 1, reply="hi")


def test_a_good_reply_is_written_as_hermes_does() -> None:
    """2.3 the example; the id is trimmed, and an error that there is not is empty."""
    reply = new_reply(f" {ID}\n", 1790000042, reply="green since 04:10")
    assert reply == RelayReply(ID, 1790000042, "green since 04:10", "", "")
    assert reply.file().decode() == (
        f'{{"id":"{ID}","at":1790000042,"reply":"green since 04:10","error":"","reason":""}}'
    )
    assert read_reply(reply.file()) == reply


@pytest.mark.parametrize(
    ("error", "reason", "written"),
    [
        ("it broke", "their_own_word", "their_own_word"),
        ("HTTP 429: slow down", None, "provider_rate_limit"),
        ("HTTP 429: slow down", "", "provider_rate_limit"),
        ("HTTP 429: slow down", "target_busy", "target_busy"),
        ("it broke", None, "unknown"),
        (None, None, ""),
        ("", "", ""),
    ],
)
def test_a_reason_is_kept_or_read_out_of_the_error(error: str | None, reason: str | None, written: str) -> None:
    """9.1 write_reply_reason_passthrough_and_classification."""
    assert new_reply(ID, 1, error=error, reason=reason).reason == written


def test_a_name_in_an_error_is_not_its_reason() -> None:
    """11.1 names out first."""
    error = "delivery to @quota-bot on balance-1 failed"
    assert new_reply(ID, 1, error=error, names=["quota-bot", "balance-1"]).reason == "unknown"


def test_a_connection_that_the_desktop_lost_is_offline_and_not_unknown() -> None:
    """11.2: the stock Desktop reports it without a reason, in these words."""
    told = new_reply(ID, 1, error="connection 'balance-1' is not connected to this Desktop right now")
    assert told.reason == "runtime_offline"


def test_fields_of_other_types_are_texts() -> None:
    """7.3 `reply` of any shape: coerced, and kept whole where it is a text."""
    assert new_reply(ID, 1, reply=5).reply == "5"
    assert new_reply(ID, 1, reply=None, error=None, reason=None).file() == RelayReply(ID, 1).file()
    assert new_reply(ID, 1, reply="  kept \n").reply == "  kept \n"
    assert new_reply(ID, 1, reply=["x"]).reply == ""


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"id":"x"}', b"\xff"])
def test_half_a_reply_is_none_yet(data: bytes) -> None:
    assert read_reply(data) is None


@given(VALUES, VALUES, VALUES, VALUES)
def test_any_reply_of_a_peer_is_read_back_as_it_was_stored(
    at: object, reply: object, error: object, reason: object
) -> None:
    stored = new_reply(ID, 1, reply=reply, error=error, reason=reason)
    again = read_reply(stored.file())
    assert again is not None
    assert read_reply(again.file()) == again
    read_reply(json.dumps({"id": ID, "at": at, "reply": reply}).encode())


# ---- who is remembered as the writer


def test_the_author_is_made_of_the_senders_fields() -> None:
    """9.1 delivery_turn_author_from_envelope_sender_fields / …_qualifies_a_remote_sender_by_its_connection."""
    assert author("default", "hermes") == {"id": "bot:default", "name": "hermes", "is_bot": True}
    assert author("ops", "", "vps-1") == {"id": "bot:vps-1/ops", "name": "ops", "is_bot": True}
    assert author("default", "hermes", "local") == {"id": "bot:local/default", "name": "hermes", "is_bot": True}
    assert author("", "hermes", "vps-1") is None


def test_a_hostile_sender_field_is_no_part_of_an_author() -> None:
    assert author("../x", "hermes") is None
    assert author("ops", '"}', "a b") == {"id": "bot:ops", "name": "ops", "is_bot": True}


@pytest.mark.parametrize(
    ("profile", "handle", "sender"),
    [
        ("default", "Maia", "hermes"),
        ("ops", "Ops", "ops"),
        ("", "ops", "ops"),
        ("", "default", "hermes"),
        ("", "", "hermes"),
        ("no name", "ops", "ops"),
    ],
)
def test_a_sender_is_its_profile_else_its_handle_else_hermes(profile: str, handle: str, sender: str) -> None:
    assert read_envelope(file(from_profile=profile, from_handle=handle)).sender == sender
