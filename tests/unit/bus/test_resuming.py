"""Resuming a stream: what is shown again, what is settled, what a useless id is told, and that seq only rises."""

import asyncio

import pytest

from angelia.bus.caller import OPEN
from angelia.bus.cancel import cancel, requeue
from angelia.bus.subscribe import Item, Mail, Reset, next_items
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Kind, Lane
from angelia.model.limits import DAY, Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import Reader, SmallHub, seqs, texts
from tests.fakes.troubled_store import TroubledStore


async def shown(hub: SmallHub, *words: str) -> Reader:
    """A stream that was handed these and settled them, and has gone since."""
    reader = await hub.listen()
    await hub.send_all(*words)
    await reader.read()
    await hub.commit()
    await reader.close()
    return reader


def after(reader: Reader, text: str) -> str:
    """The id of the mail with this text."""
    (seq,) = {m.parcel.delivery.seq for m in reader.seen if m.parcel.envelope.text == text}
    return f"{reader.bus.store.epoch}-{seq}"


# ------------------------------------------------------------------------------------------------------ what is shown


async def test_what_was_delivered_after_the_id_is_shown_again_as_copies(hub: SmallHub) -> None:
    old = await shown(hub, "1", "2", "3")
    new = await hub.listen(last_id=after(old, "1"))
    mails = await new.mail()
    assert [(m.parcel.envelope.text, m.again, m.parcel.delivery.attempt) for m in mails] == [
        ("2", True, 1),
        ("3", True, 1),
    ]
    await hub.commit()
    assert {m.parcel.delivery.seq for m in mails} == set(seqs(old.seen[1:]))


async def test_an_answered_message_is_shown_again_too(hub: SmallHub) -> None:
    old = await shown(hub, "1", "2")
    await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=old.seen[1].parcel.envelope.id)
    new = await hub.listen(last_id=after(old, "1"))
    assert await new.read() == ["2"]


async def test_copies_change_nothing(hub: SmallHub) -> None:
    old = await shown(hub, "1", "2")
    before = await hub.mailbox("ann", *State)
    new = await hub.listen(last_id=after(old, "1"))
    await new.read()
    await hub.commit()
    await new.close()
    assert await hub.mailbox("ann", *State) == before


async def test_with_the_last_id_nothing_is_shown_again(hub: SmallHub) -> None:
    old = await shown(hub, "1", "2")
    new = await hub.listen(last_id=old.last_id)
    assert await new.items() == []


@pytest.mark.parametrize("last_id", [None, ""])
async def test_without_an_id_nothing_is_shown_again(hub: SmallHub, last_id: str | None) -> None:
    await shown(hub, "1", "2")
    await hub.send(text="3")
    new = await hub.listen(last_id=last_id)
    assert await new.read() == ["3"]


async def test_copies_come_before_what_waits_and_that_before_what_arrives(hub: SmallHub) -> None:
    old = await shown(hub, "1", "2")
    await hub.send(text="3")
    new = await hub.listen(last_id=after(old, "1"))
    await hub.send(text="4")
    assert await new.read() == ["2", "3", "4"]
    assert [m.again for m in new.seen] == [True, False, False]
    await hub.send(text="5")
    assert await new.read() == ["5"]
    assert seqs(new.seen) == sorted(set(seqs(new.seen)))


async def test_mail_that_arrives_during_the_copies_waits_for_their_end(hub: SmallHub) -> None:
    old = await shown(hub, *[str(n) for n in range(250)])
    new = await hub.listen(last_id=after(old, "0"))
    items: list[Item] = await next_items(hub.bus, new.stream)
    (row,) = (await hub.send(text="late")).deliveries
    assert row.state is State.QUEUED
    assert len(items) == 100
    new.write(items)
    assert await new.read() == [*[str(n) for n in range(101, 250)], "late"]
    assert seqs(new.seen) == sorted(set(seqs(new.seen)))


async def test_leased_held_failed_and_dead_mail_is_not_shown_again() -> None:
    hub = await SmallHub.open(Limits(reader_attempts=1, chain_depth=0))
    reader = await hub.listen()
    await hub.send(text="seen")
    await reader.read()
    await hub.commit()
    await reader.close()
    sent = await hub.send(text="failed")
    await cancel(hub.bus, OPEN, sent.envelope.id)
    await hub.send(text="dead")
    await hub.nack(await hub.take_one())
    await hub.send(text="leased")
    await hub.take_one()
    await hub.send(text="held", in_reply_to=reader.seen[0].parcel.envelope.id)
    await hub.send(text="waits")
    states = {p.envelope.text: p.delivery.state.word for p in await hub.mailbox("ann", *State)}
    assert states == {
        "seen": "delivered", "failed": "failed", "dead": "dead", "leased": "leased", "held": "held", "waits": "queued",
    }  # fmt: skip
    new = await hub.listen(last_id=after(reader, "seen"))
    assert await new.read() == ["waits"]


async def test_an_observer_resumes_too(hub: SmallHub) -> None:
    old = await shown(hub, "1", "2", "3")
    looking = await hub.observe(last_id=after(old, "1"))
    assert await looking.read() == ["2", "3"]
    await hub.send(text="4")
    assert await looking.read() == ["4"]


# -------------------------------------------------------------------------------------------------- what it settles


async def test_after_a_restart_a_resume_settles_what_its_reader_has_seen(hub: SmallHub) -> None:
    old = (await hub.listen()).jam()
    sent = await hub.send_all("1", "2", "3")
    await old.read()
    await hub.restart()
    assert [(await hub.row(s)).state for s in sent] == [State.QUEUED] * 3
    new = await hub.listen(last_id=after(old, "2"))
    assert [(await hub.row(s)).state for s in sent] == [State.DELIVERED, State.DELIVERED, State.QUEUED]
    assert await new.read() == ["3"]
    row = await hub.row(sent[2])
    assert (row.attempt, row.used) == (2, 0)
    assert seqs(new.seen)[0] > old.seen[-1].parcel.delivery.seq


async def test_after_a_break_a_resume_settles_what_its_reader_has_seen(hub: SmallHub) -> None:
    old = (await hub.listen()).jam()
    sent = await hub.send_all("1", "2")
    await old.read()
    await old.close()
    new = await hub.listen(last_id=old.last_id)
    assert await new.items() == []
    assert [(await hub.row(s)).state for s in sent] == [State.DELIVERED] * 2


@pytest.mark.parametrize("hand", [Hand.CLAIM, Hand.POLL])
async def test_a_resume_settles_nothing_that_another_hand_had(hub: SmallHub, hand: Hand) -> None:
    sent = await hub.send(text="claimed")
    (held,) = await hub.take(hand=hand)
    await hub.restart()
    new = await hub.listen(last_id=f"{hub.bus.store.epoch}-{held.delivery.seq}")
    assert await new.read() == ["claimed"]
    assert (await hub.row(sent)).attempt == 2


async def test_a_resume_settles_nothing_that_a_manual_stream_had(hub: SmallHub) -> None:
    old = await hub.listen(hand=Hand.MANUAL)
    await hub.send_all("1", "2")
    await old.read()
    for again in (False, True):
        if again:
            await hub.restart()
        new = await hub.listen(last_id=old.last_id, hand=Hand.MANUAL)
        assert await new.read() == ["1", "2"]
        await hub.commit()
        old = new


async def test_a_later_id_settles_nothing_that_its_reader_never_saw(hub: SmallHub) -> None:
    """A person's mail goes first, so a reader can have a later id and not have seen what had been on its way."""
    old = (await hub.listen()).jam()
    unseen = await hub.send(text="on its way")
    await old.fetch()
    await hub.restart(Limits(stream_window_deliveries=1))
    await hub.send("human", "ann", "urgent", lane=Lane.PERSON)
    second = await hub.listen()
    second.write(await next_items(hub.bus, second.stream))
    await second.close()
    assert texts(m.parcel for m in second.seen) == ["urgent"]
    third = await hub.listen(last_id=second.last_id)
    assert await hub.state(unseen) is not State.DELIVERED
    assert await third.read() == ["on its way"]


@pytest.mark.parametrize("seen_before", [False, True])
async def test_a_later_id_settles_nothing_that_was_given_back_unwritten(hub: SmallHub, seen_before: bool) -> None:
    first = await hub.listen()
    unseen = await hub.send(text="unwritten")
    await first.fetch()
    await first.close()
    await hub.restart(Limits(stream_window_deliveries=1))
    if seen_before:
        await (await hub.listen(last_id=f"{hub.bus.store.epoch}-0")).close()
    await hub.send("human", "ann", "urgent", lane=Lane.PERSON)
    second = await hub.listen()
    second.write(await next_items(hub.bus, second.stream))
    await second.close()
    third = await hub.listen(last_id=second.last_id)
    assert await third.read() == ["unwritten"]
    assert await hub.state(unseen) is State.LEASED


async def test_a_dead_letter_that_was_requeued_is_not_settled_by_an_old_id() -> None:
    hub = await SmallHub.open(Limits(reader_attempts=1))
    reader = (await hub.listen()).jam()
    dead = await hub.send(text="dead")
    await reader.read()
    await reader.close()
    assert await hub.state(dead) is State.DEAD
    later = await shown(hub, "later")
    await requeue(hub.bus, dead.envelope.id)
    new = await hub.listen(last_id=later.last_id)
    assert await new.read() == ["dead"]


async def test_a_resume_by_another_kind_of_stream_settles_by_what_had_it(hub: SmallHub) -> None:
    old = (await hub.listen()).jam()
    sent = await hub.send(text="auto")
    await old.read()
    await hub.listen(last_id=old.last_id, hand=Hand.MANUAL)
    assert await hub.state(sent) is State.DELIVERED


# ------------------------------------------------------------------------------------------------ what is handed over


async def test_what_is_handed_over_after_a_later_one_takes_a_new_seq(hub: SmallHub) -> None:
    first = await hub.send(text="1")
    await hub.send(text="2")
    held = await hub.take_one()
    reader = await hub.listen()
    assert await reader.read() == ["2"]
    await hub.nack(held, 0)
    assert await reader.read() == ["1"]
    assert seqs(reader.seen) == sorted(set(seqs(reader.seen)))
    row = await hub.row(first)
    assert row.seq > row.key


async def test_what_comes_back_and_was_the_last_keeps_its_seq_for_nobody_else(hub: SmallHub) -> None:
    await hub.send(text="1")
    held = await hub.take_one()
    await hub.nack(held, 0)
    again = await hub.take_one()
    assert again.delivery.seq > held.delivery.seq


async def test_seq_rises_across_resumes_whatever_comes_back(hub: SmallHub) -> None:
    seen: list[Mail] = []
    reader = (await hub.listen()).jam()
    await hub.send_all("1", "2", "3")
    await reader.read()
    for _ in range(3):
        seen += reader.seen
        await reader.close()
        await hub.send(text="more")
        reader = (await hub.listen(last_id=f"{hub.bus.store.epoch}-{seen[0].parcel.delivery.seq}")).jam()
        await reader.read()
    fresh = [m for m in [*seen, *reader.seen] if not m.again]
    assert seqs(fresh) == sorted(set(seqs(fresh)))


# ------------------------------------------------------------------------------------------------------------- reset


async def reset_of(hub: SmallHub, last_id: str) -> tuple[dict[str, object], list[str | None]]:
    """What an id is told, and what mail follows."""
    reader = await hub.listen(last_id=last_id)
    items = await reader.items()
    assert isinstance(items[0], Reset), items
    return items[0].data, texts(i.parcel for i in items if isinstance(i, Mail))


@pytest.mark.parametrize(
    "asked",
    ["nonsense", "-", "42", "7f3a09c1", "7f3a09c1-", "-42", "{epoch}-x", "{epoch}-1x", "{epoch}--1", "{epoch}-²",
     "{epoch}-" + "9" * 40, "{epoch}-1-2", "7f3a09c1-1", "{epoch}-999999999", "\x00", "9" * 5000],
)  # fmt: skip
async def test_an_id_that_is_none_of_ours_gets_a_reset_and_everything(hub: SmallHub, asked: str) -> None:
    old = await shown(hub, "1", "2")
    await hub.send(text="3")
    data, mail = await reset_of(hub, asked.format(epoch=hub.bus.store.epoch))
    assert mail == ["1", "2", "3"]
    assert data["earliest"] == after(old, "1")
    assert str(data["asked"]) == asked.format(epoch=hub.bus.store.epoch)[:80]
    assert data["why"]


async def test_a_reset_settles_nothing(hub: SmallHub) -> None:
    old = (await hub.listen()).jam()
    sent = await hub.send()
    await old.read()
    await reset_of(hub, "7f3a09c1-999999")
    assert await hub.state(sent) is State.LEASED  # by the new stream, whose bytes are on their way


async def test_an_id_is_good_as_long_as_nothing_after_it_is_out_of_reach() -> None:
    hub = await SmallHub.open(Limits(replay_deliveries=3))
    old = await shown(hub, *"123456")
    assert (await reset_of(hub, after(old, "2")))[1] == ["4", "5", "6"]
    assert await (await hub.listen(last_id=after(old, "3"))).read() == ["4", "5", "6"]
    assert await (await hub.listen(last_id=after(old, "4"))).read() == ["5", "6"]


async def test_an_id_older_than_seven_days_is_out_of_reach(hub: SmallHub) -> None:
    old = await shown(hub, "1", "2")
    await hub.clock.advance(6 * DAY)
    middle = await shown(hub, "3")
    await hub.clock.advance(2 * DAY)
    data, mail = await reset_of(hub, after(old, "1"))
    assert (mail, data["earliest"]) == (["3"], after(middle, "3"))
    assert await (await hub.listen(last_id=after(old, "2"))).read() == ["3"]


async def test_an_id_that_retention_has_passed_is_out_of_reach() -> None:
    hub = await SmallHub.open(Limits(settled_keep_seconds=DAY))
    old = await shown(hub, "1", "2")
    await hub.pass_time(DAY + 1)
    assert not await hub.mailbox("ann", *State)
    data, mail = await reset_of(hub, after(old, "1"))
    assert (mail, data["earliest"]) == ([], None)
    assert await (await hub.listen(last_id=after(old, "2"))).items() == []


async def test_before_anything_was_handed_over_zero_is_a_good_id(hub: SmallHub) -> None:
    await hub.send(text="1")
    assert await (await hub.listen(last_id=f"{hub.bus.store.epoch}-0")).read() == ["1"]


async def test_after_a_reset_the_stream_goes_live(hub: SmallHub) -> None:
    await shown(hub, "1")
    reader = await hub.listen(last_id="no use")
    await reader.items()
    (row,) = (await hub.send(text="2")).deliveries
    assert row.state is State.LEASED
    assert await reader.read() == ["2"]


async def test_a_notice_that_was_replaced_does_not_cost_a_reader_its_place(hub: SmallHub) -> None:
    """A stored presence notice that was handed over stays, so that ids below it stay good."""
    old = await shown(hub, "1", "2")
    bob = await hub.listen("bob")  # tells ann, who is away
    await settle()
    assert len(await hub.take()) == 1
    await bob.close()
    await hub.clock.advance(60)
    await hub.listen("bob")
    await settle()
    new = await hub.listen(last_id=after(old, "1"))
    items = await new.items()
    assert not any(isinstance(item, Reset) for item in items)
    assert texts(m.parcel for m in new.seen)[0] == "2"


async def test_a_resume_while_the_old_stream_is_being_given_mail_loses_none(
    store: TroubledStore, troubled: SmallHub
) -> None:
    old = (await troubled.listen()).jam()
    await troubled.send(text="1")
    await old.read()
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(troubled.send(text="2"))
        await settle()
        opening = tasks.create_task(troubled.listen(last_id=old.last_id))
        await settle()
        tasks.create_task(troubled.send(text="3"))
        await store.let_go()
    new = opening.result()
    assert await new.read() == ["2", "3"]
    await troubled.commit()
    assert not await troubled.mailbox()


async def test_an_id_whose_delivery_took_a_new_number_meanwhile_is_still_resumed_from(hub: SmallHub) -> None:
    first = await hub.listen(hand=Hand.MANUAL)
    await hub.send_all("1", "2")
    (one, two) = await first.mail()
    await first.close()  # both come back, and are handed over again under new numbers
    second = await hub.listen(last_id=hub_id(hub, two))
    assert not [item for item in await second.items() if isinstance(item, Reset)]
    await second.close()
    third = await hub.listen(last_id=hub_id(hub, one))
    assert not [item for item in await third.items() if isinstance(item, Reset)]


def hub_id(hub: SmallHub, mail: Mail) -> str:
    """The id that a reader saw with it."""
    return f"{hub.bus.store.epoch}-{mail.parcel.delivery.seq}"
