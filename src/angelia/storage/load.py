"""The sums of each mailbox, kept beside the rows so that no bound is checked by counting.

What must stay true: the sums are those of the rows, always: every change of a row is told by ``added``, ``moved`` or
``weigh``, and a unit that is rolled back gives its changes to ``undo``. A mailbox without an open delivery has no
entry (but for the ``KEPT`` that are at hand), so memory follows what is open and not what ever was. One ``Loads``
belongs to one thread.
"""

from collections.abc import Iterable, Sequence

from angelia.bus.ports import Load
from angelia.model.delivery import Delivery, State

# Mail to a live stream is open for a moment only: an entry that is empty for that long need not be made anew.
KEPT = 4_096

# mailbox, sender, then what to add to: open (and the sender's count), ready, queued, bytes (and the sender's)
Change = tuple[str, str, int, int, int, int]


def weigh(mailbox: str, sender: str, state: int, deferred: bool, size: int, sign: int = 1) -> Change | None:
    """What one delivery adds to the sums (takes from them where ``sign`` is -1); None where it is not open."""
    if state > State.HELD:
        return None
    queued = sign if state == State.QUEUED else 0
    return mailbox, sender.lower(), sign, 0 if deferred else queued, queued, sign * size


def added(new: Delivery) -> Change | None:
    """What a new delivery does to the sums."""
    return weigh(new.mailbox, new.sender, new.state, new.deferred, new.size)


def moved(old: Delivery, new: Delivery) -> Change | None:
    """What a change of state does to the sums. ``ValueError`` where ``new`` differs in what never changes."""
    if (
        old.key != new.key
        or old.mailbox != new.mailbox
        or old.sender != new.sender
        or old.size != new.size
        or old.lane != new.lane
        or old.connection != new.connection
        or old.message_id != new.message_id
        or old.to != new.to
    ):
        raise ValueError(f"delivery {old.key} may not change its message, place, lane or size")
    opened = (new.state <= State.HELD) - (old.state <= State.HELD)
    queued = (new.state == State.QUEUED) - (old.state == State.QUEUED)
    ready = (new.state == State.QUEUED and not new.deferred) - (old.state == State.QUEUED and not old.deferred)
    if not (opened or queued or ready):
        return None
    return new.mailbox, new.sender.lower(), opened, ready, queued, opened * new.size


class Loads:
    """All sums, by mailbox. The keys of ``by_sender`` and ``bytes_by_sender`` are lower case."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[str, Load] = {}

    def of(self, mailbox: str) -> Load:
        """The sums of one mailbox, to be read alone; where nothing is open, that may be one for all."""
        return self._of.get(mailbox, _EMPTY)

    def apply(self, changes: Iterable[Change]) -> None:
        """Add these changes."""
        for mailbox, sender, opened, ready, queued, size in changes:
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
                    load.bytes_by_sender[sender] = load.bytes_by_sender.get(sender, 0) + size
                else:
                    del load.by_sender[sender], load.bytes_by_sender[sender]
                if not load.open and len(self._of) > KEPT:
                    del self._of[mailbox]
            elif size:  # of sums that were counted anew
                load.bytes_by_sender[sender] += size

    def towards(self, real: "Loads") -> list[Change]:
        """What makes these sums ``real``, which were counted."""
        changes: list[Change] = []
        for mailbox in self._of.keys() | real._of.keys():
            here, there = self.of(mailbox), real.of(mailbox)
            for sender in here.by_sender.keys() | there.by_sender.keys():
                more = there.by_sender.get(sender, 0) - here.by_sender.get(sender, 0)
                heavier = there.bytes_by_sender.get(sender, 0) - here.bytes_by_sender.get(sender, 0)
                if more or heavier:
                    changes.append((mailbox, sender, more, 0, 0, heavier))
            rest = (there.ready - here.ready, there.queued - here.queued)
            if any(rest):
                changes.insert(0, (mailbox, "", 0, *rest, 0))
        return changes

    def undo(self, changes: Sequence[Change]) -> None:
        """Take these changes back, the last one first."""
        self.apply(
            (mailbox, sender, -opened, -ready, -queued, -size)
            for mailbox, sender, opened, ready, queued, size in reversed(changes)
        )


_EMPTY = Load()
