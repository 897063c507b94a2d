"""One HTTP/1.1 connection: uvicorn's httptools protocol, and what that leaves unbounded.

What must stay true:

- A request's head is at most ``Patience.head_bytes`` and is there within ``head_seconds`` of the connection, or of its
  own first byte; trailers, chunk framing and the rest of a body that was refused are bounded by the same two. A
  connection that asks for nothing is closed. A stream that is being answered has no such limit: it may last for days.
- A body that somebody waits for comes at ``body_bytes`` in each ``body_seconds`` at least, or is refused. Time in which
  this side does not read is nobody's fault and does not count.
- However many requests are sent ahead on one connection, they are answered in order; beyond a bound nothing is read
  until some are. When the connection is lost every one of them hears of it (uvicorn tells only the last).
- What is no request is told why, behind the answers that are still due; only where an answer has begun that cannot be
  ended is the connection closed without a word.
- Trailers never become headers.
- An offer to upgrade to what is not spoken here (h2c, from Java's own client) is passed over and costs no body.
"""

import asyncio
import json
import sys
from collections import deque
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from angelia.doors.http.arriving import PACE_BYTES, PACE_SECONDS
from angelia.doors.http.connection import KEY, Connection, of_transport
from angelia.doors.http.parser_words import what_the_parser_says
from angelia.doors.http.way_out import WayOut

_HEADERS = 256
_SENT_AHEAD = 64
# What is parsed at once where it may be many requests: the parser cannot be stopped between two.
_PIECE_BYTES = 2048
# Of these in one turn of the loop: a head and its body; or two milliseconds, where they are all chunks of a byte.
_PIECES = 2
# How long a caller who was refused may go on sending before the connection is cut, so that the answer reaches it.
_LINGER_SECONDS, _LAST_LINGER_SECONDS = 2.0, 0.5  # and where the hub stops, which has 3 s


class Patience:
    """How much, and how long, a connection may keep us waiting."""

    __slots__ = ("body_bytes", "body_seconds", "head_bytes", "head_seconds", "idle_seconds")

    def __init__(
        self,
        *,
        head_bytes: int = 64 * 1024,
        head_seconds: float = 10,
        body_bytes: int = PACE_BYTES,
        body_seconds: float = PACE_SECONDS,
        idle_seconds: float = 75,
    ) -> None:
        """Idle is over a minute, so that who polls each minute keeps the connection."""
        self.head_bytes, self.head_seconds, self.idle_seconds = head_bytes, head_seconds, idle_seconds
        self.body_bytes, self.body_seconds = body_bytes, body_seconds


class _Flow(FlowControl):
    """uvicorn's own, for which somebody else may hold the reading back."""

    is_held = False

    def hold(self) -> None:
        """Read nothing until ``is_held`` is False and reading is resumed."""
        self.is_held = True
        self.pause_reading()

    def resume_reading(self) -> None:
        """As above, unless it is held."""
        if not self.is_held:
            super().resume_reading()


class HubProtocol(HttpToolsProtocol):
    """``HubServer`` makes one for each connection."""

    def __init__(self, config: Config, state: ServerState, patience: Patience, *, by_socket: bool) -> None:
        """``by_socket``: the connection came by the Unix socket."""
        super().__init__(config, state, {})
        self.timeout_keep_alive = patience.idle_seconds  # type: ignore[assignment]
        self._patience, self._by_socket = patience, by_socket
        self._connection = Connection(None)
        self._answering: RequestResponseCycle | None = None
        self._data: bytes | memoryview = b""
        self._unread = memoryview(b"")  # received and not yet parsed: too many requests are sent ahead
        self._body_left = 0  # of a body whose length was said: no request begins in so many bytes
        self._unused_bytes = 0  # received since the last piece of a body: held by the parser, or thrown away
        self._head_has_begun = False
        self._turn: asyncio.Handle | None = None  # in which it is parsed on
        self._late: asyncio.TimerHandle | None = None
        self._body_late: asyncio.TimerHandle | None = None
        self._body_came = 0  # bytes of a body since somebody last looked
        self._passed_over, self._linger_seconds = False, _LINGER_SECONDS
        self._refusal: tuple[int, str, str] | None = None
        self._is_deaf = self._owes_refusal = False

    # ----------------------------------------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Say in every scope, WebSocket's included, what the connection is."""
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        self._connection = of_transport(transport, by_socket=self._by_socket)
        self.app_state = {KEY: self._connection}
        self._be_patient()

    def eof_received(self) -> None:
        """The caller is going: what an answer still has to say is thrown away from here on."""
        if not self._is_deaf and not self._unread and (self._head_has_begun or self._breaks_off):
            self._refuse(400, "bad_request", "The request ended before it was whole. Nothing was done.")
        self._connection.lost_unwritten |= not self._is_idle
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request on it."""
        self._connection.lost = True
        # Without an error, what was written before the end has left.
        self._connection.lost_unwritten |= exc is not None or not self._is_idle
        if self._connection.on_lost is not None:
            self._connection.on_lost()
        self._stop_being_patient()
        self._unset_keepalive_if_required()  # uvicorn would remember one that was reset until then
        if self._turn is not None:
            self._turn.cancel()
        for cycle in [self._answering, *(cycle for cycle, _ in self.pipeline)]:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        self._unread = memoryview(b"")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse it, and see that what cannot be used yet stays small and does not take for ever."""
        if self._is_deaf:
            return
        self._unread = memoryview(b"".join((self._unread, data)) if self._unread else data)
        self._read_on()

    def _read_on(self) -> None:
        """Parse what there is, as far as there is room for more requests, and no more than others can wait for."""
        pieces = 0
        while self._unread and self._turn is None:
            if len(self.pipeline) >= _SENT_AHEAD:
                self.flow.hold()
                return
            if (pieces := pieces + 1) > _PIECES:
                self.flow.hold()
                self._turn = self.loop.call_soon(self._read_further)
                return
            most = max(_PIECE_BYTES, self._body_left)
            piece, self._unread = self._unread[:most], self._unread[most:]
            self._parse(piece)
            if self.transport.is_closing() or self._is_deaf:
                self._unread = memoryview(b"")
            elif not self._is_reading_requests:
                rest, self._unread = bytes(self._unread), memoryview(b"")
                if rest:
                    self.transport.get_protocol().data_received(rest)  # type: ignore[attr-defined]

    def _read_further(self) -> None:
        self._turn = None
        self.flow.is_held = False
        if self.transport.is_closing():
            return
        if not self.pipeline and not self._body_waits:
            self.flow.resume_reading()
        self._read_on()

    def _parse(self, data: memoryview) -> None:
        self._unused_bytes += len(data)
        self._data = data
        super().data_received(data)  # type: ignore[arg-type]  # the parser takes any buffer
        self._data = b""
        if self.transport.is_closing() or self._is_deaf:
            return
        if self._unused_bytes > self._patience.head_bytes and self._is_reading_requests:
            self._refuse(431, "too_large", f"The head of a request has at most {self._patience.head_bytes} bytes.")
        elif self._is_reading_requests and self._is_idle and self.timeout_keep_alive_task is None:
            self._be_patient()
        if self._body_late is None and self._is_reading_requests and self._breaks_off:
            self._watch_the_body()

    @property
    def _body_waits(self) -> bool:
        """Whoever answers has not taken what is here of the body."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and len(cycle.body) > HIGH_WATER_LIMIT

    @property
    def _is_idle(self) -> bool:
        """Nothing is being answered."""
        return self._answering is None or self._answering.response_complete

    @property
    def _is_reading_requests(self) -> bool:
        """False once the bytes belong to another protocol, a WebSocket's."""
        return self.transport.get_protocol() is self

    @property
    def _breaks_off(self) -> bool:
        """The request that was begun last is not whole, so that what is wrong now is wrong in it."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.more_body and not cycle.response_complete

    # -------------------------------------------------------------------------------------------- the parser's news

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_has_begun = True

    def on_headers_complete(self) -> None:
        """The head is whole: refuse it, or start on the request."""
        self._head_has_begun = False
        self._stop_being_patient()
        self._refusal = self._what_is_wrong()
        if self._refusal is not None:
            raise ValueError(self._refusal[2])  # stops the parser, which calls send_400_response
        self._body_left = 0
        if self.parser.should_upgrade() and not self._should_upgrade():
            self._passed_over = True
            return
        super().on_headers_complete()
        self._body_left = next((int(value) for name, value in self.headers if name == b"content-length"), 0)
        if not self.parser.should_upgrade():
            self.headers = []  # the scope keeps the list there was: trailers go into this one, and nowhere else
            if not self.cycle.keep_alive:
                self.cycle.transport = _Parting(self, self.transport)  # type: ignore[assignment]

    def _what_is_wrong(self) -> tuple[int, str, str] | None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._patience.head_bytes or len(self.headers) > _HEADERS:
            bounds = f"{self._patience.head_bytes} bytes and {_HEADERS} lines"
            return 431, "too_large", f"The head of a request has at most {bounds}."
        for name, value in self.headers:
            if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                return 400, "bad_request", "The only Transfer-Encoding here is chunked. Nothing was done."
        if self.parser.get_method() == b"CONNECT" or not self.url.startswith((b"/", b"*")):
            return 400, "bad_request", "This is no proxy: ask for a path, such as /health. Nothing was done."
        return None

    def on_body(self, body: bytes) -> None:
        """A piece of a body; the application bounds the whole."""
        self._unused_bytes = 0
        self._body_left = max(0, self._body_left - len(body))
        self._body_came += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._unused_bytes = self._body_left = 0
        self._stop_being_patient()
        if not self._passed_over:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        if cycle.scope["method"] != "HEAD":
            cycle.transport = WayOut(self.transport)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Go on with what was sent ahead, and behind it with what was wrong."""
        self.flow.is_held = self._turn is not None
        super().on_response_complete()
        if self._is_deaf:
            if self._owes_refusal and self._is_idle:
                self._answer_refusal()
        elif self._unread and not self.transport.is_closing():
            self._read_on()

    def _unsupported_upgrade_warning(self) -> None:
        """The parser stopped behind a head that asks for an upgrade: have it read again without that.

        Called while ``HttpParserUpgrade`` is handled, which says where in the last data the parser stopped.
        """
        stopped = sys.exception()
        rest = self._data[stopped.args[0] :] if isinstance(stopped, httptools.HttpParserUpgrade) else b""
        version = self.parser.get_http_version().encode()
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/", version, b"\r\n"]
        for name, value in self.headers:
            if name == b"connection":
                words = [word.strip() for word in value.split(b",")]
                value = b", ".join(word for word in words if word.lower() not in (b"upgrade", b"http2-settings"))
            if name not in (b"upgrade", b"http2-settings") and value:
                head += [name, b": ", value, b"\r\n"]
        self._passed_over = False
        self._unused_bytes = 0
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._unread = memoryview(b"".join([*head, b"\r\n", rest, self._unread]))

    # ------------------------------------------------------------------------------------------ patience and refusals

    def _be_patient(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self._patience.head_seconds, self._is_too_late)

    def _stop_being_patient(self) -> None:
        for timer in (self._late, self._body_late):
            if timer is not None:
                timer.cancel()
        self._late = self._body_late = None

    def _is_too_late(self) -> None:
        self._late = None
        if self._head_has_begun:
            seconds = self._patience.head_seconds
            self._refuse(408, "bad_request", f"The head of the request was not there within {seconds:g} s.")
        else:
            self.transport.close()

    def _watch_the_body(self) -> None:
        self._body_came = 0
        self._body_late = self.loop.call_later(self._patience.body_seconds, self._look_at_the_body)

    def _look_at_the_body(self) -> None:
        self._body_late = None
        if not self._breaks_off or self.cycle.response_started:
            return
        if self._body_came >= self._patience.body_bytes or self.flow.read_paused:
            self._watch_the_body()
            return
        bounds = f"{self._patience.body_bytes} bytes in {self._patience.body_seconds:g} s"
        self._refuse(408, "bad_request", f"The body of a request comes at {bounds} at least. Nothing was done.")

    def shutdown(self) -> None:
        """The hub stops: what is not whole by now is not waited for."""
        super().shutdown()
        self._linger_seconds = _LAST_LINGER_SECONDS
        if self._breaks_off and not self.cycle.response_started:
            self._refuse(503, "stopping", "The hub is stopping, and the request was not whole.")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        self._refusal = (status, code, detail)
        self.send_400_response(detail)

    def send_400_response(self, msg: str) -> None:
        """Answer what never became a whole request, once what was asked before it is answered."""
        if self._is_deaf or self.transport.is_closing():
            return
        self._is_deaf = True
        if self._refusal is None:
            self._refusal = (400, "bad_request", what_the_parser_says(sys.exception()))
        if self._breaks_off:
            broken = self.cycle
            broken.disconnected = True
            broken.message_event.set()
            if broken is self._answering:
                self._connection.lost_unwritten = True
                if broken.response_started:
                    self.transport.close()
                else:
                    self._answer_refusal()
                return
            self.pipeline = deque(item for item in self.pipeline if item[0] is not broken)
        if self._is_idle:
            self._answer_refusal()
        else:
            self._owes_refusal = True

    def _answer_refusal(self) -> None:
        assert self._refusal is not None
        self._owes_refusal = False
        self._unset_keepalive_if_required()
        status, code, detail = self._refusal
        problem = {"type": "about:blank", "title": "The request was refused", "status": status, "code": code}
        body = json.dumps({**problem, "detail": detail}).encode()
        head = b"content-type: application/problem+json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.part()

    def part(self) -> None:
        """Close so that the last answer arrives: who closes on a caller that still sends takes it from him again."""
        self._is_deaf = True
        if self._refusal is None and self._answering is not None and not self._answering.more_body:
            self.transport.close()
        elif self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(self._linger_seconds, self.transport.abort)
        else:
            self.transport.close()


class _Parting:
    """What uvicorn writes the last answer of a connection to; its ``close`` is the protocol's."""

    def __init__(self, protocol: HubProtocol, transport: asyncio.Transport) -> None:
        self._protocol = protocol
        self.write, self.is_closing = transport.write, transport.is_closing

    def close(self) -> None:
        self._protocol.part()
