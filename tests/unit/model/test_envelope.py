"""What one message is: its fingerprint, its size, and its id."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.model.envelope import Envelope, Intent, Kind, Lane, Replay, check_id, fingerprint, size_of
from angelia.model.errors import BadRequest

TEXT = st.none() | st.text(max_size=5)
WORD, BYTES = st.text(max_size=5), st.none() | st.binary(max_size=5)
FIELDS = st.tuples(WORD, WORD, TEXT, WORD, TEXT, BYTES, TEXT, TEXT)


@given(FIELDS, FIELDS)
def test_two_fingerprints_are_the_same_only_for_the_same_fields(one: Any, other: Any) -> None:
    assert (fingerprint(*one) == fingerprint(*other)) is (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b", None, "m", None, b"x", None, None), ("a", "b", None, "m", "", b"x", None, None)),
        (("a", "bc", None, "m", "", None, None, None), ("ab", "c", None, "m", "", None, None, None)),
        (("a", "b", None, "m", "x", None, None, None), ("a", "b", None, "m", None, b"x", None, None)),
        (("a", "b", None, "m", "-", None, None, None), ("a", "b", None, "m", None, None, None, None)),
        (("a", "b", None, "m", "x", None, "t", None), ("a", "b", None, "m", "x", None, None, "t")),
        (("a", "b", None, "m", "1:", None, None, None), ("a", "b", None, "m", "", b"1:", None, None)),
    ],
)
def test_what_looks_alike_is_told_apart(one: Any, other: Any) -> None:
    assert fingerprint(*one) != fingerprint(*other)


def test_a_fingerprint_never_changes_between_versions() -> None:
    """It is compared across hubs and restarts: this value stands on disks."""
    assert fingerprint("bob", "ann", "request", "message", "hi", b"{}", None, None).hex() == (
        "edb357816ee2370ee7cb46f4faa7658ccf304bb8693af1b0629f76a3b3002a61"
    )


def test_a_fingerprint_takes_any_text() -> None:
    assert len(fingerprint("a", "b", None, "message", "half \ud800", None, None, None)) == 32


def envelope(**more: Any) -> Envelope:
    fields: dict[str, Any] = {
        "id": "0" * 32, "sender": "bob", "to": "ann", "intent": Intent.INFORM, "kind": Kind.MESSAGE, "text": None,
        "body": None, "thread": "0" * 32, "chain": "0" * 32, "created_at": 1, "expires_at": 2, "fingerprint": b"",
    }  # fmt: skip
    return Envelope(**fields | more)


@pytest.mark.parametrize(
    ("text", "body", "size"), [(None, None, 256), ("é", None, 258), ("", b"12", 258), ("abc", b"12", 261)]
)
def test_a_message_counts_what_was_sent_and_a_little_for_the_rest(
    text: str | None, body: bytes | None, size: int
) -> None:
    assert envelope(text=text, body=body).size == size_of(text, body) == size


def test_what_is_not_said_is_the_least() -> None:
    plain = envelope()
    assert (plain.lane, plain.replay, plain.depth, plain.via) == (Lane.NORMAL, Replay.ONCE, 0, ())
    assert (plain.verified, plain.flat, plain.in_reply_to, plain.about, plain.key) == (False, False, None, None, None)


@given(st.text("0123456789abcdef", min_size=32, max_size=32))
def test_any_32_lower_case_hex_digits_are_an_id(value: str) -> None:
    assert check_id(value) == value


@pytest.mark.parametrize(
    "value",
    ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, "0" * 32 + "\n", "../" * 11, "\uff10" * 32, None, 7, b"0" * 32],
)
def test_nothing_else_is(value: object) -> None:
    with pytest.raises(BadRequest):
        check_id(value)


def test_the_words_are_those_of_the_wire() -> None:
    assert [w.value for w in Intent] == ["request", "inform", "ack"]
    assert [w.value for w in Kind] == ["message", "reply", "notice"]
    assert [w.value for w in Lane] == ["person", "normal"]
    assert [w.value for w in Replay] == ["once", "never", "ask"]
