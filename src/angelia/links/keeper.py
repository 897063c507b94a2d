"""The life of all connections: dialled, kept, dialled anew, and let in from the other side.

What must stay true:

- One link at a time for each connection, in a task group of its own: of two that both sides dialled at once, the one
  that the hub with the smaller id dialled stays. What is stopped has ended before another begins.
- A line that broke is dialled again after a tenth of the time that it has been down: 1 s at first, 60 s at most, and
  never at the beat of others. A machine that slept dials at once when it wakes.
- How each stands is known at any time: up or down, since when, why, and what to do.
- What is removed takes nothing with it in silence: who waits for an answer is told that none will come.
- What the owner removed stays removed, whoever dials, until the owner makes it again.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from angelia.bus.beat import BEAT_SECONDS, to_beat
from angelia.bus.caller import Caller
from angelia.bus.carry import Ended, fail_waiting, look_behind
from angelia.bus.core import Bus
from angelia.bus.ports import Tx
from angelia.bus.rosters import CHANGES, ROSTERS, changes, tell_changes
from angelia.links.dialled import pair, serve_dialled
from angelia.links.hello import CODE_SECONDS, Offer
from angelia.links.inbound import InboundWire, Opened
from angelia.links.line import BROKEN, Line
from angelia.links.port import Dialled, Trouble
from angelia.links.reception import Reception
from angelia.model.connection import Condition, Connection, check_connection_name
from angelia.model.errors import BadRequest, NameTaken, NotAllowed, Unwell

log = logging.getLogger("angelia.links")
FIRST_SECONDS, LAST_SECONDS = 1.0, 60.0  # between two tries
SHARE = 0.1  # of the time that it has been down
GATHER_SECONDS = 0.5  # changes of rosters that are told together: within a second, others know
BEHIND_SECONDS = 30.0  # between two looks for what no signal told of
SLEPT_MS = 5_000  # by which the clocks differ after a sleep
TRY_SECONDS = 20.0  # that ``connect`` waits for the first try, which ends by itself before
REMOVED = "The connection to it was removed."
UNPAIRED = "Nothing was kept here; the code may have been used: angelia pair shows another over there."
ONCE_BACK = "and is dialled when the hub is back"


class Keeper:
    """All links of one hub."""

    def __init__(
        self,
        bus: Bus,
        dial: Callable[[Connection], Awaitable[Dialled]],
        folder_key: bytes,
        fixed: Sequence[Connection],
        here: str,
    ) -> None:
        """``dial`` raises ``Trouble``; ``folder_key``: the secret of this hub's own folder; ``fixed``: the connections
        of the settings; ``here``: what gateways of Hermes' call this hub."""
        self._bus, self._dial, self._fixed, self._here = bus, dial, fixed, here
        self._lines: dict[str, Line] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._ended: dict[str, Ended] = {}  # mail for the hub before, where a connection leads to another one now
        self._offer = Offer(bus.clock.monotonic)
        self._reception = Reception(bus, folder_key, self._offer, self._line)
        self._some = asyncio.Event()  # there is, or was, a connection
        self._tasks: asyncio.TaskGroup | None = None
        self._changing = asyncio.Lock()  # whoever makes or removes a connection comes before or after all others

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._settle_fixed()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for connection in self._bus.neighbours.connections.values():
                    self._begin(connection)
                tasks.create_task(self._watch_rosters())
                tasks.create_task(self._look_behind())
                try:
                    await self._watch_sleep()
                finally:
                    self._keepers.clear()
        finally:
            self._tasks = None

    async def serve(self, caller: Caller, line: Opened) -> None:
        """Serve a line that the other side opened, whose first frame is ``hub.hello``, to its end."""
        await self._reception.serve(caller, InboundWire(line))

    # ------------------------------------------------------------------------------------------------------ the desk

    async def connect(self, connection: Connection, code: str | None) -> Condition:
        """Make or replace a connection, dial once, and say how it stands. See ``doors.http.hub.Links``."""
        check_connection_name(connection.name)
        neighbours = self._bus.neighbours
        old = neighbours.connections.get(connection.id)
        if old is None and neighbours.is_taken(connection.name) and neighbours.of_a_way(connection.name) is None:
            raise NameTaken(f"{connection.name} is the name of a hub here already. Nothing was changed.")
        if old is not None and old.fixed:
            raise BadRequest(f"The connection {connection.name} stands in the settings; change it there.")
        if code is not None:
            try:
                async with self._bus.outside.wait(UNPAIRED):
                    connection = await pair(self._line(connection), await self._dial(connection), connection, code)
            except Trouble as trouble:
                self._drop_unknown(connection)
                raise NotAllowed(f"{trouble.problem} Nothing was kept. {trouble.advice}") from None
        elif old is not None and old.target in ("", connection.target):
            connection = replace(connection, hub=old.hub, key=old.key)
        connection = self._as_removed(connection)
        async with self._changing:
            await self._end(connection.id)
            self._ended.pop(connection.id, None)
            await self._put(connection)
            line = self._begin(connection)
        if connection.target:
            async with self._bus.outside.wait(f"The connection {connection.name} is kept, {ONCE_BACK}."):
                await line.wait_for_try(TRY_SECONDS)
        found, ended = await line.condition(), self._ended.pop(connection.id, None)
        return found if ended is None else replace(found, warning=_words(ended))

    async def disconnect(self, name: str) -> Ended:
        """Remove one. See ``doors.http.hub.Links``."""
        async with self._changing:
            connection = self._bus.neighbours.require(name)
            if connection.fixed:
                raise BadRequest(f"The connection {connection.name} stands in the settings; remove it there.")
            await self._line(connection).say_farewell()
            return await self._give_up(connection, by_owner=True)

    async def conditions(self) -> list[Condition]:
        """How each stands, by name."""
        return [await line.condition() for _, line in sorted(self._lines.items())]

    def offer(self) -> tuple[str, float]:
        """A code to pair with this hub, and for how many seconds it is good."""
        return self._offer.make(), CODE_SECONDS

    # ------------------------------------------------------------------------------------------------------ each line

    def _line(self, connection: Connection) -> Line:
        """How a connection stands, from the first time that it is spoken of."""
        if connection.id not in self._lines:
            self._lines[connection.id] = Line(self._bus, connection)
            self._some.set()
        return self._lines[connection.id]

    def _as_removed(self, connection: Connection) -> Connection:
        """A connection that leads nowhere yet is to the hub that was removed under its name, where there is one."""
        if connection.target or connection.hub is not None:
            return connection
        removed = self._bus.neighbours.removed_as(connection.name)
        return connection if removed is None else replace(connection, hub=removed.hub)

    def _drop_unknown(self, connection: Connection) -> None:
        if connection.id not in self._bus.neighbours.connections:
            self._lines.pop(connection.id, None)

    def _begin(self, connection: Connection) -> Line:
        """Keep a connection up from now on, where it is one that is dialled from here."""
        line = self._line(connection)
        line.connection = connection
        if connection.target and self._tasks is not None and not self._bus.stopping:
            self._keepers[connection.id] = self._tasks.create_task(self._keep_up(line))
        return line

    async def _end(self, key: str) -> None:
        """Stop dialling, and end the link that is up; it has ended then."""
        keeper = self._keepers.pop(key, None)
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait((keeper,))
        if key in self._lines:
            await self._lines[key].end()

    async def _keep_up(self, line: Line) -> None:
        """Dial, serve, and dial again, while this task is the line's keeper. That is asked here, too: where a line
        breaks at the instant at which its keeper is cancelled, a task group raises what broke, and that alone."""
        while self._keepers.get(line.connection.id) is asyncio.current_task():
            await line.wait_for_end()
            line.again.clear()
            try:
                dialled = await self._dial(line.connection)
                await serve_dialled(line, dialled, self._here, self._give_up, self._mail_ended)
            except Trouble as trouble:
                line.failed(trouble)
            except Exception:
                log.exception("the link to %s failed", line.connection.name)
                line.failed(BROKEN)
            await line.wait_for_wake(_pause(line))

    async def _settle_fixed(self) -> None:
        """Those of the settings are there as they stand there; those that no longer stand there are not."""
        neighbours = self._bus.neighbours
        wanted = {connection.id: connection for connection in self._fixed}
        for connection in list(neighbours.connections.values()):
            if connection.fixed and connection.id not in wanted:
                await self._forget(connection)
        for connection in self._fixed:
            old = neighbours.connections.get(connection.id)
            if old is not None and old.target == connection.target:
                connection = replace(connection, hub=old.hub, key=old.key)
            await self._put(self._as_removed(connection))

    async def _put(self, connection: Connection) -> None:
        bus = self._bus
        await bus.store.write(lambda tx: bus.neighbours.put(tx, connection, bus.clock.now()))

    def _mail_ended(self, connection: Connection, ended: Ended) -> None:
        if any(ended):
            self._ended[connection.id] = ended

    async def _give_up(self, connection: Connection, *, by_owner: bool = False) -> Ended:
        await self._end(connection.id)
        return await self._forget(connection, by_owner=by_owner)

    async def _forget(self, connection: Connection, *, by_owner: bool = False) -> Ended:
        """Nothing of it is left; who waits for an answer from there is told. ``by_owner``: the hub behind it is not let
        in any more."""
        bus = self._bus
        connection = bus.neighbours.connections.get(connection.id, connection)  # which hub is there is learned by lines

        def unit(tx: Tx) -> None:
            bus.neighbours.remove(tx, connection, bus.clock.now(), by_owner=by_owner)
            bus.remotes.forget(tx, connection.name, bus.clock.now())

        await bus.store.write(unit)
        self._ended.pop(connection.id, None)
        if (line := self._lines.pop(connection.id, None)) is not None:
            await line.end()  # what had come in until it was written down that it is removed
            line.forget()
        return await fail_waiting(bus, connection.id, REMOVED)

    # ------------------------------------------------------------------------------------------------------ all of them

    async def _watch_rosters(self) -> None:
        """Say when they may have changed."""
        bus, seen = self._bus, changes(self._bus)
        tell_changes(bus)
        with bus.signals.watch(CHANGES) as watch:
            while True:
                await self._some.wait()  # nobody is told of anything where there is no connection
                ticket = watch.ticket()
                if (now := changes(bus)) != seen:
                    seen = now
                    bus.signals.wake(ROSTERS)
                await bus.clock.wait(watch.changed(ticket), None)
                await asyncio.sleep(GATHER_SECONDS)

    async def _look_behind(self) -> None:
        """Find what the signals missed."""
        while True:
            await self._some.wait()
            await asyncio.sleep(to_beat(asyncio.get_running_loop().time(), BEHIND_SECONDS))
            with contextlib.suppress(Unwell):  # the store says so itself
                await look_behind(self._bus)

    async def _watch_sleep(self) -> None:
        """Dial soon after one."""
        loop, gap = asyncio.get_running_loop(), _gap(self._bus)
        while True:
            await self._some.wait()
            await asyncio.sleep(to_beat(loop.time(), BEAT_SECONDS))
            before, gap = gap, _gap(self._bus)
            if gap - before > SLEPT_MS:
                for line in self._lines.values():
                    line.again.set()


def _gap(bus: Bus) -> float:
    """By how much the clock that counts sleep is ahead of the one that does not (ms)."""
    return bus.clock.now() - bus.clock.monotonic() * 1000


def _words(ended: Ended) -> str:
    """What became of mail for the hub that was behind a connection before."""
    count = sum(ended)
    have = "message for the one before has" if count == 1 else "messages for the one before have"
    return f"Another hub is there now; {count} {have} ended, and the senders see that as failed."


def _pause(line: Line) -> float:
    """How long until the next try."""
    if line.trouble is not None and line.trouble.lasting:
        return LAST_SECONDS
    pause = min(max(line.down_seconds() * SHARE, FIRST_SECONDS), LAST_SECONDS)
    return pause * random.uniform(0.5, 1.0)
