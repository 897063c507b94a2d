"""What happens by time alone: ends of leases, times to live, retention, keep-alives, and cutting readers that stall.

What must stay true: everything settles. The sweep finds by the store's own index what is due, in bounded batches, and
runs when the first is: whoever stores something that is due earlier says so (``timers.sweep_by``). An idle hub sleeps
from beat to beat: a look at each finds what came due while the machine slept, and keeps alive what would be late at the
next one. Twice a minute whoever waits beside mail that is there is waked, should a wake-up have been lost. Nothing here
depends on the wall clock being right.
"""

import asyncio
from math import inf

from angelia.bus.agents import forget_idle
from angelia.bus.beat import BEAT_SECONDS, to_beat
from angelia.bus.claim import expire
from angelia.bus.core import Bus
from angelia.bus.forward import offer_again_or_end
from angelia.bus.moves import move
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Tx
from angelia.bus.push import keep_alive
from angelia.bus.runs import ADAPTERS
from angelia.bus.streams import Stream
from angelia.model.delivery import Event, State
from angelia.model.envelope import Intent
from angelia.model.failure import Reason

SWEEP_BATCH = 256
SWEEP_PAUSE_MS = 50  # until the next, whatever the last could not settle
SICK_STORE_SECONDS = 3.0  # until the next sweep after one that failed
LOOK_SECONDS = 5.0  # between two beats where there are streams
BEHIND_SECONDS = 30.0  # between two looks for who waits beside mail: those at links are as often
LOOKS = 3  # for each keep-alive, where these come more often; without a stream, one in the time of two of them
PATROL_SECONDS = 1.0  # between two looks at readers that may stall; the kernel resets these a few seconds after we do
# Readers that stall together are cut one by one: each leaves what it held to be put back, some milliseconds of the
# writer's time, which whatever comes meanwhile waits for.
CUT_PAUSE_SECONDS = 0.02
LATE_SHARE = 0.1  # of the time between two beats: a keep-alive that is later at the next one is written at this one
FORGET_SECONDS = 3600.0  # between two looks for names that nobody uses any more


async def keep_time(bus: Bus, keepalive_seconds: float) -> None:
    """Run until the bus stops."""
    look_seconds = min(LOOK_SECONDS, keepalive_seconds / LOOKS)
    quiet_seconds = keepalive_seconds - look_seconds * (1 - LATE_SHARE)
    forget_at = bus.clock.monotonic() + FORGET_SECONDS  # by then everyone is back who was here before a restart
    look_at, behind_at = 0.0, bus.clock.monotonic() + BEHIND_SECONDS
    bus.streams.on_unsure = bus.timers.poke
    while not bus.stopping:
        poked = bus.timers.poked()
        bus.timers.fire(bus.clock.monotonic())
        if bus.clock.now() >= bus.timers.sweep_at:
            await sweep(bus)
        now = bus.clock.monotonic()
        if now >= forget_at:
            forget_at = now + FORGET_SECONDS
            forget_idle(bus)
        if now >= look_at:
            again = patrol(bus, now, quiet_seconds)
            if not again:
                await asyncio.sleep(0)  # in which the kernel takes a keep-alive, where its reader reads
                again = patrol(bus, now, quiet_seconds)
            pause = look_seconds if bus.streams.count else min(BEAT_SECONDS, look_seconds * 2)
            look_at = now + min(to_beat(now, pause), again)
        if now >= behind_at:
            behind_at = now + to_beat(now, BEHIND_SECONDS)
            wake_behind(bus)
        if bus.streams.unsure:
            look_at = min(look_at, now + PATROL_SECONDS)
        token_ends = bus.directory.end_visits(bus.clock.now())
        await bus.clock.wait(poked, _rest(bus, look_at, token_ends))


def _rest(bus: Bus, look_at: float, token_ends: int | None) -> float:
    """Seconds until something is due, or is looked at."""
    now, utc = bus.clock.monotonic(), bus.clock.now()
    waits = [look_at - now, (bus.timers.sweep_at - utc) / 1000]
    if (reminder := bus.timers.next()) is not None:
        waits.append(reminder - now)
    if token_ends is not None:
        waits.append((token_ends - utc) / 1000)
    return max(min(waits), 0)


def wake_behind(bus: Bus) -> None:
    """Wake who waits though something is there for it: a reader, a claim or a turn; and who runs turns, for agents that
    are reached in another way now. Looks at sums in memory alone."""
    bus.runs.signals.wake(ADAPTERS)
    for key in {*bus.signals.watched(), *bus.runs.signals.watched()}:
        if bus.store.load(key).ready:
            bus.wake(key)
    for stream in bus.streams.everyone():
        if stream.buffer or bus.store.load(stream.mailbox).ready:
            stream.wake()


async def sweep(bus: Bus) -> bool:
    """Settle a batch of what time has come for, and see when the next is due; False where more is by now."""
    now = bus.clock.now()
    try:
        await bus.store.write(lambda tx: _sweep(bus, tx, now), essential=True)
    except Exception:  # noqa: BLE001 - the store is unwell and says so itself; the next sweep tries again
        bus.timers.sweep_at = now + SICK_STORE_SECONDS * 1000
    return bus.timers.sweep_at > now


def _sweep(bus: Bus, tx: Tx, now: int) -> None:
    due = tx.due(now, SWEEP_BATCH)
    for parcel in due:
        _settle_by_time(bus, tx, parcel)
    following: float = inf if (found := tx.next_sweep()) is None else found
    if len(due) < SWEEP_BATCH:
        following = max(following, now + SWEEP_PAUSE_MS)
    tx.then(lambda: _next_sweep(bus, following))


def _next_sweep(bus: Bus, at: float) -> None:
    """As this unit saw it; what later units store says so after this, in the order of the units."""
    bus.timers.sweep_at = at


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


def patrol(bus: Bus, now: float, quiet_seconds: float) -> float:
    """Look at the streams that time may change: has one been quiet for so long, or has its reader stopped taking bytes?
    Out: seconds until another look has to follow, at the latest; 0 where any was kept alive."""
    quiet_since, cut, again = now - quiet_seconds, False, inf
    for stream in bus.streams.to_look_at(quiet_since):
        if unsent := stream.connection.unsent():
            if stream.ended == "gone" or not _stalled(stream, unsent, now, bus.limits.stream_stall_seconds):
                continue
            if cut:
                again = min(again, CUT_PAUSE_SECONDS)
                continue
            cut = True
            stream.end("gone")
            stream.connection.abort()
            continue
        stream.progress = (stream.written, 0.0)
        bus.streams.unsure.discard(stream)
        if stream.quiet_since <= quiet_since and not stream.keepalive_due:
            keep_alive(stream)
            again = 0.0
    return again


def _stalled(stream: Stream, unsent: int, now: float, seconds: float) -> bool:
    """True when not one byte has left for so long. Bytes gone = bytes written so far less those still here."""
    gone = stream.written - unsent
    at, since = stream.progress
    if gone != at or since == 0.0:
        stream.progress = (gone, now)
        return False
    return now - since >= seconds
