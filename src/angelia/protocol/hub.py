"""What two hubs say to each other: rosters, messages, outcomes. Pure: JSON's values in, frozen shapes out, and back.

What must stay true: a message crosses unchanged: all that its sender said, its conversation, its chain, the hubs that
it passed, and the fingerprint that was made where it was accepted. Times to live cross as what is left of them, since
clocks differ. A body crosses as its text, letter by letter, so that its fingerprint holds. What comes in is untrusted:
each item is read whole or refused alone.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from angelia.model.address import check_handle
from angelia.model.envelope import Envelope, Intent, Kind, Lane, Origin, Replay, check_id, fingerprint
from angelia.model.errors import AngeliaError, BadRequest
from angelia.model.failure import Reason

T = TypeVar("T")

VERSION = 1
MOST_ROWS = 10_000  # of one roster: as many names as a hub knows
TITLE_CHARS, DESCRIPTION_CHARS = 120, 2_000
NAME_CHARS = 512  # of a name at its own hub: a handle, an @, and a connection, with something to spare

# A refusal that only says that now is not the time: not for this message, nor for what comes behind it.
AGAIN = frozenset({"mailbox_full", "rate_limited", "disk_full", "stopping", "outcome_unknown", "unwell"})
GARBLED = "garbled"  # a bit of this one flipped on the way: it comes again, alone; every other refusal is for good
_REASONS = {
    "unknown_agent": Reason.RUNTIME_OFFLINE,
    "runtime_offline": Reason.RUNTIME_OFFLINE,
    "ambiguous_name": Reason.RUNTIME_OFFLINE,
    "too_large": Reason.TOO_LARGE,
    "unknown_message": Reason.QUESTION_UNKNOWN,  # answers alone are refused so
    "hop_limit": Reason.LOOP,
    "ask_cycle": Reason.LOOP,
}
_MOST = 2**53  # of any number: beyond it readers of JSON differ
_LATEST = 253_402_300_799_999  # UTC ms, the end of the year 9999: later ones cannot be written as dates


class Spot(msgspec.Struct, frozen=True):
    """An agent anywhere: its handle, and the hub (32 hex digits) where that name is its own."""

    handle: str
    hub: str


class HubRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One agent as a neighbour tells of it. ``way``: the hubs from its home to the one that tells, both included;
    ``name``: what the neighbour calls its home. ``online``: None where nobody knows."""

    handle: str
    hub: str
    name: str
    way: tuple[str, ...]
    title: str = ""
    description: str = ""
    online: bool | None = None


class Item(msgspec.Struct, frozen=True, omit_defaults=True, rename={"sender": "from", "recipient": "to"}):
    """One message on its way. ``expires_in``: milliseconds that are left. ``body``: JSON, as text. ``called``: what
    the hub that hands it on calls its sender's. ``again``: it was refused for now, and those behind it may go on."""

    id: str
    sender: Spot
    called: str
    recipient: Spot
    intent: Intent
    kind: Kind
    thread: str
    chain: str
    expires_in: int
    created_at: int
    fingerprint: str
    origin: Origin
    via: tuple[str, ...]
    text: str | None = None
    body: str | None = None
    flat: bool = False
    in_reply_to: str | None = None
    depth: int = 0
    lane: Lane = Lane.NORMAL
    replay: Replay = Replay.ONCE
    verified: bool = False
    about: str | None = None
    reason: str | None = None
    again: bool = False


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a message that came from the hub that is told: ``state`` is delivered, answered, failed or
    dead."""

    id: str
    handle: str
    state: str
    reason: str | None = None


class Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer for one message: it is stored (``repeat``: it was already), or why it is not."""

    stored: bool
    repeat: bool = False
    code: str | None = None
    detail: str | None = None


def item_of(
    envelope: Envelope, sender: Spot, called: str, recipient: Spot, me: str, now: int, *, again: bool = False
) -> Item:
    """A stored message as it goes on from the hub ``me``; ``called``: what the sender's hub is called here."""
    e = envelope
    assert e.origin is not None
    return Item(
        id=e.id,
        sender=sender,
        called=called,
        recipient=recipient,
        intent=e.intent,
        kind=e.kind,
        thread=e.thread,
        chain=e.chain,
        expires_in=max(e.expires_at - now, 1),
        created_at=e.created_at,
        fingerprint=e.fingerprint.hex(),
        origin=e.origin,
        via=(*e.via, me),
        text=e.text,
        body=None if e.body is None else e.body.decode(),
        flat=e.flat,
        in_reply_to=e.in_reply_to,
        depth=e.depth,
        lane=e.lane,
        replay=e.replay,
        verified=e.verified,
        about=e.about,
        reason=e.reason,
        again=again,
    )


def read_item(given: object) -> Item:
    """A message as it came. ``BadRequest`` or ``BadName`` says what is wrong with it."""
    item = _convert(given, Item)
    _check_text(item)
    for name, value in (("id", item.id), ("thread", item.thread), ("chain", item.chain), ("hub", item.origin.hub)):
        check_id(value, name)
    named = (("in_reply_to", item.in_reply_to), ("about", item.about), ("thread", item.origin.thread))
    for name, given_id in named:
        if given_id is not None:
            check_id(given_id, name)
    check_handle(item.called, "connection")
    for spot in (item.sender, item.recipient):
        check_handle(spot.handle)
        check_id(spot.hub, "hub")
    for hub in item.via:
        check_id(hub, "hub")
    if not (0 <= item.depth <= _MOST and 1 <= item.expires_in <= _MOST and 0 <= item.created_at <= _LATEST):
        raise BadRequest("depth, expires_in or created_at is out of range.")
    return item


def _check_text(item: Item) -> None:
    """Half of a surrogate pair is no text: it can be neither stored nor sent on. What is a name at its own hub is none
    of ours, and is kept; so it is short."""
    o = item.origin
    for text in (item.text, item.body, item.fingerprint, item.reason, o.sender, o.to, o.intent, o.kind):
        if not _is_text(text or ""):
            raise BadRequest("A text in it holds half of a surrogate pair.")
    if max(len(o.sender), len(o.to), len(item.reason or "")) > NAME_CHARS:
        raise BadRequest(f"A name in it has more than {NAME_CHARS} characters.")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_whole(item: Item) -> bool:
    """Whether the message is what was accepted at its own hub: no bit of it flipped on the way."""
    o = item.origin
    body = None if item.body is None else item.body.encode()
    said = (o.sender.lower(), o.to.lower(), o.intent, o.kind)
    mark = fingerprint(*said, item.text, body, o.thread, item.in_reply_to)
    return mark.hex() == item.fingerprint


def read_rows(given: object, me: str, most: int = MOST_ROWS) -> list[HubRow]:
    """The rows of a neighbour's roster that can be used: well formed, of a hub that is not ``me``, on a way that does
    not lead through it. The first row of each agent counts; texts are cut as a roster's always are."""
    kept: dict[tuple[str, str], HubRow] = {}
    for each in given[:most] if isinstance(given, list) else []:
        try:
            row = _convert(each, HubRow)
            for hub in {row.hub, *row.way}:
                check_id(hub, "hub")
            check_handle(row.handle)
            check_handle(row.name)
        except AngeliaError:
            continue
        if me == row.hub or me in row.way or not row.way or not _is_text(row.title + row.description):
            continue
        title = " ".join(row.title.split())[:TITLE_CHARS]
        description = " ".join(row.description.split())[:DESCRIPTION_CHARS]
        row = HubRow(row.handle, row.hub, row.name, row.way, title, description, row.online)
        kept.setdefault((row.hub, row.handle.lower()), row)
    return list(kept.values())


def read_outcome(given: object) -> Outcome:
    """One outcome. ``BadRequest`` where it is none."""
    found = _convert(given, Outcome)
    check_id(found.id)
    check_handle(found.handle)
    return found


def read_outcome_or_none(given: object) -> Outcome | None:
    """The same; None where it is none: it costs the others nothing."""
    try:
        return read_outcome(given)
    except AngeliaError:
        return None


def read_stored(given: object, count: int) -> list[Stored]:
    """What became of ``count`` messages. ``BadRequest`` where it is no such answer."""
    found = _convert(given, list[Stored])
    if len(found) != count:
        raise BadRequest(f"The answer speaks of {len(found)} messages; {count} were sent.")
    return found


def refusal(error: AngeliaError) -> Stored:
    """Why a message was not stored."""
    return Stored(stored=False, code=error.code, detail=error.detail)


def reason_of(code: str | None) -> Reason:
    """The reason that a sender is told, by the code of the far hub's refusal."""
    return _REASONS.get(code or "", Reason.AGENT_BLOCKED)


def plain(found: Iterable[msgspec.Struct]) -> list[Any]:
    """Structures as JSON's values."""
    return [msgspec.to_builtins(each) for each in found]


def _convert(given: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{error}.") from None
    except UnicodeEncodeError:
        raise BadRequest("A word in it holds half of a surrogate pair.") from None
