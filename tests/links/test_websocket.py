"""Whether the other side of a WebSocket that we opened lives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode

from angelia.links import websocket
from angelia.links.port import LineLost
from angelia.links.websocket import WebSocketWire
from tests.links.lines import LOOPS, SECONDS, a_line, until

LOOK, QUIET, ANSWER = 0.02, 0.3, 0.3
MARGIN = 3

pytestmark = pytest.mark.parametrize("anyio_backend", LOOPS)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "BEAT_SECONDS", LOOK)
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
async def watched() -> AsyncIterator[tuple[WebSocketWire, Far]]:
    """A line whose other end counts, and asks nothing by itself."""
    async with a_line(Far, ping_interval=None, close_timeout=0.1) as (wire, theirs):
        assert isinstance(theirs, Far)
        yield wire, theirs


async def test_who_asks_us_is_not_asked_and_who_does_not_is() -> None:
    async with asyncio.timeout(SECONDS), watched() as (_, theirs):
        for _ in range(10):
            await (await theirs.ping())
            await asyncio.sleep(QUIET / 3)
        assert theirs.pings == 0
        await until(lambda: theirs.pings >= 2)  # and its answers are heard, so that it goes on


async def test_whoever_answers_no_ping_is_gone() -> None:
    async with asyncio.timeout(SECONDS), watched() as (wire, theirs):
        begun = asyncio.get_running_loop().time()
        theirs.transport.pause_reading()
        with pytest.raises(LineLost, match="a ping was not answered"):
            await wire.receive()
        assert asyncio.get_running_loop().time() - begun < (QUIET + 0.1 + LOOK + ANSWER) * MARGIN + 1
        theirs.transport.abort()
