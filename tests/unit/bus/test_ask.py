"""Blocking questions: the answer goes to who waits, is settled when it was written, and is never lost in between."""

import asyncio
from itertools import pairwise

import pytest

from angelia.bus.agents import make_token
from angelia.bus.ask import Answer, ask, finished
from angelia.bus.caller import ADMIN, OPEN
from angelia.bus.cancel import cancel
from angelia.bus.core import close_bus
from angelia.bus.draft import Accepted, Draft
from angelia.bus.ports import Parcel
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Intent, Kind
from angelia.model.errors import AskCycle, BadRequest, IdReused, MailboxFull, Stopping, TokenRequired, UnknownAgent
from angelia.model.limits import Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub, texts
from tests.fakes.troubled_store import TroubledStore

ID = "0" * 31 + "a"


def question(sender: str = "bob", to: str = "ann", **more: str) -> Draft:
    return Draft(sender=sender, to=to, text="?", **more)  # type: ignore[arg-type]


async def answer(hub: SmallHub, to: Parcel | str, sender: str = "ann", text: str = "!") -> Accepted:
    asked = to if isinstance(to, str) else to.envelope.id
    return await hub.send(sender, None, text, kind=Kind.REPLY, in_reply_to=asked)


async def asked_and_answered(hub: SmallHub, **more: str) -> Answer:
    """A question from bob whose answer is in the waiter's hands."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, question(**more), 30))
        await answer(hub, (await hub.take(wait_seconds=5))[0])
    return asking.result()


# --------------------------------------------------------------------------------------------------------- the answer


async def test_an_ask_is_a_request_and_brings_its_reply(hub: SmallHub) -> None:
    got = await asked_and_answered(hub)
    assert got.reply is not None
    assert (got.question.intent, got.reply.text, got.pending) == (Intent.REQUEST, "!", False)


async def test_the_reply_is_settled_when_it_was_written_and_not_before(hub: SmallHub) -> None:
    got = await asked_and_answered(hub)
    assert got.reply is not None
    row = await hub.row(got.reply.id)
    assert (row.state, row.attempt, row.hand) == (State.LEASED, 1, Hand.ASK)
    finished(hub.bus, got, written=True)
    await hub.commit()
    assert await hub.state(got.reply.id) is State.DELIVERED
    assert len(hub.bus.asks) == 0


async def test_a_reply_that_could_not_be_written_stays_in_the_mailbox(hub: SmallHub) -> None:
    got = await asked_and_answered(hub)
    finished(hub.bus, got, written=False)
    await settle()
    (row,) = [p.delivery for p in await hub.mailbox("bob")]
    assert (row.state, row.used) == (State.QUEUED, 0)
    assert texts(await hub.take("bob")) == ["!"]
    assert len(hub.bus.asks) == 0


async def test_a_reply_cannot_slip_past_a_question_that_is_being_stored(
    store: TroubledStore, troubled: SmallHub
) -> None:
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(troubled.bus, question(id=ID), 30))
        await settle()
        tasks.create_task(answer(troubled, ID))
        await store.let_go()
    got = asking.result()
    assert got.reply is not None
    assert (await troubled.row(got.reply.id)).hand is Hand.ASK


async def test_a_reply_that_commits_while_the_ask_looks_is_not_missed(store: TroubledStore, troubled: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(troubled.bus, question(id=ID), 30))
        await settle()
        store.late = True
        troubled.bus.signals.wake("message:" + ID)
        await settle()  # it has looked once more, and does not know yet what it saw
        tasks.create_task(answer(troubled, ID))
        await store.let_go()
        assert asking.done()


async def test_a_reply_that_the_own_stream_has_is_told_all_the_same(hub: SmallHub) -> None:
    sent = await hub.send(id=ID, text="?", intent="request")
    reader = await hub.listen("bob")
    await answer(hub, sent.envelope.id)
    got = await ask(hub.bus, question(id=ID, intent="request"), 0)
    assert got.reply is not None
    assert await reader.read() == ["!"]
    finished(hub.bus, got, written=True)
    await hub.commit()
    assert await hub.state(got.reply.id) is State.DELIVERED


async def test_a_second_answer_goes_to_the_mailbox(hub: SmallHub) -> None:
    got = await asked_and_answered(hub)
    await answer(hub, got.question.id, text="and another")
    assert texts(await hub.take("bob")) == ["and another"]
    finished(hub.bus, got, written=True)


async def test_of_many_that_were_asked_the_first_answers(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, question(to="*"), 30))
        (asked,) = await hub.take("hermes", wait_seconds=5)
        await answer(hub, asked, "hermes", "me")
    got = asking.result()
    assert got.reply is not None
    assert got.reply.sender == "hermes"
    finished(hub.bus, got, written=True)
    await answer(hub, asked.envelope.id, "openclaw", "me too")
    assert texts(await hub.take("bob")) == ["me too"]


# --------------------------------------------------------------------------------------------- an answer that is late


async def test_without_an_answer_it_says_where_the_question_stands(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, question(), 5))
        await hub.clock.advance(5.1)
    got = asking.result()
    assert got.pending
    assert [row.state for row in got.deliveries] == [State.QUEUED]


async def test_for_five_seconds_the_reply_is_kept_for_the_same_question(hub: SmallHub) -> None:
    reader = await hub.listen("bob")
    first = await ask(hub.bus, question(id=ID), 0)
    finished(hub.bus, first, written=True)
    await hub.pass_time(4)
    await answer(hub, ID)
    assert await reader.items() == []
    second = await ask(hub.bus, question(id=ID), 0)
    assert second.reply is not None
    finished(hub.bus, second, written=True)
    await hub.commit()
    assert await hub.state(second.reply.id) is State.DELIVERED
    assert await reader.items() == []


async def test_after_five_seconds_the_reply_goes_to_the_mailbox(hub: SmallHub) -> None:
    first = await ask(hub.bus, question(id=ID), 0)
    finished(hub.bus, first, written=True)
    await hub.pass_time(4)
    await answer(hub, ID)
    assert hub.bus.store.load("bob").ready == 0
    await hub.pass_time(2)
    await hub.commit()
    assert texts(await hub.take("bob")) == ["!"]
    assert len(hub.bus.asks) == 0


async def test_asking_again_begins_the_five_seconds_anew(hub: SmallHub) -> None:
    for _ in range(2):
        await hub.pass_time(4)
        finished(hub.bus, await ask(hub.bus, question(id=ID), 0), written=True)
    await hub.pass_time(2)  # the first five seconds are over, the second are not
    await answer(hub, ID)
    assert hub.bus.store.load("bob").ready == 0
    got = await ask(hub.bus, question(id=ID), 0)
    assert got.reply is not None


async def test_a_reply_that_came_to_the_mailbox_is_taken_by_a_later_ask(hub: SmallHub) -> None:
    finished(hub.bus, await ask(hub.bus, question(id=ID), 0), written=True)
    await hub.pass_time(6)
    await answer(hub, ID)
    got = await ask(hub.bus, question(id=ID), 0)
    assert got.reply is not None
    assert (await hub.row(got.reply.id)).hand is Hand.ASK
    finished(hub.bus, got, written=True)
    await hub.commit()
    assert await hub.take("bob") == []


async def test_a_reply_taken_out_of_the_mailbox_takes_a_new_seq_like_any_other(hub: SmallHub) -> None:
    finished(hub.bus, await ask(hub.bus, question(id=ID), 0), written=False)
    await settle()
    reply = await answer(hub, ID)
    await hub.send("human", "bob", "first")
    held = await hub.take("bob")
    await hub.nack(held[0], 0)
    got = await ask(hub.bus, question(id=ID), 0)
    assert got.reply is not None
    row = await hub.row(reply)
    assert row.attempt == 2
    assert row.seq > held[1].delivery.seq


async def test_a_caller_that_did_not_get_its_202_keeps_nothing_back(hub: SmallHub) -> None:
    got = await ask(hub.bus, question(id=ID), 0)
    finished(hub.bus, got, written=False)
    await hub.commit()
    await answer(hub, ID)
    assert texts(await hub.take("bob")) == ["!"]


async def test_the_same_question_from_two_calls_is_one_and_both_get_the_reply(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        both = [tasks.create_task(ask(hub.bus, question(id=ID), 30)) for _ in range(2)]
        await answer(hub, (await hub.take(wait_seconds=5))[0])
    assert [got.result().reply is not None for got in both] == [True, True]
    assert len(await hub.mailbox("ann", *State)) == 1
    finished(hub.bus, both[0].result(), written=True)
    finished(hub.bus, both[1].result(), written=False)
    await hub.commit()
    assert await hub.take("bob") == []


@pytest.mark.parametrize("first_wrote", [True, False])
async def test_a_reply_that_one_of_two_calls_has_told_is_settled(hub: SmallHub, first_wrote: bool) -> None:
    async def call(written: bool) -> None:
        finished(hub.bus, await ask(hub.bus, question(id=ID), 30), written=written)  # before the other one hears

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(call(first_wrote))
        tasks.create_task(call(not first_wrote))
        await answer(hub, (await hub.take(wait_seconds=5))[0])
    await hub.commit()
    assert await hub.take("bob") == []


@pytest.mark.parametrize("first_wrote", [True, False])
async def test_one_of_two_callers_that_goes_away_takes_nothing_from_the_other(hub: SmallHub, first_wrote: bool) -> None:
    async with asyncio.TaskGroup() as tasks:
        stays = tasks.create_task(ask(hub.bus, question(id=ID), 30))
        goes = tasks.create_task(ask(hub.bus, question(id=ID), 30))
        await settle()
        goes.cancel()
        await answer(hub, (await hub.take(wait_seconds=5))[0])
    finished(hub.bus, stays.result(), written=first_wrote)
    await hub.commit()
    assert texts(await hub.take("bob")) == ([] if first_wrote else ["!"])


async def test_a_repeat_by_its_key_gets_the_answer_of_the_first(hub: SmallHub) -> None:
    first = await ask(hub.bus, question(key="k"), 0)
    finished(hub.bus, first, written=True)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, question(key="k"), 30))
        await settle()
        sent = await answer(hub, first.question.id)
    got = asking.result()
    assert (got.question.id, got.reply) == (first.question.id, sent.envelope)
    assert sent.deliveries[0].hand is Hand.ASK
    finished(hub.bus, got, written=True)
    await hub.commit()
    assert len(hub.bus.asks) == 0


# ------------------------------------------------------------------------------------------------------------ failure


async def test_a_question_that_fails_ends_the_wait_with_the_reason(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, question(id=ID), 30))
        await settle()
        await cancel(hub.bus, OPEN, ID)
    got = asking.result()
    assert got.failure is not None
    assert got.failure[0] == "cancelled"


async def test_the_notice_of_a_failure_is_settled_with_the_answer_that_tells_it(hub: SmallHub) -> None:
    draft = question(id=ID)
    draft.ttl_seconds = 3
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, draft, 30))
        await settle()
        await hub.pass_time(4)
    got = asking.result()
    assert got.failure is not None
    assert got.failure[0] == "queued_expired"
    (notice,) = await hub.mailbox("bob")
    assert (notice.delivery.state, notice.delivery.hand) == (State.LEASED, Hand.ASK)
    finished(hub.bus, got, written=True)
    await hub.commit()
    assert await hub.mailbox("bob") == []


async def test_the_notice_that_could_not_be_told_stays_in_the_mailbox(hub: SmallHub) -> None:
    draft = question(id=ID)
    draft.ttl_seconds = 3
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, draft, 30))
        await settle()
        await hub.pass_time(4)
    finished(hub.bus, asking.result(), written=False)
    await settle()
    assert len(await hub.take("bob")) == 1


async def failed_while_nobody_waited(hub: SmallHub) -> None:
    """A question of bob's that came to nothing, with the notice in his mailbox behind older ones."""
    for to in ("cat", "ann"):
        await hub.send(to=to, id=ID if to == "ann" else None, text="?", intent="request", ttl_seconds=3)
    await hub.pass_time(4)


@pytest.mark.parametrize("written", [True, False])
async def test_a_notice_that_came_to_the_mailbox_is_taken_by_a_later_ask(hub: SmallHub, written: bool) -> None:
    await failed_while_nobody_waited(hub)
    (other, notice) = await hub.notices()
    got = await ask(hub.bus, question(id=ID), 0)
    assert got.failure == ("queued_expired", notice.text)
    assert (await hub.row(notice.id)).hand is Hand.ASK
    finished(hub.bus, got, written=written)
    await hub.commit()
    assert [p.envelope for p in await hub.mailbox("bob")] == ([other] if written else [other, notice])


async def test_both_of_two_calls_are_told_by_one_notice(hub: SmallHub) -> None:
    await failed_while_nobody_waited(hub)
    async with asyncio.TaskGroup() as tasks:
        both = [tasks.create_task(ask(hub.bus, question(id=ID), 30)) for _ in range(2)]
    answers = [asking.result() for asking in both]
    assert answers[0].failure == answers[1].failure
    for got in answers:
        finished(hub.bus, got, written=True)
    await hub.commit()
    assert len(await hub.mailbox("bob")) == 1


async def test_a_notice_that_the_asker_has_read_is_told_all_the_same(hub: SmallHub) -> None:
    await failed_while_nobody_waited(hub)
    for parcel in await hub.take("bob"):
        await hub.ack(parcel)
    got = await ask(hub.bus, question(id=ID), 0)
    assert got.failure is not None
    assert got.failure[0] == "queued_expired"


async def test_a_delivered_question_whose_time_is_over_has_failed(hub: SmallHub) -> None:
    draft = question(id=ID)
    draft.ttl_seconds = 3
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, draft, 30))
        await hub.ack((await hub.take(wait_seconds=5))[0])
        await hub.pass_time(4)
    got = asking.result()
    assert got.failure is not None
    assert got.failure[0] == "delivery_timeout"


async def test_of_many_that_were_asked_one_failure_does_not_end_the_wait(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, question(to="*"), 30))
        (first,) = await hub.take("hermes", wait_seconds=5)
        for _ in range(10):
            await hub.nack(first, 0)
            (first,) = await hub.take("hermes") or [first]
        assert (await hub.row(first, "hermes")).state is State.DEAD
        assert not asking.done()
        (other,) = await hub.take("openclaw")
        await answer(hub, other, "openclaw", "here")
    got = asking.result()
    assert got.reply is not None
    finished(hub.bus, got, written=True)
    await hub.commit()
    assert [n.reason for n in await hub.notices()] == ["attempts_used_up"]
    assert texts(await hub.take("bob")) != ["here"]


# ------------------------------------------------------------------------------------------- going away, and refusals


@pytest.mark.parametrize("moment", ["storing", "waiting", "answered"])
async def test_a_caller_who_went_away_leaves_the_reply_in_the_mailbox(
    store: TroubledStore, troubled: SmallHub, moment: str
) -> None:
    async with asyncio.TaskGroup() as tasks:
        store.late = moment == "storing"
        asking = tasks.create_task(ask(troubled.bus, question(id=ID), 30))
        await settle()
        if moment != "answered":
            asking.cancel()
            await settle()
            await store.let_go()
        else:
            store.late = True
        replying = tasks.create_task(answer(troubled, ID))
        await settle()
        if moment == "answered":
            asking.cancel()
        await settle()
        await store.let_go()
    assert replying.done()
    await troubled.commit()
    assert asking.cancelled()
    assert len(troubled.bus.asks) == 0
    assert texts(await troubled.take("bob")) == ["!"]


async def test_what_is_leased_to_a_waiter_as_it_closes_goes_back(store: TroubledStore, troubled: SmallHub) -> None:
    got = await ask(troubled.bus, question(id=ID), 0)
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(answer(troubled, ID))
        await settle()
        finished(troubled.bus, got, written=False)
        await store.let_go()
    await troubled.commit()
    assert texts(await troubled.take("bob")) == ["!"]


async def test_a_second_answer_that_races_with_the_end_of_the_ask_is_not_lost(
    store: TroubledStore, troubled: SmallHub
) -> None:
    reader = await troubled.listen("bob")
    sent = await troubled.send(id=ID, text="?", intent="request")
    await answer(troubled, sent.envelope.id, text="first")
    assert await reader.read() == ["first"]
    await reader.close()
    got = await ask(troubled.bus, question(id=ID, intent="request"), 0)
    assert got.reply is not None
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(answer(troubled, ID, text="second"))
        await settle()
        finished(troubled.bus, got, written=True)
        await store.let_go()
    await troubled.commit()
    assert "second" in texts(await troubled.take("bob"))


async def test_a_refused_question_leaves_nobody_waiting() -> None:
    hub = await SmallHub.open(Limits(mailbox_deliveries=0))
    with pytest.raises(MailboxFull):
        await ask(hub.bus, question(), 30)
    with pytest.raises(UnknownAgent):
        await ask(hub.bus, question(to="nobody"), 30)
    with pytest.raises(BadRequest):
        await ask(hub.bus, question(), 61)
    with pytest.raises(BadRequest):
        await ask(hub.bus, question(), float("nan"))
    await settle()
    assert len(hub.bus.asks) == 0


async def test_another_question_under_the_same_id_is_refused_and_harms_nobody(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, question(id=ID), 30))
        await settle()
        for wrong in (question("cat", id=ID), question(to="cat", id=ID)):
            with pytest.raises(IdReused):
                await ask(hub.bus, wrong, 30)
        sent = await answer(hub, ID)
    assert sent.deliveries[0].hand is Hand.ASK
    assert asking.result().reply is not None


async def test_whoever_waits_as_an_open_name_waits_no_more_once_it_is_keyed(hub: SmallHub) -> None:
    async def refused() -> None:
        with pytest.raises(TokenRequired):
            await ask(hub.bus, question(), 30)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(refused())
        (asked,) = await hub.take(wait_seconds=5)
        await make_token(hub.bus, ADMIN, "bob")
    await answer(hub, asked, text="for its owner")
    assert texts(await hub.take("bob")) == ["for its owner"]


async def test_a_hub_that_stops_ends_the_wait_and_takes_no_question(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, question(), 30))
        await settle()
        await close_bus(hub.bus)
    assert asking.result().pending
    with pytest.raises(Stopping):
        await ask(hub.bus, question(), 1)


# ------------------------------------------------------------------------------------------------------------ circles


@pytest.mark.parametrize("length", [1, 2, 3, 5])
async def test_a_circle_is_refused_to_the_one_that_would_close_it(length: int) -> None:
    names = ["a1", "b2", "c3", "d4", "e5"][:length]
    hub = await SmallHub.open(known=names)
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(ask(hub.bus, question(one, other), 30)) for one, other in pairwise(names)]
        await settle()
        before = len(await hub.mailbox(names[0]))
        with pytest.raises(AskCycle) as refused:
            await ask(hub.bus, question(names[-1], names[0]), 30)
        assert all(name in refused.value.detail for name in names)
        assert len(await hub.mailbox(names[0])) == before
        for each in waiting:
            assert not each.done()
        await hub.clock.advance(31)


async def test_no_circle_is_closed_once_a_wait_is_over(hub: SmallHub) -> None:
    finished(hub.bus, await ask(hub.bus, question("ann", "bob"), 0), written=True)
    finished(hub.bus, await ask(hub.bus, question("bob", "ann"), 0), written=True)


async def test_a_person_closes_no_circle(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, question("ann", "human"), 30))
        await settle()
        other = tasks.create_task(ask(hub.bus, question("human", "ann"), 30))
        await hub.clock.advance(31)
    assert asking.result().pending
    assert other.result().pending


async def test_an_answer_from_inside_the_question_is_no_circle(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, question("ann", "bob"), 30))
        (asked,) = await hub.take("bob", wait_seconds=5)
        nested = tasks.create_task(ask(hub.bus, question("bob", "cat"), 30))
        (inner,) = await hub.take("cat", wait_seconds=5)
        await answer(hub, inner, "cat", "inner")
        await settle()
        assert nested.done()
        await answer(hub, asked, "bob", "outer")
    assert asking.result().reply is not None
