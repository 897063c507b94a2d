"""The turns that run and that ran, and stopping one; whether an agent can be woken."""

from angelia.bus.caller import may
from angelia.bus.core import Bus
from angelia.bus.runs import Run
from angelia.bus.turns import looked_at, stop
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.model.address import check_handle
from angelia.model.errors import BadRequest
from angelia.protocol import native
from angelia.protocol import turns as shapes
from angelia.protocol.answers import StoppingOut
from angelia.protocol.times import rfc3339


async def listing(call: Call, bus: Bus, hub: Hub) -> None:
    """What runs, since when, for whom; and what ended lately."""
    may(call.caller, "look_at_turns")
    running = sorted(bus.runs.busy.copy().values(), key=lambda run: run.since)
    ended = list(reversed(bus.runs.lately))
    await call.answer(shapes.TurnsOut(turns=[_out(run) for run in (*running, *ended)], running=len(running)))


async def end(call: Call, bus: Bus, hub: Hub) -> None:
    """End the turn that runs for a message; its sender is told that it was cancelled."""
    may(call.caller, "stop_turn")
    await call.read(native.Nothing, hub.request_bytes, 2)
    run = stop(bus, call.param("id"))
    await call.answer(StoppingOut(run.parcel.envelope.id))


async def check(call: Call, bus: Bus, hub: Hub) -> None:
    """Whether an agent can be woken as it is set up, and by which route."""
    may(call.caller, "look_at_turns")
    handle = bus.directory.require(check_handle(call.param("handle")))
    agent = bus.directory.find(handle.lower())
    if agent is None or agent.adapter is None:
        raise BadRequest(
            f"Nothing wakes {handle}: it has no adapter. angelia join {handle} --command PROGRAM gives one."
        )
    async with bus.outside.wait("Whether it can be woken is not known."):
        found = await hub.adapters.look(agent.adapter)
    looked_at(bus, agent, works=found.problem is None)
    await call.answer(found)


def _out(run: Run) -> shapes.TurnOut:
    envelope = run.parcel.envelope
    return shapes.TurnOut(
        id=envelope.id,
        agent=run.agent,
        from_=envelope.sender,
        thread=envelope.thread,
        kind=run.kind,
        attempt=run.parcel.delivery.attempt,
        since=rfc3339(run.since),
        state=run.outcome or "running",
        ended=None if run.ended is None else rfc3339(run.ended),
        reason=None if run.reason is None else run.reason.value,
        route=run.route,
        usage=run.usage or None,
        output=run.output,
    )
