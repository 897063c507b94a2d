"""The runner of turns: for each agent that has an adapter, one message after another.

What must stay true:

- A slot among all turns and the turn lock come before the message is taken, so that mail which has to wait for them
  stays in its mailbox, in order, and any other hand may still take it.
- The agents' mailboxes are watched from before the look; a turn that was begun is always brought to an end, unless the
  hub ends: then it stays taken, and the next start decides.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager

from angelia.bus import turns
from angelia.bus.core import Bus
from angelia.bus.runs import ADAPTERS, Run
from angelia.model.errors import DiskFull, OutcomeUnknown, Stopping, Unwell
from angelia.model.failure import Reason
from angelia.model.limits import nack_delay
from angelia.turns.adapters.port import Tools
from angelia.turns.attempt import Attempts
from angelia.turns.slots import Slots
from angelia.turns.turn_lock import TargetBusy, turn_lock
from angelia.turns.way import Way, make_way

log = logging.getLogger("angelia.turns")
BUSY_SECONDS = 0.5  # until the next try of a lock that somebody else holds: a turn takes longer
SICK_SECONDS = 5.0  # until the next try of a store that is unwell, or of a lock that cannot be looked at


class Runner:
    """Runs turns until it is cancelled. ``locks``: the folder of turn locks of agents that have none of their own."""

    def __init__(self, bus: Bus, tools: Tools, attempts: Attempts, locks: str) -> None:
        self._bus, self._tools, self._attempts, self._locks = bus, tools, attempts, locks
        self._slots = Slots(bus)
        self._workers: dict[str, _Worker] = {}

    async def run(self) -> None:
        """Serve every agent that has an adapter, as it is now and as it changes."""
        async with asyncio.TaskGroup() as tasks:
            for run in await turns.orphans(self._bus):
                tasks.create_task(self._worker(run.mailbox).resume(run))
            with self._bus.runs.signals.watch(ADAPTERS) as watch:
                while True:
                    ticket = watch.ticket()
                    for mailbox, spec in self._wanted().items():
                        worker = self._workers.get(mailbox)
                        if worker is None or worker.retired:
                            self._workers[mailbox] = worker = self._worker(mailbox)
                            tasks.create_task(worker.serve())
                        worker.use(spec)
                    for mailbox in self._workers.keys() - self._wanted().keys():
                        self._workers.pop(mailbox).use(None)
                    await self._bus.clock.wait(watch.changed(ticket), None)

    def _wanted(self) -> dict[str, bytes]:
        agents = self._bus.directory.agents.values()
        return {agent.mailbox: agent.adapter for agent in agents if agent.adapter is not None}

    def _worker(self, mailbox: str) -> "_Worker":
        return _Worker(self._bus, self._tools, self._attempts, self._slots, self._locks, mailbox)


class _Worker:
    """The turns of one agent."""

    def __init__(self, bus: Bus, tools: Tools, attempts: Attempts, slots: Slots, locks: str, mailbox: str) -> None:
        self._bus, self._tools, self._attempts, self._slots = bus, tools, attempts, slots
        self._locks, self._mailbox = locks, mailbox
        self._spec: bytes | None = None
        self._way: Way | None = None
        self._waited = 0  # for a conversation that somebody else is at work in, so many times in a row
        self.retired = False

    def use(self, spec: bytes | None) -> None:
        """Reach the agent in this way from the next turn on; None: not any more."""
        if spec != self._spec:
            self._spec = spec
            self.retired = spec is None
            self._bus.runs.signals.wake(self._mailbox)

    async def serve(self) -> None:
        """Run what there is to run, for as long as there is an adapter."""
        try:
            with self._bus.runs.signals.watch(self._mailbox) as watch:
                while self._spec is not None:
                    ticket = watch.ticket()
                    wait = turns.hold_off(self._bus, self._mailbox)
                    if wait == 0.0:
                        wait = await self._next()
                    if wait != 0.0:
                        await self._bus.clock.wait(watch.changed(ticket), wait)
        except (OutcomeUnknown, Stopping):
            self.retired = True  # the hub ends; what was taken stays so, and the next start decides
        finally:
            await self._leave()

    async def resume(self, run: Run) -> None:
        """The hub before was in the middle of this: find out what became of it, and go on."""
        agent = self._bus.directory.find(self._mailbox)
        if agent is None or agent.adapter is None:
            text = "The hub ended while its turn ran, and nothing wakes that agent any more."
            await turns.failed(self._bus, run, Reason.OUTCOME_UNKNOWN, text)
            return
        self._spec = agent.adapter
        way = await self._current()
        try:
            async with self._slots.place(self._mailbox), self._lock(way, self._bus.limits.lock_wait_seconds):
                await self._finish(run, self._attempts.resume(run, way))
        except TargetBusy as busy:
            await turns.failed(self._bus, run, Reason.TARGET_BUSY, str(busy))
        except (OutcomeUnknown, Stopping):
            return
        finally:
            await self._leave()

    async def _next(self) -> float | None:
        """Run one turn; the seconds until the next look (0: at once, None: when waked)."""
        way = await self._current()
        try:
            async with self._slots.place(self._mailbox), self._lock(way, 0):
                run = await turns.begin(self._bus, self._mailbox, way.kind)
                if run is None:
                    return None
                began = await self._finish(run, self._attempts.run(run, way))
            self._waited = 0 if began else self._waited + 1
            return 0.0 if began else float(nack_delay(self._waited))
        except TargetBusy:
            return BUSY_SECONDS
        except (OutcomeUnknown, Stopping):
            raise
        except (Unwell, DiskFull, OSError) as error:
            log.warning("no turn of %s can be run now: %s", self._mailbox, error)
            return SICK_SECONDS

    async def _finish(self, run: Run, attempts: Coroutine[object, object, bool | None]) -> bool:
        """Bring a turn to its end, a fault of ours too: it costs this turn, and no other agent anything. False where it
        did not begin."""
        try:
            return await attempts is not False
        except (OutcomeUnknown, Stopping):
            raise
        except Exception:
            log.exception("the turn of %s for message %s failed here", run.agent, run.parcel.envelope.id)
            await turns.failed(self._bus, run, Reason.UNKNOWN, "The hub itself failed; its log says how.")
            return True

    def _lock(self, way: Way, budget: float) -> AbstractAsyncContextManager[object]:
        folder, name = way.lock or (self._locks, self._mailbox)
        return turn_lock(folder, name, budget, self._bus.clock)

    async def _current(self) -> Way:
        """The way as it is asked for now. One that could not be read is read again: somebody may have mended it."""
        if self._way is None or self._way.spec != self._spec or not self._way.kind:
            await self._leave()
            assert self._spec is not None
            self._way = make_way(self._spec, self._tools)
        return self._way

    async def _leave(self) -> None:
        """Let go of the adapter that there was."""
        if self._way is not None:
            way, self._way = self._way, None
            await way.adapter.close()
