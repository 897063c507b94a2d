"""One owner of a data folder: a lock of the operating system, and beside it a note of who the owner is.

What must stay true:

- Whoever serves the folder holds the lock; the lock ends with the process and with nothing else, survives its
  replacing itself by ``os.execv``, and passes to no child. ``hub.json`` only explains: nothing trusts it alone.
- It is a POSIX record lock, since the kernel tells its holder's pid (docs/adr/0004-one-owner.md). Closing any
  descriptor of ``hub.lock`` in the holding process would end it: only this file opens it, and never in the holder.
- Nothing here is slow to load. The lock is tried before anything else is, so that of fifty starts at once 49 are over
  quickly, and each can say who was first.
"""

import contextlib
import errno
import fcntl
import json
import os
import struct
import sys
import time
from collections.abc import Mapping

from angelia.storage.folder import UnfitFolder

# struct flock: Linux begins with type and whence, macOS (like the BSDs) ends with them.
_FLOCK, _TYPE, _PID = ("qqihh", 3, 2) if sys.platform == "darwin" else ("hhqqi", 0, 4)
# How long a loser waits for the winner, who has the lock and not yet written its note.
_NOTE_SECONDS = 1.0
_POLL_SECONDS = 0.01
# The locks of this process: a record lock does not keep its own process out.
_held: dict[tuple[int, int], "FolderLock"] = {}


class Holder:
    """Who holds a folder. ``pid`` comes from the lock itself, the rest from the note; None is not known."""

    __slots__ = ("data_dir", "instance", "pid", "port", "ready", "since", "socket", "version")

    def __init__(self, data_dir: str, pid: int, note: Mapping[str, object]) -> None:
        """Takes the note as it was read; it counts only where it was written by the process that has the lock."""
        self.data_dir, self.pid = data_dir, pid
        # In another container the holder has another number here, 0 when it has none; its note is still the right one.
        if pid > 0 and note.get("pid") != pid:
            note = {}
        port, version, since = note.get("port"), note.get("version"), note.get("since")
        instance, socket = note.get("instance"), note.get("socket")
        self.port = port if isinstance(port, int) else None
        self.since = since if isinstance(since, str) else None
        self.version = version if isinstance(version, str) else None
        self.instance = instance if isinstance(instance, str) else None
        self.socket = socket if isinstance(socket, str) else None
        self.ready = note.get("ready") is True

    @property
    def elsewhere(self) -> bool:
        """The holder is a process that cannot be named, so not signalled, from here: one in another container."""
        return self.pid <= 0

    def __str__(self) -> str:
        who = "a process in another container" if self.elsewhere else f"pid {self.pid}"
        port = f"port {self.port}" if self.port else "port not chosen yet"
        since = f"since {self.since.replace('T', ' ').replace('Z', ' UTC')}" if self.since else "starting just now"
        return f"{who}, {port}, {since}"


class FolderTaken(Exception):
    """Another process holds the folder."""

    def __init__(self, holder: Holder) -> None:
        """Takes the holder, which the text names."""
        super().__init__(f"A hub already runs on {holder.data_dir}: {holder}.")
        self.holder = holder


class FolderLock:
    """The lock, held. ``acquire`` or ``adopt`` make one."""

    def __init__(self, data_dir: str, descriptor: int) -> None:
        """Takes a descriptor that already has the lock."""
        found = os.fstat(descriptor)
        self.data_dir, self.descriptor = data_dir, descriptor
        self._inode = (found.st_dev, found.st_ino)
        self._owner = os.getpid()
        self._note: dict[str, object] = {}
        self._behind = False  # what is at the path is not yet this note
        _held[self._inode] = self

    @classmethod
    def acquire(cls, data_dir: str) -> "FolderLock":
        """Take the lock at once, or raise ``FolderTaken``."""
        while True:
            # Looked at first: to open and close the file that this process holds would end its lock.
            if _mine(data_dir) is None:
                descriptor, locked = _open(data_dir), False
                try:
                    # Looked at last: a file that was removed since it was opened keeps nobody out.
                    locked = _lock(descriptor) and _is_at(descriptor, data_dir)
                finally:
                    if not locked:
                        os.close(descriptor)
                if locked:
                    return cls(data_dir, descriptor)
            holder = who_holds(data_dir, patient=True)
            if holder is not None:
                raise FolderTaken(holder)

    @classmethod
    def adopt(cls, data_dir: str, descriptor: int) -> "FolderLock":
        """Go on with the lock of the program that this process was before it replaced itself."""
        try:
            if _is_at(descriptor, data_dir) and _lock(descriptor):
                os.set_inheritable(descriptor, False)
                lock = cls(data_dir, descriptor)
                note = read_note(data_dir)
                if note.get("pid") == os.getpid():
                    lock._note = {"pid": note["pid"], "since": note["since"]}
                return lock
        except (OSError, KeyError):
            pass
        raise UnfitFolder(f"The lock of {data_dir} was lost while the hub restarted itself.")

    def publish(self, **note: object) -> None:
        """Write who this is to ``hub.json``, by rename: a reader sees the old note or the new one, whole.

        On a full disk there is none until ``catch_up`` finds room: the lock holds all the same, and a hub that only
        reads is better than no hub.
        """
        if not self._note:
            self._note = {"pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self._note.update(note)
        self._write()

    def catch_up(self) -> None:
        """Write the note that a full disk did not take; nothing where it is written."""
        if self._behind:
            self._write()

    def _write(self) -> None:
        path = os.path.join(self.data_dir, "hub.json")
        try:
            descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(self._note, file)
            os.replace(f"{path}.new", path)
            self._behind = False
        except OSError as error:
            self._behind = True
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            with contextlib.suppress(OSError):
                os.unlink(f"{path}.new")

    def holds(self) -> bool:
        """Whether the folder is still ours: the file is the one at the path, and the lock is on it."""
        return _is_at(self.descriptor, self.data_dir) and _lock(self.descriptor)

    def keep_over_exec(self) -> int:
        """Let the descriptor, and with it the lock, pass to the program that this process is about to become."""
        os.set_inheritable(self.descriptor, True)
        return self.descriptor

    def release(self) -> None:
        """Remove the note and let go."""
        if self.holds():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.data_dir, "hub.json"))
        _held.pop(self._inode, None)
        os.close(self.descriptor)

    @property
    def is_of_this_process(self) -> bool:
        """False in a child that was forked: locks do not pass to it, though this object does."""
        return self._owner == os.getpid()


def who_holds(data_dir: str, *, patient: bool = False) -> Holder | None:
    """Who has the lock now; None when nobody has. ``patient``: wait a little for a note that is just being written."""
    mine = _mine(data_dir)
    if mine is not None:
        return Holder(data_dir, os.getpid(), read_note(data_dir))
    deadline = time.monotonic() + _NOTE_SECONDS
    while True:
        pid = _holder_pid(data_dir)
        if pid is None:
            return None
        holder = Holder(data_dir, pid, read_note(data_dir))
        if holder.since is not None or not patient or time.monotonic() > deadline:
            return holder
        time.sleep(_POLL_SECONDS)


def read_note(data_dir: str) -> dict[str, object]:
    """``hub.json`` as it stands; empty where it is missing or no JSON object. Whether it is true, the lock tells."""
    try:
        with open(os.path.join(data_dir, "hub.json"), encoding="utf-8") as file:
            note = json.load(file)
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _open(data_dir: str) -> int:
    try:
        return os.open(os.path.join(data_dir, "hub.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UnfitFolder(f"{data_dir}/hub.lock cannot be opened: {error.strerror}.") from None


def _mine(data_dir: str) -> FolderLock | None:
    """This process' own lock on the folder."""
    try:
        found = os.stat(os.path.join(data_dir, "hub.lock"))
    except OSError:
        return None
    lock = _held.get((found.st_dev, found.st_ino))
    return lock if lock is not None and lock.is_of_this_process else None


def _is_at(descriptor: int, data_dir: str) -> bool:
    try:
        at_path = os.stat(os.path.join(data_dir, "hub.lock"))
    except OSError:
        return False
    found = os.fstat(descriptor)
    return (at_path.st_dev, at_path.st_ino) == (found.st_dev, found.st_ino)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise UnfitFolder(f"The data folder cannot be locked: {error.strerror}.") from None
    return True


def _holder_pid(data_dir: str) -> int | None:
    """The pid that the kernel names; 0 or less where it has no number here; None when the lock is free."""
    path = os.path.join(data_dir, "hub.lock")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnfitFolder(f"{path} cannot be opened: {error.strerror}.") from None
    try:
        wanted = [0, 0, 0, 0, 0]  # from the first byte on, to the end
        wanted[_TYPE] = fcntl.F_WRLCK
        found = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, *wanted)))
    finally:
        os.close(descriptor)
    return None if found[_TYPE] == fcntl.F_UNLCK else int(found[_PID])
