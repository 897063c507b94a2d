"""What a live chat says of a message that it was handed: its answer, or why there is none.

What must stay true: the answer and the end of the delivery are one unit, and so are a failure and the notice of it. It
settles by its lease like any other hand: an old one is refused, and saying it twice is saying it once. No answer goes
out to an answer, a notice, or an ``inform`` that got no words: no two agents answer each other for ever.
"""

from angelia.bus.caller import Caller
from angelia.bus.claim import Settled, settle
from angelia.bus.core import Bus
from angelia.bus.draft import Draft
from angelia.bus.moves import move
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Tx
from angelia.bus.publish import accept
from angelia.model.delivery import Event, State
from angelia.model.envelope import Intent, Kind
from angelia.model.errors import LeaseLost, TooLarge
from angelia.model.failure import Reason

_ENDED = {State.LEASED, State.QUEUED, State.DELIVERED, State.ANSWERED}


async def answered(bus: Bus, caller: Caller, lease: str, message_id: str, text: str) -> Settled:
    """The chat's answer. Raises ``LeaseLost`` where somebody else has, or had, the message since; ``TooLarge``."""
    if len(text.encode("utf-8", "replace")) > bus.limits.reply_bytes:
        raise TooLarge(f"An answer has at most {bus.limits.reply_bytes} bytes. Nothing was stored.")

    def arrow(tx: Tx, parcel: Parcel) -> Settled:
        envelope, here = parcel.envelope, parcel.delivery
        _same(envelope.id, message_id)
        if here.state not in (State.LEASED, State.QUEUED):
            return Settled(here.state, already=True)
        late = here.state is State.QUEUED
        if envelope.kind is Kind.MESSAGE and (envelope.intent is Intent.REQUEST or text != ""):
            handle, proved = bus.identify(caller, bus.directory.name_of(here.mailbox))
            draft = Draft(
                sender=handle, verified=proved, text=text, in_reply_to=envelope.id, kind=Kind.REPLY, outcome=True
            )
            accept(bus, tx, draft, [])
            return Settled(State.ANSWERED, late=late)
        move(bus, tx, parcel, Event.LATE_ACK if late else Event.ACK)
        return Settled(State.DELIVERED, late=late)

    return await settle(bus, caller, lease, arrow, _ENDED)


async def failed(bus: Bus, caller: Caller, lease: str, message_id: str, reason: Reason, said: str) -> Settled:
    """There is no answer, for good: the sender is told. Raises ``LeaseLost`` as above."""

    def arrow(tx: Tx, parcel: Parcel) -> Settled:
        _same(parcel.envelope.id, message_id)
        if parcel.delivery.state is not State.LEASED:
            return Settled(parcel.delivery.state, already=True)
        if parcel.envelope.kind is not Kind.MESSAGE:
            move(bus, tx, parcel, Event.EXHAUST, reason=reason)
            return Settled(State.DEAD)
        done = move(bus, tx, parcel, Event.REFUSE, reason=reason)
        if done is not None:
            tell_of_failure(bus, tx, done, reason, said=said)
        return Settled(State.FAILED)

    return await settle(bus, caller, lease, arrow, {State.LEASED, State.FAILED, State.DEAD})


def _same(one: str, other: str) -> None:
    if one != other:
        raise LeaseLost(f"That lease is not for message {other[:40]}. Nothing was changed.")
