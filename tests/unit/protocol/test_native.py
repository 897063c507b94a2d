"""The native shapes: what they take, what they refuse, what they show."""

import json

import pytest

from angelia.model.delivery import State
from angelia.model.errors import BadRequest
from angelia.protocol import native
from angelia.protocol.json import encode, struct
from tests.unit.protocol.test_seed_bus import DELIVERY, envelope


@pytest.mark.parametrize(
    "bad",
    [
        b'{"text":"no recipient"}',
        b'{"to":"a","txet":"misspelt"}',
        b'{"to":"a","text":1}',
        b'{"to":"a","intent":"command"}',
        b'{"to":"a","lane":"fast"}',
        b'{"to":"a","ttl_seconds":"1h"}',
    ],
)
def test_a_send_of_another_shape_is_refused_by_name(bad: bytes) -> None:
    with pytest.raises(BadRequest):
        struct(bad, native.SendIn, 32)


def test_absent_fields_are_left_out() -> None:
    assert set(json.loads(encode(native.message_out(envelope("hi", None, False))))) == {
        "id",
        "from",
        "to",
        "intent",
        "kind",
        "verified",
        "text",
        "thread",
        "chain",
        "depth",
        "lane",
        "replay",
        "created_at",
        "expires_at",
    }


def test_a_seed_payload_shows_its_text_as_the_text_and_all_of_it_as_the_body() -> None:
    got = json.loads(encode(native.message_out(envelope(None, b'{"type":"x","text":"ciao"}', True))))
    assert got["text"] == "ciao"
    assert got["body"] == {"type": "x", "text": "ciao"}


def test_a_seed_payload_without_a_text_has_none() -> None:
    assert native.text_of(envelope(None, b'{"text":7}', True)) is None


def test_a_receipt_says_who_holds_a_leased_delivery_and_until_when() -> None:
    got = json.loads(encode(native.delivery_out(DELIVERY, until=1_800_000_060_000)))
    assert got["state"] == "leased"
    assert got["holder"] == {"by": "poll", "until": "2027-01-15T08:01:00.000Z"}


@pytest.mark.parametrize("state", [state for state in State if state is not State.LEASED])
def test_nobody_holds_what_is_not_leased(state: State) -> None:
    assert native.delivery_out(DELIVERY._replace(state=state)).holder is None
