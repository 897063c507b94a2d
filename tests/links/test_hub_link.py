"""A link between two hubs: mail both ways, in order, once by id, whatever becomes of the line."""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from angelia.bus.rosters import ROSTERS
from angelia.links import hub_link
from angelia.links.channel import Channel, Refused
from angelia.model.address import SEED_AGENTS
from angelia.model.connection import Connection, Speaks
from angelia.model.delivery import State
from angelia.model.envelope import Intent, Kind, fingerprint
from angelia.model.errors import DiskFull, Stopping
from angelia.model.limits import Limits
from angelia.protocol.gateway import Refusal
from angelia.protocol.hub import read_rows
from angelia.protocol.jsonrpc import UNKNOWN_METHOD, Request
from angelia.storage import memory
from tests.links.neighbours import Line, Side, Stranger, introduced, linked, running, serve, until

MARGIN = 3


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits a moment to do more at once waits a shorter one."""
    monkeypatch.setattr(memory, "LAZY_SECONDS", 0.005)
    monkeypatch.setattr(hub_link, "GATHER_SECONDS", 0.001)


@pytest.fixture
async def two() -> tuple[Side, Side]:
    here, far = await Side.make("home", "ann", "cat"), await Side.make("garage", "bob", "dan")
    await introduced(here, far)
    return here, far


class Far:
    """A hub that knows another which is scripted: ``self.line.ends[1]`` is the script's."""

    def __init__(self, side: Side) -> None:
        self.side, self.line = side, Line()
        self.link = Connection(name="garage", speaks=Speaks.HUB, hub="f" * 32)

    async def know(self) -> "Far":
        await self.side.put(self.link)
        row = {"handle": "bob", "hub": self.link.hub, "name": "garage", "way": [self.link.hub]}
        rows = read_rows([row], self.side.id)
        bus = self.side.bus
        await bus.store.write(lambda tx: bus.neighbours.learn(tx, self.link, rows, bus.clock.now()))
        return self

    def again(self) -> Line:
        self.line = Line()
        return self.line

    async def serve(self) -> str:
        return await serve(self.side, self.link, self.line.ends[0])

    def stranger(self, **answers: object) -> Stranger:
        return Stranger(self.line.ends[1], **answers)


@pytest.fixture
async def far() -> Far:
    return await Far(await Side.make("home", "ann")).know()


# ---------------------------------------------------------------------------------------------------------------- mail


async def test_mail_crosses_both_ways_in_order(two: tuple[Side, Side]) -> None:
    here, far = two
    words = [f"{n}" for n in range(250)]
    async with linked(here, far):
        there = [await here.send("ann", "bob", word) for word in words]
        back = [await far.send("dan", "cat@home", word) for word in words]
        await until(lambda: _has(far, "bob", len(words)))
        await until(lambda: _has(here, "cat", len(words)))
        await until(lambda: _all(here, "garage", State.FORWARDED))
        await until(lambda: _all(far, "home", State.FORWARDED))
    assert (await far.texts("bob"), await here.texts("cat")) == (words, words)
    assert [e.id for e in await far.came("bob")] == [each.envelope.id for each in there]
    assert [e.sender for e in (await here.came("cat"))[:2]] == ["dan@garage", "dan@garage"]
    assert len(back) == len(words)


async def test_what_waited_goes_when_there_is_a_link(two: tuple[Side, Side]) -> None:
    here, far = two
    sent = await here.send("ann", "bob", "hi")
    assert await here.state(sent) is State.QUEUED
    async with linked(here, far):
        await until(lambda: _has(far, "bob", 1))


async def test_question_and_answer_keep_thread_body_and_receipts(two: tuple[Side, Side]) -> None:
    here, far = two
    async with linked(here, far):
        asked = await here.send("ann", "bob", "which?", body=b'{"of": [1, 2.50]}', intent="request")
        await until(lambda: _has(far, "bob", 1))
        await until(lambda: _is(here, asked, State.FORWARDED))
        parcel = await far.take_one("bob")
        await far.ack(parcel)
        await until(lambda: _is(here, asked, State.DELIVERED))
        reply = await far.send("bob", None, "two", in_reply_to=asked.envelope.id, kind=Kind.REPLY)
        await until(lambda: _is(here, asked, State.ANSWERED))
        [answer] = await here.came("ann")
        await until(lambda: _is(far, reply, State.FORWARDED))
        await here.ack(await here.take_one("ann"))
        await until(lambda: _is(far, reply, State.DELIVERED))
    assert (answer.text, answer.sender, answer.in_reply_to) == ("two", "bob@garage", asked.envelope.id)
    assert answer.thread == parcel.envelope.thread == asked.envelope.thread
    assert parcel.envelope.body == b'{"of": [1, 2.50]}'
    assert (await far.row(asked.envelope.id)).state is State.ANSWERED


async def test_the_failure_of_a_request_comes_back_as_one_notice(two: tuple[Side, Side]) -> None:
    here, far = two
    async with linked(here, far):
        asked = await here.send("ann", "bob", "which?", intent="request", ttl_seconds=5)
        await until(lambda: _has(far, "bob", 1))
        await far.pass_time(6)
        await until(lambda: _is(here, asked, State.FAILED))
        [notice] = await here.notices("ann")
    assert (notice.about, notice.reason) == (asked.envelope.id, "queued_expired")
    assert (await here.row(asked)).reason == "queued_expired"


async def test_a_cut_at_any_frame_loses_nothing_gives_nothing_twice_and_keeps_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_link, "BATCH", 2)
    words = [str(n) for n in range(7)]
    for frames in itertools.count():
        here, far = await Side.make("home", "ann"), await Side.make("garage", "bob")
        await introduced(here, far)
        for word in words:
            await here.send("ann", "bob", word, intent="request")
            await far.send("bob", "ann", word)
        async with linked(here, far, frames) as line:
            await until(lambda: line.dead.is_set() or _has_crossed(here, far, len(words)))  # noqa: B023 - looked at here
            whole = not line.dead.is_set()
        await _at_rest(here, "garage")
        await _at_rest(far, "home")
        async with linked(here, far):
            await until(lambda: _has_crossed(here, far, len(words)))  # noqa: B023 - looked at here
            asked = await far.came("bob")
            assert [e.text for e in asked] == words, frames
            assert await here.texts("ann") == words, frames
        # The same for answers, and for what is told of those that have none.
        for envelope in asked[:5]:
            await far.send("bob", None, "re " + str(envelope.text), in_reply_to=envelope.id, kind=Kind.REPLY)
        async with linked(here, far, frames) as line:
            await asyncio.sleep(0.02)
        await far.take("bob")
        async with linked(here, far):
            await until(lambda: _has(here, "ann", len(words) + 5))  # noqa: B023 - looked at here
            assert (await here.texts("ann"))[len(words) :] == [f"re {word}" for word in words[:5]], frames
            await until(lambda: _all(here, "garage", State.ANSWERED, State.FORWARDED))  # noqa: B023
            await until(lambda: _all(far, "home", State.FORWARDED))  # noqa: B023
        if whole:
            assert frames > 20
            break


async def test_whenever_a_link_is_ended_what_it_had_taken_is_given_back(two: tuple[Side, Side]) -> None:
    here, far = two
    for steps in range(100):
        sent = [await here.send("ann", "bob", "hi") for _ in range(3)]
        line = Line()
        async with running(here.serve(far, line.ends[0]), Stranger(line.ends[1], hub_send=asyncio.Event()).run()):
            for _ in range(steps):
                await asyncio.sleep(0)
        await _at_rest(here, "garage")
        assert [await here.state(each) for each in sent] == [State.QUEUED] * 3, steps


async def test_whenever_the_line_breaks_what_was_taken_is_given_back(two: tuple[Side, Side]) -> None:
    here, far = two
    for steps in range(100):
        sent = [await here.send("ann", "bob", "hi") for _ in range(3)]
        line = Line()
        async with running(here.serve(far, line.ends[0]), Stranger(line.ends[1], hub_send=asyncio.Event()).run()):
            for _ in range(steps):
                await asyncio.sleep(0)
            line.cut()
            await asyncio.sleep(0.001)
        await _at_rest(here, "garage")
        assert [await here.state(each) for each in sent] == [State.QUEUED] * 3, steps


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("code", ["mailbox_full", "rate_limited", "disk_full", "stopping"])
async def test_what_cannot_be_taken_now_is_offered_again_and_says_so_and_what_is_behind_it_waits(
    far: Far, code: str
) -> None:
    sent = await far.side.send("ann", "bob", "hi")

    def first_two(request: Request) -> object:
        no = {"stored": False, "code": code}
        items: Any = request.params["messages"]
        return [no if there.count("hub.send") < 3 else {"stored": True}] * len(items)

    there = far.stranger(hub_send=first_two)
    async with running(far.serve(), there.run()):
        await until(lambda: _is_put_off(far.side, sent))
        behind = await far.side.send("ann", "bob", "ho")
        for seconds, count in ((1, 2), (2, 3)):
            assert [await far.side.state(each) for each in (sent, behind)] == [State.QUEUED] * 2
            await far.side.pass_time(seconds)
            await until(lambda: there.count("hub.send") == count)  # noqa: B023 - looked at before the next
            await far.side.commit()
        await until(lambda: _is(far.side, behind, State.FORWARDED))
    assert [(item["text"], item.get("again", False)) for item in there.items()] == [
        ("hi", False), *[("hi", True), ("ho", False)] * 2,
    ]  # fmt: skip


async def test_a_line_that_comes_up_tries_at_once_what_the_last_one_could_not_deliver(far: Far) -> None:
    sent = await far.side.send("ann", "bob", "hi")
    async with running(far.serve(), far.stranger(hub_send=[{"stored": False, "code": "mailbox_full"}]).run()):
        await until(lambda: _is_put_off(far.side, sent))
    far.again()

    async def went() -> bool:
        await far.side.pass_time(0)
        return await _is(far.side, sent, State.FORWARDED)

    async with running(far.serve(), far.stranger(hub_send=[{"stored": True}]).run()):
        await until(went)


async def test_a_full_disk_there_makes_mail_rosters_and_outcomes_wait_and_not_the_line(far: Far) -> None:
    sent = await far.side.send("ann", "bob", "hi")
    no = DiskFull("The disk is full.")
    there = far.stranger(hub_send=no, hub_roster=no)
    async with running(far.serve(), there.run()):
        await until(lambda: _is_put_off(far.side, sent))
        there.answers["hub.send"] = [{"stored": True}]
        await far.side.pass_time(1)
        await until(lambda: _is(far.side, sent, State.FORWARDED))
    assert there.items()[-1]["again"]


async def test_one_that_flipped_on_the_way_goes_again_alone(far: Far) -> None:
    sent, other = [await far.side.send("ann", "bob", word) for word in ("hi", "ho")]

    def garbled(request: Request) -> object:
        items: Any = request.params["messages"]
        full = [item["text"] == "hi" and there.count("hub.send") < 3 for item in items]
        return [{"stored": False, "code": "garbled"} if no else {"stored": True} for no in full]

    there = far.stranger(hub_send=garbled)
    async with running(far.serve(), there.run()):
        await until(lambda: _is(far.side, other, State.FORWARDED))
        for seconds, count in ((1, 2), (2, 3)):
            assert await far.side.state(sent) is State.QUEUED
            await far.side.pass_time(seconds)
            await until(lambda: there.count("hub.send") == count)  # noqa: B023 - looked at before the next
            await far.side.commit()
        await until(lambda: _is(far.side, sent, State.FORWARDED))
    assert [item["text"] for item in there.items()] == ["hi", "ho", "hi", "hi"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("unknown_agent", "runtime_offline"),
        ("too_large", "too_large"),
        ("hop_limit", "loop"),
        ("not_allowed", "agent_blocked"),
        ("what_is_this", "agent_blocked"),
        (None, "agent_blocked"),
    ],
)
async def test_what_is_refused_for_good_ends_and_its_sender_is_told(far: Far, code: str | None, reason: str) -> None:
    sent = await far.side.send("ann", "bob", "hi", intent="request")
    refusal = [{"stored": False, "code": code, "detail": "we are closed"}]
    there = far.stranger(hub_send=refusal)
    async with running(far.serve(), there.run()):
        await until(lambda: _is(far.side, sent, State.FAILED))
        [notice] = await until(lambda: far.side.notices("ann"))
    assert (notice.about, notice.reason) == (sent.envelope.id, reason)
    assert "The other side says: we are closed" in (notice.text or "")
    assert there.count("hub.send") == 1


@pytest.mark.parametrize(
    "answer",
    [
        {}, [], [{"stored": True}], [{"stored": "yes"}] * 2, [None, None], None.__class__, 7, "stored",
        Stopping("it goes down"), Refusal(-32601, "no such method"), Refusal(-32000, "broken", {"reason": "x"}),
    ],
    ids=repr,
)  # fmt: skip
async def test_an_answer_that_is_none_costs_no_mail(far: Far, answer: object) -> None:
    sent = [await far.side.send("ann", "bob", word) for word in ("1", "2")]
    garbage = (lambda _: None) if answer is None.__class__ else answer
    there = far.stranger(hub_send=garbage)
    async with running(far.serve(), there.run()) as (ours, _):
        assert "does not take mail" in str(await ours)
    await _at_rest(far.side, "garage")
    assert [await far.side.state(each) for each in sent] == [State.QUEUED] * 2
    far.again()
    there = far.stranger()
    async with running(far.serve(), there.run()):
        await far.side.pass_time(6)
        await until(lambda: _all(far.side, "garage", State.FORWARDED))
    assert [item["text"] for item in there.items()] == ["1", "2"]


async def test_what_comes_later_does_not_pass_what_was_given_back(far: Far) -> None:
    """A far side that takes nothing for a moment costs no order: the first hand-over counts, and there was none."""
    await far.side.send("ann", "bob", "1")
    async with running(far.serve(), far.stranger(hub_send=Stopping("it goes down")).run()) as (ours, _):
        await ours
    await far.side.send("ann", "bob", "2")
    far.again()
    there = far.stranger()
    async with running(far.serve(), there.run()):
        await asyncio.sleep(0.02)
        await far.side.pass_time(6)
        await until(lambda: _all(far.side, "garage", State.FORWARDED))
    assert [item["text"] for item in there.items()] == ["1", "2"]


# --------------------------------------------------------------------------------------------------------------- sizes

SMALL = Limits(frame_bytes=64 * 1024)


@pytest.mark.parametrize("letter", ["x", "é", "\x01", '"'], ids=repr)
async def test_what_is_too_much_for_one_frame_goes_in_several_and_in_order(letter: str) -> None:
    far = await Far(await Side.make("home", "ann", limits=SMALL)).know()
    text = letter * (7_000 // len(letter.encode()))
    words = [f"{n} {text}" for n in range(60)]
    for word in words:
        await far.side.send("ann", "bob", word)
    there = far.stranger()
    async with running(far.serve(), there.run()):
        await until(lambda: _all(far.side, "garage", State.FORWARDED))
    assert [item["text"] for item in there.items()] == words
    assert max(len(frame) for _, frame in far.line.passed) <= SMALL.frame_bytes


async def test_a_message_too_large_for_any_frame_ends_and_the_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    far = await Far(await Side.make("home", "ann", limits=SMALL)).know()
    first = await far.side.send("ann", "bob", "1")
    huge = await far.side.send("ann", "bob", "x" * 70_000, intent="request")
    escapes = await far.side.send("ann", "bob", "\x01" * 20_000, intent="request")
    last = await far.side.send("ann", "bob", "x" * 55_000)
    there = far.stranger()
    async with running(far.serve(), there.run()):
        for each, state in ((first, State.FORWARDED), (last, State.FORWARDED), (huge, State.FAILED)):
            await until(lambda: _is(far.side, each, state))  # noqa: B023 - looked at before the next
        await until(lambda: _is(far.side, escapes, State.FAILED))
    assert [notice.reason for notice in await far.side.notices("ann")] == ["too_large", "too_large"]
    assert len(there.items()) == 2


async def test_two_batches_of_large_mail_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_link, "BATCH", 4)
    far = await Far(await Side.make("home", "ann", limits=SMALL)).know()
    words = [f"{n} " + "x" * 20_000 for n in range(12)]
    for word in words:
        await far.side.send("ann", "bob", word)
    there = far.stranger()
    async with running(far.serve(), there.run()):
        await until(lambda: _all(far.side, "garage", State.FORWARDED))
    assert [item["text"][:3] for item in there.items()] == [word[:3] for word in words]


async def test_a_roster_too_large_for_a_frame_does_not_cost_the_link() -> None:
    side = await Side.make("home", *(f"agent{n}" for n in range(900)), limits=SMALL)
    far = await Far(side).know()
    there = far.stranger()
    async with running(far.serve(), there.run()):
        await until(lambda: there.count("hub.roster"))
        sent = await side.send("agent1", "bob", "hi")
        await until(lambda: _is(side, sent, State.FORWARDED))
    assert max(len(frame) for _, frame in far.line.passed) <= SMALL.frame_bytes


# ------------------------------------------------------------------------------------------------------------ outcomes


async def test_an_outcome_is_told_until_the_other_side_has_it(two: tuple[Side, Side]) -> None:
    here, far = two
    sent = await here.send("ann", "bob", "hi")
    async with linked(here, far):
        await until(lambda: _is(here, sent, State.FORWARDED))
    await far.ack(await far.take_one("bob"))
    await far.commit()
    async with linked(here, far, frames=1):  # cut before it can be told
        await asyncio.sleep(0.01)
    assert await here.state(sent) is State.FORWARDED
    async with linked(here, far):
        await until(lambda: _is(here, sent, State.DELIVERED))
        await until(lambda: _owes_nothing(far, sent.envelope.id))
    async with linked(here, far) as line:
        await asyncio.sleep(0.02)
        assert not any(b"hub.settle" in frame for _, frame in line.passed)  # and not again


async def test_many_outcomes_are_told_in_few_calls(two: tuple[Side, Side]) -> None:
    here, far = two
    for n in range(450):
        await here.send("ann", "bob", str(n))
    async with linked(here, far) as line:
        await until(lambda: _has(far, "bob", 450))
        while parcels := await far.take("bob", 100):
            for parcel in parcels:
                await far.ack(parcel)
        await until(lambda: _all(here, "garage", State.DELIVERED))
        assert sum(b'"hub.settle"' in frame for _, frame in line.passed) < 100


async def test_settle_of_what_is_unknown_or_over_changes_nothing(two: tuple[Side, Side]) -> None:
    here, far = two
    line = Line()
    there = Stranger(line.ends[1])
    sent = await here.send("ann", "bob", "hi", intent="request")
    local = await here.send("ann", "cat", "hi")
    async with running(here.serve(far, line.ends[0]), there.run()):
        await until(lambda: _is(here, sent, State.FORWARDED))
        outcome = {"id": sent.envelope.id, "handle": "bob", "state": "failed", "reason": "turn_failed"}
        for each in (
            outcome,
            {**outcome, "state": "delivered"},
            {**outcome, "state": "answered"},
            {**outcome, "state": "queued"},
            {**outcome, "id": "a" * 32},
            {**outcome, "id": local.envelope.id},
        ):
            await there.call("hub.settle", outcomes=[each])
    assert (await here.state(sent), await here.state(local)) == (State.FAILED, State.QUEUED)
    assert len(await here.notices("ann")) == 1


# ------------------------------------------------------------------------------------------------------------- rosters


async def test_a_roster_is_told_at_once_after_a_change_and_in_short_when_there_is_none(far: Far) -> None:
    there = far.stranger()
    async with running(far.serve(), there.run()):
        await until(lambda: there.count("hub.roster") == 1)
        assert _handles(there.asked[-1]) == ["ann", *SEED_AGENTS]
        await far.side.know("eve", member=True)
        far.side.bus.signals.wake(ROSTERS)
        await until(lambda: there.count("hub.roster") == 2)
        assert _handles(there.asked[-1]) == ["ann", "eve", *SEED_AGENTS]
        for count in (3, 4):
            await far.side.clock.advance(60)
            await until(lambda: there.count("hub.roster") == count)  # noqa: B023 - looked at before the next
            assert "rows" not in there.asked[-1].params
        there.answers["hub.roster"] = lambda request: {"known": "rows" in request.params}  # it has forgotten
        await far.side.clock.advance(60)
        await until(lambda: there.count("hub.roster") == 6)
        assert _handles(there.asked[-1]) == ["ann", "eve", *SEED_AGENTS]


@pytest.mark.parametrize("answer", [{}, {"known": False}, {"known": "yes"}, 7, [None]], ids=repr)
async def test_who_never_knows_a_roster_is_not_told_without_end(far: Far, answer: object) -> None:
    there = far.stranger(hub_roster=answer)
    async with running(far.serve(), there.run()):
        await until(lambda: there.count("hub.roster"))
        await asyncio.sleep(0.1)
        assert there.count("hub.roster") <= 2


@pytest.mark.parametrize(
    "params",
    [{"rows": "garbage"}, {"rows": {}}, {"rows": 7, "digest": "x"}, {"digest": 3}, {}, {"rows": None, "digest": []}],
    ids=repr,
)
async def test_a_roster_that_is_none_leaves_the_last_good_one(two: tuple[Side, Side], params: dict[str, Any]) -> None:
    here, far = two
    line = Line()
    there = Stranger(line.ends[1])
    async with running(here.serve(far, line.ends[0]), there.run()):
        answer = await there.ask("hub.roster", **params)
        assert answer == {"known": False} or (isinstance(answer, Refused) and answer.code != -32000)
        sent = await here.send("ann", "bob", "hi")
        await until(lambda: _is(here, sent, State.FORWARDED))


async def test_rows_that_are_no_good_cost_no_others(two: tuple[Side, Side]) -> None:
    here, far = two
    line = Line()
    there = Stranger(line.ends[1])
    good = {"handle": "zoe", "hub": far.id, "name": "garage", "way": [far.id]}
    bad: list[object] = [
        None, 7, [], {}, {**good, "handle": "a b"}, {**good, "hub": "x"}, {**good, "way": []},
        {**good, "way": [here.id]},
        {**good, "hub": here.id}, {**good, "name": "../etc"}, {**good, "online": "yes"},
    ]  # fmt: skip
    async with running(here.serve(far, line.ends[0]), there.run()):
        assert await there.call("hub.roster", rows=[*bad, good], digest="d") == {"known": True, "count": 1}
        assert await there.call("hub.roster", digest="d") == {"known": True}
        assert await there.call("hub.roster", digest="e") == {"known": False}
    assert here.bus.neighbours.count("garage") == 1
    assert [known.row.handle for known in here.bus.neighbours.everyone()] == ["zoe"]


# -------------------------------------------------------------------------------------------------------- bad behaviour


@pytest.mark.parametrize("method", ["hub.send", "hub.roster", "hub.settle", "hub.ping"])
async def test_who_answers_nothing_is_ended_in_time(far: Far, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_link, "CALL_SECONDS", 0.2)
    monkeypatch.setattr(hub_link, "PING_SECONDS", 0.05)
    there = far.stranger(**{method.replace(".", "_"): asyncio.Event()})
    sent = await far.side.send("ann", "bob", "hi")
    begun = asyncio.get_running_loop().time()
    async with running(far.serve(), there.run()) as (ours, _):
        if method == "hub.settle":
            item = await until(there.items)
            outside = {
                **item[0],
                "from": {"handle": "bob", "hub": "f" * 32},
                "to": {"handle": "ann", "hub": far.side.id},
            }
            await there.call(
                "hub.send", messages=[_whole({**outside, "id": "b" * 32, "thread": "b" * 32, "via": ["f" * 32]})]
            )
            await far.side.ack(await far.side.take_one("ann"))
        assert await ours == "The line ended: no answer within 0.2 s."
    assert asyncio.get_running_loop().time() - begun < 0.25 * MARGIN + 1
    if method == "hub.send":
        assert await far.side.state(sent) is State.QUEUED


async def test_a_line_that_swallows_everything_is_ended_in_time(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_link, "CALL_SECONDS", 0.1)
    far.line.deaf = True
    async with running(far.serve()) as (ours,):
        assert "no answer within 0.1 s" in str(await ours)


def _bad_requests() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, method in (("messages", "hub.send"), ("outcomes", "hub.settle")):
        given: object
        for given in (None, 7, "x", {}):
            yield method, {name: given}
        yield method, {}
    yield "hub.hello", {}
    yield "hub.prove", {"proof": "x"}
    yield "prompt.submit", {"text": "hi"}
    yield "x" * 5000, {}
    yield "hub.send", {"messages": [{}] * 1001}


@pytest.mark.parametrize(("method", "params"), list(_bad_requests()), ids=lambda value: repr(value)[:40])
async def test_a_request_that_is_none_is_refused_and_hurts_nobody(
    far: Far, method: str, params: dict[str, Any]
) -> None:
    there = far.stranger()
    async with running(far.serve(), there.run()):
        with pytest.raises(Refused) as refused:
            await there.call(method, **params)
        assert refused.value.code != -32000, "nothing broke inside"
        sent = await far.side.send("ann", "bob", "hi")
        await until(lambda: _is(far.side, sent, State.FORWARDED))


async def test_an_outcome_that_is_none_costs_the_others_nothing(far: Far) -> None:
    there = far.stranger()
    async with running(far.serve(), there.run()):
        sent = await far.side.send("ann", "bob", "hi")
        await until(lambda: _is(far.side, sent, State.FORWARDED))
        bad: tuple[object, ...] = (
            None,
            7,
            {},
            {"id": "x", "handle": "bob", "state": "delivered"},
            {"id": "a" * 32, "handle": "b c"},
        )
        good = {"id": sent.envelope.id, "handle": "bob", "state": "delivered"}
        assert await there.call("hub.settle", outcomes=[*bad, good]) == {"ok": True}
        await until(lambda: _is(far.side, sent, State.DELIVERED))


async def test_a_message_that_is_no_good_is_refused_alone(two: tuple[Side, Side]) -> None:
    here, far = two
    line = Line()
    good, items = Stranger(line.ends[1]), list[dict[str, Any]]()
    for word in ("1", "2"):
        await far.send("bob", "ann", word)
    other = Line()
    async with running(far.serve(here, other.ends[0]), (reader := Stranger(other.ends[1])).run()):
        items = await until(lambda: reader.items() if len(reader.items()) == 2 else None)
    first, last = items
    new = {**first, "id": "c" * 32, "thread": "c" * 32}
    bad: list[object] = [
        None, 7, {}, {**first, "id": "x"}, {**first, "text": "another"}, {**first, "via": [here.id]},
        {**first, "from": {"handle": "bob", "hub": "x"}}, {**first, "expires_in": 0}, {**first, "depth": -1},
        {**new, "to": {"handle": "nobody", "hub": here.id}}, {**first, "body": "{", "text": None},
        {**new, "kind": "notice"}, {**first, "via": ["a" * 32] * 9}, {**first, "called": "a b"},
    ]  # fmt: skip
    async with running(here.serve(far, line.ends[0]), good.run()):
        answers = await good.call("hub.send", messages=[first, *bad, last, first])
    assert [answer["stored"] for answer in answers] == [True, *[False] * len(bad), True, True]
    assert answers[-1]["repeat"] is True
    assert await here.texts("ann") == ["1", "2"]


async def test_what_a_link_says_of_others_stays_under_its_own_names(two: tuple[Side, Side]) -> None:
    """A sender that claims to be an agent of this hub, or the owner, is one of the link's."""
    here, far = two
    line, other = Line(), Line()
    there = Stranger(line.ends[1])
    await far.send("bob", "ann", "1")
    async with running(far.serve(here, other.ends[0]), (reader := Stranger(other.ends[1])).run()):
        [item] = await until(reader.items)
    async with running(here.serve(far, line.ends[0]), there.run()):
        for n, spot in enumerate([{"handle": "cat", "hub": here.id}, {"handle": "human", "hub": far.id}]):
            claim = _whole({**item, "id": f"{n}" * 32, "thread": f"{n}" * 32, "from": spot})
            await there.call("hub.send", messages=[claim])
    for envelope in await here.came("ann"):
        assert "@" in envelope.sender
        assert not envelope.verified or envelope.sender.endswith("@garage")


# ------------------------------------------------------------------------------------------------------------- looking


def _handles(request: Request) -> list[str]:
    rows: Any = request.params["rows"]
    return [row["handle"] for row in rows]


async def test_a_farewell_that_nobody_answers_says_so(
    far: Far, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hub_link, "FAREWELL_SECONDS", 0.1)
    channel = Channel(far.line.ends[0], max_bytes=100_000, depth=32, handle=_refuse, heard=lambda *_: None)
    link = hub_link.HubLink(far.side.bus, far.link)
    async with running(link.run(channel)):  # nobody is at the other end
        await until(lambda: far.line.passed)
        await link.say_farewell()
    assert "garage may go on showing our agents: no answer within 0.1 s" in caplog.messages


def _whole(item: dict[str, Any]) -> dict[str, Any]:
    """With the fingerprint of what it says now."""
    _, sender, to, intent, kind, thread = item["origin"]
    said = (sender.lower(), to.lower(), intent and Intent(intent), Kind(kind))
    mark = fingerprint(*said, item.get("text"), None, thread, item.get("in_reply_to"))
    return {**item, "fingerprint": mark.hex()}


async def _is(side: Side, of: Any, state: State) -> bool:
    return await side.state(of) is state


async def _is_put_off(side: Side, of: Any) -> bool:
    return (await side.row(of)).deferred


async def _all(side: Side, carrier: str, *states: State) -> bool:
    return await side.states(carrier) <= set(states)


async def _has(side: Side, agent: str, count: int) -> bool:
    return len(await side.came(agent)) >= count


async def _has_crossed(here: Side, far: Side, count: int) -> bool:
    """Whether so many have come to both sides, and both know that they have."""
    come = await _has(far, "bob", count) and await _has(here, "ann", count)
    return come and await _all(here, "garage", State.FORWARDED) and await _all(far, "home", State.FORWARDED)


async def _owes_nothing(side: Side, message_id: str) -> bool:
    return (await side.row(message_id)).owes is None


async def _at_rest(side: Side, carrier: str) -> None:
    """Nothing that goes by a connection is in anybody's hands."""
    await side.commit()
    assert State.LEASED not in await side.states(carrier)


async def _refuse(request: Request) -> object:
    raise Refusal(UNKNOWN_METHOD, request.method)
