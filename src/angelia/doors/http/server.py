"""Serving HTTP on the hub's sockets: connections in, requests to one ASGI application.

What must stay true:

- One loop and one application serve every socket; a request's scope carries its ``Connection``.
- Nobody holds a connection without sending a request, or memory by sending an endless one (``protocol.py``).
- Stopping is bounded: nobody new gets in, answers and streams that end by themselves do, the rest is cut off. What is
  worked on even then is given up: one line of the log says so for each.

uvicorn's configuration and its httptools protocol do the work; its ``Server`` is left out, since it takes over the
signals, polls, and waits for connections without cutting any off.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from email.utils import formatdate
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from angelia.bus.beat import ANSWER_SECONDS, PING_SECONDS
from angelia.doors.http.listen import BACKLOG
from angelia.doors.http.protocol import HubProtocol, Patience

ASGIApp = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

log = logging.getLogger("angelia.http")
# What a request may take to end once its connection is gone, and again once it is cancelled.
_LAST_SECONDS = 0.25
_TELL_SECONDS = 60.0


class _Crowded(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class _State(ServerState):
    """uvicorn's, in which the ``Date`` of each answer is right without anybody waking up for it."""

    def __init__(self) -> None:
        self._second, self._date = -1, b""
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer says."""
        second = int(time.time())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True).encode()
        return [(b"date", self._date)]

    @default_headers.setter
    def default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        """uvicorn begins with none."""


def _ends_quietly(app: ASGIApp) -> ASGIApp:
    """``app``, of which a request that is cancelled is no fault: only a server that stops does that."""

    async def serve(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            log.warning("a request was given up, as the hub stops: %s %s", scope.get("method", ""), scope["path"])

    return serve


class HubServer:
    """Serves ``app`` on sockets that already listen, from ``start`` to ``stop``."""

    def __init__(
        self,
        app: ASGIApp,
        tcp: Sequence[socket.socket],
        unix: Sequence[socket.socket],
        *,
        patience: Patience,
        most_connections: int,
        tls: ssl.SSLContext | None = None,
        websockets: type[asyncio.Protocol] | None = None,
        frame_bytes: int = 1024 * 1024,
    ) -> None:
        """Takes the sockets by kind: who comes by a Unix one may be the hub's owner. ``tls`` is for the TCP ones.

        ``most_connections``: beyond so many by TCP a new one is closed at once, as if the hub were not there; clients
        come back. The Unix socket, by which its owner looks for the reason, is not counted.
        """
        self._tcp, self._unix, self._tls, self._patience = tcp, unix, tls, patience
        self._most, self._told_at = most_connections, -_TELL_SECONDS
        self._config = uvicorn.Config(
            _ends_quietly(app),
            http=HubProtocol,
            ws=websockets if websockets is not None else "none",
            ws_max_size=frame_bytes,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=ANSWER_SECONDS,
            ws_per_message_deflate=False,  # a window of 64 KiB for each connection, and CPU for each frame
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            forwarded_allow_ips=[],
            workers=1,
            timeout_keep_alive=int(patience.idle_seconds),
        )
        self._config.load()
        self._state = _State()
        self._listeners: list[asyncio.Server] = []

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._state.connections)

    async def start(self) -> None:
        """Begin to accept; who has waited since the sockets listened is served first."""
        loop = asyncio.get_running_loop()
        # The loop listens once more, so the length of the queue has to be said once more.
        for listener in self._tcp:
            open_tcp = self._factory(by_socket=False)
            server = await loop.create_server(
                open_tcp,
                sock=listener,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._patience.head_seconds,  # else a minute
                backlog=BACKLOG,
            )
            self._listeners.append(server)
        for listener in self._unix:
            open_unix = self._factory(by_socket=True)
            self._listeners.append(await loop.create_unix_server(open_unix, sock=listener, backlog=BACKLOG))

    def _factory(self, *, by_socket: bool) -> Callable[[], asyncio.Protocol]:
        def connect() -> asyncio.Protocol:
            if not by_socket and self.connections >= self._most:
                self._tell_of_crowd()
                return _Crowded()
            return HubProtocol(self._config, self._state, self._patience, by_socket=by_socket)

        return connect

    def _tell_of_crowd(self) -> None:
        if time.monotonic() - self._told_at >= _TELL_SECONDS:
            self._told_at = time.monotonic()
            log.warning("%d connections are open, as many as can be: new ones are closed", self.connections)

    def close_listeners(self) -> None:
        """From here on new connections are refused."""
        for listener in self._listeners:
            listener.close()

    async def stop(self, seconds: float) -> int:
        """Close everything: what ends by itself within ``seconds`` ends well. Returns how many had to be cut off."""
        self.close_listeners()
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._until_quiet(seconds)
        left = list(self._state.connections)
        for connection in left:
            connection.transport.abort()
        await self._until_quiet(_LAST_SECONDS)
        for task in list(self._state.tasks):
            task.cancel()
        await self._until_quiet(_LAST_SECONDS)
        if left:
            log.warning("%d connections did not end within %g s and were cut off", len(left), seconds)
        return len(left)

    async def _until_quiet(self, seconds: float) -> None:
        """Until no connection is open and no request is being worked on, at most so long."""
        deadline = time.monotonic() + seconds
        # uvicorn has these two sets, and nothing that tells when they are empty.
        while (self._state.connections or self._state.tasks) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
