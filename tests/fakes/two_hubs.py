"""Two or three hubs in one loop, each a bus over a memory store, all on one clock; their links are plain calls.

What must stay true: a link here does what ``links/hub_link.py`` does, step by step and only when the test says so, and
nothing else: mail is taken, handed over as it would stand on the wire (through JSON), its answers are noted, outcomes
and rosters are told. ``lose``: the other side's next answer is lost, as when the line breaks after the commit. One that
is not ``up`` (a ``Carrier``) takes only when it carries.
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from angelia.bus.arrive import arrive
from angelia.bus.backpressure import first_again, passed, put_off, resume
from angelia.bus.carriers import Carrier
from angelia.bus.carry import claim_for, detach, forwarded, given_back, refused, take
from angelia.bus.core import Bus, open_bus
from angelia.bus.draft import Accepted
from angelia.bus.jams import Behind
from angelia.bus.neighbours import place_id
from angelia.bus.outcomes import far_outcomes, outcome_of, owed, told
from angelia.bus.ports import Parcel, Store, Tx
from angelia.bus.rosters import rows_for_hub
from angelia.model.connection import Connection
from angelia.model.delivery import Delivery, State
from angelia.model.envelope import Envelope, Kind, Origin, fingerprint
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.protocol import hub as shapes
from angelia.protocol.hub import AGAIN, GARBLED, Item, Spot, Stored
from angelia.storage.memory import MemoryStore
from tests.fakes.clock import CountingIds, FakeClock, settle
from tests.fakes.small_hub import SmallHub

LIMITS = Limits()
ROUNDS = 20  # after so many, what still moves goes round in circles


def as_sent(content: Any) -> Any:
    """What the other side reads of it."""
    return msgspec.json.decode(msgspec.json.encode(content))


class OwnIds(CountingIds):
    """Ids that no other hub gives."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._last = number << 32


class LinkedHub(SmallHub):
    """A hub with links. ``behind``: what it refused for now, by the key of the connection that it came by."""

    def __init__(self, bus: Bus, clock: FakeClock) -> None:
        super().__init__(bus, clock)
        self.behind: defaultdict[str, Behind] = defaultdict(Behind)

    @property
    def me(self) -> str:
        """Its id."""
        return self.bus.neighbours.me

    @classmethod
    async def start(
        cls, name: str, number: int, clock: FakeClock, *known: str, limits: Limits = LIMITS, store: Store | None = None
    ) -> "LinkedHub":
        """One that calls itself ``name`` and knows some agents."""
        hub = cls(await open_bus(store or MemoryStore(), clock, OwnIds(number), limits, name), clock)
        await hub.know(*known, member=True)
        return hub

    async def connect(self, name: str, hub: str | None, **more: Any) -> Connection:
        """Make or replace a connection, and call it up."""
        connection = Connection(name=name, hub=hub, **more)
        await self.bus.store.write(lambda tx: self.bus.neighbours.put(tx, connection, self.clock.now()))
        self.bus.neighbours.set_up(connection.id, up=True)
        return connection

    async def learn(self, connection: str, rows: Any) -> None:
        """Take a roster as it comes."""
        bus = self.bus
        found = shapes.read_rows(as_sent(rows), bus.neighbours.me)
        made = bus.neighbours.require(connection)
        await bus.store.write(lambda tx: bus.neighbours.learn(tx, made, found, self.clock.now()))

    async def push(self, name: str, *rows: Mapping[str, object]) -> None:
        """A relay of Hermes' pushes its roster here."""
        bus = self.bus
        await bus.store.write(lambda tx: bus.remotes.push(tx, bus.limits, name, list(rows), self.clock.now()))

    async def arrive(self, connection: str, *items: Any) -> list[Stored]:
        """What a neighbour hands over, whatever it is."""
        made = self.bus.neighbours.require(connection)
        return await arrive(self.bus, made, as_sent(list(items)), self.behind[made.id])

    async def answer(self, agent: str, question: Envelope | str, text: str = "done", **more: Any) -> Accepted:
        """An agent here answers."""
        asked = question if isinstance(question, str) else question.id
        return await self.send(agent, None, text, kind=Kind.REPLY, in_reply_to=asked, **more)

    def shown(self) -> dict[str, bool | None]:
        """Who is known elsewhere, in full, and whether it is there."""
        rows = self.bus.remotes.rows(self.clock.now(), self.bus.limits)
        return {f"{row.handle}@{row.connection_id}": row.online for row in rows}

    async def told(self, agent: str) -> list[tuple[str, str | None]]:
        """Sender and text of all that ever lay in a mailbox."""
        return [(p.envelope.sender, p.envelope.text) for p in await self.mailbox(agent, *State)]

    async def reopen(self) -> None:
        """It dies, and starts over the same store; its links are down."""
        old = self.bus

        def unit(tx: Tx) -> None:
            for row in _all(tx):
                if row.state is State.LEASED:
                    tx.move(row, row._replace(state=State.QUEUED, sweep_at=row.expires_at))

        await self.commit()
        await old.store.write(unit)
        self.bus = await open_bus(old.store, self.clock, old.ids, old.limits, old.neighbours.name)

    def item(self, parcel: Parcel) -> Item | None:
        """A message as it goes on; None where nobody knows which hub its address means."""
        neighbours, envelope = self.bus.neighbours, parcel.envelope
        handle, _, name = parcel.delivery.to.partition("@")
        found = neighbours.behind(name)
        if found is None or found.hub is None or envelope.origin is None:
            return None
        sender, at, where = envelope.sender.partition("@")
        spot, called = Spot(sender, self.me), neighbours.name
        if at:
            behind = neighbours.behind(where)
            spot = Spot(sender, (behind.hub if behind is not None else None) or place_id(self.me, where))
            called = where
        again = first_again(self.bus, parcel)
        return shapes.item_of(envelope, spot, called, Spot(handle, found.hub), self.me, self.clock.now(), again=again)


class Link:
    """One way of a line: from ``near`` over its connection ``name`` to ``far``, where it is called ``far_name``."""

    def __init__(self, near: LinkedHub, name: str, far: LinkedHub, far_name: str) -> None:
        self.near, self.name, self.far, self.far_name = near, name, far, far_name
        self.lose = self.cut = False
        self.carrier: Carrier | None = None

    async def up(self, window: int = 100) -> Carrier:
        """From now on mail is leased to it as it is accepted, and stays in its hands until it carries."""
        carrier = self.carrier = Carrier(self.key, window, self.near.bus.limits.claim_bytes)
        await self.near.bus.store.write(lambda tx: self.near.bus.carriers.attach(tx, carrier))
        resume(self.near.bus, self.key)
        await self.fill()
        return carrier

    def down(self, *, died: bool = False) -> None:
        """It has ended: what it holds is given back, unless its hub has died."""
        if self.carrier is not None and not died:
            detach(self.near.bus, self.carrier)
        self.carrier = None
        self.far.behind.pop(self.far_name.lower(), None)

    async def fill(self) -> None:
        """What waits for it comes into its hands, as far as it fits."""
        bus, carrier = self.near.bus, self.carrier
        while carrier is not None and carrier.room() > 0:
            if not await bus.store.write(lambda tx: claim_for(bus, tx, carrier)):
                break

    @property
    def key(self) -> str:
        return self.name.lower()

    async def tell_roster(self) -> None:
        connection = self.near.bus.neighbours.require(self.name)
        await self.far.learn(self.far_name, shapes.plain(rows_for_hub(self.near.bus, connection)))

    async def tell_outcomes(self) -> int:
        found = [] if self.cut else await owed(self.near.bus, self.key)
        if found:
            outcomes = [shapes.read_outcome(each) for each in as_sent(shapes.plain(map(outcome_of, found)))]
            await far_outcomes(self.far.bus, self.far_name.lower(), outcomes)
            await told(self.near.bus, found)
        return len(found)

    async def take(self, limit: int = 100) -> list[Parcel]:
        if self.carrier is None:
            return await take(self.near.bus, self.key, limit, 0)
        await self.fill()
        return await self.carrier.next(limit) if self.carrier.queue else []

    async def carry(self, limit: int = 100) -> int:
        """Hand over what waits; how many."""
        parcels = [] if self.cut else await self.take(limit)
        going = [(parcel, item) for parcel in parcels if (item := self.near.item(parcel)) is not None]
        for parcel in parcels:
            if all(parcel is not other for other, _ in going):
                self._free(parcel)
                refused(self.near.bus, parcel, Reason.RUNTIME_OFFLINE, "")
        answers = await self.far.arrive(self.far_name, *shapes.plain(item for _, item in going)) if going else []
        if self.lose and going:
            self.lose = False
            if self.carrier is None:
                given_back(self.near.bus, [parcel for parcel, _ in going])
            self.down()
        else:
            self.note([parcel for parcel, _ in going], answers)
        await self.near.commit()
        if self.carrier is None and self.near.bus.jams.on(self.key):
            await self.up()  # what was refused for now is tried by a link that is up alone
        return len(parcels)

    def note(self, parcels: list[Parcel], answers: list[Stored]) -> None:
        stored: list[Parcel] = []
        later: list[tuple[Parcel, str]] = []
        for parcel, answer in zip(parcels, answers, strict=True):
            self._free(parcel)
            if answer.stored:
                stored.append(parcel)
            elif answer.code in AGAIN:
                later.append((parcel, answer.code or ""))
            elif answer.code == GARBLED:
                given_back(self.near.bus, [parcel], used=True, delay=5.0)
            else:
                said = f"The other side says: {answer.detail}" if answer.detail else ""
                refused(self.near.bus, parcel, shapes.reason_of(answer.code), said)
        put_off(self.near.bus, later)
        forwarded(self.near.bus, stored)
        passed(self.near.bus, stored, later)

    def _free(self, parcel: Parcel) -> None:
        if self.carrier is not None:
            self.carrier.free(parcel)


class Neighbourhood:
    """Hubs and the lines between them."""

    def __init__(self, clock: FakeClock, hubs: Mapping[str, LinkedHub]) -> None:
        self.clock, self.hubs = clock, dict(hubs)
        self.links: list[Link] = []

    @classmethod
    async def of(cls, limits: Mapping[str, Limits] | None = None, **agents: str) -> "Neighbourhood":
        """Hubs by name, with the agents that live there (in one text, with spaces)."""
        clock, started = FakeClock(), {}
        for number, (name, known) in enumerate(agents.items()):
            own = (limits or {}).get(name, LIMITS)
            started[name] = await LinkedHub.start(name, number + 1, clock, *known.split(), limits=own)
        return cls(clock, started)

    def __getitem__(self, name: str) -> LinkedHub:
        return self.hubs[name]

    async def line(
        self, one: str, other: str, *, here: Mapping[str, Any] | None = None, there: Mapping[str, Any] | None = None
    ) -> "Neighbourhood":
        """A line between two, each under its own name at the other. ``here``, ``there``: more of the connection of the
        one, and of the other."""
        a, b = self[one], self[other]
        names = {"name": other, **(here or {})}, {"name": one, **(there or {})}
        await a.connect(hub=b.me, **names[0])
        await b.connect(hub=a.me, **names[1])
        self.links += [Link(a, names[0]["name"], b, names[1]["name"]), Link(b, names[1]["name"], a, names[0]["name"])]
        return self

    def link(self, one: str, other: str) -> Link:
        """The way from one to the other."""
        near, far = self[one], self[other]
        return next(link for link in self.links if (link.near, link.far) == (near, far))

    async def meet(self) -> "Neighbourhood":
        """Everybody has heard of everybody."""
        for _ in self.hubs:
            for link in self.links:
                await link.tell_roster()
        return self

    async def run(self) -> None:
        """Mail and outcomes cross, until nothing moves any more."""
        for round in itertools.count():
            assert round < ROUNDS, "it never comes to rest"
            moved = [await link.carry() + await link.tell_outcomes() for link in self.links]
            for hub in self.hubs.values():
                await hub.commit()
            if not any(moved):
                return

    async def pass_time(self, seconds: float) -> None:
        """The same time passes for all."""
        await self.clock.advance(seconds)
        for hub in self.hubs.values():
            await hub.pass_time(0)
        await settle()


def forge(content: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A message on the wire with some fields changed, and a fingerprint that holds all the same."""
    item = {**content, **changes}
    item = {key: each for key, each in item.items() if each is not None}
    o = Origin(*item["origin"])
    body = item.get("body")
    said = (o.sender.lower(), o.to.lower(), o.intent, o.kind, item.get("text"))
    mark = fingerprint(*said, body.encode() if body is not None else None, o.thread, item.get("in_reply_to"))
    return {**item, "fingerprint": mark.hex()}


def _all(tx: Any) -> list[Delivery]:
    """Every delivery of a memory store; the port has no need of them."""
    return list(tx._rows.deliveries.values())
