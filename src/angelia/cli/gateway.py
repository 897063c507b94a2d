"""``angelia gateway --stdio``: the hub's gateway, a line each on stdin and stdout.

What must stay true: a line in is a frame to the hub, a frame from it a line out, and nothing else is ever written to
stdout. Both sides may call: what comes in and is itself an answer, or an event, waits for none. The end of stdin ends
it once every call that was made there is answered; the end of the hub ends it with 4. So does a line that the hub would
not take, after an error in its place; no more of it is kept than the hub takes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect, unix_connect

from angelia.cli import exits, parse, session
from angelia.client.errors import LostHub, NoHub
from angelia.protocol import jsonrpc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from angelia.settings import Settings

PATH = "/api/ws"
OPEN_SECONDS = 10.0
READ_BYTES = 65536


def run(argv: list[str], settings: Settings) -> int:
    """Bridge stdin and stdout to the hub's gateway."""
    made = parse.parser(
        "gateway",
        "Speak JSON-RPC with the hub on stdin and stdout, an object a line: the vocabulary of Hermes' relay, and live\n"
        "chats. For programs that start another one to talk to; a WebSocket at /api/ws is the same.",
        'echo \'{"jsonrpc":"2.0","id":1,"method":"profiles.list"}\' | angelia gateway --stdio',
    )
    made.add_argument("--stdio", action="store_true", required=True, help="on stdin and stdout (the only way there is)")
    parse.parse(made, argv)
    way = session.anyone(settings)
    with _connected(way) as line:
        return _Bridge(line, str(way.address)).run()


def _connected(way: session.Way) -> ClientConnection:
    headers = {"Authorization": f"Bearer {way.token}"} if way.token else {}
    address = way.address
    more: dict[str, Any] = {"additional_headers": headers, "open_timeout": OPEN_SECONDS, "max_size": None}
    try:
        if address.path:
            line: ClientConnection = unix_connect(address.path, f"ws://localhost{PATH}", compression=None, **more)
        else:
            line = connect(f"{str(address).replace('http', 'ws', 1)}{PATH}", compression=None, proxy=None, **more)
        return line
    except InvalidStatus as error:
        raise exits.Refused(f"the hub refuses: {_detail(error)}") from None
    except (OSError, InvalidHandshake) as error:
        raise NoHub(str(address), str(error)) from None


def _detail(error: InvalidStatus) -> str:
    try:
        return str(json.loads(error.response.body or b"")["detail"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {error.response.status_code}"


class LineTooLong(NoHub):
    """A line of stdin is larger than a frame may be, which ends a gateway."""

    def __init__(self, where: str, most: int) -> None:
        super().__init__(where, "a line is too long")
        self.args = (f"a line on stdin has more than {most} bytes, the most that the hub at {where} takes",)


class _Bridge:
    """Two directions, a thread for each; what stdin asked and is not answered yet is counted.

    What stdin brings waits for the first frame, ``gateway.ready``: it says how large a frame may be.
    """

    def __init__(self, line: ClientConnection, where: str) -> None:
        self._line, self._where = line, where
        self._open = 0
        self._asked_all = self._is_too_long = False
        self._most = sys.maxsize
        self._lock = threading.Lock()

    def run(self) -> int:
        """Until stdin has ended and all is answered, or the hub has gone."""
        try:
            ready = self._line.recv(decode=False)
            self._most = json.loads(ready)["params"]["payload"]["frame_bytes"]
            _put(ready)
            threading.Thread(target=self._read_in, daemon=True).start()
            while True:
                frame = self._line.recv(decode=False)
                _put(frame)
                self._count(-1 if _is(frame, "answer") else 0)
        except ConnectionClosed:
            pass
        if self._is_too_long:
            text = f"A line has at most {self._most} bytes; this one has more."
            _put(jsonrpc.error(None, jsonrpc.INVALID_REQUEST, text, {"reason": jsonrpc.BAD_PARAMS}))
            raise LineTooLong(self._where, self._most)
        if self._asked_all and not self._open:
            return exits.DONE
        raise LostHub(self._where, "the hub has closed the gateway")

    def _read_in(self) -> None:
        try:
            for line in _lines(self._most):
                frame = _in_utf8(line.removesuffix(b"\r"))
                if len(frame) > self._most:
                    self._is_too_long = True
                    self._line.close()
                    return
                if frame and not frame.isspace():
                    self._count(1 if _is(frame, "call") else 0)
                    self._line.send(frame, text=True)
        except ConnectionClosed:
            return
        self._asked_all = True
        self._count(0)

    def _count(self, more: int) -> None:
        with self._lock:
            self._open = max(self._open + more, 0)  # what nobody asked for may be answered
            over = self._asked_all and not self._open
        if over:
            self._line.close()


def _put(frame: bytes) -> None:
    """A line to stdout."""
    sys.stdout.buffer.write(frame + b"\n")
    sys.stdout.buffer.flush()


def _in_utf8(line: bytes) -> bytes:
    """A line as a text frame may hold it; what is no UTF-8 shows as such."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace").encode()
    return line


def _lines(most: int) -> Iterator[bytes]:
    """The lines of stdin, past Python's own buffer: a thread that waits in there would not let the process end. One of
    more than ``most`` bytes comes as soon as it has them, unfinished."""
    rest = bytearray()
    while piece := os.read(0, READ_BYTES):
        end, *more = piece.split(b"\n")
        rest += end
        for begun in more:
            yield bytes(rest)
            rest = bytearray(begun)
        if len(rest) > most + 1:  # an end of \r\n is none of the frame
            yield bytes(rest)
            return
    yield bytes(rest)


class _Head(msgspec.Struct):
    """So much of a frame as says what it is; the rest is passed over, which takes a tenth of the time."""

    method: object = None
    id: object = None
    result: msgspec.Raw | UnsetType = UNSET
    error: msgspec.Raw | UnsetType = UNSET


_head_of = msgspec.json.Decoder(_Head).decode


def _is(frame: bytes, kind: Literal["call", "answer"]) -> bool:
    """Whether a frame is a call, or the answer to one; an event is neither. What cannot be read is answered, too."""
    try:
        head = _head_of(frame)
    except (msgspec.MsgspecError, RecursionError):
        return kind == "call"
    if head.method is None and (head.result is not UNSET or head.error is not UNSET):
        return kind == "answer"
    return kind == "call" and not (head.method == "event" and head.id is None)
