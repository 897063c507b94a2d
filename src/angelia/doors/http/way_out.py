"""What a request's answer is written to: its head leaves together with the first piece of its body.

Each write is a packet of its own, which costs more than all that is made for it, and wakes the reader twice. What must
stay true: bytes leave in the order in which they were written, and all of them before the end.
"""

import asyncio


class WayOut:
    """As much of a transport as uvicorn's cycle of a request uses."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        if self._head is None and not data.startswith(b"HTTP/1.1 1"):
            self._head = data
        elif self._head:
            self._transport.write(self._head + data)
            self._head = b""
        else:
            self._transport.write(data)

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
