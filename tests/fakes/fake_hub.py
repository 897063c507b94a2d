"""A hub that says what a test wrote down for it: a real socket and real bytes, with scripted answers.

What must stay true: an answer is given to requests in the order in which they were scripted, the last one again and
again; whatever is asked is noted in ``requests`` before it is answered; leaving the context ends every thread.
"""

import json
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

SOON_SECONDS = 10.0


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def route(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"


# Writes an answer; True when the connection stays open for the next request.
Answer = Callable[[socket.socket], bool]


def answer(data: object, status: int = 200, kind: str = "application/json", **headers: str) -> Answer:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    whole = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    return lambda sock: _send(sock, whole, stay="Connection" not in headers)


def problem(status: int, code: str, detail: str = "Because.", **extra: object) -> Answer:
    found = {"type": f"about:blank#{code}", "title": "No", "status": status, "code": code, "detail": detail, **extra}
    return answer(found, status, "application/problem+json")


def drop(sock: socket.socket) -> bool:
    """The request was heard, and the connection ends without a word."""
    return False


def raw(content: bytes) -> Answer:
    """These bytes, and the end."""
    return lambda sock: _send(sock, content, stay=False)


class Feed:
    """An event stream that a test writes to while it is read. ``end`` ends it in good order, ``cut`` in the middle."""

    def __init__(self, *chunks: str) -> None:
        self._chunks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for chunk in chunks:
            self.put(chunk)

    def put(self, chunk: str) -> None:
        self._chunks.put(chunk.encode())

    def event(self, data: object, id: str = "", event: str = "") -> None:
        lines = ([f"id: {id}"] if id else []) + ([f"event: {event}"] if event else [])
        self.put("\n".join([*lines, f"data: {json.dumps(data)}", "", ""]))

    def end(self) -> "Feed":
        self._chunks.put(b"")
        return self

    def cut(self) -> "Feed":
        self._chunks.put(None)
        return self

    def __call__(self, sock: socket.socket) -> bool:
        kind = b"Content-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        with suppress(OSError):
            sock.sendall(b"HTTP/1.1 200 OK\r\n" + kind)
            while (chunk := self._chunks.get()) is not None:
                sock.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                if not chunk:
                    return True
        return False


class FakeHub:
    """Use it as a context. ``path`` makes it a Unix socket."""

    def __init__(self, path: Path | None = None) -> None:
        self.requests: list[Request] = []
        self._path = path
        self._answers: dict[str, list[Answer]] = {}
        self._feeds: list[Feed] = []
        self._changed = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(str(path) if path else ("127.0.0.1", 0))
        self._listener.listen()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._closing = False

    @property
    def url(self) -> str:
        return f"unix:{self._path}" if self._path else f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def on(self, route: str, *answers: Answer) -> "FakeHub":
        """Script the answers to ``METHOD /path``; anything else is 404."""
        self._answers[route] = list(answers)
        self._feeds += [each for each in answers if isinstance(each, Feed)]
        return self

    def asked(self, route: str) -> list[Request]:
        return [request for request in self.requests if request.route == route]

    def wait_for(self, route: str, times: int = 1) -> list[Request]:
        """The requests to a route, once there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked(route)) >= times, SOON_SECONDS), self.requests
            return self.asked(route)

    def __enter__(self) -> "FakeHub":
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        for feed in self._feeds:
            feed.cut()
        _end(self._listener)
        for sock in list(self._open):
            _end(sock)
        for thread in self._threads:
            thread.join(SOON_SECONDS)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.settimeout(SOON_SECONDS)
                self._open.append(sock)
                thread = threading.Thread(target=self._serve, args=(sock,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, suppress(OSError), sock.makefile("rb") as lines:
            while (request := _read(lines)) is not None:
                with self._changed:
                    self.requests.append(request)
                    self._changed.notify_all()
                answers = self._answers.get(request.route) or [problem(404, "not_found", f"no {request.route}")]
                if not (answers.pop(0) if len(answers) > 1 else answers[0])(sock):
                    break
            _end(sock)


def _read(lines: Any) -> Request | None:
    first = lines.readline().decode("latin-1").split()
    if len(first) != 3:
        return None
    headers: dict[str, str] = {}
    while line := lines.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Request(first[0], first[1], headers, lines.read(int(headers.get("content-length", 0))))


def _send(sock: socket.socket, content: bytes, *, stay: bool) -> bool:
    sock.sendall(content)
    return stay


def _end(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def hold(sock: socket.socket) -> bool:
    """No answer for as long as the other side waits."""
    sock.recv(1)
    return False
