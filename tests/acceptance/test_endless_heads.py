"""Heads of requests that do not end, at every door that takes a request: each is cut in time, and nobody else waits.

What must stay true: ordinary requests are made beside it at the same door, and what is asserted of the time they take
is coarse, as the machines of tests are. Bodies, frames and floods stand in `test_under_attack.py`; a line that does not
end of the gateway over standard input, in `test_gateway_stdio.py`.
"""

import asyncio
import itertools
import socket
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pytest

from angelia.doors.http.protocol import Patience
from tests.acceptance.hub import MARGIN, Hub, eventually, hub
from tests.rigs.wire import Incoming

EACH = 5  # connections of each kind at each door
EVERY_SECONDS = 0.5  # a byte or a line comes so often: twenty of them before the head is cut
WAIT_SECONDS = 0.5  # that an ordinary request may take meanwhile: calm it takes some ms
LONGEST_SECONDS = Patience().head_seconds * MARGIN
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
WHOLE = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
# What a connection says first, and then again and again.
HEADS = {
    "a byte at a time": ("GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", "x"),
    "lines without end": ("GET /health HTTP/1.1\r\nHost: localhost\r\n", "X: y\r\n"),
    "the first line": ("GET /", "x"),
    "before the first line": ("", "\r\n"),
    "behind a request that was answered": (WHOLE + "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX: ", "x"),
    "of a gateway's socket": (f"GET /api/ws HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}X: ", "x"),
    "of another hub's": (f"GET /api/hub HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}", "X: y\r\n"),
}
# The same before TLS has begun: nothing, and a greeting of 512 bytes that never gets to its end.
GREETINGS = {"nothing of a greeting": ("", ""), "a greeting": ("\x16\x03\x01\x02\x00", "\x01")}
QUIET = {"before the first line", *GREETINGS}  # nothing was asked, so that nothing is answered
DOORS = ("IPv4", "IPv6", "Unix socket", "TLS")
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Open = Callable[[], Awaitable[Ends]]


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    with hub() as started:
        yield started


def _answers(at: Hub) -> bool:
    with suppress(OSError):  # its socket is not there yet, or there and not listened to
        return at.get("/health", admin=True).status == 200
    return False


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, ssl.SSLContext] | None]:
    """A hub that speaks TLS, and who trusts its certificate; None where none can be made."""
    folder = tmp_path_factory.mktemp("tls")
    made = subprocess.run(
        ["/bin/sh", "-c", "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
         "-addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem"],
        cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        yield None
        return
    found = Hub(
        env={"ANGELIA_TLS_CERTIFICATE": str(folder / "cert.pem"), "ANGELIA_TLS_KEY": str(folder / "key.pem")},
        args=("--host", "0.0.0.0"),
    )
    try:
        found.launch()
        eventually(lambda: _answers(found), 30)
        yield found, ssl.create_default_context(cafile=folder / "cert.pem")
    finally:
        found.__exit__()


@pytest.fixture(scope="module")
def doors(at: Hub, secure: tuple[Hub, ssl.SSLContext] | None) -> dict[str, Open]:
    """How each is opened, as far as this machine has them."""
    found: dict[str, Open] = {
        "IPv4": partial(asyncio.open_connection, "127.0.0.1", at.port),
        "Unix socket": partial(asyncio.open_unix_connection, at.socket_path),
    }
    with suppress(OSError), socket.create_connection(("::1", at.port), 5):
        found["IPv6"] = partial(asyncio.open_connection, "::1", at.port)
    if secure is not None:
        port, trust = secure[0].port, secure[1]
        found["TLS"] = partial(asyncio.open_connection, "127.0.0.1", port, ssl=trust, server_hostname="localhost")
    return found


async def end(writer: asyncio.StreamWriter) -> None:
    """Close it without a goodbye, and wait until it is."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


@dataclass
class Dribble:
    """A connection whose head does not end: the statuses it was answered, and how many seconds it lasted."""

    statuses: tuple[int, ...] = ()
    seconds: float = 0.0

    async def run(self, open_door: Open, first: str, piece: str) -> None:
        reader, writer = await open_door()
        begun, came = time.monotonic(), b""
        writer.write(first.encode())
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._send(writer, piece.encode()))
            with suppress(OSError):
                while data := await reader.read(65536):
                    came += data
            sending.cancel()
        self.seconds = time.monotonic() - begun
        self.statuses = tuple(int(part[:3]) for part in came.decode("latin-1").split("HTTP/1.1 ")[1:])
        await end(writer)

    async def _send(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        with suppress(OSError):
            while True:
                await asyncio.sleep(EVERY_SECONDS)
                writer.write(piece)
                await writer.drain()


async def longest(open_door: Open, over: asyncio.Event) -> float:
    """Ordinary requests at a door, on new connections, until it is over: the longest that one took."""
    slowest = 0.0
    while not over.is_set():
        begun = time.monotonic()
        reader, writer = await open_door()
        writer.write(WHOLE.encode())
        incoming = Incoming()
        while not incoming.complete:
            data = await reader.read(65536)
            assert data, "an ordinary request was cut off"
            incoming.feed(data)
        assert incoming.status == 200, incoming.status
        await end(writer)
        slowest = max(slowest, time.monotonic() - begun)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await over.wait()
    return slowest


@pytest.mark.timeout(120)
async def test_heads_that_come_slowly_and_do_not_end_are_cut_in_time_at_every_door(
    doors: dict[str, Open], secure: tuple[Hub, ssl.SSLContext] | None
) -> None:
    kinds: list[tuple[str, str, Open]] = [(door, head, doors[door]) for door, head in itertools.product(doors, HEADS)]
    if secure is not None:
        plain = partial(asyncio.open_connection, "127.0.0.1", secure[0].port)
        kinds += [("before TLS", greeting, plain) for greeting in GREETINGS]
    lines = {(door, head): [Dribble() for _ in range(EACH)] for door, head, _ in kinds}
    over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        beside = {door: tasks.create_task(longest(open_door, over)) for door, open_door in doors.items()}
        running = [
            tasks.create_task(each.run(open_door, *(HEADS | GREETINGS)[head]))
            for door, head, open_door in kinds
            for each in lines[door, head]
        ]
        await asyncio.wait(running, timeout=LONGEST_SECONDS)
        over.set()
        left = [kind for kind, dribbles in lines.items() if not all(each.seconds for each in dribbles)]
        for each in running:
            each.cancel()
    assert left == [], "these are still open"
    for (door, head), dribbles in lines.items():
        told = () if head in QUIET else (408,)
        answered = (200, *told) if head.startswith("behind") else told
        assert {each.statuses for each in dribbles} == {answered}, (door, head)
    for door, slow in beside.items():
        assert slow.result() < WAIT_SECONDS * MARGIN, (door, slow.result())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("door", DOORS)
async def test_a_head_that_comes_fast_and_does_not_end_is_refused_at_its_bound(
    doors: dict[str, Open], door: str, head: str
) -> None:
    """Ten times what a head may have, as fast as the hub takes it; nothing is read before all of it is sent."""
    if door not in doors:
        pytest.skip(f"this machine has no {door}")
    first, piece = HEADS[head]
    more = (piece * (65536 // len(piece))).encode()
    reader, writer = await doors[door]()
    writer.write(first.encode())
    came = b""
    async with asyncio.timeout(LONGEST_SECONDS):
        with suppress(OSError):
            for _ in range(10 * Patience().head_bytes // len(more)):
                writer.write(more)
                await writer.drain()
        with suppress(OSError):
            while data := await reader.read(65536):
                came += data
    await end(writer)
    # Cut off while it still sends, it may lose the answer, and with it that to what was asked before.
    last = came.decode().rpartition("HTTP/1.1 ")[2][:3]
    assert last in ("431", "400", "", "200" if head.startswith("behind") else ""), (door, head, came)
