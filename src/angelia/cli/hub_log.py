"""The hub's log: one line an event, in plain words, on stderr.

What must stay true: logging never holds the hub up and never ends it. A thread writes; when nobody reads (a stopped
terminal, a full pipe) lines beyond a bound are dropped and counted; when stderr is gone they go to ``hub.log`` in the
data folder. A log file that the hub writes itself does not grow without end.
"""

import logging
import os
import queue
import stat
import threading
import time

from angelia.cli import stdio

LINES_WAITING = 10_000
FILE_BYTES = 10 * 1024 * 1024
_END_SECONDS = 1.0
_SHOWN = {number: f"\\x{number:02x}" for number in [*range(32), *range(0x7F, 0xA0)]}


class HubLog(logging.Handler):
    """Put every line on stderr, from a thread of its own."""

    def __init__(self, log_path: str, *, out: int = 1, err: int = 2) -> None:
        """``log_path``: the file that takes over when stderr is gone, and that is kept small if it is stderr.

        ``out`` and ``err`` are the descriptors of the two standard streams; tests have others.
        """
        super().__init__()
        self._path, self._out, self._err = log_path, out, err
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one line; the traceback of an error follows it, indented."""
        try:
            moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
            text = f"{moment} {record.levelname.lower()}: {record.getMessage().translate(_SHOWN)}"
            if record.exc_info and record.exc_info[0] is not None:
                trace = logging.Formatter().formatException(record.exc_info)
                text += "".join(f"\n    {line.translate(_SHOWN)}" for line in trace.splitlines())
        except Exception:  # noqa: BLE001 - a line that cannot be made must not end the work that it tells of
            text = f"a log line could not be made: {record.msg!r}"
        if self._waiting.qsize() >= LINES_WAITING:
            self._dropped += 1
            return
        if self._dropped:
            text, self._dropped = f"({self._dropped} lines were dropped: nobody read them)\n{text}", 0
        self._waiting.put(text.encode("utf-8", "backslashreplace") + b"\n")

    def finish(self) -> None:
        """Write what waits, for a moment at most."""
        self._waiting.put(None)
        self._thread.join(_END_SECONDS)

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                self._keep_small()
                self._write(line)
            except OSError:
                try:
                    stdio.divert(self._path, self._out, self._err)
                    self._write(line)
                except OSError:
                    continue  # neither terminal nor disk takes it

    def _keep_small(self) -> None:
        here = os.fstat(self._err)
        if stat.S_ISREG(here.st_mode) and here.st_size > FILE_BYTES and os.path.samestat(here, os.stat(self._path)):
            os.replace(self._path, f"{self._path}.1")
            stdio.divert(self._path, self._out, self._err)

    def _write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._err, line) :]


def start(level: str, log_path: str) -> HubLog:
    """Send everything that is logged to stderr from now on."""
    handler = HubLog(log_path)
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
