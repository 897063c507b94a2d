"""``AsyncClient``: what ``Client`` is, to be awaited. ``angelia.AsyncClient`` is this.

    async with angelia.AsyncClient("http://127.0.0.1:18900", name="scout") as hub:
        await hub.send("hermes", "hello")
        async for message in hub.messages():
            print(message["text"])

What must stay true: nothing is decided here; what may happen to a call, a stream, a claim or a kept message stands in
``core``. Names, arguments, results and errors are those of ``Client``. Calls of several tasks at once are made over
several connections, up to a bound; each task has its own order, and none is promised between them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import wraps
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from angelia.client.aio.claims import AsyncClaim, Work
from angelia.client.aio.connection import Connection
from angelia.client.aio.plans import carried_out
from angelia.client.aio.stream import AsyncStream
from angelia.client.core.following import Following
from angelia.client.core.posting import ANSWER_SECONDS, PATIENCE_SECONDS, Post
from angelia.client.core.reading import Claims, Reader
from angelia.client.core.steps import Disk, Exchange, Pause, Step
from angelia.client.core.verbs import Verbs
from angelia.client.errors import LostHub
from angelia.client.find import DEFAULT_URL, Address, read
from angelia.client.outbox import Outbox

if TYPE_CHECKING:
    from angelia.client.core.steps import Plan

MOST_CONNECTIONS = 100  # of one client at once; what is more waits for one to be free
IDLE_CONNECTIONS = 8

P = ParamSpec("P")
T = TypeVar("T")


def _call(
    plan: Callable[Concatenate[Verbs, P], Plan[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A call out of its plan."""

    @wraps(plan)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await carried_out(plan(self._reader.verbs, *args, **kwargs), self._carry_out)

    return call


def _stream(
    plan: Callable[Concatenate[Reader, P], Following[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncStream[T]]:
    """A stream out of its plan."""

    @wraps(plan)
    def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncStream[T]:
        return AsyncStream(plan(self._reader, *args, **kwargs), self._connect(), self._carry_out)

    return call


def _claims(
    plan: Callable[Concatenate[Reader, P], Claims],
) -> Callable[Concatenate[AsyncClient, P], AsyncGenerator[AsyncClaim, None]]:
    """Claims out of their plan."""

    @wraps(plan)
    def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[AsyncClaim, None]:
        return Work(self._reader, self._carry_out).claims(plan(self._reader, *args, **kwargs))

    return call


class AsyncClient:
    """One caller at one hub, for any number of tasks of one event loop."""

    def __init__(
        self,
        hub: str | Address = DEFAULT_URL,
        *,
        name: str | None = None,
        token: str | None = None,
        outbox: str | PathLike[str] | None = None,
        answer_seconds: float = ANSWER_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        pause: Callable[[float], Coroutine[Any, Any, object]] = asyncio.sleep,
    ) -> None:
        """In: as ``Client``; ``pause`` is awaited."""
        self.address = read(hub) if isinstance(hub, str) else hub
        self._token = token or ""
        self._pause = pause
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._idle: list[Connection] = []
        post = Post(
            str(self.address),
            name,
            answer_seconds=answer_seconds,
            patience_seconds=patience_seconds,
            now=time.monotonic,
            wall=time.time,
            outbox=None if outbox is None else Outbox(outbox),
        )
        self._reader = Reader(Verbs(post))

    @property
    def name(self) -> str | None:
        """Who calls."""
        return self._reader.verbs.post.name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # the loop ends what was let go of on its next turn

    send = _call(Verbs.send)
    reply = _call(Verbs.reply)
    ask = _call(Verbs.ask)
    message_agent = _call(Verbs.message_agent)
    flush = _call(Verbs.flush)
    inbox = _call(Verbs.inbox)
    claim = _call(Verbs.claim)
    ack = _call(Verbs.ack)
    nack = _call(Verbs.nack)
    renew = _call(Verbs.renew)
    message = _call(Verbs.message)
    cancel = _call(Verbs.cancel)
    threads = _call(Verbs.threads)
    thread = _call(Verbs.thread)
    search = _call(Verbs.search)
    agents = _call(Verbs.agents)
    agent = _call(Verbs.agent)
    briefing = _call(Verbs.briefing)
    put_agent = _call(Verbs.put_agent)
    check_agent = _call(Verbs.check_agent)
    turns = _call(Verbs.turns)
    stop_turn = _call(Verbs.stop_turn)
    remove_agent = _call(Verbs.remove_agent)
    new_token = _call(Verbs.new_token)
    dead_letters = _call(Verbs.dead_letters)
    requeue = _call(Verbs.requeue)
    drop = _call(Verbs.drop)
    connections = _call(Verbs.connections)
    connect = _call(Verbs.connect)
    disconnect = _call(Verbs.disconnect)
    new_desktop_token = _call(Verbs.new_desktop_token)
    remove_desktop = _call(Verbs.remove_desktop)
    pairing_code = _call(Verbs.pairing_code)
    status = _call(Verbs.status)
    health = _call(Verbs.health)
    back_up = _call(Verbs.back_up)
    down = _call(Verbs.down)

    follow = _stream(Reader.follow)
    stream = _stream(Reader.stream)
    messages = _stream(Reader.messages)
    claims = _claims(Reader.claims)
    events = _stream(Reader.events)

    def _connect(self) -> Connection:
        return Connection(self.address, self._token)

    async def _carry_out(self, step: Step) -> object:
        if isinstance(step, Exchange):
            return await self._exchange(step)
        if isinstance(step, Disk):
            return await asyncio.to_thread(step.work)
        assert isinstance(step, Pause), step
        return await self._pause(step.seconds)

    async def _exchange(self, step: Exchange) -> tuple[int, bytes]:
        async with self._room:
            connection = self._connect()
            while self._idle:
                kept = self._idle.pop()
                if kept.is_open:
                    connection = kept
                    break
            try:
                return await connection.exchange(step)
            except LostHub as error:
                if error.kept:  # so are the others, most likely: the next try takes a fresh one
                    await self.close()
                raise
            finally:
                if connection.is_open and len(self._idle) < IDLE_CONNECTIONS:
                    self._idle.append(connection)
                else:
                    connection.close()
