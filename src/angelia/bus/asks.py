"""Who waits for which answer, and whether a new question would close a circle.

What must stay true: a waiter is registered before its question is committed, so no answer can slip past it; a reply
goes to it first and is settled only when the answer was written. A circle of blocking questions, of any length, is
refused to the one that would close it; a person at a terminal closes none.
"""

import asyncio

from angelia.bus.ports import Parcel
from angelia.model.address import PERSON


class Waiter:
    """One blocking question. ``answer`` is the leased reply or notice; ``taken`` is set inside the unit that leases it,
    ``open`` and ``taken`` are read there."""

    __slots__ = ("_future", "answer", "asker", "message_id", "open", "taken", "targets", "users")

    def __init__(self, message_id: str, asker: str, targets: tuple[str, ...]) -> None:
        self.message_id, self.asker, self.targets = message_id, asker, targets
        self.answer: Parcel | None = None
        self.open = True
        self.taken = False
        self.users = 0
        self._future: asyncio.Future[None] | None = None

    def give(self, parcel: Parcel) -> None:
        """Hand over the answer."""
        self.answer = parcel
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def answered(self) -> asyncio.Future[None]:
        """A future that is done as soon as there is an answer."""
        if self._future is None or self._future.cancelled():
            self._future = asyncio.get_running_loop().create_future()
            if self.answer is not None:
                self._future.set_result(None)
        return self._future


class Asks:
    """The open questions, by message id."""

    def __init__(self) -> None:
        self._by_id: dict[str, Waiter] = {}

    def get(self, message_id: str | None) -> Waiter | None:
        """The waiter for a message's answer, while it is open and has none."""
        waiter = self._by_id.get(message_id) if message_id else None
        return waiter if waiter is not None and waiter.open and not waiter.taken else None

    def find(self, message_id: str, asker: str) -> Waiter | None:
        """The same asker's waiter, to go on with."""
        waiter = self._by_id.get(message_id)
        return waiter if waiter is not None and waiter.asker == asker and waiter.open else None

    def add(self, waiter: Waiter) -> None:
        """Register a question."""
        self._by_id[waiter.message_id] = waiter

    def remove(self, waiter: Waiter) -> None:
        """The question is over."""
        waiter.open = False
        if self._by_id.get(waiter.message_id) is waiter:
            del self._by_id[waiter.message_id]

    def would_close_circle(self, asker: str, targets: tuple[str, ...]) -> list[str] | None:
        """The circle that ``asker`` waiting on ``targets`` would close, as a list of names; None when there is none.

        A question to several closes one only when each of them waits, since any answer ends it.
        """
        if asker == PERSON or not targets:
            return None
        stuck: dict[str, str] = {asker: asker}  # name → whom it waits for on the way back to the asker
        waiters = [w for w in self._by_id.values() if w.open and w.users and w.asker != PERSON]
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
