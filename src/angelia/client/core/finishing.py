"""What has been dealt with, and what becomes of mail that comes again: settled, and not handed over a second time.

What must stay true: a message is finished when its reader asks for the next one, or ends its claim without an error,
and not before. It is noted as finished first and acked then: where the ack is lost, the hub offers the message again,
and that settles it. The newest 10,000 are known; who must know them after its own end keeps them (``journal.py``).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from angelia.client.core.following import Item, lease_token, message_id
from angelia.client.core.steps import Out
from angelia.client.errors import ClientError, Superseded

if TYPE_CHECKING:
    from collections.abc import Container

    from angelia.client.core.steps import Plan
    from angelia.client.core.verbs import Verbs

REMEMBERED = 10_000


class Finished:
    """Ids that were dealt with: the newest of one's own, and whatever the caller knows of."""

    def __init__(self, kept: int = REMEMBERED) -> None:
        self._kept = kept
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._ids

    def add(self, message_id: str) -> None:
        """This one is done with."""
        self._ids[message_id] = None
        self._ids.move_to_end(message_id)
        if len(self._ids) > self._kept:
            self._ids.popitem(last=False)


class Items:
    """What ``stream`` makes of each item: the finished are settled and dropped, ``bye`` is nobody's business."""

    def __init__(self, verbs: Verbs, own: Finished, finished: Container[str], *, auto: bool) -> None:
        self._verbs = verbs
        self._own = own
        self._finished = finished
        self._auto = auto

    def hand(self, item: Item) -> Plan[None]:
        """One item."""
        known = message_id(item)
        if known and (known in self._finished or (self._auto and known in self._own)):
            yield from settled(self._verbs, lease_token(item))
        elif item.kind != "bye":
            yield Out(item)
            if known and self._auto:
                self._own.add(known)


class Messages:
    """What ``messages`` makes of each item: a message, once, which is finished when the next one is asked for.

    Copies that the hub shows after a resume (``again``) were settled by somebody; they are not handed over.
    """

    def __init__(self, verbs: Verbs, own: Finished, finished: Container[str]) -> None:
        self._verbs = verbs
        self._own = own
        self._finished = finished

    def hand(self, item: Item) -> Plan[None]:
        """One item."""
        if item.kind == "superseded":
            raise Superseded(self._verbs.post.name or "")
        known = message_id(item)
        if not known or item.data.get("again"):
            return
        if known not in self._own and known not in self._finished:
            yield Out(item.data["message"])
            self._own.add(known)
        yield from settled(self._verbs, lease_token(item))


def settled(verbs: Verbs, lease: str) -> Plan[None]:
    """Ack what is finished. One that fails is not repeated: the hub offers the message again, and then it is known."""
    if not lease:
        return
    try:
        yield from verbs.ack(lease)
    except ClientError:
        return
