"""HTTP to Hermes' API server: one request on a connection of its own, its answer read as it comes.

What must stay true: whoever asks can tell a request that nobody heard (``Unreachable``) from one whose answer was lost
(``Broken``); nothing is asked a second time; the connection ends with the block that reads from it, so a turn that is
cancelled is one whose caller went away. The key rides in a header. What an answer means is ``hermes_api.py``'s part.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from angelia.client.aio.answer import Answer
from angelia.protocol.foreign_json import read

CONNECT_SECONDS = 10.0
ASK_SECONDS = 30.0  # for anything but a turn: Hermes reads SQLite for it
MAX_ANSWER_BYTES = 64 * 1024 * 1024  # a history; a hub's longest message is far below it


@dataclass(frozen=True, slots=True)
class Server:
    """Where it listens, with the path of a profile if it needs one (``http://127.0.0.1:8642``), and its key."""

    url: str
    key: str


class Unreachable(Exception):
    """Nobody is there, so nothing was said to anyone."""


class Broken(Exception):
    """The connection broke, or what came is no HTTP, after the request was on its way."""


@dataclass(slots=True)
class Reading:
    """An answer whose head is there."""

    answer: Answer
    reader: asyncio.StreamReader

    @property
    def status(self) -> int:
        return self.answer.status

    def header(self, name: str) -> str:
        return self.answer.header(name)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its bytes as they come. Raises ``Broken`` when it ends before its end."""
        while True:
            if piece := self.answer.take():
                yield piece
            elif self.answer.complete:
                return
            else:
                await _feed(self.answer, self.reader)

    async def whole(self) -> bytes:
        kept = bytearray()
        async for piece in self.pieces():
            kept += piece
            if len(kept) > MAX_ANSWER_BYTES:
                raise Broken("its answer does not end")
        return bytes(kept)


@asynccontextmanager
async def asked(
    server: Server, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> AsyncIterator[Reading]:
    """Make one request on a connection of its own, and wait for the head of the answer. Raises ``Unreachable`` or
    ``Broken``. The connection ends with the block."""
    url = urlsplit(server.url)
    secure = ssl.create_default_context() if url.scheme == "https" else None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                url.hostname, url.port or (443 if secure else 80), ssl=secure
            )
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"nobody answers at {url.netloc}") from error
    try:
        given = {"Host": url.netloc, "Authorization": f"Bearer {server.key}", "Content-Length": str(len(body))}
        lines = {**given, "Content-Type": "application/json", "Connection": "close", **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"{method} {url.path.rstrip('/')}{path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        answer = Answer()
        while not answer.begun:
            await _feed(answer, reader)
        yield Reading(answer, reader)
    finally:
        writer.close()


async def _feed(answer: Answer, reader: asyncio.StreamReader) -> None:
    try:
        data = await reader.read(65536)
    except OSError as error:
        raise Broken("the connection broke") from error
    if not data:
        if answer.ends_with_connection:
            answer.complete = True
            return
        raise Broken("it hung up")
    answer.feed(data)
    if answer.wrong:
        raise Broken("it does not speak HTTP")


async def get(server: Server, path: str) -> object:
    """A small answer. Raises ``Unreachable``, ``Broken``, ``Malformed``, ``TimeoutError`` or ``PermissionError``."""
    async with asyncio.timeout(ASK_SECONDS), asked(server, "GET", path) as answer:
        body = await answer.whole()
        if answer.status in (401, 403):
            raise PermissionError("Hermes' API server refuses the key")
        return read(body) if answer.status == 200 else {}
