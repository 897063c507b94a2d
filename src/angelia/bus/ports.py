"""What the bus needs from outside: a store, a clock, and ids. Nothing here knows a database or a wire.

What must stay true of a store:

- ``write(work)`` runs ``work(tx)`` alone, on the store's own thread, as one unit: all of it or (when it raises)
  nothing. Units run in the order in which ``write`` was called. The future is done only when the unit is on disk.
- What a unit registered with ``tx.then`` runs on the event loop after the commit, unit by unit in their order, and
  before any of their futures is done. So whoever is told of a hand-over is told in the order of ``seq``.
- A unit marked ``lazy`` causes no commit of its own: it rides in the next one, at most 250 ms later.
- ``read(work)`` sees one committed picture and never holds it across an await.
- A commit for which there was no space stored nothing and raises ``DiskFull`` to every unit in it; life goes on. What a
  unit changed in the bus's own memory it takes back by ``tx.otherwise``.
- Any other failed commit raises ``OutcomeUnknown`` to every unit in it and to all later ones.
- Rules stay in the bus: a store only finds, adds and changes rows, and keeps the sums in ``Load``.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from angelia.model.agent import Agent, Token
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope
from angelia.model.query import Query

T = TypeVar("T")


class Parcel(NamedTuple):
    """A delivery with its message: what a hand needs to hand over."""

    delivery: Delivery
    envelope: Envelope


@dataclass(frozen=True, slots=True)
class Scope:
    """What a claim reaches: one mailbox, or all mailboxes of a connection (then ``mailbox`` is None)."""

    mailbox: str | None = None
    connection: str | None = None


class Load:
    """The sums of one mailbox over its open deliveries. ``ready`` counts those queued and due."""

    __slots__ = ("by_sender", "bytes", "bytes_by_sender", "open", "queued", "ready")

    def __init__(self) -> None:
        self.open = self.ready = self.queued = self.bytes = 0
        self.by_sender: dict[str, int] = {}
        self.bytes_by_sender: dict[str, int] = {}  # of the same senders


class Note(NamedTuple):
    """What a hand remembers under a name, since when (UTC ms)."""

    name: str
    value: bytes
    at: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page of an inbox. ``total`` counts the mailbox's open deliveries, ``hidden`` those the filter left out."""

    parcels: list[Parcel]
    total: int
    hidden: int
    oldest_unread_at: int | None
    next: int | None


class View(Protocol):
    """One consistent picture; valid only inside the function it was given to."""

    def message(self, message_id: str) -> Envelope | None: ...
    def by_key(self, sender: str, key: str) -> Envelope | None:
        """The message that ``sender`` (lower case) sent under this idempotency key."""
        ...

    def reply_to(self, message_id: str) -> Envelope | None:
        """The first reply (kind reply) to a message."""
        ...

    def delivery(self, key: int) -> Delivery | None: ...
    def deliveries(self, message_id: str) -> list[Delivery]:
        """All deliveries of a message, by ``key``."""
        ...

    def waiting(self, scope: Scope, limit: int, max_bytes: int) -> list[Parcel]:
        """What is queued and due, by lane, then seq. At least one row where there is any; then up to both bounds."""
        ...

    def waiting_from(self, mailbox: str, sender: str, limit: int, max_bytes: int) -> list[Parcel]:
        """What is queued of one sender (lower case), due or not, by lane, then seq; up to both bounds."""
        ...

    def leased(self, mailbox: str, hands: Iterable[Hand]) -> list[Delivery]:
        """The leased ones of a mailbox that went to one of these hands, by seq."""
        ...

    def returned(self, mailbox: str, hand: Hand, upto: int) -> list[Delivery]:
        """Queued ones whose last attempt went to ``hand``, with seq <= ``upto``: a hub died under them."""
        ...

    def handed_high(self, mailbox: str) -> int:
        """The highest seq that was ever handed over from this mailbox; 0 when none was."""
        ...

    def history(self, mailbox: str, after: int, upto: int, limit: int, max_bytes: int) -> list[Parcel]:
        """Delivered and answered ones with ``after`` < seq <= ``upto``, by seq."""
        ...

    def replay_floor(self, mailbox: str, since: int, rows: int) -> int:
        """One above the highest seq that replay no longer reaches: handed over before ``since`` (UTC ms), or not among
        the newest ``rows`` that were, or removed by retention. 1 where nothing is out of reach."""
        ...

    def inbox(self, mailbox: str, after: int, limit: int, states: frozenset[State] | None, sender: str | None) -> Page:
        """Look at a mailbox by seq > ``after``. ``states`` None means the open ones; ``sender`` is lower case."""
        ...

    def dead(self, after: int, limit: int) -> list[Parcel]:
        """Dead and held deliveries with key > ``after``, by key."""
        ...

    def stuck(self, limit: int) -> tuple[int, int]:
        """How many are held, and how many dead; of both together ``limit`` are counted at most."""
        ...

    def set_aside_count(self, limit: int) -> int: ...  # rows that were not what was written; so many at most
    def due(self, now: int, limit: int) -> list[Parcel]:
        """Those whose ``sweep_at`` has come, the earliest first; leased ones never have one."""
        ...

    def next_sweep(self) -> int | None: ...  # the earliest ``sweep_at``

    def chain_count(self, chain: str, since: int) -> int:
        """How many messages of depth > 0 the chain got at or after ``since``."""
        ...

    def oldest_unread(self, mailbox: str) -> int | None: ...  # ``accepted_at`` of the oldest queued or leased one
    def agent(self, mailbox: str) -> Agent | None: ...
    def agents(self) -> list[Agent]: ...
    def tokens(self) -> list[Token]: ...
    def contacts(self, mailbox: str, limit: int) -> list[str]:
        """Mailboxes that have exchanged mail with this one, the latest first."""
        ...

    def turns(self) -> list[Delivery]:
        """Everything that is leased to a turn, by key; after a start: what the hub before was in the middle of."""
        ...

    def owed(self, connection: str, limit: int) -> list[Delivery]:
        """Those that came by a connection, and of whose outcome it was not told; by key."""
        ...

    def links_with_mail(self) -> list[str]: ...  # the connections for which something waits that is due
    def links_owed(self) -> list[str]: ...  # those that have an outcome to be told of
    def backlog(self, connection: str, limit: int) -> tuple[int, int | None]:
        """How many wait for a connection, due or not, counted to ``limit``, and the oldest's ``accepted_at``."""
        ...

    def carried(self, connection: str, after: int, limit: int) -> list[Parcel]:
        """What waits for a connection, due or not, and what is forwarded over it, with key > ``after``, by key."""
        ...

    def note(self, name: str) -> bytes | None: ...
    def notes(self, prefix: str) -> list[Note]: ...  # those whose names begin so, by name
    def self_test(self) -> int: ...  # what ``Tx.put_self_test`` wrote last; 0 at first


class Tx(View, Protocol):
    """A unit of writing; what it reads includes what it wrote."""

    def then(self, effect: Callable[[], None]) -> None:
        """Run ``effect`` on the event loop once this unit is on disk."""
        ...

    def otherwise(self, undo: Callable[[], None]) -> None:
        """Run ``undo`` on the store's thread, the last registered first and before any later unit, where nothing of
        this unit is stored: it raised, or its commit found no space. Not after a failure whose outcome is unknown."""
        ...

    def next_seq(self) -> int:
        """A number above every one given before, over the whole life of the store."""
        ...

    def load(self, mailbox: str) -> Load:
        """The sums as this unit sees them; read only."""
        ...

    def add(self, envelope: Envelope, deliveries: Sequence[Delivery]) -> None:
        """Add a message (unless its id is there) and its deliveries. ``key`` of each is its first ``seq``."""
        ...

    def move_all(self, pairs: Sequence[tuple[Delivery, Delivery]]) -> Sequence[tuple[Delivery, Delivery]]: ...
    def move(self, old: Delivery, new: Delivery) -> bool:
        """Change one delivery; False, and nothing changed, where state or attempt are no longer those of ``old``.
        ``move_all``: several (old, new) that keep attempt and ``seq``; those that were changed."""
        ...

    def remove(self, deliveries: Sequence[Delivery]) -> None:
        """Forget these; a message goes with its last delivery."""
        ...

    def put_agent(self, agent: Agent) -> None: ...
    def remove_agent(self, mailbox: str) -> None:
        """Forget the name and its tokens; its mail stays."""
        ...

    def put_token(self, token: Token) -> None: ...
    def remove_token(self, token_id: str) -> None: ...
    def add_contact(self, one: str, other: str, now: int) -> None:
        """Remember that two mailboxes have exchanged mail, both ways."""
        ...

    def put_note(self, name: str, value: bytes | None, now: int) -> None:
        """Remember ``value`` under ``name``; None forgets it."""
        ...

    def put_self_test(self, value: int) -> None: ...


class Store(Protocol):
    """Where messages, states and attempts live."""

    @property
    def epoch(self) -> str:
        """8 hex digits; another after a restore or in another store."""
        ...

    @property
    def instance(self) -> str:
        """32 hex digits made with the store, never changed."""
        ...

    @property
    def secret(self) -> bytes:
        """32 random bytes made with the store: lease tokens are signed with them."""
        ...

    def write(
        self, work: Callable[[Tx], T], *, weight: int = 0, lazy: bool = False, essential: bool = False
    ) -> asyncio.Future[T]:
        """Queue a unit now; the future is its outcome.

        ``weight``: bytes it carries. ``essential``: still done when the disk is full (acks, expiry).
        Raises what ``work`` raised, ``DiskFull``, ``OutcomeUnknown`` or ``Stopping``.
        """
        ...

    def read(self, work: Callable[[View], T]) -> asyncio.Future[T]: ...

    def load(self, mailbox: str) -> Load:
        """The sums now, for a glance; a unit that decides reads ``Tx.load``."""
        ...

    async def close(self) -> None:
        """Commit what is queued, lazy ones too, and let go of everything."""
        ...


# ------------------------------------------------------------------------------------- what only some stores can do


@dataclass(frozen=True, slots=True)
class Sight:
    """Who looks: it sees what one of the mailboxes that it ``owns`` sent or got (None: everything). ``only`` names the
    mailbox where it is just one."""

    owns: Callable[[str], bool] | None = None
    only: str | None = None


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation in a list. ``count``, ``people`` (who wrote, and to whom as addressed) and ``first_at`` are of
    what the looker sees of it; ``more``: of its newest messages only, there are more than a list counts."""

    thread: str
    count: int
    more: bool
    people: tuple[str, ...]
    first_at: int
    last: Envelope


@dataclass(frozen=True, slots=True)
class Said:
    """A message in its conversation, and how many of its deliveries are in which state."""

    envelope: Envelope
    states: dict[State, int]


@dataclass(frozen=True, slots=True)
class Talks:
    """A page of conversations, the latest first. A page may be short, even empty: the end is where ``next`` is None."""

    talks: list[Talk]
    next: int | None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A page of one conversation, in the order in which it was accepted; ``next`` as above."""

    thread: str
    said: list[Said]
    next: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """A page of what was found, the latest first; ``next`` as above. ``behind``: so many messages, of those that were
    there when the search was asked for, could not be looked into yet; 0 but for a store that is catching up."""

    envelopes: list[Envelope]
    next: int | None
    behind: int


@runtime_checkable
class Library(Protocol):
    """A store in which one finds again what was said. Places (``before``, ``after``, ``next``) are numbers that rise in
    the order in which messages were accepted. Nothing here changes anything, and nothing here delays a write."""

    def trouble(self) -> str | None: ...  # why less is there, or found, than was written, for people; None: all is well
    async def talks(self, sight: Sight, before: int | None, limit: int) -> Talks:
        """Conversations by their last message that the looker sees, of those before a place."""
        ...

    async def conversation(
        self, sight: Sight, message_id: str, after: int, limit: int, max_bytes: int
    ) -> Conversation | None:
        """The conversation of a message, or of that name; None where the looker sees nothing of it."""
        ...

    async def search(self, sight: Sight, query: Query, before: int | None, limit: int, max_bytes: int) -> Found:
        """Messages that hold all that the query names, in their text or in the strings of their body.

        A word is a run of letters and digits; case and accents do not count. What was stored before this was called is
        found, or counted in ``behind``. Without phrases all messages that sender and recipient admit are found.
        """
        ...


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a store that was looked through after it was written."""

    file: str
    bytes: int
    messages: int
    deliveries: int
    made_at: int
    removed: tuple[str, ...] = ()


@runtime_checkable
class Archive(Protocol):
    """A store that can be copied while it is used."""

    async def back_up(self, file: str | None, now: int) -> Copy:
        """Write a verified copy to ``file``; without it to the store's own folder of copies, where the newest three
        are kept. ``now``: UTC ms. One at a time. Raises ``BadRequest`` for a place where none can be put, ``DiskFull``
        or ``Unwell``; then nothing that was there is gone."""
        ...


class Clock(Protocol):
    """Time. ``now`` does not jump while the hub runs; leases and timeouts use ``monotonic``."""

    def now(self) -> int:
        """UTC milliseconds, carried on from the hub's start by a clock that only runs forward (sleep included)."""
        ...

    def monotonic(self) -> float:
        """Seconds."""
        ...

    async def wait(self, ready: asyncio.Future[T], seconds: float | None) -> bool:
        """Wait for ``ready`` (a future, left alone when time is up) at most so long; True when it is done."""
        ...


class Ids(Protocol):
    """Fresh ids."""

    def message_id(self) -> str:
        """UUIDv7 as 32 lowercase hex digits."""
        ...

    def secret(self) -> bytes:
        """32 random bytes, which make a token that looks like one (``model/tokens.py``)."""
        ...
