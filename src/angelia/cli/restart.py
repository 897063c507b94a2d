"""Replacing the hub in place: the same process, pid and lock, with everything in memory made anew.

What must stay true: the lock is never free in between. A hub that fails again and again stops trying: at most one
restart in ten seconds, and after three that did not help it ends and says so.
"""

import os
import sys
from collections.abc import Callable

from angelia.storage.lock import FolderLock

QUICK_SECONDS = 10.0
QUICK_TRIES = 3
# Said once, by whoever started the hub; they are over and done with when it replaces itself.
_ONCE = ("--detach", "--replace")
_ONCE_WITH_VALUE = ("--handover=", "--ready-fd=")


class GivingUp(Exception):
    """Restarting does not help."""


class Handover:
    """What a hub leaves to the one that it becomes: the descriptor with the lock, its port, and the quick tries."""

    __slots__ = ("descriptor", "port", "quick")

    def __init__(self, descriptor: int, port: int, quick: int) -> None:
        """``quick``: how many restarts in a row came within ten seconds of their start."""
        self.descriptor, self.port, self.quick = descriptor, port, quick

    @classmethod
    def read(cls, text: str) -> "Handover":
        """Read what ``str`` wrote; ValueError where it did not."""
        descriptor, port, quick = (int(part) for part in text.split(":"))
        return cls(descriptor, port, quick)

    def __str__(self) -> str:
        return f"{self.descriptor}:{self.port}:{self.quick}"


def command(*more: str) -> list[str]:
    """The command line that this process was started with, without what was meant only once, and ``more``."""
    kept = [word for word in sys.orig_argv[1:] if word not in _ONCE and not word.startswith(_ONCE_WITH_VALUE)]
    return [sys.executable, *kept, *more]


def may_restart(earlier: Handover | None, ran: float, wait: Callable[[float], None]) -> int:
    """How many quick restarts in a row this one makes; waits where it comes too soon. Raises ``GivingUp``.

    ``ran``: for how many seconds this hub has run.
    """
    if earlier is None or ran >= QUICK_SECONDS:
        return 0
    quick = earlier.quick + 1
    if quick > QUICK_TRIES:
        raise GivingUp(
            f"The store failed again after {QUICK_TRIES} restarts within {QUICK_SECONDS:g} s of one another: the hub "
            "gives up. What was accepted is on disk."
        )
    wait(QUICK_SECONDS - ran)
    return quick


def replace_self(lock: FolderLock, port: int, quick: int) -> None:
    """Become a new hub; returns only by an OSError."""
    handover = Handover(lock.keep_over_exec(), port, quick)
    line = command(f"--handover={handover}")
    os.execv(line[0], line)
