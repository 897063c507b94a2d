"""Any verbs in any order: what must be true of every delivery after each of them, and that everything settles.

The machine drives the verbs and keeps a small model beside the bus: which attempts count, who holds what, and what was
ever shown to anybody. The bus is never asked what it thinks is right.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from angelia.bus.ask import ask, finished
from angelia.bus.caller import OPEN
from angelia.bus.cancel import cancel, drop, requeue
from angelia.bus.claim import release, settle_written
from angelia.bus.draft import Accepted, Draft
from angelia.bus.ports import Parcel
from angelia.bus.subscribe import End, Mail
from angelia.model.address import PRESENCE
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Intent, Kind, Lane
from angelia.model.errors import LeaseLost, MailboxFull, UnknownMessage
from angelia.model.limits import Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import Reader, SmallHub

ATTEMPTS = 2
LIMITS = Limits(
    reader_attempts=ATTEMPTS,
    stream_window_deliveries=3,
    manual_window_deliveries=2,
    mailbox_deliveries=12,
    mailbox_deliveries_per_sender=6,
    chain_per_hour=4,
    ttl_seconds=3600,
)
READER = "ann"
MAILBOXES = [READER, "cat", "bob", "human"]
HANDS = st.sampled_from([Hand.AUTO, Hand.AUTO, Hand.MANUAL])


class Written:
    """The holder of a poll whose answer has left."""

    def settled(self, mark: int) -> bool | None:
        return True


class Verbs(RuleBasedStateMachine):
    """One hub, one mailbox that is read in every way, and whoever writes to it."""

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.hub: SmallHub = self.run(SmallHub.open(LIMITS))
        self.sent: list[Accepted] = []
        self.claimed: list[Parcel] = []
        self.deadlines: dict[tuple[int, int], float] = {}  # of the claims that are on
        self.polled: list[Parcel] = []
        self.reader: Reader | None = None
        self.arrived = 0  # of what was written to the reader, how much has left the process
        self.read: list[Mail] = []  # what ever arrived at a reader
        self.questions: list[Draft] = []
        self.used: Counter[int] = Counter()
        self.shown: set[int] = set()
        self.before: dict[int, Delivery] = {}
        self.withdrawn: set[str] = set()

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            try:
                self.run(self.hub.commit())
                self.everything_settles()
            finally:
                self.runner.close()

    def run(self, work: Awaitable[Any]) -> Any:
        async def rested() -> Any:
            result = await work
            await settle(15)
            return result

        return self.runner.run(rested())

    # ---- writing

    @rule(
        sender=st.sampled_from(["bob", "cat", "human"]),
        intent=st.sampled_from(["inform", "request"]),
        ttl=st.sampled_from([1, 30, None]),
        count=st.integers(1, 4),
    )
    def send(self, sender: str, intent: str, ttl: int | None, count: int) -> None:
        lane = Lane.PERSON if sender == "human" else Lane.NORMAL
        for _ in range(count):
            self.accept(self.hub.send(sender, READER, "hi", intent=intent, ttl_seconds=ttl, lane=lane))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), kind=st.sampled_from([Kind.REPLY, Kind.MESSAGE]))
    def answer(self, data: st.DataObject, kind: Kind) -> None:
        of = data.draw(st.sampled_from(self.sent[-6:])).envelope
        to = None if kind is Kind.REPLY else of.sender
        (row,) = self.run(self.hub.rows(of.id))
        if self.accept(self.hub.send(of.to, to, "answer", kind=kind, in_reply_to=of.id)):
            (now,) = self.run(self.hub.rows(of.id))
            over = row.state in (State.FAILED, State.DEAD, State.HELD)
            assert now.state is (row.state if over else State.ANSWERED)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        of = data.draw(st.sampled_from(self.sent[-6:])).envelope
        if of.kind is Kind.MESSAGE and of.in_reply_to is None:
            again = self.run(self.hub.send(of.sender, of.to, of.text, id=of.id, intent=of.intent.value))
            assert again.duplicate == (again.envelope == of)
            assert again.duplicate

    def accept(self, work: Awaitable[Accepted]) -> bool:
        try:
            accepted = self.run(work)
        except MailboxFull:
            return False
        self.sent.append(accepted)
        return True

    # ---- claims

    @rule(limit=st.integers(1, 3), lease=st.sampled_from([1, 60]))
    def claim(self, limit: int, lease: int) -> None:
        for parcel in self.run(self.hub.take(READER, limit, lease_seconds=lease)):
            self.claimed.append(parcel)
            self.show(parcel)
            self.deadlines[parcel.delivery.key, parcel.delivery.attempt] = self.hub.clock.monotonic() + lease

    @precondition(lambda self: self.claimed)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        parcel = data.draw(st.sampled_from(self.claimed[-5:]))
        row = self.row(parcel)
        try:
            outcome = self.run(self.hub.ack(parcel))
        except LeaseLost:
            assert row.attempt != parcel.delivery.attempt or row.state in (State.FAILED, State.DEAD)
            return
        assert row.attempt == parcel.delivery.attempt
        assert outcome.late == (row.state is State.QUEUED)
        assert self.row(parcel).state in (State.DELIVERED, State.ANSWERED)

    @precondition(lambda self: self.claimed)
    @rule(data=st.data(), delay=st.sampled_from([0, None, 30]))
    def nack(self, data: st.DataObject, delay: float | None) -> None:
        parcel = data.draw(st.sampled_from(self.claimed[-5:]))
        row = self.row(parcel)
        try:
            outcome = self.run(self.hub.nack(parcel, delay))
        except LeaseLost:
            assert row.attempt != parcel.delivery.attempt or row.state >= State.DELIVERED
            return
        if not outcome.already:
            self.used[row.key] += 1

    @precondition(lambda self: self.claimed)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        parcel = data.draw(st.sampled_from(self.claimed[-5:]))
        row, key = self.row(parcel), (parcel.delivery.key, parcel.delivery.attempt)
        try:
            self.run(self.hub.renew(parcel, 60))
        except LeaseLost:
            assert row.state is not State.LEASED or row.attempt != key[1]
            return
        assert (row.state, row.attempt) == (State.LEASED, key[1])
        self.deadlines[key] = self.hub.clock.monotonic() + 60

    # ---- polls

    @rule()
    def poll(self) -> None:
        parcels = self.run(self.hub.take(READER, 2, hand=Hand.POLL))
        self.polled += parcels
        for parcel in parcels:
            self.show(parcel)

    @precondition(lambda self: self.polled)
    @rule(whole=st.booleans(), begun=st.booleans())
    def poll_ends(self, whole: bool, begun: bool) -> None:
        parcels, self.polled = self.polled, []
        if whole:
            for parcel in parcels:
                self.hub.bus.autos.add(parcel, Written(), 0)
            self.run(self.in_loop(settle_written))
            self.run(self.hub.commit())
            return
        for parcel in parcels:
            row = self.row(parcel)
            still = (row.state, row.attempt) == (State.LEASED, parcel.delivery.attempt)
            self.used[row.key] += 1 if begun and still else 0
        self.run(self.in_loop(lambda bus: release(bus, parcels, used=begun)))

    async def in_loop(self, call: Any) -> None:
        call(self.hub.bus)

    # ---- streams

    @rule(hand=HANDS, data=st.data())
    def open_stream(self, hand: Hand, data: st.DataObject) -> None:
        seen = [str(mail.parcel.delivery.seq) for mail in self.read[-4:]]
        last = data.draw(st.sampled_from([None, *seen, *seen[-1:]]))
        last_id = None if last is None else f"{self.hub.bus.store.epoch}-{last}"
        old = self.reader
        self.reader, self.arrived = self.run(self.hub.listen(READER, last_id, hand)), 0
        if old is not None:
            assert self.run(old.items())[-1] == End("superseded")
            self.run(old.close())

    @precondition(lambda self: self.reader)
    @rule(stuck=st.booleans(), then=st.sampled_from(["nothing", "commit", "break", "restart"]))
    def read_stream(self, stuck: bool, then: str) -> None:
        assert self.reader is not None
        if stuck:
            self.reader.jam()
        self.run(self.reader.items())
        for mail in self.reader.seen:
            self.in_time(mail.parcel)
        seqs = [mail.parcel.delivery.seq for mail in self.reader.seen]
        assert seqs == sorted(set(seqs)), "what a reader sees only rises"
        self.let_bytes_leave()
        match then:
            case "commit":
                self.commit()
            case "break":
                self.break_stream()
            case "restart":
                self.restart()

    @precondition(lambda self: self.reader)
    @rule()
    def drain(self) -> None:
        assert self.reader is not None
        self.reader.socket.drain()
        self.let_bytes_leave()

    def let_bytes_leave(self) -> None:
        assert self.reader is not None
        if not self.reader.socket.stuck:
            for mail in self.reader.seen[self.arrived :]:
                self.read.append(mail)
                self.shown.add(mail.parcel.delivery.key)
            self.arrived = len(self.reader.seen)

    @precondition(lambda self: self.reader)
    @rule()
    def break_stream(self) -> None:
        assert self.reader is not None
        self.count_break(self.reader)
        self.run(self.reader.close())
        self.reader = None

    def count_break(self, reader: Reader) -> None:
        for mail in reader.seen:
            row = self.row(mail.parcel)
            if not mail.again and (row.state, row.attempt) == (State.LEASED, mail.parcel.delivery.attempt):
                self.used[row.key] += 1

    # ---- questions

    @rule(written=st.booleans())
    def ask(self, written: bool) -> None:
        draft = Draft(sender="bob", to=READER, text="?", id=f"{len(self.questions):032x}")
        try:
            got = self.run(ask(self.hub.bus, draft, 0))
        except MailboxFull:
            return
        self.questions.append(draft)
        self.sent.append(Accepted(got.question, got.deliveries))
        self.run(self.in_loop(lambda bus: finished(bus, got, written=written)))

    @precondition(lambda self: self.questions)
    @rule(data=st.data(), written=st.booleans())
    def ask_again(self, data: st.DataObject, written: bool) -> None:
        got = self.run(ask(self.hub.bus, data.draw(st.sampled_from(self.questions)), 0))
        if written and got.waiter is not None and got.waiter.answer is not None and not got.pending:
            self.shown.add(got.waiter.answer.delivery.key)
        self.run(self.in_loop(lambda bus: finished(bus, got, written=written)))
        self.run(self.hub.commit())

    # ---- people and time

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        of = data.draw(st.sampled_from(self.sent[-6:])).envelope
        if of.sender != "human":
            self.run(cancel(self.hub.bus, OPEN, of.id))
            self.withdrawn.add(of.id)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), again=st.booleans())
    def act_on_the_dead(self, data: st.DataObject, again: bool) -> None:
        of = data.draw(st.sampled_from(self.sent[-6:])).envelope
        dead = [row for row in self.run(self.hub.rows(of.id)) if row.state is State.DEAD]
        try:
            self.run((requeue if again else drop)(self.hub.bus, of.id))
        except UnknownMessage:
            return
        for row in dead if again else ():
            self.used[row.key] = 0

    @rule()
    def commit(self) -> None:
        self.run(self.hub.commit())

    @rule(seconds=st.sampled_from([0.3, 2, 6, 61]))
    def pass_time(self, seconds: float) -> None:
        now = self.hub.clock.monotonic() + seconds
        for (key, attempt), deadline in self.deadlines.items():
            row = self.before.get(key)
            if row is not None and deadline <= now and (row.state, row.attempt) == (State.LEASED, attempt):
                self.used[key] += 1
        self.run(self.hub.pass_time(seconds))

    @rule()
    def restart(self) -> None:
        self.reader = None
        self.polled.clear()
        self.deadlines.clear()
        self.run(self.hub.restart())

    # ---- what must be true

    def show(self, parcel: Parcel) -> None:
        self.in_time(parcel)
        self.shown.add(parcel.delivery.key)

    def in_time(self, parcel: Parcel) -> None:
        row = parcel.delivery
        assert row.attempt > 1 or row.leased_at is None or row.expires_at > row.leased_at, "handed over after its time"

    def row(self, parcel: Parcel) -> Delivery:
        return self.rows()[parcel.delivery.key]

    def rows(self) -> dict[int, Delivery]:
        return {parcel.delivery.key: parcel.delivery for parcel in self.parcels()}

    def parcels(self) -> list[Parcel]:
        """Every delivery that there is."""
        every = frozenset(State)

        async def read() -> list[Parcel]:
            return await self.hub.bus.store.read(
                lambda view: [p for name in MAILBOXES for p in view.inbox(name, 0, 10_000, every, None).parcels]
            )

        return self.runner.run(read())

    @invariant()
    def every_delivery_is_as_it_must_be(self) -> None:
        if not hasattr(self, "hub"):
            return
        rows, before = self.rows(), self.before
        self.before = rows
        for key in before.keys() - rows.keys():
            row = before[key]
            assert row.sender == PRESENCE, "a delivery was lost"
            assert (row.state, row.attempt) == (State.QUEUED, 0), "one that was handed over was replaced"
        self.attempts_and_seq(before, rows)
        self.first_hand_overs_are_in_order(rows)
        self.every_lease_has_one_holder(rows)
        for row in rows.values():
            assert row.used == self.used[row.key], row
            assert row.used <= row.attempt
            assert row.used < ATTEMPTS or row.state in (State.DEAD, State.FAILED)
            if row.state is State.DELIVERED:
                assert row.key in self.shown, "settled, and nobody has seen it"

    def attempts_and_seq(self, before: dict[int, Delivery], rows: dict[int, Delivery]) -> None:
        high: Counter[str] = Counter()
        for row in before.values():
            if row.attempt:
                high[row.mailbox] = max(high[row.mailbox], row.seq)
        handed = [row for row in rows.values() if row.key not in before or row.attempt != before[row.key].attempt]
        for row in rows.values():
            old = before.get(row.key)
            assert old is None or row.attempt >= old.attempt
            assert old is None or row.seq == old.seq or row.attempt > old.attempt
        for row in handed:
            assert not row.attempt or row.seq > high[row.mailbox], f"{row} was handed over below one before it: {high}"
        assert len({row.seq for row in rows.values()}) == len(rows)

    def first_hand_overs_are_in_order(self, rows: dict[int, Delivery]) -> None:
        later: set[tuple[str, str, int]] = set()
        for row in sorted(rows.values(), key=lambda row: -row.key):
            line = (row.mailbox, row.sender, row.lane)
            if row.state is State.QUEUED and not row.attempt:
                assert line not in later, "one that waits was overtaken"
            if row.attempt and row.hand is not Hand.ASK:
                later.add(line)

    def every_lease_has_one_holder(self, rows: dict[int, Delivery]) -> None:
        bus = self.hub.bus
        held: Counter[tuple[int, int]] = Counter()
        for parcel in self.polled:
            held[parcel.delivery.key, parcel.delivery.attempt] += 1
        if self.reader is not None:
            held.update((p.delivery.key, p.delivery.attempt) for p in self.reader.stream.buffer)
            held.update(self.reader.stream.handed.items())
        held.update(key for key, deadline in self.deadlines.items() if deadline > self.hub.clock.monotonic())
        held.update((p.delivery.key, p.delivery.attempt) for p in bus.asks.answers())
        leased = {(row.key, row.attempt) for row in rows.values() if row.state is State.LEASED}
        assert {key: count for key, count in held.items() if key in leased} == dict.fromkeys(leased, 1)
        assert len(bus.leases) - self.other_leases() == sum(
            1 for row in rows.values() if row.state is State.LEASED and row.hand in (Hand.CLAIM, Hand.MANUAL)
        )

    def other_leases(self) -> int:
        """Leases of mailboxes that are not among ``MAILBOXES``; `tests/conformance/test_machine.py` has some."""
        return 0

    def everything_settles(self) -> None:
        """Nobody reads any more; after their time to live all have ended, and every sender of a request knows."""
        if self.polled:
            self.poll_ends(whole=False, begun=False)
        if self.reader is not None:
            self.break_stream()
        for _ in range(4):
            self.run(self.hub.pass_time(3700))
        parcels = self.parcels()
        assert [p.delivery for p in parcels if p.delivery.state.open] == []
        told = {p.envelope.about for p in parcels if p.envelope.kind is Kind.NOTICE}
        for parcel in parcels:
            envelope, row = parcel.envelope, parcel.delivery
            if envelope.intent is not Intent.REQUEST or envelope.kind is Kind.NOTICE:
                continue
            answered = row.state is State.ANSWERED or envelope.id in self.withdrawn
            assert answered or envelope.id in told, f"{row} ended, and its sender was not told"


TestVerbs = pytest.mark.timeout(600)(Verbs.TestCase)  # a failure is made small, which takes minutes; all else seconds
TestVerbs.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
