"""How many turns run at once, of all agents.

What must stay true: a turn whose agent waits for another's answer holds nobody up: its place is free meanwhile, or a
row of agents that ask one another would fill all places and wait for ever for the next. When it goes on there may be
more at work for a while than there are places.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from angelia.bus.core import Bus
from angelia.bus.runs import PLACES


class Slots:
    """The places, ``Limits.turns`` of them. Everything here happens on the event loop."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._held: set[str] = set()

    @asynccontextmanager
    async def place(self, mailbox: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it for this agent's turn."""
        with self._bus.runs.signals.watch(PLACES) as watch:
            while True:
                ticket = watch.ticket()
                if self._at_work() < self._bus.limits.turns:
                    break
                await self._bus.clock.wait(watch.changed(ticket), None)
            self._held.add(mailbox)
        try:
            yield
        finally:
            self._held.discard(mailbox)
            self._bus.runs.signals.wake(PLACES)

    def _at_work(self) -> int:
        return sum(not self._bus.asks.waits(mailbox) for mailbox in self._held)
