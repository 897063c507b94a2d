"""A server that is dialled: as much of a hub, or of a gateway of Hermes', as opening a line needs.

What must stay true: it lets in whom Hermes lets in (a token where it stands on this machine alone, a ticket that is
good once where one has to sign in), and keeps what it was asked. What is said on a line is another stand-in's.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import uvicorn

from tests.links.lines import until

Messages = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
NEVER = None  # in place of a status, or of a door: no answer at all


@dataclass
class Asked:
    """One request. ``query``: of a WebSocket; ``head``: by lower-case names."""

    path: str
    query: dict[str, list[str]]
    head: dict[str, str]
    body: Any = None


@dataclass
class Server:
    """``answers``: JSON by path, or a status, or what a path sends callers on to. ``door``: where its line is.

    ``ready``: the payload of its first frame (None: there is none); ``first``: a frame before that. ``token``,
    ``password`` of ``user``, ``bearer``: what lets in. ``refuses``: with which code others are sent away after the
    handshake (None: before its end)."""

    answers: dict[str, Any] = field(default_factory=dict)
    door: str | None = "/api/ws"
    ready: dict[str, Any] | None = field(default_factory=lambda: {"skin": {}})
    first: str | None = None
    token: str | None = None
    user: str = "ada"
    password: str | None = None
    bearer: str | None = None
    refuses: int | None = None
    provider: str = "basic"
    tickets: set[str] = field(default_factory=set)
    tickets_are_good: bool = True
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    prefix: str = ""

    async def __call__(self, scope: dict[str, Any], receive: Messages, send: Send) -> None:
        head = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        asked = Asked(scope["path"].removeprefix(self.prefix), parse_qs(scope["query_string"].decode()), head)
        self.asked.append(asked)
        if scope["type"] == "websocket":
            await self._line(asked, receive, send)
            return
        status, content = self._answer(asked, await _body(receive))
        if status is NEVER:
            await asyncio.Event().wait()
        elsewhere = [(b"location", content.encode())] if isinstance(content, str) else []
        cookies = [(b"set-cookie", b"session=s3ss10n; Path=/; HttpOnly")] if asked.path.endswith("-login") else []
        start = {"type": "http.response.start", "status": status, "headers": [*cookies, *elsewhere]}
        await send(start)
        await send({"type": "http.response.body", "body": json.dumps(content).encode()})

    def _answer(self, asked: Asked, body: bytes) -> tuple[int | None, Any]:
        asked.body = json.loads(body) if body else None
        if asked.path in self.answers:
            found = self.answers[asked.path]
            if isinstance(found, str):
                return 302, found
            return (200, found) if isinstance(found, dict) else (found, {})
        if asked.path == "/auth/password-login":
            given = (asked.body["provider"], asked.body["username"], asked.body["password"])
            if given[0] != self.provider:
                return 404, {"detail": "no such provider"}
            return (200, {"ok": True}) if given[1:] == (self.user, self.password) else (401, {})
        if asked.path == "/api/auth/ws-ticket":
            is_known = asked.head.get("cookie") == "session=s3ss10n" if self.password else False
            is_known |= self.bearer is not None and asked.head.get("authorization") == f"Bearer {self.bearer}"
            if not is_known:
                return 401, {}
            ticket = f"t1cket/{len(self.asked)}+"
            if self.tickets_are_good:
                self.tickets.add(ticket)
            return 200, {"ticket": ticket, "ttl_seconds": 30}
        return 404, {"detail": "Not Found"}

    def _lets_in(self, asked: Asked) -> bool:
        if self.password or self.bearer:
            ticket = asked.query.get("ticket", [""])[0]
            is_good = ticket in self.tickets
            self.tickets.discard(ticket)
            return is_good
        return self.token is None or asked.query.get("token") == [self.token]

    async def _line(self, asked: Asked, receive: Messages, send: Send) -> None:
        await receive()
        if self.door is NEVER:
            await asyncio.Event().wait()
        if asked.path != self.door:
            await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b""})
            return
        lets_in = self._lets_in(asked)
        if not lets_in and self.refuses is None:
            await send({"type": "websocket.close", "code": 4401})
            return
        await send({"type": "websocket.accept"})
        if not lets_in:
            await send({"type": "websocket.close", "code": self.refuses})
            return
        if self.first is not None:
            await send({"type": "websocket.send", "text": self.first})
        if self.ready is not None:
            ready = {"type": "gateway.ready", "payload": self.ready}
            await send({"type": "websocket.send", "text": json.dumps({"method": "event", "params": ready})})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})


async def _body(receive: Messages) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def hermes(*, signs_in: bool = False, **more: Any) -> Server:
    """A gateway of Hermes'."""
    status = {"version": "0.20.0", "auth_required": signs_in, "auth_providers": ["nous", more.get("provider", "basic")]}
    return Server(answers={"/api/status": status, **more.pop("answers", {})}, **more)


def hub(data_dir: str = "/nowhere", **more: Any) -> Server:
    """A hub."""
    health = {"product": "angelia", "version": "1", "data_dir": data_dir}
    ready = {"product": "angelia", "version": "1", "skin": {}, "frame_bytes": 8388608}
    return Server(answers={"/health": health}, **{"door": "/api/hub", "ready": ready, **more})


@asynccontextmanager
async def served(server: Server, certificate: tuple[str, str] | None = None) -> AsyncIterator[Server]:
    """A server at work on a port of its own; ``certificate``: the files of it and of its key."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server.port = sock.getsockname()[1]
    config = uvicorn.Config(
        server,
        ws="websockets-sansio", lifespan="off", log_config=None, timeout_graceful_shutdown=0,
        ssl_certfile=certificate and certificate[0], ssl_keyfile=certificate and certificate[1],
    )  # fmt: skip
    at_work = uvicorn.Server(config)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(at_work.serve(sockets=[sock]))
        try:
            await until(lambda: at_work.started)
            yield server
        finally:
            at_work.should_exit = at_work.force_exit = True
    sock.close()


@asynccontextmanager
async def says(first: bytes | None) -> AsyncIterator[int]:
    """A port where somebody accepts, says this (None: nothing), and waits."""
    met: list[asyncio.StreamWriter] = []

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(writer)
        if first is not None:
            await reader.read(1)
            writer.write(first)
        await reader.read()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in met:
            writer.transport.abort()
        server.close()
        await server.wait_closed()
