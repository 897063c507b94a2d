"""Two whole buses in one process, and lines between them that a test can cut at any frame.

What must stay true: nothing runs beside the test but what the test started; a line that was cut gives nothing more to
anybody, what was on its way included, and both ends hear of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from angelia.bus.core import open_bus
from angelia.bus.ports import Store, Tx
from angelia.bus.rosters import rows_for_hub
from angelia.bus.system import SystemIds
from angelia.links.channel import Channel, Refused
from angelia.links.conversation import converse
from angelia.links.hub_link import HubLink
from angelia.links.port import LineLost, Trouble
from angelia.model.connection import Connection, Speaks
from angelia.model.delivery import State
from angelia.model.envelope import Envelope
from angelia.model.limits import Limits
from angelia.protocol import hub as shapes
from angelia.protocol.jsonrpc import Request
from angelia.storage.memory import MemoryStore
from tests.fakes.clock import FakeClock
from tests.fakes.small_hub import LIMITS, SmallHub

SECONDS = 10.0  # no wait of these tests needs as much
LOOK_SECONDS = 0.002


async def until(look: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Look again and again until it is true, of what nobody is told; what it was then. ``look`` may be a coroutine."""
    async with asyncio.timeout(seconds):
        while True:
            found = look()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            await asyncio.sleep(LOOK_SECONDS)


class Line:
    """A line in memory, with an end for each side. It dies after so many ``frames`` (None: never), or by ``cut``.

    ``passed`` is what was sent, as (end, frame). A line that is ``deaf`` takes frames and gives none.
    """

    def __init__(self, frames: int | None = None) -> None:
        self.left = frames
        self.passed: list[tuple[int, bytes]] = []
        self.deaf = False
        self.dead = asyncio.Event()
        self._queues: tuple[asyncio.Queue[bytes | None], ...] = (asyncio.Queue(), asyncio.Queue())
        self.ends = (End(self, 0), End(self, 1))
        if frames == 0:
            self.cut()

    def cut(self) -> None:
        """It is no more."""
        self.dead.set()
        for queue in self._queues:
            while not queue.empty():
                queue.get_nowait()
            queue.put_nowait(None)

    async def send(self, end: int, frame: bytes) -> None:
        await asyncio.sleep(0)
        if self.dead.is_set():
            raise LineLost("it was cut")
        self.passed.append((end, frame))
        if not self.deaf:
            self._queues[1 - end].put_nowait(frame)
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                await asyncio.sleep(0)  # the last one still arrives
                self.cut()

    async def receive(self, end: int) -> bytes:
        frame = None if self.dead.is_set() else await self._queues[end].get()
        if frame is None:
            self._queues[end].put_nowait(None)
            raise LineLost("it was cut")
        return frame


class End:
    """One end of a line: a ``Wire``."""

    def __init__(self, line: Line, side: int) -> None:
        self.line, self.side = line, side

    async def send(self, frame: bytes) -> None:
        await self.line.send(self.side, frame)

    async def receive(self) -> bytes:
        return await self.line.receive(self.side)

    async def close(self) -> None:
        if not self.line.dead.is_set():
            self.line.cut()


class Opened:
    """An end as the gateway's door hands it over."""

    socket = None

    def __init__(self, end: End) -> None:
        self._end = end

    async def send(self, frame: bytes) -> bool:
        try:
            await self._end.send(frame)
        except LineLost:
            return False
        return True

    async def receive(self) -> bytes | None:
        try:
            return await self._end.receive()
        except LineLost:
            return None

    def let_in(self) -> None:
        pass

    def close(self) -> None:
        if not self._end.line.dead.is_set():
            self._end.line.cut()


class Side(SmallHub):
    """A small hub with a name of its own, ids that no other hub makes, and links."""

    @classmethod
    async def make(
        cls,
        name: str,
        *agents: str,
        limits: Limits = LIMITS,
        store: Store | None = None,
        clock: FakeClock | None = None,
    ) -> "Side":
        """A hub called ``name``; ``agents`` have read there, so that others are told of them."""
        clock = clock or FakeClock()
        side = cls(await open_bus(store or MemoryStore(), clock, SystemIds(), limits, name), clock)
        await side.know(*agents, member=True)
        return side

    @property
    def id(self) -> str:
        return self.bus.store.instance

    @property
    def name(self) -> str:
        return self.bus.neighbours.name

    def connection(self, other: "Side", **more: Any) -> Connection:
        """What it would know of another after hello."""
        return Connection(name=other.name, speaks=Speaks.HUB, hub=other.id, **more)

    async def put(self, connection: Connection) -> Connection:
        """Make a connection known."""
        await self.bus.store.write(lambda tx: self.bus.neighbours.put(tx, connection, self.clock.now()))
        return connection

    async def learn(self, other: "Side") -> None:
        """Know whom the other would tell of."""
        mine, theirs = self.bus.neighbours.require(other.name), other.bus.neighbours.require(self.name)
        rows = shapes.read_rows(shapes.plain(rows_for_hub(other.bus, theirs)), self.id)

        def unit(tx: Tx) -> None:
            self.bus.neighbours.learn(tx, mine, rows, self.clock.now())

        await self.bus.store.write(unit)

    async def serve(self, other: "Side", end: End) -> str:
        """Serve a line to another that has said hello; how it ended, in words."""
        return await serve(self, self.bus.neighbours.require(other.name), end)

    async def texts(self, agent: str) -> list[str | None]:
        """All that ever came to a mailbox, in the order in which it would be read."""
        return [envelope.text for envelope in await self.came(agent)]

    async def came(self, agent: str) -> list[Envelope]:
        """The same, whole."""
        return [parcel.envelope for parcel in await self.mailbox(agent, *State)]

    async def states(self, carrier: str) -> set[State]:
        """The states of all that goes, or went, by a connection."""

        def look(tx: Tx) -> set[State]:
            rows = tx._rows.deliveries.values()  # type: ignore[attr-defined]  # the memory store's
            return {row.state for row in rows if row.connection == carrier}

        return await self.bus.store.write(look)


async def serve(side: Side, connection: Connection, end: End) -> str:
    """Serve a line to a hub that has said hello under ``connection``; how it ended, in words."""
    link = HubLink(side.bus, connection)

    async def session(channel: Channel) -> None:
        await link.run(channel)

    try:
        await converse(side.bus, end, session, link.handle)
    except Trouble as trouble:
        return trouble.problem
    return ""


async def introduced(one: Side, two: Side, **more: Any) -> None:
    """Both know each other, and each other's agents."""
    await one.put(one.connection(two, **more))
    await two.put(two.connection(one))
    await one.learn(two)
    await two.learn(one)


@asynccontextmanager
async def running(*works: Awaitable[object]) -> AsyncIterator[list["asyncio.Task[object]"]]:
    """Run these while the block runs; what is left of them is cancelled, and has ended."""

    async def run(work: Awaitable[object]) -> object:
        return await work

    async with asyncio.TaskGroup() as tasks:
        begun = [tasks.create_task(run(work)) for work in works]
        await asyncio.sleep(0)  # what was not begun could not be ended either
        try:
            async with asyncio.timeout(SECONDS):
                yield begun
        finally:
            for task in begun:
                task.cancel()


@asynccontextmanager
async def linked(one: Side, two: Side, frames: int | None = None) -> AsyncIterator[Line]:
    """A link between two that know each other, while the block runs."""
    line = Line(frames)
    async with running(one.serve(two, line.ends[0]), two.serve(one, line.ends[1])):
        yield line


class Stranger:
    """The other side of a link, scripted: ``answers`` by method, each a value or an exception; ``asked`` is what came.

    A call that has no answer here is answered as a good hub would.
    """

    def __init__(self, end: End, **answers: object) -> None:
        self.answers = {name.replace("_", "."): answer for name, answer in answers.items()}
        self.asked: list[Request] = []
        self.channel = Channel(end, max_bytes=64 * 1024 * 1024, depth=32, handle=self._handle, heard=_unheard)

    async def run(self) -> None:
        with suppress(LineLost):
            await self.channel.run()

    async def call(self, method: str, **params: object) -> Any:
        return await self.channel.call(method, params, SECONDS)

    async def ask(self, method: str, **params: object) -> Any:
        """As ``call``; a refusal is what it gives, too."""
        try:
            return await self.call(method, **params)
        except Refused as refused:
            return refused

    def count(self, method: str) -> int:
        return sum(request.method == method for request in self.asked)

    def items(self) -> list[dict[str, Any]]:
        """The messages that were sent, as they came."""
        sent = (request.params["messages"] for request in self.asked if request.method == "hub.send")
        return [item for part in sent for item in _list(part)]

    async def _handle(self, request: Request) -> object:
        self.asked.append(request)
        answer = self.answers.get(request.method)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            answer = None
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            return answer(request)
        return good_answer(request) if answer is None else answer


def good_answer(request: Request) -> object:
    if request.method == "hub.send":
        return [{"stored": True} for _ in _list(request.params["messages"])]
    return {"known": True} if request.method == "hub.roster" else {"ok": True}


def _list(given: Any) -> Sequence[Any]:
    assert isinstance(given, list)
    return given


def _unheard(type: str, payload: dict[str, object]) -> None:
    """Hubs have no events."""
