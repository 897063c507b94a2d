"""The live streams: what was handed to each and is not written yet, and which one is its agent's own.

What must stay true: a stream holds at most a window of deliveries, so a slow reader costs constant memory; what does
not fit stays in the mailbox. ``attached`` is changed only inside units, on the store's thread, so that "which stream
is the agent's own" has one order with every commit; all else here belongs to the event loop.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from angelia.bus.ports import Parcel, Tx
from angelia.model.delivery import Hand
from angelia.model.envelope import Envelope

MAX_TRANSIENT = 16


class Connection(Protocol):
    """What a stream knows of the socket under it."""

    def unsent(self) -> int:
        """Bytes that were written and have not left the process. Also asked on the store's thread: while a connection
        is being torn down this must not fall before the stream was told (``end("gone")``)."""
        ...

    def abort(self) -> None:
        """Drop the connection at once."""
        ...


class Door(Protocol):
    """The way past a stream's task, while that ``waits``."""

    def frame(self, parcel: Parcel | None) -> bytes:
        """The bytes of a parcel (None: of a keep-alive)."""
        ...

    def write(self, data: bytes) -> None:
        """Give them to the connection."""
        ...

    def wrote(self, parcel: Parcel | None, size: int) -> None:
        """Say so to the bus."""
        ...


@dataclass(slots=True, eq=False)
class Stream:
    """One open stream. ``ended`` says why it ends: ``superseded``, ``lagged`` or ``gone``; ``bye``: the hub stops; or
    because of a key: ``keyed`` (its name is now), ``removed`` (its name was), ``revoked`` (a token of its name was), or
    ``token`` (the one that it was opened with is no longer good).

    ``handed``: what was written and is still leased, with its attempt. ``door``: None where nothing can be written past
    its task.
    """

    mailbox: str
    name: str
    hand: Hand
    connection: Connection
    window: int
    window_bytes: int
    opened_at: int
    observer: bool = False
    buffer: deque[Parcel] = field(default_factory=deque)
    handed: dict[int, int] = field(default_factory=dict)
    transient: deque[Envelope] = field(default_factory=lambda: deque(maxlen=MAX_TRANSIENT))
    ended: str | None = None
    reset: dict[str, object] | None = None
    replay_after: int = 0
    replay_upto: int = 0
    ready: bool = False
    written: int = 0
    keepalive_due: bool = False
    quiet_since: float = 0.0
    progress: tuple[int, float] = (0, 0.0)
    door: Door | None = None
    _taken: int = 0
    _taken_bytes: int = 0
    _freed: int = 0
    _freed_bytes: int = 0
    _wake: asyncio.Future[None] | None = None

    def room(self) -> int:
        """How many more deliveries fit."""
        return self.window - (self._taken - self._freed) if self.room_bytes() > 0 else 0

    def room_bytes(self) -> int:
        """How many more bytes fit; one delivery that is larger still goes alone."""
        return self.window_bytes - (self._taken_bytes - self._freed_bytes)

    def hold(self, count: int, size: int) -> None:
        """So much is leased to it by a unit (or, below zero, was not after all); on the store's thread."""
        self._taken += count
        self._taken_bytes += size

    def free(self, size: int) -> None:
        """A delivery left the window: written (auto), or settled or lost (manual)."""
        self._freed += 1
        self._freed_bytes += size
        if self.hand is Hand.MANUAL:
            self.wake()

    def let_go(self, key: int, attempt: int) -> None:
        """A delivery is not leased any more, whoever had it. What is not written by now (it was withdrawn) is not."""
        if self.handed.get(key) == attempt:
            del self.handed[key]
            return
        for parcel in self.buffer:
            if parcel.delivery.key == key and parcel.delivery.attempt == attempt:
                self.buffer.remove(parcel)
                if self.hand is Hand.AUTO:
                    self.free(parcel.delivery.size)
                return

    def settled(self, mark: int) -> bool | None:
        """For ``Autos``: broken once ended, true when the bytes up to ``mark`` have left the process.

        A lost connection has nothing unsent, so whether it is lost is looked at last.
        """
        left = mark <= self.written - self.connection.unsent()
        if self.ended == "gone":
            return False
        return True if left else None

    def waits(self) -> Door | None:
        """Its door, while its task has written everything, the other side has taken it, and nothing else is to be
        told."""
        if self._wake is None or self._wake.done() or self.ended is not None or self.connection.unsent():
            return None
        return self.door

    def wake(self) -> None:
        """Make the stream's door look again."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def end(self, why: str) -> None:
        """End it once what is buffered has had its chance; the first reason stays, but ``gone`` beats all."""
        if self.ended is None or why == "gone":
            self.ended = why
        self.wake()

    def waiter(self) -> asyncio.Future[None]:
        """A future that the next ``wake`` ends. Take it before looking, wait on it after."""
        self._wake = asyncio.get_running_loop().create_future()
        return self._wake


def reserve(tx: Tx, places: Sequence[tuple[Stream, int]]) -> None:
    """Deliveries of these sizes are leased to these streams by a unit; on the store's thread."""
    for stream, size in places:
        stream.hold(1, size)

    def undo() -> None:
        for stream, size in places:
            stream.hold(-1, -size)

    if places:
        tx.otherwise(undo)


class Streams:
    """All open streams. ``attached``: the agents' own. ``unsure``: those that may hold bytes which have not left.
    ``on_change`` is called, on the loop, when an agent's own stream is another one or none, ``on_unsure`` when there is
    something in ``unsure`` again; they raise nothing."""

    def __init__(self) -> None:
        self.attached: dict[str, Stream] = {}
        self.unsure: set[Stream] = set()
        self._all: dict[str, list[Stream]] = {}
        self._quiet: OrderedDict[Stream, None] = OrderedDict()  # as ``quiet_since`` rises
        self.count = 0
        self.on_change: Callable[[], None] = lambda: None
        self.on_unsure: Callable[[], None] = lambda: None

    def attach(self, tx: Tx, mailbox: str, stream: Stream | None) -> None:
        """Make a stream its agent's own (None: it has none), with this unit."""
        old = self.attached.get(mailbox)
        tx.otherwise(lambda: self._attach(mailbox, old))
        self._attach(mailbox, stream)
        tx.then(lambda: self.on_change())

    def _attach(self, mailbox: str, stream: Stream | None) -> None:
        if stream is None:
            self.attached.pop(mailbox, None)
        else:
            self.attached[mailbox] = stream

    def add(self, stream: Stream) -> None:
        """Note a stream as open."""
        self._all.setdefault(stream.mailbox, []).append(stream)
        self._quiet[stream] = None
        self.count += 1

    def remove(self, stream: Stream) -> None:
        """Forget a stream."""
        mine = self._all.get(stream.mailbox, [])
        if stream in mine:
            mine.remove(stream)
            del self._quiet[stream]
            self.unsure.discard(stream)
            self.count -= 1
        if not mine:
            self._all.pop(stream.mailbox, None)

    def wrote(self, stream: Stream, size: int, now: float) -> None:
        """So many bytes were written to it."""
        stream.written += size
        stream.quiet_since = now
        self._quiet.move_to_end(stream)
        if not self.unsure:
            self.on_unsure()
        self.unsure.add(stream)

    def to_look_at(self, quiet_since: float) -> list[Stream]:
        """Those that may hold bytes, and those that have been quiet since then; the others are not touched."""
        quiet = takewhile(lambda stream: stream.quiet_since <= quiet_since, self._quiet)
        return list({*self.unsure, *quiet})

    def of(self, mailbox: str) -> list[Stream]:
        """The streams open on a mailbox, observers too."""
        return self._all.get(mailbox, [])

    def own(self, mailbox: str) -> Stream | None:
        """The agent's own stream, when it is live."""
        stream = self.attached.get(mailbox)
        return stream if stream is not None and stream.ended is None else None

    def everyone(self) -> list[Stream]:
        """Every open stream."""
        return [stream for streams in self._all.values() for stream in streams]

    def wake(self, mailbox: str) -> None:
        """Make the streams of a mailbox look."""
        for stream in self._all.get(mailbox, ()):
            stream.wake()

    def end_all(self, why: str) -> None:
        """End every stream."""
        for stream in self.everyone():
            stream.end(why)
