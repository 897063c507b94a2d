"""Looking at real processes from outside: which live, and waiting until something is so."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

SECONDS = 15.0  # for what takes milliseconds, on a machine that does other things too


def lives(pid: int) -> bool:
    """Whether there is such a process, one that has ended and was not reaped included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


async def eventually(so: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until ``so()`` is true."""
    async with asyncio.timeout(seconds):
        while not so():  # noqa: ASYNC110 -- another process makes it true, and tells nobody
            await asyncio.sleep(0.005)


async def number_in(path: Path) -> int:
    """The number that another process writes to a file, with a newline behind it."""
    await eventually(lambda: _written(path))
    return int(_written(path))


def _written(path: Path) -> str:
    text = path.read_text() if path.exists() else ""
    return text if text.endswith("\n") else ""
