"""Every arrow of a delivery's life, legal and not, over every store: what must be true after each step.

The machine of `tests/unit/bus/test_machine.py` (claims, polls, streams, questions, time, restarts) runs here over each
store, a real file among them that is closed and opened anew at a restart; and with it an agent that is woken for turns,
one behind another hub, and one that a relay of Hermes' fetches for; and bits of messages flip. The arrows stand here
once more, in words, and every change of a row that is committed must be one of them. In the soak each of them has to
have been taken, and each that is not there refused.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from angelia.bus import moves
from angelia.bus.caller import OPEN
from angelia.bus.cancel import cancel, drop, requeue
from angelia.bus.carriers import Carrier
from angelia.bus.carry import claim_for, delivered, detach, forwarded, given_back, refused, take
from angelia.bus.core import Bus, open_bus
from angelia.bus.draft import Accepted, Draft
from angelia.bus.forward import drain, handed_out, settle_far
from angelia.bus.losses import settle_losses
from angelia.bus.moves import move
from angelia.bus.outcomes import far_outcomes
from angelia.bus.ports import Parcel, Store, Tx
from angelia.bus.publish import accept
from angelia.bus.remotes import ANONYMOUS
from angelia.bus.runs import Run
from angelia.bus.turns import accepted, again, answered, begin, failed, held, orphans
from angelia.bus.turns import given_back as turn_given_back
from angelia.model.delivery import TABLE, Delivery, Event, Hand, State
from angelia.model.envelope import Envelope, Intent, Kind, Replay
from angelia.model.errors import MailboxFull, UnknownMessage
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.model.loss import LOSS, Loss
from angelia.protocol.hub import Outcome
from angelia.storage.memory import MemoryStore
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.conftest import ROOMY
from tests.conformance.mail import change, put
from tests.fakes.clock import CountingIds, FakeClock
from tests.fakes.slow_store import SlowStore
from tests.fakes.two_hubs import LinkedHub
from tests.fakes.watched_store import Change, WatchedStore
from tests.unit.bus.test_machine import LIMITS, MAILBOXES, Verbs

ARROWS = {
    "queued": {
        "claim": "leased", "reply": "answered", "expire": "failed", "cancel": "failed", "late ack": "delivered",
        "damage": "failed",
    },
    "leased": {
        "ack": "delivered", "reply": "answered", "forward": "forwarded", "release": "queued", "nack": "queued",
        "lapse": "queued", "exhaust": "dead", "refuse": "failed", "cancel": "failed", "hold": "held",
        "damage": "failed",
    },
    "forwarded": {
        "far delivered": "delivered", "far answered": "answered", "far failed": "failed", "far dead": "dead",
        "reply": "answered", "time out": "failed", "offer again": "queued", "damage": "failed",
    },
    "held": {"let go": "queued", "end": "failed", "expire": "failed", "damage": "failed"},
    "delivered": {"reply": "answered", "unanswered": "delivered", "offer again": "queued"},
    "dead": {"requeue": "queued", "drop": "failed", "damage": "failed"},
}  # fmt: skip
# What a verb may change without an arrow: a delay that is over, an outcome that was told, who had it last.
QUIET = {"deferred", "owes", "hand"}
EACH = {(old, event) for old, arrows in ARROWS.items() for event in arrows}

RACK, THERE = "rack", "b" * 32
WOKEN, FAR, FETCHED = "tim", "far@rack", "ops@vps-1"
ELSEWHERE = [WOKEN, FAR, FETCHED]
HOW_TURNS_END = st.sampled_from(["answer", "silence", "accepted", "failed", "again", "held", "given back"])
AND_THEN = st.sampled_from(["time", "bits", "person", "no arrow", "nothing"])
PERSON_ACTS = st.sampled_from(["cancel", "requeue", "drop"])
FAR_STATES = st.sampled_from(["delivered", "answered", "failed", "dead"])


def test_the_arrows_are_those_of_the_table() -> None:
    told = {(old, event): new for old, arrows in ARROWS.items() for event, new in arrows.items()}
    assert {(old.word, event.value): new.word for (old, event), new in TABLE.items()} == told


@pytest.mark.parametrize("state", State)
async def test_a_row_takes_each_arrow_of_its_state_and_no_other(store: Store, state: State) -> None:
    bus = await open_bus(store, FakeClock(), CountingIds(), LIMITS)
    for number, event in enumerate(Event, 1):
        waiting = await put(store, number)
        row = await change(store, waiting.delivery, state=state, attempt=1, hand=Hand.CLAIM)
        parcel = Parcel(row, waiting.envelope)
        wanted = ARROWS.get(state.word, {}).get(event.value)
        if wanted is None:
            with pytest.raises(LookupError):
                await store.write(lambda tx, p=parcel, e=event: move(bus, tx, p, e))  # type: ignore[misc]
        else:
            assert await store.write(lambda tx, p=parcel, e=event: move(bus, tx, p, e))  # type: ignore[misc]
        now = await store.read(lambda view, key=row.key: view.delivery(key))  # type: ignore[misc]
        assert now is not None
        assert now == row if wanted is None else now.state.word == wanted


class Town(LinkedHub):
    """A hub that starts anew over what its store has on disk; ``left``: turns that the one before was in."""

    changes: list[Change]
    file: Path | None = None
    left: list[Run]

    async def open_file(self) -> Store:
        assert self.file is not None
        return WatchedStore(await SqliteStore.open(self.file, now=self.clock.now(), reserve=ROOMY), self.changes)

    async def restart(self, limits: Limits | None = None) -> None:
        old = self.bus
        if self.file is None:
            await self.end_leases_elsewhere()
            await super().restart(limits)
        else:
            for stream in old.streams.everyone():
                stream.end("gone")
            old.autos.take()  # was written, and its commit never came
            await old.store.close()
            self.bus = await open_bus(await self.open_file(), self.clock, old.ids, limits or old.limits)
        self.bus.neighbours.set_up(RACK, up=True)
        self.left = await orphans(self.bus)

    async def end_leases_elsewhere(self) -> None:
        """What the memory store cannot do by itself, of mailboxes that are no agents' here."""

        def unit(tx: Tx) -> None:
            for mailbox in (FAR, FETCHED):
                for row in tx.leased(mailbox, [Hand.LINK]):
                    sweep_at = max(row.expires_at, self.clock.now() + self.bus.limits.returned_grace_seconds * 1000)
                    tx.move(row, row._replace(state=State.QUEUED, sweep_at=sweep_at))
                for parcel in tx.inbox(mailbox, 0, 10_000, frozenset({State.QUEUED}), None).parcels:
                    tx.move(parcel.delivery, parcel.delivery._replace(deferred=False))

        await self.bus.store.write(unit)


class Arrows(Verbs):
    """One hub with everything that a delivery can go through."""

    store: ClassVar[str] = "memory"
    # Over all examples: which arrows were taken, and which that are not there were refused; by which event a row was
    # made, by the state that it had and how it stands now.
    taken: ClassVar[Counter[tuple[str, str]]]
    refused: ClassVar[Counter[tuple[str, str]]]
    events: ClassVar[dict[tuple[object, ...], Event]]

    @initialize()
    def start(self) -> None:
        self.events.clear()
        self.folder = Path(tempfile.mkdtemp(prefix="ang-"))
        self.changes: list[Change] = []
        self.elsewhere: list[Accepted] = []
        self.turn: Run | None = None
        self.carried: list[Parcel] = []  # in the hand of the link
        self.carrier: Carrier | None = None  # the link while it is up, with what it has not sent yet
        self.rows_before: dict[int, Delivery] = {}
        self.old: list[Parcel] = []  # rows as they were once
        super().start()
        self.hub = self.runner.run(self.town())

    async def town(self) -> Town:
        clock = FakeClock()
        inner: Store = MemoryStore()
        file = self.folder / "angelia.db" if self.store.startswith("sqlite") else None
        if file is not None:
            inner = await SqliteStore.open(file, now=clock.now(), reserve=ROOMY)
        if self.store.endswith("slow"):
            inner = SlowStore(inner)
        watched = WatchedStore(inner, self.changes)
        hub = await Town.start("lap", 1, clock, "ann", "bob", "cat", WOKEN, limits=LIMITS, store=watched)
        assert isinstance(hub, Town)
        hub.changes, hub.file, hub.left = self.changes, file, []
        await hub.connect(RACK, THERE)
        await hub.learn(RACK, [{"handle": "far", "hub": THERE, "name": RACK, "way": [THERE]}])
        await hub.push(ANONYMOUS, {"profile": "ops", "connection_id": "vps-1"})
        return hub

    @property
    def here(self) -> Town:
        assert isinstance(self.hub, Town)
        return self.hub

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, work: Awaitable[Any]) -> Any:
        """As before; and what was queued in a store of its own thread is done, and what follows from that."""
        found = super().run(work)
        if self.store != "memory" and isinstance(getattr(self, "hub", None), Town):
            for _ in range(2):
                super().run(self.hub.commit())
        return found

    def unit(self, work: Callable[[Tx], Any]) -> Any:
        """A unit of its own, and its outcome."""

        async def write() -> Any:
            return await self.hub.bus.store.write(work)

        return self.run(write())

    # ---- turns

    @rule(
        to=st.sampled_from(ELSEWHERE),
        sender=st.sampled_from(["bob", "cat"]),
        intent=st.sampled_from(["request", "request", "inform", "ack"]),
        replay=st.sampled_from(Replay),
        ttl=st.sampled_from([5, 60, None]),
    )
    def write(self, to: str, sender: str, intent: str, replay: Replay, ttl: int | None) -> None:
        try:
            sent = self.run(self.hub.send(sender, to, "go", intent=intent, replay=replay, ttl_seconds=ttl))
        except MailboxFull:
            return
        self.elsewhere.append(sent)

    def one_of(self, data: st.DataObject, *states: State) -> Envelope:
        """One of the latest messages; where there are some in these states, one of them."""
        wanted = {row.message_id for row in self.all_rows().values() if row.state in states}
        some = [sent.envelope for sent in self.elsewhere if sent.envelope.id in wanted]
        return data.draw(st.sampled_from((some or [sent.envelope for sent in self.elsewhere])[-6:]))

    @rule(data=st.data(), how=HOW_TURNS_END, replay=st.sampled_from(Replay))
    def a_whole_turn(self, data: st.DataObject, how: str, replay: Replay) -> None:
        self.write(WOKEN, "bob", "request", replay, None)
        self.turn_begins()
        if self.turn is not None:
            self.turn_ends(how)

    @rule(data=st.data())
    def a_turn_whose_message_flips(self, data: st.DataObject) -> None:
        self.write(WOKEN, "bob", "request", Replay.ONCE, None)
        self.turn_begins()
        self.bits_flip(data, State.LEASED)

    @rule(data=st.data(), state=st.one_of(FAR_STATES, st.just("refused")))
    def a_whole_trip(self, data: st.DataObject, state: str) -> None:
        self.write(FAR, "bob", data.draw(st.sampled_from(["request", "inform"])), Replay.ONCE, None)
        self.link_takes(3)
        if self.carried:
            self.link_ends("refused" if state == "refused" else "forwarded")
        if state != "refused":
            self.far_side_says(data, state)
        if state == "dead":
            self.and_then(data, data.draw(AND_THEN), State.DEAD)

    @rule(
        data=st.data(),
        to=st.sampled_from([FAR, FETCHED]),
        then=st.one_of(AND_THEN, st.sampled_from(["answer", "known"])),
    )
    def a_long_trip(self, data: st.DataObject, to: str, then: str) -> None:
        """It is there, and nobody says what became of it."""
        self.write(to, "bob", data.draw(st.sampled_from(["request", "inform"])), Replay.ONCE, None)
        if to == FAR:
            self.link_takes(3)
            if self.carried:
                self.link_ends("forwarded")
        else:
            self.relay_fetches(written=True)
        self.and_then(data, then, State.FORWARDED)

    @rule(data=st.data(), then=AND_THEN)
    def a_turn_that_a_person_decides_about(self, data: st.DataObject, then: str) -> None:
        self.a_whole_turn(data, "held", Replay.ASK)
        self.and_then(data, then, State.HELD)

    def and_then(self, data: st.DataObject, then: str, state: State) -> None:
        """What becomes of one that is in this state, perhaps."""
        match then:
            case "answer":
                self.far_side_answers(data)
            case "time":
                self.much_time_passes(data.draw(st.sampled_from([27, 61])))
            case "known":
                self.what_few_verbs_do(data, Event.FAR_ANSWERED)
            case "bits":
                self.bits_flip(data, state)
            case "person":
                self.person_acts(data, data.draw(PERSON_ACTS))
            case "no arrow":
                self.arrows_that_are_not_there(data, state)

    @rule(data=st.data(), then=st.sampled_from(["nack", "late ack", "exhaust", "requeue"]))
    def a_whole_claim(self, data: st.DataObject, then: str) -> None:
        self.send("bob", "request", None, 1)
        for _ in range(2 if then in ("exhaust", "requeue") else 1):
            self.claim(3, 1 if then == "late ack" else 60)
            self.every_delivery_is_as_it_must_be()  # which notes how they stand
            if self.claimed and then != "late ack":
                self.nack(data, 0)
        if then == "late ack":
            self.pass_time(2)
            if self.claimed:
                self.ack(data)
        if then == "requeue":
            self.act_on_the_dead(data, again=True)

    @rule()
    def turn_begins(self) -> None:
        run = self.run(begin(self.hub.bus, WOKEN, "command"))
        assert run is None or self.turn is None, "two turns of one agent"
        self.turn = run or self.turn

    @precondition(lambda self: self.turn)
    @rule(how=HOW_TURNS_END)
    def turn_ends(self, how: str) -> None:
        run, bus = self.turn, self.hub.bus
        assert run is not None
        before = self.all_rows()[run.parcel.delivery.key]
        if how == "again":
            still = self.run(again(bus, run))
            assert not still or run.parcel.delivery.attempt == before.attempt + 1
            return
        self.turn = None
        match how:
            case "answer" | "silence":
                self.run(answered(bus, run, "done" if how == "answer" else ""))
            case "accepted":
                self.run(accepted(bus, run))
            case "failed":
                self.run(failed(bus, run, Reason.PROVIDER_SERVER_ERROR, "it broke"))
            case "held":
                self.run(held(bus, run))
            case _:
                self.run(turn_given_back(bus, run))
        now = self.all_rows()[run.parcel.delivery.key]
        assert now.attempt == before.attempt
        assert before.state is not State.LEASED or now.state is not State.LEASED, "a turn has ended and holds it still"

    # ---- links

    @rule(limit=st.integers(1, 3))
    def link_takes(self, limit: int) -> None:
        self.carried += self.run(take(self.hub.bus, RACK, limit, 0))

    @rule(window=st.integers(1, 4), wide=st.booleans())
    def link_comes_up(self, window: int, wide: bool) -> None:
        self.link_goes_down()
        bus, carrier = self.hub.bus, Carrier(RACK, window, 100_000 if wide else 5)
        self.carrier = carrier
        self.unit(lambda tx: bus.carriers.attach(tx, carrier))
        self.link_claims()

    @rule()
    def link_claims(self) -> None:
        carrier = self.carrier
        if carrier is not None:
            self.unit(lambda tx: claim_for(self.hub.bus, tx, carrier))

    @precondition(lambda self: self.carrier is not None and self.carrier.queue)
    @rule(limit=st.integers(1, 3))
    def link_sends(self, limit: int) -> None:
        carrier = self.carrier
        assert carrier is not None
        parcels = self.run(carrier.next(limit))
        for parcel in parcels:
            carrier.free(parcel)
        self.carried += parcels

    @rule()
    def link_goes_down(self) -> None:
        carrier, self.carrier = self.carrier, None
        if carrier is not None:
            self.run(self.in_loop(lambda bus: detach(bus, carrier)))
            self.run(self.hub.commit())

    @precondition(lambda self: self.carried)
    @rule(how=st.sampled_from(["forwarded", "forwarded", "used", "later", "unused", "refused", "delivered"]))
    def link_ends(self, how: str) -> None:
        bus, (parcels, self.carried) = self.hub.bus, (self.carried, [])
        leased = {row.key for row in self.all_rows().values() if row.state is State.LEASED}
        parcels = [parcel for parcel in parcels if parcel.delivery.key in leased]

        def end(_: object) -> None:
            match how:
                case "forwarded":
                    forwarded(bus, parcels)
                case "used" | "unused":
                    given_back(bus, parcels, used=how == "used")
                case "later":
                    given_back(bus, parcels, used=True, delay=5.0)
                case "refused":
                    for parcel in parcels:
                        refused(bus, parcel, Reason.RUNTIME_OFFLINE, "no")
                case _:
                    delivered(bus, parcels)

        self.run(self.in_loop(end))
        self.run(self.hub.commit())

    @precondition(lambda self: self.elsewhere)
    @rule(data=st.data(), state=FAR_STATES)
    def far_side_says(self, data: st.DataObject, state: str) -> None:
        of = self.one_of(data, State.FORWARDED)
        reason = None if state in ("delivered", "answered") else Reason.PROVIDER_SERVER_ERROR
        self.run(far_outcomes(self.hub.bus, RACK, [Outcome(of.id, of.to.partition("@")[0], state, reason)]))

    @precondition(lambda self: self.elsewhere)
    @rule(data=st.data())
    def far_side_answers(self, data: st.DataObject) -> None:
        of = self.one_of(data, State.FORWARDED, State.DELIVERED)
        draft = Draft(sender=of.to, text="from afar", in_reply_to=of.id, kind=Kind.REPLY, outcome=True)
        self.unit(lambda tx: accept(self.hub.bus, tx, draft, []))

    @precondition(lambda self: self.elsewhere)
    @rule(data=st.data(), event=st.sampled_from([Event.FAR_ANSWERED, Event.REOFFER]))
    def what_few_verbs_do(self, data: st.DataObject, event: Event) -> None:
        """An answer that is known of before it is there; and a reply whose question comes again."""
        state = State.FORWARDED if event is Event.FAR_ANSWERED else State.DELIVERED
        parcels = [p for p in self.all_parcels() if (p.delivery.mailbox, p.delivery.state) == (FAR, state)]
        if parcels:
            parcel = data.draw(st.sampled_from(parcels))
            self.unit(lambda tx: move(self.hub.bus, tx, parcel, event))

    @rule(written=st.booleans())
    def relay_fetches(self, written: bool) -> None:
        drained = self.run(drain(self.hub.bus, ANONYMOUS))
        self.run(self.in_loop(lambda bus: handed_out(bus, drained, written=written)))

    @precondition(lambda self: self.elsewhere)
    @rule(data=st.data(), well=st.booleans())
    def relay_brings(self, data: st.DataObject, well: bool) -> None:
        of = self.one_of(data, State.FORWARDED)
        told = ("done", None, None) if well else (None, "it broke", "provider_server_error")
        self.run(settle_far(self.hub.bus, of.id, *told))

    # ---- people

    @precondition(lambda self: self.elsewhere)
    @rule(data=st.data(), what=PERSON_ACTS)
    def person_acts(self, data: st.DataObject, what: str) -> None:
        of = self.one_of(data, *((State.DEAD, State.HELD) if what != "cancel" else ()))
        try:
            if what == "cancel":
                self.run(cancel(self.hub.bus, OPEN, of.id))
                self.withdrawn.add(of.id)
            else:
                self.run((requeue if what == "requeue" else drop)(self.hub.bus, of.id))
        except UnknownMessage:
            return

    @precondition(lambda self: self.elsewhere)
    @rule(data=st.data(), state=st.sampled_from([State.QUEUED, State.LEASED, State.FORWARDED, State.HELD, State.DEAD]))
    def bits_flip(self, data: st.DataObject, state: State) -> None:
        """In a message; the store has set it aside."""
        of = self.one_of(data, state)

        def set_aside(tx: Tx) -> None:
            message = tx.message(of.id) or of
            rows = tx.deliveries(of.id)
            loss = Loss(
                of.id, tuple(rows), False, message.sender, message.intent, message.kind, message.in_reply_to,
                message.key, message.fingerprint,
            )  # fmt: skip
            tx.remove(rows)
            tx.put_note(LOSS + of.id, msgspec.msgpack.encode(loss), 0)

        before = self.all_rows()
        self.unit(set_aside)
        self.run(self.in_loop(settle_losses))
        self.run(self.hub.commit())
        for key, row in self.all_rows().items():
            if row.message_id == of.id:
                was = before[key].state.word
                assert row.state.word == ARROWS.get(was, {}).get("damage", was)

    @rule(minutes=st.sampled_from([5, 27, 61]))
    def much_time_passes(self, minutes: int) -> None:
        self.pass_time(minutes * 60)

    # ---- what is not in the table

    @precondition(lambda self: self.rows_before)
    @rule(data=st.data(), state=st.sampled_from(State))
    def arrows_that_are_not_there(self, data: st.DataObject, state: State) -> None:
        parcels = [parcel for parcel in self.all_parcels() if parcel.delivery.state is state]
        if not parcels:
            return
        parcel = data.draw(st.sampled_from(parcels))
        absent = [event for event in Event if event.value not in ARROWS.get(state.word, {})]

        def try_each(tx: Tx) -> None:
            for event in absent:
                with pytest.raises(LookupError):
                    move(self.hub.bus, tx, parcel, event)

        self.unit(try_each)
        assert self.all_rows()[parcel.delivery.key] == parcel.delivery
        self.refused.update((state.word, event.value) for event in absent)

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def an_arrow_from_a_state_that_is_over(self, data: st.DataObject) -> None:
        was = data.draw(st.sampled_from(self.old))
        now = self.all_rows().get(was.delivery.key)
        if now is None or (now.state, now.attempt) == (was.delivery.state, was.delivery.attempt):
            return
        event = data.draw(st.sampled_from([Event(event) for event in ARROWS[was.delivery.state.word]]))
        assert self.unit(lambda tx: move(self.hub.bus, tx, was, event)) is None
        assert self.all_rows()[was.delivery.key] == now

    # ---- what must be true

    @rule()
    def restart(self) -> None:
        """As before; a turn that was on is one of an orphan now."""
        super().restart()
        self.carried.clear()
        self.carrier = None
        assert len(self.here.left) <= 1
        assert self.turn is None or self.turn.parcel.delivery.key in {r.parcel.delivery.key for r in self.here.left} | {
            row.key for row in self.all_rows().values() if row.state is not State.LEASED
        }, "a turn that a dead hub was in is forgotten"
        self.turn = self.here.left[0] if self.here.left else None

    def all_parcels(self) -> list[Parcel]:
        every, boxes = frozenset(State), [*MAILBOXES, *ELSEWHERE]

        async def read() -> list[Parcel]:
            return await self.hub.bus.store.read(
                lambda view: [p for name in boxes for p in view.inbox(name, 0, 10_000, every, None).parcels]
            )

        return self.runner.run(read())

    def all_rows(self) -> dict[int, Delivery]:
        return {parcel.delivery.key: parcel.delivery for parcel in self.all_parcels()}

    def other_leases(self) -> int:
        return 0 if self.turn is None else self.turn_leases()

    def turn_leases(self) -> int:
        assert self.turn is not None
        held = (self.turn.parcel, *self.turn.notes)
        return sum(self.hub.bus.leases.get(p.delivery.key, p.delivery.attempt) is not None for p in held)

    @invariant()
    def every_change_is_an_arrow(self) -> None:
        changes, self.changes[:] = list(getattr(self, "changes", ())), []
        for old, new in changes:
            changed = {field for field in old._fields if getattr(old, field) != getattr(new, field)}
            if changed <= QUIET:
                continue
            event = self.events.get((old.state, *new.standing))
            if event is None and old.state is State.LEASED:
                # Whatever a hub held that died is released when the store is opened: by the store, not by the bus.
                assert new == old._replace(state=State.QUEUED, deferred=False, sweep_at=new.sweep_at), f"{old}, {new}"
            else:
                assert event is not None, f"{old} became {new}, by no arrow"
                assert ARROWS[old.state.word][event.value] == new.state.word, f"{old} became {new}, by {event}"
                self.taken[old.state.word, event.value] += 1
            assert new.attempt - old.attempt == (new.state is State.LEASED), "attempts rise by one at a claim alone"
            assert (old.key, old.message_id, old.mailbox) == (new.key, new.message_id, new.mailbox)
            assert new.seq == old.seq or new.state is State.LEASED

    @invariant()
    def all_mailboxes_are_as_they_must_be(self) -> None:
        if getattr(self, "hub", None) is None:
            return
        parcels, before = self.all_parcels(), self.rows_before
        rows = self.rows_before = {parcel.delivery.key: parcel.delivery for parcel in parcels}
        elsewhere = {key: row for key, row in rows.items() if row.mailbox in ELSEWHERE}
        assert len({row.seq for row in rows.values()}) == len(rows)
        for key, row in elsewhere.items():
            assert key not in before or (row.attempt, row.seq) >= (before[key].attempt, before[key].seq)
        # A link's other side knows no numbers of ours: there one that is offered again keeps its own.
        woken = [{key: row for key, row in some.items() if row.mailbox == WOKEN} for some in (before, rows)]
        self.attempts_and_seq(*woken)
        self.first_hand_overs_are_in_order(elsewhere)
        for row in rows.values():
            assert (row.sweep_at is None) == (row.state is State.LEASED), f"time never looks at {row}"
            assert not row.deferred or row.state is State.QUEUED
            assert row.used <= row.attempt
        self.sums_are_counts(rows)
        held = [p.delivery for p in ((self.turn.parcel, *self.turn.notes) if self.turn else ())]
        held += [p.delivery for p in self.carried]
        held += [p.delivery for p in self.carrier.leased.values()] if self.carrier is not None else []
        on = {(row.key, row.attempt): row for row in elsewhere.values() if row.state is State.LEASED}
        mine = Counter((row.key, row.attempt) for row in held)
        assert {key: mine[key] for key in on} == dict.fromkeys(on, 1), "leased, and not in one hand"
        changed = [p for p in parcels if before.get(p.delivery.key) != p.delivery and p.delivery.state.word in ARROWS]
        self.old = (self.old + changed)[-40:]

    def sums_are_counts(self, rows: dict[int, Delivery]) -> None:
        for mailbox in (*MAILBOXES, *ELSEWHERE):
            mine = [row for row in rows.values() if row.mailbox == mailbox and row.state.open]
            queued = [row for row in mine if row.state is State.QUEUED]
            load = self.hub.bus.store.load(mailbox)
            told = (load.open, load.queued, load.ready, load.bytes, load.by_sender)
            heavy: Counter[str] = Counter()
            for row in mine:
                heavy[row.sender] += row.size
            assert load.bytes_by_sender == heavy, f"the bytes of each sender in {mailbox}"
            assert told == (
                len(mine),
                len(queued),
                sum(not row.deferred for row in queued),
                sum(row.size for row in mine),
                dict(Counter(row.sender for row in mine)),
            ), f"the sums of {mailbox}"

    def everything_settles(self) -> None:
        try:
            self.nobody_is_left_waiting()
        finally:
            self.runner.run(self.hub.bus.store.close())

    def nobody_is_left_waiting(self) -> None:
        if self.turn is not None:
            self.turn_ends("given back")
        self.link_goes_down()
        if self.carried:
            self.link_ends("unused")
        super().everything_settles()
        parcels = self.all_parcels()
        assert [p.delivery for p in parcels if p.delivery.state.open] == []
        told = {p.envelope.about for p in parcels if p.envelope.kind is Kind.NOTICE}
        for parcel in parcels:
            envelope, row = parcel.envelope, parcel.delivery
            if row.mailbox in ELSEWHERE and envelope.intent is Intent.REQUEST and envelope.kind is Kind.MESSAGE:
                known = row.state is State.ANSWERED or envelope.id in told | self.withdrawn
                assert known, f"{row} ended, and its sender was not told"


@contextmanager
def listening(events: dict[tuple[object, ...], Event]) -> Iterator[None]:
    """Note by which event each row is made: the bus tells nobody, so this listens at the one place that makes them."""
    plain = moves._after

    def heard(
        bus: Bus, old: Delivery, intent: Intent | None, event: Event, now: int, changes: dict[str, object]
    ) -> Delivery:
        new = plain(bus, old, intent, event, now, changes)
        events[old.state, *new.standing] = event
        return new

    moves._after = heard
    try:
        yield
    finally:
        moves._after = plain


def machine(store: str, examples: int, steps: int, *, every_arrow: bool = False) -> Any:
    """The machine over one store, as a test; with ``every_arrow`` it fails where one of them was not taken, or one that
    is not there was not tried."""
    own = {"store": store, "taken": Counter(), "refused": Counter(), "events": {}}
    kind: Any = type(f"Over_{store}", (Arrows,), own)

    class Over(kind.TestCase):  # type: ignore[misc]
        settings = settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )

        def runTest(self) -> None:
            with listening(kind.events):
                super().runTest()
            print(f"{len(kind.taken)} arrows taken, {len(kind.refused)} refused")
            if every_arrow:
                absent = {(state.word, event.value) for state in State for event in Event} - EACH
                assert EACH - kind.taken.keys() == set(), "arrows that were never taken"
                assert absent - kind.refused.keys() == set(), "no arrows, and never tried"

    return pytest.mark.timeout(3600)(Over)  # a failure is made small, which takes minutes


TestMemory = machine("memory", 60, 50)
TestMemorySlow = machine("memory, slow", 10, 50)
TestSqlite = machine("sqlite", 15, 50)
TestVeryLongInMemory = pytest.mark.soak(machine("memory", 4000, 80, every_arrow=True))
TestVeryLongSlow = pytest.mark.soak(machine("memory, slow", 500, 80, every_arrow=True))
TestVeryLongInSqlite = pytest.mark.soak(machine("sqlite", 600, 80, every_arrow=True))
