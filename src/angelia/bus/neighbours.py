"""The connections of this hub: what they are called, which hubs are behind them, and whom each side sees.

What must stay true:

- A hub behind a connection has one name here for as long as the connection is there: the connection's own where it is
  the hub that answers, else what the neighbour calls it where that is free here, else ``NAME-NEIGHBOUR``. A name never
  comes to mean another hub, so that mail that waits and answers that are due find the way that was meant. What it stood
  for is remembered when it is given up: an answer that is due then comes from, and goes to, the hub that was meant.
- Which hub was last met behind a connection, and over which stores, outlives every change of that connection.
- Roster rows and senders are claims of the link that they came by: they are only ever shown under names of that link,
  and never as an agent of this hub. A row that has passed this hub is not taken from anybody, and any other only from
  the hub at the end of its way: so nobody takes the place of a hub that has a link of its own.
- Each side is told of everyone but those who came by it. A failed look changes nothing; what was told last is kept.
- Everything here is replaced and never changed in place, so that units on the store's thread may read it, too.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from angelia.bus.ports import Store, Tx
from angelia.bus.removed import NOTE as REMOVED_NOTE
from angelia.bus.removed import Removed, RemovedHubs
from angelia.model.address import RESERVED
from angelia.model.connection import Away, Connection
from angelia.model.delivery import Delivery
from angelia.model.errors import NotAllowed, NotFound
from angelia.protocol.hub import HubRow

_CONNECTION, _ROSTER, _NAMES, _MET, _FORMER = "connection:", "neighbour:", "hubs", "met:", "former hubs"
_NAME_LETTERS = 64
_NAME_BY = 40  # of them for the connection that a hub is behind, where its own name is not free
MOST_HUBS = 1_000  # with a name, behind one connection: far more than anybody has; made-up ones must end
MOST_FORMER = 1_000  # names that were given up, the last ones: as many as one connection has at most
_encode = msgspec.json.Encoder().encode
_rows = msgspec.json.Decoder(tuple[HubRow, ...]).decode


class Behind(NamedTuple):
    """A hub under its name here: which connection leads there (a key), and its id (None: not known yet)."""

    name: str
    link: str
    hub: str | None


class Meeting(NamedTuple):
    """Which hub was behind a connection when it was last up, and the epochs of this hub's store and of that one's."""

    hub: str
    here: str
    there: str


class Former(NamedTuple):
    """What a name (lower case) stood for until it was given up (UTC ms): ``hub``, by the connection ``link`` (a key),
    behind which was the hub ``way``."""

    name: str
    link: str
    hub: str
    way: str
    until: int


_names = msgspec.json.Decoder(tuple[Behind, ...]).decode
_meeting = msgspec.json.Decoder(Meeting).decode
_former = msgspec.json.Decoder(tuple[Former, ...]).decode


@dataclass(frozen=True, slots=True)
class Known:
    """An agent behind a link. ``name``: of its hub, here; ``online`` as known now."""

    row: HubRow
    link: str
    name: str
    online: bool | None


class Neighbours:
    """All connections, the rosters that came by them, and the names of hubs. ``me``: the id of this hub. ``on_change``
    is called whenever ``changes`` has risen, and raises nothing."""

    def __init__(self, is_elsewhere: Callable[[str], bool] = lambda name: False) -> None:
        """``is_elsewhere``: whether a name (lower case) means something that is behind no connection of ours."""
        self._is_elsewhere = is_elsewhere
        self.me = ""
        self.name = "hub"
        self.connections: dict[str, Connection] = {}
        self.up: frozenset[str] = frozenset()
        self.told_again: set[int] = set()  # deliveries whose outcome is owed once more; changed inside units alone
        self.on_change: Callable[[], None] = lambda: None
        self.changes = 0  # counts whatever somebody else may have to be told of
        self.met: dict[str, Meeting] = {}  # by the key of a connection
        self.removed = RemovedHubs()
        self._set_former(())
        self._rosters: dict[str, tuple[HubRow, ...]] = {}
        self._behind: dict[str, Behind] = {}  # by name, lower case
        self._named: dict[tuple[str, str | None], str] = {}  # the same by link and hub

    async def open(self, store: Store, name: str) -> None:
        """Read in what was known before the start. ``name``: what this hub calls itself."""
        self.me, self.name = store.instance, name
        notes = await store.read(
            lambda view: (
                view.notes(_CONNECTION),
                view.notes(_ROSTER),
                view.note(_NAMES),
                view.notes(_MET),
                view.note(_FORMER),
                view.note(REMOVED_NOTE),
            )
        )
        made = (msgspec.json.decode(note.value, type=Connection) for note in notes[0])
        self.connections = {connection.id: connection for connection in made}
        self._rosters = {note.name.removeprefix(_ROSTER): _rows(note.value) for note in notes[1]}
        self._set_names({each.name.lower(): each for each in (_names(notes[2]) if notes[2] else ())})
        self.met = {note.name.removeprefix(_MET): _meeting(note.value) for note in notes[3]}
        self._set_former(_former(notes[4]) if notes[4] else ())
        self.removed.open(notes[5])

    # ------------------------------------------------------------------------------------------------ connections

    def require(self, name: str) -> Connection:
        """A connection by its name; ``NotFound``."""
        found = self.connections.get(name.lower())
        if found is None:
            raise NotFound(f"There is no connection '{name[:80]}'.", suggestions=sorted(self.connections))
        return found

    def of_hub(self, hub: str) -> Connection | None:
        """The connection to a hub, by its id."""
        return next((each for each in self.connections.values() if each.hub == hub), None)

    def put(self, tx: Tx, connection: Connection, now: int) -> None:
        """Make or replace a connection. Where it leads to another hub than before, whom that one told of is
        forgotten. The hub that it leads to is wanted, also where the owner had removed it."""
        old = self.connections.get(connection.id)
        same = old is None or old.hub in (None, connection.hub)
        tx.put_note(_CONNECTION + connection.id, _encode(connection), now)
        if old is not None and old.hub is not None and not same:
            self._remember(tx, [Former(old.id, old.id, old.hub, old.hub, now)], now)
        self._rename(tx, self._yielded(connection), now)
        if connection.hub is not None:
            self.removed.want(tx, connection.hub, now)
        if not same:
            tx.put_note(_ROSTER + connection.id, None, now)

        def made() -> None:
            self.connections = {**self.connections, connection.id: connection}
            self._rosters = {key: rows for key, rows in self._rosters.items() if same or key != connection.id}
            self.changed()

        tx.then(made)

    def remove(self, tx: Tx, connection: Connection, now: int, *, by_owner: bool = False) -> None:
        """Forget a connection, and whom it led to; but for what its names stood for. ``by_owner``: who removes it does
        not want the hub behind it, which is not let in from now on."""
        if (way := connection.hub) is not None:
            if by_owner and all(each.id == connection.id or each.hub != way for each in self.connections.values()):
                self.removed.add(tx, way, connection.name, now)
            led = {key: each.hub for key, each in self._behind.items() if each.link == connection.id and each.hub}
            own = {**led, connection.id: way}
            self._remember(tx, [Former(name, connection.id, hub, way, now) for name, hub in own.items()], now)
        self._rename(tx, {key: each for key, each in self._behind.items() if each.link != connection.id}, now)
        for prefix in (_CONNECTION, _ROSTER, _MET):
            tx.put_note(prefix + connection.id, None, now)

        def gone() -> None:
            self.connections = {key: each for key, each in self.connections.items() if key != connection.id}
            self._rosters = {key: rows for key, rows in self._rosters.items() if key != connection.id}
            self.met = {key: each for key, each in self.met.items() if key != connection.id}
            self.up -= {connection.id}
            self.changed()

        tx.then(gone)

    def note_meeting(self, tx: Tx, link: str, meeting: Meeting, now: int) -> None:
        """Whom a connection (its key) leads to this time, and that what had to be done because of it was done."""
        tx.put_note(_MET + link, _encode(meeting), now)

        def noted() -> None:
            self.met = {**self.met, link: meeting}

        tx.then(noted)

    def _remember(self, tx: Tx, given_up: Sequence[Former], now: int) -> None:
        old = self._former
        self._set_former((*old, *given_up)[-MOST_FORMER:])
        tx.put_note(_FORMER, _encode(self._former), now)
        tx.otherwise(lambda: self._set_former(old))

    def _set_former(self, former: tuple[Former, ...]) -> None:
        self._former = former  # the oldest first
        self._stood: dict[str, set[str]] = {}
        for each in former:
            self._stood.setdefault(each.name, set()).add(each.hub)

    def set_up(self, link: str, up: bool) -> None:
        """A connection is up, or down."""
        self.up = self.up | {link} if up else self.up - {link}
        self.changed()

    # ------------------------------------------------------------------------------------------------------ names

    def is_taken(self, name: str) -> bool:
        """Whether a name stands for a connection, or for a hub behind one."""
        key = name.lower()
        ours = key in self.connections or key in self._behind or key in RESERVED or key == self.name.lower()
        return ours or self._is_elsewhere(key)

    def removed_as(self, name: str) -> Removed | None:
        """The hub that the owner removed under a name; None where that is the name of another one behind a link."""
        found, other = self.removed.called(name), self.of_a_way(name)
        return None if found is None or (other is not None and other.hub != found.hub) else found

    def stood_for(self, name: str, hub: str | None = None) -> bool:
        """Whether a name that was given up stood for a hub, other than ``hub``: it may come back, and answers wait for
        it under that name, so that nobody else takes it by itself."""
        return any(each != hub for each in self._stood.get(name.lower(), ()))

    def way_to(self, hub: str) -> Behind | None:
        """A name of today by which a hub is reached, by its id."""
        connection = self.of_hub(hub)
        if connection is not None:
            return Behind(connection.name, connection.id, connection.hub)
        return next((each for each in self._behind.values() if each.hub == hub), None)

    def of_a_way(self, name: str) -> Behind | None:
        """The hub behind a connection that a name stands for: a connection to that very hub may be called so."""
        return self._behind.get(name.lower())

    def behind(self, name: str) -> Behind | None:
        """The hub, or the gateway, that a name stands for. A connection that takes the name of a hub has it once that
        hub was met there. A name that was given up, and means nothing else, stands for its hub by its name of today."""
        connection, other = self.connections.get(name.lower()), self.of_a_way(name)
        if connection is None:
            return other or self._formerly(name.lower())
        if other is not None and connection.hub is None:
            return other
        return Behind(connection.name, connection.id, connection.hub)

    def _formerly(self, name: str) -> Behind | None:
        former = next((each for each in reversed(self._former) if each.name == name), None)
        if former is None or self._is_elsewhere(name):
            return None
        return self.way_to(former.hub)

    def meant(self, delivery: Delivery) -> tuple[str | None, str | None]:
        """Which hub the address of a delivery meant when its message was accepted, and behind which it was reached;
        None where that is not known."""
        name, link = delivery.mailbox.rpartition("@")[2], delivery.connection or ""
        for each in self._former:
            if (each.name, each.link) == (name, link) and delivery.accepted_at <= each.until:
                return each.hub, each.way
        found, connection = self.behind(name), self.connections.get(link)
        return None if found is None else found.hub, None if connection is None else connection.hub

    def led_elsewhere(self, delivery: Delivery, hub: str) -> bool:
        """Whether what waits for a connection is for one that was removed, and led to another hub than ``hub``."""
        name, link = delivery.mailbox.rpartition("@")[2], delivery.connection
        former = next((each for each in reversed(self._former) if (each.name, each.link) == (name, link)), None)
        return former is not None and former.way != hub

    def _yielded(self, connection: Connection) -> dict[str, Behind]:
        """All names, where a connection takes that of its hub: by the way that it had before, the hub is called
        otherwise."""
        other = self.of_a_way(connection.name)
        if other is None or other.hub is None or other.hub != connection.hub:
            return self._behind
        names = {key: each for key, each in self._behind.items() if each is not other}
        link = self.connections.get(other.link)
        if link is not None and (name := self._free(names, other.name, link, other.hub)) is not None:
            names[name.lower()] = Behind(name, other.link, other.hub)
        return names

    def name_of(self, link: str, hub: str) -> str:
        """What a hub behind a link is called here; its id where nobody has told of it."""
        connection = self.connections.get(link)
        if connection is not None and hub == connection.hub:
            return connection.name
        return self._named.get((link, hub), hub)

    def _with_names(self, connection: Connection, hubs: dict[str, str]) -> dict[str, Behind]:
        """All names, with one for each of these ``hubs`` behind ``connection`` (with what they are called there) that
        had none; without those for whom there is none."""
        names = dict(self._behind)
        room = MOST_HUBS - sum(each.link == connection.id for each in names.values())
        for hub, told in hubs.items():
            if room <= 0 or hub == connection.hub or (connection.id, hub) in self._named:
                continue
            if (name := self._free(names, told, connection, hub)) is not None:
                names[name.lower()] = Behind(name, connection.id, hub)
                room -= 1
        return names

    def _free(self, names: dict[str, Behind], told: str, connection: Connection, hub: str) -> str | None:
        """What a hub that is called ``told`` there can be called here."""
        by = connection.name[:_NAME_BY]
        ends = ["", f"-{by}", *(f"-{by}-{number}" for number in range(2, 100))]
        for name in (told[: _NAME_LETTERS - len(end)] + end for end in ends):
            if name.lower() not in names and not self.is_taken(name) and not self.stood_for(name, hub):
                return name
        return None

    def _rename(self, tx: Tx, names: dict[str, Behind], now: int) -> None:
        """Names of hubs, from this unit on: the next of its messages may come from one of them."""
        if names == self._behind:
            return
        old = self._behind
        self._set_names(names)
        tx.put_note(_NAMES, _encode(tuple(names.values())), now)
        tx.otherwise(lambda: self._set_names(old))
        tx.then(self.changed)

    def changed(self) -> None:
        """Somebody else may have to be told of something."""
        self.changes += 1
        self.on_change()

    def _set_names(self, names: dict[str, Behind]) -> None:
        self._behind = names
        self._named = {(each.link, each.hub): each.name for each in names.values()}

    # ----------------------------------------------------------------------------------------------------- rosters

    def learn(self, tx: Tx, connection: Connection, rows: Iterable[HubRow], now: int) -> None:
        """Take the roster of a neighbour: it replaces what it told before. What only named a hub stays named."""
        led = [row for row in rows if connection.accepts(row.handle) and _comes_by(row, connection)]
        hubs: dict[str, str] = {}
        for row in led:
            hubs.setdefault(row.hub, row.name)
        names = self._with_names(connection, hubs)
        named = {each.hub for each in names.values() if each.link == connection.id} | {connection.hub}
        kept = tuple(row for row in led if row.hub in named)
        tx.put_note(_ROSTER + connection.id, _encode(kept), now)
        self._rename(tx, names, now)

        def told() -> None:
            self._rosters = {**self._rosters, connection.id: kept}
            self.changed()

        tx.then(told)

    def meet(self, tx: Tx, connection: Connection, hub: str, told: str, now: int) -> str:
        """The name of a hub that a message came from; where nobody has told of it, it gets one now. ``NotAllowed``
        where there are too many."""
        if hub != connection.hub and (connection.id, hub) not in self._named:
            names = self._with_names(connection, {hub: told})
            if names == self._behind:
                raise NotAllowed(f"Too many hubs have come by {connection.name}. Nothing was stored.", limit=MOST_HUBS)
            self._rename(tx, names, now)
        return self.name_of(connection.id, hub)

    def everyone(self) -> list[Known]:
        """All agents behind links; each once, by the shortest way that is known."""
        best: dict[tuple[str, str], Known] = {}
        for link, rows in sorted(self._rosters.items()):
            connection = self.connections.get(link)
            if connection is None:
                continue
            for row in rows:
                key, old = (row.hub, row.handle.lower()), best.get((row.hub, row.handle.lower()))
                if old is None or self._rank(link, row) < self._rank(old.link, old.row):
                    best[key] = Known(row, link, self.name_of(link, row.hub), self._online(connection, row))
        return list(best.values())

    def _rank(self, link: str, row: HubRow) -> tuple[int, bool, str]:
        """Ways by how good they are: short ones first, then those that are up."""
        return len(row.way), link not in self.up, link

    def _online(self, connection: Connection, row: HubRow) -> bool | None:
        if connection.id in self.up:
            return row.online
        return False if connection.away is Away.REFUSE else None

    def count(self, link: str) -> int:
        """How many agents a link leads to."""
        return len(self._rosters.get(link, ()))


def _comes_by(row: HubRow, connection: Connection) -> bool:
    """Whether the way of a row is one that ends at the hub behind this connection."""
    return (row.way[0], row.way[-1]) == (row.hub, connection.hub)


def place_id(me: str, name: str) -> str:
    """The id, for other hubs, of what is behind a connection of this hub ``me`` and is no hub itself."""
    return hashlib.sha256(f"{me}:{name.lower()}".encode()).hexdigest()[:32]
