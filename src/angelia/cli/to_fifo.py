"""The third way in which ``listen`` hands a message over: a line in a named pipe, for whoever reads it.

What must stay true:

- Nothing is taken while nobody reads. A message is handed over once its whole line was written and, where the system
  tells (Linux), taken out of the pipe; a reader that goes away in the middle of it costs nothing but a repeat: the next
  one gets the line from its beginning. (Not known here: what a reader has taken and not dealt with when it dies; and
  that one has gone, where another has come within the same moment.)
- One line at a time is in the pipe, from one writer: no line is ever mixed with another, however long it is.
- A pipe that we made (0600) is removed at the end, if it is still the one; one that was there stays.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import select
import stat
import termios
import time
from collections.abc import Callable

from angelia.cli.exits import UsageError
from angelia.cli.hand import TICK_MS, Stopped, line_of
from angelia.client.listener import Taken

LOOK_SECONDS = 0.1  # the kernel has no event for "somebody opened the pipe"
TAKEN_LEAST_SECONDS, TAKEN_MOST_SECONDS = 0.0005, 0.05  # nor for "the pipe is empty": how often we look
ABSENT_SECONDS = 5.0  # a shell's loop opens the pipe anew for each line; that is no absence
# A message that is held for a reader who is away costs an attempt when it is given back. So it is kept for long.
HELD_SECONDS = 3600.0


class ReaderGone(Exception):
    """Nobody has read for a while: no mail should wait here."""


class ToFifo:
    """Writes one JSON object a line into the pipe at ``path``. Use it as a context. ``stopping`` is asked often."""

    def __init__(self, path: str, stopping: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self._stopping, self._clock = path, stopping, clock
        self._pipe: int | None = None
        self._made: tuple[int, int] | None = None
        self._absent_since = clock()

    def __enter__(self) -> ToFifo:
        """Make the pipe, or see that it is one, of this user. Raises ``UsageError``."""
        try:
            os.mkfifo(self.path, 0o600)
            found = os.stat(self.path)
            self._made = (found.st_dev, found.st_ino)
        except FileExistsError:
            self._check()
        except OSError as error:
            raise UsageError(f"{self.path} cannot be made: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        with contextlib.suppress(OSError):
            found = os.lstat(self.path)
            if stat.S_ISFIFO(found.st_mode) and (found.st_dev, found.st_ino) == self._made:
                os.unlink(self.path)

    def wait(self) -> bool:
        """Until somebody reads; False when told to stop before."""
        while not self.ready():
            if self._stopping():
                return False
        return True

    def ready(self) -> bool:
        """Whether somebody reads now. Takes a moment where nobody does."""
        if self._pipe is not None and not self._has_reader():
            self._close()  # with what is left of a line in it
        if self._pipe is None and not self._open():
            time.sleep(LOOK_SECONDS)
            return False
        return True

    def given_up(self, holding: bool) -> bool:
        """Whether nobody has read for so long that no mail should wait here. ``holding``: some is in our hands."""
        if self._pipe is not None:
            return False
        return self._clock() - self._absent_since >= (HELD_SECONDS if holding else ABSENT_SECONDS)

    def __call__(self, taken: Taken) -> str:
        """Hand over one message. Out: "", since it ends only when that is done, or with ``Stopped``, ``ReaderGone``."""
        line = line_of(taken)
        while not (self._wait_in_hand() and self._write(line) and self._was_taken()):
            self._close()
        return ""

    def _wait_in_hand(self) -> bool:
        while not self.ready():
            if self._stopping():
                raise Stopped
            if self.given_up(holding=True):
                raise ReaderGone
        return True

    def _write(self, line: bytes) -> bool:
        """All of it; False when the reader goes away before."""
        left = memoryview(line)
        while left:
            if self._stopping():
                raise Stopped
            if not self._poll(TICK_MS):  # it is over at once when the reader goes
                continue
            assert self._pipe is not None
            try:
                left = left[os.write(self._pipe, left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return False
        return True

    def _was_taken(self) -> bool:
        """Once the pipe is empty; False when the reader goes away before. Where the system does not tell, at once."""
        pause = TAKEN_LEAST_SECONDS
        while self._unread():
            if self._stopping():
                raise Stopped
            if not self._has_reader():
                return not self._unread()
            time.sleep(pause)
            pause = min(2 * pause, TAKEN_MOST_SECONDS)
        return True

    def _unread(self) -> int:
        """How many bytes are in the pipe; 0 on systems that tell it to readers alone."""
        assert self._pipe is not None
        count = array.array("i", [0])
        try:
            fcntl.ioctl(self._pipe, termios.FIONREAD, count)
        except OSError:
            return 0
        return count[0]

    def _has_reader(self) -> bool:
        return not any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for event in self._poll(0))

    def _poll(self, milliseconds: int) -> list[int]:
        assert self._pipe is not None
        watched = select.poll()
        watched.register(self._pipe, select.POLLOUT)
        return [event for _, event in watched.poll(milliseconds)]

    def _open(self) -> bool:
        """Open the pipe where somebody reads; it is ours alone from then on."""
        try:
            pipe = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nobody reads
                return False
            raise UsageError(f"{self.path} cannot be opened: {error.strerror}") from None
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            os.close(pipe)
            raise UsageError(f"{self.path} is no named pipe any more")
        try:
            fcntl.flock(pipe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(pipe)
            raise UsageError(f"another listener writes to {self.path}: each needs a pipe of its own") from None
        except OSError:
            pass  # macOS locks no pipes
        self._pipe = pipe
        return True

    def _close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe, self._absent_since = None, self._clock()

    def _check(self) -> None:
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be used: {error.strerror}") from None
        if not stat.S_ISFIFO(found.st_mode):
            raise UsageError(f"{self.path} is there and is no named pipe")
        if found.st_uid != os.geteuid():
            raise UsageError(f"{self.path} belongs to uid {found.st_uid}, who would read your mail")
