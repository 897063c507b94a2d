"""The tokens of desktops."""

from angelia.bus.caller import may
from angelia.bus.core import Bus
from angelia.bus.desktops import make_token, remove
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.protocol import native
from angelia.protocol.answers import DesktopTokenOut, RemovedOut


async def new_token(call: Call, bus: Bus, hub: Hub) -> None:
    """Give a desktop a token, or rotate it; the answer shows it this once."""
    may(call.caller, "connect")
    await call.read(native.Nothing, hub.request_bytes, 2)
    secret, token = await make_token(bus, call.param("name"))
    shown = DesktopTokenOut(call.param("name").lower(), token.id, secret)
    await call.answer(shown, 201, headers=((b"cache-control", b"no-store"),))


async def end(call: Call, bus: Bus, hub: Hub) -> None:
    """Make a desktop's tokens worthless at once; its rows are forgotten, and its mail ends."""
    may(call.caller, "connect")
    await remove(bus, call.param("name"))
    await call.answer(RemovedOut(call.param("name")))
