"""The roster, and what keys a name."""

from msgspec import UNSET, UnsetType

from angelia.bus.agents import Keep, Presence, make_token, put_agent, remove_agent, revoke_token, roster
from angelia.bus.caller import may
from angelia.bus.core import Bus
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.model.address import LOCAL, check_handle, mailbox_of
from angelia.model.errors import UnknownAgent
from angelia.protocol import native
from angelia.protocol.adapters import kind_of
from angelia.protocol.answers import RemovedOut, RevokedOut
from angelia.protocol.bot_relay_rows import Row
from angelia.protocol.times import rfc3339

ADAPTER_DEPTH = 8  # of options; an adapter's own are flat lists and tables


async def everyone(call: Call, bus: Bus, hub: Hub) -> None:
    """The roster."""
    may(call.caller, "look_at_agents")
    here = [_out(row) for row in await roster(bus)]
    there = [_out_remote(bus, remote.shown) for remote in bus.remotes.everyone(bus.clock.now(), bus.limits)]
    await call.answer(native.AgentsOut([*here, *there]))


async def one(call: Call, bus: Bus, hub: Hub) -> None:
    """One agent."""
    may(call.caller, "look_at_agents")
    handle = bus.directory.require(check_handle(call.param("handle")))
    rows = await roster(bus, handle.lower())
    if not rows:
        raise UnknownAgent(f"{handle} is the hub's owner, and no agent.", suggestions=[])
    await call.answer(_out(rows[0]))


async def put(call: Call, bus: Bus, hub: Hub) -> None:
    """Make a name known, or edit its title, its description and how it is woken."""
    may(call.caller, "edit_own")
    asked = await call.read(native.AgentIn, hub.request_bytes, ADAPTER_DEPTH)
    handle = check_handle(call.param("handle"))
    new = bus.directory.find(handle.lower()) is None
    adapter: bytes | Keep | None = Keep.KEEP
    if not isinstance(asked.adapter, UnsetType):
        may(call.caller, "put_adapter")
        spec = bytes(asked.adapter)
        async with bus.outside.wait("Nothing was changed."):
            adapter = None if spec == b"null" else await hub.adapters.check(spec)
    agent = await put_agent(bus, call.caller, handle, asked.title, asked.description, adapter)
    rows = await roster(bus, agent.mailbox)
    await call.answer(_out(rows[0]), 201 if new else 200)


async def remove(call: Call, bus: Bus, hub: Hub) -> None:
    """Forget a name and its tokens; mail that waits for it stays until its time to live."""
    may(call.caller, "remove_agent")
    await remove_agent(bus, call.param("handle"))
    await call.answer(RemovedOut(call.param("handle")))


async def new_token(call: Call, bus: Bus, hub: Hub) -> None:
    """Key a name, or rotate its token; the answer shows the token this once."""
    may(call.caller, "rotate_token")
    await call.read(native.Nothing, hub.request_bytes, 2)
    handle = call.param("handle")
    secret, token = await make_token(bus, call.caller, handle)
    shown = native.TokenOut(handle=bus.directory.name_of(token.mailbox), id=token.id, token=secret)
    await call.answer(shown, 201, headers=((b"cache-control", b"no-store"),))


async def end_token(call: Call, bus: Bus, hub: Hub) -> None:
    """Make a token worthless at once."""
    may(call.caller, "rotate_token")
    await revoke_token(bus, call.caller, call.param("handle"), call.param("id"))
    await call.answer(RevokedOut(call.param("id")))


def _out(row: Presence) -> native.AgentOut:
    return native.AgentOut(
        handle=row.agent.handle,
        connection=LOCAL,
        title=row.agent.title,
        description=row.agent.description,
        presence="online" if row.online else "away",
        keyed=row.agent.keyed,
        queued=row.queued,
        oldest_unread_at=None if row.oldest_unread_at is None else rfc3339(row.oldest_unread_at),
        adapter=native.AdapterOut(kind_of(row.agent.adapter)) if row.agent.adapter is not None else None,
    )


def _out_remote(bus: Bus, row: Row) -> native.AgentOut:
    """Somebody on another connection; what waits for it waits here until it is fetched."""
    presence = {True: "online", False: "offline", None: "unknown"}[row.online]
    return native.AgentOut(
        handle=row.handle,
        connection=row.connection_id,
        title=row.title,
        description=row.description,
        presence=presence,
        keyed=False,
        queued=bus.store.load(mailbox_of(row.handle, row.connection_id)).queued,
        profile=row.profile,
        connection_label=row.connection_label or UNSET,
    )
