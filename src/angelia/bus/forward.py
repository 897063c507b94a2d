"""Mail that a relay of Hermes' fetches here, and the outcome that it brings back.

What must stay true:

- Each message is handed out once, and once more where nothing came back in the time that the far side may take; then it
  ends as timed out. An answer that could not be handed over whole gives everything in it back.
- The first outcome settles: the answer is stored together with the end of the delivery, a failure together with the
  notice of it. Whatever comes afterwards changes nothing; an answer that comes after only time had ended it is still
  delivered, once, as a late one.
- What nobody fetches expires; the sender of a request is told each of these ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from angelia.bus.claim import claim, release
from angelia.bus.core import Bus
from angelia.bus.draft import Draft
from angelia.bus.moves import move
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Scope, Tx
from angelia.bus.publish import accept
from angelia.model.address import parse
from angelia.model.delivery import Delivery, Event, Hand, State
from angelia.model.envelope import Envelope, Kind
from angelia.model.failure import Reason, read_reason
from angelia.model.limits import Limits
from angelia.protocol.bot_relay import DEFAULT_HANDLE, DEFAULT_PROFILE, Times
from angelia.protocol.bot_relay_mail import RelayEnvelope, new_envelope, new_reply
from angelia.protocol.bot_relay_rows import Row
from angelia.protocol.native import text_of
from angelia.protocol.prompt import attribution

SWEEP_AFTER_MS = 60_000  # of what is forwarded: ``moves.sweep_time`` looks so long after the delivery's own end
SAID_LETTERS = 500  # of a far side's error, in the notice of it; Hermes keeps as many
# After these nobody knew whether an answer would come.
_OPEN_ENDS = frozenset({Reason.DELIVERY_TIMEOUT, Reason.QUEUED_EXPIRED, Reason.OUTCOME_UNKNOWN})
# The arrow of a far failure, by where the delivery stands.
_FAILS = {State.FORWARDED: Event.FAR_FAILED, State.LEASED: Event.REFUSE, State.QUEUED: Event.CANCEL}


@dataclass(slots=True)
class Drained:
    """What a relay gets. Call ``handed_out`` with it once it was written, or could not be. ``more``: there is more."""

    parcels: list[Parcel]
    envelopes: list[RelayEnvelope]
    more: bool = False


def times_of(limits: Limits) -> Times:
    """How long each part of a relayed message may take."""
    return Times(limits.turn_seconds, limits.turn_attempts, limits.lock_wait_seconds)


async def waits(bus: Bus, scope: str) -> bool:
    """Whether there is mail for this scope to fetch."""
    return bool(await bus.store.read(lambda view: view.waiting(Scope(connection=scope), 1, 0)))


async def drain(bus: Bus, scope: str) -> Drained:
    """Take what waits for this scope (a key), the oldest first."""
    taken = await claim(bus, Scope(connection=scope), reader=None, hand=Hand.LINK)
    drained = Drained([], [], more=len(taken.parcels) == bus.limits.claim_deliveries)
    ended: list[tuple[Parcel, Reason]] = []
    for parcel in taken.parcels:
        found = offer(bus, scope, parcel)
        if isinstance(found, Reason):
            ended.append((parcel, found))
        else:
            drained.parcels.append(parcel)
            drained.envelopes.append(found)
    if ended:
        bus.submit(lambda tx: end(bus, tx, ended))
    return drained


def offer(bus: Bus, scope: str, parcel: Parcel, here: str | None = None) -> RelayEnvelope | Reason:
    """A message that was taken for a scope, as it is handed over; or why it ends now.

    ``here``: this hub's name as the far side knows it, for the stamps of agents here (None: they are bare).
    """
    if bus.clock.now() >= _ends(bus, parcel):
        return Reason.DELIVERY_TIMEOUT if parcel.delivery.used else Reason.QUEUED_EXPIRED
    row = bus.remotes.of_mail(scope, parcel.delivery.to)
    return _envelope(bus, parcel, row, here) if row is not None else Reason.RUNTIME_OFFLINE


def handed_out(bus: Bus, drained: Drained, *, written: bool) -> None:
    """It was handed over to a relay that is still there: what comes back is awaited. Or it was not: it waits on."""
    if not written:
        release(bus, drained.parcels, used=False)
        return

    def unit(tx: Tx) -> None:
        for parcel in drained.parcels:
            forward(bus, tx, parcel)

    if drained.parcels:
        bus.submit(unit)


def forward(bus: Bus, tx: Tx, parcel: Parcel) -> Parcel | None:
    """Its outcome is awaited from now on; None where it is no longer the taker's. Inside a unit."""
    again = bus.clock.now() + int(times_of(bus.limits).reoffer_seconds * 1000)
    ends = _ends(bus, parcel) if parcel.delivery.used else min(again, _ends(bus, parcel))
    return move(bus, tx, parcel, Event.FORWARD, expires_at=ends - SWEEP_AFTER_MS)


def offer_again_or_end(bus: Bus, tx: Tx, parcel: Parcel) -> None:
    """The time in which an outcome should have come is over: once the message is offered anew, then it has failed."""
    delivery = parcel.delivery
    fetched = delivery.hand is Hand.LINK and bus.remotes.is_scope(delivery.connection)
    if fetched and bus.clock.now() < _ends(bus, parcel):
        move(bus, tx, parcel, Event.REOFFER, used=1)
        return
    done = move(bus, tx, parcel, Event.TIME_OUT)
    if done is not None:
        tell_of_failure(bus, tx, done, Reason.DELIVERY_TIMEOUT)


async def settle_far(
    bus: Bus,
    message_id: object,
    reply: object,
    error: object,
    reason: object,
    speaks_for: Callable[[str], bool] = lambda connection: True,
) -> None:
    """Take the outcome of a message that was handed out; ``speaks_for``: to whom (by its key) the caller may say so.
    Raises ``ValueError`` for what is no id.

    An id that is unknown here, and one that is settled, change nothing.
    """
    found = new_reply(message_id, bus.clock.now() // 1000, reply=reply, error=error, reason=reason)

    def unit(tx: Tx) -> None:
        envelope = tx.message(found.id)
        deliveries = tx.deliveries(found.id)
        delivery = next((d for d in deliveries if _is_fetched(bus, d, speaks_for)), None)
        if envelope is None or delivery is None or not delivery.attempt:
            return
        parcel = Parcel(delivery, envelope)
        if found.error or (found.reason and not found.reply):
            _far_failed(bus, tx, parcel, *_why(bus, parcel, error, reason))
        elif len(found.reply.encode("utf-8", "replace")) > bus.limits.reply_bytes:
            _far_failed(bus, tx, parcel, Reason.TOO_LARGE, "")
        elif _takes_reply(tx, parcel):
            draft = Draft(sender=delivery.to, text=found.reply, in_reply_to=envelope.id, kind=Kind.REPLY, outcome=True)
            accept(bus, tx, draft, [])

    await bus.store.write(unit, weight=len(found.reply), essential=True)


def _is_fetched(bus: Bus, delivery: Delivery, by: Callable[[str], bool]) -> bool:
    connection = delivery.connection
    return connection is not None and bus.remotes.is_scope(connection) and by(connection)


def _takes_reply(tx: Tx, parcel: Parcel) -> bool:
    state, reason = parcel.delivery.state, parcel.delivery.reason
    if tx.reply_to(parcel.envelope.id) is not None:
        return False
    return state in _FAILS or (state is State.FAILED and reason in _OPEN_ENDS)


def _why(bus: Bus, parcel: Parcel, error: object, reason: object) -> tuple[Reason, str]:
    """Its reason, read out of its words only after the names in them were taken out; and the words."""
    to = parcel.delivery.to
    row = bus.remotes.of_mail(parcel.delivery.connection or "", to)
    names = [*to.split("@"), *parcel.envelope.sender.split("@"), *((str(part) for part in row[:5]) if row else ())]
    found = new_reply(parcel.envelope.id, 0, error=error, reason=reason, names=names)
    said = " ".join(found.error.split())[:SAID_LETTERS]
    return read_reason(found.reason), f"The other side says: {said}" if said else ""


def _far_failed(bus: Bus, tx: Tx, parcel: Parcel, reason: Reason, said: str) -> None:
    event = _FAILS.get(parcel.delivery.state)
    done = move(bus, tx, parcel, event, reason=reason) if event is not None else None
    if done is not None:
        tell_of_failure(bus, tx, done, reason, said=said)


def end(bus: Bus, tx: Tx, ended: Sequence[tuple[Parcel, Reason]]) -> None:
    """What was taken is not handed over: its senders are told why. Inside a unit."""
    for parcel, reason in ended:
        done = move(bus, tx, parcel, Event.REFUSE, reason=reason)
        if done is not None:
            tell_of_failure(bus, tx, done, reason)


def _ends(bus: Bus, parcel: Parcel) -> int:
    """When its sender stops waiting, whatever was tried (UTC ms)."""
    return parcel.delivery.accepted_at + int(times_of(bus.limits).waiter_seconds * 1000)


def _envelope(bus: Bus, parcel: Parcel, row: Row, here: str | None) -> RelayEnvelope:
    """A message as Hermes' relays carry it, to its recipient under its pusher's own names."""
    envelope, sender = parcel.envelope, parse(parcel.envelope.sender)
    handle = sender.name
    agent = bus.directory.find(envelope.sender.lower())
    name = (agent.title if agent is not None else "") or handle  # a long handle is cut as a name is, and so all fits
    text = attribution(name, handle, here if agent is not None or sender.is_local else sender.connection)
    found = new_envelope(
        envelope.id,
        envelope.created_at // 1000,
        (DEFAULT_PROFILE if handle.lower() == DEFAULT_HANDLE else handle, handle),
        (row.connection_id, row.profile, row.handle),
        text + said(envelope),
    )
    return found.reoffered(bus.clock.now() // 1000) if parcel.delivery.used else found


def said(envelope: Envelope) -> str:
    """A message where only text is carried: its text, and its body as JSON (a seed payload's where it says more)."""
    text, body = text_of(envelope), (envelope.body or b"").decode()
    if envelope.flat:
        return text if text is not None else body
    return "\n\n".join(part for part in (text, body) if part)
