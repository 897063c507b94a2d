"""Acks of hands that settle by themselves: an auto stream, a poll, an answered ask.

What must stay true: one lazy unit settles everything that was written since the last one, in the next commit and at
most 250 ms later; it takes only what its holder still stands for at that moment (bytes out of our hands, connection
open); the rest goes back by whoever ended it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from angelia.bus.ports import Parcel


class Holder(Protocol):
    """Whoever wrote the bytes."""

    def settled(self, mark: int) -> bool | None:
        """True: everything up to ``mark`` has left us and the other side is there; None: ask again; False: broken."""
        ...


Written = tuple[Parcel, Holder, int]


class Autos:
    """What was written and waits for the next commit. Appended to on the loop, taken on the store's thread."""

    def __init__(self) -> None:
        self._written: deque[Written] = deque()
        self.queued = False

    def add(self, parcel: Parcel, holder: Holder, mark: int) -> None:
        """Note a parcel as written, up to byte ``mark`` of its holder's connection."""
        self._written.append((parcel, holder, mark))

    def take(self) -> list[Written]:
        """Those that count now; the undecided ones stay, the broken ones are dropped. Runs inside a unit."""
        good: list[Written] = []
        for _ in range(len(self._written)):
            entry = self._written.popleft()
            fate = entry[1].settled(entry[2])
            if fate:
                good.append(entry)
            elif fate is None:
                self._written.append(entry)
        return good

    def put_back(self, written: Iterable[Written]) -> None:
        """The unit that took these was not stored."""
        self._written.extend(written)

    def waiting(self) -> bool:
        """True while something is undecided."""
        return bool(self._written)
