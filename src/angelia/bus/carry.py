"""Mail that a link carries to the other side, and what becomes of it there.

What must stay true:

- A link takes what waits for its connection in the order of lane and ``seq``. It is *forwarded* once the other side has
  it, and delivered, answered, failed or dead only when the other side says so.
- What could not be handed over goes back into its place; a link has no limit of attempts before the time to live.
- A link between hubs is filled by commits (``bus/carriers.py``); one to a gateway of Hermes' takes when it can.
- What takes no more for now (a full mailbox) makes its own mail wait and nobody else's (``bus/backpressure.py``).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from angelia.bus.backpressure import forget, resume
from angelia.bus.carriers import Carrier
from angelia.bus.claim import claim, hand_over, release
from angelia.bus.claim import take as lease
from angelia.bus.core import Bus
from angelia.bus.moves import give_back, move, owed_key
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Scope, Tx, View
from angelia.model.delivery import Event, Hand, State
from angelia.model.envelope import Intent, Kind
from angelia.model.errors import DiskFull
from angelia.model.failure import Reason

AT_ONCE = 256  # ended in one unit; then others have their turn
FULL_SECONDS = 2.0  # while there is no space on this hub's disk


class Ended(NamedTuple):
    """How many messages ended with their connection: those that ``waited`` for it, and those that had been
    ``handed_over``, whose outcome is not learned any more."""

    waited: int = 0
    handed_over: int = 0


async def take(bus: Bus, link: str, limit: int, wait_seconds: float) -> list[Parcel]:
    """Lease up to ``limit`` that wait for a connection (its key); waits for the first at most ``wait_seconds``. What is
    taken ends with ``forwarded``, ``given_back``, ``refused`` or ``delivered``."""
    taken = await claim(
        bus, Scope(connection=link), reader=None, hand=Hand.LINK, limit=limit, wait_seconds=wait_seconds
    )
    return taken.parcels


async def fill(bus: Bus, carrier: Carrier) -> None:
    """Keep a link between hubs in mail until this is cancelled: what is accepted from now on is leased to it at once
    where that passes nothing, and what waits is claimed for it whenever it fits. Call ``detach`` whatever happens.

    What comes out of its queue ends with ``forwarded``, ``given_back`` or ``refused``, once the link is ``free`` of it.
    """
    with bus.signals.watch("@" + carrier.link) as watch:
        await bus.store.write(lambda tx: bus.carriers.attach(tx, carrier), essential=True)
        resume(bus, carrier.link)
        while True:
            bus.check_running()
            ticket = watch.ticket()
            await carrier.wait_for_room()
            pause: float | None = None
            try:
                if await bus.store.write(lambda tx: claim_for(bus, tx, carrier)):
                    continue
            except DiskFull:  # that it is handed over has to be noted first; the link has other work
                pause = FULL_SECONDS
            await bus.clock.wait(watch.changed(ticket), pause)


async def look_behind(bus: Bus) -> None:
    """Wake each link that has mail waiting, or an outcome to tell, whatever its signals have missed: one look into the
    store, where a link between hubs is up. May raise ``Unwell``."""

    def found(view: View) -> list[str]:
        return ["@" + link for link in view.links_with_mail()] + [owed_key(link) for link in view.links_owed()]

    if bus.carriers.live:
        for key in await bus.store.read(found):
            bus.signals.wake(key)


def claim_for(bus: Bus, tx: Tx, carrier: Carrier) -> bool:
    """Lease to a link what waits for it and fits, inside a unit; whether more may wait."""
    if (room := carrier.room()) <= 0:
        return True  # what was accepted meanwhile has taken it
    limit = min(room, bus.limits.claim_deliveries)
    parcels = lease(bus, tx, Scope(connection=carrier.link), limit, Hand.LINK, carrier.room_bytes())
    if not parcels:
        carrier.caught_up(tx)
        return False
    carrier.lease(tx, parcels)
    tx.then(lambda: carrier.push(parcels))
    return True


def detach(bus: Bus, carrier: Carrier) -> None:
    """A link has ended: all that it holds goes back into its place."""

    def unit(tx: Tx) -> None:
        for parcel in bus.carriers.detach(tx, carrier):
            give_back(bus, tx, parcel, Event.RELEASE, used=False)

    bus.submit(unit)


def forwarded(bus: Bus, parcels: Sequence[Parcel]) -> None:
    """The other side has stored these; what becomes of them is awaited. Of a notice nothing more is said: it has done
    its work there. Written with the next commit."""

    def unit(tx: Tx) -> None:
        for parcel in parcels:
            move(bus, tx, parcel, Event.ACK if parcel.envelope.kind is Kind.NOTICE else Event.FORWARD)

    if parcels:
        bus.submit(unit, lazy=True)


def given_back(bus: Bus, parcels: Sequence[Parcel], *, used: bool = False, delay: float | None = None) -> None:
    """They were not handed over (or nobody knows): back into their places. ``delay``: seconds until they are due.
    ``used``: the other side has refused them for now."""
    if delay is None:
        release(bus, parcels, used=used)
        return

    def unit(tx: Tx) -> None:
        for parcel in parcels:
            give_back(bus, tx, parcel, Event.NACK, used=used, delay=delay, unseen=used)

    if parcels:
        bus.submit(unit)


def refused(bus: Bus, parcel: Parcel, reason: Reason, said: str) -> None:
    """The other side will not have it: who waits for an answer is told why. ``said``: the other side's own words, or
    empty."""
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
    if done is not None and parcel.envelope.intent is Intent.REQUEST:  # nobody waits to hear of another
        tell_of_failure(bus, tx, done, reason, said=said or None)


async def fail_waiting(bus: Bus, link: str, said: str, of: Callable[[Parcel], bool] = lambda parcel: True) -> Ended:
    """The connection is no more: what waited for it ends, and so does what was handed over and has no outcome yet;
    who waits for an answer is told, each what is known of it. ``of``: of these alone. Gives how many ended."""
    waited: list[int] = []
    handed_over: list[int] = []

    def end(tx: Tx, parcel: Parcel) -> None:
        key = parcel.delivery.key
        if not of(parcel):
            return
        if parcel.delivery.state is State.FORWARDED:
            fail(bus, tx, parcel, Reason.CONNECTION_GONE, said)
            tx.then(lambda: handed_over.append(key))
        elif (leased := hand_over(bus, tx, parcel, Hand.LINK, tx.handed_high(parcel.delivery.mailbox))) is not None:
            fail(bus, tx, leased, Reason.RUNTIME_OFFLINE, said)
            tx.then(lambda: waited.append(key))

    await each_carried(bus, link, end)
    await bus.store.write(lambda tx: forget(bus, tx, link), essential=True)
    return Ended(len(waited), len(handed_over))


async def each_carried(bus: Bus, link: str, do: Callable[[Tx, Parcel], None]) -> None:
    """Do something with all that waits for a connection, due or not, and all that is forwarded over it, inside units;
    so many at once. One after the other by key: what is left as it was does not come again."""
    after = 0

    def unit(tx: Tx) -> int:
        found = tx.carried(link, after, AT_ONCE)
        for parcel in found:
            do(tx, parcel)
        return found[-1].delivery.key if found else 0

    while last := await bus.store.write(unit, essential=True):
        after = last
