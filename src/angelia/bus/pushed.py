"""A roster as it was pushed, and what the connections in it are called here.

What must stay true:

- A name of a pusher's connection never means somebody else: this hub, a connection or a hub behind one, a hub that had
  the name and may come back, a desktop with a token, another pusher.
- Who has a token, or is a connection of ours, goes before who has none: nobody takes its names by using them, too.
- Mail and answers that wait go by a name of earlier (``Push.had``).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import count

from angelia.bus.neighbours import Neighbours
from angelia.model.address import LOCAL, RESERVED
from angelia.protocol.bot_relay import ROSTER_FRESH_SECONDS
from angelia.protocol.bot_relay_rows import Row

_NAME_LETTERS = 64
_NUMBER = re.compile(r"-[0-9]{1,6}\Z")
_NOBODY: frozenset[str] = frozenset()


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

    def long(self, row: Row, end: str = "") -> str:
        """The same where that is not free. ``end``: where this is not, either."""
        return f"{self.name}-{row.connection_id}"[: _NAME_LETTERS - len(end)] + end

    def had(self, row: Row, name: str) -> bool:
        """Whether a connection is, or may have been, called so (lower case)."""
        if name in (self.short(row).lower(), self.long(row).lower()):
            return True
        end = _NUMBER.search(name)
        return end is not None and name == self.long(row, end[0]).lower()

    def presence(self, now: int) -> Callable[[Row], bool | None]:
        """What says of an agent whether it is there (None: nobody knows), for as many as one asks of."""
        if not self.rows or now - self.at > ROSTER_FRESH_SECONDS * 1000:
            return lambda row: None
        there = {row[:2]: row.online for row in self.rows}
        return lambda row: there.get(row[:2], False)


class Names:
    """What the connections of pushers are called here: each by its short name where that is free, else by its long one,
    else by that with a number. Of two pushers alike that use one id, none has the short name; one with a token, or of a
    connection of ours, has it before all others."""

    def __init__(self, pushed: Mapping[str, Push], neighbours: Neighbours, is_kept: Callable[[str], bool]) -> None:
        self._neighbours, self._is_kept = neighbours, is_kept
        self._first = {scope for scope in pushed if scope in neighbours.connections or is_kept(scope)}
        self._now: dict[str, set[str]] = {scope: {scope} for scope in pushed}  # who has a name, or would have it
        self._before: dict[str, set[str]] = {}  # the same by rows that were dropped
        self._given: dict[tuple[str, str], str] = {}
        self._whose: dict[str, tuple[str, str]] = {}
        self._numbers: dict[str, int] = {}  # given last, by the long name that was not free
        pushes = sorted(pushed.values(), key=lambda push: (push.scope not in self._first, push.scope))
        rows = [(push, row) for push in pushes for row in _connections(push.rows)]
        former = [(push, row) for push in pushes for row in _connections(push.former)]
        for claims, found in ((self._now, rows), (self._before, former)):
            for push, row in found:
                for name in (push.short(row), push.long(row)):
                    claims.setdefault(name.lower(), set()).add(push.scope)
        for found in (rows, former):
            late = found is former
            for push, row in found:
                if _key(push, row) not in self._given and self._is_free(push, row, push.short(row), late=late):
                    self._give(push, row, push.short(row))
            for push, row in found:
                if _key(push, row) not in self._given:
                    self._give(push, row, self._longer(push, row, late=late))

    def of(self, push: Push, row: Row) -> str:
        """The name of a row's connection."""
        short, long = push.short(row), push.long(row)
        if (given := self._given.get(_key(push, row))) is not None:
            return next((name for name in (short, long) if name.lower() == given.lower()), given)
        return short if self._is_free(push, row, short, late=True) else self._longer(push, row, late=True)

    def may_share(self, push: Push, row: Row) -> bool:
        """Whether the short name of a connection means it, too, where nobody has that name alone."""
        short = push.short(row).lower()
        return not self._is_anothers(push, short) and (push.scope in self._first or not self._first & self._all(short))

    def _give(self, push: Push, row: Row, name: str) -> None:
        if name not in (push.short(row), push.long(row)):
            self._numbers[push.long(row).lower()] = int(name.rpartition("-")[2])
        self._given[_key(push, row)] = name
        self._whose[name.lower()] = _key(push, row)

    def _longer(self, push: Push, row: Row, *, late: bool) -> str:
        long = push.long(row)
        if self._is_free(push, row, long, late=late):
            return long
        names = (push.long(row, f"-{number}") for number in count(self._numbers.get(long.lower(), 1) + 1))
        return next(name for name in names if self._is_free(push, row, name, late=late))

    def _is_free(self, push: Push, row: Row, name: str, *, late: bool) -> bool:
        """Whether a connection can be called so. ``late``: it is not in the roster (any more), and comes after all that
        are or were."""
        key, scope, first = name.lower(), push.scope, push.scope in self._first
        if self._whose.get(key, _key(push, row)) != _key(push, row) or self._is_anothers(push, key):
            return False
        if first and key == scope:
            return True
        rivals = self._now.get(key, _NOBODY)
        if late or not first:
            before = self._before.get(key, _NOBODY)
            rivals = rivals | (before if late else before & self._first)
        return not (rivals & self._first if first or key == scope else rivals) - {scope}

    def _is_anothers(self, push: Push, key: str) -> bool:
        """Whether a name is one that no other connection of a pusher has: a hub's, a link's, a desktop's."""
        if key == self._neighbours.name.lower() or (key in RESERVED and key != push.scope):
            return True
        if (connection := self._neighbours.connections.get(key)) is not None:
            return connection.id != push.scope
        if (behind := self._neighbours.of_a_way(key)) is not None:
            return behind.link != push.scope
        return self._neighbours.stood_for(key) or (key != push.scope and self._is_kept(key))

    def _all(self, key: str) -> Set[str]:
        return self._now.get(key, _NOBODY) | self._before.get(key, _NOBODY)


def _connections(rows: Iterable[Row]) -> list[Row]:
    """A row of each connection, the pusher's own first."""
    found = {row.connection_id.lower(): row for row in rows}
    return sorted(found.values(), key=lambda row: (row.connection_id.lower() != LOCAL, row.connection_id.lower()))


def _key(push: Push, row: Row) -> tuple[str, str]:
    return push.scope, row.connection_id.lower()
