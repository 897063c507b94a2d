"""The short form of a message: its text is cut for a list only, and says by how much."""

import msgspec
import pytest

from angelia.protocol.json import encode
from angelia.protocol.library import LETTERS, BackupIn, last_out
from tests.conformance.mail import envelope


@pytest.mark.parametrize(
    ("text", "shown", "left_out"),
    [("short", "short", 0), ("é" * LETTERS, "é" * LETTERS, 0), ("é" * LETTERS + "end", "é" * LETTERS, 3), ("", "", 0)],
)
def test_a_text_that_is_cut_says_by_how_much(text: str, shown: str, left_out: int) -> None:
    out = last_out(envelope(1, text=text))
    assert (out.text, out.left_out) == (shown, left_out)


def test_a_message_without_text_has_none() -> None:
    out = last_out(envelope(1, text=None, body=b'{"n":1}'))
    assert (out.text, out.left_out) == (None, 0)


def test_the_text_of_a_seed_payload_is_its_text() -> None:
    assert last_out(envelope(1, text=None, body=b'{"type":"test","text":"hello"}', flat=True)).text == "hello"


def test_its_shape_on_the_wire() -> None:
    found = msgspec.json.decode(encode(last_out(envelope(1, text="hi"))))
    assert found == {
        "id": f"{1:032x}", "from": "Hermes", "to": "claude", "kind": "message", "text": "hi",
        "created_at": "2027-01-15T08:00:00.001Z",
    }  # fmt: skip


def test_an_unknown_field_of_a_request_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"path": "/x"}', type=BackupIn)
