"""Connections to other hubs and to gateways of Hermes': how they stand, making and removing them, pairing.

What must stay true: what is asked is checked here before anything is dialled; no secret comes in by a request, and the
way to another machine is shown to admin alone.
"""

from msgspec import structs

from angelia.bus.caller import Rank, may
from angelia.bus.core import Bus
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.model.connection import check_connection_name
from angelia.model.errors import BadRequest
from angelia.protocol import connections as shapes
from angelia.protocol import native

DEPTH = 4  # an object with lists of names
NO_STORE = ((b"cache-control", b"no-store"),)


async def listing(call: Call, bus: Bus, hub: Hub) -> None:
    """The connections to other hubs and gateways, and how each stands."""
    may(call.caller, "look_at_connections")
    in_full = call.caller.rank is Rank.ADMIN
    found = [shapes.shown(condition, in_full=in_full) for condition in await hub.links.conditions()]
    await call.answer(shapes.ConnectionsOut(connections=found), headers=NO_STORE)


async def connect(call: Call, bus: Bus, hub: Hub) -> None:
    """Make a connection, or put another in its place; it is dialled once, and the answer says how it stands."""
    may(call.caller, "connect")
    asked = await call.read(shapes.ConnectionIn, hub.request_bytes, DEPTH)
    name = check_connection_name(call.param("name"))
    fields = structs.asdict(asked)
    code = fields.pop("code")
    try:
        connection = shapes.read(name, fields)
    except shapes.WrongField as wrong:
        raise BadRequest(
            f"{wrong.field} {wrong.problem}. Allowed: {wrong.allowed}. Nothing was changed.", field=wrong.field
        ) from None
    await call.answer(shapes.shown(await hub.links.connect(connection, code), in_full=True), headers=NO_STORE)


async def disconnect(call: Call, bus: Bus, hub: Hub) -> None:
    """Give a connection up; who waits for an answer from there is told."""
    may(call.caller, "connect")
    name = call.param("name")
    ended = await hub.links.disconnect(name)
    await call.answer(shapes.DisconnectedOut(removed=name, ended=ended.waited, handed_over=ended.handed_over))


async def offer(call: Call, bus: Bus, hub: Hub) -> None:
    """A code to pair with this hub: good for one other, and for some minutes."""
    may(call.caller, "connect")
    await call.read(native.Nothing, hub.request_bytes, 2)
    code, seconds = hub.links.offer()
    await call.answer(shapes.PairingOut(code=code, expires_in_seconds=seconds), 201, headers=NO_STORE)
