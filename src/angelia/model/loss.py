"""What is still known of mail that a store set aside, since bits of it had flipped.

What must stay true: nothing in here is content. What was read of a row that is damaged says so, and proves nothing.

A store leaves each as a note (msgpack) whose name begins with ``LOSS``; ``bus/losses.py`` sees to it.
"""

from typing import NamedTuple

from angelia.model.delivery import Delivery

LOSS = "loss:"


class Loss(NamedTuple):
    """Where its message is damaged, ``deliveries`` are those that are whole, and ``sender`` to ``fingerprint`` stand as
    they are read: any one of them may be wrong. Where it is ``whole``, the message is there still, and a delivery of it
    is what is damaged: it stands in ``deliveries`` as it is read, where it can be, wrong somewhere."""

    message_id: str
    deliveries: tuple[Delivery, ...]
    whole: bool
    sender: str = ""
    intent: str = ""
    kind: str = ""
    in_reply_to: str | None = None
    key: str | None = None
    fingerprint: bytes = b""
