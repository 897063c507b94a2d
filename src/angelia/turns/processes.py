"""Runs programs for turns: fills ``Children`` of child.py, over the operating system.

What must stay true:

- A turn never hangs on a child's pipes. Standard input is a file, so there is nobody to write to it; output is read as
  it comes and kept to a bound; and when the child has ended, what its own children still hold open is let go of.
- Whatever way a run ends in, but for exit code 0, nothing of its group is left. A second cancellation only hurries it.
- The event loop stands still for a child's start and no longer: ``subprocess`` takes half a millisecond for that,
  uvloop's own way ten times as long in a process of the hub's size. A pipe's descriptor is closed by us alone: uvloop
  closes one twice (``connect_read_pipe``), and the second time it may be the store's.
"""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from angelia.bus.surroundings import without
from angelia.turns.child import GRACE_SECONDS, Ended
from angelia.turns.groups import led_by
from angelia.turns.remains import Remains

# From the child's exit to the end of its pipes, where they were left to its own children: what a pipe holds is read in
# a moment, and whoever writes later was not asked.
DRAIN_SECONDS = 1.0
KILLED_SECONDS = 5.0  # a killed process is gone at once, but for one that hangs in the kernel, on a dead disk
LAST_WORDS_BYTES = 8192  # of standard error: a long stack trace
_PIECE_BYTES = 65536  # what a pipe holds


class ChildProcesses:
    """Starts programs, each in a process group of its own that is noted on disk while it runs. ``grace_seconds``: how
    long what is asked to end may take; a hub that stops has less time than a turn that does."""

    def __init__(
        self,
        folder: str,
        *,
        withheld: Callable[[], frozenset[str]] = frozenset,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """Takes the folder for notes, which is made and shut to others; and how long what is asked to end may take.
        ``withheld``: variables that no program gets, whatever it is given: secrets that the hub itself needs; asked
        whenever one is started."""
        self._remains = Remains(folder)
        self._folder = folder
        self.grace_seconds = grace_seconds
        self._withheld = withheld

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str],
        folder: str,
        limit_bytes: int,
        note: str | None = None,
    ) -> Ended:
        """Run it to its end; see ``Children``. Raises ``OSError`` where it cannot be started, ``ValueError`` where the
        program has no absolute path."""
        with _file_of(stdin, self._folder) as file:
            child = self._spawn(argv, environment, folder, file.fileno(), subprocess.PIPE)
        heard = _Heard(limit_bytes, child.news)
        well = False
        try:
            child.begin(note)
            child.read(child.process.stdout, heard.out)
            child.read(child.process.stderr, heard.err)
            await child.news.wait()  # it has ended, or said too much
            if not heard.cut:
                await child.drained()
            well = child.code == 0 and not heard.cut
        finally:
            await child.close(well=well)
        return Ended(child.exit_code, bytes(heard.stdout), bytes(heard.stderr), heard.cut)

    async def start(
        self, argv: Sequence[str], *, environment: Mapping[str, str], folder: str, line_bytes: int, note: str
    ) -> "WarmProcess":
        """Start one whose pipes the caller drives; see ``Children``. Raises as ``run`` does."""
        # Sockets, as whoever drives a program from Node gives it: both loops read and write them alike.
        our_stdin, stdin = socket.socketpair()
        our_stdout, stdout = socket.socketpair()
        with stdin, stdout:
            try:
                child = self._spawn(argv, environment, folder, stdin.fileno(), stdout.fileno())
            except BaseException:
                our_stdin.close()
                our_stdout.close()
                raise
        try:
            child.begin(note)
            _, writer = await asyncio.open_unix_connection(sock=our_stdin)
            reader, unused = await asyncio.open_unix_connection(sock=our_stdout, limit=line_bytes)
        except BaseException:
            our_stdin.close()
            our_stdout.close()
            await child.close(well=False)
            raise
        return WarmProcess(child, writer, reader, unused)

    def _spawn(
        self, argv: Sequence[str], environment: Mapping[str, str], folder: str, stdin: int, stdout: int
    ) -> "_Child":
        if not argv or not os.path.isabs(argv[0]):
            raise ValueError(f"a program is started by its absolute path: {argv[:1]}")
        given = without(self._withheld(), environment)
        process = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=given, cwd=folder,
            start_new_session=True, bufsize=0,
        )  # fmt: skip
        return _Child(process, self._remains, lambda: self.grace_seconds)


class _Child:
    """A program that runs, with its group. ``code`` once it has ended; ``news`` is set then."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", remains: Remains, grace_seconds: Callable[[], float]
    ) -> None:
        self.process = process
        self.group = led_by(process.pid)
        self.code: int | None = None
        self.news = asyncio.Event()
        self._over = asyncio.Event()
        self._remains = remains
        self._grace_seconds = grace_seconds
        self._loop = asyncio.get_running_loop()
        self._pipes: list[_Pipe] = []
        # Waits for it in the kernel: there is no way that Linux, macOS and both loops have in common.
        threading.Thread(target=self._wait, name=f"child {process.pid}", daemon=True).start()

    def _wait(self) -> None:
        code = self.process.wait()
        with suppress(RuntimeError):  # the loop has ended before it
            self._loop.call_soon_threadsafe(self._ended, code)

    def _ended(self, code: int) -> None:
        self.code = code
        self._over.set()
        self.news.set()

    def begin(self, note: str | None) -> None:
        """Note on disk that it runs."""
        if note is not None:
            self._remains.remember(self.group, note)

    def read(self, file: IO[bytes] | None, take: Callable[[bytes], None]) -> None:
        """Hand on what it prints."""
        assert file is not None
        self._pipes.append(_Pipe(file, take))

    async def drained(self) -> None:
        """Wait until its pipes have ended, a while at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                for pipe in self._pipes:
                    await pipe.ended.wait()

    @property
    def exit_code(self) -> int:
        """How it ended; as if killed where it could not be seen to."""
        return -9 if self.code is None else self.code

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        await self._over.wait()
        return self.exit_code

    async def close(self, *, well: bool) -> None:
        """Let go of it; unless it ended well, its group ends first."""
        try:
            if not well:
                await self.group.end(self._grace_seconds())
                with suppress(TimeoutError):
                    async with asyncio.timeout(KILLED_SECONDS):
                        await self._over.wait()
        finally:
            for pipe in self._pipes:
                pipe.close()
            for file in (self.process.stdout, self.process.stderr):
                if file is not None:
                    file.close()
            self._remains.forget(self.group)


class _Pipe:
    """One stream that a child prints to. ``ended`` is set when nothing more comes of it."""

    def __init__(self, file: IO[bytes], take: Callable[[bytes], None]) -> None:
        self._file, self._take = file, take
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(file.fileno(), False)
        self._loop.add_reader(file.fileno(), self._more)

    def _more(self) -> None:
        try:
            data = os.read(self._file.fileno(), _PIECE_BYTES)
        except BlockingIOError:
            return
        if data:
            self._take(data)
        else:
            self.close()

    def close(self) -> None:
        """Read no more; who prints to it then finds it closed."""
        if not self._file.closed:
            self._loop.remove_reader(self._file.fileno())
            self._file.close()
        self.ended.set()


class _Heard:
    """What a child printed, up to ``limit_bytes`` of both streams. ``cut`` when it was more; ``news`` is set then."""

    def __init__(self, limit_bytes: int, news: asyncio.Event) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()
        self.cut = False
        self._left, self._news = limit_bytes, news

    def out(self, data: bytes) -> None:
        self._keep(self.stdout, data)

    def err(self, data: bytes) -> None:
        self._keep(self.stderr, data)

    def _keep(self, kept: bytearray, data: bytes) -> None:
        kept += data[: self._left]
        if len(data) > self._left:
            self.cut = True
            self._news.set()
        self._left = max(self._left - len(data), 0)


class WarmProcess:
    """Fills ``Running``: a child whose standard input and output the caller drives."""

    def __init__(
        self, child: _Child, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader, unused: asyncio.StreamWriter
    ) -> None:
        """Takes the child and our ends of its sockets; ``unused``: the writer that belongs to ``stdout``."""
        self.pid = child.process.pid
        self.stdin, self.stdout = stdin, stdout
        self._child, self._unused = child, unused
        self._words = bytearray()
        child.read(child.process.stderr, self._hear)

    def _hear(self, data: bytes) -> None:
        self._words += data
        del self._words[:-LAST_WORDS_BYTES]

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        return self._words.decode("utf-8", "replace")

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        return await self._child.wait()

    async def end(self) -> None:
        """End its whole group: asked first, then made to. Harmless when it has ended."""
        try:
            await self._child.close(well=False)
        finally:
            self.stdin.transport.abort()
            self._unused.transport.abort()


@contextmanager
def _file_of(content: bytes, folder: str) -> Iterator[IO[bytes]]:
    """A file without a name that holds ``content``, to be read from its start."""
    in_memory = sys.platform == "linux"
    with os.fdopen(os.memfd_create("stdin"), "w+b") if in_memory else tempfile.TemporaryFile(dir=folder) as file:
        file.write(content)
        file.seek(0)
        yield file
