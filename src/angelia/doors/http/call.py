"""One request as a handler sees it: who calls, what was asked, and how to answer.

What must stay true: a body is read within its bound; an answer is bytes; whether the answer really went out over a
connection that was still open is known, because some hands settle by it. Handlers raise the errors of
``model/errors.py`` and never look at tokens.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, MutableMapping
from difflib import get_close_matches
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from angelia.bus.caller import OPEN, Caller
from angelia.doors.http.arriving import Arriving
from angelia.doors.http.connection import Connection, connection_of
from angelia.model.errors import BadRequest, TooLarge
from angelia.protocol.json import encode, struct

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = b"application/json"
PROBLEM = b"application/problem+json"
CALLER = "angelia.caller"
_LARGEST = 2**63 - 1  # the store's own: SQLite has no larger integer
_REAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
SMALL_BYTES = 65536  # leaves the process within a turn of the loop, when the other side reads at all


class Gone(Exception):
    """The caller closed the connection before its request was whole."""


class Call:
    """A request on its way through a handler. ``arriving``: shared by all of a hub."""

    __slots__ = ("_pairs", "answered", "arriving", "connection", "params", "receive", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send, arriving: Arriving) -> None:
        self.scope, self.receive, self.send, self.arriving = scope, receive, send, arriving
        self.connection: Connection = connection_of(scope)
        self.answered = False
        self.params: dict[str, str] = {}
        self._pairs: list[tuple[str, str]] | None = None

    @property
    def caller(self) -> Caller:
        """Who calls, as the gatehouse found out."""
        caller = self.scope.get(CALLER, OPEN)
        return caller if isinstance(caller, Caller) else OPEN

    def param(self, name: str) -> str:
        """A part of the path."""
        return self.params[name]

    def header(self, name: bytes) -> str | None:
        """A header, by its lower-case name; the first where there are several."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value.decode("latin-1"))
        return None

    def query(self, name: str) -> str | None:
        """An argument after the ``?``; None when it is not there, ``""`` when it is empty. The last of several."""
        for key, value in reversed(self._arguments()):
            if key == name:
                return value
        return None

    def only(self, known: Collection[str]) -> None:
        """Raise ``BadRequest`` where an argument has another name than these, or is there twice."""
        seen: set[str] = set()
        for name, _ in self._arguments():
            if name not in known:
                close = get_close_matches(name, known, n=1)
                takes = f"it takes {', '.join(known)}" if known else "it takes none"
                hint = f"Did you mean '{close[0]}'?" if close else f"{takes}."
                raise BadRequest(f"No argument here is called '{name[:40]}'; nothing was done. {hint}")
            if name in seen:
                raise BadRequest(f"The argument '{name}' is there twice; say it once. Nothing was done.")
            seen.add(name)

    def _arguments(self) -> list[tuple[str, str]]:
        if self._pairs is None:
            raw = self.scope["query_string"]
            try:
                pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict") if raw else []
            except ValueError:
                raise BadRequest("The query is not UTF-8, percent-encoded. Nothing was done.") from None
            self._pairs = pairs
        return self._pairs

    def number(self, name: str, kind: Callable[[str], T], default: T) -> T:
        """A numeric argument in plain ASCII; ``BadRequest`` when it is none. An integer is never below 0."""
        text = self.query(name)
        if text is None:
            return default
        if kind is int:
            # Its length first: Python refuses to read thousands of digits.
            if not (text.isascii() and text.isdigit() and len(text) <= 40 and int(text) <= _LARGEST):
                raise BadRequest(f"{name} is '{text[:40]}', which is not a whole number from 0 to {_LARGEST}.")
        elif not _REAL.fullmatch(text):
            raise BadRequest(f"{name} is '{text[:40]}', which is not a number.")
        found = kind(text)
        if found in (float("inf"), float("-inf")):
            raise BadRequest(f"{name} is '{text[:40]}', which is not a number to count with.")
        return found

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """An argument out of a few; the first is the default."""
        found = self.query(name)
        if found is None:
            return allowed[0]
        if found not in allowed:
            raise BadRequest(f"{name} is '{found[:40]}'; it is one of {', '.join(allowed)}.")
        return found

    async def body(self, most: int) -> bytes:
        """The whole body; ``TooLarge`` beyond ``most`` bytes, ``RateLimited`` where too much arrives at once by TCP."""
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                piece = message.get("body", b"")
                if piece:
                    size += len(piece)
                    self.arriving.bytes += len(piece)
                    if size > most:
                        raise TooLarge(f"The request has more than {most} bytes. Nothing was stored.", limit=most)
                    pieces.append(piece)
                if not message.get("more_body"):
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
                if not self.connection.by_socket:
                    self.arriving.check()
        finally:
            self.arriving.bytes -= size

    async def read(self, kind: type[T], most: int, depth: int) -> T:
        """The body as a request of this shape; no body is ``{}``."""
        return struct(await self.body(most) or b"{}", kind, depth)

    async def throw_away(self, most: int, seconds: float) -> None:
        """Read what is left of the body and forget it, so that a caller who still sends sees the answer."""
        if self.header(b"expect") is not None:
            return
        try:
            async with asyncio.timeout(seconds):
                while most > 0:
                    message = await self.receive()
                    most -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        return
        except TimeoutError:
            return

    async def answer(
        self, data: object, status: int = 200, *, kind: bytes = JSON, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        """Answer with JSON (or with bytes as they are)."""
        body = data if isinstance(data, bytes) else encode(data)
        self.answered = True
        start = {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *headers],
        }
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})

    async def begin(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Begin an answer that goes on."""
        self.answered = True
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Go on with it; waits while the other side takes nothing."""
        await self.send({"type": "http.response.body", "body": data, "more_body": more})

    async def handed_over(self) -> bool:
        """Whether all that was answered has left this process over a connection that was still open."""
        while unsent := self.connection.unsent():  # noqa: ASYNC110 - a transport has no event for it
            await asyncio.sleep(0 if unsent < SMALL_BYTES else 0.005)
        return not self.connection.lost_unwritten

    @property
    def is_open(self) -> bool:
        """Whether the other side is still there, as far as is known."""
        return not self.connection.lost

    async def while_there(self, work: Coroutine[object, object, T]) -> T:
        """Wait for ``work`` while the caller does; when the connection is lost it is cancelled, and ``Gone`` raised."""
        task = asyncio.current_task()
        gone = False

        def lost() -> None:
            nonlocal gone
            gone = True
            if task is not None:
                task.cancel()

        if not self.is_open:
            work.close()
            raise Gone
        self.connection.on_lost = lost
        try:
            return await work
        except asyncio.CancelledError:
            if gone and task is not None:
                task.uncancel()
                raise Gone from None
            raise
        finally:
            self.connection.on_lost = None
