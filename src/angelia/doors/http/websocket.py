"""One WebSocket connection: uvicorn's protocol over the sans-I/O core of ``websockets``, and what that leaves open.

What must stay true: whoever uses the connection hears of its end, whichever way it comes. A peer that answers no ping
is cut off at once, also where bytes for it are still waiting. A message costs no more memory than its bytes, in however
many frames it comes; pings cost none: one that finds earlier bytes unread has no answer, as the standard allows. Frames
that come by the thousand are read a few in each turn of the loop, so that everybody else has a turn in between; and
where they are small, one such connection after another, with pauses, so that everybody else has the interpreter, too.
Whoever was not let in yet sends little in all, whatever it begins; a message that is not whole is bounded in time and
together with all others (``arriving.py``). Beyond that its sender is told so, and the connection closed. What is no
handshake is refused as every request is that is wrong.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from angelia.bus.beat import PING_SECONDS, to_beat
from angelia.doors.http.arriving import FREE_BYTES, PACE_BYTES, PACE_SECONDS, Growing
from angelia.doors.http.call import PROBLEM
from angelia.doors.http.connection import KEY, TOKEN_ENDED, Connection
from angelia.doors.http.problem import as_dict
from angelia.doors.http.trickle import trickle_of
from angelia.model.errors import BadRequest
from angelia.protocol.json import encode

GOODBYE_SECONDS = 0.2  # some turns of the loop, with a thousand of them
_PIECE_BYTES = 2048  # parsed in one turn of the loop: a millisecond, where they are three hundred empty frames
# That come in a piece, or in a millisecond, before there is a pause: more calls than a hub answers in it, and whatever
# is sent at full speed by those who mean it comes in larger ones.
_FRAMES = 16
_COUNT_SECONDS = 0.001
STRANGERS_BYTES = 64 * 1024  # in all, until it is let in: as a request's head; that, a hello and a proof are some 3 KiB
_LINGER_SECONDS = 2.0  # that a stranger who is refused may go on sending, so that the answer reaches it; as with HTTP


class _Handshakes(ServerProtocol):
    """That says in a problem what is wrong with one."""

    def accept(self, request: Request) -> Response:
        """The answer to a handshake."""
        answer = super().accept(request)
        if answer.status_code in (HTTPStatus.SWITCHING_PROTOCOLS, HTTPStatus.INTERNAL_SERVER_ERROR):
            return answer
        problem = BadRequest(f"The WebSocket cannot be opened: {self.handshake_exc}.")
        refusal = self.reject(problem.status, encode(as_dict(problem)).decode())
        del refusal.headers["Content-Type"]
        refusal.headers["Content-Type"] = PROBLEM.decode()
        return refusal


class HubWebSocket(WebSocketsSansIOProtocol):
    """What a ``HubProtocol`` hands an upgraded connection to."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        """As uvicorn's."""
        super().__init__(config, server_state, app_state)
        self.conn = _Handshakes(max_size=config.ws_max_size, logger=self.conn.logger)
        self._unread = bytearray()  # received, and not yet parsed
        self._turn: asyncio.Handle | None = None
        self._frames, self._counted_since = 0, 0.0
        self._trickle = trickle_of(self.loop)
        self._of_stranger = 0  # bytes that came before it was let in
        self._slow: asyncio.TimerHandle | None = None  # looks whether a message goes on coming
        self._is_refused = False
        if (connection := self._connection) is not None:
            connection.on_shown_out = lambda: self._refuse(CloseCode.POLICY_VIOLATION, TOKEN_ENDED)

    def data_received(self, data: bytes) -> None:
        """Parse a piece, and the rest in later turns; nothing more is read until then."""
        if self._is_refused:
            return
        if (connection := self._connection) is not None and not connection.let_in:
            self._of_stranger += len(data)
            if self._of_stranger > STRANGERS_BYTES:
                self._refuse(CloseCode.MESSAGE_TOO_BIG, f"prove who you are first, within {STRANGERS_BYTES} bytes")
                return
        self._unread += data
        if not self._goes_on and not self.read_paused:
            self._parse()
        elif not self.transport.is_closing():
            self.transport.pause_reading()

    @property
    def _connection(self) -> Connection | None:
        found = self.app_state.get(KEY)
        return found if isinstance(found, Connection) else None

    def _refuse(self, code: CloseCode, why: str) -> None:
        """Say why, and throw away what is here and what still comes."""
        self._is_refused = True
        self._unread.clear()
        self._ended()
        if not self.handshake_complete:
            self._cut_off()
        elif not self.close_sent:
            self.conn.fail(code, why)
            self.queue.put_nowait({"type": "websocket.disconnect", "code": code})
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.transport.resume_reading()
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.close_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    @property
    def _goes_on(self) -> bool:
        """In a later turn, by itself."""
        return self._turn is not None or self._trickle.has(self._go_on)

    def _parse(self) -> None:
        piece = bytes(self._unread[:_PIECE_BYTES])
        del self._unread[:_PIECE_BYTES]
        super().data_received(piece)
        if (connection := self._connection) is not None and connection.growing is not None:
            self._look_at(connection.growing)
        if not self.read_paused and not self._is_refused:
            self._read_on()

    @property
    def _begun_bytes(self) -> int:
        """Of a message that is not whole."""
        return len(self.conn.reader.buffer) + sum(map(len, self.frames))

    def _look_at(self, growing: Growing) -> None:
        if growing.is_too_much(self._begun_bytes):
            self._refuse(
                CloseCode.TRY_AGAIN_LATER, "too much has come that is not whole; try again, or in smaller parts"
            )
        elif growing.counted and self._slow is None:
            self._slow = self.loop.call_later(PACE_SECONDS, self._go_on_coming, self._begun_bytes)
        elif not growing.counted:
            self._is_whole()

    def _go_on_coming(self, before: int) -> None:
        """A message has to; time in which this side does not read is nobody's fault."""
        here = self._begun_bytes
        if here - before < PACE_BYTES and not self.read_paused and not self._goes_on:
            bounds = f"{PACE_BYTES} bytes in {PACE_SECONDS:g} s"
            self._refuse(CloseCode.POLICY_VIOLATION, f"a message larger than {FREE_BYTES} bytes comes at {bounds}")
        else:
            self._slow = self.loop.call_later(PACE_SECONDS, self._go_on_coming, here)

    def _is_whole(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _ended(self) -> None:
        """Nothing more comes of a message that has begun."""
        self.frames = []
        self.conn.reader.buffer.clear()
        self._is_whole()
        if (connection := self._connection) is not None and connection.growing is not None:
            connection.growing.is_too_much(0)

    def _read_on(self) -> None:
        if self.transport.is_closing():
            return
        if self._frames > _FRAMES:
            self._frames = 0
            self.transport.pause_reading()
            self._trickle.join(self._go_on)
        elif self._unread:
            self.transport.pause_reading()
            self._turn = self.loop.call_soon(self._go_on)
        else:
            self.transport.resume_reading()

    def _go_on(self) -> None:
        self._turn = None
        if self._unread:
            self._parse()
        else:
            self._read_on()

    def handle_events(self) -> None:
        """Count them."""
        if (now := self.loop.time()) - self._counted_since >= _COUNT_SECONDS:
            self._frames, self._counted_since = 0, now
        self._frames += len(self.conn.events)
        super().handle_events()

    async def receive(self) -> ASGIReceiveEvent:
        """The next message; when there is none, go on reading."""
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            if not self._goes_on:
                self._read_on()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever uses it."""
        connection = self.app_state.get(KEY)
        if isinstance(connection, Connection):
            connection.lost = True
            connection.lost_unwritten |= exc is not None
            if connection.on_lost is not None:
                connection.on_lost()
        if self._turn is not None:
            self._turn.cancel()
        self._trickle.leave(self._go_on)
        self._unread.clear()
        self._ended()
        super().connection_lost(exc)

    def handle_cont(self, event: Frame) -> None:
        """Another piece of a message, put to those that are here."""
        whole: Any = self.frames[0]
        if isinstance(whole, bytes):
            self.frames[0] = whole = bytearray(whole)  # type: ignore[call-overload]  # as good as bytes to its reader
        whole += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Answer, where the other side has read what there was."""
        pong = b"".join(self.conn.data_to_send())
        if not self.transport.get_write_buffer_size():
            self.transport.write(pong)

    async def send(self, message: ASGISendEvent) -> None:
        """A refusal in HTTP completes the handshake, too; uvicorn would log it as a fault."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True

    def handle_parser_exception(self) -> None:
        """What came is no frame, or too large a one."""
        if self.conn.close_sent is None:
            self._cut_off()
        else:
            super().handle_parser_exception()

    def _cut_off(self) -> None:
        """For what came ahead of the handshake: no frame can tell of it, and no answer fits any more."""
        self.disconnected = True
        self.transport.abort()

    def shutdown(self) -> None:
        """The hub stops: close it once those who are on it have had a moment to say goodbye."""
        self.loop.call_later(GOODBYE_SECONDS, self._shut)

    def _shut(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def schedule_ping(self) -> None:
        """Ping at the next beat, as all others are."""
        self.ping_timer = self.loop.call_later(to_beat(self.loop.time(), PING_SECONDS), self.send_keepalive_ping)

    def keepalive_timeout(self) -> None:
        """Whoever does not answer does not read a goodbye either."""
        super().keepalive_timeout()
        self.transport.abort()
