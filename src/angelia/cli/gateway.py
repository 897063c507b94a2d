"""``angelia gateway --stdio``: the hub's gateway, a line each on stdin and stdout.

What must stay true: a line in is a frame to the hub, a frame from it a line out, and nothing else is ever written to
stdout. The end of stdin ends it once every call that was made is answered; the end of the hub ends it with 4.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection, connect, unix_connect

from angelia.cli import exits, parse, session
from angelia.client.errors import LostHub, NoHub

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


class _Bridge:
    """Two directions, a thread for each; what was asked and is not answered yet is counted."""

    def __init__(self, line: ClientConnection, where: str) -> None:
        self._line, self._where = line, where
        self._open = 0
        self._asked_all = False
        self._lock = threading.Lock()

    def run(self) -> int:
        """Until stdin has ended and all is answered, or the hub has gone."""
        threading.Thread(target=self._read_in, daemon=True).start()
        try:
            for frame in self._line:
                sys.stdout.write(frame + "\n" if isinstance(frame, str) else frame.decode() + "\n")
                sys.stdout.flush()
                self._count(-1 if _is_answer(frame) else 0)
        except ConnectionClosed:
            pass
        if self._asked_all and self._open <= 0:
            return exits.DONE
        raise LostHub(self._where, "the hub has closed the gateway")

    def _read_in(self) -> None:
        try:
            for line in _lines():
                if line.strip():
                    self._count(1)
                    self._line.send(line.rstrip(b"\r\n").decode("utf-8", "replace"))
        except ConnectionClosed:
            return
        self._asked_all = True
        self._count(0)

    def _count(self, more: int) -> None:
        with self._lock:
            self._open += more
            over = self._asked_all and self._open <= 0
        if over:
            self._line.close()


def _lines() -> Iterator[bytes]:
    """The lines of stdin, past Python's own buffer: a thread that waits in there would not let the process end."""
    rest = b""
    while piece := os.read(0, READ_BYTES):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    yield rest


def _is_answer(frame: str | bytes) -> bool:
    """Whether a frame answers a call; events do not."""
    return "method" not in json.loads(frame)
