"""Turns over the bus: who takes before the adapter, one at a time, and one outcome for each message."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from angelia.bus import turns
from angelia.bus.agents import put_agent
from angelia.bus.ask import ask
from angelia.bus.caller import ADMIN, OPEN
from angelia.bus.cancel import cancel
from angelia.bus.draft import Draft
from angelia.bus.look import expected
from angelia.bus.ports import Parcel, Scope, Tx
from angelia.bus.runs import Run
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Intent, Kind, Replay
from angelia.model.errors import NotFound
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.storage.memory import MemoryStore
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub, texts
from tests.fakes.two_hubs import Neighbourhood

T = TypeVar("T")


class CountingStore(MemoryStore):
    """Counts the rows that units read of what waits."""

    rows = 0

    def write(self, work: Callable[[Tx], T], **how: Any) -> asyncio.Future[T]:
        return super().write(lambda tx: work(cast(Tx, CountingTx(self, tx))), **how)


class CountingTx:
    """A unit of it."""

    def __init__(self, store: CountingStore, tx: Tx) -> None:
        self._store, self._tx = store, tx

    def waiting(self, scope: Scope, limit: int, max_bytes: int) -> list[Parcel]:
        found = self._tx.waiting(scope, limit, max_bytes)
        self._store.rows += len(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


async def begin(hub: SmallHub, name: str = "ann") -> Run:
    run = await turns.begin(hub.bus, name, "command")
    assert run is not None
    return run


# ------------------------------------------------------------------------------------------------- who takes before it


async def test_it_may_look_only_where_no_other_hand_is_there(hub: SmallHub) -> None:
    assert turns.hold_off(hub.bus, "ann") is None
    await hub.send()
    assert turns.hold_off(hub.bus, "ann") == 0.0
    reader = await hub.listen()
    assert turns.hold_off(hub.bus, "ann") is None
    await reader.jam().items()
    await reader.close()
    assert turns.hold_off(hub.bus, "ann") == hub.bus.limits.adapter_after_seconds
    await hub.pass_time(hub.bus.limits.adapter_after_seconds - 1)
    assert turns.hold_off(hub.bus, "ann") == pytest.approx(1)
    await hub.pass_time(1)
    assert turns.hold_off(hub.bus, "ann") == 0.0


async def test_whoever_waits_in_a_claim_comes_first(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        claiming = tasks.create_task(hub.take(wait_seconds=30))
        await settle()
        await hub.send()
        await settle()
        assert texts(claiming.result()) == ["hi"]
    assert await turns.begin(hub.bus, "ann", "command") is None


async def test_a_stream_that_came_between_the_look_and_the_unit_keeps_its_mail(hub: SmallHub) -> None:
    await hub.send()
    await hub.listen()
    assert await turns.begin(hub.bus, "ann", "command") is None


# -------------------------------------------------------------------------------------------------------- one at a time


async def test_while_a_turn_runs_no_other_hand_gets_mail(hub: SmallHub) -> None:
    await hub.send_all("1", "2")
    run = await begin(hub)
    assert run.parcel.delivery.hand is Hand.TURN
    assert await turns.begin(hub.bus, "ann", "command") is None
    assert await hub.take() == []
    reader = await hub.listen()
    await hub.send(text="3")
    assert await reader.read() == []
    await turns.answered(hub.bus, run, "done")
    await settle()
    assert await reader.read() == ["2", "3"]


async def test_what_arrives_while_a_turn_runs_is_not_for_the_stream_either(hub: SmallHub) -> None:
    await hub.send(text="1")
    run = await begin(hub)
    reader = await hub.listen()
    assert await reader.read() == []
    sent = await hub.send(text="2")
    assert (await hub.row(sent)).state is State.QUEUED
    await turns.answered(hub.bus, run, "")
    assert await reader.read() == ["2"]


async def test_who_leaves_without_having_taken_anything_lets_the_adapter_look(hub: SmallHub) -> None:
    with hub.bus.runs.signals.watch("ann") as watch:
        reader = await hub.listen()
        ticket = watch.ticket()
        await reader.close()
        assert watch.changed(ticket).done()


async def test_acks_start_no_turn_and_are_shown_with_the_next(hub: SmallHub) -> None:
    noted = await hub.send(text="thanks", intent="ack")
    assert await turns.begin(hub.bus, "ann", "command") is None
    await hub.send(text="go")
    run = await begin(hub)
    assert texts([run.parcel]) == ["go"]
    assert texts(run.notes) == ["thanks"]
    await turns.answered(hub.bus, run, "")
    assert (await hub.row(noted)).state is State.DELIVERED


async def test_acks_of_a_turn_that_failed_are_shown_again(hub: SmallHub) -> None:
    noted = await hub.send(text="thanks", intent="ack")
    await hub.send(text="go")
    await turns.failed(hub.bus, await begin(hub), Reason.UNKNOWN, "no")
    assert ((await hub.row(noted)).state, (await hub.row(noted)).used) == (State.QUEUED, 0)


async def test_however_many_acks_stand_before_it_a_message_is_taken() -> None:
    hub = await SmallHub.open(Limits(claim_bytes=1000))
    await hub.send_all(
        *(f"{n} " + "x" * 500 for n in range(turns.LOOKED_AT + 1)), intent="ack"
    )  # by count, and by size
    assert await turns.begin(hub.bus, "ann", "command") is None
    await hub.send(text="go")
    run = await begin(hub)
    assert texts([run.parcel]) == ["go"]
    assert [text[:3] for text in texts(run.notes) if text][:2] == ["0 x", "1 x"]
    assert len(run.notes) == turns.NOTES


# -------------------------------------------------------------------------------------------------- what wakes nobody


@pytest.mark.parametrize("intent", ["inform", "request", "ack"])
@pytest.mark.parametrize("to", ["ann", "ANN", "ann@local", "ann@hub"])
async def test_what_an_agent_sends_to_itself_starts_no_turn_and_waits_for_a_reader(
    hub: SmallHub, intent: str, to: str
) -> None:
    sent = await hub.send("Ann", to, "note", intent=intent)
    assert await turns.begin(hub.bus, "ann", "command") is None
    assert await hub.state(sent) is State.QUEUED
    reader = await hub.listen()
    assert await reader.read() == ["note"]
    assert (await hub.row(sent)).state is State.LEASED


async def test_what_it_sent_to_itself_starts_none_after_it_came_back_either(hub: SmallHub) -> None:
    sent = await hub.send("ann", "ann", "note")
    await hub.nack(await hub.take_one(), 0)
    assert await turns.begin(hub.bus, "ann", "command") is None
    await hub.restart()
    assert await turns.begin(hub.bus, "ann", "command") is None
    await hub.ack(await hub.take_one())
    assert await hub.state(sent) is State.DELIVERED


async def test_an_answer_to_itself_starts_none(hub: SmallHub) -> None:
    asked = await hub.send("ann", "ann", "?", intent="request")
    await hub.send("ann", None, "!", kind=Kind.REPLY, in_reply_to=asked.envelope.id)
    assert await turns.begin(hub.bus, "ann", "command") is None
    assert texts(await hub.take()) == ["!"]


async def test_what_it_sent_to_itself_holds_up_no_mail_of_others(hub: SmallHub) -> None:
    """It stands behind theirs, however much of it there is: the first that waits is what a turn would take."""
    notes = [str(n) for n in range(1000)]
    await hub.send_all(*notes, sender="ann")
    await hub.send_all("1st", "2nd")
    first = await hub.bus.store.read(lambda view: view.waiting(Scope(mailbox="ann"), 1, 1))
    assert texts(first) == ["1st"]
    for text in ("1st", "2nd"):
        run = await begin(hub)
        assert (texts([run.parcel]), run.notes) == ([text], [])
        await turns.answered(hub.bus, run, "")
    assert await turns.begin(hub.bus, "ann", "command") is None
    found = [text for _ in range(10) for text in texts(await hub.take())]
    assert found == notes


async def test_however_much_it_sent_to_itself_a_look_reads_one_of_it() -> None:
    store = CountingStore()
    hub = await SmallHub.open(store=store)
    await hub.send_all(*map(str, range(turns.LOOKED_AT * 2)), sender="ann")
    store.rows = 0
    assert await turns.begin(hub.bus, "ann", "command") is None
    assert store.rows == 1
    await hub.send(text="ok", intent="ack")
    await hub.send(text="go")
    store.rows = 0
    assert texts((await begin(hub)).notes) == ["ok"]
    assert store.rows <= 1 + turns.LOOKED_AT


async def test_neither_an_ack_nor_a_note_to_itself_wakes_the_adapter(hub: SmallHub) -> None:
    """Others, who may read it, are waked by both."""
    with hub.bus.runs.signals.watch("ann") as adapter, hub.bus.signals.watch("ann") as reader:
        for sender, intent, wakes in (("ann", None, False), ("bob", "ack", False), ("bob", None, True)):
            tickets = adapter.ticket(), reader.ticket()
            await hub.send(sender, "ann", intent=intent)
            assert (adapter.changed(tickets[0]).done(), reader.changed(tickets[1]).done()) == (wakes, True)


async def test_what_becomes_of_a_question_to_itself_starts_no_turn_either(hub: SmallHub) -> None:
    sent = await hub.send("ann", "ann", "?", intent="request", ttl_seconds=5)
    await hub.pass_time(6)
    row = await hub.row(sent)
    assert (row.state, row.reason) == (State.FAILED, Reason.QUEUED_EXPIRED)
    assert [notice.reason for notice in await hub.notices("ann")] == ["queued_expired"]
    assert await turns.begin(hub.bus, "ann", "command") is None


async def test_somebody_elsewhere_of_the_same_name_is_another() -> None:
    two = await Neighbourhood.of(lap="ann", rack="ann")
    await (await two.line("lap", "rack")).meet()
    await two["lap"].send("ann", "ann@rack", "hello")
    await two.run()
    run = await turns.begin(two["rack"].bus, "ann", "command")
    assert run is not None
    assert (run.parcel.envelope.sender, run.parcel.envelope.text) == ("ann@lap", "hello")


# ------------------------------------------------------------------------------------------------------------- its ends


async def test_the_answer_and_the_end_are_one(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    assert await turns.answered(hub.bus, await begin(hub), "42")
    assert (await hub.row(sent)).state is State.ANSWERED
    (reply,) = await hub.take("bob")
    assert (reply.envelope.kind, reply.envelope.text, reply.envelope.sender) == (Kind.REPLY, "42", "ann")
    assert (reply.envelope.intent, reply.envelope.verified) == (Intent.INFORM, True)
    assert hub.bus.runs.busy == {}


async def test_an_answer_finds_room_in_a_full_mailbox(hub: SmallHub) -> None:
    small = await SmallHub.open(Limits(mailbox_deliveries=1))
    await small.send("ann", "bob", "fills it")
    await small.send(intent="request")
    assert await turns.answered(small.bus, await begin(small), "42")
    assert texts(await small.take("bob")) == ["fills it", "42"]


async def test_an_empty_answer_to_a_request_is_one_and_to_an_inform_is_none(hub: SmallHub) -> None:
    await hub.send(intent="request")
    assert await turns.answered(hub.bus, await begin(hub), "")
    informed = await hub.send()
    assert not await turns.answered(hub.bus, await begin(hub), "")
    assert (await hub.row(informed)).state is State.DELIVERED
    (reply,) = await hub.take("bob")
    assert (reply.envelope.text, reply.envelope.intent) == ("", Intent.ACK)  # nothing to wake anybody for


async def test_what_is_said_to_an_answer_goes_nowhere(hub: SmallHub) -> None:
    await hub.send("ann", "bob", "?", intent="request")
    await turns.answered(hub.bus, await begin(hub, "bob"), "!")
    run = await begin(hub)
    assert run.parcel.envelope.kind is Kind.REPLY
    assert not await turns.answered(hub.bus, run, "thanks")
    assert await hub.take("bob") == []


async def test_an_agent_that_answered_by_itself_is_not_answered_for_again(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    run = await begin(hub)
    await hub.send("ann", None, "by hand", in_reply_to=sent.envelope.id, kind=Kind.REPLY)
    assert not await turns.answered(hub.bus, run, "by turn")
    assert texts(await hub.take("bob")) == ["by hand"]


async def test_a_failure_tells_the_sender_with_reason_and_text(hub: SmallHub) -> None:
    sent = await hub.send()
    await turns.failed(hub.bus, await begin(hub), Reason.PROVIDER_RATE_LIMIT, "Try at noon.")
    assert ((await hub.row(sent)).state, (await hub.row(sent)).reason) == (State.FAILED, Reason.PROVIDER_RATE_LIMIT)
    (notice,) = await hub.take("bob")
    assert (notice.envelope.kind, notice.envelope.reason) == (Kind.NOTICE, "provider_rate_limit")
    assert "Try at noon." in (notice.envelope.text or "")


async def test_an_answer_whose_turn_fails_is_a_dead_letter_and_nothing_else(hub: SmallHub) -> None:
    await hub.send("ann", "bob", "?", intent="request")
    await turns.answered(hub.bus, await begin(hub, "bob"), "!")
    run = await begin(hub)
    await turns.failed(hub.bus, run, Reason.UNKNOWN, "broken")
    row = await hub.bus.store.read(lambda view: view.delivery(run.parcel.delivery.key))
    assert row is not None
    assert (row.state, row.reason) == (State.DEAD, Reason.UNKNOWN)
    assert await hub.take("bob") == []


async def test_what_the_agent_takes_now_and_answers_later_is_delivered(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    await turns.accepted(hub.bus, await begin(hub))
    assert (await hub.row(sent)).state is State.DELIVERED


async def test_a_second_attempt_keeps_its_place_and_there_is_no_third(hub: SmallHub) -> None:
    await hub.send_all("1", "2")
    run = await begin(hub)
    assert await turns.again(hub.bus, run)
    assert texts([run.parcel]) == ["1"]
    assert (run.parcel.delivery.attempt, run.parcel.delivery.used) == (2, 1)
    assert await turns.begin(hub.bus, "ann", "command") is None
    assert not await turns.again(hub.bus, run)
    await turns.failed(hub.bus, run, Reason.UNKNOWN, "no")
    assert texts([(await begin(hub)).parcel]) == ["2"]


async def test_what_was_withdrawn_meanwhile_is_answered_late_and_stays_withdrawn(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    run = await begin(hub)
    await cancel(hub.bus, OPEN, sent.envelope.id)
    assert not await turns.again(hub.bus, run)
    assert await turns.answered(hub.bus, run, "too late")
    assert (await hub.row(sent)).state is State.FAILED
    (reply,) = await hub.take("bob")
    assert reply.delivery.late


async def test_what_a_person_must_decide_is_held(hub: SmallHub) -> None:
    sent = await hub.send(replay=Replay.ASK, intent="request")
    run = await begin(hub)
    assert turns.replays(run) is Replay.ASK
    await turns.held(hub.bus, run)
    assert ((await hub.row(sent)).state, (await hub.row(sent)).reason) == (State.HELD, Reason.OUTCOME_UNKNOWN)


async def test_what_was_given_back_was_never_taken(hub: SmallHub) -> None:
    await hub.send_all("1", "2")
    await turns.given_back(hub.bus, await begin(hub))
    parcels = await hub.take()
    assert (texts(parcels), parcels[0].delivery.used) == (["1", "2"], 0)


async def test_a_question_that_waits_is_answered_by_the_turn(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, Draft(sender="bob", to="ann", text="?"), 30))
        await settle()
        await turns.answered(hub.bus, await begin(hub), "!")
        await settle()
        reply = asking.result().reply
    assert reply is not None
    assert reply.text == "!"


async def test_a_question_that_waits_is_told_why_there_is_no_answer(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, Draft(sender="bob", to="ann", text="?"), 30))
        await settle()
        await turns.failed(hub.bus, await begin(hub), Reason.MISSING_CONFIG, "Its program is gone.")
        await settle()
        failure = asking.result().failure
    assert failure is not None
    assert failure[0] is Reason.MISSING_CONFIG
    assert "Its program is gone." in failure[1]


# ------------------------------------------------------------------------------------------------- starts, and stopping


async def test_what_the_hub_before_was_in_the_middle_of_is_found_and_blocks_its_mailbox(hub: SmallHub) -> None:
    await hub.send(text="ok", intent="ack")
    await hub.send_all("1", "2")
    await begin(hub)
    await hub.restart()
    (run,) = await turns.orphans(hub.bus)
    assert (texts([run.parcel]), texts(run.notes), run.orphan) == (["1"], ["ok"], True)
    assert await turns.begin(hub.bus, "ann", "command") is None
    assert await turns.again(hub.bus, run)
    await turns.answered(hub.bus, run, "done")
    nxt = await begin(hub)
    assert (texts(nxt.notes), texts([nxt.parcel])) == ([], ["2"])


async def test_a_turn_is_stopped_by_its_message_and_no_other(hub: SmallHub) -> None:
    sent = await hub.send()
    with pytest.raises(NotFound):
        turns.stop(hub.bus, sent.envelope.id)
    run = await begin(hub)
    stopped = []
    run.stop = lambda: stopped.append(True)
    assert turns.stop(hub.bus, sent.envelope.id) is run
    assert (run.stopped, stopped) == (True, [True])
    with pytest.raises(NotFound):
        turns.stop(hub.bus, "0" * 32)


async def test_a_receipt_says_that_the_agent_is_woken_for_it(hub: SmallHub) -> None:
    sent = await hub.send()
    assert expected(hub.bus, await hub.row(sent), Intent.INFORM) == "waits until the agent reads its mailbox"
    await put_agent(hub.bus, ADMIN, "ann", None, None, b'{"kind":"command"}')
    assert expected(hub.bus, await hub.row(sent), Intent.INFORM) == "the hub wakes the agent for it"
    assert expected(hub.bus, await hub.row(sent), Intent.ACK) == "is shown with the agent's next turn"


async def test_a_receipt_says_of_what_was_sent_to_oneself_why_it_waits(hub: SmallHub) -> None:
    note = await hub.send("ann", "ann", "note")
    assert expected(hub.bus, await hub.row(note), Intent.INFORM) == "waits until the agent reads its mailbox"
    await put_agent(hub.bus, ADMIN, "ann", None, None, b'{"kind":"command"}')
    told = "nobody is woken by what it sent to itself; waits until the agent reads its mailbox"
    assert expected(hub.bus, await hub.row(note), Intent.INFORM) == told
    await hub.send()
    await begin(hub)
    assert expected(hub.bus, await hub.row(note), Intent.INFORM) == told
    await hub.listen()
    assert expected(hub.bus, await hub.row(note), Intent.INFORM) == "the agent is connected and takes it next"


# --------------------------------------------------------------------------------------- whether it can be woken at all


@pytest.mark.parametrize(("reason", "works"), [
    (Reason.MISSING_CONFIG, False), (Reason.RUNTIME_OFFLINE, False), (Reason.PROVIDER_QUOTA_LIMIT, True),
    (Reason.CANCELLED, True),
])  # fmt: skip
async def test_a_turn_that_nobody_was_there_to_run_shows_that_the_way_does_not_work(
    hub: SmallHub, reason: Reason, works: bool
) -> None:
    ann = await put_agent(hub.bus, ADMIN, "ann", None, None, b'{"kind":"command"}')
    await hub.send()
    run = await begin(hub)
    run.spec = ann.adapter
    await turns.failed(hub.bus, run, reason, "no")
    assert hub.bus.working.works(ann) is works


async def test_a_turn_that_came_to_its_end_shows_that_it_works(hub: SmallHub) -> None:
    ann = await put_agent(hub.bus, ADMIN, "ann", None, None, b'{"kind":"command"}')
    for bring_back in (turns.accepted, lambda bus, run: turns.answered(bus, run, "")):
        turns.looked_at(hub.bus, ann, works=False)
        await settle()
        assert not hub.bus.working.works(ann)
        await hub.send()
        run = await begin(hub)
        run.spec = ann.adapter
        await bring_back(hub.bus, run)
        assert hub.bus.working.works(ann)


async def test_so_does_a_look_that_finds_nothing_wrong(hub: SmallHub) -> None:
    ann = await put_agent(hub.bus, ADMIN, "ann", None, None, b'{"kind":"command"}')
    for works in (False, False, True):
        turns.looked_at(hub.bus, ann, works=works)
        await settle()
        assert hub.bus.working.works(ann) is works


async def test_a_receipt_says_that_the_turn_runs_and_what_waits_behind_it(hub: SmallHub) -> None:
    first, second = await hub.send_all("1", "2")
    await begin(hub)
    assert expected(hub.bus, await hub.row(first), Intent.INFORM) == "its turn is running"
    assert "busy with another message" in (expected(hub.bus, await hub.row(second), Intent.INFORM) or "")
