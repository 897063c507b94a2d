"""Programs that print JSON lines while they work, and the files of JSON lines that they keep as their history.

What must stay true:

- Each event is seen as it comes, so that a conversation's name is known before its turn can be cut off.
- A turn has ended with the event that says so, or with its program, not with the pipes: a program that goes on after
  its last event, or whose own children hold its output, is given a moment and then ended.
- What is no event (banners, warnings, stack traces) is kept to a bound and handed on, for it may say what went wrong.
- A turn is known again in a history by its ``mark``, which stands where no sender can write: behind the fenced text.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from angelia.protocol.foreign_json import Malformed, read
from angelia.turns.adapters.port import Turn
from angelia.turns.child import Children, Running

Event = dict[str, Any]

LINE_BYTES = 16 * 1024 * 1024  # an event may hold a picture or a whole file that a tool has read
KEPT_BYTES = 64 * 1024  # of what is no event: some screens full, the newest
DEPTH = 64  # of an event; what the agents print is about ten deep
LINGER_SECONDS = 5.0  # from the last event to the exit: the program writes its history and ends its tool servers
DRAIN_SECONDS = 1.0  # from the exit to the end of what its pipe still holds
# Ended by a signal, as the kernel says it and as a shell or a handler of the program's own does (128 and the signal).
_KILLED = {128 + number for number in (1, 2, 9, 15)}


@dataclass(frozen=True, slots=True)
class Printed:
    """How it ended. ``told``: its last event came. ``rest``: all else that it printed, standard output first."""

    told: bool
    code: int
    rest: str

    @property
    def killed(self) -> bool:
        """Whether somebody else ended it, before it could say what became of its turn."""
        return not self.told and (self.code < 0 or self.code in _KILLED)


def mark(turn: Turn) -> str:
    """What is added to the prompt of this attempt, and to no other."""
    return f"[angelia turn {turn.key}]"


def at(value: object, *path: str) -> Any:
    """What stands at ``path`` in an event; None where the path does not lead on."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def events(path: Path) -> Iterator[Event]:
    """The events in a history. Raises ``OSError``."""
    with path.open("rb") as file:
        for line in file:
            event = event_of(line)
            if event is not None:
                yield event


def event_of(line: bytes) -> Event | None:
    """The event that a line holds; None where it holds something else."""
    if not line.startswith(b"{"):
        return None
    with suppress(Malformed):
        value = read(line, DEPTH)
        return value if isinstance(value, dict) else None
    return None


async def listen(
    children: Children,
    argv: Sequence[str],
    *,
    stdin: bytes,
    see: Callable[[Event], bool],
    environment: Mapping[str, str],
    folder: str,
    note: str,
) -> Printed:
    """Run a program to the end of its turn. ``see`` gets each event and says whether it was the last one that counts.

    Raises ``OSError`` where it cannot be started. When cancelled, all of it ends first.
    """
    running = await children.start(argv, environment=environment, folder=folder, line_bytes=LINE_BYTES, note=note)
    rest = bytearray()
    told = False
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as tasks:
                feeding = tasks.create_task(_feed(running.stdin, stdin))
                tasks.create_task(_until_it_leaves(running, limit))
                async for line in _Lines(running.stdout):
                    event = event_of(line)
                    if event is None:
                        rest += line
                        del rest[:-KEPT_BYTES]
                    elif see(event) and not told:
                        told = True
                        _end_within(limit, LINGER_SECONDS)
                feeding.cancel()
        words = running.last_words()
    finally:
        await running.end()
    return Printed(told, await running.wait(), rest.decode("utf-8", "replace") + words)


async def _feed(stdin: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(ConnectionError):  # it has ended, or closed its input: what it says tells why
        stdin.write(data)
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


async def _until_it_leaves(running: Running, limit: asyncio.Timeout) -> None:
    await running.wait()
    _end_within(limit, DRAIN_SECONDS)


def _end_within(limit: asyncio.Timeout, seconds: float) -> None:
    ends = asyncio.get_running_loop().time() + seconds
    if not limit.expired() and ends < (limit.when() or float("inf")):
        limit.reschedule(ends)


class _Lines:
    """The lines of a stream. One that is longer than the bound is left out, but for its end."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream

    def __aiter__(self) -> "_Lines":
        return self

    async def __anext__(self) -> bytes:
        while True:
            with suppress(ValueError):
                line = await self._stream.readline()
                if not line:
                    raise StopAsyncIteration
                return line
