"""The life of a stream in the bus: attach, catch up, wait, detach.

What must stay true: attaching, taking over and detaching are units, so each has one place in the order of commits;
every delivery leased to a stream is settled by it, or goes back when it ends. What a reader sees only rises in ``seq``:
first the copies that it asked to see again, then what waits, then what arrives.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from angelia.bus.announce import connected, disconnected
from angelia.bus.claim import settle_written, take
from angelia.bus.core import Bus
from angelia.bus.events import What
from angelia.bus.moves import move, put_back
from angelia.bus.ports import Parcel, Scope, Tx, View
from angelia.bus.push import keep
from angelia.bus.streams import Connection, Stream, reserve
from angelia.bus.turnstile import ROW_BYTES
from angelia.model.delivery import Delivery, Event, Hand, State
from angelia.model.envelope import Envelope
from angelia.model.errors import BadRequest, RateLimited

STREAM_HANDS = (Hand.AUTO, Hand.MANUAL)
PAGE = 100
PAGE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mail:
    """A delivery for the reader; ``again``: a copy of a settled one, without a lease."""

    parcel: Parcel
    again: bool = False


@dataclass(frozen=True, slots=True)
class Transient:
    """A notice that is not stored and has no id to resume from."""

    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Reset:
    """The id that was asked for cannot be resumed from; everything that there is follows."""

    data: dict[str, object]


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Nothing happened for a while."""


@dataclass(frozen=True, slots=True)
class End:
    """The stream is over; why, as ``Stream.ended`` has it."""

    why: str


Item = Mail | Transient | Reset | KeepAlive | End


def check_room(bus: Bus, mailbox: str) -> None:
    """Raise ``RateLimited`` where no further stream fits; before anything is opened."""
    bus.check_running()
    limits = bus.limits
    if bus.streams.count >= limits.streams:
        raise RateLimited(f"{limits.streams} streams are open.", limit=limits.streams)
    if len(bus.streams.of(mailbox)) >= limits.streams_per_agent:
        raise RateLimited(f"{limits.streams_per_agent} streams are open for it.", limit=limits.streams_per_agent)


def check_window(bus: Bus, hand: Hand, window: int | None) -> int:
    """How many deliveries a stream may hold: what is asked for, or the limit; ``BadRequest`` beyond it."""
    most = bus.limits.manual_window_deliveries if hand is Hand.MANUAL else bus.limits.stream_window_deliveries
    if window is not None and not 1 <= window <= most:
        raise BadRequest(f"window is {window}; it lies between 1 and {most}.")
    return window or most


async def attach(
    bus: Bus,
    name: str,
    hand: Hand,
    connection: Connection,
    last_event_id: str | None,
    *,
    observer: bool = False,
    window: int | None = None,
) -> Stream:
    """Open a stream for ``name``; an agent's own one takes over from an older one. Call ``detach`` whatever happens.

    ``window``: how many deliveries a manual stream's reader wants at a time, at most the limit; one that works on them
    one by one takes 1, so that its end costs no attempt of those that it has not begun.
    """
    stream = Stream(
        mailbox=name.lower(),
        name=name,
        hand=hand,
        connection=connection,
        window=check_window(bus, hand, window),
        window_bytes=bus.limits.stream_window_bytes,
        opened_at=bus.clock.now(),
        observer=observer,
        quiet_since=bus.clock.monotonic(),
    )
    check_room(bus, stream.mailbox)
    bus.streams.add(stream)
    try:
        if observer:
            await bus.store.read(lambda view: _resume(bus, view, stream, last_event_id))
        else:
            await bus.turnstile.write(bus.store, lambda tx: _take_over(bus, tx, stream, last_event_id), 0)
    except BaseException:
        await detach(bus, stream)
        raise
    return stream


def _take_over(bus: Bus, tx: Tx, stream: Stream, last_event_id: str | None) -> None:
    mailbox = stream.mailbox
    bus.directory.learn(tx, stream.name, bus.clock.now(), member=True, most=bus.limits.open_names)
    old = bus.streams.attached.get(mailbox)
    seen = _resume(bus, tx, stream, last_event_id)
    put_back(bus, tx, tx.leased(mailbox, STREAM_HANDS), Event.RELEASE, used=False)
    for delivery in tx.returned(mailbox, Hand.AUTO, tx.handed_high(mailbox)):
        if delivery.seq > seen:
            # This reader has not seen it. A later id of its own must not settle it before it is handed over again.
            tx.move(delivery, delivery._replace(hand=None))
        elif (envelope := tx.message(delivery.message_id)) is not None:
            move(bus, tx, Parcel(delivery, envelope), Event.LATE_ACK)
    bus.streams.attach(tx, mailbox, stream)

    def swap() -> None:
        bus.events.note(What.CONNECTED, bus.clock.now(), stream.name, "took over" if old is not None else None)
        if old is not None:
            bus.presence.took_over(stream.mailbox, bus.clock.monotonic())
            old.end("superseded")
        else:
            connected(bus, stream)

    tx.then(swap)


def _resume(bus: Bus, view: View, stream: Stream, last_event_id: str | None) -> int:
    """Set what the stream replays; the seq that its reader has seen (0: none)."""
    high = view.handed_high(stream.mailbox)
    stream.replay_after = stream.replay_upto = high
    if last_event_id is None or last_event_id == "":
        stream.ready = True
        return 0
    since = bus.clock.now() - bus.limits.replay_seconds * 1000
    floor = view.replay_floor(stream.mailbox, since, bus.limits.replay_deliveries)
    seen, why = _read_id(bus.store.epoch, last_event_id, floor, high)
    if why is not None:
        first = view.history(stream.mailbox, floor - 1, high, 1, PAGE_BYTES)
        earliest = f"{bus.store.epoch}-{first[0].delivery.seq}" if first else None
        stream.reset = {"asked": last_event_id[:80], "earliest": earliest, "why": why}
        stream.replay_after = floor - 1
        return 0
    stream.replay_after = seen
    stream.ready = seen >= high
    return seen


def _read_id(epoch: str, text: str, floor: int, high: int) -> tuple[int, str | None]:
    """The seq of a ``Last-Event-ID``, and why it cannot be resumed from, if so."""
    theirs, dash, number = text.partition("-")
    if not dash or not (number.isascii() and number.isdigit()) or len(number) > 18:
        return 0, "That is no id of this hub."
    if theirs != epoch:
        return 0, "That id belongs to another store: this one was restored or replaced."
    seq = int(number)
    if seq > high:
        return 0, "No such id was ever handed out here."
    if seq < floor - 1:
        return 0, "That id is older than replay reaches back."
    return seq, None


async def detach(bus: Bus, stream: Stream) -> None:
    """The stream is over: what was not settled goes back, at once and in its place. Never raises, never waits.

    Only a break uses up attempts, and only of what was written; a stream that the hub itself ended uses up none.
    """
    broke = stream.ended in (None, "gone", "lagged") and not bus.stopping
    stream.end("gone")
    bus.streams.remove(stream)
    if stream.observer:
        return

    def unit(tx: Tx) -> None:
        if bus.streams.attached.get(stream.mailbox) is not stream:
            return
        seen, unseen = list[Delivery](), list[Delivery]()
        for delivery in tx.leased(stream.mailbox, STREAM_HANDS):
            reached = broke and stream.handed.get(delivery.key) == delivery.attempt
            (seen if reached else unseen).append(delivery)
        put_back(bus, tx, seen, Event.LAPSE, used=True)
        put_back(bus, tx, unseen, Event.RELEASE, used=False)
        bus.streams.attach(tx, stream.mailbox, None)
        tx.then(lambda: _left(bus, stream))

    bus.submit(unit, weight=(len(stream.handed) + len(stream.buffer)) * ROW_BYTES)


def _left(bus: Bus, stream: Stream) -> None:
    disconnected(bus, stream)
    bus.runs.signals.wake(stream.mailbox)
    bus.events.note(What.DISCONNECTED, bus.clock.now(), stream.name)


async def next_items(bus: Bus, stream: Stream) -> list[Item]:
    """What to write next; waits until there is something. ``End`` is the last item of a stream."""
    while True:
        if stream.reset is not None:
            reset, stream.reset = stream.reset, None
            return [Reset(reset)]
        if stream.ended == "gone":
            return [End("gone")]
        if stream.replay_after < stream.replay_upto and stream.ended is None:
            if page := await _replay(bus, stream):
                return page
            continue
        if not stream.ready and not stream.observer:
            stream.ready = True
        items: list[Item] = [Transient(stream.transient.popleft()) for _ in range(len(stream.transient))]
        if stream.ended is not None:
            return [*items, End(stream.ended)]
        items += [Mail(stream.buffer.popleft()) for _ in range(len(stream.buffer))]
        if items:
            return items
        waiter = stream.waiter()  # nothing was waited for since the first look, so nothing was missed
        if stream.observer:
            if page := await _observe(bus, stream):
                return page
        elif stream.room() > 0 and bus.store.load(stream.mailbox).ready and stream.mailbox not in bus.runs.busy:
            await _fetch(bus, stream)
            continue
        if stream.keepalive_due:
            stream.keepalive_due = False
            bus.streams.wrote(stream, 0, bus.clock.monotonic())  # whatever the door makes of it
            return [KeepAlive()]
        await waiter


async def _replay(bus: Bus, stream: Stream) -> list[Item]:
    after, upto = stream.replay_after, stream.replay_upto
    page = await bus.store.read(lambda view: view.history(stream.mailbox, after, upto, PAGE, PAGE_BYTES))
    stream.replay_after = page[-1].delivery.seq if page else upto
    return [Mail(parcel, again=True) for parcel in page]


async def _observe(bus: Bus, stream: Stream) -> list[Item]:
    """What came into the mailbox since the observer last looked, whatever became of it."""
    after = stream.replay_upto
    everything = frozenset(State)
    page = await bus.store.read(lambda view: view.inbox(stream.mailbox, after, PAGE, everything, None))
    if page.parcels:
        stream.replay_after = stream.replay_upto = page.parcels[-1].delivery.seq
    return [Mail(parcel, again=True) for parcel in page.parcels]


async def _fetch(bus: Bus, stream: Stream) -> None:
    """Take what waits into the stream's window."""

    def unit(tx: Tx) -> None:
        if bus.streams.attached.get(stream.mailbox) is not stream or stream.ended is not None:
            return
        parcels = take(bus, tx, Scope(mailbox=stream.mailbox), stream.room(), stream.hand, stream.room_bytes())
        reserve(tx, [(stream, parcel.delivery.size) for parcel in parcels])
        tx.then(lambda: keep(bus, stream, parcels))

    await bus.turnstile.write(bus.store, unit, min(stream.room_bytes(), bus.store.load(stream.mailbox).bytes))


def wrote(bus: Bus, stream: Stream, parcels: Iterable[Parcel], size: int) -> None:
    """The door wrote these, ``size`` bytes in all: an auto stream's are settled in the next commit."""
    bus.streams.wrote(stream, size, bus.clock.monotonic())
    settles = False
    for parcel in parcels:
        delivery = parcel.delivery
        if delivery.state is not State.LEASED:
            continue  # a copy settles nothing
        stream.handed[delivery.key] = delivery.attempt
        if stream.hand is Hand.AUTO:
            stream.free(delivery.size)
            bus.autos.add(parcel, stream, stream.written)
            settles = True
    if settles:
        settle_written(bus)
