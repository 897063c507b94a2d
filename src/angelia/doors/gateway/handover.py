"""A connection of the gateway on which another hub has said hello: handed over, whole, to whoever keeps the links.

What must stay true: nothing that came is lost on the way: the frame that said hello is the first that is read. The end
of the connection is told to whoever reads and to whoever writes.
"""

import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

from angelia.bus.caller import Caller
from angelia.doors.gateway.peer import Peer

Next = Callable[[], Awaitable[bytes | None]]


class Handover:
    """Frames both ways. ``socket``: the one under it, where there is one."""

    def __init__(self, peer: Peer, first: bytes, following: Next) -> None:
        """``first``: the frame that was read already; ``following``: the next one, None at the end."""
        self._peer, self._first, self._following = peer, first, following
        self.socket: socket.socket | None = peer.line.socket

    async def send(self, frame: bytes) -> bool:
        """Write a frame; False once the connection has ended."""
        return await self._peer.tell(frame)

    async def receive(self) -> bytes | None:
        """The next frame; None at the end."""
        if self._first:
            first, self._first = self._first, b""
            return first
        return await self._following()

    def let_in(self) -> None:
        """The other hub has proved itself: from now on its frames may be as large as any."""
        self._peer.line.let_in = True

    def close(self) -> None:
        """End the connection."""
        self._peer.line.abort()


class Links(Protocol):
    """Who keeps the links."""

    async def serve(self, caller: Caller, line: Handover) -> None:
        """Serve one to its end."""
        ...
