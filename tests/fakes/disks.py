"""Disks with faults, put under SQLite as a VFS: one that counts and fails its syncs, is full, or loses its power.

What must stay true: without a fault set, everything reaches the real files at once, so that a store on it works as on
any disk. What was written since a file's last sync is remembered, so that ``power_cut`` can leave behind what a disk
may: everything synced, and any part of the rest.
"""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import apsw

from angelia.storage.sqlite.full import Disk

Write = tuple[int, bytes, bytes, int]  # offset, what was there, what is there now, the file's size before


class FaultyDisk(apsw.VFS):
    """A VFS. ``syncs`` and ``writes`` count by the end of a file's name (``"-wal"``, ``""`` for the store itself)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.syncs: dict[str, int] = {}
        self.writes: dict[str, int] = {}
        self.fail_sync: Callable[[str], bool] = lambda kind: False
        self.full: Callable[[str, str, int], bool] = lambda path, kind, grows: False
        self.unsynced: dict[str, list[Write]] = {}
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        return _File(self, name, path, flags)

    def power_cut(self, store: Path, image: Path, survives: Callable[[], bool]) -> None:
        """Leave in ``image`` what is there when the power goes now; ``survives`` says so of each unsynced write."""
        with self.lock:
            for path in (store, store.with_name(store.name + "-wal")):
                copy = image.with_name(path.name.replace(store.name, image.name))
                shutil.copyfile(path, copy)
                pending = self.unsynced.get(str(path), [])
                with copy.open("r+b") as file:
                    for offset, before, _, size in reversed(pending):
                        _put(file.fileno(), offset, before, size)
                    for offset, _, after, size in pending:
                        if survives():
                            _put(file.fileno(), offset, after, max(size, offset + len(after)))


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: str | apsw.URIFilename | None, path: str, flags: list[int]) -> None:
        self._disk, self._path = disk, path
        self._kind = next((end for end in ("-wal", "-journal") if path.endswith(end)), "")
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        disk = self._disk
        with disk.lock:
            size = super().xFileSize()
            if disk.full(self._path, self._kind, max(0, offset + len(data) - size)):
                raise apsw.FullError("the fake disk is full")
            disk.writes[self._kind] = disk.writes.get(self._kind, 0) + 1
            before = super().xRead(min(len(data), size - offset), offset) if offset < size else b""
            disk.unsynced.setdefault(self._path, []).append((offset, before, bytes(data), size))
            super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        with self._disk.lock:
            self._disk.unsynced.pop(self._path, None)  # SQLite truncates only what it is done with
            super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        disk = self._disk
        with disk.lock:
            disk.syncs[self._kind] = disk.syncs.get(self._kind, 0) + 1
            if disk.fail_sync(self._kind):
                raise apsw.IOError("the fake disk could not sync")
            super().xSync(flags)
            disk.unsynced.pop(self._path, None)


class SmallDisk(Disk):
    """A disk of ``size`` bytes: all files of one folder share it. ``refuses`` is for ``FaultyDisk.full``."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.total = folder, size

    def free(self, folder: Path) -> int:
        used = sum(self.size(path) for path in self.folder.iterdir() if not path.name.endswith("-shm"))
        return self.total - used

    def fill(self, path: Path, size: int, block: bytes) -> bool:
        return size - self.size(path) <= self.free(path.parent) and super().fill(path, size, block)

    def refuses(self, path: str, kind: str, grows: int) -> bool:
        """True where a write that lets a file grow so far finds no space."""
        return grows > 0 and grows > self.free(self.folder)


def _put(fd: int, offset: int, data: bytes, size: int) -> None:
    os.pwrite(fd, data, offset)
    os.ftruncate(fd, size)
