"""Lines for tests of links: two ends of a real WebSocket, and what is done with them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection, serve

from angelia.links.channel import Channel
from angelia.links.port import LineLost
from angelia.links.websocket import WebSocketWire, connect

MOST = 100_000  # bytes of a frame
SECONDS = 10.0  # no wait of these tests needs as much
# The standard library's, and the hub's own.
LOOPS: list[tuple[str, dict[str, bool]]] = [("asyncio", {}), ("asyncio", {"use_uvloop": True})]


async def until(look: Callable[[], object]) -> None:
    """Look again and again, until it is true; of what nobody is told."""
    async with asyncio.timeout(SECONDS):
        while not look():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.005)


@asynccontextmanager
async def a_line(
    end: type[ServerConnection] = ServerConnection, **options: Any
) -> AsyncIterator[tuple[WebSocketWire, Connection]]:
    """Our end as a wire, theirs as the library has it, or as ``end`` makes of that; ``options`` are the library's."""
    options = {"compression": None, "max_size": None, "close_timeout": 1, **options}
    met: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()

    async def meet(theirs: ServerConnection) -> None:
        met.set_result(theirs)
        await theirs.wait_closed()

    async with serve(meet, "127.0.0.1", 0, create_connection=end, **options) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        wire = await connect(f"ws://127.0.0.1:{port}/", max_bytes=MOST)
        try:
            yield wire, await met
        finally:
            await wire.close()


@asynccontextmanager
async def at_work(*channels: Channel) -> AsyncIterator[None]:
    """Channels that read while the block runs."""

    async def read(channel: Channel) -> None:
        with suppress(LineLost):
            await channel.run()

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(read(channel)) for channel in channels]
        try:
            async with asyncio.timeout(SECONDS):
                yield
        finally:
            for task in running:
                task.cancel()
