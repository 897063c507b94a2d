"""HTTP answers and event streams as bytes come in: a reader of its own, so that a fault in ours cannot hide itself.

No input or output here: whoever has a socket, blocking or not, feeds what it read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream. ``kind``: "message", the hub's own word, or "comment". ``id`` where one stood in it."""

    kind: str
    data: str
    id: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class BadAnswer(Exception):
    """What came is no HTTP/1.1 answer."""


@dataclass(slots=True)
class Incoming:
    """One answer. ``feed`` gives what is new of the body; ``rest`` are bytes after its end."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    rest: bytes = b""
    _data: bytes = b""
    _left: int | None = None  # bytes to come of the body, or of this chunk
    _chunked: bool = False
    _last: bool = False  # this chunk is the empty one

    def feed(self, data: bytes) -> bytes:
        self._data += data
        if not self.status and not self._head():
            return b""
        body = b"".join(self._pieces()) if self._chunked else self._plain()
        if self.complete:
            self.rest, self._data = self._data, b""
        return body

    def end(self) -> bool:
        """The connection is over; whether the answer is whole."""
        if self.status and not self._chunked and self._left is None:
            self.complete = True
        return self.complete

    def _head(self) -> bool:
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise BadAnswer(first[:80])
        self._data = rest
        if status.startswith("1"):
            return self._head()
        self.status = int(status[:3])
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "")
        if "content-length" in self.headers:
            self._left = int(self.headers["content-length"])
        if self.status in (204, 304):
            self._left = 0
        return True

    def _plain(self) -> bytes:
        if self._left is None:
            body, self._data = self._data, b""
            return body
        body, self._data = self._data[: self._left], self._data[self._left :]
        self._left -= len(body)
        self.complete = not self._left
        return body

    def _pieces(self) -> list[bytes]:
        pieces = []
        while not self.complete:
            if self._left is None:
                line, found, rest = self._data.partition(b"\r\n")
                if not found:
                    break
                size = int(line.split(b";")[0], 16)
                self._data, self._left, self._last = rest, size + 2, not size
            if len(self._data) < self._left:
                break
            pieces.append(self._data[: self._left - 2])
            self._data, self._left = self._data[self._left :], None
            self.complete = self._last
        return pieces


@dataclass(slots=True)
class Events:
    """An event stream, as the HTML standard has it; ``retry`` is the last one that was named, in milliseconds."""

    retry: int | None = None
    last_id: str = ""
    _line: bytes = b""
    _data: list[str] = field(default_factory=list)
    _kind: str = ""
    _id: str = ""

    def feed(self, body: bytes) -> list[Event]:
        *lines, self._line = (self._line + body).split(b"\n")
        return [event for line in lines if (event := self._take(line.removesuffix(b"\r").decode())) is not None]

    def _take(self, line: str) -> Event | None:
        if not line:
            event = Event(self._kind or "message", "\n".join(self._data), self._id) if self._data else None
            self.last_id = self._id or self.last_id
            self._data, self._kind, self._id = [], "", ""
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            return Event("comment", value)
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id":
            self._id = value
        elif name == "retry":
            self.retry = int(value)
        return None


def request(method: str, path: str, body: bytes | None, *, host: str, headers: Mapping[str, str]) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")
