"""A whole bus in a test's hand: over the memory store, on a clock that the test moves, read through fake sockets.

What must stay true: nothing runs beside the test. A stream is read when the test reads it, time passes when the test
says so, and ``restart`` leaves of the old hub only what its store had committed.
"""

from collections.abc import Sequence
from typing import Any

from angelia.bus.caller import OPEN, Caller
from angelia.bus.claim import Settled, ack, claim, lease_token, nack, renew
from angelia.bus.core import Bus, open_bus
from angelia.bus.draft import Accepted, Draft
from angelia.bus.ports import Parcel, Scope, Store, Tx
from angelia.bus.publish import publish
from angelia.bus.streams import Stream
from angelia.bus.subscribe import End, Item, KeepAlive, Mail, Transient, attach, detach, next_items, wrote
from angelia.bus.timekeeper import sweep
from angelia.model.address import HUB, PERSON
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope
from angelia.model.limits import Limits
from angelia.storage.memory import MemoryStore
from tests.fakes.clock import CountingIds, FakeClock, settle

LIMITS = Limits()
FRAME_BYTES = 100  # what one item weighs on a fake socket


class Socket:
    """One under a stream. ``stuck``: it takes bytes and lets none go. ``asked``: how often for what it holds."""

    def __init__(self) -> None:
        self.stuck = self.aborted = False
        self.kept = self.asked = 0

    def unsent(self) -> int:
        self.asked += 1
        return self.kept

    def abort(self) -> None:
        self.aborted = True

    def drain(self) -> None:
        self.stuck, self.kept = False, 0


class ShortWay:
    """The way past a stream's task. ``written``: what went by it (None: a keep-alive), and when; ``broken``: the step
    that fails; ``steps``: what was done, where several share a list."""

    def __init__(self, bus: Bus, stream: Stream, steps: list[str] | None = None, broken: str | None = None) -> None:
        self.bus, self.stream, self.broken = bus, stream, broken
        self.steps = [] if steps is None else steps
        self.written: list[tuple[float, str | None]] = []

    def frame(self, parcel: Parcel | None) -> bytes:
        self._step("frame")
        return b"a frame"

    def write(self, data: bytes) -> None:
        self._step("write")

    def wrote(self, parcel: Parcel | None, size: int) -> None:
        self._step("wrote")
        self.written.append((self.bus.clock.monotonic(), parcel and parcel.envelope.text))
        wrote(self.bus, self.stream, () if parcel is None else (parcel,), size)

    def _step(self, name: str) -> None:
        if self.broken == name:
            raise RuntimeError("a fault of ours")
        self.steps.append(name)


class Reader:
    """The door of one stream, and the agent behind it. ``seen`` is all mail that was written to it."""

    def __init__(self, bus: Bus, stream: Stream, socket: Socket) -> None:
        self.bus, self.stream, self.socket = bus, stream, socket
        self.seen: list[Mail] = []

    def jam(self) -> "Reader":
        """The socket lets no more bytes go, so that nothing written is settled; returns itself."""
        self.socket.stuck = True
        return self

    async def fetch(self) -> list[Item]:
        """Take everything that there is to write, and write none of it."""
        return await self._take(write=False)

    async def items(self) -> list[Item]:
        """Take everything that there is to write, and write it."""
        return await self._take(write=True)

    async def read(self) -> list[str | None]:
        """The texts of the mail among it."""
        return texts(mail.parcel for mail in await self.mail())

    async def mail(self) -> list[Mail]:
        """The mail among it."""
        return [item for item in await self.items() if isinstance(item, Mail)]

    async def transients(self) -> list[Envelope]:
        """The notices that are not stored among it."""
        return [item.envelope for item in await self.items() if isinstance(item, Transient)]

    def write(self, items: Sequence[Item]) -> None:
        """Write these, as a door does: the bytes first, then the bus is told."""
        size = FRAME_BYTES * len(items)
        self.socket.kept += size if self.socket.stuck else 0
        self.seen += [item for item in items if isinstance(item, Mail)]
        wrote(self.bus, self.stream, [i.parcel for i in items if isinstance(i, Mail) and not i.again], size)

    async def close(self) -> None:
        """The connection breaks."""
        await detach(self.bus, self.stream)
        await settle()

    @property
    def last_id(self) -> str:
        """What the agent resumes with."""
        return f"{self.bus.store.epoch}-{self.seen[-1].parcel.delivery.seq}"

    async def _take(self, *, write: bool) -> list[Item]:
        taken: list[Item] = []
        while True:
            self.stream.keepalive_due = True  # so that there is an end to what there is
            items = await next_items(self.bus, self.stream)
            if isinstance(items[-1], KeepAlive):
                return taken
            taken += items
            if write:
                self.write(items)
            if isinstance(items[-1], End):
                return taken


class SmallHub:
    """The bus, and its verbs in the few words that a test needs."""

    def __init__(self, bus: Bus, clock: FakeClock) -> None:
        self.bus, self.clock = bus, clock

    @classmethod
    async def open(
        cls, limits: Limits = LIMITS, *, store: Store | None = None, known: Sequence[str] = ("ann", "bob", "cat")
    ) -> "SmallHub":
        """A hub that knows some names beside the seed's two."""
        clock = FakeClock()
        hub = cls(await open_bus(store or MemoryStore(), clock, CountingIds(), limits), clock)
        await hub.know(*known)
        return hub

    async def know(self, *names: str, member: bool = False) -> None:
        """Make names known, as a first message from them would."""

        def unit(tx: Tx) -> None:
            for name in names:
                self.bus.directory.learn(tx, name, self.clock.now(), member=member, most=None)

        await self.bus.store.write(unit)

    # ---- verbs

    async def send(self, sender: str = "bob", to: str | None = "ann", text: str | None = "hi", **more: Any) -> Accepted:
        """Send a message."""
        return await publish(self.bus, Draft(sender=sender, to=to, text=text, **more))

    async def send_all(self, *words: str, sender: str = "bob", to: str = "ann", **more: Any) -> list[Accepted]:
        """Send several, one after the other."""
        return [await self.send(sender, to, word, **more) for word in words]

    async def take(self, name: str = "ann", limit: int | None = None, **more: Any) -> list[Parcel]:
        """Claim what is due, without waiting."""
        return (await claim(self.bus, Scope(mailbox=name), reader=name, limit=limit, **more)).parcels

    async def take_one(self, name: str = "ann", **more: Any) -> Parcel:
        """Claim exactly one."""
        (parcel,) = await self.take(name, 1, **more)
        return parcel

    async def ack(self, parcel: Parcel, caller: Caller = OPEN) -> Settled:
        """Settle it."""
        return await ack(self.bus, caller, lease_token(self.bus, parcel))

    async def nack(self, parcel: Parcel, delay: float | None = None, caller: Caller = OPEN) -> Settled:
        """Give it back."""
        return await nack(self.bus, caller, lease_token(self.bus, parcel), delay)

    async def renew(self, parcel: Parcel, seconds: float | None = None, caller: Caller = OPEN) -> Settled:
        """Hold it longer."""
        return await renew(self.bus, caller, lease_token(self.bus, parcel), seconds)

    async def listen(self, name: str = "ann", last_id: str | None = None, hand: Hand = Hand.AUTO) -> Reader:
        """Open a stream."""
        socket = Socket()
        return Reader(self.bus, await attach(self.bus, name, hand, socket, last_id), socket)

    async def observe(self, name: str = "ann", last_id: str | None = None) -> Reader:
        """Open a stream that only looks on."""
        socket = Socket()
        return Reader(self.bus, await attach(self.bus, name, Hand.AUTO, socket, last_id, observer=True), socket)

    # ---- what is there

    async def row(self, of: Accepted | Parcel | Delivery | str, to: str | None = None) -> Delivery:
        """A delivery as it is now; of a message with several, the one ``to``."""
        rows = await self.rows(of)
        (row,) = [row for row in rows if to is None or row.mailbox == to]
        return row

    async def rows(self, of: Accepted | Parcel | Delivery | str) -> list[Delivery]:
        """All deliveries of a message as they are now."""
        message_id = of if isinstance(of, str) else of.message_id if isinstance(of, Delivery) else of.envelope.id
        return await self.bus.store.read(lambda view: view.deliveries(message_id))

    async def state(self, of: Accepted | Parcel | str) -> State:
        """The state of its only delivery."""
        return (await self.row(of)).state

    async def mailbox(self, name: str = "ann", *states: State) -> list[Parcel]:
        """What lies in a mailbox; what is open, unless states are named."""
        wanted = frozenset(states) if states else None
        return (await self.bus.store.read(lambda view: view.inbox(name, 0, 10_000, wanted, None))).parcels

    async def notices(self, name: str = "bob") -> list[Envelope]:
        """What the hub itself ever said into a mailbox, about mail."""
        return [p.envelope for p in await self.mailbox(name, *State) if p.envelope.sender == HUB]

    # ---- time

    async def commit(self) -> None:
        """A commit happens: units that ride along are done after it, and what follows from them."""
        await self.bus.store.write(lambda tx: None)
        await settle()

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and let the timekeeper look once."""
        await self.clock.advance(seconds)
        self.bus.timers.fire(self.clock.monotonic())
        await settle()
        while not await sweep(self.bus):
            pass
        await settle()

    async def restart(self, limits: Limits | None = None) -> None:
        """The hub dies where it stands, and another starts over the same store, as a store on disk is opened."""
        old = self.bus
        for stream in old.streams.everyone():
            stream.end("gone")
        old.autos.take()  # was written, and its commit never came
        await self.commit()
        await old.store.write(lambda tx: _end_leases(tx, [*old.directory.agents, PERSON], self.clock.now(), old.limits))
        self.bus = await open_bus(old.store, self.clock, old.ids, limits or old.limits)


def texts(parcels: Any) -> list[str | None]:
    """What stands in them."""
    return [parcel.envelope.text for parcel in parcels]


def seqs(mails: Sequence[Mail]) -> list[int]:
    """The ids that a reader saw."""
    return [mail.parcel.delivery.seq for mail in mails]


def _end_leases(tx: Tx, mailboxes: Sequence[str], now: int, limits: Limits) -> None:
    """What every store does when it is opened: nobody but turns holds anything, and nothing is put off."""
    for mailbox in mailboxes:
        for held in tx.leased(mailbox, set(Hand) - {Hand.TURN}):
            sweep_at = max(held.expires_at, now + limits.returned_grace_seconds * 1000)
            tx.move(held, held._replace(state=State.QUEUED, deferred=False, sweep_at=sweep_at))
        for parcel in tx.inbox(mailbox, 0, 10_000, frozenset({State.QUEUED}), None).parcels:
            tx.move(parcel.delivery, parcel.delivery._replace(deferred=False))
