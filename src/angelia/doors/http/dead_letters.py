"""What could not be delivered, and what is held: for a person to look at, offer again or end."""

from angelia.bus.caller import may
from angelia.bus.cancel import dead_letters, drop, requeue
from angelia.bus.core import Bus
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.model.errors import BadRequest
from angelia.protocol import native


async def listing(call: Call, bus: Bus, hub: Hub) -> None:
    """A page of dead and held deliveries, oldest first."""
    may(call.caller, "dead_letters")
    limit = call.number("limit", int, 100)
    if not 1 <= limit <= 1000:
        raise BadRequest(f"limit is {limit}; it lies between 1 and 1000.")
    parcels = await dead_letters(bus, call.number("after", int, 0), limit)
    rows = [
        native.DeadRow(message=native.message_out(p.envelope), delivery=native.delivery_out(p.delivery))
        for p in parcels
    ]
    await call.answer(native.DeadOut(deliveries=rows, next=parcels[-1].delivery.key if len(parcels) == limit else None))


async def again(call: Call, bus: Bus, hub: Hub) -> None:
    """Offer it again, with fresh attempts and time; ``?to=`` for one recipient only."""
    may(call.caller, "dead_letters")
    await call.read(native.Nothing, hub.request_bytes, 2)
    deliveries = await requeue(bus, call.param("id"), call.query("to"))
    await call.answer(native.DeliveriesOut([native.delivery_out(d) for d in deliveries]))


async def end(call: Call, bus: Bus, hub: Hub) -> None:
    """End it for good; ``?to=`` for one recipient only."""
    may(call.caller, "dead_letters")
    await call.read(native.Nothing, hub.request_bytes, 2)
    deliveries = await drop(bus, call.param("id"), call.query("to"))
    await call.answer(native.DeliveriesOut([native.delivery_out(d) for d in deliveries]))
