"""Messages that no hub could take yet, kept on this machine's disk: a file that is appended to, line by line.

What must stay true:

- A message is on the disk before ``keep`` returns. A torn last line counts as not written, and is taken off before the
  next one. Nothing is rewritten in place: the file grows, and goes when nothing in it waits any more.
- It belongs to this user alone (0600), and no link is followed to it. Several processes may have it open; each looks
  and writes under its lock for moments, and one at a time has the turn to send what is kept.
- It is bounded in bytes and in messages; beyond that the caller is told, and nothing is cut.
- What a hub refused for good stands in the file beside it that ends with ``.refused``, with the reason.

The first line names the file (a number by chance), so that one that was replaced is known as such. After it, each line
is a JSON object: ``{"keep": {id, path, key, at, message}}`` or ``{"done": id}``. Whose a message is, is its ``from``.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from angelia.client.errors import OutboxError, OutboxFull

MOST_MESSAGES = 10_000  # what one mailbox holds
MOST_BYTES = 64 * 1024 * 1024
LOCK_SECONDS = 10.0  # the lock is held for moments; a process that was stopped in the middle must not stop us for ever
_LOOK_SECONDS = 0.005
_HEAD = b'{"outbox": 1, "file": "%b"}\n'
_HEAD_BYTES = len(_HEAD % (b"0" * 32))


class Kept(NamedTuple):
    """A message that waits: where it goes, under which idempotency key, since when (UTC, milliseconds), and for how
    long by now.
    """

    id: str
    path: str
    key: str | None
    at: int
    message: dict[str, Any]
    waited_seconds: float = 0.0

    def left_seconds(self) -> float | None:
        """What is left of its time to live, at least a second, or 0; None where it has none of its own."""
        given = self.message.get("ttl_seconds")
        if given is None:
            return None
        left = float(given) - self.waited_seconds
        return max(1.0, left) if left > 0 else 0.0

    def line(self, **more: object) -> bytes:
        """It as it stands in a file."""
        shown = {"id": self.id, "path": self.path, "key": self.key, "at": self.at, "message": self.message}
        return _line({**more, "keep": shown})


class Turn:
    """The right to send what is kept. Let go of it with ``close``; a process that ends does so, too."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def close(self) -> None:
        """Somebody else may."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    __del__ = close


class Outbox:
    """The messages kept in one file. May be used from several threads."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        most_messages: int = MOST_MESSAGES,
        most_bytes: int = MOST_BYTES,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sync: Callable[[int], None] = os.fsync,
    ) -> None:
        """In: where the file stands, or shall stand (its folder is there); how much it may hold; UTC in ms; and what
        makes an open file durable.
        """
        self.path = os.path.abspath(os.fspath(path))
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._now = now
        self._sync = sync
        self._one_at_a_time = threading.Lock()
        # What is known of the file: its name, how far it was read, and what waits in it, in order.
        self._file = b""
        self._end = 0
        self._waiting: dict[str, tuple[Kept, int]] = {}  # with the bytes of its line
        self._live = 0  # those bytes, added up; the rest of the file is done with

    def count(self, name: str | None) -> int:
        """How many messages of this sender wait."""
        return len(self.waiting(name))

    def waiting(self, name: str | None) -> list[Kept]:
        """The messages of this sender that wait, oldest first."""
        if not os.path.lexists(self.path):  # as nearly always
            return []
        with self._locked() as file:
            self._catch_up(file)
            now = self._now()
            return [
                kept._replace(waited_seconds=max(0, now - kept.at) / 1000)
                for kept, _ in self._waiting.values()
                if _same(kept.message.get("from"), name)
            ]

    def keep(self, path: str, message: dict[str, Any], key: str | None) -> None:
        """Keep a message, on the disk; one that is there already is not kept twice. Raises ``OutboxError``."""
        kept = Kept(message["id"], path, key, self._now(), message)
        line = kept.line()
        with self._locked(message["id"]) as file:
            self._catch_up(file)
            if kept.id in self._waiting:
                if self._waiting[kept.id][0]._replace(at=kept.at) == kept:
                    return
                raise OutboxError(self.path, "that id is another message's, which waits in it", kept.id)
            most = self._most_bytes
            if _HEAD_BYTES + self._live + len(line) > most or len(self._waiting) >= self._most_messages:
                why = f"it is full: {len(self._waiting)} messages, {self._live} bytes"
                raise OutboxFull(self.path, why, message["id"])
            if self._end + len(line) > most:
                self._rewrite(file)
            self._append(file, line, sync=True)
            self._take_in(line)

    def done(self, message_id: str) -> None:
        """A hub has this one. Lost by a crash, that costs one repeat under the same id."""
        with self._locked() as file:
            self._catch_up(file)
            self._forget(message_id)
            if not self._waiting:
                os.unlink(self.path)
                self._file = b""
            else:
                self._append(file, _line({"done": message_id}), sync=False)

    def set_aside(self, kept: Kept, code: str, detail: str) -> None:
        """A hub refused this one for what it is: write it into the other file, and be done with it."""
        line = kept.line(code=code, detail=detail)
        with self._converted(kept.id), _opened(self.path + ".refused") as file:
            end = os.fstat(file).st_size
            if end + len(line) > self._most_bytes:
                raise OutboxFull(self.path + ".refused", f"it is full: {end} bytes", kept.id)
            torn = end > 0 and os.pread(file, 1, end - 1) != b"\n"  # by a crash; then that half line is ended first
            _write(file, (b"\n" if torn else b"") + line, end)
            self._sync(file)
        self.done(kept.id)

    def turn(self) -> Turn | None:
        """Become the one who sends what is kept; None while another does."""
        with self._converted():
            handle = _open(self.path + ".turn")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            return Turn(handle)

    # ---- the file

    @contextmanager
    def _locked(self, message_id: str = "") -> Generator[int, None, None]:
        """The file, open and ours alone."""
        with self._converted(message_id), self._one_at_a_time, _opened(self.path + ".lock") as lock:
            _take(lock, lambda: OutboxError(self.path, "another process does not let go of it", message_id))
            with _opened(self.path) as file:
                yield file

    @contextmanager
    def _converted(self, message_id: str = "") -> Generator[None, None, None]:
        """What the system says of files, as an ``OutboxError``."""
        try:
            yield
        except OSError as error:
            raise OutboxError(self.path, error.strerror or str(error), message_id) from error

    def _catch_up(self, file: int) -> None:
        """Read what others, or an earlier life, wrote since; take off a line that was torn."""
        head = os.pread(file, _HEAD_BYTES, 0)
        if len(head) < _HEAD_BYTES:  # new, or its maker did not come further
            os.ftruncate(file, 0)
            head = _HEAD % os.urandom(16).hex().encode()
            _write(file, head, 0)
            _sync_folder(self.path)
        if head != self._file:
            self._file, self._end, self._waiting, self._live = head, _HEAD_BYTES, {}, 0
        fresh = _read_from(file, self._end)
        whole = fresh.rfind(b"\n") + 1
        if whole < len(fresh):
            os.ftruncate(file, self._end + whole)
        for line in fresh[:whole].splitlines(keepends=True):
            self._take_in(line)
        self._end += whole

    def _take_in(self, line: bytes) -> None:
        try:
            found = json.loads(line)
            if "done" in found:
                self._forget(found["done"])
            else:
                kept = Kept(**found["keep"])
                self._forget(kept.id)
                self._waiting[kept.id] = (kept, len(line))
                self._live += len(line)
        except (ValueError, TypeError, KeyError) as error:
            raise OutboxError(self.path, f"a line of it cannot be read ({error}): {line[:80]!r}") from None

    def _forget(self, message_id: str) -> None:
        _, size = self._waiting.pop(message_id, (None, 0))
        self._live -= size

    def _append(self, file: int, line: bytes, *, sync: bool) -> None:
        try:
            _write(file, line, self._end)
            if sync:
                self._sync(file)
        except OSError:
            with suppress(OSError):  # half a line would spoil the next one; and what is not kept must not be sent
                os.ftruncate(file, self._end)
            raise
        self._end += len(line)

    def _rewrite(self, file: int) -> None:
        """Write what waits into a new file, put it in the old one's place in one step, and go on with it."""
        fresh = self.path + ".new"
        head = _HEAD % os.urandom(16).hex().encode()
        content = head + b"".join(kept.line() for kept, _ in self._waiting.values())
        with suppress(FileNotFoundError):
            os.unlink(fresh)
        with _opened(fresh) as new:
            _write(new, content, 0)
            self._sync(new)
            os.rename(fresh, self.path)
            _sync_folder(self.path)
            os.dup2(new, file, inheritable=False)
        self._file, self._end = head, len(content)


def _same(one: str | None, other: str | None) -> bool:
    return (one or "").lower() == (other or "").lower()


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def _open(path: str) -> int:
    """Open a file of the user's own, making it if need be; a link that somebody put there is not followed."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(handle, 0o600)
    return handle


@contextmanager
def _opened(path: str) -> Generator[int, None, None]:
    handle = _open(path)
    try:
        yield handle
    finally:
        os.close(handle)


def _take(lock: int, refused: Callable[[], OutboxError]) -> None:
    ends = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > ends:
                raise refused() from None
            time.sleep(_LOOK_SECONDS)


def _write(file: int, content: bytes, place: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(file, view, place)
        view, place = view[written:], place + written


def _read_from(file: int, place: int) -> bytes:
    pieces = []
    while piece := os.pread(file, 1 << 20, place):
        pieces.append(piece)
        place += len(piece)
    return b"".join(pieces)


def _sync_folder(path: str) -> None:
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
