"""Where a server is, and one HTTP request to it.

What must stay true: a request has a connection of its own, and an answer has ``MOST_BYTES`` at most. The name on a
certificate is that of the machine that was asked for. Who asks bounds the time.

What is asked for, and what an answer means, does not belong here.
"""

import asyncio
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httptools
from websockets.exceptions import InvalidMessage

from angelia.links.process import Tunnel

MOST_BYTES = 1024 * 1024  # a status of Hermes' has some kilobytes
_PIECE_BYTES = 65536
_PORTS = {False: 80, True: 443}


class NoAnswer(Exception):
    """What came back is no HTTP, or not all of an answer. ``is_foreign``: it is another protocol's."""

    def __init__(self, text: str, *, is_foreign: bool) -> None:
        """Takes the words."""
        super().__init__(text)
        self.is_foreign = is_foreign


@dataclass(slots=True)
class Answer:
    """What a request was answered with. ``cookies``: as the next request shows them."""

    status: int = 0
    body: bytearray = field(default_factory=bytearray)
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> dict[str, object]:
        """The object that it holds; empty where it holds none."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Place:
    """A server. ``prefix``: what its paths begin with. ``tunnel``: a program that leads there, and what
    gives it its environment whenever it is started; without one it is reached by TCP."""

    host: str
    port: int
    prefix: str = ""
    tls: ssl.SSLContext | None = None
    tunnel: tuple[str, ...] = ()
    environment: Callable[[], Mapping[str, str]] = dict

    @property
    def name(self) -> str:
        """Host and port, as a person and a Host header write them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.tls is not None] else f"{host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether it is this machine itself, without a tunnel."""
        if self.tunnel:
            return False
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def uri(self, path: str) -> str:
        """The address of a WebSocket there."""
        return f"{'wss' if self.tls else 'ws'}://{self.name}{self.prefix}{path}"

    async def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: object = None
    ) -> Answer:
        """One request. ``body``: sent as JSON. Raises ``OSError``, ``NoAnswer``, or ``Ended`` of its tunnel."""
        content = b"" if body is None else json.dumps(body).encode()
        given = {"Host": self.name, "Accept": "application/json", "Connection": "close", **(headers or {})}
        if method != "GET":
            given |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        async with self._stream() as (reader, writer):
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + content)
            return await _read(reader)

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        if not self.tunnel:
            reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.tls)
            try:
                yield reader, writer
            finally:
                writer.transport.abort()
            return
        async with self.tunnelled() as tunnel:
            reader, writer = await asyncio.open_unix_connection(sock=tunnel.socket)
            try:
                yield reader, writer
            finally:
                writer.transport.abort()

    @asynccontextmanager
    async def tunnelled(self, *, keep: bool = False) -> AsyncIterator[Tunnel]:
        """A tunnel to there while the block runs; ``keep``: and afterwards, if the block went well. What fails in the
        block because the tunnel ended raises that: ``Ended``."""
        tunnel = Tunnel.start(self.tunnel, self.environment())
        well = False
        try:
            yield tunnel
            well = keep
        except (OSError, NoAnswer, InvalidMessage):
            ended = await tunnel.child.end()
            if ended.code is None:
                raise
            raise ended from None
        finally:
            if not well:
                await tunnel.close()


async def _read(reader: asyncio.StreamReader) -> Answer:
    """The whole answer."""
    incoming = _Incoming()
    while not incoming.complete:
        piece = await reader.read(_PIECE_BYTES)
        if not piece:
            if incoming.begun and not incoming.framed:
                break
            raise NoAnswer("it closed the connection without an answer", is_foreign=False)
        incoming.feed(piece)
        if len(incoming.answer.body) > MOST_BYTES:
            raise NoAnswer("its answer is larger than any that was asked for", is_foreign=True)
    return incoming.answer


class _Incoming:
    """An answer as it comes in. What comes before it (status 1xx) is passed over."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.begun = self.complete = self.framed = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.complete:
                raise NoAnswer("what answers there does not speak HTTP", is_foreign=True) from None

    def on_message_begin(self) -> None:
        if not self.complete:
            self.framed = False
            self.answer.cookies.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.complete:
            return
        lower, text = name.lower(), value.decode("latin-1")
        self.framed |= lower in (b"content-length", b"transfer-encoding")
        if lower == b"set-cookie":
            cookie, _, content = text.partition(";")[0].partition("=")
            self.answer.cookies[cookie.strip()] = content.strip()

    def on_headers_complete(self) -> None:
        if not self.complete:
            self.answer.status = self._parser.get_status_code()
            self.begun = self.answer.status >= 200

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self.answer.body += body

    def on_message_complete(self) -> None:
        self.complete |= self.begun
