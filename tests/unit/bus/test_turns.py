"""Turns over the bus: who takes before the adapter, one at a time, and one outcome for each message."""

import asyncio

import pytest

from angelia.bus import turns
from angelia.bus.agents import put_agent
from angelia.bus.ask import ask
from angelia.bus.caller import ADMIN, OPEN
from angelia.bus.cancel import cancel
from angelia.bus.draft import Draft
from angelia.bus.look import expected
from angelia.bus.runs import Run
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Intent, Kind, Replay
from angelia.model.errors import NotFound
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub, texts


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
    assert expected(hub.bus, await hub.row(sent), Intent.ACK) == "waits until the agent reads its mailbox"


async def test_a_receipt_says_that_the_turn_runs_and_what_waits_behind_it(hub: SmallHub) -> None:
    first, second = await hub.send_all("1", "2")
    await begin(hub)
    assert expected(hub.bus, await hub.row(first), Intent.INFORM) == "its turn is running"
    assert "busy with another message" in (expected(hub.bus, await hub.row(second), Intent.INFORM) or "")
