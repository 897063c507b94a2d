"""``angelia up`` on a disk of which one operation fails: ``python -m tests.rigs.failing_up PLAN up …``.

What must stay true: the fault comes once, however often the hub replaces itself: PLAN is a file with what fails and
which one of its kind ("sync 7"), and says "fired" from then on. Every operation is a line in PLAN.log. What fails is
under SQLite alone: the hub is told of it in the very way that a disk tells it.
"""

import os
import sys
from pathlib import Path

import apsw

from angelia.cli.main import main

SYNC, WRITE, FULL = "sync", "write", "full"
FIRED = "fired"


class FailingDisk(apsw.VFS):
    """The default VFS of this process. ``full`` counts writes, too, and finds no space."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self._log = os.open(f"{plan}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fault, _, number = plan.read_text().partition(" ")
        self.fault, self._left = fault, int(number or 0)
        self.beneath = apsw.vfs_names()[0]
        super().__init__("failing", self.beneath, True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        return _File(self, name, path, flags)

    def fails(self, what: str, path: str) -> bool:
        """Note an operation; whether it is the one that fails."""
        os.write(self._log, f"{what} {os.path.basename(path)}\n".encode())
        if what != (SYNC if self.fault == SYNC else WRITE) or self.fault == FIRED:
            return False
        self._left -= 1
        if self._left:
            return False
        os.write(self._log, b"fired\n")  # first: who reads of it in the plan looks for it here
        self._plan.write_text(FIRED)
        return True


class _File(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: str | apsw.URIFilename | None, path: str, flags: list[int]) -> None:
        self._disk, self._path = disk, path
        super().__init__(disk.beneath, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._disk.fails(WRITE, self._path):
            super().xWrite(data[: len(data) // 2], offset)  # as far as it came
            raise apsw.FullError("no space") if self._disk.fault == FULL else apsw.IOError("could not write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if self._disk.fails(SYNC, self._path):
            raise apsw.IOError("could not sync")
        super().xSync(flags)


if __name__ == "__main__":
    disk = FailingDisk(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
