"""Copies of the store, for its owner."""

from angelia.bus.backup import back_up
from angelia.bus.caller import may
from angelia.bus.core import Bus
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.model.errors import NotAllowed
from angelia.protocol.library import BackupIn, CopyOut
from angelia.protocol.times import rfc3339


async def make(call: Call, bus: Bus, hub: Hub) -> None:
    """Make a verified copy of the store while it is used; the data folder keeps the newest three."""
    may(call.caller, "back_up")
    asked = await call.read(BackupIn, hub.request_bytes, 2)
    if asked.file is not None and not call.connection.local_admin:
        # Whoever has the socket is this very user. A token may have come from far, and is no leave to write files.
        raise NotAllowed("A path is taken over the hub's own socket alone. Without one the copy goes to its backups.")
    async with bus.outside.wait("The copy was given up; a file of it that is there all the same is whole."):
        copy = await call.while_there(back_up(bus, asked.file))
    await call.answer(
        CopyOut(
            file=copy.file,
            bytes=copy.bytes,
            messages=copy.messages,
            deliveries=copy.deliveries,
            made_at=rfc3339(copy.made_at),
            removed=list(copy.removed),
        ),
        201,
    )
