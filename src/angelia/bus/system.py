"""The real clock and the real source of ids, behind the ports.

What must stay true: ``now`` never jumps while the hub runs (a set wall clock, a leap, a slept laptop that comes back
with the wrong date expire nothing): it is the wall clock of the start, carried on by a clock that only runs forward and
counts sleep. Leases use the one that does not count sleep, so that a laptop that wakes finds its leases as they were.
"""

import asyncio
import os
import time
from random import getrandbits
from typing import TypeVar

from angelia.model.tokens import is_like_a_token, written

T = TypeVar("T")
_FORWARD = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """``bus.ports.Clock`` over the machine's clocks."""

    def __init__(self) -> None:
        self._offset_ms = time.time_ns() // 1_000_000 - time.clock_gettime_ns(_FORWARD) // 1_000_000

    def now(self) -> int:
        """UTC milliseconds."""
        return self._offset_ms + time.clock_gettime_ns(_FORWARD) // 1_000_000

    def monotonic(self) -> float:
        """Seconds that do not count sleep."""
        return time.monotonic()

    async def wait(self, ready: asyncio.Future[T], seconds: float | None) -> bool:
        """Wait for ``ready`` at most so long; it is left alone when time is up."""
        done, _ = await asyncio.wait((ready,), timeout=seconds)
        return bool(done)


class SystemIds:
    """UUIDv7 ids and random secrets."""

    def message_id(self) -> str:
        """48 bits of milliseconds, version 7, and 74 random bits."""
        return uuid7()

    def secret(self) -> bytes:
        """32 random bytes. Those (of 1,400 one) whose token would not look like one are thrown away."""
        while not is_like_a_token(written(found := os.urandom(32))):
            pass
        return found


def uuid7() -> str:
    """A UUIDv7 (RFC 9562, section 5.7) as 32 lowercase hex digits."""
    moment = (time.time_ns() // 1_000_000) & 0xFFFF_FFFF_FFFF
    noise = getrandbits(80)  # an id is no secret: it need not be guessed, only be its own
    value = moment << 80 | 0x7 << 76 | (noise >> 62 & 0xFFF) << 64 | 0b10 << 62 | noise & 0x3FFF_FFFF_FFFF_FFFF
    return f"{value:032x}"
