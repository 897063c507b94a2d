"""One message's bytes are made once, however many are handed it."""

from angelia.model.envelope import Envelope
from angelia.protocol.newest import Newest
from tests.unit.protocol.test_seed_bus import envelope


def test_bytes_are_made_once_for_all_who_are_handed_a_message() -> None:
    made: list[Envelope] = []

    def make(each: Envelope) -> bytes:
        made.append(each)
        return (each.text or "").encode()

    newest = Newest(make)
    one, other = envelope("one", None, False), envelope("other", None, False)
    assert [newest(each) for each in (one, one, other, other, one)] == [b"one", b"one", b"other", b"other", b"one"]
    assert made == [one, other, one]


def test_a_message_that_only_looks_the_same_gets_its_own() -> None:
    newest = Newest(lambda each: repr(id(each)).encode())
    one = envelope("one", None, False)
    assert newest(one) != newest(one._replace(text="one"))
