"""Mail that a link carries to the other side, and what becomes of it there.

What must stay true:

- A link takes what waits for its connection in the order of lane and ``seq``. It is *forwarded* once the other side has
  it, and delivered, answered, failed or dead only when the other side says so.
- What could not be handed over goes back into its place; a link has no limit of attempts before the time to live.
- One that takes no more for now (a full mailbox) waits alone: others go on.
"""

import asyncio
from collections.abc import Sequence

from angelia.bus.claim import hand_over, release
from angelia.bus.claim import take as lease
from angelia.bus.core import Bus
from angelia.bus.moves import give_back, move
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Scope, Tx
from angelia.model.delivery import Event, Hand, State
from angelia.model.envelope import Kind
from angelia.model.failure import Reason

AT_ONCE = 256  # ended in one unit; then others have their turn


async def take(bus: Bus, link: str, limit: int, wait_seconds: float) -> list[Parcel]:
    """Lease up to ``limit`` that wait for a connection (its key); waits for the first at most ``wait_seconds``. What is
    taken ends with ``forwarded``, ``given_back``, ``refused`` or ``delivered``.

    It comes before the lease is on disk: should that never be, it is queued still, goes again, and its id absorbs that.
    """
    bus.check_running()
    ends = bus.clock.monotonic() + wait_seconds
    with bus.signals.watch("@" + link) as watch:
        while True:
            ticket = watch.ticket()
            parcels = await _leased(bus, Scope(connection=link), limit)
            left = ends - bus.clock.monotonic()
            if parcels or left <= 0 or bus.stopping:
                return parcels
            await bus.clock.wait(watch.changed(ticket), left)


async def _leased(bus: Bus, scope: Scope, limit: int) -> list[Parcel]:
    """What the unit has leased, as soon as it has."""
    loop = asyncio.get_running_loop()
    leased: asyncio.Future[list[Parcel]] = loop.create_future()

    def unit(tx: Tx) -> None:
        parcels = lease(bus, tx, scope, limit, Hand.LINK)
        loop.call_soon_threadsafe(leased.set_result, parcels)

    def failed(stored: asyncio.Future[None]) -> None:
        if not leased.done() and not stored.cancelled() and (error := stored.exception()) is not None:
            leased.set_exception(error)

    bus.store.write(unit).add_done_callback(failed)
    try:
        return await asyncio.shield(leased)
    except asyncio.CancelledError:
        leased.add_done_callback(lambda done: None if done.exception() else release(bus, done.result(), used=False))
        raise


def forwarded(bus: Bus, parcels: Sequence[Parcel]) -> None:
    """The other side has stored these; what becomes of them is awaited. Of a notice nothing more is said: it has done
    its work there. Written with the next commit."""

    def unit(tx: Tx) -> None:
        for parcel in parcels:
            move(bus, tx, parcel, Event.ACK if parcel.envelope.kind is Kind.NOTICE else Event.FORWARD)

    if parcels:
        bus.submit(unit, lazy=True)


def given_back(bus: Bus, parcels: Sequence[Parcel], *, used: bool = False, delay: float | None = None) -> None:
    """They were not handed over (or nobody knows): back into their places. ``delay``: seconds until they are due."""
    if delay is None:
        release(bus, parcels, used=used)
        return

    def unit(tx: Tx) -> None:
        for parcel in parcels:
            give_back(bus, tx, parcel, Event.NACK, used=used, delay=delay)

    if parcels:
        bus.submit(unit)


def refused(bus: Bus, parcel: Parcel, reason: Reason, said: str) -> None:
    """The other side will not have it: its sender is told why. ``said``: the other side's own words, or empty."""
    bus.submit(lambda tx: fail(bus, tx, parcel, reason, said))


def delivered(bus: Bus, parcels: Sequence[Parcel]) -> None:
    """They need no more than to be there (an answer, a notice), and they are."""

    def unit(tx: Tx) -> None:
        for parcel in parcels:
            move(bus, tx, parcel, Event.ACK)

    if parcels:
        bus.submit(unit, lazy=True)


def fail(bus: Bus, tx: Tx, parcel: Parcel, reason: Reason, said: str) -> None:
    """End a leased or forwarded one without an answer, inside a unit; nothing where it has ended already. An answer or
    a notice that cannot be delivered becomes a dead letter and nothing else."""
    state = parcel.delivery.state
    if parcel.envelope.kind is not Kind.MESSAGE:
        event = {State.LEASED: Event.EXHAUST, State.FORWARDED: Event.FAR_DEAD}.get(state)
        if event is not None:
            move(bus, tx, parcel, event, reason=reason)
        return
    event = {State.LEASED: Event.REFUSE, State.FORWARDED: Event.FAR_FAILED}.get(state)
    done = move(bus, tx, parcel, event, reason=reason) if event is not None else None
    if done is not None:
        tell_of_failure(bus, tx, done, reason, said=said or None)


async def fail_waiting(bus: Bus, link: str, said: str) -> None:
    """The connection is no more: what waited for it ends, and so does what was handed over and has no outcome yet;
    their senders are told, each what is known of it."""

    def unit(tx: Tx) -> int:
        found = tx.carried(link, AT_ONCE)
        for parcel in found:
            if parcel.delivery.state is State.FORWARDED:
                fail(bus, tx, parcel, Reason.DELIVERY_TIMEOUT, said)
            elif (leased := hand_over(bus, tx, parcel, Hand.LINK, tx.handed_high(parcel.delivery.mailbox))) is not None:
                fail(bus, tx, leased, Reason.RUNTIME_OFFLINE, said)
        return len(found)

    while await bus.store.write(unit, essential=True) == AT_ONCE:
        pass
