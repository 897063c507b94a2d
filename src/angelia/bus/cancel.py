"""Withdraw a message, and what a person does with dead and held ones.

What must stay true: only what is not delivered yet can be withdrawn; a sender that withdraws its own request is told by
the answer, not by a notice; when a person withdraws an agent's, the agent gets the notice. A dead letter stays until a
person acts or retention takes it, and nothing else changes it.
"""

from collections.abc import Callable

from angelia.bus.caller import Caller, Rank
from angelia.bus.claim import owns
from angelia.bus.core import Bus
from angelia.bus.moves import move
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Tx
from angelia.model.address import PERSON
from angelia.model.delivery import Delivery, Event, State, after
from angelia.model.envelope import check_id
from angelia.model.errors import UnknownMessage
from angelia.model.failure import Reason

Do = Callable[[Tx, Parcel], None]


async def cancel(bus: Bus, caller: Caller, message_id: str) -> list[Delivery]:
    """Withdraw every delivery of a message that is queued or leased; all its deliveries as they are then."""
    bus.check_running()
    check_id(message_id)

    def unit(tx: Tx) -> list[Delivery]:
        envelope = tx.message(message_id)
        if envelope is None or not (caller.rank is Rank.ADMIN or owns(bus, caller, envelope.sender.lower())):
            raise UnknownMessage(f"There is no message {message_id} of yours.")
        for delivery in tx.deliveries(message_id):
            event = Event.END if delivery.state is State.HELD else Event.CANCEL
            if after(delivery.state, event) is None:
                continue
            done = move(bus, tx, Parcel(delivery, envelope), event)
            if done is not None and caller.rank is Rank.ADMIN and envelope.sender != PERSON:
                tell_of_failure(bus, tx, done, Reason.CANCELLED)
        return tx.deliveries(message_id)

    return await bus.store.write(unit, essential=True)


async def requeue(bus: Bus, message_id: str, to: str | None = None) -> list[Delivery]:
    """Give dead deliveries of a message fresh attempts and time, let held ones go. ``to``: only this recipient's."""

    def again(tx: Tx, parcel: Parcel) -> None:
        now = bus.clock.now()
        lived = parcel.envelope.expires_at - parcel.envelope.created_at
        if parcel.delivery.state is State.DEAD:
            fresh = {"used": 0, "hand": None, "reason": None, "ended_at": None, "expires_at": now + lived}
            move(bus, tx, parcel, Event.REQUEUE, **fresh)
        else:
            move(bus, tx, parcel, Event.LET_GO, reason=None)

    return await _each(bus, message_id, to, again)


async def drop(bus: Bus, message_id: str, to: str | None = None) -> list[Delivery]:
    """End dead and held deliveries of a message for good. The sender of a held request is told."""

    def end(tx: Tx, parcel: Parcel) -> None:
        if parcel.delivery.state is State.DEAD:
            move(bus, tx, parcel, Event.DROP)
        elif (done := move(bus, tx, parcel, Event.END)) is not None:
            tell_of_failure(bus, tx, done, Reason.CANCELLED)

    return await _each(bus, message_id, to, end)


async def _each(bus: Bus, message_id: str, to: str | None, do: Do) -> list[Delivery]:
    bus.check_running()
    check_id(message_id)

    def unit(tx: Tx) -> list[Delivery]:
        envelope = tx.message(message_id)
        found = [
            d
            for d in tx.deliveries(message_id)
            if d.state in (State.DEAD, State.HELD) and (to is None or d.to.lower() == to.lower())
        ]
        if envelope is None or not found:
            raise UnknownMessage(f"Message {message_id} is not among the dead letters, nor held. Nothing was changed.")
        for delivery in found:
            do(tx, Parcel(delivery, envelope))
        return tx.deliveries(message_id)

    return await bus.store.write(unit, essential=True)


async def dead_letters(bus: Bus, after_key: int, limit: int) -> list[Parcel]:
    """Dead and held deliveries, oldest first, with ``key`` above ``after_key``."""
    return await bus.store.read(lambda view: view.dead(after_key, limit))
