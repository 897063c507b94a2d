"""What another hub takes no more of for now goes on once it does: a jam (``bus/jams.py``) begins, is tried, and ends.

What must stay true:

- The first of a jam go again after 1, 2, 4 … 60 s, or a second after the last try where one in that mailbox has come to
  its outcome: there may be room. What follows goes at once where all that went was stored.
- They go in the order of lane and ``seq``, straight to the link, and only while it holds nothing else of them.
- A try costs a bounded part of the link's window, whatever waits.
- A jam has a timer as long as its link is up; a link that comes up tries all of its own.
"""

from collections.abc import Sequence
from functools import partial

from angelia.bus.carriers import Carrier
from angelia.bus.claim import expire, hand_over
from angelia.bus.core import Bus
from angelia.bus.jams import SOON_SECONDS, Jam
from angelia.bus.moves import give_back
from angelia.bus.ports import Parcel, Tx
from angelia.model.delivery import Event, Hand
from angelia.model.limits import nack_delay

AT_ONCE = 50  # in one try: a sixth of a link's window


def put_off(bus: Bus, refused: Sequence[tuple[Parcel, str]]) -> None:
    """The other side takes these no more for now, each with its code: they wait, and what is behind them too."""

    def unit(tx: Tx) -> None:
        for parcel, code in refused:
            jam = bus.jams.begin(tx, parcel.delivery, code, partial(_plan, bus))
            give_back(bus, tx, parcel, Event.NACK, used=True, unseen=True)
            if jam is not None:
                tx.then(partial(jam.plan, SOON_SECONDS))

    if refused:
        bus.submit(unit)


def first_again(bus: Bus, parcel: Parcel) -> bool:
    """Whether this, which goes now, is the first of a jam that is tried: then it has to say so."""
    jam = bus.jams.find(parcel.delivery.mailbox, parcel.delivery.sender)
    if jam is None or not jam.again:
        return False
    jam.again = False
    return True


def passed(bus: Bus, stored: Sequence[Parcel], refused: Sequence[tuple[Parcel, str]]) -> None:
    """The other side has stored these of an answer, and those not: what is behind them goes, soon or at once."""
    full = {(parcel.delivery.mailbox, parcel.delivery.sender) for parcel, _ in refused}
    for pair in {(parcel.delivery.mailbox, parcel.delivery.sender) for parcel in stored}:
        if (jam := bus.jams.find(*pair)) is not None:
            jam.tries = 0
            jam.plan(SOON_SECONDS if pair in full else 0.0)


def resume(bus: Bus, connection: str) -> None:
    """A link is up: what it could not deliver is tried."""
    for jam in bus.jams.on(connection):
        jam.plan(0.0)


def forget(bus: Bus, tx: Tx, connection: str) -> None:
    """A connection is no more, nor what waited for it."""
    for jam in bus.jams.on(connection):
        _end(bus, tx, jam)


def _plan(bus: Bus, jam: Jam, seconds: float) -> None:
    if jam.timer is not None:
        jam.timer.cancel()
    jam.timer = bus.timers.at(bus.clock.monotonic() + seconds, lambda: _try(bus, jam))


def _try(bus: Bus, jam: Jam) -> None:
    jam.timer = None
    carrier = bus.carriers.live.get(jam.connection)
    if carrier is None or bus.jams.find(jam.mailbox, jam.sender) is not jam:
        return
    jam.tries += 1
    jam.tried_at = bus.clock.monotonic()
    jam.plan(float(nack_delay(jam.tries + 1)))
    bus.submit(lambda tx: _offer(bus, tx, jam, carrier), essential=False)  # its timer is set


def _offer(bus: Bus, tx: Tx, jam: Jam, carrier: Carrier) -> None:
    """Lease the first of it to the link, inside a unit."""
    if bus.jams.find(jam.mailbox, jam.sender) is not jam or bus.carriers.live.get(jam.connection) is not carrier:
        return
    room = min(AT_ONCE, carrier.room())
    if room <= 0 or carrier.holds(jam.mailbox, jam.sender):
        return  # what is on its way is answered first
    found = tx.waiting_from(jam.mailbox, jam.sender, room, carrier.room_bytes())
    if not found:
        _end(bus, tx, jam)
        return
    leased = []
    for parcel in found:
        if parcel.delivery.sweep_at is not None and parcel.delivery.sweep_at <= bus.clock.now():
            expire(bus, tx, parcel)
        elif (given := hand_over(bus, tx, parcel, Hand.LINK, 0)) is not None:
            leased.append(given)
    carrier.lease(tx, leased)

    def go() -> None:
        jam.again = True
        carrier.push(leased)

    tx.then(go)


def _end(bus: Bus, tx: Tx, jam: Jam) -> None:
    bus.jams.end(tx, jam)
    tx.then(lambda: jam.timer.cancel() if jam.timer is not None else None)
