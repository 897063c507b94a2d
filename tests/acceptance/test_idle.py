"""An idle hub sleeps: what it does by time alone it does at a few moments that all of it shares."""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
import uvloop
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.frames import Frame, Opcode

from angelia.bus.beat import PING_SECONDS
from angelia.doors.http import websocket
from angelia.doors.http.listen import listen_tcp
from angelia.doors.http.protocol import Patience
from angelia.doors.http.server import HubServer
from angelia.doors.http.websocket import HubWebSocket
from tests.acceptance.hub import MARGIN, Hub, hub
from tests.acceptance.linked import connect, hubs

BEAT_SECONDS = 5.0
BEATS = 2
STREAMS = 100


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": uvloop.new_event_loop}


def wake_ups(at: Hub) -> int:
    """How often any of its threads went to sleep until now, and so woke."""
    count = 0
    for thread in Path(f"/proc/{at.pid}/task").iterdir():
        lines = (thread / "status").read_text().splitlines()
        count += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return count


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts wake-ups in /proc")
def test_a_hub_on_which_nothing_happens_wakes_once_in_five_seconds() -> None:
    """Its streams have been opened one after another, so that each has a time of its own for its keep-alive."""
    with hub() as at, ExitStack() as open_streams:
        for number in range(STREAMS):
            line = open_streams.enter_context(socket.create_connection(("127.0.0.1", at.port)))
            line.sendall(f"GET /subscribe?agent=idle{number} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            time.sleep(0.02)
        time.sleep(BEAT_SECONDS)  # what they brought with them is done by then
        before = wake_ups(at)
        time.sleep(BEATS * BEAT_SECONDS)
        assert wake_ups(at) - before <= (BEATS + 1) * MARGIN
        at.send("idle7", "awake", "sender")
        assert at.get("/status").json["streams"] == STREAMS


def _seldom(idle: list[Hub]) -> bool:
    """Whether each wakes at its own beat alone, between two at which pings and looks are due."""
    time.sleep((BEAT_SECONDS * 2.2 - time.monotonic()) % PING_SECONDS)
    before = [wake_ups(at) for at in idle]
    time.sleep(BEAT_SECONDS * 3.4)
    return all(wake_ups(at) - was <= 2 for at, was in zip(idle, before, strict=True))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts wake-ups in /proc")
def test_a_hub_without_readers_wakes_once_in_ten_seconds_however_many_links_it_has() -> None:
    """Both the one that dialled and the one that was dialled; pings and looks are at every third of these moments."""
    with hubs("near", "far") as (near, far):
        connect(near, "far", f"ws://127.0.0.1:{far.port}")
        assert any(_seldom([near, far]) for _ in range(3))  # a machine has troubles of its own that wake a process


def test_what_comes_between_two_beats_waits_for_none() -> None:
    with hub() as at:
        at.claim("ann")
        begun = time.monotonic()
        expires = at.send("ann", "soon", "bob", ttl_seconds=1)
        while at.state(expires["id"]) != "failed":
            assert time.monotonic() - begun < 1.0 * MARGIN
            time.sleep(0.05)
        assert time.monotonic() - begun >= 1.0


class Near(ClientConnection):
    """Our end of a WebSocket, which notes when it is pinged."""

    pinged: tuple[float, ...] = ()

    def process_event(self, event: Any) -> None:
        if isinstance(event, Frame) and event.opcode is Opcode.PING:
            self.pinged += (self.loop.time(),)
        super().process_event(event)


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """A server that only listens on WebSockets, and whose answers to requests are empty; its port."""

    async def listen(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    tcp = listen_tcp(("127.0.0.1",), 0, 10)
    server = HubServer(listen, tcp, [], patience=Patience(), most_connections=10, websockets=HubWebSocket)
    await server.start()
    try:
        yield tcp[0].getsockname()[1]
    finally:
        await server.stop(1)


async def test_all_web_sockets_are_pinged_at_the_same_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "PING_SECONDS", 1.0)
    async with serving() as port, AsyncExitStack() as open_lines:
        lines: list[Near] = []
        for _ in range(4):
            made = open_socket(f"ws://127.0.0.1:{port}/", create_connection=Near, ping_interval=None, proxy=None)
            line = await open_lines.enter_async_context(made)
            assert isinstance(line, Near)
            lines.append(line)
            await asyncio.sleep(0.15)  # so that their own times would lie apart
        async with asyncio.timeout(4 * MARGIN):
            while min(len(line.pinged) for line in lines) < 3:  # noqa: ASYNC110 - it looks from outside
                await asyncio.sleep(0.05)
        for beat in range(-2, 0):
            moments = [line.pinged[beat] for line in lines]
            assert max(moments) - min(moments) < 0.1, moments
        assert 0.9 < lines[0].pinged[-1] - lines[0].pinged[-2] < 1.0 * MARGIN


async def test_the_date_of_an_answer_is_right_however_long_nothing_was_asked() -> None:
    async def asked(port: int) -> float:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = (await reader.read()).decode()
        writer.close()
        [date] = [line[6:] for line in answer.split("\r\n") if line.lower().startswith("date: ")]
        return parsedate_to_datetime(date).timestamp()

    async with serving() as port:
        for _ in range(2):
            before = int(time.time())
            assert before <= await asked(port) <= time.time()
            await asyncio.sleep(1.1)
