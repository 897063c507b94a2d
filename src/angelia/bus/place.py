"""Put a message into mailboxes: the state each delivery starts in, and who is told after the commit.

What must stay true: a delivery starts *leased* only when its taker is known inside the unit: a waiting ask, or the
agent's own stream with room and nothing queued before it. The attempt is on disk in that same commit, and the hand-over
happens after it, in the order of ``seq``. Everything else is queued (or held), and the mailbox is woken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from angelia.bus.asks import Waiter
from angelia.bus.core import Bus
from angelia.bus.leases import Lease
from angelia.bus.ports import Parcel, Tx
from angelia.bus.streams import Stream
from angelia.model.address import Address
from angelia.model.delivery import LANE_ORDER, Delivery, Hand, State
from angelia.model.envelope import Envelope, Kind
from angelia.model.failure import Reason


@dataclass(slots=True)
class _Taker:
    """Who takes a delivery in the accepting commit, if anybody."""

    stream: Stream | None = None
    waiter: Waiter | None = None

    @property
    def hand(self) -> Hand | None:
        if self.waiter is not None:
            return Hand.ASK
        return self.stream.hand if self.stream is not None else None


_NOBODY = _Taker()


def place(
    bus: Bus,
    tx: Tx,
    envelope: Envelope,
    recipients: Sequence[Address],
    *,
    held: Reason | None = None,
    late: bool = False,
) -> list[Delivery]:
    """Add the message with a delivery for each recipient; the deliveries as stored. Runs as the last step of a unit."""
    now = bus.clock.now()
    rows: list[Delivery] = []
    takers: list[_Taker] = []
    size = envelope.size
    lane = LANE_ORDER[envelope.lane]
    for address in recipients:
        mailbox = address.mailbox
        taker = _NOBODY if held else _taker(bus, tx, envelope, mailbox)
        hand = taker.hand
        seq = tx.next_seq()
        rows.append(
            Delivery(
                key=seq,
                seq=seq,
                message_id=envelope.id,
                mailbox=mailbox,
                to=str(address),
                connection=None if address.is_local else address.connection.lower(),
                sender=envelope.sender.lower(),
                lane=lane,
                size=size,
                state=State.HELD if held else State.QUEUED if hand is None else State.LEASED,
                attempt=0 if hand is None else 1,
                hand=hand,
                reason=held,
                late=late,
                accepted_at=now,
                expires_at=envelope.expires_at,
                sweep_at=envelope.expires_at if hand is None else None,
                leased_at=None if hand is None else now,
            )
        )
        takers.append(taker)
    tx.add(envelope, rows)
    for taker in takers:
        if taker.stream is not None:
            taker.stream.reserve(tx, size)
        elif taker.waiter is not None:
            taker.waiter.take(tx)
    tx.then(lambda: _hand_over(bus, envelope, rows, takers))
    return rows


def _taker(bus: Bus, tx: Tx, envelope: Envelope, mailbox: str) -> _Taker:
    if (waiter := _waiter(bus, envelope, mailbox)) is not None:
        return _Taker(waiter=waiter)
    stream = bus.streams.attached.get(mailbox)
    if stream is None or stream.ended is not None or not stream.ready or stream.room() <= 0:
        return _NOBODY
    if tx.load(mailbox).ready or mailbox in bus.runs.busy:
        return _NOBODY
    return _Taker(stream=stream)


def _waiter(bus: Bus, envelope: Envelope, mailbox: str) -> Waiter | None:
    """Who waits for exactly this: a reply, or the notice that the only one who was asked will not give one."""
    if envelope.in_reply_to is None or envelope.kind is Kind.MESSAGE:
        return None
    waiter = bus.asks.taker(envelope.in_reply_to, mailbox)
    return waiter if waiter is not None and (envelope.kind is Kind.REPLY or len(waiter.targets) == 1) else None


def _hand_over(bus: Bus, envelope: Envelope, rows: Sequence[Delivery], takers: Sequence[_Taker]) -> None:
    for row, taker in zip(rows, takers, strict=True):
        parcel = Parcel(row, envelope)
        if taker.stream is not None:
            push(bus, taker.stream, parcel)
        elif taker.waiter is not None:
            taker.waiter.give(parcel)
        elif row.state is State.QUEUED:
            bus.wake(row.mailbox)
        for stream in bus.streams.of(row.mailbox):
            if stream.observer:
                stream.wake()
    if envelope.in_reply_to:
        bus.signals.wake("message:" + envelope.in_reply_to)
    bus.events.accepted(rows[0].accepted_at, envelope, rows)


def push(bus: Bus, stream: Stream, parcel: Parcel) -> None:
    """Give a stream a delivery that is leased to it. One that has ended meanwhile gives it back when it detaches."""
    if stream.hand is Hand.MANUAL:
        now = bus.clock.now()
        bus.leases.add(
            Lease(parcel.delivery, Hand.MANUAL, since=now, ends=None, deadline=None, cap=None, stream=stream)
        )
    stream.buffer.append(parcel)
    stream.wake()
