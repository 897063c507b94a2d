"""The sums of each mailbox, kept beside the rows so that no bound is checked by counting.

What must stay true: the sums are those of the rows, always: every change of a delivery goes through ``change``, and a
unit that is rolled back gives its changes to ``undo``. A mailbox without an open delivery has no entry, so memory
follows what is open and not what ever was. One ``Loads`` belongs to one thread.
"""

from collections.abc import Iterable, Sequence

from angelia.bus.ports import Load
from angelia.model.delivery import Delivery, State

# mailbox, sender, then what to add to: open (and the sender's count), ready, queued, bytes
Change = tuple[str, str, int, int, int, int]


def change(old: Delivery | None, new: Delivery | None) -> Change | None:
    """What becoming ``new`` does to the sums; None where it does nothing. None stands for "not there"."""
    opened = ready = queued = size = 0
    for delivery, sign in ((old, -1), (new, 1)):
        if delivery is None or delivery.state > State.HELD:
            continue
        opened += sign
        size += sign * delivery.size
        if delivery.state is State.QUEUED:
            queued += sign
            if not delivery.deferred:
                ready += sign
    if not (opened or ready or queued or size):
        return None
    some = new or old
    assert some is not None
    return some.mailbox, some.sender.lower(), opened, ready, queued, size


class Loads:
    """All sums, by mailbox. The keys of ``by_sender`` are lower case."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[str, Load] = {}

    def of(self, mailbox: str) -> Load:
        """The sums of one mailbox; a fresh empty one, which nothing updates, where nothing is open."""
        return self._of.get(mailbox) or Load()

    def apply(self, changes: Iterable[Change]) -> None:
        """Add these changes."""
        for mailbox, sender, opened, ready, queued, size in changes:
            self._add(mailbox, sender, opened, ready, queued, size)

    def undo(self, changes: Sequence[Change]) -> None:
        """Take these changes back, the last one first."""
        for mailbox, sender, opened, ready, queued, size in reversed(changes):
            self._add(mailbox, sender, -opened, -ready, -queued, -size)

    def _add(self, mailbox: str, sender: str, opened: int, ready: int, queued: int, size: int) -> None:
        load = self._of.get(mailbox)
        if load is None:
            load = self._of[mailbox] = Load()
        load.ready += ready
        load.queued += queued
        load.bytes += size
        if opened:
            load.open += opened
            count = load.by_sender.get(sender, 0) + opened
            if count:
                load.by_sender[sender] = count
            else:
                del load.by_sender[sender]
            if not load.open:
                del self._of[mailbox]
