"""The hub's own words: the notice that tells a sender how its request ended.

What must stay true: a notice goes only to the sender of a request, never to the hub or to presence, is never answered
and never causes another. It is exempt from the mailbox's bounds: the outcome of what was accepted is always told. Of
what somebody sent to itself it is an ``ack``: nobody is woken by writing to itself, nor by what became of that.
"""

from angelia.bus.core import Bus
from angelia.bus.place import place
from angelia.bus.ports import Parcel, Tx
from angelia.bus.runs import OWN_LANE
from angelia.bus.way_back import home_of, way_back
from angelia.model.address import HUB, PRESENCE, parse
from angelia.model.envelope import Envelope, Intent, Kind, Origin, fingerprint
from angelia.model.failure import Reason, prose
from angelia.protocol.json import encode


def tell_of_failure(bus: Bus, tx: Tx, parcel: Parcel, reason: Reason, said: str | None = None) -> None:
    """Tell the sender of a request that one of its deliveries ended without an answer; nothing for other intents.

    ``said``: what its turn said of it, in a sentence; of a turn that failed, whoever sent the message is told.
    """
    about, delivery = parcel.envelope, parcel.delivery
    if (about.intent is not Intent.REQUEST and said is None) or about.sender in (HUB, PRESENCE):
        return
    now = bus.clock.now()
    back = way_back(bus, about.sender, home_of(about.origin))
    body = encode({"said": said}) if back is not None and said else None
    text = f"Your message to {delivery.to} was not answered. {prose(reason)}" + (f" {said}" if said else "")
    notice = Envelope(
        id=bus.ids.message_id(),
        sender=HUB,
        to=about.sender,
        intent=Intent.ACK if delivery.lane == OWN_LANE else Intent.INFORM,
        kind=Kind.NOTICE,
        text=text,
        body=body,
        thread=about.thread,
        in_reply_to=about.id,
        chain=about.chain,
        depth=about.depth,
        created_at=now,
        expires_at=now + bus.limits.ttl_seconds * 1000,
        verified=True,
        about=about.id,
        reason=reason.value,
        fingerprint=fingerprint(HUB, about.sender.lower(), None, Kind.NOTICE, text, body, None, about.id),
        origin=None if back is None else Origin(bus.neighbours.me, HUB, about.sender, None, Kind.NOTICE, None),
    )
    place(bus, tx, notice, [back or parse(about.sender)])
    if delivery.owes is not None and back is not None:
        tx.move(delivery, delivery._replace(owes=None))  # the notice goes there, and says so
