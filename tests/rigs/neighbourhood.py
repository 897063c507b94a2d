"""What the agents, the troubles and the judge of `hubs.py` share: the hubs, who is called what where, and the end.

What must stay true: a name in the history is ``handle@HUB``, by the name that the hub has for itself.
"""

import asyncio
import http.client
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.acceptance.hub import Hub
from tests.rigs.history import History

NAMES = ("alpha", "beta", "gamma")


@dataclass
class FarHub(Hub):
    """A hub that is talked to over its socket alone: its ports may be in a namespace of its own."""

    prefix: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        return [*self.prefix, *super().command]

    def connection(
        self, *, admin: bool = False, host: str = "127.0.0.1", seconds: float = 30.0
    ) -> http.client.HTTPConnection:
        return super().connection(admin=True, seconds=seconds)


@dataclass
class Place:
    """A hub and its name."""

    name: str
    hub: FarHub


@dataclass
class Neighbourhood:
    """The state of one run. ``line``: the first hub and the last are linked by way of the one between."""

    places: list[Place]
    dice: random.Random
    line: bool
    history: History = field(default_factory=History)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    faults: list[str] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    # Handles that more than one hub has.
    shared: frozenset[str] = frozenset()

    def fault(self, what: str) -> None:
        """What the contract does not have."""
        if len(self.faults) < 100:
            self.faults.append(what)

    async def pause(self, seconds: float) -> None:
        """A while of about so many seconds; shorter when it closes."""
        try:
            async with asyncio.timeout(self.dice.uniform(0, 2 * seconds)):
                await self.closing.wait()
        except TimeoutError:
            return

    @staticmethod
    def called(handle: str, hub: str) -> str:
        """An agent as the history has it."""
        return f"{handle}@{hub}"

    def form(self, here: int, other: Any) -> str:
        """How an agent is addressed from a hub: short or qualified, as the dice fall; short only where it is clear."""
        if other.home == here:
            return str(other.handle)
        short = other.handle not in self.shared and self.dice.random() < 0.5
        return str(other.handle) if short else self.called(other.handle, self.places[other.home].name)

    def known(self, sender: str, here: Place) -> str:
        """A sender that was seen at a hub, as the history has it."""
        return sender if "@" in sender else self.called(sender, here.name)

    def way(self, sender: str, to: str) -> tuple[str, ...]:
        """The hubs that a message passes, by name."""
        ends = sender.partition("@")[2], to.partition("@")[2]
        names = [place.name for place in self.places]
        if self.line and set(ends) == {names[0], names[2]}:
            return (ends[0], names[1], ends[1])
        return ends
