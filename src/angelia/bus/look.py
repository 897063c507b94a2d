"""Looking without touching: receipts and inboxes.

What must stay true: looking never changes a state. A message that the caller neither sent nor got is "unknown", not
"forbidden". A receipt says what is expected next, from the place that knows.
"""

from dataclasses import dataclass

from angelia.bus.caller import Caller, Rank
from angelia.bus.claim import owns
from angelia.bus.core import Bus
from angelia.bus.jams import Jam
from angelia.bus.ports import Page, View
from angelia.bus.runs import OWN_LANE, wakes
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope, Intent, check_id
from angelia.model.errors import BadRequest, MailboxFull, UnknownMessage


@dataclass(slots=True)
class Receipt:
    """A message with all that became of it, and its first reply."""

    envelope: Envelope
    deliveries: list[Delivery]
    reply: Envelope | None

    @property
    def final(self) -> bool:
        """True when nothing can change any more: no state can, and an awaited answer is there or given up."""
        return all(
            d.state.final
            or (d.state is State.DELIVERED and (self.envelope.intent is not Intent.REQUEST or d.reason is not None))
            for d in self.deliveries
        )


async def receipt(bus: Bus, caller: Caller, message_id: str, wait_seconds: float = 0) -> Receipt:
    """The message and its receipt; with ``wait_seconds``, once a state has changed or the outcome is final."""
    check_id(message_id)
    if not 0 <= wait_seconds <= bus.limits.wait_seconds:
        raise BadRequest(f"wait is {wait_seconds}; it lies between 0 and {bus.limits.wait_seconds}.")
    with bus.signals.watch("message:" + message_id) as watch:
        ticket = watch.ticket()
        found = await bus.store.read(lambda view: _receipt(bus, view, caller, message_id))
        if not wait_seconds or found.final or bus.stopping:
            return found
        if await bus.clock.wait(watch.changed(ticket), wait_seconds):
            found = await bus.store.read(lambda view: _receipt(bus, view, caller, message_id))
        return found


def _receipt(bus: Bus, view: View, caller: Caller, message_id: str) -> Receipt:
    envelope = view.message(message_id)
    deliveries = view.deliveries(message_id) if envelope else []
    if envelope is None or not _party(bus, caller, envelope, deliveries):
        raise UnknownMessage(f"There is no message {message_id} of yours.")
    reply = view.reply_to(message_id)
    if reply is not None and not _party(bus, caller, reply, view.deliveries(reply.id)):
        reply = None  # of one of many that it was for: that is between those two
    return Receipt(envelope, deliveries, reply)


def _party(bus: Bus, caller: Caller, envelope: Envelope, deliveries: list[Delivery]) -> bool:
    if caller.rank is Rank.ADMIN:
        return True
    return owns(bus, caller, envelope.sender.lower()) or any(owns(bus, caller, d.mailbox) for d in deliveries)


def held_until(bus: Bus, delivery: Delivery) -> int | None:
    """When the lease on a delivery ends (UTC ms); None where it has none, or none with an end."""
    lease = bus.leases.get(delivery.key, delivery.attempt)
    return lease.ends if lease is not None else None


_HANDS: dict[Hand | None, str] = {Hand.TURN: "its turn is running", Hand.LINK: "on its way to the hub there"}


def expected(bus: Bus, delivery: Delivery, intent: Intent) -> str | None:
    """What should happen next, in a few plain words; None when nothing will."""
    if delivery.state is State.QUEUED:
        jam = bus.jams.find(delivery.mailbox, delivery.sender)
        if jam is not None and jam.connection in bus.neighbours.up:
            return _jammed(bus, jam)
        if delivery.deferred and jam is None:
            return "came back unfinished; it is offered again shortly"
        own = delivery.lane == OWN_LANE
        if (run := bus.runs.busy.get(delivery.mailbox)) is not None and not own:
            return f"the agent is busy with another message{_for(bus, run.since)}; it takes this one afterwards"
        if bus.streams.own(delivery.mailbox) is not None:
            return "the agent is connected and takes it next"
        if delivery.connection is not None:
            return _on_its_way(bus, delivery.connection)
        agent = bus.directory.find(delivery.mailbox)
        woken = agent is not None and agent.adapter is not None
        if woken and own:
            return "nobody is woken by what it sent to itself; waits until the agent reads its mailbox"
        if woken and not wakes(delivery, intent):
            return "is shown with the agent's next turn"
        if woken:
            return "the hub wakes the agent for it"
        return "waits until the agent reads its mailbox"
    if delivery.state is State.LEASED:
        where = _HANDS.get(delivery.hand, "in the agent's hands")
        return where + _for(bus, delivery.leased_at or bus.clock.now())
    if delivery.state is State.FORWARDED:
        there = "the hub there" if _by_link(bus, delivery.connection) else "its relay"
        return f"{there} has it; the outcome is awaited" + _for(bus, delivery.leased_at or bus.clock.now())
    if delivery.state is State.HELD:
        return "held until a person releases or ends it"
    if delivery.state is State.DELIVERED and intent is Intent.REQUEST and delivery.reason is None:
        return "delivered; the answer is awaited"
    return None


def _by_link(bus: Bus, carrier: str | None) -> bool:
    return carrier is not None and not bus.remotes.is_scope(carrier)


def _on_its_way(bus: Bus, carrier: str) -> str:
    """What is expected of mail for an agent elsewhere."""
    if not _by_link(bus, carrier):
        return "waits until its relay fetches it"
    found = bus.neighbours.behind(carrier)
    name = found.name if found is not None else carrier
    return f"goes over {name} next" if carrier in bus.neighbours.up else f"waits until {name} is connected again"


def _jammed(bus: Bus, jam: Jam) -> str:
    found = bus.neighbours.behind(jam.connection)
    name = found.name if found is not None else jam.connection
    if jam.code == MailboxFull.code:
        return f"its mailbox at {name} has no room for it now; it goes there once it has"
    return f"{name} takes no mail for now ({jam.code}); it is tried again within a minute"


def _for(bus: Bus, since: int) -> str:
    minutes = max(bus.clock.now() - since, 0) // 60_000
    return f" for {minutes} min" if minutes else ""


async def inbox(
    bus: Bus, mailbox: str, *, after: int, limit: int, states: frozenset[State] | None, sender: str | None
) -> Page:
    """A page of a mailbox, by ``seq``; open deliveries unless ``states`` says which."""
    if not 1 <= limit <= 1000:
        raise BadRequest(f"limit is {limit}; it lies between 1 and 1000.")
    return await bus.store.read(lambda view: view.inbox(mailbox, after, limit, states, sender))
