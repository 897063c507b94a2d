"""Who is there, and who is here: both sides' agents, between this hub and a gateway of Hermes'.

What must stay true:

- Theirs are looked up, ours are shown: at once, every minute, and ours within a second of a change.
- A look that failed changes nothing: nobody is gone because a call was. What was not shown is shown again until it was
  taken, and an empty roster is shown as any other: so whoever left is forgotten there.
- Private agents, and those who are not accepted, are never known here.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

from angelia.bus.arrive_hermes import Shown
from angelia.bus.core import Bus
from angelia.bus.ports import Tx
from angelia.bus.remotes import Pushed
from angelia.links.channel import Refused
from angelia.links.hermes_in import GATHER_SECONDS, POLL_SECONDS
from angelia.links.hermes_out import AGAIN_THERE_SECONDS, SHORT_SECONDS, Call
from angelia.links.port import FAREWELL_SECONDS, LineLost
from angelia.model.connection import Connection
from angelia.model.errors import AngeliaError
from angelia.protocol.bot_relay_answers import agents
from angelia.protocol.bot_relay_rows import Row

log = logging.getLogger("angelia.links")


@dataclass(frozen=True, slots=True)
class Pace:
    """How often what is done. Seconds."""

    roster: float = 60.0  # Hermes' own relay; a row is fresh for ten of them
    again: float = AGAIN_THERE_SECONDS  # after a look, a show or an outcome that was not taken
    poll: float = POLL_SECONDS
    answer: float = 10.0  # for the first answer of all; a hub that is greeted has as long
    ping: float = 20.0  # and as long for the answer; shorter than what closes a silent connection on the way


class Rosters:
    """Of one line. ``rows_for``: everyone whom the gateway shall see; ``on_change`` hears of another ``count`` or
    ``warning``."""

    def __init__(
        self,
        bus: Bus,
        connection: Connection,
        call: Call,
        here: str,
        rows_for: Callable[[], Iterable[Row]],
        on_change: Callable[[], None],
        pace: Pace,
    ) -> None:
        self._bus, self._connection, self._call, self._here = bus, connection, call, here
        self._rows_for, self._on_change, self._pace = rows_for, on_change, pace
        self._changed = asyncio.Event()
        self._names: frozenset[str] = frozenset()
        self._found: list[dict[str, object]] | None = None
        self.warning: str | None = None

    @property
    def count(self) -> int:
        """How many agents are known there."""
        return len(self._found or ())

    def shown(self) -> Shown:
        """What its mail may be for."""
        return Shown(self._here, tuple(self._rows_for()), self._names)

    def changed(self) -> None:
        """What ``rows_for`` says may be something else now."""
        self._changed.set()

    async def look_on(self) -> NoReturn:
        """Look, again and again. Until ``LineLost``."""
        while True:
            seen = await self._look()
            await asyncio.sleep(self._pace.roster if seen else self._pace.again)

    async def _look(self) -> bool:
        """Take over the agents that are there; whether that worked."""
        try:
            answer = await self._call("profiles.list", {"include_sessions": False}, SHORT_SECONDS)
        except (Refused, TimeoutError) as error:
            how = str(error) or f"no answer within {SHORT_SECONDS:g} s"
            log.info("%s does not say who is there: %s", self._connection.name, how)
            return False
        rows = agents(answer, self._connection.name)
        if rows is None:
            return False
        found = [row.content() for row in rows if self._connection.accepts(row.handle)]
        bus, name = self._bus, self._connection.name

        def unit(tx: Tx) -> Pushed:
            return bus.remotes.push(tx, bus.limits, name, found, bus.clock.now())

        try:
            await bus.store.write(unit)
        except AngeliaError as error:
            log.warning("the agents of %s are not taken over: %s", name, error)
            return False
        if found != self._found:
            self._found = found
            self._on_change()
        return True

    async def show_on(self) -> NoReturn:
        """Show, again and again. Until ``LineLost``."""
        while True:
            self._changed.clear()
            seconds = self._pace.roster if await self._show() else self._pace.again
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
                    await asyncio.sleep(GATHER_SECONDS)
            except TimeoutError:
                continue

    async def _show(self) -> bool:
        """Show it everyone whom it shall see; whether it took that."""
        rows = tuple(self._rows_for())
        self._names |= {row.connection_id.lower() for row in rows}
        problem: str | None = None
        try:
            await self._call("bot_relay.roster.sync", self._roster(rows), SHORT_SECONDS)
        except (Refused, TimeoutError) as error:
            problem = f"Its agents cannot be shown who is here: {str(error)[:200] or 'no answer'}"
        if problem != self.warning:
            self.warning = problem
            self._on_change()
        return problem is None

    async def say_farewell(self) -> None:
        """Our agents shall be forgotten there: an empty roster, once."""
        try:
            await self._call("bot_relay.roster.sync", self._roster(()), FAREWELL_SECONDS)
        except (Refused, LineLost, TimeoutError) as error:
            how = str(error) or f"no answer within {FAREWELL_SECONDS:g} s"
            log.warning("%s may go on showing our agents: %s", self._connection.name, how)

    def _roster(self, rows: Iterable[Row]) -> dict[str, object]:
        return {"agents": [row.content() for row in rows], "desktop": self._here}
