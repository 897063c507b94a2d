"""Processes that are measured: start one, wait until it serves, ask what it used, end it.

What must stay true: only what was started here is ended, by its own handle; nothing outlives the measurement. Every
server listens on loopback alone and keeps its files in a folder that goes with the measurement.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

READY_SECONDS = 30.0
END_SECONDS = 20.0
_HERE = Path("/proc")
_TICK = os.sysconf("SC_CLK_TCK")


class NotReady(Exception):
    """A server did not come up; the text says what it said."""


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def connect(port: int, seconds: float = 10.0) -> socket.socket:
    """A blocking connection to a port of this machine."""
    made = socket.create_connection(("127.0.0.1", port), timeout=seconds)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Process:
    """One server. ``log`` takes what it says, so that a failure can be told."""

    def __init__(self, command: Sequence[str], log: Path, port: int) -> None:
        self.port, self._log = port, log
        with log.open("ab") as file:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        self.pid = self._child.pid

    def wait_for_port(self, seconds: float = READY_SECONDS) -> None:
        """Until it accepts connections; ``NotReady`` when it ends or takes too long."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if self._child.poll() is not None:
                break
            with contextlib.suppress(OSError):
                connect(self.port, 1.0).close()
                return
            time.sleep(0.005)
        raise NotReady(f"{self._child.args!r}: {self.said()}")

    def said(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self._child.kill()
        self._child.wait(END_SECONDS)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for who does not listen."""
        if self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def rss_bytes(self) -> int:
        """Its resident memory, the anonymous part: pages of files that it maps are not its own."""
        for line in (_HERE / str(self.pid) / "status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise NotReady("this system does not tell a process's memory in /proc")

    def cpu_seconds(self) -> float:
        """What its threads have used so far, in nanoseconds where the kernel counts them."""
        total = 0
        for task in (_HERE / str(self.pid) / "task").iterdir():
            with contextlib.suppress(FileNotFoundError):
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9


def has_proc() -> bool:
    """Whether memory and processor time of another process can be read here."""
    return (_HERE / "self" / "status").exists()


def busy_share(seconds: float = 0.5) -> float:
    """How much of all cores is in use just now, by whoever, from 0 to 1: what else the machine does."""
    if not has_proc():
        return float("nan")
    before = _jiffies()
    time.sleep(seconds)
    after = _jiffies()
    return (after - before) / _TICK / seconds / (os.cpu_count() or 1)


def _jiffies() -> int:
    fields = [int(word) for word in (_HERE / "stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return user + nice + system + irq + softirq + steal
