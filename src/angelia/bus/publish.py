"""Accept a message: validate, append, commit, and only then wake.

What must stay true: a 2xx is the commit's; a refusal stored nothing. The same id or idempotency key with the same
content is the same message and gets the same answer; with other content it is refused. What is decided about a mailbox
(room, order, taker) is decided inside the unit, where nothing can come between. An answer and the arrow that it means
are one unit.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from angelia.bus.core import Bus
from angelia.bus.draft import Accepted, Crossing, Draft
from angelia.bus.moves import move
from angelia.bus.place import place
from angelia.bus.ports import Parcel, Tx
from angelia.bus.remotes import address_of
from angelia.bus.room import with_room
from angelia.bus.way_back import address_back, home_of
from angelia.model.address import EVERYONE, LOCAL, PERSON, RESERVED, Address, parse
from angelia.model.delivery import Event, State, after
from angelia.model.envelope import Envelope, Intent, Kind, Origin, check_id, fingerprint
from angelia.model.errors import (
    AmbiguousName,
    BadRequest,
    CallerError,
    IdReused,
    RuntimeOffline,
    TooLarge,
    UnknownAgent,
    UnknownMessage,
)
from angelia.model.failure import Reason
from angelia.protocol.bot_relay import BODY_CHARS
from angelia.protocol.bot_relay_targets import Ambiguous, ambiguous_text, offline_text

_INTENTS = tuple(intent.value for intent in Intent)
_NOBODY = {None}  # carries what stays here
TURN_SECONDS = 0.01  # of the loop for one batch, unless nobody else waits: many names that nobody has take longer
HINTS = 3  # unknown names of a batch for which close ones are looked for: all others wait meanwhile


UNIT_MESSAGES = 100  # of one batch in one unit: 3 ms of the store's thread, then others have their turn


@dataclass(slots=True)
class _Place:
    """Where a message stands in its conversation."""

    thread: str
    chain: str
    depth: int
    parent: Envelope | None = None
    answers: Parcel | None = None


async def publish(bus: Bus, draft: Draft) -> Accepted:
    """Accept one message. Raises any ``CallerError`` of its checks, or the store's ``HubError``."""
    bus.check_running()
    check(bus, draft)
    recipients = recipients_of(bus, draft)
    return await bus.store.write(lambda tx: accept(bus, tx, draft, recipients), weight=weight(draft))


async def publish_many(bus: Bus, drafts: Sequence[Draft | CallerError]) -> list[Accepted | CallerError]:
    """Accept many messages in as few units as is polite to others; each has an outcome of its own, in their order.
    One that the door refused already keeps its place among them.

    Raises the store's ``HubError`` for all of them.
    """
    bus.check_running()
    ready: list[_Ready | CallerError] = []
    hints = HINTS
    turn_ends = bus.clock.monotonic() + TURN_SECONDS
    for draft in drafts:
        ready.append(_ready(bus, draft, hint=hints > 0))
        hints -= isinstance(ready[-1] if isinstance(ready[-1], CallerError) else ready[-1][1], UnknownAgent)
        if bus.clock.monotonic() > turn_ends:
            await asyncio.sleep(0)
            turn_ends = bus.clock.monotonic() + TURN_SECONDS
    parts = [ready[start : start + UNIT_MESSAGES] for start in range(0, len(ready), UNIT_MESSAGES)]
    units = [bus.store.write(_accept_each(bus, part), weight=sum(map(_weight_of, part))) for part in parts]
    return [outcome for part in await asyncio.gather(*units) for outcome in part]


Recipients = Sequence[Address] | CallerError  # or why there are none
_Ready = tuple[Draft, Recipients, bytes]  # and its fingerprint


def _ready(bus: Bus, draft: Draft | CallerError, *, hint: bool) -> _Ready | CallerError:
    """All that needs no store, one message after the other: in between the rest it takes twice as long."""
    if isinstance(draft, CallerError):
        return draft
    try:
        check(bus, draft)
        return draft, recipients_of(bus, draft, hint=hint), _fingerprint(draft)
    except CallerError as error:
        return error


def _weight_of(ready: _Ready | CallerError) -> int:
    return 0 if isinstance(ready, CallerError) else weight(ready[0])


def _accept_each(bus: Bus, several: Sequence[_Ready | CallerError]) -> Callable[[Tx], list[Accepted | CallerError]]:
    """One unit for several: a message that is refused has written nothing, so that it harms no other."""

    def unit(tx: Tx) -> list[Accepted | CallerError]:
        outcomes: list[Accepted | CallerError] = []
        for ready in several:
            try:
                outcomes.append(ready if isinstance(ready, CallerError) else accept(bus, tx, *ready))
            except CallerError as error:
                outcomes.append(error.with_traceback(None))  # which knows these outcomes: a circle
        return outcomes

    return unit


def weight(draft: Draft) -> int:
    """What a unit that stores this carries, roughly, in bytes."""
    return len(draft.text or "") + len(draft.body or b"") + 1024


def check(bus: Bus, draft: Draft) -> None:
    """The checks that need no store."""
    limits = bus.limits
    if draft.text is None and draft.body is None:
        raise BadRequest("There is neither text nor body in it; one of them is needed. Nothing was stored.")
    if draft.kind is not Kind.REPLY and draft.text == "" and draft.body is None:
        raise BadRequest("The text is empty; only a reply's may be. Nothing was stored.")
    if draft.text is not None and _bytes(draft.text) > limits.text_bytes:
        raise TooLarge(f"The text is over {limits.text_bytes} bytes. Nothing was stored.", limit=limits.text_bytes)
    if draft.body is not None and len(draft.body) > limits.body_bytes:
        raise TooLarge(f"The body is over {limits.body_bytes} bytes. Nothing was stored.", limit=limits.body_bytes)
    for name, value in (("id", draft.id), ("in_reply_to", draft.in_reply_to), ("thread", draft.thread)):
        if value is not None:
            check_id(value, name)
    if draft.intent is not None and draft.intent not in _INTENTS:
        raise BadRequest(f"intent is '{draft.intent[:40]}'; it is one of {', '.join(_INTENTS)}. Nothing was stored.")
    if draft.key is not None and not 1 <= len(draft.key) <= 255:
        raise BadRequest("An Idempotency-Key has 1 to 255 characters. Nothing was stored.", limit=255)
    ttl = draft.ttl_seconds
    if ttl is not None and not limits.ttl_min_seconds <= ttl <= limits.ttl_max_seconds:
        raise BadRequest(
            f"ttl_seconds is {ttl}; it lies between {limits.ttl_min_seconds} and {limits.ttl_max_seconds}. "
            "Nothing was stored."
        )


def _bytes(text: str) -> int:
    """How long it is in UTF-8."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise BadRequest("The text holds half of a surrogate pair. Nothing was stored.") from None


def recipients_of(bus: Bus, draft: Draft, *, hint: bool = True) -> Recipients:
    """The recipients of a draft, as ``resolve``; but why there are none is for ``accept`` to raise where it may be a
    repeat, which is the same message whatever has become since of whom it was for."""
    try:
        return resolve(bus, draft, hint=hint)
    except CallerError as error:
        if draft.id is None and draft.key is None:
            raise
        return error


def resolve(bus: Bus, draft: Draft, *, hint: bool = True) -> list[Address]:
    """The recipients of a draft; ``UnknownAgent`` where there is none, with close names where a ``hint`` is wanted. An
    answer is resolved later."""
    if draft.kind is Kind.REPLY:
        return []
    if draft.to == EVERYONE:
        me = draft.sender.lower()
        members = [address for address in bus.directory.members() if address.mailbox != me]
        if not members:
            raise UnknownAgent("There is nobody else here yet. Nothing was stored.")
        return members
    if draft.to is not None and (known := bus.directory.address(draft.to)) is not None:
        return [known]
    address = parse(draft.to.lstrip("@") if draft.to is not None else None)  # as people, and Hermes, write names
    if address.room:
        raise UnknownAgent(f"There is no room '{draft.to}'. Nothing was stored.", suggestions=[])
    here = address.name.lower() in RESERVED or bus.directory.find(address.name.lower()) is not None
    if here and address.connection.lower() == bus.neighbours.name.lower():  # our own, as others call it
        address = Address(address.name)
    only_here = draft.to is not None and draft.to.lower().endswith("@" + LOCAL)
    if not (address.is_local and (here or only_here)) and (remote := _elsewhere(bus, draft, str(address))) is not None:
        return [remote]
    if not address.is_local:
        raise UnknownAgent(
            f"Nobody is called '{draft.to}', as far as is known here. Nothing was stored.",
            suggestions=[address.name] if here else [],
        )
    return [Address(bus.directory.require(address.name, hint=hint))]


def _elsewhere(bus: Bus, draft: Draft, target: str) -> Address | None:
    """The recipient on another connection. Raises ``AmbiguousName``, ``RuntimeOffline``, or ``TooLarge`` for what a
    gateway of Hermes would not take."""
    now = bus.clock.now()
    found = bus.remotes.find(target, bus.directory.agents, now, bus.limits)
    if found is None:
        return None
    if isinstance(found, Ambiguous):
        raise AmbiguousName(f"{ambiguous_text(target, found)} Nothing was stored.", suggestions=list(found.forms))
    if found.shown.online is False:
        raise RuntimeOffline(offline_text(found.shown))
    length = len(draft.text or "") + len((draft.body or b"").decode())
    if found.known is None and length > BODY_CHARS:
        raise TooLarge(
            f"{target} is reached by way of Hermes, which takes {BODY_CHARS} characters; this has {length}. "
            "Nothing was stored.",
            limit=BODY_CHARS,
        )
    return address_of(found, bus.remotes.rows(now, bus.limits))


def accept(bus: Bus, tx: Tx, draft: Draft, recipients: Recipients, mark: bytes | None = None) -> Accepted:
    """The unit: find a repeat, find its place in the conversation, check room, store. What refuses comes before what
    writes. ``mark``: its fingerprint, where that was made before."""
    crossing = draft.crossing
    mark = crossing.fingerprint if crossing is not None else mark or _fingerprint(draft)
    if (repeat := _repeat(tx, draft, mark)) is not None:
        return Accepted(repeat, tx.deliveries(repeat.id), duplicate=True)
    if isinstance(recipients, CallerError):
        raise recipients.with_traceback(None)
    now = bus.clock.now()
    message_id = draft.id or bus.ids.message_id()
    if crossing is not None:
        spot = _as_told(tx, draft, crossing)
    else:
        spot = _after_its_turn(bus, draft, _place_in_conversation(tx, draft, message_id))
    if spot.parent is not None and draft.kind is Kind.REPLY:
        recipients = [address_back(bus, spot.parent.sender, home_of(spot.parent.origin))]
    kind = Kind.REPLY if spot.answers is not None else draft.kind
    awaited = spot.answers is not None and after(spot.answers.delivery.state, Event.REPLY) is not None
    room, refused = list(recipients), list[tuple[str, CallerError]]()
    if not draft.outcome:
        room, refused = with_room(bus.limits, tx, draft, recipients, awaited=awaited)
    ttl = draft.ttl_seconds if draft.ttl_seconds is not None else bus.limits.ttl_seconds
    carriers = {address.carrier for address in recipients} - _NOBODY
    if kind is Kind.MESSAGE and carriers and any(map(bus.remotes.is_scope, carriers)):
        ttl = min(ttl, bus.limits.relay_ttl_seconds)
    envelope = Envelope(
        id=message_id,
        sender=draft.sender,
        to=EVERYONE if draft.to == EVERYONE else str(recipients[0]),
        intent=_intent(draft, kind),
        kind=kind,
        text=draft.text,
        body=draft.body,
        flat=draft.flat,
        thread=spot.thread,
        in_reply_to=draft.in_reply_to,
        chain=spot.chain,
        depth=spot.depth,
        lane=draft.lane,
        replay=draft.replay,
        created_at=now if crossing is None else crossing.created_at,
        expires_at=now + int(ttl * 1000),
        verified=draft.verified,
        key=draft.key,
        fingerprint=mark,
        via=() if crossing is None else crossing.via,
        origin=crossing.origin if crossing is not None else _origin(bus, draft) if carriers else None,
    )
    held = Reason.CHAIN_BUDGET if _over_budget(bus, tx, envelope, now) else None
    _learn(bus, tx, draft, room, now)  # the last that may refuse
    late = False
    if spot.answers is not None:
        late = spot.answers.delivery.state in (State.FAILED, State.DEAD)
        if awaited:
            move(bus, tx, spot.answers, Event.REPLY)
    rows = place(bus, tx, envelope, room, held=held, late=late, owes=None if crossing is None else crossing.link)
    return Accepted(envelope, rows, refused=refused)


def _fingerprint(draft: Draft) -> bytes:
    sender, to = draft.sender.lower(), (draft.to or "").lower()
    said = (sender, to, draft.intent, draft.kind)
    return fingerprint(*said, draft.text, draft.body, draft.thread, draft.in_reply_to)


def _origin(bus: Bus, draft: Draft) -> Origin:
    """What has to be known of it at other hubs, where it goes to one."""
    return Origin(bus.neighbours.me, draft.sender, draft.to or "", draft.intent, draft.kind, draft.thread)


def _intent(draft: Draft, kind: Kind) -> Intent:
    """As the sender said; but an answer asks for none, so that no two agents answer each other for ever."""
    intent = Intent(draft.intent) if draft.intent else Intent.INFORM
    return Intent.INFORM if kind is Kind.REPLY and intent is Intent.REQUEST else intent


def _repeat(tx: Tx, draft: Draft, mark: bytes) -> Envelope | None:
    """The message that this one repeats, if it does."""
    found = tx.message(draft.id) if draft.id else None
    if found is None and draft.key is not None:
        found = tx.by_key(draft.sender.lower(), draft.key)
    if found is None:
        return None
    if found.fingerprint != mark:
        what = "id" if found.id == draft.id else "Idempotency-Key"
        raise IdReused(f"This {what} was used for another message. Nothing was stored; take a fresh one.")
    return found


def _place_in_conversation(tx: Tx, draft: Draft, message_id: str) -> _Place:
    person = draft.sender == PERSON
    me = draft.sender.lower()
    parent = None
    if draft.in_reply_to is not None:
        parent = tx.message(draft.in_reply_to)
        mine = next((d for d in tx.deliveries(draft.in_reply_to) if d.mailbox == me), None) if parent else None
        if parent is None or (mine is None and parent.sender.lower() != me and not person):
            raise UnknownMessage(f"There is no message {draft.in_reply_to} of yours. Nothing was stored.")
        if parent.kind is Kind.NOTICE and draft.kind is Kind.REPLY:
            raise BadRequest(f"Nobody reads answers to the notices of {parent.sender}. Nothing was stored.")
        spot = _Place(
            thread=draft.thread or parent.thread,
            chain=message_id if person else parent.chain,
            depth=0 if person else parent.depth + 1,
            parent=parent,
        )
        back = draft.kind is Kind.REPLY or (draft.to or "").lower() == parent.sender.lower()
        if mine is not None and back and parent.kind is not Kind.NOTICE:
            spot.answers = Parcel(mine, parent)
        elif draft.kind is Kind.REPLY:
            raise UnknownMessage(f"Message {parent.id} was not sent to {draft.sender}, who so cannot answer it.")
        return spot
    root = tx.message(draft.thread) if draft.thread else None
    if root is not None and not person and _is_party(tx, root, me):
        return _Place(thread=root.thread, chain=root.chain, depth=root.depth + 1)
    return _Place(thread=draft.thread or message_id, chain=message_id, depth=0)


def _after_its_turn(bus: Bus, draft: Draft, spot: _Place) -> _Place:
    """What an agent sends while a turn of its runs descends from that turn's message, whatever it says of it: agents
    that write anew each time would go round in a circle for ever."""
    run = bus.runs.busy.get(draft.sender.lower())
    if run is not None and run.parcel.envelope.depth >= spot.depth:
        spot.chain, spot.depth = run.parcel.envelope.chain, run.parcel.envelope.depth + 1
    return spot


def _is_party(tx: Tx, message: Envelope, mailbox: str) -> bool:
    """Whether somebody sent or got it: of another's, an id that one knows is an id like any other."""
    return message.sender.lower() == mailbox or any(d.mailbox == mailbox for d in tx.deliveries(message.id))


def _as_told(tx: Tx, draft: Draft, crossing: Crossing) -> _Place:
    """Where a message that crossed stands: as its own hub says; what it answers is looked for here."""
    spot = _Place(crossing.thread, crossing.chain, crossing.depth)
    parent = tx.message(draft.in_reply_to) if draft.in_reply_to else None
    me = draft.sender.lower()
    mine = next((d for d in tx.deliveries(parent.id) if d.mailbox == me), None) if parent is not None else None
    if draft.kind is Kind.REPLY and mine is None:
        raise UnknownMessage(f"Nothing that {draft.sender} could answer here has the id {draft.in_reply_to}.")
    if parent is not None and mine is not None and parent.kind is not Kind.NOTICE:
        spot.parent = parent
        if draft.kind is Kind.REPLY or (draft.to or "").lower() == parent.sender.lower():
            spot.answers = Parcel(mine, parent)
    return spot


def _over_budget(bus: Bus, tx: Tx, envelope: Envelope, now: int) -> bool:
    """True where the chain is deep or fast enough to be a loop."""
    if envelope.depth == 0:  # a person's are all at depth 0
        return False
    if envelope.depth > bus.limits.chain_depth:
        return True
    return tx.chain_count(envelope.chain, now - 3_600_000) >= bus.limits.chain_per_hour


def _learn(bus: Bus, tx: Tx, draft: Draft, room: Sequence[Address], now: int) -> None:
    if "@" in draft.sender:
        return  # somebody elsewhere is none of our names
    bus.directory.learn(tx, draft.sender, now, member=False, most=bus.limits.open_names)
    if len(room) == 1 and draft.to != EVERYONE:
        me, other = draft.sender.lower(), room[0].mailbox
        if not bus.presence.knows(me, other):
            tx.add_contact(me, other, now)
            tx.then(lambda: bus.presence.remember(me, other))
