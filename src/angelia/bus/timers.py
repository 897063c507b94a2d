"""What is due when: reminders by the monotonic clock (lease ends, nack delays, the end of an ask's grace), and the next
sweep by UTC.

What must stay true: each is only a reminder to look; whoever set it checks again when it fires, so a stale one does no
harm. Whoever waits hears of what is nearer than all that was known. Reminders that were cancelled are thrown out before
they are the greater part.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

log = logging.getLogger("angelia.bus")

CANCELLED_KEPT = 1000  # not worth a sweep


@dataclass(slots=True, eq=False)
class Timer:
    """One reminder; None once it was cancelled or called."""

    when: float
    remind: Callable[[], object] | None
    _of: "Timers" = field(repr=False)

    def cancel(self) -> None:
        """Never call it."""
        if self.remind is not None:
            self.remind = None
            self._of.one_less()


class Timers:
    """A heap of reminders, and a poke for whoever waits on the earliest. ``sweep_at``: when time alone has to change
    something in the store (UTC ms), or before; at once after a start."""

    def __init__(self) -> None:
        self.sweep_at: float = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._serial = 0
        self._live = 0
        self._poke: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return self._live

    def at(self, when: float, remind: Callable[[], object]) -> Timer:
        """Call ``remind`` on the loop once ``clock.monotonic()`` has reached ``when``."""
        self._serial += 1
        self._live += 1
        timer = Timer(when, remind, self)
        earliest = not self._heap or when < self._heap[0][0]
        heapq.heappush(self._heap, (when, self._serial, timer))
        if earliest:
            self.poke()
        return timer

    def one_less(self) -> None:
        """A timer was cancelled."""
        self._live -= 1
        if len(self._heap) > 2 * self._live + CANCELLED_KEPT:
            self._heap = [entry for entry in self._heap if entry[2].remind is not None]
            heapq.heapify(self._heap)

    def next(self) -> float | None:
        """When the earliest reminder is due."""
        while self._heap and self._heap[0][2].remind is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fire(self, now: float) -> None:
        """Call everything that is due; one that fails is a fault of ours, and stops none of the others."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            remind, timer.remind = timer.remind, None
            if remind is None:
                continue
            self._live -= 1
            try:
                remind()
            except Exception:
                log.exception("a reminder failed")

    def sweep_by(self, at: int) -> None:
        """The store holds something that time alone changes at ``at`` (UTC ms)."""
        if at < self.sweep_at:
            self.sweep_at = at
            self.poke()

    def poke(self) -> None:
        """Make whoever waits look again."""
        if self._poke is not None and not self._poke.done():
            self._poke.set_result(None)

    def poked(self) -> asyncio.Future[None]:
        """A future that is done at the next poke."""
        if self._poke is None or self._poke.done():
            self._poke = asyncio.get_running_loop().create_future()
        return self._poke
