"""What is known of damaged mail: it is kept as it was told, without anything of what the mail said."""

import msgspec

from angelia.model.delivery import Delivery, State
from angelia.model.envelope import Envelope
from angelia.model.loss import Loss

DELIVERY = Delivery(7, 7, "a" * 32, "ann", "Ann", "bob", 300, State.LEASED, 1, 2, None, attempt=1)


def test_it_is_read_as_it_was_kept() -> None:
    loss = Loss("a" * 32, (DELIVERY,), False, "Bob", "request", "message", None, "key", bytes(32))
    assert msgspec.msgpack.Decoder(Loss).decode(msgspec.msgpack.encode(loss)) == loss


def test_nothing_of_it_is_content() -> None:
    assert not {"text", "body"} & set(Loss._fields)
    assert {"text", "body"} <= set(Envelope._fields)
