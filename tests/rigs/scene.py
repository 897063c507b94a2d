"""What senders, readers and the killer of `kills.py` share: the hub, the history, the dice and the end."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from datetime import datetime

from tests.acceptance.hub import Hub
from tests.rigs.history import History
from tests.rigs.talk import Talk

# Mailboxes, by how they are read; "mixed" is read by all hands at once.
POLLED, CLAIMED, AUTO, SEED, MANUAL, MIXED, COMMANDED = (
    "polled", "claimed", "auto", "seed", "manual", "mixed", "commanded",
)  # fmt: skip
MAILBOXES = (POLLED, CLAIMED, AUTO, SEED, MANUAL, MIXED, COMMANDED)
# Those whose readers answer what they are asked.
ANSWERING = (CLAIMED, MANUAL)


@dataclass
class Scene:
    """The state of one run."""

    hub: Hub
    dice: random.Random
    history: History = field(default_factory=History)
    # Senders start no new message once this is set; readers end when ``over`` is.
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    faults: list[str] = field(default_factory=list)
    # Nothing is lost by one, and yet none is called for here: there is one store, and nothing in it is old.
    resets: list[str] = field(default_factory=list)
    host: str = "127.0.0.1"  # where senders and readers find the hub

    # How far the hub's clock was off in its lives so far; far apart, so that a time tells which of them it is from.
    offsets: set[float] = field(default_factory=lambda: {0.0})

    def moment(self, text: str | None) -> float | None:
        """A time that the hub said, by our clock."""
        at = moment(text)
        return None if at is None else at - min(self.offsets, key=lambda offset: abs(at - offset - now()))

    @property
    def talk(self) -> Talk:
        return Talk(self.hub.port, self.host)

    def fault(self, what: str) -> None:
        """An answer that the contract does not have."""
        if len(self.faults) < 100:
            self.faults.append(what)

    async def pause(self, seconds: float) -> None:
        """A while of about so many seconds; shorter when it is over."""
        try:
            async with asyncio.timeout(self.dice.uniform(0, 2 * seconds)):
                await self.over.wait()
        except TimeoutError:
            return


def now() -> float:
    """The clock of the history: the wall's, so that receipts can be compared with it."""
    return time.time()


def moment(text: str | None) -> float | None:
    """A time of the wire as a number."""
    return None if text is None else datetime.fromisoformat(text).timestamp()
