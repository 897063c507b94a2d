"""A stream, read by the task that asks for the next of it: the asyncio driver of ``core/following.py``.

What must stay true: nothing is decided here. The stream has a connection of its own. ``close``, from any task, ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Generic, Self, TypeVar

from angelia.client.aio.connection import Connection
from angelia.client.aio.plans import CarryOut, handed_out
from angelia.client.core import steps
from angelia.client.core.following import Following
from angelia.client.errors import ClientError

T = TypeVar("T")


class AsyncStream(Generic[T]):
    """What one path has to tell, for ever. Iterate over it, in an ``async with`` block, which ends it."""

    def __init__(self, following: Following[T], connection: Connection, carry_out: CarryOut) -> None:
        """In: the plan; a connection of its own; and what carries out the steps that are not the stream's."""
        self._following = following
        self._connection = connection
        self._closed = asyncio.Event()
        self._read = _read(following, connection, self._closed, carry_out)

    @property
    def last_event_id(self) -> str:
        """The id of the last event that was handed out; it may be set before the first is asked for."""
        return self._following.last_event_id

    @last_event_id.setter
    def last_event_id(self, value: str) -> None:
        self._following.last_event_id = value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        item: T = await anext(self._read)
        return item

    async def close(self) -> None:
        """End the stream: a task that waits for the next event sees the end of the iteration."""
        self._closed.set()
        self._connection.close()
        try:
            await self._read.aclose()
        except RuntimeError:
            return  # another task is in it, and has just been told


class _Closed(Exception):
    """Nobody wants any more of it."""


async def _read(
    following: Following[T], connection: Connection, closed: asyncio.Event, carry_out: CarryOut
) -> AsyncGenerator[Any, None]:
    async def of_the_stream(step: steps.Step) -> object:
        if isinstance(step, steps.Open):
            return await connection.open(step.path, step.headers, step.seconds)
        if isinstance(step, steps.Read):
            return await connection.read()
        if isinstance(step, steps.Shut):
            connection.close()
            return None
        return await (_closed_within(closed, step.seconds) if isinstance(step, steps.Pause) else carry_out(step))

    async def carry(step: steps.Step) -> object:
        if not closed.is_set():
            try:
                return await of_the_stream(step)
            except ClientError:
                if not closed.is_set():  # else it broke because nobody wants it
                    raise
        raise _Closed

    items = handed_out(steps.Course(following.run()), carry)
    try:
        async for item in items:
            yield item
    except _Closed:
        return
    finally:
        connection.close()
        await items.aclose()


async def _closed_within(closed: asyncio.Event, seconds: float) -> object:
    try:
        async with asyncio.timeout(seconds):
            return await closed.wait()
    except TimeoutError:
        return None
