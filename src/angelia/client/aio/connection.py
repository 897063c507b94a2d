"""One connection to a hub, over TCP, TLS or its Unix socket: a request out, an answer in, one after another; asyncio.

What must stay true: nothing is tried a second time here; whoever knows what a repeat means decides that
(``core/posting.py``), and is told whether the connection that broke had been kept from an earlier request. Every wait
has an end, and what was not read yet is bounded. What has arrived is heard, whatever becomes of the connection then.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import cast

from angelia.client.aio.answer import Answer
from angelia.client.core.answers import CONNECT_SECONDS, MAX_ANSWER_BYTES
from angelia.client.core.steps import Exchange, Head
from angelia.client.errors import LostHub, NoHub, NotAHub, TimedOut
from angelia.client.find import Address

UNREAD_BYTES = 1024 * 1024  # of a stream whose reader is busy; the rest waits at the hub
_PORTS = {False: 80, True: 443}


class _Wire(asyncio.Protocol):
    """The bytes of one connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: Answer | None = None
        self.over = False  # no byte will come any more
        self.trouble: Exception | None = None
        self._changed: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one without being one of its kind

    def data_received(self, data: bytes) -> None:
        if self.answer is None or self.answer.complete or self.transport is None:
            self.end()  # something unasked: whatever it is, it is no answer to the next request
            return
        self.answer.feed(data)
        if len(self.answer.unread) > UNREAD_BYTES:
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.over, self.trouble = True, error
        self._wake()

    def end(self) -> None:
        """Let go of it."""
        if self.transport is not None and not self.over:
            self.transport.abort()
        self.over = True
        self._wake()

    async def wait(self, seconds: float) -> None:
        """Wait until something has come, or nothing will. Raises ``TimeoutError``."""
        if self.transport is not None and not self.over:
            self.transport.resume_reading()
        self._changed = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(seconds):
            await self._changed

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


class Connection:
    """The way to one hub. It opens on the first request, stays open between requests, and is one task's at a time."""

    def __init__(self, address: Address, token: str = "") -> None:
        self.address = address
        self.token = token
        self._wire: _Wire | None = None
        self._seconds = 0.0  # what bounds each read of what was opened

    @property
    def is_open(self) -> bool:
        """Whether another request may go over it."""
        return self._wire is not None and not self._wire.over

    def close(self) -> None:
        """Let go of the connection; a task that reads from it sees its end, and the next request opens another."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.end()

    async def exchange(self, step: Exchange) -> tuple[int, bytes]:
        """Make one request. Out: status and the answer's bytes.

        Raises ``NoHub``, ``LostHub`` (``kept``: over a connection from before), ``NotAHub`` or ``TimedOut``.
        """
        kept = self.is_open
        whole = False
        try:
            answer = await self._asked(step.method, step.path, step.content, step.headers, step.seconds)
            pieces = bytearray()
            while piece := await self._piece(answer, step.seconds):
                pieces += piece
                if max(len(pieces), answer.length) > MAX_ANSWER_BYTES:
                    raise NotAHub(str(self.address), "its answer is larger than any hub's")
            whole = answer.stays
            return answer.status, bytes(pieces)
        except LostHub as error:
            error.kept = kept
            raise
        finally:
            if not whole:
                self.close()

    async def open(self, path: str, headers: dict[str, str], seconds: float) -> Head:
        """GET something that goes on, to be read with ``read``. The answer ends with ``close``."""
        self.close()
        self._seconds = seconds
        answer = await self._asked("GET", path, None, headers, seconds)
        return Head(answer.status, answer.header("content-type"), answer.header("location"))

    async def read(self) -> bytes:
        """What came next of what was opened; b"" at its end."""
        answer = self._wire.answer if self._wire is not None else None
        if answer is None:
            raise LostHub(str(self.address), "it was let go of")
        return await self._piece(answer, self._seconds)

    async def _asked(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str], seconds: float
    ) -> Answer:
        """Put a request, and wait for the head of its answer."""
        request = self._request(method, path, content, headers)
        wire = self._wire if self._wire is not None and not self._wire.over else await self._connected()
        answer = wire.answer = Answer()
        if wire.transport is not None:
            wire.transport.write(request)
        while not answer.begun:
            await self._more(wire, answer, seconds)
        return answer

    async def _piece(self, answer: Answer, seconds: float) -> bytes:
        while not answer.unread and not answer.complete:
            wire = self._wire
            if wire is None:
                raise LostHub(str(self.address), "it was let go of")
            await self._more(wire, answer, seconds)
        return answer.take()

    async def _more(self, wire: _Wire, answer: Answer, seconds: float) -> None:
        """Wait for more of an answer, and find out whether there will be any."""
        if answer.wrong:
            self.close()
            raise NotAHub(str(self.address), "what answers there does not speak HTTP")
        if wire.over:
            if wire.trouble is None and answer.ends_with_connection:
                answer.complete = True
                return
            self.close()
            cut = "the answer was cut off" if answer.begun else "it closed the connection without an answer"
            raise LostHub(str(self.address), cut if wire.trouble is None else _why(wire.trouble))
        try:
            await wire.wait(seconds)
        except TimeoutError:
            self.close()
            raise TimedOut(f"the hub at {self.address}", seconds) from None

    def _request(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> bytes:
        given = {"Host": self._host(), "Accept-Encoding": "identity", "Accept": "application/json", **headers}
        if self.token:
            given["Authorization"] = f"Bearer {self.token}"
        if content is not None:
            given["Content-Type"] = "application/json"
        if content is not None or method in ("POST", "PUT"):
            given["Content-Length"] = str(len(content or b""))
        for name, value in given.items():
            if "\n" in value or "\r" in value or "\0" in value:
                raise ValueError(f"Invalid header value for {name}: {value!r}")
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (content or b"")

    def _host(self) -> str:
        where = self.address
        if where.path:
            return "localhost"
        host = f"[{where.host}]" if ":" in where.host else where.host
        return host if where.port == _PORTS[where.tls] else f"{host}:{where.port}"

    async def _connected(self) -> _Wire:
        where, loop = self.address, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if where.path:
                    _, wire = await loop.create_unix_connection(_Wire, where.path)
                else:
                    context = ssl.create_default_context() if where.tls else None
                    _, wire = await loop.create_connection(_Wire, where.host, where.port, ssl=context)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that cannot be one
            raise NoHub(str(where), _why(error)) from None
        self._wire = wire
        return wire


def _why(error: Exception) -> str:
    """What the system says of a connection that failed, in a few words; asyncio's own are of another kind."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError | socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
