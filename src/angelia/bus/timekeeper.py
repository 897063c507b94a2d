"""What happens by time alone: ends of leases, times to live, retention, keep-alives, and cutting readers that stall.

What must stay true: everything settles. The sweep finds by the store's own index what is due, in bounded batches, so
that a lost wake-up or a missed reminder costs at most a sweep. Nothing here depends on the wall clock being right.
"""

from angelia.bus.agents import forget_idle
from angelia.bus.claim import expire
from angelia.bus.core import Bus, log
from angelia.bus.forward import offer_again_or_end
from angelia.bus.moves import move
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Tx
from angelia.bus.streams import Stream
from angelia.model.delivery import Event, State
from angelia.model.envelope import Intent
from angelia.model.failure import Reason

SWEEP_BATCH = 256
SICK_STORE_SECONDS = 3.0  # until the next sweep after one that failed
PATROL_SECONDS = 1.0
FORGET_SECONDS = 3600.0  # between two looks for names that nobody uses any more


async def keep_time(bus: Bus, keepalive_seconds: float) -> None:
    """Run until the bus stops."""
    sweep_at = bus.clock.monotonic()
    forget_at = sweep_at + FORGET_SECONDS  # by then everyone is back who was here before a restart
    while not bus.stopping:
        poked = bus.timers.poked()
        now = bus.clock.monotonic()
        bus.timers.fire(now)
        if now >= sweep_at:
            sweep_at = now + await sweep(bus)
        if now >= forget_at:
            forget_at = now + FORGET_SECONDS
            forget_idle(bus)
        bus.directory.end_visits(bus.clock.now())
        if bus.streams.count:
            patrol(bus, now, keepalive_seconds)
        until = min(sweep_at, bus.timers.next() or sweep_at)
        if bus.streams.count:
            until = min(until, now + PATROL_SECONDS)
        await bus.clock.wait(poked, max(until - bus.clock.monotonic(), 0))


async def sweep(bus: Bus) -> float:
    """Settle a batch of what time has come for; seconds until the next look."""
    now = bus.clock.now()
    try:
        count, following = await bus.store.write(lambda tx: _sweep(bus, tx, now), essential=True)
    except Exception:  # noqa: BLE001 - the store is unwell and says so itself; the next sweep tries again
        return SICK_STORE_SECONDS
    if count >= SWEEP_BATCH:
        return 0.0
    if following is None:
        return PATROL_SECONDS
    return min(max((following - now) / 1000, 0.05), PATROL_SECONDS)


def _sweep(bus: Bus, tx: Tx, now: int) -> tuple[int, int | None]:
    due = tx.due(now, SWEEP_BATCH)
    for parcel in due:
        _settle_by_time(bus, tx, parcel)
    return len(due), tx.next_sweep()


def _settle_by_time(bus: Bus, tx: Tx, parcel: Parcel) -> None:
    state = parcel.delivery.state
    if state in (State.QUEUED, State.HELD):
        expire(bus, tx, parcel)
    elif state is State.FORWARDED:
        offer_again_or_end(bus, tx, parcel)
    elif state is State.DELIVERED and parcel.envelope.intent is Intent.REQUEST and parcel.delivery.reason is None:
        done = move(bus, tx, parcel, Event.UNANSWERED)
        if done is not None:
            tell_of_failure(bus, tx, done, Reason.DELIVERY_TIMEOUT)
    else:
        tx.remove([parcel.delivery])


def patrol(bus: Bus, now: float, keepalive_seconds: float) -> None:
    """Look at the streams that time may change: has one been quiet too long, or has its reader stopped taking bytes?"""
    quiet_since = now - keepalive_seconds
    for stream in bus.streams.to_look_at(quiet_since):
        if unsent := stream.connection.unsent():
            if _stalled(stream, unsent, now, bus.limits.stream_stall_seconds):
                stream.end("gone")
                stream.connection.abort()
            continue
        stream.progress = (stream.written, 0.0)
        bus.streams.unsure.discard(stream)
        if stream.quiet_since <= quiet_since and not stream.keepalive_due:
            _keep_alive(stream)


def _keep_alive(stream: Stream) -> None:
    try:
        if not stream.write_now(None):
            stream.keepalive_due = True
            stream.wake()
    except Exception:  # noqa: BLE001 - a fault of ours, which ends that stream and stops no other
        log.exception("a keep-alive failed")


def _stalled(stream: Stream, unsent: int, now: float, seconds: float) -> bool:
    """True when not one byte has left for so long. Bytes gone = bytes written so far less those still here."""
    gone = stream.written - unsent
    at, since = stream.progress
    if gone != at or since == 0.0:
        stream.progress = (gone, now)
        return False
    return now - since >= seconds
