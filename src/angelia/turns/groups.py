"""A process group that was started here, told for certain from any other that has its number later.

What must stay true: a signal goes to the group only while its number cannot be anybody else's. The kernel gives a
number out again only when no process and no group has it. So the group is ours as long as its leader is the process
that was started (same number, same start as the kernel says it), or as the number has no process any more. Linux says
it in /proc, macOS by ``ps``. Which groups there are, and when they are to end, does not belong here.
"""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

_LOOK_SECONDS, _LOOK_MOST_SECONDS = 0.01, 0.1  # a look at all processes takes some milliseconds
_ASK_SECONDS = 5.0  # for ps and sysctl, which take milliseconds


@dataclass(frozen=True, slots=True)
class Group:
    """A process group by the number of its leader, and when that began; "" where it was gone before one could look."""

    pid: int
    started: str

    def send(self, signum: int) -> bool:
        """Send a signal to all of it. False when nothing of it is left, or nothing that we may signal."""
        if started(self.pid) not in (None, self.started):
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)
            return True
        return False

    async def end(self, grace_seconds: float) -> None:
        """Ask all of it to end, and make it after ``grace_seconds``; at once when cancelled meanwhile."""
        if not self.send(signal.SIGTERM):
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self._ended()
        finally:
            self.send(signal.SIGKILL)

    async def _ended(self) -> None:
        """Wait until nothing in it runs; the kernel tells nobody, so that has to be looked at."""
        pause = _LOOK_SECONDS
        while _runs(self.pid):
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LOOK_MOST_SECONDS)


def _runs(group: int) -> bool:
    """Whether something in a group runs. What has ended counts no more, though it may wait long to be reaped: by the
    machine's first process, which in a container may never do so."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, 0)
        if sys.platform == "darwin":
            return True
        ids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
        return any(stat and stat[2] == str(group) and stat[0] not in "ZX" for stat in map(_stat, ids))
    return False


def led_by(pid: int) -> Group:
    """The group that a process leads which was started just now."""
    return Group(pid, started(pid) or "")


def started(pid: int) -> str | None:
    """When a process began, as its kernel says it; None where there is no such process."""
    if sys.platform == "darwin":
        return _said("ps", "-o", "lstart=", "-p", str(pid)) or None
    stat = _stat(pid)
    return stat[19] if stat else None  # in ticks since the boot


def _stat(pid: int) -> list[str]:
    """What Linux says of a process, from its state on: state, parent, group …; nothing where there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # Its name stands before, in brackets, and may hold brackets.
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def boot() -> str:
    """What names this run of the machine."""
    if sys.platform == "darwin":
        return _said("sysctl", "-n", "kern.bootsessionuuid")
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _said(*command: str) -> str:
    """What one of the system's own programs prints; in one language and time zone, so that it can be compared."""
    plain = {"PATH": "/bin:/usr/bin:/sbin:/usr/sbin", "LC_ALL": "C", "TZ": "UTC"}
    done = subprocess.run(command, env=plain, capture_output=True, timeout=_ASK_SECONDS, check=False)
    return " ".join(done.stdout.decode("ascii", "replace").split())
