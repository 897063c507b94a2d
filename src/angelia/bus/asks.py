"""Who waits for which answer, and whether a new question would close a circle.

What must stay true: a waiter is registered before its question is committed, so no answer can slip past it; a reply
goes to it first and is settled only when the answer was written. A circle of blocking questions, of any length, is
refused to the one that would close it; a person at a terminal closes none.
"""

from angelia.bus.ports import Parcel, Tx
from angelia.model.address import PERSON
from angelia.model.delivery import Hand


class Waiter:
    """One blocking question. ``answer`` is the leased reply or notice; ``taken`` is set inside the unit that leases it,
    ``open`` and ``taken`` are read there. ``users`` counts the calls that wait on it now; until ``keep_until``
    (monotonic seconds) one may still come. ``written``: some call has brought the answer to its caller. ``blocks``: its
    asker does nothing else meanwhile."""

    hand = Hand.ASK
    __slots__ = (
        "answer",
        "asker",
        "blocks",
        "keep_until",
        "message_id",
        "open",
        "taken",
        "targets",
        "users",
        "written",
    )

    def __init__(self, message_id: str, asker: str, targets: tuple[str, ...], *, blocks: bool = True) -> None:
        self.message_id, self.asker, self.targets, self.blocks = message_id, asker, targets, blocks
        self.answer: Parcel | None = None
        self.open = True
        self.taken = False
        self.written = False
        self.users = 0
        self.keep_until = 0.0

    def take(self, tx: Tx) -> None:
        """A unit leases the answer to it."""
        self.taken = True
        tx.otherwise(lambda: setattr(self, "taken", False))

    def give(self, parcel: Parcel) -> None:
        """Hand over what was leased to it."""
        self.answer = parcel


class Asks:
    """The open questions, by message id and asker: another's question under the same id is refused, and harms none."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Waiter] = {}

    def __len__(self) -> int:
        return len(self._open)

    def answers(self) -> list[Parcel]:
        """What is leased to waiters now."""
        return [waiter.answer for waiter in self._open.values() if waiter.answer is not None]

    def find(self, message_id: str, asker: str) -> Waiter | None:
        """The asker's waiter for this question, to go on with."""
        return self._open.get((message_id, asker))

    def taker(self, message_id: str, mailbox: str) -> Waiter | None:
        """The waiter that takes an answer to this message out of this mailbox: one that is open and has none yet."""
        waiter = self._open.get((message_id, mailbox))
        return waiter if waiter is not None and waiter.open and not waiter.taken else None

    def of(self, asker: str) -> list[str]:
        """What an agent asked and waits for: the ids of the messages."""
        return [waiter.message_id for waiter in self._open.values() if waiter.asker == asker]

    def waits(self, asker: str) -> bool:
        """Whether an agent waits for an answer now."""
        return any(w.users and not w.taken for w in self._open.values() if w.asker == asker)

    def add(self, waiter: Waiter) -> None:
        """Register a question."""
        self._open[waiter.message_id, waiter.asker] = waiter

    def remove(self, waiter: Waiter) -> None:
        """The question is over."""
        waiter.open = False
        self._open.pop((waiter.message_id, waiter.asker), None)

    def would_close_circle(self, asker: str, targets: tuple[str, ...]) -> list[str] | None:
        """The circle that ``asker`` waiting on ``targets`` would close, as a list of names; None when there is none.

        A question to several closes one only when each of them waits, since any answer ends it.
        """
        if asker == PERSON or not targets:
            return None
        stuck: dict[str, str] = {asker: asker}  # name → whom it waits for on the way back to the asker
        waiters = [w for w in self._open.values() if w.users and not w.taken and w.blocks and w.asker != PERSON]
        grown = True
        while grown:
            grown = False
            for waiter in waiters:
                if waiter.asker not in stuck and all(target in stuck for target in waiter.targets):
                    stuck[waiter.asker] = waiter.targets[0]
                    grown = True
        if not all(target in stuck for target in targets):
            return None
        circle = [asker, targets[0]]
        while circle[-1] != asker:
            circle.append(stuck[circle[-1]])
        return circle
