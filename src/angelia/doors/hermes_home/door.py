"""The life of the door: watch the outbox, keep the roster, sweep.

What must stay true: an envelope for us is taken within 100 ms of its rename, and what a look missed is found by the
next sweep. One that is slow holds up no other but those of its own target, in their order. A file that is broken or
hostile, or a disk that fails for a moment, stops nothing.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from angelia.bus.beat import BEAT_SECONDS, to_beat
from angelia.bus.core import Bus
from angelia.bus.rosters import afar, is_online
from angelia.doors.hermes_home.files import Letter, RelayFiles, Stamp
from angelia.doors.hermes_home.post import Post
from angelia.model.errors import Stopping
from angelia.protocol.bot_relay import DEFAULT_HANDLE, SWEEP_SECONDS, Times
from angelia.protocol.bot_relay_rows import DESCRIPTION_CHARS, LABEL_CHARS, TITLE_CHARS, Row

log = logging.getLogger("angelia.hermes_home")
LOOK_SECONDS = 0.04  # twice within the 100 ms that are promised
FOUND_SECONDS = 3.0  # between two whole looks, whatever the folder's time says
UNANSWERED_SECONDS = 60.0  # between two looks for what was claimed and not answered, of a hub before or after a fault
ROSTER_SECONDS = 60.0  # as often as a relay client pushes: a roster is fresh for 600 s
ROSTER_LOOK_SECONDS = 0.5  # from somebody's rewriting to our rows in it
ROWS_SECONDS = 5.0  # from a change here to the roster: rows of thousands of agents take some ms
TICK_NS = 20_000_000  # a folder's time stands still for as long as this: a change in that moment is not seen
LABEL = "Angelia"


class HermesHome:
    """Serves one Hermes install. ``connection``: how this hub is called there."""

    def __init__(self, bus: Bus, files: RelayFiles, times: Times, ttl: float | None) -> None:
        self._bus, self._files = bus, files
        self._post = Post(bus, files, times, ttl)
        self._under_way: set[str] = set()

    async def run(self) -> None:
        """Serve it until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_roster())
            tasks.create_task(self._sweep())
            seen, looked, unanswered = 0, -FOUND_SECONDS, -UNANSWERED_SECONDS
            while True:
                if not self._files.is_there:
                    await self._wait_for_it()
                    continue
                changed, now = self._files.outbox_changed(), time.monotonic()
                fresh = changed and time.time_ns() - changed < TICK_NS + int(LOOK_SECONDS * 2e9)
                if changed != seen or fresh or now - looked >= FOUND_SECONDS:
                    seen, looked = changed, now
                    for letter in await self._look(self._files.queued):
                        await self._take(tasks, letter)
                if now - unanswered >= UNANSWERED_SECONDS:
                    unanswered = now
                    for letter in await self._look(self._files.unanswered):
                        self._start(tasks, letter)
                await asyncio.sleep(LOOK_SECONDS)

    async def _wait_for_it(self) -> None:
        """Until an install that is not there is looked for again."""
        await asyncio.sleep(to_beat(time.monotonic(), BEAT_SECONDS))

    async def _look(self, look: Callable[[], list[Letter]]) -> list[Letter]:
        try:
            return await asyncio.to_thread(look)
        except OSError as error:
            log.warning("the relay folder of Hermes cannot be looked at: %s", error)
            return []

    async def _take(self, tasks: asyncio.TaskGroup, letter: Letter) -> None:
        """One after another, so that they enter the bus in their order."""
        try:
            taken = await self._post.take(letter)
        except OSError as error:
            log.warning("an envelope of Hermes cannot be claimed: %s", error)
            return
        if taken is not None:
            self._start(tasks, taken)

    def _start(self, tasks: asyncio.TaskGroup, letter: Letter) -> None:
        if letter.id not in self._under_way:
            self._under_way.add(letter.id)
            tasks.create_task(self._carry(letter))

    async def _carry(self, letter: Letter) -> None:
        try:
            await self._post.carry(letter)
        except Stopping:
            return  # the next hub finds it unanswered
        except OSError as error:
            log.warning("an envelope of Hermes waits: %s", error)  # a later look finds it unanswered
        except Exception:
            log.exception("an envelope of Hermes could not be carried")
        finally:
            self._under_way.discard(letter.id)

    async def _keep_roster(self) -> None:
        """Our rows stand in it, again whenever somebody rewrote it; and it is fresh."""
        seen: Stamp | None = None
        written, looked = -ROSTER_SECONDS, -ROWS_SECONDS
        rows: list[Row] = []
        while True:
            if not self._files.is_there:
                await self._wait_for_it()
                continue
            now = time.monotonic()
            due, look = now - written >= ROSTER_SECONDS, now - looked >= ROWS_SECONDS
            changed = self._files.roster_stamp() != seen
            if due or changed or (look and rows != self._rows()):
                rows, written, looked = self._rows(), now if due else written, now
                try:
                    seen = await asyncio.to_thread(self._put_roster, rows, due)
                except OSError as error:
                    log.warning("the roster of Hermes cannot be written: %s", error)
                    seen = self._files.roster_stamp()
            await asyncio.sleep(ROSTER_LOOK_SECONDS)

    def _put_roster(self, rows: list[Row], due: bool) -> Stamp | None:
        own = {DEFAULT_HANDLE, *(name.lower() for name in self._files.profiles())}
        rows = [row for row in rows if row.handle.lower() not in own]
        return self._files.put_roster(rows, int(time.time()), anyway=due)

    def _rows(self) -> list[Row]:
        """The agents of this hub, and those that it has links to, as teammates on our connection."""
        return self._here() + self._afar()

    def _afar(self) -> list[Row]:
        return [
            Row(
                connection_id=self._files.connection,
                profile=f"{remote.shown.handle}-{remote.shown.connection_id}",
                handle=f"{remote.shown.handle}-{remote.shown.connection_id}",
                connection_label=f"{LABEL}, {remote.shown.where}"[:LABEL_CHARS].rstrip(),
                title=remote.shown.title[:TITLE_CHARS].strip(),
                description=remote.shown.description[:DESCRIPTION_CHARS].rstrip(),
                online=remote.shown.online,
            )
            for remote in afar(self._bus).values()
        ]

    def _here(self) -> list[Row]:
        return [
            Row(
                connection_id=self._files.connection,
                profile=agent.handle,
                handle=agent.handle,
                connection_label=LABEL,
                title=agent.title[:TITLE_CHARS].strip(),
                description=" ".join(agent.description.split())[:DESCRIPTION_CHARS].rstrip(),
                online=is_online(self._bus, agent),
            )
            for agent in list(self._bus.directory.agents.values())
            if agent.member
        ]

    async def _sweep(self) -> None:
        while True:
            if self._files.is_there:
                try:
                    await asyncio.to_thread(self._files.sweep, time.time())
                except OSError as error:
                    log.warning("the relay folder of Hermes cannot be swept: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)
