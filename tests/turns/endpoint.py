"""A stand-in for somebody's HTTP endpoint: a real server that remembers what was posted and answers as it is told."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Endpoint:
    """Where it is, what came (head lines, headers by lower-case names, body), and what it says next."""

    port: int = 0
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    says: bytes = b"HTTP/1.1 204 No Content\r\n\r\n"
    after: Play | None = None  # what it does then, before it closes
    reads: bool = True  # it reads the body before it answers

    def url(self, host: str = "127.0.0.1", scheme: str = "http", path: str = "/hook?a=b") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def answer(self, status: int, kind: str = "", body: bytes = b"", **headers: str) -> None:
        """Say this from now on."""
        given = {"Content-Type": kind, "Content-Length": str(len(body)), **headers}
        lines = [
            f"HTTP/1.1 {status} So",
            *(f"{name.replace('_', '-')}: {value}" for name, value in given.items() if value),
        ]
        self.says = "\r\n".join([*lines, "", ""]).encode() + body

    @property
    def data(self) -> dict[str, Any]:
        """What the last post said."""
        return msgspec.json.decode(self.bodies[-1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            self.requests.append(head[0])
            self.headers.append({name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])})
            if self.reads:
                self.bodies.append(await reader.readexactly(int(self.headers[-1]["content-length"])))
            writer.write(self.says)
            await writer.drain()
            if self.after is not None:
                await self.after(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def endpoint(tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    """An endpoint on this machine, for as long as the block lasts."""
    made = Endpoint()
    server = await asyncio.start_server(made._serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
