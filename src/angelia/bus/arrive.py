"""Messages that another hub hands over: stored here, or refused one by one.

What must stay true:

- What is answered with *stored* is on disk here; the same message again is a repeat, and is never stored twice.
- A sender is a claim of the link that it came by, shown under that link's names alone. Whether it is proved counts for
  the neighbour's own agents; what it says of others' is hearsay.
- An answer is taken from the hub that was asked alone, by that hub itself or by the one that the question went to; by
  whatever name the connection goes now. A hub between that has forgotten the question hands it on as it does a message:
  whether it was asked is judged where it was.
- A message that has been here, or has passed too many hubs, is refused; so is one that does not come from the hub at
  the end of its way, whose fingerprint does not hold, or whose body is not JSON as it is stored here. What is refused
  has written nothing, not even a name, and costs no other.
- What comes behind one that was refused for now, of the same sender for the same mailbox, is refused with it.
- What is for an agent further on waits in a mailbox like all mail, and is handed on by the link that leads there.
- The notice that a request failed is not stored: it ends the delivery here, and whoever asked is told from here.
"""

import asyncio
from collections.abc import Callable, Sequence

from angelia.bus.core import Bus
from angelia.bus.draft import Crossing, Draft
from angelia.bus.jams import Behind
from angelia.bus.neighbours import place_id
from angelia.bus.outcomes import Fate, owe_again, settle_forwarded
from angelia.bus.place import place
from angelia.bus.ports import Tx
from angelia.bus.publish import UNIT_MESSAGES, accept
from angelia.bus.remotes import Remote, address_of
from angelia.bus.room import with_room
from angelia.model.address import HUB, PERSON, PRESENCE, Address
from angelia.model.connection import Connection
from angelia.model.envelope import Envelope, Kind, Lane
from angelia.model.errors import (
    BadRequest,
    CallerError,
    DiskFull,
    HopLimit,
    IdReused,
    NotAllowed,
    RuntimeOffline,
    TooLarge,
    UnknownAgent,
    UnknownMessage,
)
from angelia.model.failure import read_reason
from angelia.protocol.bot_relay import BODY_CHARS
from angelia.protocol.bot_relay_targets import offline_text
from angelia.protocol.foreign_json import Malformed, read
from angelia.protocol.hub import AGAIN, GARBLED, Item, Stored, is_whole, read_item, refusal
from angelia.protocol.json import value


class Garbled(CallerError):
    """A bit of it flipped on the way: it is sent again."""

    code, title = GARBLED, "The message is not what was sent"


async def arrive(bus: Bus, connection: Connection, given: Sequence[object], behind: Behind) -> list[Stored]:
    """Store what a neighbour hands over, in its order; what became of each. ``behind``: what was refused for now on
    this link. Raises the store's ``HubError``: then nobody knows, and the same again is good.

    The units are queued before anything is awaited, so that two calls keep their order.
    """
    bus.check_running()
    if len(given) > bus.limits.batch_messages:
        raise BadRequest(f"{bus.limits.batch_messages} messages at once are the most.", limit=bus.limits.batch_messages)
    parts = [given[start : start + UNIT_MESSAGES] for start in range(0, len(given), UNIT_MESSAGES)]
    units = [bus.store.write(_each(bus, connection, part, behind), weight=4096 * len(part)) for part in parts]
    return [stored for part in await asyncio.gather(*units) for stored in part]


def _each(bus: Bus, connection: Connection, given: Sequence[object], behind: Behind) -> Callable[[Tx], list[Stored]]:
    def unit(tx: Tx) -> list[Stored]:
        outcomes: list[Stored] = []
        seen: list[Item] = []
        tx.otherwise(lambda: behind.all_refused(seen, DiskFull.code, bus.clock.monotonic()))
        for each in given:
            try:
                item = read_item(each)
                seen.append(item)
                outcomes.append(_in_turn(bus, tx, connection, item, behind))
            except CallerError as error:
                outcomes.append(refusal(error))
        return outcomes

    return unit


def _in_turn(bus: Bus, tx: Tx, connection: Connection, item: Item, behind: Behind) -> Stored:
    """Store one, unless it comes behind one of its sender's that this mailbox did not take."""
    _check_way(bus, connection, item)
    if not is_whole(item):
        raise Garbled("Its fingerprint does not hold.")
    now = bus.clock.monotonic()
    code = behind.code(item, now)
    if (known := tx.message(item.id)) is not None:  # whatever has become since of its recipient, and of the limits
        if known.fingerprint.hex() != item.fingerprint:
            raise IdReused("This id was used for another message. Nothing was stored.")
        owe_again(tx, bus, connection.id, item.id)
        return Stored(stored=True, repeat=True)
    if code is not None:
        return Stored(stored=False, code=code, detail="An earlier one of its sender waits for the same mailbox.")
    try:
        return _store(bus, tx, connection, item)
    except CallerError as error:
        if error.code in AGAIN:
            behind.refused(item, error.code, now)
        raise


def _store(bus: Bus, tx: Tx, connection: Connection, item: Item) -> Stored:
    """One that is new here."""
    _check_content(bus, item)
    if item.kind is Kind.NOTICE:
        return _ended(bus, tx, connection, item)
    if item.sender.handle.lower() in (HUB, PRESENCE):
        raise NotAllowed(f"{item.sender.handle} is a hub's own name, and sends nothing but notices.")
    answered = item.kind is Kind.REPLY and tx.reply_to(item.in_reply_to or "") is not None
    if (item.kind is Kind.MESSAGE or answered) and not connection.accepts(item.sender.handle):
        raise NotAllowed(f"{item.sender.handle} may not write here: the connection is limited to others.")
    if item.kind is Kind.REPLY:
        if item.in_reply_to and tx.message(item.in_reply_to) is None and item.recipient.hub != bus.neighbours.me:
            return _hand_on(bus, tx, connection, item)
        recipients, sender = [], _asked(bus, tx, connection, item)
    else:
        recipients, sender = [_recipient(bus, connection, item)], _sender(bus, tx, connection, item)
    draft = Draft(
        sender=sender,
        verified=item.verified and item.sender.hub == connection.hub,
        to=str(recipients[0]) if recipients else None,
        text=item.text,
        body=None if item.body is None else item.body.encode(),
        flat=item.flat,
        intent=item.intent,
        in_reply_to=item.in_reply_to,
        ttl_seconds=min(item.expires_in / 1000, bus.limits.ttl_max_seconds),
        id=item.id,
        lane=item.lane if item.sender.handle == PERSON else Lane.NORMAL,  # a person's alone goes before others'
        replay=item.replay,
        kind=item.kind,
        outcome=item.kind is Kind.REPLY and not answered,
        crossing=Crossing(
            link=connection.id,
            fingerprint=bytes.fromhex(item.fingerprint),
            origin=item.origin,
            thread=item.thread,
            chain=item.chain,
            depth=item.depth,
            via=item.via,
            created_at=item.created_at,
        ),
    )
    return Stored(stored=True, repeat=accept(bus, tx, draft, recipients).duplicate)


def _check_way(bus: Bus, connection: Connection, item: Item) -> None:
    """It has not been here, has not passed too many, and was handed on by the hub that the link leads to."""
    me = bus.neighbours.me
    if me in item.via or len(item.via) > bus.limits.hops:
        raise HopLimit(f"It has passed {len(item.via)} hubs" + (", this one too." if me in item.via else "."))
    if item.sender.hub == me or item.via[-1:] != (connection.hub,):
        raise BadRequest("It does not come from where it says.")


def _check_content(bus: Bus, item: Item) -> None:
    """Its size, and that its body is JSON as it is stored here: it is shown as it stands, inside of other JSON."""
    most = bus.limits.reply_bytes if item.kind is Kind.REPLY else bus.limits.text_bytes
    if len((item.text or "").encode()) > most:
        raise TooLarge(f"The text is over {most} bytes.", limit=most)
    if item.text is None and item.body is None:
        raise BadRequest("There is neither text nor body in it.")
    if item.body is None:
        return
    data = item.body.encode()
    if len(data) > bus.limits.body_bytes:
        raise TooLarge(f"The body is over {bus.limits.body_bytes} bytes.", limit=bus.limits.body_bytes)
    body = value(data, bus.limits.body_depth)
    if data != data.strip() or b"\n" in data or b"\r" in data:
        raise BadRequest("The body has white space around it, or more than one line.")
    if item.flat and (not isinstance(body, dict) or "_meta" in body):
        raise BadRequest("The body stands for the message, and is no object that could.")


def _asked(bus: Bus, tx: Tx, connection: Connection, item: Item) -> str:
    """Who answers, by the name that was asked. A notice is not answered."""
    question = tx.message(item.in_reply_to) if item.in_reply_to else None
    if question is not None and question.kind is not Kind.NOTICE:
        for delivery in tx.deliveries(question.id):
            handle, _, name = delivery.to.rpartition("@")
            hub, way = bus.neighbours.meant(delivery)
            today = bus.neighbours.behind(name)
            if today is not None and today.hub != hub:
                continue  # that name is another's now
            if (handle.lower(), hub) == (item.sender.handle.lower(), item.sender.hub) and connection.hub in (hub, way):
                return f"{item.sender.handle}@{name}"
    raise UnknownMessage(f"{item.sender.handle} was asked nothing from here that has the id {item.in_reply_to}.")


def _hand_on(bus: Bus, tx: Tx, connection: Connection, item: Item) -> Stored:
    """An answer to a question that this hub had carried and knows no more."""
    if not connection.accepts(item.sender.handle):
        raise NotAllowed(f"{item.sender.handle} may not write here: the connection is limited to others.")
    recipient = _recipient(bus, connection, item)
    link = bus.neighbours.connections.get(recipient.carrier or "")
    if link is None or link.hub is None:  # a gateway of Hermes' takes an answer for what it asked alone
        raise UnknownMessage(f"There is nothing to answer here that has the id {item.in_reply_to}.")
    body = None if item.body is None else item.body.encode()
    name = bus.neighbours.name_of(connection.id, item.sender.hub)
    said = Draft(sender=f"{item.sender.handle}@{name}", to=str(recipient), text=item.text, body=body)
    with_room(bus.limits, tx, said, [recipient], awaited=False)  # what it answers, only the other side knows
    answer = Envelope(
        item.id,
        sender=_sender(bus, tx, connection, item),
        to=str(recipient),
        intent=item.intent,
        kind=item.kind,
        text=item.text,
        body=body,
        flat=item.flat,
        thread=item.thread,
        in_reply_to=item.in_reply_to,
        chain=item.chain,
        depth=item.depth,
        created_at=item.created_at,
        expires_at=bus.clock.now() + min(item.expires_in, int(bus.limits.ttl_max_seconds * 1000)),
        verified=item.verified and item.sender.hub == connection.hub,
        fingerprint=bytes.fromhex(item.fingerprint),
        via=item.via,
        origin=item.origin,
    )
    place(bus, tx, answer, [recipient], owes=connection.id)
    return Stored(stored=True)


def _sender(bus: Bus, tx: Tx, connection: Connection, item: Item) -> str:
    """Who sent it, by the name that its hub has here."""
    name = bus.neighbours.meet(tx, connection, item.sender.hub, item.called, bus.clock.now())
    return f"{item.sender.handle}@{name}"


def _recipient(bus: Bus, connection: Connection, item: Item) -> Address:
    """Whom it is for: an agent here, or one that another connection leads to."""
    handle, hub = item.recipient.handle, item.recipient.hub
    if not connection.shares(handle):
        raise _nobody(handle)
    if hub == bus.neighbours.me:
        if handle.lower() != PERSON and bus.directory.find(handle.lower()) is None:
            raise _nobody(handle)
        return Address(bus.directory.require(handle))
    there = bus.remotes.everyone(bus.clock.now(), bus.limits)
    for remote in there:
        if remote.carrier == connection.id or handle.lower() not in (remote.shown.handle.lower(), remote.shown.profile):
            continue
        known = remote.known
        home = place_id(bus.neighbours.me, remote.shown.connection_id) if known is None else known.row.hub
        if home == hub and connection.shares(remote.shown.handle):
            _check_takes(remote, item)
            return address_of(remote, [each.shown for each in there])
    raise UnknownAgent(f"Nothing here leads to '{handle}' any more.", suggestions=[])


def _nobody(handle: str) -> UnknownAgent:
    """Without other names: they may be none of the other side's business."""
    return UnknownAgent(f"Nobody here is called '{handle}', as far as this connection sees.", suggestions=[])


def _check_takes(remote: Remote, item: Item) -> None:
    """The same as for a sender here: not for one that is known to be offline, nor more than Hermes takes."""
    if remote.shown.online is False:
        raise RuntimeOffline(offline_text(remote.shown))
    if remote.known is None and len(item.text or "") + len(item.body or "") > BODY_CHARS:
        raise TooLarge(f"It is reached by way of Hermes, which takes {BODY_CHARS} characters.", limit=BODY_CHARS)


def _ended(bus: Bus, tx: Tx, connection: Connection, item: Item) -> Stored:
    """The other side says that a request failed: the delivery that went there ends so."""
    if item.sender.handle != HUB or item.about is None:
        raise BadRequest("A notice between hubs is the hub's own, and about a message.")
    fate = Fate("failed", read_reason(item.reason), _said(item))
    settle_forwarded(bus, tx, connection.id, item.about, fate)
    return Stored(stored=True)


def _said(item: Item) -> str:
    """What the turn said of it, where it said something."""
    try:
        body = read((item.body or "null").encode("utf-8", "replace"), 4)
    except Malformed:
        return ""
    said = body.get("said") if isinstance(body, dict) else None
    return said if isinstance(said, str) else ""
