"""Whoever sends thousands of small things at once has them read a few at a time, on either protocol; and costs nothing.

Here is what cannot be told apart from a busy machine from outside (`acceptance/test_under_attack.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from angelia.doors.http.protocol import HubProtocol, Patience
from angelia.doors.http.trickle import PAUSE_SECONDS
from angelia.doors.http.websocket import HubWebSocket

HANDSHAKE = (
    b"GET /api/ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
TEXT, MORE, PING = 0x01, 0x00, 0x89
MASK = bytes(4)


class Line(asyncio.Transport):
    """A transport whose other side reads, or does not."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.unread, self.reading, self.closing = b"", 0, True, False
        self.protocol: Any = None
        self.asked_at: list[float] = []  # what is unread, as each ping does

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        self.asked_at.append(asyncio.get_running_loop().time())
        return self.unread

    def get_protocol(self) -> Any:
        return self.protocol

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True


def config(app: Callable[..., Awaitable[None]]) -> uvicorn.Config:
    found = uvicorn.Config(app, http=HubProtocol, lifespan="off", interface="asgi3", log_config=None, access_log=False)
    found.load()
    return found


async def turn() -> None:
    await asyncio.sleep(0)


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await turn()


class Socket:
    """A WebSocket that was let in, and what was received on it."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.line = Line()
        self.protocol = HubWebSocket(config(self.serve), ServerState(), {})
        self.line.protocol = self.protocol
        self.protocol.connection_made(self.line)
        self.protocol.data_received(HANDSHAKE)

    async def serve(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[..., Awaitable[None]]
    ) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            self.received.append(message["text"])

    async def opened(self) -> "Socket":
        while b"101 Switching" not in self.line.written:
            await turn()
        self.line.written = b""
        return self

    def end(self) -> None:
        self.protocol.connection_lost(None)


@pytest.fixture
async def socket() -> Any:
    found = await Socket().opened()
    yield found
    found.end()
    await turn()
    await turn()


def frame(first: int, data: bytes) -> bytes:
    return bytes([first, 0x80 | len(data)]) + MASK + data


async def test_frames_by_the_thousand_leave_everybody_a_turn_and_are_not_read_ahead(socket: Socket) -> None:
    turns = 0
    socket.protocol.data_received(frame(TEXT, b"") + frame(MORE, b"x") * 10_000 + frame(MORE | 0x80, b"y"))
    assert not socket.line.reading
    while not socket.received:
        await turn()
        turns += 1
    assert socket.received == ["x" * 10_000 + "y"]
    assert turns > 20
    await until(lambda: socket.line.reading)


async def test_small_frames_by_the_thousand_leave_the_interpreter_to_everybody_else(socket: Socket) -> None:
    """Turns of the loop alone are not enough: a commit wants the interpreter a hundred times, in threads of its own."""
    begun, pieces = asyncio.get_running_loop().time(), 33
    socket.protocol.data_received(
        frame(TEXT, b"") + frame(MORE, b"x" * 100) * 640 + frame(MORE | 0x80, b"y"),
    )
    await until(lambda: socket.received and socket.line.reading)
    assert asyncio.get_running_loop().time() - begun > pieces * PAUSE_SECONDS


async def test_many_who_send_small_frames_have_one_pause_after_another() -> None:
    """Not all the same one: then there would be none."""
    many = [await Socket().opened() for _ in range(4)]
    for each in many:
        each.protocol.data_received(frame(PING, b"x" * 100) * 100)
        each.line.asked_at.clear()
    for each in many:
        await until(lambda line=each.line: line.reading)  # type: ignore[misc]
        each.end()
    asked = sorted((at, number) for number, each in enumerate(many) for at in each.line.asked_at)
    between = [after - before for (before, one), (after, other) in pairwise(asked) if one != other]
    assert len(between) > 4
    assert min(between) > PAUSE_SECONDS


async def test_nobody_waits_for_the_small_frames_of_those_who_are_gone(socket: Socket) -> None:
    gone = [await Socket().opened() for _ in range(100)]
    for each in gone:
        each.protocol.data_received(frame(PING, b"") * 1000)
        assert not each.line.reading
        each.end()
    begun = asyncio.get_running_loop().time()
    socket.protocol.data_received(frame(PING, b"") * 300)
    assert not socket.line.reading
    await until(lambda: socket.line.reading)
    assert asyncio.get_running_loop().time() - begun < len(gone) * PAUSE_SECONDS


async def test_frames_of_some_letters_are_counted_over_several_turns(socket: Socket) -> None:
    """A piece of 2048 bytes has fewer of them than may come in a millisecond."""
    begun, data = asyncio.get_running_loop().time(), b"x" * 125
    socket.protocol.data_received(frame(PING, data) * 1000)
    await until(lambda: socket.line.reading)
    assert asyncio.get_running_loop().time() - begun > 1000 / 16 / 4 * PAUSE_SECONDS  # most after two pieces


async def test_large_frames_are_read_without_a_pause(socket: Socket) -> None:
    """As a hub's link pours them: a turn of the loop for each piece, and no other; and so are some small ones."""
    data, turns = b"x" * 60_000, 0
    for _ in range(16):
        socket.protocol.data_received(b"\x81\xfe" + len(data).to_bytes(2, "big") + MASK + data)
    while len(socket.received) < 16:
        await turn()
        turns += 1
    assert turns < 16 * len(data) / 2048 + 100
    assert socket.line.reading
    later = asyncio.Event()  # the next millisecond is counted anew
    asyncio.get_running_loop().call_later(PAUSE_SECONDS, later.set)
    await later.wait()
    socket.protocol.data_received(frame(PING, b"one") * 16)
    assert socket.line.reading


async def test_what_comes_while_there_is_more_to_parse_stays_in_order(socket: Socket) -> None:
    for number in range(500):
        socket.protocol.data_received(frame(TEXT | 0x80, b"%d" % number) * 3)
    while len(socket.received) < 1500:
        await turn()
    assert socket.received == [str(number // 3) for number in range(1500)]


async def test_a_message_in_many_frames_is_kept_as_its_bytes_alone(socket: Socket) -> None:
    socket.protocol.data_received(frame(TEXT, b"a"))
    for _ in range(100):
        socket.protocol.data_received(frame(MORE, b"x") + frame(MORE, b""))
    await until(lambda: socket.line.reading)
    assert len(socket.protocol.frames) == 1
    assert bytes(socket.protocol.frames[0]) == b"a" + b"x" * 100


async def test_pings_of_a_peer_that_does_not_read_are_not_answered(socket: Socket) -> None:
    socket.protocol.data_received(frame(PING, b"one"))
    assert b"one" in socket.line.written
    socket.line.unread = 1
    socket.line.written = b""
    socket.protocol.data_received(frame(PING, b"two") * 100)
    await until(lambda: socket.line.reading)
    assert socket.line.written == b""
    socket.line.unread = 0
    socket.protocol.data_received(frame(PING, b"three"))
    assert b"two" not in socket.line.written
    assert b"three" in socket.line.written


async def test_chunks_of_a_byte_leave_everybody_a_turn_and_none_is_lost() -> None:
    """10,000 chunks in one read."""
    bodies: list[bytes] = []

    async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[..., Awaitable[None]]) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        bodies.append(body + message.get("body", b""))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    line, turns = Line(), 0
    protocol = HubProtocol(config(app), ServerState(), Patience(), by_socket=False)
    line.protocol = protocol
    protocol.connection_made(line)
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    protocol.data_received(head + b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n")
    assert not line.reading
    while not bodies:
        await turn()
        turns += 1
    assert bodies == [b"x" * 10_000]
    assert turns > 10
    while not line.reading:
        await turn()
    protocol.connection_lost(None)


async def test_nothing_of_a_connection_that_was_reset_is_kept() -> None:
    """Not even until it would have been closed for saying nothing."""

    async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[..., Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    line = Line()
    protocol = HubProtocol(config(app), ServerState(), Patience(), by_socket=False)
    line.protocol = protocol
    protocol.connection_made(line)
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    while protocol.timeout_keep_alive_task is None:
        await turn()
    protocol.connection_lost(ConnectionResetError())
    assert protocol.timeout_keep_alive_task is None
