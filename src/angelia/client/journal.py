"""Which messages a listener has finished, kept through its own crash: a file that is appended to.

What must stay true: an id is on the disk before ``finish`` returns, and a listener acks only after that, so what the
hub offers again because the ack was lost is known. A torn last line counts as not written. The file holds at least the
newest 10,000 ids and at most twice as many; it belongs to one listener at a time and to its user alone.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import OrderedDict
from contextlib import suppress

KEPT = 10_000
_ID = re.compile(r"[0-9a-f]{32}")
_EVENT = re.compile(r"[\x21-\x7e]*")
_LINE = re.compile(rb"([0-9a-f]{32}) ([\x21-\x7e]*)")


class Journal:
    """Ids that are finished, and the event id of the last of them. ``in`` asks for one."""

    def __init__(self, path: str, *, kept: int = KEPT) -> None:
        """In: where the file stands, or shall stand; its folder is made."""
        self.last_event_id = ""
        self._path = path
        self._kept = kept
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._lines = 0
        self._file: int | None = None
        self._lock: int | None = None

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def take(self) -> bool:
        """Become the one who writes it, and read it; False while another process does."""
        if self._lock is None:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self._lock = _open(self._path + ".lock", os.O_RDWR)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._file = _open(self._path, os.O_RDWR)
        _sync_folder(os.path.dirname(self._path))
        self._read()
        return True

    def finish(self, message_id: str, event_id: str = "") -> None:
        """Note a message as finished, on the disk. It is known here even when the disk does not take it (OSError)."""
        if self._file is None or _ID.fullmatch(message_id) is None:
            raise ValueError(f"the journal is not open, or '{message_id}' is no id")
        event_id = event_id if _EVENT.fullmatch(event_id) else ""
        self._add(message_id, event_id)
        end = os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            _write(self._file, f"{message_id} {event_id}\n".encode("ascii"))
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):  # half a line would spoil the next one
                os.ftruncate(self._file, end)
                os.lseek(self._file, end, os.SEEK_SET)
            raise
        if self._lines >= 2 * self._kept:
            self._compact()

    def close(self) -> None:
        """Let go of it, so that the next listener may have it."""
        for handle in (self._file, self._lock):
            if handle is not None:
                os.close(handle)
        self._file = self._lock = None

    def _read(self) -> None:
        assert self._file is not None
        with os.fdopen(os.dup(self._file), "rb") as file:
            content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(self._file, whole)  # or the next line would be glued to half of one
        os.lseek(self._file, whole, os.SEEK_SET)
        for line in content[:whole].splitlines():
            if (found := _LINE.fullmatch(line)) is not None:
                self._add(found[1].decode(), found[2].decode())

    def _add(self, message_id: str, event_id: str) -> None:
        self._lines += 1
        self._ids[message_id] = None
        self._ids.move_to_end(message_id)
        if len(self._ids) > self._kept:
            self._ids.popitem(last=False)
        self.last_event_id = event_id or self.last_event_id

    def _compact(self) -> None:
        """Write the newest ids alone into a new file, and put it in the old one's place in one step."""
        assert self._file is not None
        fresh = self._path + ".new"
        with suppress(FileNotFoundError):
            os.unlink(fresh)
        new = _open(fresh, os.O_RDWR | os.O_EXCL)
        try:
            _write(new, b"".join(f"{known} {self.last_event_id}\n".encode() for known in self._ids))
            os.fsync(new)
            os.replace(fresh, self._path)
            _sync_folder(os.path.dirname(self._path))
        except OSError:
            os.close(new)
            raise
        os.close(self._file)
        self._file, self._lines = new, len(self._ids)


def _open(path: str, flags: int) -> int:
    """Open a file of the user's own, making it if need be; a link that somebody put there is not followed."""
    handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(handle, 0o600)
    return handle


def _write(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]


def _sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
