"""What is done with a line that was dialled from here: greet a hub, or serve a gateway of Hermes'.

What must stay true: a hub is served only after it has proved itself, and only under the connection that is for it. The
line is closed at the end, whichever way that comes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from angelia.bus.carry import Ended
from angelia.bus.core import Bus
from angelia.bus.neighbours import Meeting
from angelia.bus.outcomes import have_met
from angelia.bus.rosters import ROSTERS, rows_for_hermes
from angelia.links.channel import Channel
from angelia.links.conversation import converse, first
from angelia.links.greeting import Met, connected_already, say_hello
from angelia.links.hermes_link import HermesLink
from angelia.links.hub_link import HubLink
from angelia.links.line import Line
from angelia.links.port import Dialled, Kind, LineLost, Trouble
from angelia.model.connection import Connection, Speaks
from angelia.protocol.bot_relay_rows import Row
from angelia.protocol.gateway import Refusal
from angelia.protocol.jsonrpc import UNKNOWN_METHOD, Request

GiveUp = Callable[[Connection], Awaitable[object]]
MailEnded = Callable[[Connection, Ended], None]


async def pair(line: Line, dialled: Dialled, connection: Connection, code: str) -> Connection:
    """Greet the hub that was dialled with a code; the connection as it is to be kept. Raises ``Trouble``."""
    if dialled.speaks is not Speaks.HUB:
        await dialled.wire.close()
        raise Trouble(Kind.REFUSED, "A gateway of Hermes' is there, and no hub.", "Connect it with its token.")
    met: list[Met] = []

    async def greet(channel: Channel) -> None:
        met.append(await _greet(line, channel, dialled, connection, code))

    await converse(line.bus, dialled.wire, greet, _not_yet)
    return replace(connection, hub=met[0].hub, key=met[0].key)


async def serve_dialled(line: Line, dialled: Dialled, here: str, give_up: GiveUp, mail_ended: MailEnded) -> None:
    """Serve it to its end; raises ``Trouble``, or returns where it was ended here. ``here``: what gateways of Hermes'
    call this hub; ``give_up`` a connection that the same hub made by coming in meanwhile; ``mail_ended`` hears of mail
    that was for the hub before, where another answers."""
    if dialled.speaks is Speaks.HUB:
        await _serve_hub(line, dialled, give_up, mail_ended)
    else:
        await _serve_hermes(line, dialled, here)


async def _serve_hub(line: Line, dialled: Dialled, give_up: GiveUp, mail_ended: MailEnded) -> None:
    ready: asyncio.Future[HubLink] = asyncio.get_running_loop().create_future()

    async def handle(request: Request) -> object:
        return await (await asyncio.shield(ready)).handle(request)

    async def session(channel: Channel) -> None:
        met = await _greet(line, channel, dialled, line.connection, None)
        await _learn(line, met, give_up, mail_ended)
        link = HubLink(line.bus, line.connection, pings=dialled.by_owner)
        ready.set_result(link)
        version = dialled.ready.get("version")
        await line.hold(link.run(channel), link.say_farewell, speaks=Speaks.HUB, version=version, dialled_here=True)

    try:
        await converse(line.bus, dialled.wire, session, handle)
    finally:
        ready.cancel()


async def _serve_hermes(line: Line, dialled: Dialled, here: str) -> None:
    bus, connection = line.bus, line.connection

    def rows() -> list[Row]:
        return rows_for_hermes(bus, connection, here)

    wire = dialled.wire
    link = HermesLink(bus, connection, wire, here=here, rows_for=rows, on_change=_nothing, on_answer=line.answered)

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(link.run())
            tasks.create_task(_tell_of_rosters(line, link))

    line.hermes = link
    trouble: Trouble | None = None
    try:
        version, speaks = dialled.ready.get("version"), Speaks.HERMES
        await line.hold(run(), link.say_farewell, speaks=speaks, version=version, dialled_here=True, answers=False)
    except* Trouble as group:
        trouble = first(group, Trouble)
    except* LineLost as group:
        how = first(group, LineLost)
        trouble = Trouble(Kind.UNREACHABLE, f"The line ended: {how}.", "It is dialled again by itself.")
    finally:
        line.hermes = None
        await wire.close()
    if trouble is not None:
        raise trouble


async def _tell_of_rosters(line: Line, link: HermesLink) -> None:
    with line.bus.signals.watch(ROSTERS) as watch:
        while True:
            await watch.changed(watch.ticket())
            link.rows_changed()


def _nothing() -> None:
    """Its condition is looked at when somebody asks."""


async def _greet(line: Line, channel: Channel, dialled: Dialled, connection: Connection, code: str | None) -> Met:
    """Raises ``Trouble`` or ``LineLost``. The hub that says that it is there is wanted, even where it does not let us
    in: two that were removed on both sides would else refuse each other for ever."""
    bus = line.bus
    neighbours = bus.neighbours
    there: list[str] = []

    def check(hub: str) -> None:
        _check(bus, connection, hub)
        there.append(hub)

    try:
        return await say_hello(
            channel, neighbours.me, neighbours.name, connection, dialled, code, check, bus.store.epoch
        )
    except Trouble:
        if there and code is None and neighbours.removed.of(there[0]) is not None:
            await bus.store.write(lambda tx: neighbours.removed.want(tx, there[0], bus.clock.now()))
        raise


def _check(bus: Bus, connection: Connection, hub: str) -> None:
    """Whether a hub may be served under a connection; else ``Trouble``."""
    if (other := _in_the_way(bus, connection, hub)) is not None:
        raise connected_already(other)
    named = bus.neighbours.of_a_way(connection.name)
    if named is not None and named.hub != hub:
        problem = f"{connection.name} is the name of another hub here, which {named.link} leads to."
        advice = f"Choose another name for this one, and remove this: angelia disconnect {connection.name}"
        raise Trouble(Kind.REFUSED, problem, advice, lasting=True)


async def _learn(line: Line, met: Met, give_up: GiveUp, mail_ended: MailEnded) -> None:
    """Remember which hub is there; what it made by coming in before that was known is not needed any more."""
    bus = line.bus
    known = replace(line.connection, hub=met.hub, key=met.key)
    if (other := _in_the_way(bus, known, met.hub)) is not None:  # since hello
        raise connected_already(other)
    mail_ended(line.connection, await have_met(bus, line.connection, Meeting(met.hub, bus.store.epoch, met.epoch)))
    others = [each for each in bus.neighbours.connections.values() if each.hub == met.hub and each.id != known.id]
    if known != line.connection:
        await bus.store.write(lambda tx: bus.neighbours.put(tx, known, bus.clock.now()))
        line.connection = known
    for each in others:
        await give_up(each)


def _in_the_way(bus: Bus, connection: Connection, hub: str) -> Connection | None:
    """Another connection to a hub. One that it made by coming in, after this one was made here, is none."""
    places = list(bus.neighbours.connections.values())
    for other in places:
        if other.id == connection.id:
            return next((each for each in places if each.hub == hub and each.id != other.id and each.target), None)
        if other.hub == hub:
            return other
    return None


async def _not_yet(request: Request) -> object:
    raise Refusal(UNKNOWN_METHOD, "This line only pairs two hubs.")
