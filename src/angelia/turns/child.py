"""Programs that a turn starts, and their end.

What must stay true: a child has a fixed argument list with an absolute program, its own process group, standard input
that ends, and no variable or descriptor of ours that was not given to it. When a turn is over in any way but a good one
the whole group ends: asked (SIGTERM), and after ``GRACE_SECONDS`` made to (SIGKILL). A child that has ended while its
own children still hold the pipes has ended. What it prints is bounded in memory; a hub that was killed finds what it
left running by the note on disk, and only that (pid, group and start time must match).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: ``code`` (negative: the signal), and what it printed. ``cut``: it printed more than was
    allowed and was ended for it."""

    code: int
    stdout: bytes
    stderr: bytes
    cut: bool = False


class Running(Protocol):
    """A child that lives longer than a turn (a warm process), or that is talked to while it runs."""

    pid: int
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        ...

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        ...

    async def end(self) -> None:
        """End its whole group: asked first, then made to. Harmless when it has ended."""
        ...


class Children(Protocol):
    """Starts programs. Raises ``OSError`` where one cannot be started."""

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
        """Run it to its end; when cancelled, end its group first. ``note``: under which name the hub remembers it on
        disk while it runs (a turn's key); None for what is only asked for its version."""
        ...

    async def start(
        self, argv: Sequence[str], *, environment: Mapping[str, str], folder: str, line_bytes: int, note: str
    ) -> Running:
        """Start one whose pipes the caller drives, and that the caller ends. Its lines have ``line_bytes`` at most."""
        ...
