"""Outcomes between hubs: what is owed to the connection that a message came by, and what comes back over one.

What must stay true:

- Each outcome goes back by exactly one way: an answer as the reply, the failure of a request as the hub's notice, and
  everything else from here. It is owed until the other side has stored it; said twice it is said once.
- What was forwarded ends as the far side says, and only once. An outcome may come before the hub has noted that the
  message went there, or after it was offered anew: then the delivery takes those steps first.
- One that time had ended changes nothing more; an answer that still comes is delivered as a late one.
- When two hubs meet and one of their stores is not that of the last time, all that was handed over and has no outcome
  goes again. That they have met is noted after that: what is cut short is done the next time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from angelia.bus.carry import Ended, each_carried, fail_waiting
from angelia.bus.claim import hand_over
from angelia.bus.core import Bus
from angelia.bus.moves import move, owed_key
from angelia.bus.neighbours import Meeting
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Tx
from angelia.model.connection import Connection
from angelia.model.delivery import Delivery, Event, Hand, State
from angelia.model.envelope import Intent, Kind
from angelia.model.failure import Reason, read_reason
from angelia.protocol.hub import Outcome

AT_ONCE = 200  # told in one call
ANOTHER = "Another machine answers there now."
_TOLD_AGAIN = frozenset({State.DELIVERED, State.FAILED, State.DEAD})
_STATES = frozenset({"delivered", "answered", "failed", "dead"})


@dataclass(frozen=True, slots=True)
class Fate:
    """How a message ended at the far side. ``state``: as on the wire; ``said``: its turn's own words, or empty."""

    state: str
    reason: Reason = Reason.UNKNOWN
    said: str = ""


async def owed(bus: Bus, connection: str) -> list[Delivery]:
    """Some of what a connection (its key) has to be told of, the oldest first."""
    return await bus.store.read(lambda view: view.owed(connection, AT_ONCE))


def outcome_of(delivery: Delivery) -> Outcome:
    """What the other side is told of a delivery."""
    handle = delivery.to.partition("@")[0]
    return Outcome(delivery.message_id, handle, delivery.state.word, delivery.reason)


async def told(bus: Bus, deliveries: Sequence[Delivery]) -> None:
    """The other side has these. One that has changed since, or was asked for since, is owed still, and told anew."""

    def unit(tx: Tx) -> None:
        for delivery in deliveries:
            here = tx.delivery(delivery.key)
            if delivery.key in bus.neighbours.told_again:
                bus.neighbours.told_again.discard(delivery.key)
            elif here is not None and (here.state, here.reason) == (delivery.state, delivery.reason):
                tx.move(here, here._replace(owes=None))

    await bus.store.write(unit, lazy=True, essential=True)


def owe_again(tx: Tx, bus: Bus, connection: str, message_id: str) -> None:
    """A message came again: whoever sends it may have forgotten what became of it (a backup was put back), so that is
    told again, inside the unit. An answer goes again, also one that had been refused there; the rest is owed anew. Who
    knows it already is told nothing new.
    """
    reply = tx.reply_to(message_id)
    if reply is not None:
        for delivery in tx.deliveries(reply.id):
            if delivery.connection == connection:
                _answer_again(bus, tx, Parcel(delivery, reply))
    for delivery in tx.deliveries(message_id):
        if delivery.state not in _TOLD_AGAIN:
            continue
        if delivery.owes is None:
            tx.move(delivery, delivery._replace(owes=connection))
        else:  # it may be told at this moment, too early for who has only now sent it again
            bus.neighbours.told_again.add(delivery.key)
        tx.then(lambda: bus.signals.wake(owed_key(connection)))


def _answer_again(bus: Bus, tx: Tx, reply: Parcel) -> None:
    if reply.delivery.state is State.DELIVERED:
        move(bus, tx, reply, Event.REOFFER)
    elif reply.delivery.state is State.DEAD:
        lived = reply.envelope.expires_at - reply.envelope.created_at
        ends = bus.clock.now() + lived
        move(bus, tx, reply, Event.REQUEUE, used=0, hand=None, reason=None, ended_at=None, expires_at=ends)


async def have_met(bus: Bus, connection: Connection, meeting: Meeting) -> Ended:
    """Two hubs have met over a connection (as it was before), whose link is not up yet. Where another hub is there,
    what was for the one before ends; where one of the two stores is another (a backup was put back), or nobody knows,
    what was forwarded goes again. Its id absorbs what is still there. Gives what ended."""
    last, ended = bus.neighbours.met.get(connection.id), Ended()
    if last == meeting:
        return ended
    before = connection.hub if last is None else last.hub
    if before not in (None, meeting.hub):
        ended = await fail_waiting(bus, connection.id, ANOTHER)
    else:
        if before is None:
            ended = await fail_waiting(
                bus, connection.id, ANOTHER, lambda parcel: bus.neighbours.led_elsewhere(parcel.delivery, meeting.hub)
            )
        await offer_again(bus, connection.id)

    def note(tx: Tx) -> None:
        bus.neighbours.note_meeting(tx, connection.id, meeting, bus.clock.now())

    await bus.store.write(note, essential=True)
    return ended


async def offer_again(bus: Bus, connection: str) -> None:
    """All that was forwarded over a connection (its key) goes again."""

    def again(tx: Tx, parcel: Parcel) -> None:
        if parcel.delivery.state is State.FORWARDED:
            move(bus, tx, parcel, Event.REOFFER)

    await each_carried(bus, connection, again)


async def far_outcomes(bus: Bus, connection: str, outcomes: Sequence[Outcome]) -> None:
    """Take what became of messages that went over a connection. What is not known here, or has ended, stays as it
    is."""

    def unit(tx: Tx) -> None:
        for outcome in outcomes:
            if outcome.state in _STATES:
                fate = Fate(outcome.state, read_reason(outcome.reason))
                settle_forwarded(bus, tx, connection, outcome.id, fate)

    await bus.store.write(unit, essential=True)


def settle_forwarded(bus: Bus, tx: Tx, connection: str, message_id: str, fate: Fate) -> None:
    """End the delivery of a message that went over a connection, inside a unit."""
    envelope = tx.message(message_id)
    delivery = next((d for d in tx.deliveries(message_id) if d.connection == connection), None)
    if envelope is None or delivery is None:
        return
    parcel = _forwarded(bus, tx, Parcel(delivery, envelope))
    if parcel is None:
        return
    if fate.state in ("delivered", "answered"):
        if parcel.delivery.state is State.FORWARDED:
            move(bus, tx, parcel, Event.FAR_DELIVERED)
        return
    _fail(bus, tx, parcel, fate)


def _forwarded(bus: Bus, tx: Tx, parcel: Parcel) -> Parcel | None:
    """The delivery in the state in which the other side has it; None where it has ended here."""
    state = parcel.delivery.state
    if not parcel.delivery.attempt:
        return None  # it never went there
    if state is State.QUEUED:
        leased = hand_over(bus, tx, parcel, Hand.LINK, tx.handed_high(parcel.delivery.mailbox))
        return move(bus, tx, leased, Event.FORWARD) if leased is not None else None
    if state is State.LEASED:
        return move(bus, tx, parcel, Event.FORWARD)
    return parcel if state in (State.FORWARDED, State.DELIVERED) else None


def _fail(bus: Bus, tx: Tx, parcel: Parcel, fate: Fate) -> None:
    delivery, envelope = parcel.delivery, parcel.envelope
    if delivery.state is State.DELIVERED:  # it was taken there, and nobody answered
        if envelope.intent is not Intent.REQUEST or delivery.reason is not None:
            return
        done = move(bus, tx, parcel, Event.UNANSWERED, reason=fate.reason)
    elif fate.state == "dead" or envelope.kind is not Kind.MESSAGE:
        done = move(bus, tx, parcel, Event.FAR_DEAD, reason=fate.reason)
    else:
        done = move(bus, tx, parcel, Event.FAR_FAILED, reason=fate.reason)
    if done is not None and envelope.kind is Kind.MESSAGE:
        tell_of_failure(bus, tx, done, fate.reason, said=fate.said or None)
