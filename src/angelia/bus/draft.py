"""A message before it is one: what a door read, and what became of it.

What must stay true: nothing in a draft is trusted but ``sender`` and ``verified``, which the caller table gave, and
what a link says, which proved itself. How it is accepted stands in ``publish.py``.
"""

from dataclasses import dataclass, field

from angelia.model.delivery import Delivery
from angelia.model.envelope import Envelope, Kind, Lane, Origin, Replay
from angelia.model.errors import CallerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """What another hub says of a message that it hands on. ``link``: the connection that it came by (a key), which is
    told what becomes of it."""

    link: str
    fingerprint: bytes
    origin: Origin
    thread: str
    chain: str
    depth: int
    via: tuple[str, ...]
    created_at: int


@dataclass(slots=True, kw_only=True)
class Draft:
    """What a door read: nothing in it is trusted but ``sender`` and ``verified``, which the caller table gave."""

    sender: str
    verified: bool = False
    to: str | None = None
    text: str | None = None
    body: bytes | None = None
    flat: bool = False
    intent: str | None = None
    thread: str | None = None
    in_reply_to: str | None = None
    ttl_seconds: float | None = None
    id: str | None = None
    key: str | None = None
    lane: Lane = Lane.NORMAL
    replay: Replay = Replay.ONCE
    kind: Kind = Kind.MESSAGE
    outcome: bool = False  # what became of something accepted: no mailbox is too full for it
    crossing: Crossing | None = None


@dataclass(slots=True)
class Accepted:
    """The answer: the message, its deliveries as stored, whether it was there already, and who had no room."""

    envelope: Envelope
    deliveries: list[Delivery]
    duplicate: bool = False
    refused: list[tuple[str, CallerError]] = field(default_factory=list)
