"""The lock that lets one turn at a time into a Hermes profile, shared with every Hermes process on the machine.

What must stay true:

- It is the same file with the same lock as Hermes takes: an exclusive ``flock`` on ``<folder>/<profile>.lock``. So a
  Hermes that delivers by itself and the hub exclude each other. It ends with its holder, however that ends, and with
  nothing else; the agent that is started under it does not inherit it.
- Everybody who waits is bounded by a budget; nobody is promised an order. The event loop is never blocked, and who is
  cancelled while it waits holds nothing.
- Busy means that another holds it. Any other trouble with the file is told as itself.
- The file is never removed: who waits for it would wait for a file that keeps nobody out.

The hub's own order of turns is the runner's; this is only against others.
"""

import asyncio
import fcntl
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from angelia.bus.ports import Clock
from angelia.model.failure import Reason
from angelia.protocol.bot_relay import profile_of

# Hermes' own: short enough to follow the end of a turn, long enough to cost nothing.
MAX_PAUSE_SECONDS = 0.1
MIN_PAUSE_SECONDS = 0.005
NAME_CHARS = 64

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)


class TargetBusy(Exception):
    """Another turn runs in this profile, and did until the budget was used up. Nothing was delivered."""

    reason = Reason.TARGET_BUSY

    def __init__(self, profile: str, waited_seconds: float) -> None:
        """Takes whom it was for, and how long it was waited; the text begins with the word that peers look for."""
        super().__init__(
            f"{self.reason.value}: not delivered; another turn ran in '{profile}' for all of {waited_seconds:.1f} s."
        )
        self.profile = profile
        self.waited_seconds = waited_seconds


def lock_path(folder: str, name: str) -> str:
    """The lock's file for a profile, or for the agent ``hermes``, whose profile is ``default``."""
    safe = _UNSAFE.sub("_", profile_of(name))[:NAME_CHARS] or "_"
    return os.path.join(folder, f"{safe}.lock")


@asynccontextmanager
async def turn_lock(
    folder: str,
    name: str,
    budget_seconds: float,
    clock: Clock,
    *,
    flock: Callable[[int, int], None] = fcntl.flock,
) -> AsyncIterator[float]:
    """Hold the lock of a profile inside the block; gives the seconds that were waited.

    ``folder``: ``locks`` in the relay's folder, made (0700) where it is missing. ``budget_seconds``: 0 or less is one
    try. Raises ``TargetBusy``, or the ``OSError`` of a file that cannot be opened or locked at all.
    """
    path, profile = lock_path(folder, name), profile_of(name)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    start = clock.monotonic()
    while True:
        descriptor = _take(path, flock)
        waited = clock.monotonic() - start
        if descriptor is not None:
            break
        left = budget_seconds - waited
        if left <= 0:
            raise TargetBusy(profile, waited)
        pause = min(MAX_PAUSE_SECONDS, max(MIN_PAUSE_SECONDS, left))
        await clock.wait(asyncio.get_running_loop().create_future(), pause)
    try:
        yield waited
    finally:
        os.close(descriptor)


def _take(path: str, flock: Callable[[int, int], None]) -> int | None:
    """The file, locked; None when another has it. Opened anew for each try, so that who waits holds nothing."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        locked = False
        try:
            flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Somebody may have removed the file since it was opened; then the lock keeps nobody out.
            locked = _is_at(descriptor, path)
        except BlockingIOError:
            return None
        finally:
            if not locked:
                os.close(descriptor)
        if locked:
            return descriptor


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
