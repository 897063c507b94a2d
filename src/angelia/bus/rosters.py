"""Whom each connection is told of: the union of all others, never its own.

What must stay true: an agent's row names its home and the way there, so that no hub takes a row that has passed it. A
connection that is limited to named agents hears of those alone. ``online`` is true with a stream or an adapter that
works (``bus/working.py``), absent where nobody knows, and false only where mail for it would be refused here.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial

from angelia.bus.core import Bus
from angelia.bus.neighbours import place_id
from angelia.bus.remotes import Remote
from angelia.model.agent import Agent
from angelia.model.connection import Connection
from angelia.protocol.bot_relay import profile_of
from angelia.protocol.bot_relay_rows import Row, is_name
from angelia.protocol.hub import HubRow

ROSTERS = "@rosters"  # what is waked when somebody may have to be told of something new
CHANGES = "@changes"  # and at once, when ``changes`` may be another


def tell_changes(bus: Bus) -> None:
    """From now on, ``CHANGES`` is waked."""
    told = partial(bus.signals.wake, CHANGES)
    bus.directory.on_change = bus.neighbours.on_change = bus.streams.on_change = bus.working.on_change = told


def changes(bus: Bus) -> tuple[int, ...]:
    """Another value whenever what others are told may be another."""
    attached, age = hash(frozenset(bus.streams.attached)), bus.remotes.age(bus.clock.now())
    return bus.directory.changes, bus.neighbours.changes, bus.working.changes, attached, age


def rows_for_hub(bus: Bus, connection: Connection) -> list[HubRow]:
    """What another hub is told."""
    me = bus.neighbours.me
    rows = [
        HubRow(a.handle, me, bus.neighbours.name, (me,), a.title, a.description, is_online(bus, a))
        for a in _here(bus, connection)
    ]
    elsewhere = list(_elsewhere(bus, connection))
    names = Counter((r.shown.connection_id, name) for r in elsewhere if r.known is None for name in _names(r.shown))
    for remote in elsewhere:
        known, shown = remote.known, remote.shown
        twin = known is None and names[shown.connection_id, shown.handle.lower()] > 1
        handle = shown.profile if twin else shown.handle  # as ``remotes.address_of`` has it: so its answers are signed
        home = place_id(me, shown.connection_id) if known is None else known.row.hub
        way = (home, me) if known is None else (*known.row.way, me)
        if connection.hub in way or len(way) > bus.limits.hops:
            continue
        rows.append(HubRow(handle, home, shown.connection_id, way, shown.title, shown.description, shown.online))
    return rows


def rows_for_hermes(bus: Bus, connection: Connection, here: str) -> list[Row]:
    """What a gateway of Hermes' is told; ``here``: what this hub is called there."""
    rows = [
        Row(here, profile_of(a.handle), a.handle, bus.neighbours.name, a.title, a.description, is_online(bus, a))
        for a in _here(bus, connection)
    ]
    return rows + [remote.shown for remote in _elsewhere(bus, connection)]


def afar(bus: Bus) -> dict[str, Remote]:
    """Agents elsewhere under names that are single words, ``handle-connection``, for those who know one connection
    alone. By name, lower case; a name that somebody here has is left out."""
    found: dict[str, Remote] = {}
    for remote in bus.remotes.everyone(bus.clock.now(), bus.limits):
        name = f"{remote.shown.handle}-{remote.shown.connection_id}"
        if is_name(name) and bus.directory.find(name.lower()) is None:
            found.setdefault(name.lower(), remote)
    return found


def is_online(bus: Bus, agent: Agent) -> bool | None:
    """Whether an agent of this hub is there; None where nobody knows."""
    return True if bus.streams.own(agent.mailbox) is not None or bus.working.works(agent) else None


def _names(row: Row) -> set[str]:
    return {row.handle.lower(), row.profile.lower()}


def _here(bus: Bus, connection: Connection) -> Iterator[Agent]:
    for _, agent in sorted(bus.directory.agents.items()):
        if agent.member and connection.shares(agent.handle):
            yield agent


def _elsewhere(bus: Bus, connection: Connection) -> Iterator[Remote]:
    for remote in bus.remotes.everyone(bus.clock.now(), bus.limits):
        if remote.carrier != connection.id and connection.shares(remote.shown.handle):
            yield remote
