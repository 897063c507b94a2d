"""Mail that this hub itself takes to a gateway of Hermes', and the answers to what came from there.

What must stay true:

- A message is forwarded on disk before a byte of it leaves: Hermes knows no repeats, so whatever happens after that is
  never the reason for a second turn, but for the one offer more that ``forward.py`` makes. What certainly did not leave
  is back in its place.
- The outcome is taken as ``forward.settle_far`` takes it. What the far agent says to an answer or a notice goes
  nowhere: no two agents answer each other for ever.
- An answer that came after the notice that none will is still told, as long as its sender waits there.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from angelia.bus.carry import fail
from angelia.bus.core import Bus
from angelia.bus.forward import end, forward, offer, said, settle_far, times_of
from angelia.bus.moves import give_back, move
from angelia.bus.ports import Parcel, Tx, View
from angelia.model.address import parse
from angelia.model.delivery import Event, State
from angelia.model.envelope import Envelope, Kind
from angelia.model.failure import Reason, on_hermes_wire, read_reason
from angelia.protocol.bot_relay_mail import RelayEnvelope
from angelia.protocol.prompt import answer as unless_silent

_LATEST_SECONDS = 60.0  # before its sender stops waiting, it is told that nothing came


@dataclass(frozen=True, slots=True)
class Begun:
    """A message that is forwarded. ``connection``: its sender's, as the far side knows it."""

    parcel: Parcel
    envelope: RelayEnvelope
    connection: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What ``bot_relay.reply`` is called with. ``wait``: seconds until it is worth to be told."""

    id: str
    reply: str = ""
    error: str = ""
    reason: str = ""
    wait: float = 0.0

    def params(self) -> dict[str, object]:
        """As the call takes it: an answer, or an error with its reason."""
        told = {"error": self.error, "reason": self.reason} if self.reason else {"reply": self.reply}
        return {"id": self.id, **told}


async def begin(bus: Bus, link: str, parcel: Parcel, here: str) -> Begun | None:
    """Forward what was taken for a link (a key); None where it ends now, or has ended. Raises the store's error: then
    it is still taken.

    ``here``: this hub's name as the far side knows it. Cancelled, it is back in its place.
    """
    found = offer(bus, link, parcel, here)
    if isinstance(found, Reason):
        why = found
        bus.submit(lambda tx: end(bus, tx, [(parcel, why)]))
        return None
    writing = bus.store.write(lambda tx: forward(bus, tx, parcel), essential=True)
    try:
        done = await asyncio.shield(writing)
    except asyncio.CancelledError:
        did_not_leave(bus, parcel)
        raise
    sender = parse(parcel.envelope.sender)
    return Begun(done, found, here if sender.is_local else sender.connection) if done is not None else None


def did_not_leave(bus: Bus, parcel: Parcel) -> None:
    """Nothing of it has left: back into its place, as if it had not been forwarded."""

    def unit(tx: Tx) -> None:
        here = tx.delivery(parcel.delivery.key)
        if here is None or here.attempt != parcel.delivery.attempt:
            return
        now = Parcel(here, parcel.envelope)
        if here.state is State.LEASED:
            give_back(bus, tx, now, Event.RELEASE, used=False)
        elif here.state is State.FORWARDED:
            move(bus, tx, now, Event.REOFFER, expires_at=parcel.delivery.expires_at)

    bus.submit(unit)


async def answered(bus: Bus, begun: Begun, reply: str) -> None:
    """The far agent's answer; a bare mark of silence is an empty one. Raises the store's error."""
    if begun.parcel.envelope.kind is Kind.MESSAGE:
        await settle_far(bus, begun.parcel.envelope.id, unless_silent(reply), None, None, _only(begun))
        return
    await bus.store.write(lambda tx: move(bus, tx, begun.parcel, Event.FAR_DELIVERED), essential=True)


async def failed(bus: Bus, begun: Begun, error: str, reason: Reason | None) -> None:
    """The far side's refusal. ``reason`` None: its words alone say why. Raises the store's error."""
    if begun.parcel.envelope.kind is Kind.MESSAGE:
        said = error or "no word", reason and reason.value
        await settle_far(bus, begun.parcel.envelope.id, None, *said, _only(begun))
        return
    why = reason or Reason.UNKNOWN
    await bus.store.write(lambda tx: fail(bus, tx, begun.parcel, why, ""), essential=True)


async def answer_to_envelope(bus: Bus, connection: str, parcel: Parcel) -> Answer | None:
    """What a reply or a notice is to the gateway behind ``connection`` (its name): the outcome of the envelope that it
    answers; None where it answers none of its envelopes."""
    envelope = parcel.envelope
    if envelope.kind is Kind.MESSAGE or envelope.in_reply_to is None:
        return None
    id = envelope.in_reply_to

    def look(view: View) -> Envelope | None:
        return view.message(id)

    asked = await bus.store.read(look)
    if asked is None or asked.kind is not Kind.MESSAGE or not _is_from(asked, parcel, connection):
        return None
    if envelope.kind is Kind.REPLY:
        return Answer(id, reply=said(envelope))
    reason = read_reason(envelope.reason)
    wait = 0.0
    if reason is Reason.DELIVERY_TIMEOUT:
        ends = asked.created_at / 1000 + times_of(bus.limits).waiter_seconds - _LATEST_SECONDS
        wait = max(0.0, ends - bus.clock.now() / 1000)
    return Answer(id, error=envelope.text or "", reason=on_hermes_wire(reason), wait=wait)


def _is_from(asked: Envelope, parcel: Parcel, connection: str) -> bool:
    """Whether the one that is answered wrote it, and is one of that gateway's."""
    sender = asked.sender.lower()
    return sender == parcel.delivery.mailbox and sender.partition("@")[2] == connection.lower()


def _only(begun: Begun) -> Callable[[str], bool]:
    """An outcome is of what went to that very gateway."""
    return lambda connection: connection == begun.parcel.delivery.connection
