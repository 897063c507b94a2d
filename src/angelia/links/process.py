"""A wire over a program's standard input and output, a frame a line; and a tunnel, where both are one raw stream.

What must stay true:

- A child has a fixed argument list with an absolute program, a session and group of its own, and no descriptor of ours
  beside its three. Its end, whoever caused it, leaves no process of its group, no zombie and no open file.
- Closing asks it to end (SIGTERM), and makes it after ``GRACE_SECONDS``. A group is signalled only while its number can
  be nobody else's.
- Of what it writes to standard error the end is kept: it says why it failed. A hub that is killed takes its children
  with it, because their input ends.

What a program's end means does not belong here (``troubles.py``).
"""

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from angelia.links.port import LineLost

GRACE_SECONDS = 1.0  # it has nothing to write down: whatever was under way is sent again
KILLED_SECONDS = 5.0  # a killed process is gone at once, but for one that hangs in the kernel
LAST_WORDS_BYTES = 4096  # of standard error: a few lines say why
_PIECE_BYTES = 65536  # what a pipe holds


class Ended(LineLost):
    """The end of a program's line. ``code``: its exit code (negative: the signal), None where it still runs; ``words``:
    the end of what it wrote to standard error."""

    def __init__(self, code: int | None, words: str) -> None:
        """Takes how it ended."""
        how = "the program closed its output" if code is None else f"the program ended with {code}"
        last = words.strip().rpartition("\n")[2]
        super().__init__(f"{how}: {last}" if last else how)
        self.code, self.words = code, words


class Child:
    """A program that runs. ``ended`` is set once it has; ``pid`` is its number, and its group's."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], stdin: int, stdout: int) -> None:
        """Start it on these descriptors, which stay the caller's. Raises ``OSError``."""
        home = environment.get("HOME", "/")
        # Of subprocess, not of the loop: uvloop's own way takes ten times as long in a process of the hub's size.
        self._process = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=environment, bufsize=0,
            cwd=home if os.path.isdir(home) else "/", start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self.ended = asyncio.Event()
        self._words = bytearray()
        self._loop = asyncio.get_running_loop()
        self._read_errors()
        # Waits for it in the kernel: there is no way that Linux, macOS and both loops have in common.
        threading.Thread(target=self._wait, name=f"link's child {self.pid}", daemon=True).start()

    def _wait(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop has ended before it
            self._loop.call_soon_threadsafe(self.ended.set)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        file = self._process.stderr
        os.set_blocking(file.fileno(), False)
        self._loop.add_reader(file.fileno(), self._hear)

    def _hear(self) -> None:
        file = self._process.stderr
        if file is None or file.closed:
            return
        try:
            data = os.read(file.fileno(), _PIECE_BYTES)
        except BlockingIOError:
            return
        self._words += data
        del self._words[:-LAST_WORDS_BYTES]
        if not data:
            self._hear_no_more()

    def _hear_no_more(self) -> None:
        file = self._process.stderr
        if file is not None and not file.closed:
            self._loop.remove_reader(file.fileno())
            file.close()

    async def end(self) -> Ended:
        """How it ended, for which it gets a moment; it still runs where it does not take that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self.ended.wait()
        self._hear()  # what it said last may have come with its end
        return Ended(self._process.returncode, self._words.decode("utf-8", "replace"))

    def words(self) -> str:
        """The end of what it has written to standard error so far."""
        self._hear()
        return self._words.decode("utf-8", "replace")

    async def close(self) -> None:
        """End its whole group, and let go of it. Harmless when it has ended, and a second time."""
        try:
            if self._send(signal.SIGTERM):
                with suppress(TimeoutError):
                    async with asyncio.timeout(GRACE_SECONDS):
                        await self.ended.wait()
        finally:
            self._send(signal.SIGKILL)
            self._hear_no_more()
        with suppress(TimeoutError):
            async with asyncio.timeout(KILLED_SECONDS):
                await self.ended.wait()

    def _send(self, signum: int) -> bool:
        """Signal its group. As long as it was not waited for, its number is its own; afterwards a group of that number
        is still its own where no process has the number. False where there is nobody to signal."""
        if self._process.returncode is not None and _is_somebody(self.pid):
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)
            return True
        return False


def _is_somebody(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class ProcessWire:
    """Fills ``Wire``: a frame a line. Blank lines are none."""

    def __init__(
        self, child: Child, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, unused: asyncio.StreamWriter
    ) -> None:
        """Takes a child, and our ends of its sockets; ``unused`` is the writer that belongs to ``reader``."""
        self.child, self._reader, self._writer, self._unused = child, reader, writer, unused

    @classmethod
    async def start(cls, argv: Sequence[str], environment: Mapping[str, str], *, max_bytes: int) -> "ProcessWire":
        """Start a program. Raises ``OSError`` where that cannot be."""
        # Sockets, not pipes: both loops read and write them alike.
        our_in, its_in = socket.socketpair()
        our_out, its_out = socket.socketpair()
        with its_in, its_out:
            try:
                child = Child(argv, environment, its_in.fileno(), its_out.fileno())
            except BaseException:
                our_in.close()
                our_out.close()
                raise
        try:
            _, writer = await asyncio.open_unix_connection(sock=our_in)
            reader, unused = await asyncio.open_unix_connection(sock=our_out, limit=max_bytes)
        except BaseException:
            our_in.close()
            our_out.close()
            await child.close()
            raise
        return cls(child, reader, writer, unused)

    async def send(self, frame: bytes) -> None:
        """Write a frame."""
        if self._writer.is_closing():
            raise await self.child.end()
        try:
            self._writer.writelines((frame, b"\n"))
            await self._writer.drain()
        except OSError:
            raise (await self.child.end()) from None

    async def receive(self) -> bytes:
        """The next frame."""
        try:
            while (line := await self._reader.readuntil()).isspace():
                pass
            return line.removesuffix(b"\n")
        except asyncio.LimitOverrunError:
            raise LineLost("the program wrote a line that is longer than any frame") from None
        except (asyncio.IncompleteReadError, OSError):
            raise (await self.child.end()) from None

    async def close(self) -> None:
        """End the program and all that it started."""
        self._writer.transport.abort()
        self._unused.transport.abort()
        await self.child.close()


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A program whose standard input and output are one stream to somewhere, ``socket`` our end of it."""

    child: Child
    socket: socket.socket

    @classmethod
    def start(cls, argv: Sequence[str], environment: Mapping[str, str]) -> "Tunnel":
        """Start one. Raises ``OSError``."""
        ours, its = socket.socketpair()
        with its:
            try:
                return cls(Child(argv, environment, its.fileno(), its.fileno()), ours)
            except BaseException:
                ours.close()
                raise

    async def close(self) -> None:
        """End it."""
        self.socket.close()
        await self.child.close()
