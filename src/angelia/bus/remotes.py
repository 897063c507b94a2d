"""Who can be reached on other connections: the rosters that relays push, those of links, and whom an address means.

What must stay true:

- A push replaces the rows of its own scope and of no other's. It outlives the socket and the hub; whether its agents
  are there is unknown once it is not fresh, and it is gone a day after the last push.
- A connection's id is a name in its pusher's namespace. ``local`` there is shown here as the pusher's name; an id that
  is not free here is shown behind the pusher's name, with a number where that is not free, either
  (``bus/pushed.py``). Mail goes by the pusher that named its recipient, under its ids.
- ``_pushed`` is replaced and never changed in place, so that units on the store's thread may read it, too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from angelia.bus.neighbours import Known, Neighbours
from angelia.bus.ports import Store, Tx
from angelia.bus.pushed import Names, Push
from angelia.model.address import RESERVED, Address
from angelia.model.errors import BadRequest, RateLimited
from angelia.model.limits import Limits
from angelia.protocol.bot_relay import profile_of
from angelia.protocol.bot_relay_rows import Row, is_name, normalise
from angelia.protocol.bot_relay_targets import Ambiguous, forms, resolve
from angelia.protocol.foreign_json import Malformed, read, write

ANONYMOUS = "desktop"  # the scope of whoever does not say which desktop it is, and so its name
_NOTE = "roster:"
_FORMER = 1_000  # of one scope: rows that were dropped lately, so that mail to them still finds its way
MINUTE_MS = 60_000  # as often as rosters are told
MOMENT_MS = 500  # by time alone a roster gets old, and is gone: nobody has to know sooner


@dataclass(frozen=True, slots=True)
class Remote:
    """One agent elsewhere. ``shown``: under its connection's name here, ``online`` as known now; ``short``: the same
    under the connection's short name. ``carrier``: who fetches its mail, or carries it. ``known``: how it is reached
    where that is by way of another hub; None: by way of Hermes, which takes text alone."""

    carrier: str
    shown: Row
    short: Row
    known: Known | None = None


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of a push: how many rows are kept, and which are not, with why."""

    count: int
    rejected: tuple[tuple[int, str], ...]


class Remotes:
    """The rosters that were pushed, by scope, beside those of ``neighbours``."""

    def __init__(self, is_kept: Callable[[str], bool] = lambda name: False) -> None:
        """``is_kept``: whether a name (lower case) is kept for a desktop, which may have pushed nothing yet."""
        self.neighbours = Neighbours(lambda name: self._is_pushed(name) or is_kept(name))
        self._is_kept_for = is_kept
        self._pushed: dict[str, Push] = {}
        self._names: tuple[object, int, Names] | None = None
        self._everyone: tuple[tuple[int, int], list[Remote]] = ((-1, 0), [])

    async def open(self, store: Store) -> None:
        """Read in what was pushed before the start."""
        notes = await store.read(lambda view: view.notes(_NOTE))
        found = [_read(note.value, note.at) for note in notes]
        self._pushed = {push.scope: push for push in found if push is not None}

    def push(self, tx: Tx, limits: Limits, name: str, agents: object, now: int) -> Pushed:
        """Take a roster: it is there once this unit is on disk. Raises ``RateLimited`` where there are too many scopes.

        ``name``: the pusher's (``check_scope``); ``agents``: its rows as they came.
        """
        roster = normalise(agents[: limits.roster_rows] if isinstance(agents, list) else agents)
        old = self._pushed.get(name.lower())
        if old is None and len(self.living(now, limits)) >= limits.rosters:
            raise RateLimited(f"{limits.rosters} desktops push rosters already.", limit=limits.rosters)
        kept = {row[:3] for row in roster.rows}  # with its handle: mail may wait for the one that it had
        before = (*old.rows, *old.former) if old is not None and self._is_kept(old, now, limits) else ()
        former = {row[:3]: row for row in reversed(before) if row[:3] not in kept}
        push = Push(name, roster.rows, tuple(former.values())[-_FORMER:], now)
        tx.put_note(_NOTE + push.scope, _written(push), now)
        for gone in self._pushed.values():
            if not self._is_kept(gone, now, limits) and gone.scope != push.scope:
                tx.put_note(_NOTE + gone.scope, None, now)
        tx.then(lambda: self._set(push, now, limits))
        too_many = len(agents) - limits.roster_rows if isinstance(agents, list) else 0
        rejected = [(each.row, each.reason) for each in roster.rejected]
        if too_many > 0:
            rejected.append((limits.roster_rows, f"{limits.roster_rows} rows are the most; {too_many} more were left"))
        return Pushed(len(roster.rows), tuple(rejected))

    def _set(self, push: Push, now: int, limits: Limits) -> None:
        others = {scope: each for scope, each in self._pushed.items() if self._is_kept(each, now, limits)}
        self._pushed = {**others, push.scope: push}
        self.neighbours.changed()

    def forget(self, tx: Tx, name: str, now: int) -> None:
        """Forget the rows of a pusher."""
        tx.put_note(_NOTE + name.lower(), None, now)

        def gone() -> None:
            self._pushed = {scope: push for scope, push in self._pushed.items() if scope != name.lower()}
            self.neighbours.changed()

        tx.then(gone)

    def living(self, now: int, limits: Limits) -> list[Push]:
        """The rosters that are not gone, by scope."""
        return [push for _, push in sorted(self._pushed.items()) if self._is_kept(push, now, limits)]

    def age(self, now: int) -> int:
        """Another value each minute where there are rows that get old by time alone; those of hubs do not."""
        return now // MINUTE_MS if self._pushed else 0

    def _is_kept(self, push: Push, now: int, limits: Limits) -> bool:
        """A desktop's for a day; that of a connection of ours for as long as there is one."""
        lasting = push.scope in self.neighbours.connections
        return lasting or now - push.at <= limits.roster_keep_seconds * 1000

    def is_scope(self, key: str | None) -> bool:
        """Whether mail under this key is for a relay, or a gateway, of Hermes'."""
        return key is not None and (key in self._pushed or key == ANONYMOUS)

    def _is_pushed(self, name: str) -> bool:
        """Whether a desktop, or one of the connections that it knows or knew, is called so (lower case): answers, and
        mail that waits, go by that name."""
        if name in self._pushed:
            return True
        if self.neighbours.stood_for(name):
            return False  # and so it is none of theirs
        return any(push.had(row, name) for push in self._pushed.values() for row in (*push.rows, *push.former))

    def everyone(self, now: int, limits: Limits) -> list[Remote]:
        """All that can be written to; put together once for all that ask in one moment, until something changes."""
        mark = (self.neighbours.changes, now // MOMENT_MS)
        seen, found = self._everyone
        if seen != mark:
            linked = [_linked(known) for known in self.neighbours.everyone()]
            found = [*self._shown(self.living(now, limits), now, former=False), *linked]
            self._everyone = mark, found
        return found

    def rows(self, now: int, limits: Limits) -> tuple[Row, ...]:
        """The same as rows, under the names that their connections have here."""
        return tuple(remote.shown for remote in self.everyone(now, limits))

    def count(self, carrier: str) -> int:
        """How many agents are known behind a connection, by its key."""
        push = self._pushed.get(carrier)
        return self.neighbours.count(carrier) + (len(push.rows) if push is not None else 0)

    def find(self, target: str, local: Iterable[str], now: int, limits: Limits) -> Remote | Ambiguous | None:
        """Who is meant by ``name`` or ``name@connection``; ``local``: what agents here answer to.

        One that a fresh roster had and has no more is found, too, and is offline.
        """
        there = self.everyone(now, limits)
        found = _find(target, there, local) or self._by_another_name(target, there)
        if found is None:
            former = self._shown(self.living(now, limits), now, former=True)
            found = _find(target, [each for each in former if each.shown.online is False], local)
        return found

    def _by_another_name(self, target: str, there: Sequence[Remote]) -> Remote | None:
        """One whose hub is shown by another name now: the name that it had by another way still means it. But a hub
        that has a connection here says itself who is there, and nobody else does."""
        name, _, connection = target.strip().lstrip("@").lower().partition("@")
        behind = self.neighbours.behind(connection)
        if behind is None or behind.hub is None or connection in self.neighbours.connections:
            return None
        own = (remote for remote in there if remote.known is not None and remote.known.row.hub == behind.hub)
        return next((remote for remote in own if name in (remote.shown.handle.lower(), remote.shown.profile)), None)

    def of_mail(self, scope: str, to: str) -> Row | None:
        """The recipient of mail that ``scope`` fetches, in the pusher's own namespace; None where it is forgotten."""
        push = self._pushed.get(scope)
        if push is None:
            return None
        name, _, connection = to.lower().partition("@")
        found = [r for r in (*push.rows, *push.former) if name in (r.handle.lower(), r.profile.lower())]
        names = self._named()
        today = (row for row in found if names.of(push, row).lower() == connection)
        return next(today, next((row for row in found if push.had(row, connection)), None))

    def _shown(self, living: Sequence[Push], now: int, *, former: bool) -> list[Remote]:
        """Those of rosters that were pushed, under the names that their connections have here."""
        names, found = self._named(), list[Remote]()
        for push in living:
            online = push.presence(now)
            for row in push.former if former else push.rows:
                shown = row._replace(connection_id=names.of(push, row), online=online(row))
                short = push.short(row) if names.may_share(push, row) else shown.connection_id
                found.append(Remote(push.scope, shown, shown._replace(connection_id=short)))
        return found

    def shown(self, name: str, connection_id: str, now: int, limits: Limits) -> str:
        """How a connection of the pusher ``name`` is called here; also one that it has no row of."""
        return self._named().of(Push(name, (), (), now), Row(connection_id, "default", "hermes"))

    def _named(self) -> Names:
        """What all connections of pushers are called; put together once, until something changes."""
        pushed, changes = self._pushed, self.neighbours.changes
        if self._names is None or self._names[0] is not pushed or self._names[1] != changes:
            self._names = pushed, changes, Names(pushed, self.neighbours, self._is_kept_for)
        return self._names[2]


def address_of(remote: Remote, there: Sequence[Row]) -> Address:
    """Where mail for it goes: by its handle, or by its profile where its connection has two of that handle."""
    handle = remote.shown.handle.lower()
    twins = [row for row in there if row.connection_id == remote.shown.connection_id]
    unique = sum(handle in (row.handle.lower(), row.profile.lower()) for row in twins) <= 1
    name = remote.shown.handle if unique else remote.shown.profile
    return Address(name, remote.shown.connection_id, carrier=remote.carrier)


def check_scope(desktop: object) -> str:
    """The name of a pusher as it says it; ``BadRequest`` where it is none. None is the one without a name."""
    if desktop is None or desktop == "":
        return ANONYMOUS
    if not isinstance(desktop, str) or not is_name(desktop):
        raise BadRequest("desktop is no name: 1 to 64 letters, digits, '_' or '-', the first a letter or digit.")
    if desktop.lower() in RESERVED - {ANONYMOUS}:
        raise BadRequest(f"'{desktop}' is reserved here; a desktop needs a name of its own.")
    return desktop


def _linked(known: Known) -> Remote:
    """An agent behind another hub, as a row."""
    row = known.row
    shown = Row(known.name, profile_of(row.handle), row.handle, known.name, row.title, row.description, known.online)
    return Remote(known.link, shown, shown, known)


def _find(target: str, there: Sequence[Remote], local: Iterable[str]) -> Remote | Ambiguous | None:
    """By the connections' names as they are shown; else by the short ones, which several may have."""
    if not there:
        return None
    shown = [remote.shown for remote in there]
    found = resolve(target, shown, local)
    if isinstance(found, Row):
        return next(remote for remote in there if remote.shown == found)
    if isinstance(found, Ambiguous):
        return found
    found = resolve(target, [remote.short for remote in there], local)
    if found is None:
        return None
    rows = found.rows if isinstance(found, Ambiguous) else (found,)
    hits = [remote for remote in there if remote.short in rows]
    if len(hits) == 1:
        return hits[0]
    names = forms(shown, local)
    return Ambiguous(tuple(hit.shown for hit in hits), tuple(sorted(names[hit.shown] for hit in hits)))


def _written(push: Push) -> bytes:
    return write(
        {"name": push.name, "rows": [r.content() for r in push.rows], "former": [r.content() for r in push.former]}
    )


def _read(value: bytes, at: int) -> Push | None:
    """A push as it was written; None where it cannot be read, which costs at most a minute: it is pushed anew."""
    try:
        found = read(value)
    except Malformed:
        return None
    if not isinstance(found, dict) or not is_name(found.get("name")):
        return None
    push = Push(str(found["name"]), normalise(found.get("rows")).rows, (), at)
    return replace(push, former=normalise(found.get("former")).rows)
