"""One queued unit of writing, and the queue that the loop fills and the writer's thread empties.

What must stay true: units leave in the order in which they came. The thread sleeps until there is a unit that is not
lazy, until the oldest lazy one has waited its 250 ms, until it is called, or until the store closes; a wake-up is never
lost.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Lock
from time import monotonic
from typing import Any

from angelia.bus.ports import Tx
from angelia.storage.load import Change

GROUP_UNITS = 256
GROUP_BYTES = 4 * 1024 * 1024
LAZY_SECONDS = 0.25


class Unit:
    """What to do, who waits for it, and what came of it."""

    __slots__ = ("changes", "due", "effects", "error", "essential", "future", "result", "undos", "weight", "work")

    def __init__(
        self, work: Callable[[Tx], Any], future: "asyncio.Future[Any]", weight: int, lazy: bool, essential: bool
    ) -> None:
        self.work, self.future = work, future
        self.weight, self.essential = weight, essential
        self.due = monotonic() + LAZY_SECONDS if lazy else None
        self.effects: Sequence[Callable[[], None]] = ()
        self.undos: Sequence[Callable[[], None]] = ()
        self.changes: Sequence[Change] = ()
        self.result: Any = None
        self.error: BaseException | None = None


class UnitQueue:
    """Filled on the loop, emptied by one thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._alarm: asyncio.TimerHandle | None = None  # for a thread that was asleep when a lazy unit came
        self._units: deque[Unit] = deque()
        self._urgent_in = 0  # written by the loop alone
        self._urgent_out = 0  # written by the thread alone
        self._asleep = self._called = False
        self._bell = Condition(Lock())
        self.closed = False

    def put(self, unit: Unit) -> None:
        """Queue a unit. The bell wakes a thread, which then wants the interpreter: it is rung for one that sleeps, and
        for a lazy unit only once that is due."""
        if unit.due is None:
            self._urgent_in += 1
        self._units.append(unit)
        if unit.due is None:
            self._wake()
        elif self._asleep and self._alarm is None:
            self._alarm = self._loop.call_later(LAZY_SECONDS, self._due)

    def _due(self) -> None:
        self._alarm = None
        if self._units:
            self._wake()

    def close(self) -> None:
        """Nothing more will come."""
        self.closed = True
        self._ring()

    def call(self) -> None:
        """There is something else to do for the thread than units: it does not sleep now. Any thread may call it."""
        with self._bell:
            self._called = True
            self._bell.notify()

    def wait(self, seconds: float | None) -> None:
        """Sleep until there is something to take, at most so long."""
        with self._bell:
            self._asleep = True
            if not (self._ready() or self._called):
                if self._units:
                    due = self._units[0].due or 0.0
                    patience = max(0.0, due - monotonic())
                    seconds = patience if seconds is None else min(seconds, patience)
                self._bell.wait(seconds)
            self._asleep = self._called = False

    def take(self) -> list[Unit]:
        """The next group; empty where it is not time yet."""
        units: list[Unit] = []
        if not self._ready():
            return units
        weight = urgent = 0
        while self._units and len(units) < GROUP_UNITS:
            weight += self._units[0].weight
            if units and weight > GROUP_BYTES:
                break
            unit = self._units.popleft()
            urgent += unit.due is None
            units.append(unit)
        self._urgent_out += urgent
        return units

    @property
    def empty(self) -> bool:
        """True where nothing is queued, lazy units included."""
        return not self._units

    def _ready(self) -> bool:
        if not self._units or self.closed:
            return self.closed
        return self._urgent_in != self._urgent_out or (self._units[0].due or 0.0) <= monotonic()

    def _wake(self) -> None:
        if self._asleep:
            self._ring()

    def _ring(self) -> None:
        with self._bell:
            self._bell.notify()
