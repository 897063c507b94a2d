"""The life of one stream connection: begin, write what the bus hands over, keep alive, end.

What must stay true: a stream that should come back is never answered with anything but 200; what is written is told to
the bus only after the connection took it, so that a reader who has gone is noticed; the connection's end, whichever
way it comes, detaches the stream.
"""

import random
from collections.abc import Callable, Sequence

from angelia.bus.caller import may
from angelia.bus.core import Bus
from angelia.bus.ports import Parcel
from angelia.bus.streams import Stream
from angelia.bus.subscribe import (
    End,
    Item,
    KeepAlive,
    Mail,
    Reset,
    Transient,
    attach,
    check_window,
    detach,
    next_items,
    wrote,
)
from angelia.doors.http.call import Call
from angelia.doors.http.connection import TOKEN_ENDED, Connection
from angelia.doors.http.hub import Hub
from angelia.doors.http.mailbox import reader_of, taken_out
from angelia.model.address import check_handle
from angelia.model.delivery import Hand
from angelia.model.errors import RateLimited, Stopping
from angelia.protocol import native, sse
from angelia.protocol.json import encode
from angelia.protocol.seed_bus import show, show_transient

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]
BUSY_RETRY_MS = 10_000
SPREAD_MS = 6_000  # clients that were cut at once come back spread over this
# Why a stream ends with goodbye, and what to do, by ``Stream.ended``; docs/protocol/streams.md lists them.
GOODBYES = {
    "bye": "the hub is stopping",
    "keyed": "its name is keyed now: come back with its token",
    "removed": "its name was removed here: if it was keyed, it takes a new token (angelia join)",
    "revoked": "a token of its name was revoked: come back with one that is good",
    "token": TOKEN_ENDED,
}

Encoder = Callable[[Mail | Transient], bytes]


async def subscribe(call: Call, bus: Bus, hub: Hub) -> None:
    """The seed's stream: payloads with ``_meta``, settled when written."""
    may(call.caller, "read")
    name = reader_of(call, bus, call.query("agent"))

    def frame(item: Mail | Transient) -> bytes:
        if isinstance(item, Transient):
            return show_transient(item.envelope)
        return show(item.parcel.envelope, item.parcel.delivery, again=item.again)

    await _serve(call, bus, name, Hand.AUTO, frame, observer=False)


async def stream(call: Call, bus: Bus, hub: Hub) -> None:
    """The native stream of an agent: its own (auto or manual acks), or one that only looks on."""
    may(call.caller, "read")
    name = reader_of(call, bus, check_handle(call.param("handle")))
    manual = call.choice("ack", ("auto", "manual")) == "manual"
    observer = call.choice("mode", ("own", "observe")) == "observe"

    def frame(item: Mail | Transient) -> bytes:
        if isinstance(item, Transient):
            return encode(native.NoticeOut(message=native.message_out(item.envelope), transient=True))
        return encode(taken_out(bus, item.parcel, again=item.again, leased=manual))

    window = call.number("window", int, bus.limits.manual_window_deliveries) if manual else None
    await _serve(call, bus, name, Hand.MANUAL if manual else Hand.AUTO, frame, observer=observer, window=window)


async def _serve(
    call: Call, bus: Bus, name: str, hand: Hand, encoder: Encoder, *, observer: bool, window: int | None = None
) -> None:
    last_id = call.header(b"last-event-id")
    if last_id is None:
        last_id = call.query("last_event_id")
    check_window(bus, hand, window)
    await call.begin(HEADERS)
    opened: Stream | None = None
    try:
        try:
            opened = await attach(bus, name, hand, call.connection, last_id, observer=observer, window=window)
        except (Stopping, RateLimited) as error:
            await call.write(_turned_away(error), more=False)
            return
        call.connection.on_lost = lambda: _end(opened, "gone")
        call.connection.on_shown_out = lambda: _end(opened, "token")
        if not call.is_open:
            _end(opened, "gone")
        await _write(call, bus, opened, sse.connected(bus.limits.retry_milliseconds), ())
        if call.connection.transport is not None:
            opened.door = _ShortWay(call.connection, bus, opened, encoder)
        while await _write_next(call, bus, opened, encoder):
            pass
    finally:
        call.connection.on_lost = call.connection.on_shown_out = None
        if opened is not None:
            opened.door = None
            await detach(bus, opened)


def _end(stream: Stream | None, why: str) -> None:
    if stream is not None:
        stream.end(why)


async def _write_next(call: Call, bus: Bus, stream: Stream, encoder: Encoder) -> bool:
    """Write what there is; False when the stream is over."""
    items = await next_items(bus, stream)
    data = b"".join([_frame(bus, item, encoder) for item in items])
    last = items[-1]
    if isinstance(last, End):
        if last.why != "gone":
            await call.write(data, more=False)
        return False
    await _write(call, bus, stream, data, items)
    return True


async def _write(call: Call, bus: Bus, stream: Stream, data: bytes, items: Sequence[Item]) -> None:
    await call.write(data)
    wrote(bus, stream, [item.parcel for item in items if isinstance(item, Mail) and not item.again], len(data))


class _ShortWay:
    """Of what arrives while the stream waits for it: no task is woken."""

    def __init__(self, connection: Connection, bus: Bus, stream: Stream, encoder: Encoder) -> None:
        self._bus, self._stream, self._encoder = bus, stream, encoder
        self.write = connection.write_chunk

    def frame(self, parcel: Parcel | None) -> bytes:
        return _frame(self._bus, KeepAlive() if parcel is None else Mail(parcel), self._encoder)

    def wrote(self, parcel: Parcel | None, size: int) -> None:
        wrote(self._bus, self._stream, () if parcel is None else (parcel,), size)


def _frame(bus: Bus, item: Item, encoder: Encoder) -> bytes:
    if isinstance(item, Mail):
        return sse.event(encoder(item), id=f"{bus.store.epoch}-{item.parcel.delivery.seq}")
    if isinstance(item, Transient):
        return sse.event(encoder(item))
    if isinstance(item, Reset):
        return sse.event(encode(item.data), event="reset")
    if isinstance(item, KeepAlive):
        return sse.KEEPALIVE
    if (reason := GOODBYES.get(item.why)) is not None:
        back = bus.limits.retry_milliseconds + random.randrange(SPREAD_MS)
        return sse.retry(back) + sse.event(encode({"reason": reason, "retry_ms": back}), event="bye")
    if item.why == "gone":
        return b""
    return sse.event(encode({"reason": "another stream of this agent took over"}), event=item.why)


def _turned_away(error: Stopping | RateLimited) -> bytes:
    """The answer where no stream can be had now: a 200 that ends, so that every client comes back."""
    back = BUSY_RETRY_MS + random.randrange(SPREAD_MS)
    return sse.retry(back) + sse.event(
        encode({"reason": error.detail, "code": error.code, "retry_ms": back}), event="bye"
    )
