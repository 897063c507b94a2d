"""A full disk: how it is noticed, how the store goes on, and how it comes back.

What must stay true: a group of units is only begun when the write-ahead log has room for it already, in blocks that
were written before, and so has its index, the file of shared memory, which SQLite would grow in the middle of a commit;
so a full disk is met before a unit runs, not after. While the disk is full, acks and expiry still
work, on that room and on the space that a ballast file kept back; every other write is refused at once. The end is
noticed by itself, about once a second, and only when there is room for the ballast *and* as much again: what letting it
go had freed does not count. (Where a file system copies what is overwritten, COMMIT may still find no space: then the
group fails as a whole, nothing was stored, and the rest is as above.)
"""

import contextlib
import errno
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

MIB = 1024 * 1024
# A page and its header in the log; how many of them a piece of its index stands for (the first holds a head, too).
PAGE_BYTES = 4096 + 24
PIECE_BYTES, PIECE_PAGES, FIRST_PAGES = 32 * 1024, 4096, 4062
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reserve:
    """How much space is kept. ``log_bytes``: what the log is grown to at start; a file that is written over in place
    also syncs in half the time of one that grows. ``slack_bytes``: what a group finds free in it at least."""

    ballast_bytes: int = 32 * MIB  # lets all of the log be folded into a store that cannot grow any more
    log_bytes: int = 32 * MIB
    slack_bytes: int = 8 * MIB  # a group carries 4 MiB, and the pages it touches weigh about as much again
    probe_seconds: float = 1.0

    @property
    def start_bytes(self) -> int:
        """Free space in which a new store surely starts, with all of this taken."""
        return self.ballast_bytes + self.log_bytes + self.slack_bytes


class Disk:
    """The few things asked of the disk beside SQLite; a test has a small one."""

    def free(self, folder: Path) -> int:
        """Bytes that can still be written."""
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize

    def size(self, path: Path) -> int:
        """How long a file is; 0 where there is none."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return 0

    def fill(self, path: Path, size: int, block: bytes) -> bool:
        """Write a file on to ``size``; False, and it is as it was, where there is not enough space."""
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            start = at = os.lseek(fd, 0, os.SEEK_END)
            try:
                while at < size:
                    at += os.write(fd, block[: size - at])
                os.fsync(fd)
            except OSError as error:
                os.ftruncate(fd, start)
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    return False
                raise
        finally:
            os.close(fd)
        return True

    def extend(self, fd: int, size: int) -> bool:
        """The same of a file that is open, whatever becomes of it when the power goes."""
        at = os.lseek(fd, 0, os.SEEK_END)
        try:
            while at < size:
                at += os.write(fd, bytes(size - at))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return False
            raise
        return True


def index_bytes(log_bytes: int) -> int:
    """How long the log's index gets for a log of this length."""
    pages = log_bytes // PAGE_BYTES + 1
    return PIECE_BYTES * (1 + max(0, -(-(pages - FIRST_PAGES) // PIECE_PAGES)))


class FullDisk:
    """Whether the disk is full. Owned by the writer's thread; ``now`` may be read from any."""

    def __init__(self, store: Path, reserve: Reserve | None = None, disk: Disk | None = None) -> None:
        self._log_file = store.with_name(store.name + "-wal")
        self._index_file = store.with_name(store.name + "-shm")
        # Kept open: closing it would let go of SQLite's own locks on it, which are the process's.
        self._index: int | None = None
        self._ballast = store.with_name(store.name + "-ballast")
        self._reserve, self._disk = reserve or Reserve(), disk or Disk()
        self._next_probe = 0.0
        self.now = False

    def start(self) -> None:
        """Take the space that is kept back, once SQLite has the store open; where that fails, the disk is full."""
        with contextlib.suppress(FileNotFoundError):
            self._index = os.open(self._index_file, os.O_WRONLY | os.O_CLOEXEC)
        if not (self._hold() and self._lengthen(self._reserve.log_bytes)):
            self.enter()

    def close(self) -> None:
        """SQLite has closed the store."""
        if self._index is not None:
            os.close(self._index)
            self._index = None

    def room(self, used: int) -> bool:
        """True where the log, of which ``used`` bytes are in use, has room for a group."""
        needed = used + self._reserve.slack_bytes
        indexed = self._index is None or self._disk.size(self._index_file) >= index_bytes(needed)
        return indexed and self._disk.size(self._log_file) >= needed

    def grow(self, used: int) -> bool:
        """Give the log that room and as much again; False where the disk has not enough."""
        return self._lengthen(used + 2 * self._reserve.slack_bytes)

    def enter(self) -> None:
        """The disk is full."""
        self._ballast.unlink(missing_ok=True)
        self._next_probe = monotonic() + self._reserve.probe_seconds
        if not self.now:
            self.now = True
            _log.error("the disk is full: new messages are refused, acks and expiry go on; free some space")

    def nothing_left(self) -> bool:
        """Whether hardly a byte can be written."""
        return self._disk.free(self._ballast.parent) < MIB

    def wait(self) -> float:
        """Seconds until the next probe."""
        return max(0.0, self._next_probe - monotonic())

    def probe(self) -> None:
        """When it is time, see whether there is room again."""
        if not self.now or monotonic() < self._next_probe:
            return
        self._next_probe = monotonic() + self._reserve.probe_seconds
        if self._disk.free(self._ballast.parent) >= 2 * self._reserve.ballast_bytes and self._hold():
            self.now = False
            _log.warning("there is room on the disk again: new messages are accepted")

    def _lengthen(self, size: int) -> bool:
        if self._index is not None and not self._disk.extend(self._index, index_bytes(size)):
            return False
        return self._disk.fill(self._log_file, size, bytes(MIB))

    def _hold(self) -> bool:
        # Random: a file system that compresses would hardly store anything plainer.
        return self._disk.fill(self._ballast, self._reserve.ballast_bytes, os.urandom(MIB))
