"""Talking to a hub by the hundred: one connection each, on raw sockets, that can be cut at any moment.

What must stay true: what came in is told apart from what did not, to the byte; nothing is tried again here.
"""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, NamedTuple

from tests.rigs.wire import Event, Events, Incoming, request

BLOCK = 65536


class Broken(Exception):
    """The connection ended before the answer was whole, or there was none. ``begun``: the request may have arrived."""

    def __init__(self, what: str, *, begun: bool) -> None:
        super().__init__(what)
        self.begun = begun


class Said(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Talk:
    """One connection to ``port``, made when it is needed and kept while it lasts."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._host, self._port = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def call(self, method: str, path: str, body: object = None, *, seconds: float = 30.0, **headers: str) -> Said:
        """One request and its answer; headers are named with ``_`` for ``-``. Raises ``Broken``."""
        content = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if content is not None:
            named.setdefault("Content-Type", "application/json")
        begun = False
        try:
            async with asyncio.timeout(seconds):
                await self._open()
                begun = True
                await self._write(request(method, path, content, host=f"127.0.0.1:{self._port}", headers=named))
                incoming = Incoming()
                found = b""
                while not incoming.complete:
                    found += incoming.feed(await self._read())
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.cut()
            raise Broken(repr(error), begun=begun) from None
        except asyncio.CancelledError:
            self.cut()
            raise
        if incoming.headers.get("connection", "").lower() == "close":
            self.close()
        return Said(incoming.status, incoming.headers, found)

    async def stream(self, path: str, last_event_id: str = "", seconds: float = 60.0) -> AsyncGenerator[Event, None]:
        """The events of a stream, comments too, to its end. Raises ``Broken`` where it is not opened or breaks off."""
        self.close()
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        incoming, events = Incoming(), Events()
        try:
            await self._open()
            await self._write(request("GET", path, None, host=f"127.0.0.1:{self._port}", headers=headers))
            while not incoming.complete:
                async with asyncio.timeout(seconds):
                    piece = await self._read()
                for event in events.feed(incoming.feed(piece)):
                    yield event
                if incoming.status not in (0, 200):
                    raise Broken(f"answered with {incoming.status}", begun=True)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise Broken(repr(error), begun=True) from None
        finally:
            self.cut()

    def close(self) -> None:
        """End the connection in the ordinary way."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    def cut(self) -> None:
        """End it as a killed process with unread bytes does: by a reset."""
        if self._writer is not None:
            raw = self._writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def _open(self) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def _write(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)
        await self._writer.drain()

    async def _read(self) -> bytes:
        assert self._reader is not None
        piece = await self._reader.read(BLOCK)
        if not piece:
            raise ConnectionResetError("ended")
        return piece
