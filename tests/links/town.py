"""Hubs of one process that reach each other by the names in their targets, each with a keeper of its links.

What must stay true: a line between two is in memory and is known here, so that a test can count and cut it. A hub that
is out is not reached, and serves nobody.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from angelia.bus.caller import OPEN
from angelia.bus.ports import Store
from angelia.links.keeper import Keeper
from angelia.links.port import Dialled, Kind, Trouble
from angelia.model.connection import Condition, Connection, Speaks
from angelia.model.delivery import State
from tests.links.neighbours import SECONDS, Line, Opened, Side

NOBODY = "Nobody is there."


class Home:
    """One hub: its bus, its keeper, and what it does where somebody dials. ``dials``: whom it dialled."""

    def __init__(self, town: "Town", side: Side, fixed: tuple[Connection, ...]) -> None:
        self.town, self.side, self.fixed = town, side, fixed
        self.out = False
        self.dials: list[str] = []
        self.before_dial: Callable[[Connection], Any] = lambda _: None
        self.key_file = town.folder / f"{side.name}.key"
        self.key_file.write_text(f"the key of {side.name}")
        self.key_file.chmod(0o600)
        self.keeper = Keeper(side.bus, self._dial, self.key_file.read_bytes(), fixed, side.name)
        self._running: asyncio.Task[None] | None = None

    def start(self) -> "Home":
        self.out = False
        self._running = self.town.tasks.create_task(self._run())
        return self

    async def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            await self.keeper.run()

    async def stop(self) -> None:
        """Stop the keeper; nobody reaches it any more, and lines that others opened are cut."""
        self.out = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,), timeout=SECONDS)
            assert self._running.done(), f"the keeper of {self.side.name} does not end"
        for line in self.town.lines_of(self):
            line.cut()

    async def connect(self, name: str, code: str | None = None, **more: Any) -> Condition:
        given = {"target": f"ws://{name}", **more}
        return await self.keeper.connect(Connection(name=name, **given), code)

    async def condition(self, name: str) -> Condition:
        [found] = [each for each in await self.keeper.conditions() if each.connection.id == name]
        return found

    async def is_up(self, name: str) -> bool:
        return any(each.up for each in await self.keeper.conditions() if each.connection.id == name)

    async def is_forwarded(self, sent: Any) -> bool:
        return await self.side.state(sent) is State.FORWARDED

    async def _dial(self, connection: Connection) -> Dialled:
        return await self.town.dial(self, connection)


class Town:
    """All of them. ``trusting``: they are of one user, so that the key of the folder lets them in."""

    def __init__(self, tasks: asyncio.TaskGroup, folder: Path) -> None:
        self.tasks, self.folder = tasks, folder
        self.trusting = True
        self.homes: dict[str, Home] = {}  # by the name that is dialled
        self._all: list[Home] = []
        self.lines: list[tuple[Home, Home, Line]] = []

    async def home(
        self, name: str, *agents: str, store: Store | None = None, fixed: tuple[Connection, ...] = ()
    ) -> Home:
        """A hub called ``name``, at work."""
        return self.place(await Side.make(name, *agents, store=store), fixed).start()

    def place(self, side: Side, fixed: tuple[Connection, ...] = ()) -> Home:
        home = self.homes[side.name] = Home(self, side, fixed)
        self._all.append(home)
        return home

    def open_lines(self) -> list[Line]:
        return [line for _, _, line in self.lines if not line.dead.is_set()]

    def lines_of(self, home: Home) -> list[Line]:
        return [line for one, other, line in self.lines if home in (one, other) and not line.dead.is_set()]

    async def dial(self, home: Home, connection: Connection) -> Dialled:
        home.dials.append(connection.name)
        found = home.before_dial(connection)
        if asyncio.iscoroutine(found):
            await found
        far = self.homes.get(connection.target.removeprefix("ws://"))
        if far is None or far.out or home.out:
            raise Trouble(Kind.UNREACHABLE, NOBODY, "Look whether it runs.")
        line = Line()
        self.lines.append((home, far, line))
        self.tasks.create_task(far.keeper.serve(OPEN, Opened(line.ends[1])))
        key_file = str(far.key_file) if self.trusting else None
        return Dialled(line.ends[0], Speaks.HUB, key_file=key_file, ready={"version": "1.2"})

    async def close(self) -> None:
        for home in self._all:
            await home.stop()


@asynccontextmanager
async def a_town(folder: Path) -> AsyncIterator[Town]:
    """An empty town; everybody is stopped at the end."""
    async with asyncio.TaskGroup() as tasks:
        town = Town(tasks, folder)
        try:
            yield town
        finally:
            await town.close()
