"""A wire over a WebSocket that this hub opens.

What must stay true: frames are text, whole, and sent as they are, uncompressed. Whoever was dialled pings; only where
nothing is heard from there for longer than that takes, it is pinged from here, and is gone when it does not answer,
whatever its machine says. No redirection is followed, no proxy asked, and nothing of the address is logged: a
credential may stand in it.
"""

import asyncio
import logging
import ssl
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as _library_connect
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from angelia.bus.beat import ANSWER_SECONDS, BEAT_SECONDS, PING_SECONDS, to_beat
from angelia.links.lively import make_lively
from angelia.links.port import LineLost
from angelia.links.process import Tunnel

LATE_SECONDS = 1.0  # that a ping may be late
CLOSE_SECONDS = 1.0  # for the other side to say goodbye; whoever is frozen does not
FRAMES = 4  # read ahead of who takes them: of the largest, as much as a mailbox may weigh
_quiet = logging.getLogger("angelia.links.websocket")
_quiet.setLevel(logging.ERROR)  # the library logs requests, with their credentials, at a lower one


class Closed(LineLost):
    """The end of a WebSocket. ``code``: what the other side closed it with, where it did."""

    def __init__(self, text: str, code: int | None) -> None:
        """Takes the words and the code."""
        super().__init__(text)
        self.code = code


class WebSocketWire:
    """Fills ``Wire``."""

    def __init__(self, line: Connection, tunnel: Tunnel | None = None) -> None:
        """Takes an open connection, and the program that it runs through."""
        self._line, self._tunnel = line, tunnel

    async def send(self, frame: bytes) -> None:
        """Write a frame."""
        try:
            await self._line.send(frame, text=True)
        except ConnectionClosed as closed:
            raise _closed(closed) from None

    async def receive(self) -> bytes:
        """The next frame."""
        try:
            return await self._line.recv(decode=False)
        except ConnectionClosed as closed:
            raise _closed(closed) from None

    async def close(self) -> None:
        """Say goodbye, and end it."""
        try:
            await self._line.close()
        finally:
            if self._tunnel is not None:
                await self._tunnel.close()


class _Line(ClientConnection):
    """Pings where it hears nothing, not every so often: of two that ping each other one is woken for nothing."""

    _heard_at = 0.0

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)

    async def keepalive(self) -> None:
        """Until the connection ends, which cancels this. A peer that hangs is noticed within 61 s."""
        while True:
            await asyncio.sleep(to_beat(self.loop.time(), BEAT_SECONDS))
            if self.loop.time() - self._heard_at < PING_SECONDS + LATE_SECONDS:
                continue
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await (await self.ping())
            except TimeoutError:
                async with self.send_context():
                    self.protocol.fail(CloseCode.INTERNAL_ERROR, "a ping was not answered")


class _Connect(_library_connect):
    """As the library does it, but for redirections: whoever is sent elsewhere has not arrived."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def connect(
    uri: str, *, max_bytes: int, tls: ssl.SSLContext | None = None, tunnel: Tunnel | None = None
) -> WebSocketWire:
    """Open one; through ``tunnel``, or over a TCP connection of its own.

    Raises what the system and the library raise: ``OSError``, ``InvalidHandshake``. Who awaits it bounds its time.
    """
    way: dict[str, Any] = {} if tunnel is None else {"unix": True, "sock": tunnel.socket}
    line = await _Connect(
        uri, **way, ssl=tls, max_size=max_bytes, max_queue=FRAMES, compression=None, proxy=None, open_timeout=None,
        create_connection=_Line, close_timeout=CLOSE_SECONDS, logger=_quiet,
    )  # fmt: skip
    make_lively(line.transport.get_extra_info("socket"))
    return WebSocketWire(line, tunnel)


def _closed(closed: ConnectionClosed) -> Closed:
    """What is known of an end."""
    if closed.rcvd is not None and not (closed.sent is not None and closed.rcvd_then_sent is False):
        said = f", saying '{closed.rcvd.reason[:200]}'" if closed.rcvd.reason else ""
        return Closed(f"the other side closed it ({closed.rcvd.code}){said}", closed.rcvd.code)
    if closed.sent is not None:
        return Closed(f"it was closed here ({closed.sent.code}) {closed.sent.reason}".rstrip(), None)
    return Closed("the connection broke", None)
