"""The bus: what all verbs share. Verbs are plain functions in the files beside this one that take it first.

What must stay true: everything here that is not on disk may be lost at any instant without losing a message. Units of
work (``store.write``) run on the store's thread; they read ``streams.attached``, ``carriers.live``, ``runs.busy`` and
``asks`` there, and change the loop's own things only through ``tx.then``.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from angelia.bus.asks import Asks
from angelia.bus.autos import Autos
from angelia.bus.caller import Caller, act_as
from angelia.bus.carriers import Carriers
from angelia.bus.directory import DESKTOP, Directory
from angelia.bus.events import Events
from angelia.bus.jams import Jams
from angelia.bus.leases import LeaseBook
from angelia.bus.neighbours import Neighbours
from angelia.bus.outside import Outside
from angelia.bus.ports import Clock, Ids, Store, Tx
from angelia.bus.presence import Presence
from angelia.bus.remotes import Remotes
from angelia.bus.runs import Runs
from angelia.bus.signals import Signals
from angelia.bus.streams import Streams
from angelia.bus.timers import Timers
from angelia.bus.turnstile import Turnstile
from angelia.bus.working import Working
from angelia.model.errors import DiskFull, Stopping, Unwell
from angelia.model.limits import Limits

log = logging.getLogger("angelia.bus")
AGAIN_SECONDS = 1.0  # between two tries of what must be done and could not be


@dataclass(slots=True)
class Bus:
    """One running bus over one store."""

    store: Store
    clock: Clock
    ids: Ids
    limits: Limits
    directory: Directory = field(default_factory=Directory)
    signals: Signals = field(default_factory=Signals)
    leases: LeaseBook = field(default_factory=LeaseBook)
    streams: Streams = field(default_factory=Streams)
    turnstile: Turnstile = field(default_factory=Turnstile)
    carriers: Carriers = field(default_factory=Carriers)
    jams: Jams = field(default_factory=Jams)
    asks: Asks = field(default_factory=Asks)
    autos: Autos = field(default_factory=Autos)
    presence: Presence = field(default_factory=Presence)
    remotes: Remotes = field(init=False)
    runs: Runs = field(default_factory=Runs)
    working: Working = field(default_factory=Working)
    timers: Timers = field(default_factory=Timers)
    events: Events = field(default_factory=Events)
    outside: Outside = field(default_factory=Outside)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.remotes = Remotes(lambda name: bool(self.directory.tokens_of(DESKTOP + name)))

    @property
    def neighbours(self) -> Neighbours:
        """The connections of this hub, and who is behind them."""
        return self.remotes.neighbours

    def check_running(self) -> None:
        """Raise ``Stopping`` once the hub goes down."""
        if self.stopping:
            raise Stopping("The hub is stopping; nothing was stored. Ask again when it is back.")

    def identify(self, caller: Caller, name: str | None, what: str = "from") -> tuple[str, bool]:
        """The name, as registered, that ``caller`` acts as, and whether it is proved; raises as ``act_as`` does."""
        name, proved = act_as(caller, name, keyed=self.directory.is_keyed(name), what=what)
        agent = self.directory.find(name.lower())
        return (agent.handle if agent else name), proved

    def wake(self, mailbox: str, carrier: str | None = None, *, turn: bool = True) -> None:
        """Something can be taken from this mailbox: say so to whoever waits on it, or fetches it for another hub.
        ``turn``: it may start one."""
        self.streams.wake(mailbox)
        self.signals.wake(mailbox)
        if carrier is not None:
            self.signals.wake("@" + carrier)
        if turn:
            self.runs.signals.wake(mailbox)

    def submit(
        self, unit: Callable[[Tx], object], *, lazy: bool = False, essential: bool = True, weight: int | None = None
    ) -> None:
        """Queue a unit of the hub's own that nobody awaits. One that must be done (``essential``: what is leased would
        stay so) and was not stored is tried again each second; every other failure is logged. ``weight``: by way of
        the turnstile, for one of which many may come at once."""

        def done(future: asyncio.Future[object]) -> None:
            if future.cancelled() or (error := future.exception()) is None:
                return
            if essential and isinstance(error, DiskFull | Unwell):
                again = self.clock.monotonic() + AGAIN_SECONDS
                self.timers.at(again, lambda: self.submit(unit, lazy=lazy, weight=weight))
                return
            log.warning("a unit of the hub's own failed: %s", error)

        if weight is None:
            self.store.write(unit, lazy=lazy, essential=essential).add_done_callback(done)
        else:
            self.turnstile.write(self.store, unit, weight).add_done_callback(done)


async def open_bus(store: Store, clock: Clock, ids: Ids, limits: Limits, name: str = "hub") -> Bus:
    """A bus over ``store``, with the names it knows read in. Run ``timekeeper.keep_time`` beside it. ``name``: what the
    hub calls itself to others."""
    bus = Bus(store=store, clock=clock, ids=ids, limits=limits)
    await bus.directory.open(store, clock.now())
    await bus.remotes.open(store)
    await bus.neighbours.open(store, name)
    await bus.working.open(store)
    return bus


async def close_bus(bus: Bus) -> None:
    """Stop taking mail, let every stream say goodbye, and wake or end all who wait. Its owner closes the store."""
    bus.stopping = True
    bus.turnstile.open()
    bus.streams.end_all("bye")
    bus.signals.wake_all()
    bus.events.wake_all()
    bus.outside.end_all()
    bus.timers.poke()
