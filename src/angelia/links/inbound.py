"""A wire over a connection that the other side opened.

What must stay true: its end is ``LineLost`` to whoever sends or receives, and is noticed in time.
"""

import socket
from typing import Protocol

from angelia.links.lively import make_lively
from angelia.links.port import LineLost

GONE = "the other side has gone"


class Opened(Protocol):
    """A connection as the gateway hands it over."""

    @property
    def socket(self) -> socket.socket | None: ...
    async def send(self, frame: bytes) -> bool: ...
    async def receive(self) -> bytes | None: ...
    def let_in(self) -> None: ...
    def close(self) -> None: ...


class InboundWire:
    """Fills ``Wire``."""

    def __init__(self, line: Opened) -> None:
        self._line = line
        make_lively(line.socket)

    async def send(self, frame: bytes) -> None:
        """Write a frame."""
        if not await self._line.send(frame):
            raise LineLost(GONE)

    async def receive(self) -> bytes:
        """The next frame."""
        frame = await self._line.receive()
        if frame is None:
            raise LineLost(GONE)
        return frame

    def let_in(self) -> None:
        """The other side has proved itself: until now only small frames came."""
        self._line.let_in()

    async def close(self) -> None:
        """End it."""
        self._line.close()
