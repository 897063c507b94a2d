"""Arrows of the transition table as changes of rows: the one place where a delivery's next row is worked out.

What must stay true: every change goes through ``move``, which asks ``model.delivery.TABLE``; times, reasons and
``sweep_at`` follow from the state that is entered, never from who asked. A request that ends without an answer gives
its sender a notice, in the same unit; replies and notices that fail become dead letters and nothing else.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from angelia.bus.core import Bus
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Tx
from angelia.model.delivery import REASON_OF, Delivery, Event, Hand, State, after
from angelia.model.envelope import Intent
from angelia.model.failure import Reason
from angelia.model.limits import Limits, nack_delay


def sweep_time(
    limits: Limits, state: State, attempt: int, expires_at: int, reason: Reason | None, intent: Intent | None, now: int
) -> int | None:
    """When time alone must look again (UTC ms) at a delivery that is as told. What its message asks for counts only
    once it is delivered."""
    if state is State.LEASED:
        return None
    if state is State.QUEUED and attempt:
        return max(expires_at, now + limits.returned_grace_seconds * 1000)
    if state in (State.QUEUED, State.HELD):
        return expires_at
    if state is State.FORWARDED:
        return expires_at + 60_000
    if state is State.DELIVERED and intent is Intent.REQUEST and reason is None:
        return max(expires_at, now)
    return now + limits.idempotency_seconds * 1000


def move(bus: Bus, tx: Tx, parcel: Parcel, event: Event, **changes: object) -> Parcel | None:
    """Take one arrow; the parcel as it is now, or None where the delivery is no longer in the state it had.

    ``changes`` are further fields of the new row. The arrow must be in the table (``LookupError``: a fault of ours).
    """
    old = parcel.delivery
    new = _after(bus, old, parcel.envelope.intent, event, bus.clock.now(), changes)
    if not tx.move(old, new):
        return None
    tx.then(lambda: _all_changed(bus, [(old, new)]))
    return Parcel(new, parcel.envelope)


def move_all(bus: Bus, tx: Tx, parcels: Iterable[Parcel], event: Event) -> None:
    """The same arrow for many, where it does not matter which of them still can take it. Step by step for all of them:
    one by one through all steps takes half as much again."""
    now = bus.clock.now()
    wanted: list[tuple[Delivery, Delivery]] = []
    stood: tuple[object, ...] = ()
    for old, envelope in parcels:
        if (standing := (envelope.intent, *old.standing)) == stood:  # as the one before: a message to many
            new = old.standing_as(wanted[-1][1])
        else:
            stood, new = standing, _after(bus, old, envelope.intent, event, now, {})
        wanted.append((old, new))
    done = tx.move_all(wanted)
    tx.then(lambda: _all_changed(bus, done))


def _after(
    bus: Bus, old: Delivery, intent: Intent | None, event: Event, now: int, changes: dict[str, object]
) -> Delivery:
    """The row behind the arrow."""
    state = after(old.state, event)
    if state is None:
        raise LookupError(f"no arrow {event} from {old.state.word}")
    stamps: dict[str, Any] = {"state": state, "deferred": False}
    if reason := REASON_OF.get(event):
        stamps["reason"] = reason
    if state is State.DELIVERED and old.delivered_at is None:
        stamps["delivered_at"] = now
    elif state is State.ANSWERED:
        stamps["answered_at"] = now
        stamps["delivered_at"] = old.delivered_at or now
        stamps["reason"] = None
        stamps["owes"] = None  # the answer goes the same way, and says so
    elif state in (State.FAILED, State.DEAD):
        stamps["ended_at"] = now
    stamps.update(changes)
    attempt, expires_at = stamps.get("attempt", old.attempt), stamps.get("expires_at", old.expires_at)
    reason = stamps.get("reason", old.reason)
    if "sweep_at" not in changes:
        stamps["sweep_at"] = sweep_time(bus.limits, state, attempt, expires_at, reason, intent, now)
    return old._replace(**stamps)


def give_back(
    bus: Bus,
    tx: Tx,
    parcel: Parcel,
    event: Event,
    *,
    used: bool,
    delay: float | None = None,
    unseen: bool = False,
) -> Parcel | None:
    """Return a leased delivery to its mailbox, or to the dead letters when its attempts are used up.

    ``used``: whether this attempt counts. ``delay``: seconds until it is due again; None means at once. ``unseen``: for
    sure it reached nobody, so that nothing but its time to live counts.
    """
    count = parcel.delivery.used + used
    if used and _is_last(bus, parcel.delivery):
        dead = move(bus, tx, parcel, Event.EXHAUST, used=count)
        if dead is not None:
            tell_of_failure(bus, tx, dead, Reason.ATTEMPTS_USED_UP)
        return dead
    changes: dict[str, object] = {"sweep_at": parcel.delivery.expires_at} if unseen else {}
    late = bool(delay) or bus.jams.holds(parcel.delivery)
    back = move(bus, tx, parcel, event, used=count, deferred=late, **changes)
    if back is not None and delay:
        due = bus.clock.monotonic() + delay
        tx.then(lambda: _remind(bus, due, back.delivery.key, back.delivery.attempt))
    return back


def put_back(bus: Bus, tx: Tx, deliveries: Iterable[Delivery], event: Event, *, used: bool) -> None:
    """The same, at once and for many, where their messages are not at hand: these may be large, and are read only where
    attempts are used up, so that the sender is told."""
    now = bus.clock.now()
    wanted = []
    for delivery in deliveries:
        if not (used and _is_last(bus, delivery)):
            wanted.append((delivery, _after(bus, delivery, None, event, now, {"used": delivery.used + used})))
        elif (envelope := tx.message(delivery.message_id)) is not None:
            give_back(bus, tx, Parcel(delivery, envelope), event, used=True)
    done = tx.move_all(wanted)
    tx.then(lambda: _all_changed(bus, done))


def _is_last(bus: Bus, delivery: Delivery) -> bool:
    """Its attempts are used up with this one."""
    hand = delivery.hand or Hand.CLAIM
    most = {Hand.TURN: bus.limits.turn_attempts, Hand.LINK: None}.get(hand, bus.limits.reader_attempts)
    return most is not None and delivery.used + 1 >= most


def owed_key(connection: str) -> str:
    """What is waked when a connection has an outcome to hear of."""
    return "owed:" + connection


def backoff(parcel: Parcel) -> int:
    """Seconds that a nack without a delay waits."""
    return nack_delay(parcel.delivery.used + 1)


def _remind(bus: Bus, due: float, key: int, attempt: int) -> None:
    bus.timers.at(due, lambda: _come_due(bus, key, attempt))


def _come_due(bus: Bus, key: int, attempt: int) -> None:
    """A nack's delay is over: the row is due again, if it still waits under that attempt."""

    def unit(tx: Tx) -> None:
        here = tx.delivery(key)
        if here is None or not here.deferred or here.attempt != attempt:
            return
        if tx.move(here, here._replace(deferred=False)):
            tx.then(lambda: bus.wake(here.mailbox, here.connection))

    bus.submit(unit)


def _all_changed(bus: Bus, done: Sequence[tuple[Delivery, Delivery]]) -> None:
    now = bus.clock.now()
    for old, new in done:
        _changed(bus, old, new, now)


def _changed(bus: Bus, old: Delivery, new: Delivery, now: int) -> None:
    """After the commit: drop the lease that ended, and wake who may act on it or waits to see it."""
    if old.state is State.LEASED:
        lease = bus.leases.get(old.key, old.attempt)
        if lease is not None:
            bus.leases.drop(old.key, old.attempt)
            if lease.stream is not None:
                lease.stream.free(old.size)
        if (stream := bus.streams.attached.get(old.mailbox)) is not None:
            stream.let_go(old.key, old.attempt)
    elif old.state is State.FORWARDED:
        bus.jams.room(old.mailbox, bus.clock.monotonic())
    if new.state is State.QUEUED and not new.deferred:
        bus.wake(new.mailbox, new.connection)
    if new.owes is not None and not new.state.open:
        bus.signals.wake(owed_key(new.owes))
    if new.sweep_at is not None:
        bus.timers.sweep_by(new.sweep_at)
    bus.signals.wake("message:" + new.message_id)
    bus.events.moved(now, new)
