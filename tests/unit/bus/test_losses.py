"""Mail that was set aside, since bits of it had flipped: what its sender learns, what stands in its place, and that it
is seen to once. What the store leaves of it is written here as the SQLite store writes it."""

import asyncio
from typing import Any

import msgspec
import pytest

from angelia.bus.ask import ask, finished
from angelia.bus.caller import ADMIN, OPEN
from angelia.bus.cancel import requeue
from angelia.bus.draft import Accepted, Draft
from angelia.bus.look import receipt
from angelia.bus.losses import AT_ONCE, IN_ITS_PLACE, settle_losses
from angelia.bus.ports import Parcel, Tx
from angelia.model.delivery import Delivery, State
from angelia.model.envelope import Envelope, Intent, Kind
from angelia.model.errors import DiskFull, IdReused, LeaseLost, UnknownMessage
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.model.loss import LOSS, Loss
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore
from tests.fakes.two_hubs import Neighbourhood

DEEP = Limits(reader_attempts=1, chain_depth=0)


async def lose(hub: SmallHub, *of: Accepted | Parcel, **read: object) -> None:
    """The rows of these messages are damaged, those of their deliveries whole. ``read``: what is read otherwise."""
    await set_aside(hub, *of, **read)
    settle_losses(hub.bus)
    await hub.commit()


async def set_aside(hub: SmallHub, *of: Accepted | Parcel, **read: object) -> None:
    """The same, as the store leaves it."""

    def unit(tx: Tx) -> None:
        for each in of:
            message = each.envelope
            rows = tx.deliveries(message.id)
            loss = Loss(
                message.id, tuple(rows), False, message.sender, message.intent, message.kind, message.in_reply_to,
                message.key, message.fingerprint,
            )  # fmt: skip
            tx.remove(rows)
            tx.put_note(LOSS + message.id, msgspec.msgpack.encode(loss._replace(**read)), 0)  # type: ignore[arg-type]

    await hub.bus.store.write(unit)


async def lose_delivery(hub: SmallHub, row: Delivery, envelope: Envelope, *read: Delivery) -> None:
    """The row of a delivery is damaged, that of its message whole. ``read``: what is read of it, if it can be."""

    def unit(tx: Tx) -> None:
        rows = tx.deliveries(envelope.id)
        tx.remove(rows)
        tx.add(envelope, [other for other in rows if other.key != row.key])
        tx.put_note(LOSS + "1", msgspec.msgpack.encode(Loss(envelope.id, read, True)), 0)

    await hub.bus.store.write(unit)
    settle_losses(hub.bus)
    await hub.commit()


async def notes(hub: SmallHub) -> int:
    return len(await hub.bus.store.read(lambda view: view.notes(LOSS)))


# ----------------------------------------------------------------------------------------------- the message is damaged


async def test_the_sender_of_a_request_is_told_and_its_receipt_says_so(hub: SmallHub) -> None:
    sent = await hub.send("Bob", intent="request")
    await lose(hub, sent)
    (notice,) = await hub.notices()
    assert (notice.about, notice.reason, notice.to) == (sent.envelope.id, "damaged", "Bob")
    assert notice.text is not None
    assert "to ann was not answered" in notice.text
    assert notice.text.endswith("if it may have been handed over by then. It had not been handed to anybody.")
    seen = await receipt(hub.bus, OPEN, sent.envelope.id)
    assert [(d.state, d.reason) for d in seen.deliveries] == [(State.FAILED, Reason.DAMAGED)]
    assert (seen.envelope.text, seen.envelope.sender, seen.envelope.to) == (IN_ITS_PLACE, "Bob", "ann")
    assert seen.final
    assert await hub.take() == []


async def test_it_is_told_once_over_restarts_too(hub: SmallHub) -> None:
    await lose(hub, await hub.send(intent="request"))
    settle_losses(hub.bus)
    await hub.restart()
    settle_losses(hub.bus)
    await hub.commit()
    assert len(await hub.notices()) == 1
    assert await notes(hub) == 0


async def test_it_is_told_after_a_full_disk(store: TroubledStore, troubled: SmallHub) -> None:
    await set_aside(troubled, await troubled.send(intent="request"))
    store.fault = DiskFull("full")
    settle_losses(troubled.bus)
    await settle()
    assert await troubled.notices() == []
    await troubled.pass_time(2)
    await troubled.commit()
    assert len(await troubled.notices()) == 1


async def test_many_are_seen_to_a_few_at_a_time(hub: SmallHub) -> None:
    sent = [await hub.send(intent="request") for _ in range(2 * AT_ONCE + 1)]
    await lose(hub, *sent)
    for _ in range(3):
        await hub.commit()
    assert len(await hub.notices()) == len(sent)
    assert await notes(hub) == 0


async def test_what_cannot_be_read_holds_up_nothing(hub: SmallHub, caplog: pytest.LogCaptureFixture) -> None:
    await hub.bus.store.write(lambda tx: tx.put_note(LOSS + "0", b"\xc1", 0))
    await lose(hub, await hub.send(intent="request"))
    assert len(await hub.notices()) == 1
    assert await notes(hub) == 0
    assert "cannot be read (loss:0)" in caplog.text


@pytest.mark.parametrize("intent", ["inform", "ack"])
async def test_whoever_wanted_no_answer_finds_it_in_the_receipt_alone(hub: SmallHub, intent: str) -> None:
    sent = await hub.send(intent=intent)
    await lose(hub, sent)
    assert await hub.notices() == []
    assert (await hub.row(sent)).reason is Reason.DAMAGED


async def test_where_nobody_can_say_what_was_wanted_the_sender_is_told(hub: SmallHub) -> None:
    sent = await hub.send(intent="inform")
    await lose(hub, sent, intent="infnrm", kind="me\\xffsage", sender="Bnb")
    (notice,) = await hub.notices()
    assert notice.about == sent.envelope.id
    seen = await receipt(hub.bus, OPEN, sent.envelope.id)
    assert (seen.envelope.sender, seen.envelope.kind) == ("bob", Kind.MESSAGE)


async def test_one_that_was_handed_over_may_still_be_answered_late(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    parcel = await hub.take_one()
    await lose(hub, sent)
    (notice,) = await hub.notices()
    assert notice.text is not None
    assert not notice.text.endswith("anybody.")
    with pytest.raises(LeaseLost):
        await hub.ack(parcel)
    late = await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    assert (await hub.row(late)).late
    assert (await hub.row(late)).mailbox == "bob"


async def test_one_that_waits_for_its_answer_goes_on_waiting(hub: SmallHub) -> None:
    sent = await hub.send(intent="request", ttl_seconds=60)
    await hub.ack(await hub.take_one())
    await lose(hub, sent)
    assert await hub.notices() == []
    await hub.pass_time(61)
    assert [n.reason for n in await hub.notices()] == ["delivery_timeout"]
    other = await hub.send(intent="request", ttl_seconds=60)
    await hub.ack(await hub.take_one())
    await lose(hub, other)
    await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=other.envelope.id)
    assert await hub.state(other) is State.ANSWERED


@pytest.mark.parametrize("end", [State.ANSWERED, State.FAILED])
async def test_one_that_is_over_stays_as_it_was(hub: SmallHub, end: State) -> None:
    sent = await hub.send(intent="request", ttl_seconds=60)
    if end is State.ANSWERED:
        await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    else:
        await hub.pass_time(61)
    before, told = await hub.row(sent), len(await hub.notices())
    await lose(hub, sent)
    assert await hub.row(sent) == before
    assert len(await hub.notices()) == told


async def test_a_dead_letter_is_not_requeued_and_nobody_is_told_twice() -> None:
    hub = await SmallHub.open(DEEP)
    sent = await hub.send(intent="request")
    await hub.nack(await hub.take_one())
    await lose(hub, sent)
    assert len(await hub.notices()) == 1
    with pytest.raises(UnknownMessage):
        await requeue(hub.bus, sent.envelope.id)
    assert await hub.take() == []


async def test_a_held_one_is_ended() -> None:
    hub = await SmallHub.open(DEEP)
    first = await hub.send()
    held = await hub.send(intent="request", thread=first.envelope.id)
    await lose(hub, held)
    assert await hub.state(held) is State.FAILED
    assert len(await hub.notices()) == 1


async def test_the_same_message_again_is_a_repeat_and_another_under_its_id_is_refused(hub: SmallHub) -> None:
    sent = await hub.send(intent="request", key="k1")
    await lose(hub, sent)
    again = await hub.send(intent="request", id=sent.envelope.id)
    assert again.duplicate
    assert [d.state for d in again.deliveries] == [State.FAILED]
    assert (await hub.send(intent="request", key="k1")).duplicate
    with pytest.raises(IdReused):
        await hub.send(text="another", intent="request", id=sent.envelope.id)
    assert len(await hub.take()) == 0


async def test_where_its_fingerprint_is_what_flipped_its_id_is_used_up(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    await lose(hub, sent, fingerprint=b"")
    with pytest.raises(IdReused):
        await hub.send(intent="request", id=sent.envelope.id)


async def test_one_that_was_sent_again_meanwhile_counts(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    await set_aside(hub, sent)
    await hub.send(intent="request", id=sent.envelope.id)
    settle_losses(hub.bus)
    await hub.commit()
    assert await hub.notices() == []
    assert (await hub.take_one()).envelope.text == "hi"


async def test_of_one_to_all_each_that_had_not_ended_is_told_of(hub: SmallHub) -> None:
    sent = await hub.send(to="*", intent="request")
    await hub.send("hermes", None, "here", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    await lose(hub, sent)
    (notice,) = await hub.notices()
    assert "openclaw" in (notice.text or "")
    assert (await receipt(hub.bus, ADMIN, sent.envelope.id)).envelope.to == "*"


async def test_who_waits_for_its_answer_is_told_at_once(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, Draft(sender="bob", to="ann", text="hi"), 20))
        await settle()
        (question,) = await hub.mailbox("ann")
        await lose(hub, question)
    answer = asking.result()
    assert answer.failure is not None
    assert answer.failure[0] is Reason.DAMAGED
    assert answer.failure[1].endswith("It had not been handed to anybody.")
    finished(hub.bus, answer, written=True)
    await hub.commit()
    assert await hub.mailbox("bob") == []


async def test_who_asks_on_after_it_was_told_in_the_mailbox_has_it_once(hub: SmallHub) -> None:
    """As it is seen to while a hub starts, before those who wait have come back."""
    sent = await hub.send(intent="request")
    await lose(hub, sent)
    (notice,) = await hub.notices()
    again = await ask(hub.bus, Draft(sender="bob", to="ann", text="hi", id=sent.envelope.id), 20)
    assert again.failure == (Reason.DAMAGED, notice.text)
    finished(hub.bus, again, written=True)
    await hub.commit()
    assert await hub.mailbox("bob") == []


async def test_who_asks_on_after_the_answer_was_lost_is_told_so_at_once(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    await lose(hub, await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id))
    again = await ask(hub.bus, Draft(sender="bob", to="ann", text="hi", id=sent.envelope.id), 0)
    assert again.failure is not None
    assert "the answer that this happened to" in again.failure[1]


async def test_who_waits_in_an_ask_for_an_answer_that_is_lost_is_told_at_once(hub: SmallHub) -> None:
    """It had been put back, since whoever asked was gone; now somebody asks the same again."""
    sent = await hub.send(intent="request")
    reply = await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    held = await hub.take_one("bob")
    async with asyncio.TaskGroup() as tasks:
        again = Draft(sender="bob", to="ann", text="hi", id=sent.envelope.id, intent=Intent.REQUEST)
        hub.bus.store.write(lambda tx: tx.move(held.delivery, held.delivery._replace(state=State.HELD, hand=None)))
        asking = tasks.create_task(ask(hub.bus, again, 20))
        await settle()
        await lose(hub, reply)
    answer = asking.result()
    assert answer.failure is not None
    assert answer.failure[0] is Reason.DAMAGED


async def test_who_waits_for_an_answer_that_is_lost_is_told(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    reply = await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    await lose(hub, reply)
    (notice,) = await hub.notices()
    assert (notice.about, notice.reason) == (sent.envelope.id, "damaged")
    assert "the answer that this happened to" in (notice.text or "")
    assert await hub.notices("ann") == []
    assert await hub.state(reply) is State.FAILED
    assert (await receipt(hub.bus, OPEN, sent.envelope.id)).reply is None


async def test_an_answer_that_names_another_question_is_told_to_nobody(hub: SmallHub) -> None:
    others = await hub.send("cat", intent="request")
    await hub.send("ann", None, "yes", kind=Kind.REPLY, in_reply_to=others.envelope.id)
    sent = await hub.send(intent="request")
    reply = await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    await lose(hub, reply, in_reply_to=others.envelope.id)
    assert (await hub.notices("cat"), await hub.notices("bob")) == ([], [])


# ------------------------------------------------------------------------------------------------ a delivery is damaged


async def test_where_a_delivery_is_damaged_its_message_says_who_is_told_and_for_whom_it_was(hub: SmallHub) -> None:
    sent = await hub.send("Bob", intent="request")
    await lose_delivery(hub, await hub.row(sent), sent.envelope, (await hub.row(sent))._replace(mailbox="cat"))
    (notice,) = await hub.notices()
    assert (notice.about, notice.reason) == (sent.envelope.id, "damaged")
    assert (notice.text or "").endswith("if it may have been handed over by then.")  # how far it had come nobody knows
    row = await hub.row(sent)
    assert (row.mailbox, row.to, row.state, row.reason) == ("ann", "ann", State.FAILED, Reason.DAMAGED)
    seen = await receipt(hub.bus, OPEN, sent.envelope.id)
    assert seen.envelope == sent.envelope
    assert await hub.mailbox("cat", *State) == []
    assert await hub.take() == []


async def test_where_nothing_of_a_delivery_can_be_read_the_sender_is_told_all_the_same(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    await lose_delivery(hub, await hub.row(sent), sent.envelope)
    assert [n.reason for n in await hub.notices()] == ["damaged"]
    assert (await hub.row(sent)).reason is Reason.DAMAGED


OVER: dict[str, tuple[str, dict[str, Any], int]] = {
    "delivered, and no answer wanted": ("inform", {"state": State.DELIVERED, "delivered_at": 1}, 0),
    "delivered, and an answer wanted": ("request", {"state": State.DELIVERED, "delivered_at": 1}, 1),
    "unanswered": ("request", {"state": State.DELIVERED, "delivered_at": 1, "reason": Reason.DELIVERY_TIMEOUT}, 0),
    "answered": ("request", {"state": State.ANSWERED, "answered_at": 1}, 0),
    "failed": ("request", {"state": State.FAILED, "ended_at": 1}, 0),
    "dead": ("request", {"state": State.DEAD, "ended_at": 1}, 0),
    "failed by its state alone": ("request", {"state": State.FAILED}, 1),
    "answered by its state alone": ("request", {"state": State.ANSWERED}, 1),
    "delivered by its state alone": ("inform", {"state": State.DELIVERED}, 0),
    "ended by its time alone": ("request", {"ended_at": 1}, 1),
}


@pytest.mark.parametrize("case", OVER)
async def test_what_was_over_is_told_to_nobody(hub: SmallHub, case: str) -> None:
    intent, read, told = OVER[case]
    sent = await hub.send(intent=intent)
    row = await hub.row(sent)
    await lose_delivery(hub, row, sent.envelope, row._replace(**read))
    assert len(await hub.notices()) == told
    if told:
        assert await hub.state(sent) is State.FAILED
    elif case != "delivered by its state alone":
        assert await hub.rows(sent) == []
        assert await hub.bus.store.read(lambda view: view.message(sent.envelope.id)) is None
    assert hub.bus.store.load("ann").open == 0


async def test_of_one_to_all_the_others_go_on(hub: SmallHub) -> None:
    sent = await hub.send(to="*", intent="request")
    row = await hub.row(sent, "hermes")
    await lose_delivery(hub, row, sent.envelope, row)
    (notice,) = await hub.notices()
    assert "to hermes was not answered" in (notice.text or "")
    assert {d.mailbox: d.state for d in await hub.rows(sent)} == {
        "hermes": State.FAILED, "openclaw": State.QUEUED,
    }  # fmt: skip


@pytest.mark.parametrize("mailbox", ["hernes", "openclaw", None])
async def test_of_one_to_all_nobody_is_taken_for_another(hub: SmallHub, mailbox: str | None) -> None:
    """A name that nobody has, or that has its own: for which of them it was is not known."""
    sent = await hub.send(to="*", intent="request")
    row = await hub.row(sent, "hermes")
    read = () if mailbox is None else (row._replace(mailbox=mailbox, to=mailbox),)
    await lose_delivery(hub, row, sent.envelope, *read)
    (notice,) = await hub.notices()
    assert (notice.text or "").endswith("For which of them it was cannot be read any more.")
    assert [d.mailbox for d in await hub.rows(sent)] == ["openclaw"]


async def test_a_lost_delivery_of_an_answer_is_told_to_who_waits_for_it(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    reply = await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    await lose_delivery(hub, await hub.row(reply), reply.envelope, await hub.row(reply))
    assert [n.about for n in await hub.notices()] == [sent.envelope.id]


async def test_a_delivery_whose_message_is_gone_is_told_to_nobody(hub: SmallHub) -> None:
    await hub.bus.store.write(lambda tx: tx.put_note(LOSS + "1", msgspec.msgpack.encode(Loss("a" * 32, (), True)), 0))
    settle_losses(hub.bus)
    await hub.commit()
    assert await notes(hub) == 0


# --------------------------------------------------------------------------------------------------------- another hub


@pytest.fixture
async def two() -> Neighbourhood:
    return await (await (await Neighbourhood.of(lap="bob", rack="ann")).line("lap", "rack")).meet()


@pytest.mark.parametrize("what", ["message", "delivery"])
@pytest.mark.parametrize("intent", ["request", "inform"])
async def test_the_hub_that_it_came_from_is_told(two: Neighbourhood, intent: str, what: str) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", intent=intent)
    await two.link("lap", "rack").carry()
    (there,) = await rack.mailbox("ann")
    if what == "message":
        await lose(rack, there)
    else:
        await lose_delivery(rack, there.delivery, there.envelope)
    await two.run()
    row = await lap.row(sent)
    assert (row.state, row.reason) == (State.FAILED, Reason.DAMAGED)
    assert [n.reason for n in await lap.notices("bob")] == (["damaged"] if intent == "request" else [])


async def test_an_answer_that_is_lost_on_its_way_back_is_told_where_it_was_asked_for(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", intent="request")
    await two.link("lap", "rack").carry()
    await lose(rack, await rack.answer("ann", sent.envelope))
    await two.run()
    assert [n.reason for n in await lap.notices("bob")] == ["damaged"]
    assert await lap.state(sent) is State.FAILED


async def test_one_that_another_hub_has_may_be_answered_late_and_does_not_go_again(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", intent="request")
    await two.run()
    assert await lap.state(sent) is State.FORWARDED
    await lose(lap, sent)
    await rack.answer("ann", sent.envelope)
    await two.run()
    assert await lap.state(sent) is State.FAILED
    assert [n.reason for n in await lap.notices("bob")] == ["damaged"]
    assert [(p.envelope.text, p.delivery.late) for p in await lap.mailbox("bob") if p.envelope.kind is Kind.REPLY] == [
        ("done", True)
    ]
    assert len(await rack.mailbox("ann", *State)) == 1
