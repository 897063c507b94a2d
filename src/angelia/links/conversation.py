"""A channel over a wire for as long as a session lasts, and the ways in which that ends.

What must stay true: when this has ended the wire is closed and nothing of the session runs any more. Every end is
either quiet (the session was over) or a ``Trouble`` that says what happened.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from angelia.bus.core import Bus
from angelia.links.channel import Channel
from angelia.links.port import Kind, LineLost, Trouble, Wire
from angelia.model.errors import AngeliaError
from angelia.protocol.jsonrpc import Request

E = TypeVar("E", bound=BaseException)
Session = Callable[[Channel], Awaitable[None]]
Handle = Callable[[Request], Awaitable[object]]


async def converse(bus: Bus, wire: Wire, session: Session, handle: Handle) -> None:
    """Run ``session``; ``handle`` answers what the other side calls. Raises ``Trouble``."""
    limits = bus.limits
    channel = Channel(wire, max_bytes=limits.frame_bytes, depth=limits.body_depth, handle=handle, heard=_unheard)
    trouble: Trouble | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(channel.run())
            await session(channel)
            reading.cancel()
    except* Trouble as group:
        trouble = first(group, Trouble)
    except* LineLost as group:
        how = str(first(group, LineLost)).rstrip(".")
        trouble = Trouble(Kind.UNREACHABLE, f"The line ended: {how}.", "It is dialled by itself.")
    except* AngeliaError as group:
        problem = f"This hub could not serve it: {first(group, AngeliaError)}"
        trouble = Trouble(Kind.UNREACHABLE, problem, "It is tried again by itself.")
    finally:
        await wire.close()
    if trouble is not None:
        raise trouble


def _unheard(type: str, payload: dict[str, object]) -> None:
    """Hubs have no events for each other."""


def first(group: BaseExceptionGroup[BaseException], kind: type[E]) -> E:
    """One of the errors of a group."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            return first(error, kind)
        if isinstance(error, kind):
            return error
    raise AssertionError("a group holds what it was caught for")
