"""What the seed's clients read: the payload as it was sent, with ``_meta`` by the hub alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope, Intent, Kind
from angelia.protocol.seed_bus import read_payload, show, show_transient

ID = "0190000000007000" + "0" * 16


def envelope(text: str | None, body: bytes | None, flat: bool) -> Envelope:
    return Envelope(
        id=ID,
        sender="openclaw",
        to="hermes",
        intent=Intent.INFORM,
        kind=Kind.MESSAGE,
        text=text,
        body=body,
        flat=flat,
        thread=ID,
        chain=ID,
        created_at=1_800_000_000_000,
        expires_at=1_800_000_900_000,
        fingerprint=b"",
    )


DELIVERY = Delivery(
    key=41,
    seq=42,
    message_id=ID,
    mailbox="hermes",
    to="hermes",
    sender="openclaw",
    size=300,
    state=State.LEASED,
    attempt=2,
    hand=Hand.POLL,
    accepted_at=1_800_000_000_000,
    expires_at=1_800_000_900_000,
    sweep_at=None,
)


def shown(payload: object) -> dict[str, object]:
    return json.loads(show(envelope(*read_payload(json.dumps(payload).encode(), 32)), DELIVERY))


def test_the_seeds_own_example_comes_out_as_it_went_in() -> None:
    got = shown({"type": "test", "text": "messaggio"})
    meta = got.pop("_meta")
    assert got == {"type": "test", "text": "messaggio"}
    assert meta == {
        "from": "openclaw",
        "id": ID,
        "seq": 42,
        "type": "test",
        "at": "2027-01-15T08:00:00.000Z",
        "verified": False,
        "intent": "inform",
        "kind": "message",
        "thread": ID,
        "attempt": 2,
    }


@given(st.dictionaries(st.text(), st.none() | st.integers(-5, 5) | st.text(), max_size=5))
def test_any_object_comes_back_whole_and_only_the_hub_writes_meta(payload: dict[str, object]) -> None:
    got = shown({**payload, "_meta": {"from": "human", "id": "forged"}})
    meta = got.pop("_meta")
    assert isinstance(meta, dict)
    assert meta["from"] == "openclaw"
    assert got == {key: item for key, item in payload.items() if key != "_meta"}


@pytest.mark.parametrize("payload", [[1, 2], 3, None, True, 1.5])
def test_a_payload_that_is_neither_object_nor_string_stands_under_body(payload: object) -> None:
    assert shown(payload)["body"] == payload


def test_a_string_stands_under_text() -> None:
    assert shown("ciao")["text"] == "ciao"


@pytest.mark.parametrize("kind", [1, None, ["test"], {}])
def test_a_type_that_is_no_string_is_not_the_hubs_type(kind: object) -> None:
    meta = shown({"type": kind})["_meta"]
    assert isinstance(meta, dict)
    assert "type" not in meta


def test_a_native_message_shows_text_and_body_beside_each_other() -> None:
    got = json.loads(show(envelope("hi", b'{"a":1}', False), DELIVERY, lease="41-2-ab", again=True))
    assert got["text"] == "hi"
    assert got["body"] == {"a": 1}
    assert got["_meta"]["lease"] == "41-2-ab"
    assert got["_meta"]["again"] is True


def test_a_notice_that_is_not_stored_has_neither_id_nor_number() -> None:
    body = b'{"type":"subscriber_connected","agent":"openclaw"}'
    notice = envelope(None, body, True)._replace(sender="interop", kind=Kind.NOTICE)
    assert json.loads(show_transient(notice)) == {
        "type": "subscriber_connected",
        "agent": "openclaw",
        "_meta": {"from": "interop", "type": "subscriber_connected", "kind": "notice"},
    }


def test_what_is_shown_is_one_line() -> None:
    data = show(envelope(*read_payload(b'{\n"text":\r\n"a\\nb"}', 32)), DELIVERY)
    assert b"\n" not in data
    assert b"\r" not in data
