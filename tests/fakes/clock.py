"""A clock that moves only when the test says so, and ids that count.

What must stay true: ``advance`` runs everything that becomes due, in its order, and lets the loop come to rest between
two moments, so that a test never sleeps.
"""

import asyncio
import heapq
from typing import TypeVar

T = TypeVar("T")
START_MS = 1_800_000_000_000


class FakeClock:
    """``bus.ports.Clock`` by hand."""

    def __init__(self) -> None:
        self._seconds = 1000.0
        self._due: list[tuple[float, int, asyncio.Future[None]]] = []
        self._serial = 0

    def now(self) -> int:
        """UTC milliseconds."""
        return START_MS + int((self._seconds - 1000.0) * 1000)

    def monotonic(self) -> float:
        """Seconds."""
        return self._seconds

    async def wait(self, ready: asyncio.Future[T], seconds: float | None) -> bool:
        """As the port says; time passes only by ``advance``."""
        if ready.done():
            return True
        waiters: set[asyncio.Future[object]] = {ready}  # type: ignore[arg-type]
        timeout: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if seconds is not None:
            if seconds <= 0:
                await asyncio.sleep(0)
                return ready.done()
            self._serial += 1
            heapq.heappush(self._due, (self._seconds + seconds, self._serial, timeout))
            waiters.add(timeout)  # type: ignore[arg-type]
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timeout.cancel()
        return ready.done()

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, stopping at every moment that somebody waits for."""
        end = self._seconds + seconds
        await settle()
        while self._due and self._due[0][0] <= end:
            when, _, future = heapq.heappop(self._due)
            if future.done():
                continue
            self._seconds = max(self._seconds, when)
            future.set_result(None)
            await settle()
        self._seconds = end
        await settle()


async def settle(turns: int = 40) -> None:
    """Give every ready task its turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)


class CountingIds:
    """``bus.ports.Ids``: ids that rise by one and look like UUIDv7."""

    def __init__(self) -> None:
        self._last = 0

    def message_id(self) -> str:
        """The next id."""
        self._last += 1
        return f"0190000000007000{self._last:016x}"

    def secret(self) -> bytes:
        """32 bytes that differ each time."""
        self._last += 1
        return self._last.to_bytes(32, "big")
