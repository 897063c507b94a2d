"""Reading a mailbox without a stream: the seed's poll, claims, and looking at an inbox."""

from msgspec import Raw

from angelia.bus.caller import may
from angelia.bus.claim import Claimer, Taken, ack, claim, lease_token, nack, release, renew, settle_written
from angelia.bus.claim import Settled as Outcome
from angelia.bus.core import Bus
from angelia.bus.look import inbox
from angelia.bus.ports import Parcel, Scope
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.model.address import check_handle
from angelia.model.delivery import Hand, State
from angelia.model.errors import BadRequest
from angelia.protocol import native, seed_bus
from angelia.protocol.json import encode
from angelia.protocol.times import rfc3339


def reader_of(call: Call, bus: Bus, name: str | None, what: str = "agent") -> str:
    """The name that the caller may read as. An admin may read as ``human`` and any open name."""
    if name is None or name == "":
        raise BadRequest(f"Say whose mailbox: '{what}' is missing.")
    return bus.identify(call.caller, name, what)[0]


async def poll(call: Call, bus: Bus, hub: Hub) -> None:
    """The seed's poll: what waits, oldest first, settled once it was handed over whole (or leased, ``ack=manual``)."""
    may(call.caller, "read")
    name = reader_of(call, bus, call.query("agent"))
    bus.directory.require(name)
    manual = call.choice("ack", ("auto", "manual")) == "manual"
    limit, wait = call.number("limit", int, bus.limits.claim_deliveries), call.number("wait", float, 0.0)
    hand = Hand.CLAIM if manual else Hand.POLL
    taken = await call.while_there(
        claim(bus, Scope(mailbox=name.lower()), reader=name, hand=hand, limit=limit, wait_seconds=wait)
    )
    shown = [
        seed_bus.show(p.envelope, p.delivery, lease=lease_token(bus, p) if manual else None) for p in taken.parcels
    ]
    body = b'{"agent":%b,"messages":[%b],"remaining":%d}' % (encode(name), b",".join(shown), taken.remaining)
    await _hand_over(call, bus, taken, body, settle=not manual)


class _Written:
    """The holder of a poll whose answer has left."""

    def settled(self, mark: int) -> bool | None:
        return True


_WRITTEN = _Written()


async def _hand_over(call: Call, bus: Bus, taken: Taken, body: bytes, *, settle: bool) -> None:
    """Answer with what was taken; it goes back when the answer could not be handed over whole."""
    begun = whole = False
    try:
        begun = call.is_open
        if begun:
            await call.answer(body, headers=((b"cache-control", b"no-store"),))
            whole = await call.handed_over()
    finally:
        if not whole:
            release(bus, taken.parcels, used=begun)
        elif settle and taken.parcels:
            for parcel in taken.parcels:
                bus.autos.add(parcel, _WRITTEN, 0)
            settle_written(bus)


async def take(call: Call, bus: Bus, hub: Hub) -> None:
    """Claim: take mail under a lease."""
    may(call.caller, "read")
    asked = await call.read(native.ClaimIn, hub.request_bytes, 2)
    name = reader_of(call, bus, check_handle(call.param("handle")))
    claimer = Claimer()
    taken = await call.while_there(
        claim(
            bus,
            Scope(mailbox=name.lower()),
            reader=name,
            limit=asked.limit,
            lease_seconds=asked.lease_seconds,
            wait_seconds=asked.wait_seconds,
            claimer=claimer,
        )
    )
    rows = [taken_out(bus, parcel) for parcel in taken.parcels]
    await _hand_over(
        call, bus, taken, encode(native.ClaimOut(deliveries=rows, remaining=taken.remaining)), settle=False
    )


def taken_out(bus: Bus, parcel: Parcel, *, again: bool = False, leased: bool = True) -> native.TakenOut:
    """A parcel as claims and streams show it."""
    delivery = parcel.delivery
    lease = None
    if leased and not again:
        known = bus.leases.get(delivery.key, delivery.attempt)
        deadline = rfc3339(known.ends) if known is not None and known.ends is not None else None
        lease = native.LeaseOut(token=lease_token(bus, parcel), attempt=delivery.attempt, deadline=deadline)
    return native.TakenOut(
        message=Raw(native.shown(parcel.envelope)),
        seq=delivery.seq,
        attempt=delivery.attempt,
        lease=lease,
        again=again,
    )


async def lease_ack(call: Call, bus: Bus, hub: Hub) -> None:
    """The work under a lease is done."""
    may(call.caller, "settle")
    await call.read(native.Nothing, hub.request_bytes, 2)
    await call.answer(_settled(await ack(bus, call.caller, call.param("token"))))


async def lease_nack(call: Call, bus: Bus, hub: Hub) -> None:
    """The work under a lease failed; offer it again after a while."""
    may(call.caller, "settle")
    asked = await call.read(native.NackIn, hub.request_bytes, 2)
    await call.answer(_settled(await nack(bus, call.caller, call.param("token"), asked.delay_seconds)))


async def lease_renew(call: Call, bus: Bus, hub: Hub) -> None:
    """Go on working under a lease."""
    may(call.caller, "settle")
    asked = await call.read(native.RenewIn, hub.request_bytes, 2)
    await call.answer(_settled(await renew(bus, call.caller, call.param("token"), asked.lease_seconds)))


def _settled(outcome: Outcome) -> native.SettledOut:
    return native.SettledOut(
        state=outcome.state.word,
        already=outcome.already,
        late=outcome.late,
        deadline=None if outcome.ends is None else rfc3339(outcome.ends),
    )


async def look_inside(call: Call, bus: Bus, hub: Hub) -> None:
    """Look at an inbox without taking anything."""
    may(call.caller, "read")
    handle = bus.directory.require(check_handle(call.param("handle")))
    name = reader_of(call, bus, handle)
    words = call.query("state")
    states = None
    if words:
        known = {state.word: state for state in State}
        wrong = [word for word in words.split(",") if word not in known]
        if wrong:
            raise BadRequest(f"state is '{wrong[0][:40]}'; it is any of {', '.join(known)}.")
        states = frozenset(known[word] for word in words.split(","))
    sender = call.query("from")
    page = await inbox(
        bus,
        name.lower(),
        after=call.number("after", int, 0),
        limit=call.number("limit", int, 100),
        states=states,
        sender=sender.lower() if sender else None,
    )
    rows = [
        native.InboxRow(
            message=native.message_out(p.envelope),
            seq=p.delivery.seq,
            state=p.delivery.state.word,
            attempt=p.delivery.attempt,
            accepted_at=rfc3339(p.delivery.accepted_at),
        )
        for p in page.parcels
    ]
    oldest = None if page.oldest_unread_at is None else rfc3339(page.oldest_unread_at)
    await call.answer(
        native.InboxOut(deliveries=rows, total=page.total, hidden=page.hidden, oldest_unread_at=oldest, next=page.next)
    )
