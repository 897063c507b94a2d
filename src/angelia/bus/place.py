"""Put a message into mailboxes: the state each delivery starts in, and who is told after the commit.

What must stay true: a delivery starts *leased* only when its taker is known inside the unit: a waiting ask, or the
agent's own stream with room and nothing queued before it, or the link to the hub that it goes to, on such terms
(``bus/carriers.py``). The attempt is on disk in that same commit, and the hand-over happens after it, in the order of
``seq``. Everything else is queued (or held), and the mailbox is woken; its adapter only for what starts a turn.
"""

from collections.abc import Sequence

from angelia.bus.asks import Waiter
from angelia.bus.carriers import Carrier
from angelia.bus.core import Bus
from angelia.bus.ports import Parcel, Tx
from angelia.bus.push import push
from angelia.bus.runs import OWN_LANE, wakes
from angelia.bus.streams import Stream, reserve
from angelia.model.address import Address
from angelia.model.delivery import LANE_ORDER, Delivery, Hand, State
from angelia.model.envelope import Envelope, Kind
from angelia.model.failure import Reason

# Who takes a delivery in the accepting commit, if anybody.
_Taker = Stream | Waiter | Carrier | None


def place(
    bus: Bus,
    tx: Tx,
    envelope: Envelope,
    recipients: Sequence[Address],
    *,
    held: Reason | None = None,
    late: bool = False,
    owes: str | None = None,
) -> list[Delivery]:
    """Add the message with a delivery for each recipient; the deliveries as stored. Runs as the last step of a unit.
    ``owes``: the connection that it came by, which is to be told what becomes of it."""
    now, size = bus.clock.now(), envelope.size
    rows: list[Delivery] = []
    made: dict[tuple[Hand | None, str | None, bool, int], Delivery] = {}  # one of each kind, others are made like it
    takers: list[_Taker] = []
    others_lane, sender = LANE_ORDER[envelope.lane], envelope.sender.lower()
    for address in recipients:
        mailbox = address.mailbox
        jammed = bus.jams.find(mailbox, sender) is not None
        taker = None if held or jammed else _taker(bus, tx, envelope, address)
        hand = None if taker is None else taker.hand
        lane = OWN_LANE if mailbox == sender and address.carrier is None else others_lane
        seq, kind = tx.next_seq(), (hand, address.carrier, jammed, lane)
        if (like := made.get(kind)) is not None:
            rows.append(like.beside(seq, mailbox, str(address)))
        else:
            made[kind] = row = Delivery(
                key=seq,
                seq=seq,
                message_id=envelope.id,
                mailbox=mailbox,
                to=str(address),
                connection=address.carrier,
                sender=sender,
                lane=lane,
                size=size,
                state=State.HELD if held else State.QUEUED if hand is None else State.LEASED,
                deferred=jammed and not held,
                attempt=0 if hand is None else 1,
                hand=hand,
                reason=held,
                late=late,
                accepted_at=now,
                expires_at=envelope.expires_at,
                sweep_at=envelope.expires_at if hand is None else None,
                leased_at=None if hand is None else now,
                owes=owes,
            )
            rows.append(row)
        takers.append(taker)
    tx.add(envelope, rows)
    if any(takers):
        _hold(tx, envelope, rows, takers)
    tx.then(lambda: _hand_over(bus, envelope, rows, takers))
    return rows


def _hold(tx: Tx, envelope: Envelope, rows: Sequence[Delivery], takers: Sequence[_Taker]) -> None:
    size = rows[0].size
    reserve(tx, [(taker, size) for taker in takers if isinstance(taker, Stream)])
    for row, taker in zip(rows, takers, strict=True):
        if isinstance(taker, Waiter):
            taker.take(tx)
        elif isinstance(taker, Carrier):
            taker.lease(tx, [Parcel(row, envelope)])


def _taker(bus: Bus, tx: Tx, envelope: Envelope, address: Address) -> _Taker:
    mailbox = address.mailbox
    if (waiter := _waiter(bus, envelope, mailbox)) is not None:
        return waiter
    if address.carrier is not None:
        return bus.carriers.taker(tx, address.carrier, mailbox)
    stream = bus.streams.attached.get(mailbox)
    if stream is None or stream.ended is not None or not stream.ready or stream.room() <= 0:
        return None
    return None if tx.load(mailbox).ready or mailbox in bus.runs.busy else stream


def _waiter(bus: Bus, envelope: Envelope, mailbox: str) -> Waiter | None:
    """Who waits for exactly this: a reply, or the notice that the only one who was asked will not give one."""
    if envelope.in_reply_to is None or envelope.kind is Kind.MESSAGE:
        return None
    waiter = bus.asks.taker(envelope.in_reply_to, mailbox)
    return waiter if waiter is not None and (envelope.kind is Kind.REPLY or len(waiter.targets) == 1) else None


def _hand_over(bus: Bus, envelope: Envelope, rows: Sequence[Delivery], takers: Sequence[_Taker]) -> None:
    handed: list[tuple[Stream, Parcel]] = []
    for row, taker in zip(rows, takers, strict=True):
        if taker is None:
            if row.state is State.QUEUED and not row.deferred:
                bus.wake(row.mailbox, row.connection, turn=wakes(row, envelope.intent))
        elif isinstance(taker, Stream):
            handed.append((taker, Parcel(row, envelope)))
        elif isinstance(taker, Carrier):
            taker.push([Parcel(row, envelope)])
        else:
            taker.give(Parcel(row, envelope))
        for stream in bus.streams.of(row.mailbox):
            if stream.observer:
                stream.wake()
    push(bus, handed)
    if envelope.in_reply_to:
        bus.signals.wake("message:" + envelope.in_reply_to)
    bus.timers.sweep_by(envelope.expires_at)
    bus.events.accepted(rows[0].accepted_at, envelope, rows)
