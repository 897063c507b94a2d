"""Who can be reached on other connections: the rosters that relays push, and whom an address on one of them means.

What must stay true:

- A push replaces the rows of its own scope and of no other's. It outlives the socket and the hub; whether its agents
  are there is unknown once it is not fresh, and it is gone a day after the last push.
- A connection's id is a name in its pusher's namespace. ``local`` there is shown here as the pusher's name; an id that
  two pushers use is shown behind the pusher's name. Mail goes by the pusher that named its recipient, under its ids.
- ``_pushed`` is replaced and never changed in place, so that units on the store's thread may read it, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from angelia.bus.ports import Store, Tx
from angelia.model.address import LOCAL, Address
from angelia.model.errors import BadRequest, RateLimited
from angelia.model.limits import Limits
from angelia.protocol.bot_relay_rows import Row, is_name, normalise
from angelia.protocol.bot_relay_targets import Ambiguous, forms, online, resolve
from angelia.protocol.foreign_json import Malformed, read, write

ANONYMOUS = "desktop"  # the scope of whoever does not say which desktop it is, and so its name
_NOTE = "roster:"
_FORMER = 1_000  # of one scope: rows that were dropped lately, so that mail to them still finds its way
_NAME_LETTERS = 64


@dataclass(frozen=True, slots=True)
class Push:
    """The last push of one scope. ``rows`` and ``former`` (what earlier pushes had) are in the pusher's namespace."""

    name: str
    rows: tuple[Row, ...]
    former: tuple[Row, ...]
    at: int

    @property
    def scope(self) -> str:
        """The key of the scope: what its mail is fetched by."""
        return self.name.lower()

    def short(self, row: Row) -> str:
        """The connection's name here."""
        return self.name if row.connection_id.lower() == LOCAL else row.connection_id

    def long(self, row: Row) -> str:
        """The same where it would be another pusher's, too."""
        return f"{self.name}-{row.connection_id}"[:_NAME_LETTERS]

    def is_online(self, row: Row, now: int) -> bool | None:
        """Whether an agent is there; None where nobody knows."""
        return online(row.connection_id, row.profile, self.rows, (now - self.at) / 1000)


@dataclass(frozen=True, slots=True)
class Remote:
    """One agent elsewhere. ``row``: as pushed; ``shown``: under its connection's name here, ``online`` as known now."""

    push: Push
    row: Row
    shown: Row

    @property
    def short(self) -> Row:
        """``shown``, under the connection's short name."""
        return self.shown._replace(connection_id=self.push.short(self.row))


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of a push: how many rows are kept, and which are not, with why."""

    count: int
    rejected: tuple[tuple[int, str], ...]


class Remotes:
    """The rosters that were pushed, by scope."""

    def __init__(self) -> None:
        self._pushed: dict[str, Push] = {}

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
        kept = {row[:2] for row in roster.rows}
        before = (*old.rows, *old.former) if old is not None and _is_kept(old, now, limits) else ()
        former = {row[:2]: row for row in reversed(before) if row[:2] not in kept}
        push = Push(name, roster.rows, tuple(former.values())[-_FORMER:], now)
        tx.put_note(_NOTE + push.scope, _written(push), now)
        for gone in self._pushed.values():
            if not _is_kept(gone, now, limits) and gone.scope != push.scope:
                tx.put_note(_NOTE + gone.scope, None, now)
        tx.then(lambda: self._set(push, now, limits))
        too_many = len(agents) - limits.roster_rows if isinstance(agents, list) else 0
        rejected = [(each.row, each.reason) for each in roster.rejected]
        if too_many > 0:
            rejected.append((limits.roster_rows, f"{limits.roster_rows} rows are the most; {too_many} more were left"))
        return Pushed(len(roster.rows), tuple(rejected))

    def _set(self, push: Push, now: int, limits: Limits) -> None:
        others = {scope: each for scope, each in self._pushed.items() if _is_kept(each, now, limits)}
        self._pushed = {**others, push.scope: push}

    def living(self, now: int, limits: Limits) -> list[Push]:
        """The rosters that are not gone, by scope."""
        return [push for _, push in sorted(self._pushed.items()) if _is_kept(push, now, limits)]

    def is_scope(self, key: str | None) -> bool:
        """Whether mail under this key waits for a relay of Hermes'."""
        return key is not None and (key in self._pushed or key == ANONYMOUS)

    def everyone(self, now: int, limits: Limits) -> list[Remote]:
        """All that can be written to."""
        return _shown(self.living(now, limits), now, former=False)

    def rows(self, now: int, limits: Limits) -> tuple[Row, ...]:
        """The same as rows, under the names that their connections have here."""
        return tuple(remote.shown for remote in self.everyone(now, limits))

    def find(self, target: str, local: Iterable[str], now: int, limits: Limits) -> Remote | Ambiguous | None:
        """Who is meant by ``name`` or ``name@connection``; ``local``: what agents here answer to.

        One that a fresh roster had and has no more is found, too, and is offline.
        """
        living = self.living(now, limits)
        there = _shown(living, now, former=False)
        found = _find(target, there, local)
        if found is None:
            gone = [each for each in _shown(living, now, former=True) if each.shown.online is False]
            found = _find(target, gone, local)
        return found

    def of_mail(self, scope: str, to: str) -> Row | None:
        """The recipient of mail that ``scope`` fetches, in the pusher's own namespace; None where it is forgotten."""
        push = self._pushed.get(scope)
        name, _, connection = to.lower().partition("@")
        for row in (*push.rows, *push.former) if push is not None else ():
            names = (row.handle.lower(), row.profile.lower())
            if name in names and connection in (push.short(row).lower(), push.long(row).lower()):  # type: ignore[union-attr]
                return row
        return None

    def shown(self, name: str, connection_id: str, now: int, limits: Limits) -> str:
        """How a connection of the pusher ``name`` is called here."""
        push = Push(name, (), (), now)
        row = Row(connection_id, "default", "hermes")
        others = [each for each in self.living(now, limits) if each.scope != push.scope]
        taken = {each.short(other).lower() for each in others for other in each.rows}
        return push.long(row) if push.short(row).lower() in taken else push.short(row)


def address_of(remote: Remote, there: Sequence[Row]) -> Address:
    """Where mail for it goes: by its handle, or by its profile where its connection has two of that handle."""
    handle = remote.shown.handle.lower()
    twins = [row for row in there if row.connection_id == remote.shown.connection_id]
    unique = sum(handle in (row.handle.lower(), row.profile.lower()) for row in twins) <= 1
    name = remote.shown.handle if unique else remote.shown.profile
    return Address(name, remote.shown.connection_id, carrier=remote.push.scope)


def check_scope(desktop: object) -> str:
    """The name of a pusher as it says it; ``BadRequest`` where it is none. None is the one without a name."""
    if desktop is None or desktop == "":
        return ANONYMOUS
    if not isinstance(desktop, str) or not is_name(desktop) or desktop.lower() == LOCAL:
        raise BadRequest("desktop is no name: 1 to 64 letters, digits, '_' or '-', the first a letter or digit.")
    return desktop


def _is_kept(push: Push, now: int, limits: Limits) -> bool:
    return now - push.at <= limits.roster_keep_seconds * 1000


def _shown(living: Sequence[Push], now: int, *, former: bool) -> list[Remote]:
    """Everyone under the name that its connection has here."""
    owners: dict[str, set[str]] = {}
    for push in living:
        for row in (*push.rows, *(push.former if former else ())):
            owners.setdefault(push.short(row).lower(), set()).add(push.scope)
    found: list[Remote] = []
    for push in living:
        for row in push.former if former else push.rows:
            alone = len(owners[push.short(row).lower()]) == 1
            connection = push.short(row) if alone else push.long(row)
            shown = row._replace(connection_id=connection, online=push.is_online(row, now))
            found.append(Remote(push, row, shown))
    return found


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
