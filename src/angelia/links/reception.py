"""Lines that other hubs opened to this one.

What must stay true: who comes in proves itself before anything else. A hub that comes by the owner, or by the key of
this folder, or with a code, gets a connection under its own name where that is free; any other must have one. One whose
connection the owner of this hub removed is let in with a code alone, until the owner wants it again. Where a link to
that hub is up, the newer line takes its place, unless this hub dialled it and has the smaller id.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from angelia.bus.caller import Caller
from angelia.bus.core import Bus
from angelia.bus.neighbours import Meeting
from angelia.bus.outcomes import have_met
from angelia.bus.removed import Removed
from angelia.links.channel import Channel
from angelia.links.conversation import converse
from angelia.links.greeting import FORBIDDEN, PROVE_SECONDS, Guest, House, Met
from angelia.links.hello import Offer
from angelia.links.hub_link import HubLink
from angelia.links.inbound import InboundWire
from angelia.links.line import BROKEN, Line
from angelia.links.port import Kind, Trouble
from angelia.model.connection import Connection, Speaks
from angelia.protocol.gateway import Refusal
from angelia.protocol.jsonrpc import Request

log = logging.getLogger("angelia.links")


class Reception:
    """Lets other hubs in."""

    def __init__(self, bus: Bus, folder_key: bytes, offer: Offer, line: Callable[[Connection], Line]) -> None:
        """``line``: how a connection stands."""
        self._bus, self._folder_key, self._offer, self._line = bus, folder_key, offer, line

    async def serve(self, caller: Caller, wire: InboundWire) -> None:
        """Serve a line to its end."""
        entered: asyncio.Future[tuple[Line, HubLink, Connection]] = asyncio.get_running_loop().create_future()

        async def meet(met: Met) -> str:
            line = await self._enter(met)
            wire.let_in()  # before it is told so, and goes on
            entered.set_result((line, HubLink(bus, line.connection, pings=False), line.connection))
            return line.connection.name

        bus, neighbours = self._bus, self._bus.neighbours
        house = House(
            neighbours.me, neighbours.name, self._folder_key, self._offer, self._key_of, meet, self._bus.store.epoch
        )
        guest = Guest(house, caller)

        async def handle(request: Request) -> object:
            if entered.done():
                return await entered.result()[1].handle(request)
            return await guest.handle(request)

        async def session(channel: Channel) -> None:
            try:
                async with asyncio.timeout(PROVE_SECONDS):
                    line, link, let_in = await entered
            except TimeoutError:
                raise Trouble(Kind.REFUSED, "It did not prove itself in time.", "") from None
            if neighbours.connections.get(let_in.id) != let_in:
                raise Trouble(
                    Kind.REFUSED, "The connection was removed, or changed, meanwhile.", "It dials us again by itself."
                )
            await line.hold(link.run(channel), link.say_farewell, speaks=Speaks.HUB, version=None, dialled_here=False)

        try:
            await converse(self._bus, wire, session, handle)
            return
        except Trouble as trouble:
            how = trouble
        except Exception:
            log.exception("a link that another hub had dialled failed")
            how = BROKEN
        if entered.done() and not entered.cancelled():
            entered.result()[0].failed(how)

    def _key_of(self, hub: str) -> bytes | None:
        known = self._bus.neighbours.of_hub(hub)
        return known.key if known is not None else None

    async def _enter(self, met: Met) -> Line:
        """The connection of a hub that has proved itself, free for its link."""
        bus, neighbours = self._bus, self._bus.neighbours
        known = neighbours.of_hub(met.hub)
        if known is None and met.key is None and (removed := neighbours.removed.of(met.hub)) is not None:
            raise self._not_wanted(removed)
        if known is None and len(neighbours.connections) >= bus.limits.connections:
            raise Refusal(FORBIDDEN, f"This hub has {bus.limits.connections} connections already.", {"reason": "full"})
        if known is None:
            known = Connection(name=self._free_name(met), speaks=Speaks.HUB, hub=met.hub, key=met.key)
        line = self._line(known)
        if line.up and line.dialled_here and neighbours.me < met.hub:
            raise Refusal(FORBIDDEN, "A link between the two hubs is up.", {"reason": "already_linked"})
        if met.key is not None and known.key != met.key:  # a code is for a new hub, and an id is what one says it is
            raise Refusal(
                FORBIDDEN,
                f"This hub is paired with that one already, as {known.name}; that has to be removed first: "
                f"angelia disconnect {known.name}",
                {"reason": "paired_already"},
            )
        known = replace(known, key=met.key or known.key)
        if known != neighbours.connections.get(known.id):
            await bus.store.write(lambda tx: neighbours.put(tx, known, bus.clock.now()))
        line.connection = known
        if line.up:
            line.replaced()
        await line.end()
        await have_met(bus, known, Meeting(met.hub, bus.store.epoch, met.epoch))
        return line

    def _not_wanted(self, removed: Removed) -> Refusal:
        """Why a hub is not let in that the owner removed; its connection's name, where that means nothing else now."""
        neighbours, data = self._bus.neighbours, {"reason": "removed"}
        if neighbours.removed_as(removed.name) == removed and removed.name.lower() not in neighbours.connections:
            data["name"] = removed.name
        return Refusal(FORBIDDEN, "The owner of this hub removed the connection to that one.", data)

    def _free_name(self, met: Met) -> str:
        """What it says that it is called, where that is free here, or is what it is called behind another link."""
        neighbours = self._bus.neighbours
        known = neighbours.of_a_way(met.name)
        if known is not None and known.hub == met.hub and met.name.lower() not in neighbours.connections:
            return met.name
        tries = (met.name if n == 1 else f"{met.name[:60]}-{n}" for n in range(1, 1000))
        return next(name for name in tries if not neighbours.is_taken(name) and not neighbours.stood_for(name, met.hub))
