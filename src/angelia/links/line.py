"""One connection as it stands: the link that is up, or why none is.

What must stay true: at most one link is up at a time, and who ends it waits for its end. How it stands changes in here
alone, and is told in plain words, once for each change.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from angelia.bus.core import Bus
from angelia.links.hermes_link import HermesLink
from angelia.links.port import Kind, Trouble
from angelia.model.connection import Condition, Connection, Speaks
from angelia.model.errors import AngeliaError

log = logging.getLogger("angelia.links")
COUNTED = 100_000  # waiting messages, at most
STEADY_MS = 5_000  # that a link has to hold, or its end is the same trouble still, and it is dialled ever later
REPLACED_MS, REPLACED_TIMES = 60_000, 4  # a line that broke unnoticed is replaced once; two hubs of one id go on so
LOOK_SECONDS = 1.0  # that a look at how it stands waits for the store
BROKEN = Trouble(
    Kind.UNREACHABLE, "Something broke inside this hub; its log says what.", "It is tried again by itself."
)


class Line:
    """How one connection stands. ``again``: dial at once; ``hermes``: the session with a gateway of Hermes'."""

    def __init__(self, bus: Bus, connection: Connection) -> None:
        self.bus, self.connection = bus, connection
        self.up = self.dialled_here = False
        self.trouble: Trouble | None = None
        self.speaks, self.version = connection.speaks, ""
        self.hermes: HermesLink | None = None
        self.again = asyncio.Event()
        self._tried = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._link: asyncio.Task[None] | None = None
        self._farewell: Callable[[], Awaitable[None]] | None = None
        self._replaced: list[int] = []  # when (UTC ms)
        self._since = self._down_since = bus.clock.now()

    # ------------------------------------------------------------------------------------------------------- waiting

    async def wait_for_end(self) -> None:
        """Until no link is up."""
        await self._free.wait()

    async def wait_for_wake(self, seconds: float) -> None:
        """At most so long; less where it is to be dialled at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.again.wait()

    async def wait_for_try(self, seconds: float) -> None:
        """Until it is up, or the first try has failed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tried.wait()

    def down_seconds(self) -> float:
        """For how long there has been no link that held."""
        return 0.0 if self.up else (self.bus.clock.now() - self._down_since) / 1000

    # --------------------------------------------------------------------------------------------------------- changes

    def failed(self, trouble: Trouble) -> None:
        """A try, or a link, has ended in trouble."""
        if self.trouble is None or self.trouble.problem != trouble.problem:
            level = logging.INFO if self.bus.stopping else logging.WARNING
            said = (self.connection.name, trouble.problem, self._advice(trouble))
            log.log(level, "%s: %s %s", *said, extra=self._subject())
        self.trouble = trouble
        self._tried.set()

    async def hold(
        self,
        link: Coroutine[Any, Any, None],
        farewell: Callable[[], Awaitable[None]],
        *,
        speaks: Speaks,
        version: object,
        dialled_here: bool,
        answers: bool = True,
    ) -> None:
        """Run a link; the connection is up for as long. Raises what it raises, or ``Trouble`` where one is up.
        ``farewell``: has the other side forget who is here; ``answers``: the other side has answered already, else it
        is up once ``answered`` is called."""
        if not self._free.is_set():
            link.close()
            raise Trouble(Kind.REFUSED, "A link to it is up already.", "Nothing needs to be done.")
        self._free.clear()
        self.speaks, self.version, self.dialled_here = speaks, str(version or "")[:40], dialled_here
        self._farewell = farewell
        if answers:
            self.answered()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._link = tasks.create_task(link)
        finally:
            self._link = self._farewell = None
            if self.up:
                self._change(up=False)
            self._free.set()

    def answered(self) -> None:
        """The other side of the link that is held has answered: it is up."""
        if not self.up:
            self._change(up=True)

    def _change(self, *, up: bool) -> None:
        now = self.bus.clock.now()
        if not up and now - self._since >= STEADY_MS:
            self._down_since = now
        self.up, self._since, self.trouble = up, now, None
        self.bus.neighbours.set_up(self.connection.id, up)
        stands = "connected" if up else "no longer connected"
        log.info("%s is %s", self.connection.name, stands, extra=self._subject())
        if up:
            self._tried.set()

    def _subject(self) -> dict[str, str]:
        """What a line of the log is about: so the last one always says how it stands."""
        return {"subject": f"connection {self.connection.id}"}

    def _advice(self, trouble: Trouble) -> str:
        """What to do here: where only the other side dials, nothing is dialled by itself."""
        if self.connection.target:
            return trouble.advice
        return "It dials us: see that the hub there runs, and reaches this one."

    def replaced(self) -> None:
        """The same hub came in anew while its link was up."""
        now = self.bus.clock.now()
        self._replaced = [at for at in self._replaced if now - at < REPLACED_MS] + [now]

    def _doubled(self) -> str | None:
        """What a person should know where two machines seem to be one hub."""
        now = self.bus.clock.now()
        if sum(now - at < REPLACED_MS for at in self._replaced) < REPLACED_TIMES:
            return None
        return "Two machines come in as this hub in turn: was a data folder copied? Each needs one of its own."

    def forget(self) -> None:
        """The connection is no more: nobody waits for a try."""
        self._tried.set()

    async def say_farewell(self) -> None:
        """The connection is to be removed: whom it led to here is forgotten there, where it is up."""
        if self.up and self._farewell is not None:
            await self._farewell()

    async def end(self) -> None:
        """End the link that is up; it has ended then."""
        if self._link is not None:
            self._link.cancel()
        await self._free.wait()
        self._tried.clear()

    # ------------------------------------------------------------------------------------------------------ condition

    async def condition(self) -> Condition:
        """How it stands now."""
        bus, connection = self.bus, self.connection
        waiting, oldest = 0, None
        with contextlib.suppress(TimeoutError, AngeliaError):  # a store that is unwell says so itself
            async with asyncio.timeout(LOOK_SECONDS):
                waiting, oldest = await bus.store.read(lambda view: view.backlog(connection.id, COUNTED))
        if (carrier := bus.carriers.live.get(connection.id)) is not None and (held := list(carrier.leased.values())):
            since = [parcel.delivery.accepted_at for parcel in held]  # on their way, and not stored there yet
            waiting, oldest = waiting + len(held), min(since if oldest is None else [oldest, *since])
        trouble = None if self.up else self.trouble
        return Condition(
            connection=connection,
            speaks=self.speaks,
            up=self.up,
            since=self._since,
            kind=trouble.kind.value if trouble is not None else None,
            problem=trouble.problem if trouble is not None else None,
            advice=self._advice(trouble) if trouble is not None else None,
            warning=self.hermes.warning if self.hermes is not None else self._doubled(),
            version=self.version or None,
            agents=bus.remotes.count(connection.id),
            waiting=waiting,
            oldest_at=oldest,
        )
