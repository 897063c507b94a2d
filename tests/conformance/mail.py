"""Messages and deliveries for the tests of stores: all has a value, so a test names only what it is about."""

from typing import Any

from angelia.bus.ports import Parcel, Store, Tx
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope, Intent, Kind

NOW = 1_800_000_000_000
HOUR = 3_600_000
PLENTY = 1 << 40


def envelope(number: int, **changes: Any) -> Envelope:
    """Message ``number``, as ``Hermes`` sends it to ``claude``."""
    message_id = f"{number:032x}"
    plain = Envelope(
        id=message_id,
        sender="Hermes",
        to="claude",
        intent=Intent.INFORM,
        kind=Kind.MESSAGE,
        text=f"text {number}",
        body=None,
        thread=message_id,
        chain=message_id,
        created_at=NOW + number,
        expires_at=NOW + number + HOUR,
        fingerprint=number.to_bytes(32, "big"),
    )
    return plain._replace(**changes)


def delivery(message: Envelope, seq: int, mailbox: str = "claude", **changes: Any) -> Delivery:
    """A delivery of ``message`` that waits."""
    plain = Delivery(
        key=seq,
        seq=seq,
        message_id=message.id,
        mailbox=mailbox,
        to=mailbox,
        sender=message.sender.lower(),
        size=100,
        state=State.QUEUED,
        accepted_at=message.created_at,
        expires_at=message.expires_at,
        sweep_at=message.expires_at,
    )
    return plain._replace(**changes)


def accept(tx: Tx, number: int, mailbox: str = "claude", **changes: Any) -> Parcel:
    """Inside a unit: message ``number`` into one mailbox; ``changes`` are of the delivery."""
    message = envelope(number)
    row = delivery(message, tx.next_seq(), mailbox, **changes)
    tx.add(message, [row])
    return Parcel(row, message)


async def put(store: Store, number: int, mailbox: str = "claude", **changes: Any) -> Parcel:
    """The same as a unit of its own."""
    return await store.write(lambda tx: accept(tx, number, mailbox, **changes))


async def change(store: Store, old: Delivery, **changes: Any) -> Delivery:
    """Move a delivery, which must succeed; the row as it is now."""
    new = old._replace(**changes)
    assert await store.write(lambda tx: tx.move(old, new))
    return new


async def lease(store: Store, old: Delivery, hand: Hand = Hand.CLAIM, **changes: Any) -> Delivery:
    """What a claim does to a row."""
    changes = {"attempt": old.attempt + 1, "leased_at": NOW, "sweep_at": None, **changes}
    return await change(store, old, state=State.LEASED, hand=hand, **changes)


async def settle(store: Store, old: Delivery, **changes: Any) -> Delivery:
    """What a claim and an ack do to a row."""
    leased = old if old.state is State.LEASED else await lease(store, old)
    changes = {"delivered_at": NOW, "sweep_at": NOW + HOUR, **changes}
    return await change(store, leased, state=State.DELIVERED, **changes)


def seqs(parcels: list[Parcel]) -> list[int]:
    """Which deliveries these are."""
    return [parcel.delivery.seq for parcel in parcels]
