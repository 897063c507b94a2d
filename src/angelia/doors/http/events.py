"""The stream of all that happens, for people who watch.

What must stay true: it takes nothing and changes nothing. A reader that is too slow for what happens is told how many
events it missed; one whose connection ends is let go at once.
"""

from angelia.bus.caller import may
from angelia.bus.core import Bus
from angelia.bus.events import LETTERS, Happening
from angelia.bus.watch import Watcher, news, watcher
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.doors.http.stream import HEADERS
from angelia.protocol import sse
from angelia.protocol.json import encode
from angelia.protocol.library import EventOut
from angelia.protocol.times import rfc3339


async def events(call: Call, bus: Bus, hub: Hub) -> None:
    """All that happens, as it happens: accepted, handed over, answered, refused …; first the ``last`` so many."""
    may(call.caller, "look_at_events")
    last_id = call.header(b"last-event-id")
    if last_id is None:
        last_id = call.query("last_event_id")
    agent = call.query("agent")
    with watcher(bus, call.number("last", int, 0), last_id, agent.lower() if agent else None) as reader:
        await call.begin(HEADERS)
        await call.while_there(_follow(call, bus, hub, reader))


async def _follow(call: Call, bus: Bus, hub: Hub, reader: Watcher) -> None:
    await call.write(sse.connected(bus.limits.retry_milliseconds))
    if reader.reset is not None:
        await call.write(sse.event(encode({"why": reader.reset}), event="reset"))
    while not bus.stopping:
        missed, found = await news(bus, reader, hub.keepalive_seconds)
        frames = [sse.event(encode({"missed": missed}), event="lagged")] if missed else []
        frames += [_frame(bus, event) for event in found]
        await call.write(b"".join(frames) or sse.KEEPALIVE)
    retry = bus.limits.retry_milliseconds
    bye = sse.event(encode({"reason": "the hub is stopping", "retry_ms": retry}), event="bye")
    await call.write(sse.retry(retry) + bye, more=False)


def _frame(bus: Bus, event: Happening) -> bytes:
    return sse.event(encode(event_out(event)), id=f"{bus.events.run}-{event.place}", event=event.what.value)


def event_out(event: Happening) -> EventOut:
    """An event in its wire shape."""
    words = event.detail.decode("utf-8", "replace") if isinstance(event.detail, bytes) else event.detail
    row = event.delivery
    if row is None:
        return EventOut(at=rfc3339(event.at), agent=event.name, detail=words or None)
    return EventOut(
        at=rfc3339(event.at),
        id=row.message_id,
        from_=row.sender,
        to=row.to,
        seq=row.seq,
        state=row.state.word,
        attempt=row.attempt,
        by=row.hand.value if row.hand is not None else None,
        reason=row.reason.value if row.reason is not None else None,
        late=row.late,
        text=words[:LETTERS] if words else None,
        cut=len(event.detail or "") > LETTERS,
    )
