"""What is due when, by the monotonic clock: lease ends, nack delays, the end of an ask's grace.

What must stay true: a timer is only a reminder to look; whoever set it checks again when it fires, so a stale one does
no harm and cancelling is not needed.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable

log = logging.getLogger("angelia.bus")


class Timers:
    """A heap of reminders, and a poke for whoever waits on the earliest."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._serial = 0
        self._poke: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when: float, remind: Callable[[], object]) -> None:
        """Call ``remind`` on the loop once ``clock.monotonic()`` has reached ``when``."""
        self._serial += 1
        earliest = not self._heap or when < self._heap[0][0]
        heapq.heappush(self._heap, (when, self._serial, remind))
        if earliest:
            self.poke()

    def next(self) -> float | None:
        """When the earliest reminder is due."""
        return self._heap[0][0] if self._heap else None

    def fire(self, now: float) -> None:
        """Call everything that is due; one that fails is a fault of ours, and stops none of the others."""
        while self._heap and self._heap[0][0] <= now:
            remind = heapq.heappop(self._heap)[2]
            try:
                remind()
            except Exception:
                log.exception("a reminder failed")

    def poke(self) -> None:
        """Make whoever waits look again."""
        if self._poke is not None and not self._poke.done():
            self._poke.set_result(None)

    def poked(self) -> asyncio.Future[None]:
        """A future that is done at the next poke."""
        if self._poke is None or self._poke.done():
            self._poke = asyncio.get_running_loop().create_future()
        return self._poke
