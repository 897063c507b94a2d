"""A hub's bus with a link to a stand-in gateway over a real WebSocket, and the agents on our side.

What must stay true: the bus is whole (a store on disk, real clock, its timekeeper); who may be seen is what
``rows_for_hermes`` says. The link ends as a keeper ends it: cancelled, and waited for.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from angelia.bus.ask import ask, finished
from angelia.bus.caller import OPEN
from angelia.bus.claim import ack, claim, lease_token
from angelia.bus.core import Bus, close_bus, open_bus
from angelia.bus.draft import Accepted, Draft
from angelia.bus.ports import Parcel, Scope, Tx
from angelia.bus.publish import publish
from angelia.bus.rosters import rows_for_hermes
from angelia.bus.system import SystemClock, SystemIds
from angelia.bus.timekeeper import keep_time
from angelia.links.hermes_link import HermesLink
from angelia.links.hermes_rosters import Pace
from angelia.links.port import FRAME_BYTES, LineLost
from angelia.links.websocket import WebSocketWire, connect
from angelia.model.connection import Connection
from angelia.model.delivery import Delivery, State
from angelia.model.envelope import Envelope, Intent, Kind
from angelia.model.limits import Limits
from angelia.storage.sqlite.store import SqliteStore
from tests.fakes.troubled_store import TroubledStore
from tests.links.hermes import SECONDS, Gateway, until

HERE = "desk"
RACK = Connection(name="Rack")
SLOW = Pace(roster=60, again=0.1, poll=60, ping=60)  # what comes comes by a signal, or not at all


class Side:
    """Our side. ``link``: the last one that was made."""

    def __init__(self, bus: Bus, store: TroubledStore, connection: Connection, pace: Pace) -> None:
        self.bus, self.store, self.connection, self.pace = bus, store, connection, pace
        self.link: HermesLink | None = None
        self.changes = 0

    # -------------------------------------------------------------------------------------------------------- link

    @asynccontextmanager
    async def linked(self, gateway: Gateway) -> AsyncIterator[HermesLink]:
        """A link that is up, and has looked at the gateway's agents and drained once; ended at the end."""
        drains, syncs = (len(gateway.events("end", f"bot_relay.{name}")) for name in ("outbox.drain", "roster.sync"))
        async with self.dialled(gateway) as (link, _):
            await until(lambda: len(gateway.events("end", "bot_relay.outbox.drain")) > drains, what="a drain")
            await until(lambda: len(gateway.events("end", "bot_relay.roster.sync")) > syncs, what="a sync")
            await until(lambda: self.bus.remotes.of_mail(self.connection.id, f"ops@{self.connection.name}"))
            await until(lambda: link.agents, what="its agents, counted")
            yield link

    @asynccontextmanager
    async def dialled(self, gateway: Gateway) -> AsyncIterator[tuple[HermesLink, asyncio.Task[str]]]:
        """A link that begins, and its end in words."""
        wire = await dial(gateway)
        link = self.link = HermesLink(
            self.bus,
            self.connection,
            wire,
            here=HERE,
            rows_for=lambda: rows_for_hermes(self.bus, self.connection, HERE),
            on_change=self._changed,
            pace=self.pace,
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(_words(link))
            try:
                yield link, running
            finally:
                running.cancel()
                await asyncio.wait((running,), timeout=SECONDS)
                await wire.close()

    def _changed(self) -> None:
        self.changes += 1

    # ------------------------------------------------------------------------------------------------------- agents

    async def know(self, *names: str) -> None:
        """Agents that are members."""

        def unit(tx: Tx) -> None:
            for name in names:
                self.bus.directory.learn(tx, name, self.bus.clock.now(), member=True, most=None)

        await self.bus.store.write(unit)

    async def send(self, text: str = "hi", to: str = "ops@Rack", sender: str = "ann", **more: Any) -> Accepted:
        """A request."""
        return await publish(self.bus, Draft(sender=sender, to=to, text=text, intent=Intent.REQUEST, **more))

    async def ask(self, text: str = "hi", to: str = "ops@Rack", sender: str = "ann") -> str:
        """A request and its answer; of a failure its reason, in brackets."""
        answer = await ask(self.bus, Draft(sender=sender, to=to, text=text, intent=Intent.REQUEST), SECONDS)
        finished(self.bus, answer, written=True)
        if answer.failure is not None:
            return f"({answer.failure[0]})"
        assert answer.reply is not None, f"no answer to {text!r}"
        return answer.reply.text or ""

    async def next(self, name: str = "ann") -> Parcel:
        """The next message of an agent's, claimed."""
        taken = await claim(self.bus, Scope(mailbox=name), reader=name, limit=1, wait_seconds=SECONDS)
        assert taken.parcels, f"nothing came for {name}"
        return taken.parcels[0]

    async def reply(self, parcel: Parcel, text: str) -> Accepted:
        """Answer it."""
        name, id = parcel.delivery.to, parcel.envelope.id
        return await publish(self.bus, Draft(sender=name, text=text, in_reply_to=id, kind=Kind.REPLY))

    async def done(self, parcel: Parcel) -> None:
        """It needs no answer."""
        await ack(self.bus, OPEN, lease_token(self.bus, parcel))

    # ------------------------------------------------------------------------------------------------------ what is

    async def rows(self, of: Accepted | str) -> list[Delivery]:
        """The deliveries of a message."""
        id = of if isinstance(of, str) else of.envelope.id
        return await self.bus.store.read(lambda view: view.deliveries(id))

    async def comes_to(self, of: Accepted | str, *states: State, seconds: float = SECONDS) -> Delivery:
        """Wait until its delivery is in one of these states."""
        async with asyncio.timeout(seconds):
            while True:
                for row in await self.rows(of):
                    if row.state in states:
                        return row
                await asyncio.sleep(0.01)

    async def mailbox(self, name: str = "ann") -> list[Envelope]:
        """All that ever lay in a mailbox."""
        wanted = frozenset(State)
        page = await self.bus.store.read(lambda view: view.inbox(name, 0, 10_000, wanted, None))
        return [parcel.envelope for parcel in page.parcels]


async def dial(gateway: Gateway) -> WebSocketWire:
    """An open line, after ``gateway.ready``."""
    wire = await connect(gateway.url, max_bytes=FRAME_BYTES)
    assert b"gateway.ready" in await wire.receive()
    return wire


async def _words(link: HermesLink) -> str:
    try:
        await link.run()
    except LineLost as lost:
        return str(lost)


@asynccontextmanager
async def a_side(
    folder: Path, limits: Limits | None = None, *, connection: Connection = RACK, pace: Pace = SLOW
) -> AsyncIterator[Side]:
    """A bus over ``folder`` that knows ann, bob and hermes."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    clock = SystemClock()
    inner = await SqliteStore.open(folder / "angelia.db", now=clock.now(), durability="normal")
    store = TroubledStore(inner)
    bus = await open_bus(store, clock, SystemIds(), limits or Limits(), HERE)
    await store.write(lambda tx: bus.neighbours.put(tx, connection, clock.now()))
    side = Side(bus, store, connection, pace)
    await side.know("ann", "bob", "hermes")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_time(bus, 15))
        try:
            yield side
        finally:
            await close_bus(bus)
    await store.close()
