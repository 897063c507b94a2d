"""Whether the other side of a WebSocket that we opened lives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import Frame, Opcode

from angelia.links import websocket
from angelia.links.port import LineLost
from angelia.links.websocket import WebSocketWire, connect
from tests.links.lines import LOOPS, MOST, SECONDS, until

LOOK, QUIET, ANSWER = 0.02, 0.3, 0.3
MARGIN = 3

pytestmark = pytest.mark.parametrize("anyio_backend", LOOPS)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "LOOK_SECONDS", LOOK)
    monkeypatch.setattr(websocket, "PING_SECONDS", QUIET)
    monkeypatch.setattr(websocket, "LATE_SECONDS", 0.1)
    monkeypatch.setattr(websocket, "ANSWER_SECONDS", ANSWER)


class Far(ServerConnection):
    """Their end. ``pings``: how many came from ours."""

    pings = 0

    def process_event(self, event: Any) -> None:
        self.pings += isinstance(event, Frame) and event.opcode is Opcode.PING
        super().process_event(event)


@asynccontextmanager
async def a_line() -> AsyncIterator[tuple[WebSocketWire, Far]]:
    met: asyncio.Future[Far] = asyncio.get_running_loop().create_future()

    async def meet(theirs: ServerConnection) -> None:
        assert isinstance(theirs, Far)
        met.set_result(theirs)
        await theirs.wait_closed()

    async with serve(meet, "127.0.0.1", 0, create_connection=Far, ping_interval=None, close_timeout=0.1) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        wire = await connect(f"ws://127.0.0.1:{port}/", max_bytes=MOST)
        try:
            yield wire, await met
        finally:
            await wire.close()


async def test_who_asks_us_is_not_asked_and_who_does_not_is() -> None:
    async with asyncio.timeout(SECONDS), a_line() as (_, theirs):
        for _ in range(10):
            await (await theirs.ping())
            await asyncio.sleep(QUIET / 3)
        assert theirs.pings == 0
        await until(lambda: theirs.pings >= 2)  # and its answers are heard, so that it goes on


async def test_whoever_answers_no_ping_is_gone() -> None:
    async with asyncio.timeout(SECONDS), a_line() as (wire, theirs):
        begun = asyncio.get_running_loop().time()
        theirs.transport.pause_reading()
        with pytest.raises(LineLost, match="a ping was not answered"):
            await wire.receive()
        assert asyncio.get_running_loop().time() - begun < (QUIET + 0.1 + LOOK + ANSWER) * MARGIN + 1
        theirs.transport.abort()
