"""The hub's log: one line an event, said once, on stderr.

What must stay true: logging never holds the hub up and never ends it. A thread writes; when nobody reads (a stopped
terminal, a full pipe) lines beyond a bound are dropped and counted; when stderr is gone they go to ``hub.log`` in the
data folder. A log file that the hub writes itself does not grow without end. Equal lines are counted (``repeats.py``).
"""

import logging
import os
import queue
import stat
import threading
import time
from collections.abc import Callable

from angelia.cli import log_line, stdio
from angelia.cli.log_line import Line
from angelia.cli.repeats import Repeats

LINES_WAITING = 10_000
FILE_BYTES = 10 * 1024 * 1024
_END_SECONDS = 1.0


class HubLog(logging.Handler):
    """Put every line on stderr, from a thread of its own."""

    def __init__(
        self,
        log_path: str,
        *,
        in_json: bool = False,
        out: int = 1,
        err: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``log_path``: the file that takes over when stderr is gone, and that is kept small if it is stderr.

        ``out`` and ``err`` are the descriptors of the two standard streams; tests have others, and another clock.
        """
        super().__init__()
        self._path, self._out, self._err, self._json = log_path, out, err, in_json
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._dropped = 0
        self._clock, self._repeats = clock, Repeats[Line]()
        self._turn = threading.RLock()  # a line may be logged in the middle of another: by what is collected just then
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one line, or count it; the traceback of an error follows it, indented."""
        line = log_line.read(record)
        with self._turn:
            # Whoever asks for every detail gets each time of it.
            what = (line.part, line.level, line.message)
            if record.levelno > logging.DEBUG and not self._repeats.is_new(what, line, self._clock(), line.subject):
                if not self._waiting.qsize():
                    self._waiting.put(b"")  # the thread looks again until when it may sleep
                return
            self._put(line)

    def _put(self, line: Line) -> None:
        if self._waiting.qsize() >= LINES_WAITING:
            self._dropped += 1
            return
        text = self._shown(line)
        if self._dropped:
            words = f"{self._dropped} lines were dropped: nobody read them"
            lost = Line(line.at, "warning", __name__, log_line.event_of("lines were dropped"), words)
            text, self._dropped = self._shown(lost) + text, 0
        self._waiting.put(text.encode("utf-8", "backslashreplace"))

    def _shown(self, line: Line) -> str:
        return (log_line.as_json(line) if self._json else log_line.plain(line)) + "\n"

    def finish(self) -> None:
        """Write what waits and what was counted, for a moment at most."""
        self._waiting.put(None)
        self._thread.join(_END_SECONDS)

    def _write_all(self) -> None:
        while (line := self._next()) is not None:
            self._try_to_write(line)
            self._try_to_write(self._counted(at_end=False))
        self._try_to_write(self._counted(at_end=True))

    def _next(self) -> bytes | None:
        with self._turn:
            wait = self._repeats.wait(self._clock())
        try:
            return self._waiting.get(timeout=wait)
        except queue.Empty:
            return b""

    def _counted(self, *, at_end: bool) -> bytes:
        """The lines for what came again, where it is their time."""
        with self._turn:
            now = self._clock()
            found = self._repeats.rest(now) if at_end else self._repeats.due(now)
        lines = [
            log_line.again(first._replace(at=time.time(), trace=()), times, seconds, in_json=self._json)
            for first, times, seconds in found
        ]
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")

    def _try_to_write(self, lines: bytes) -> None:
        if not lines:
            return
        try:
            self._keep_small()
            self._write(lines)
        except OSError:
            try:
                stdio.divert(self._path, self._out, self._err)
                self._write(lines)
            except OSError:
                return  # neither terminal nor disk takes it

    def _keep_small(self) -> None:
        here = os.fstat(self._err)
        if stat.S_ISREG(here.st_mode) and here.st_size > FILE_BYTES and os.path.samestat(here, os.stat(self._path)):
            os.replace(self._path, f"{self._path}.1")
            stdio.divert(self._path, self._out, self._err)

    def _write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._err, line) :]


def start(level: str, log_path: str, *, in_json: bool = False) -> HubLog:
    """Send everything that is logged to stderr from now on."""
    handler = HubLog(log_path, in_json=in_json)
    logging.raiseExceptions = False
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("angelia").setLevel(level.upper())
    return handler


def end_of(path: str, since: int, most: int = 20) -> str:
    """The last lines that were written to a log after byte ``since``."""
    try:
        with open(path, "rb") as file:
            file.seek(since)
            lines = file.read(1024 * 1024).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-most:])
