"""What the load needs to know of a peer: how to start it, what a durable send is there, and where it arrives.

What must stay true: every peer gets the same payload, says yes only when the message is on disk (the seed's alone never
is), and is measured with connections that were made before the clock starts, except where a peer cannot keep one.
"""

import json
import socket
from abc import ABC, abstractmethod
from pathlib import Path

from bench.process import Process

# A message of some 300 bytes, as agents write them.
TEXT = "The build of branch main is green again; the two flaky tests are marked, and the report is in build/report.md. "
TEXT += "Next I would look at the import order. Shall I? " * 2
PAYLOAD = json.dumps({"type": "message", "text": TEXT}).encode()


class BadAnswer(Exception):
    """A peer said no, or something else than it should."""


class Peer(ABC):
    """One server that is measured. ``fresh``: every request takes a connection of its own."""

    name: str
    fresh = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.process = self.start()

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be measured here; None where it is installed."""
        return None

    @abstractmethod
    def start(self) -> Process:
        """Start the server and wait until it serves."""

    @abstractmethod
    def version(self) -> str:
        """What was started, in a word or two."""

    @abstractmethod
    def sender(self, number: int) -> tuple[socket.socket, bytes]:
        """A connection that is ready to send, blocking, and the bytes of one durable send on it."""

    @abstractmethod
    def accepted(self, answer: bytes) -> bool:
        """Whether this is a whole answer to a send; ``BadAnswer`` when it is a no."""

    def reader(self) -> socket.socket:
        """The recipient's live connection, blocking."""
        raise NotImplementedError

    def arrived(self, data: bytes) -> bool:
        """Whether these bytes at the reader end with a whole message."""
        raise NotImplementedError

    def settle(self, reader: socket.socket, data: bytes) -> None:  # noqa: B027 - nothing, where the server settles
        """Whatever a reader owes after a message; outside the clock."""

    def stop(self) -> None:
        """End the server."""
        self.process.stop()


def read_until(connection: socket.socket, end: bytes) -> bytes:
    """Read to a known end."""
    data = b""
    while end not in data:
        piece = connection.recv(65536)
        if not piece:
            raise BadAnswer(f"the connection ended after {data[:200]!r}")
        data += piece
    return data


def http_request(method: str, path: str, port: int, body: bytes = b"", kind: str = "application/json") -> bytes:
    """The bytes of one request on a connection that stays open."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    if body:
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def http_whole(answer: bytes, good: tuple[bytes, ...] = (b"200", b"201")) -> bool:
    """Whether this is a whole answer with a content length; ``BadAnswer`` unless its status is a good one."""
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    lower = head.lower()
    at = lower.find(b"content-length:")
    if at < 0:
        raise BadAnswer(f"no length in {answer[:300]!r}")
    if len(body) < int(lower[at + 15 :].split(b"\r\n", 1)[0]):
        return False
    if answer[9:12] not in good:
        raise BadAnswer(repr(answer[:600]))
    return True
