"""Streams: the live hand-over, the window, settling, ending, taking over, looking on. (test_resuming.py: resuming.)"""

import asyncio

import pytest

from angelia.bus.caller import OPEN
from angelia.bus.cancel import cancel
from angelia.bus.claim import claim
from angelia.bus.core import close_bus
from angelia.bus.ports import Scope
from angelia.bus.subscribe import End, Item, KeepAlive, Mail, Transient, attach, detach, next_items, wrote
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Kind, Lane
from angelia.model.errors import DiskFull, LeaseLost, RateLimited, Stopping
from angelia.model.limits import Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import Reader, SmallHub, Socket, seqs, texts
from tests.fakes.troubled_store import TroubledStore

# ------------------------------------------------------------------------------------------------- the live hand-over


async def test_a_live_stream_is_handed_mail_by_the_accepting_commit(hub: SmallHub) -> None:
    reader = await hub.listen()
    (row,) = (await hub.send(text="now")).deliveries
    assert (row.state, row.attempt, row.hand, row.used) == (State.LEASED, 1, Hand.AUTO, 0)
    assert await reader.read() == ["now"]


async def test_an_auto_stream_settles_at_the_next_commit_and_not_before(hub: SmallHub) -> None:
    reader = await hub.listen()
    sent = await hub.send()
    await reader.read()
    assert await hub.state(sent) is State.LEASED
    await hub.commit()
    assert await hub.state(sent) is State.DELIVERED


async def test_what_has_not_left_the_process_is_not_settled(hub: SmallHub) -> None:
    reader = await hub.listen()
    reader.socket.stuck = True
    sent = await hub.send()
    await reader.read()
    await hub.commit()
    assert await hub.state(sent) is State.LEASED
    reader.socket.drain()
    await hub.commit()
    assert await hub.state(sent) is State.DELIVERED


async def test_a_stream_that_broke_before_the_commit_settles_nothing(hub: SmallHub) -> None:
    reader = await hub.listen()
    sent = await hub.send()
    await reader.read()
    reader.stream.end("gone")
    await hub.commit()
    assert await hub.state(sent) is State.LEASED
    await reader.close()
    assert await hub.state(sent) is State.QUEUED


async def test_a_settled_delivery_leaves_no_trace_in_memory(hub: SmallHub) -> None:
    reader = await hub.listen()
    for _ in range(3):
        await hub.send()
        await reader.read()
        await hub.commit()
    assert not reader.stream.handed
    assert not hub.bus.autos.waiting()
    assert reader.stream.room() == hub.bus.limits.stream_window_deliveries


async def test_what_waited_is_handed_over_before_what_arrives(hub: SmallHub) -> None:
    await hub.send_all("1", "2")
    reader = await hub.listen()
    (row,) = (await hub.send(text="3")).deliveries
    assert row.state is State.QUEUED
    assert await reader.read() == ["1", "2", "3"]
    (row,) = (await hub.send(text="4")).deliveries
    assert row.state is State.LEASED


async def test_mail_for_others_does_not_reach_a_stream(hub: SmallHub) -> None:
    reader = await hub.listen("ann")
    await hub.send(to="cat")
    assert await reader.read() == []


async def test_a_stream_that_waits_is_woken_by_mail(hub: SmallHub) -> None:
    reader = await hub.listen()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(next_items(hub.bus, reader.stream))
        await settle()
        assert not waiting.done()
        await hub.send(text="hello")
    (item,) = waiting.result()
    assert isinstance(item, Mail)
    assert item.parcel.envelope.text == "hello"


async def test_a_stream_that_waits_is_woken_by_what_comes_back(hub: SmallHub) -> None:
    await hub.send(text="again")
    held = await hub.take_one()
    reader = await hub.listen()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(next_items(hub.bus, reader.stream))
        await settle()
        await hub.nack(held, 0)
    (item,) = waiting.result()
    assert isinstance(item, Mail)
    assert item.parcel.delivery.attempt == 2


async def test_mail_that_commits_while_the_stream_looks_is_not_missed(store: TroubledStore, troubled: SmallHub) -> None:
    reader = await troubled.listen()
    reader.stream.ready = False  # as while it replays: mail is queued for it
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(troubled.send(text="between"))
        waiting = tasks.create_task(next_items(troubled.bus, reader.stream))
        await settle()
        assert not waiting.done()
        await store.let_go()
    assert texts(item.parcel for item in waiting.result() if isinstance(item, Mail)) == ["between"]


async def test_withdrawn_mail_that_is_not_written_is_never_shown(hub: SmallHub) -> None:
    reader = await hub.listen()
    first, _ = await hub.send_all("1", "2")
    await cancel(hub.bus, OPEN, first.envelope.id)
    assert await reader.read() == ["2"]
    await hub.commit()
    assert reader.stream.room() == hub.bus.limits.stream_window_deliveries


# -------------------------------------------------------------------------------------------------------- the window


async def test_what_does_not_fit_the_window_is_queued_and_fetched_in_order() -> None:
    hub = await SmallHub.open(Limits(stream_window_deliveries=2))
    reader = await hub.listen()
    sent = await hub.send_all("1", "2", "3", "4", "5")
    assert [s.deliveries[0].state.word for s in sent] == ["leased"] * 2 + ["queued"] * 3
    assert await reader.read() == ["1", "2", "3", "4", "5"]


async def test_a_reader_that_takes_nothing_holds_no_more_than_its_window() -> None:
    hub = await SmallHub.open(Limits(stream_window_deliveries=2))
    reader = await hub.listen()
    await hub.send_all(*"123456")
    assert len(reader.stream.buffer) == 2


async def test_the_window_is_bounded_in_bytes_too() -> None:
    hub = await SmallHub.open(Limits(stream_window_bytes=1000))
    reader = await hub.listen()
    sent = await hub.send_all("x" * 900, "y", "z")
    assert [s.deliveries[0].state.word for s in sent] == ["leased", "queued", "queued"]
    assert [len(text or "") for text in await reader.read()] == [900, 1, 1]


async def test_what_waits_is_fetched_only_as_far_as_the_window_has_bytes() -> None:
    hub = await SmallHub.open(Limits(stream_window_bytes=1000))
    await hub.send_all(*["x" * 500] * 5)
    reader = await hub.listen()
    for _ in range(5):
        items = await next_items(hub.bus, reader.stream)
        assert len(items) == 1
        reader.write(items)
    assert await reader.items() == []


async def test_a_copy_that_is_said_to_be_written_settles_nothing(hub: SmallHub) -> None:
    reader = await hub.listen()
    await hub.send(text="1")
    await reader.read()
    await hub.commit()
    reader = await hub.listen(last_id=f"{hub.bus.store.epoch}-0")
    (copy,) = await reader.mail()
    wrote(hub.bus, reader.stream, [copy.parcel], 100)
    assert not hub.bus.autos.waiting()
    await hub.send(text="2")
    await reader.read()
    await hub.commit()
    assert await hub.mailbox() == []


async def test_a_manual_stream_holds_sixteen_leases_and_no_more(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    await hub.send_all(*[str(n) for n in range(20)])
    assert await reader.read() == [str(n) for n in range(16)]
    assert await reader.read() == []
    await hub.ack(reader.seen[0].parcel)
    assert await reader.read() == ["16"]


async def test_an_ack_wakes_a_manual_stream_that_was_full() -> None:
    hub = await SmallHub.open(Limits(manual_window_deliveries=1))
    reader = await hub.listen(hand=Hand.MANUAL)
    await hub.send_all("1", "2")
    await reader.read()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(next_items(hub.bus, reader.stream))
        await settle()
        assert not waiting.done()
        await hub.ack(reader.seen[0].parcel)
    assert len(waiting.result()) == 1


@pytest.mark.parametrize("way", ["ack", "nack", "cancel", "reply"])
async def test_whatever_ends_a_manual_lease_makes_room(way: str) -> None:
    hub = await SmallHub.open(Limits(manual_window_deliveries=1))
    reader = await hub.listen(hand=Hand.MANUAL)
    sent = await hub.send(text="1")
    await reader.read()
    match way:
        case "ack":
            await hub.ack(reader.seen[0].parcel)
        case "nack":
            await hub.nack(reader.seen[0].parcel, 60)
        case "cancel":
            await cancel(hub.bus, OPEN, sent.envelope.id)
        case _:
            await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    await settle()
    assert reader.stream.room() == 1
    assert len(hub.bus.leases) == 0


async def test_a_manual_stream_settles_by_an_ack_alone(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    sent = await hub.send()
    await reader.read()
    await hub.commit()
    await hub.pass_time(3 * 3600)
    assert await hub.state(sent) is State.LEASED
    await hub.ack(reader.seen[0].parcel)
    assert await hub.state(sent) is State.DELIVERED


async def test_a_manual_lease_can_be_renewed_and_has_no_end_of_its_own(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    await hub.send()
    await reader.read()
    outcome = await hub.renew(reader.seen[0].parcel)
    assert (outcome.state, outcome.ends) == (State.LEASED, None)


async def test_what_a_manual_stream_nacks_comes_again_later_in_seq(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    await hub.send_all("1", "2")
    await reader.read()
    await hub.nack(reader.seen[0].parcel, 0)
    assert await reader.read() == ["1"]
    assert seqs(reader.seen) == sorted(set(seqs(reader.seen)))
    assert reader.seen[-1].parcel.delivery.attempt == 2


# ------------------------------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("hand", [Hand.AUTO, Hand.MANUAL])
async def test_a_break_gives_back_and_counts_only_what_was_written(hub: SmallHub, hand: Hand) -> None:
    reader = await hub.listen(hand=hand)
    written = await hub.send(text="1")
    await reader.jam().read()
    taken = await hub.send(text="2")
    await reader.fetch()
    buffered = await hub.send(text="3")
    await reader.close()
    rows = [await hub.row(sent) for sent in (written, taken, buffered)]
    assert [(row.state, row.attempt, row.used) for row in rows] == [
        (State.QUEUED, 1, 1),
        (State.QUEUED, 1, 0),
        (State.QUEUED, 1, 0),
    ]
    assert texts(await hub.take()) == ["1", "2", "3"]
    assert len(hub.bus.leases) == 3


async def test_whoever_sends_does_not_wait_until_all_that_were_cut_have_given_back(hub: SmallHub) -> None:
    """A hundred readers and their windows: others' units go between theirs."""
    names = [f"reader{number}" for number in range(100)]
    await hub.know(*names)
    readers = [(await hub.listen(name)).jam() for name in names]
    for name, reader in zip(names, readers, strict=True):
        await hub.send_all(*"1234567890", to=name)
        assert len(await reader.read()) == 10
    for reader in readers:
        await detach(hub.bus, reader.stream)
    left = await hub.bus.store.write(lambda tx: len(hub.bus.streams.attached))
    assert 80 < left < 100
    await settle()
    assert hub.bus.streams.attached == {}
    rows = [parcel.delivery for name in names for parcel in await hub.mailbox(name)]
    assert {(row.state, row.used) for row in rows} == {(State.QUEUED, 1)}
    assert len(rows) == 1000


async def test_those_that_were_cut_as_the_hub_stops_give_back_at_once(hub: SmallHub) -> None:
    names = [f"reader{number}" for number in range(100)]
    await hub.know(*names)
    readers = [await hub.listen(name) for name in names]
    await close_bus(hub.bus)
    for reader in readers:
        await detach(hub.bus, reader.stream)
    assert await hub.bus.store.write(lambda tx: len(hub.bus.streams.attached)) == 0


async def test_many_that_come_back_fetch_a_few_at_a_time(hub: SmallHub) -> None:
    names = [f"reader{number}" for number in range(10)]
    await hub.know(*names)
    for name in names:
        await hub.send_all("x" * 300_000, "y" * 300_000, to=name)
    readers = [await hub.listen(name) for name in names]
    async with asyncio.TaskGroup() as tasks:
        fetching = [tasks.create_task(next_items(hub.bus, reader.stream)) for reader in readers]
        await asyncio.sleep(0)
        waits = await hub.bus.store.write(lambda tx: sum(bool(tx.load(name).ready) for name in names))
    assert waits >= 8
    assert [len(task.result()) for task in fetching] == [2] * 10


async def test_what_is_nacked_and_handed_over_anew_is_not_written_yet(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    sent = await hub.send()
    await reader.read()
    await hub.nack(reader.seen[0].parcel, 0)
    await reader.fetch()
    await reader.close()
    assert (await hub.row(sent)).used == 1


async def test_what_is_nacked_and_leased_anew_as_the_stream_ends_is_not_written_yet(
    store: TroubledStore, troubled: SmallHub
) -> None:
    reader = await troubled.listen(hand=Hand.MANUAL)
    sent = await troubled.send()
    await reader.read()
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(troubled.nack(reader.seen[0].parcel, 0))
        await settle()
        tasks.create_task(next_items(troubled.bus, reader.stream))
        await settle()
        await detach(troubled.bus, reader.stream)
        await store.let_go()
    row = await troubled.row(sent)
    assert (row.state, row.attempt, row.used) == (State.QUEUED, 2, 1)


async def test_ten_breaks_make_a_dead_letter(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    for attempt in range(1, 11):
        reader = await hub.listen()
        assert await reader.read() == ["hi"], attempt
        await reader.close()
    row = await hub.row(sent)
    assert (row.state, row.attempt, row.used) == (State.DEAD, 10, 10)
    assert [n.reason for n in await hub.notices()] == ["attempts_used_up"]


async def test_a_stream_that_the_hub_ends_uses_up_no_attempt(hub: SmallHub) -> None:
    reader = await hub.listen()
    sent = await hub.send()
    await reader.read()
    await close_bus(hub.bus)
    assert await reader.items() == [End("bye")]
    await reader.close()
    row = await hub.row(sent)
    assert (row.state, row.used) == (State.QUEUED, 0)


async def test_a_connection_that_ends_after_the_goodbye_is_no_break(hub: SmallHub) -> None:
    reader = await hub.listen()
    sent = await hub.send()
    await reader.read()
    await close_bus(hub.bus)
    reader.stream.end("gone")
    await reader.close()
    assert (await hub.row(sent)).used == 0


async def test_a_stream_that_ended_is_given_nothing(hub: SmallHub) -> None:
    reader = await hub.listen()
    reader.stream.end("gone")
    sent = await hub.send()
    assert await hub.state(sent) is State.QUEUED
    assert await reader.items() == [End("gone")]


async def test_what_a_broken_stream_gives_back_goes_to_a_claim_that_waits(hub: SmallHub) -> None:
    reader = await hub.listen()
    await hub.send(text="mine")
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=30))
        await settle()
        await reader.close()
    assert texts(waiting.result().parcels) == ["mine"]


async def test_what_was_leased_as_the_stream_ended_goes_back(store: TroubledStore, troubled: SmallHub) -> None:
    reader = await troubled.listen()
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(troubled.send())
        await settle()
        await detach(troubled.bus, reader.stream)
        await store.let_go()
    row = await troubled.row(sending.result())
    assert (row.state, row.attempt, row.used) == (State.QUEUED, 1, 0)
    assert await (await troubled.listen()).read() == ["hi"]


async def test_what_a_manual_stream_was_leased_as_it_ended_leaves_no_lease(
    store: TroubledStore, troubled: SmallHub
) -> None:
    reader = await troubled.listen(hand=Hand.MANUAL)
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(troubled.send())
        await settle()
        await detach(troubled.bus, reader.stream)
        await store.let_go()
    assert len(troubled.bus.leases) == 0


async def test_detaching_twice_does_no_harm(hub: SmallHub) -> None:
    reader = await hub.listen()
    sent = await hub.send()
    await reader.read()
    await reader.close()
    await reader.close()
    assert (await hub.row(sent)).used == 1
    assert hub.bus.streams.count == 0


async def test_a_full_disk_does_not_keep_what_a_broken_stream_held(store: TroubledStore, troubled: SmallHub) -> None:
    reader = await troubled.listen()
    sent = await troubled.send()
    store.refusal = DiskFull("no room")
    await reader.close()
    store.refusal = None
    assert await troubled.state(sent) is State.LEASED
    await troubled.pass_time(1)
    assert await troubled.state(sent) is State.QUEUED


# ------------------------------------------------------------------------------------------------------ the take-over


async def test_a_second_stream_supersedes_the_first(hub: SmallHub) -> None:
    old = await hub.listen()
    new = await hub.listen()
    assert await old.items() == [End("superseded")]
    await hub.send(text="to the new one")
    assert await new.read() == ["to the new one"]


async def test_nothing_is_lost_or_reordered_when_a_stream_is_taken_over(hub: SmallHub) -> None:
    old = (await hub.listen()).jam()
    await hub.send_all("1", "2")
    await old.read()
    await hub.send_all("3", "4")
    await old.fetch()
    await hub.send_all("5", "6")
    new = await hub.listen(last_id=old.last_id)
    await hub.send_all("7")
    assert await new.read() == ["3", "4", "5", "6", "7"]
    assert seqs(new.seen) == sorted(seqs(new.seen))
    assert seqs(new.seen)[0] > old.seen[-1].parcel.delivery.seq


async def test_a_take_over_settles_what_the_new_stream_has_seen_and_returns_the_rest(hub: SmallHub) -> None:
    old = (await hub.listen()).jam()
    sent = await hub.send_all("1", "2", "3")
    await old.read()
    seen = f"{hub.bus.store.epoch}-{old.seen[1].parcel.delivery.seq}"
    new = await hub.listen(last_id=seen)
    rows = [await hub.row(s) for s in sent]
    assert [row.state for row in rows] == [State.DELIVERED, State.DELIVERED, State.QUEUED]
    assert [row.used for row in rows] == [0, 0, 0]
    assert await new.read() == ["3"]
    assert (await hub.row(sent[2])).attempt == 2


async def test_a_take_over_without_an_id_gets_everything_that_is_not_settled_again(hub: SmallHub) -> None:
    old = (await hub.listen()).jam()
    await hub.send_all("1", "2")
    await old.read()
    new = await hub.listen()
    assert await new.read() == ["1", "2"]
    await hub.commit()
    assert not await hub.mailbox()


async def test_the_leases_of_a_manual_stream_are_over_when_it_is_taken_over(hub: SmallHub) -> None:
    old = await hub.listen(hand=Hand.MANUAL)
    sent = await hub.send()
    await old.read()
    new = await hub.listen(hand=Hand.MANUAL)
    assert await hub.state(sent) is State.QUEUED
    await new.read()
    with pytest.raises(LeaseLost) as lost:
        await hub.ack(old.seen[0].parcel)
    assert lost.value.extra["holder"] == "manual"
    await hub.ack(new.seen[0].parcel)


async def test_the_end_of_a_superseded_stream_takes_nothing_from_the_new_one(hub: SmallHub) -> None:
    old = await hub.listen()
    new = await hub.listen()
    sent = await hub.send()
    await old.close()
    assert await hub.state(sent) is State.LEASED
    assert await new.read() == ["hi"]
    assert hub.bus.streams.own("ann") is new.stream


async def test_the_old_stream_hands_out_nothing_once_it_was_taken_over(
    store: TroubledStore, troubled: SmallHub
) -> None:
    old = await troubled.listen()
    await troubled.send(text="1")
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        opening = tasks.create_task(troubled.listen())
        await settle()
        old.write(await _next(old))  # in the gap between the unit and the loop
        await store.let_go()
    new = opening.result()
    assert await new.read() == ["1"]
    await troubled.commit()
    (row,) = [mail.parcel.delivery for mail in new.seen]
    assert row.attempt == 2
    assert (await troubled.row(row)).state is State.DELIVERED
    assert await old.items() == [End("superseded")]


async def test_three_streams_in_a_row_leave_one(hub: SmallHub) -> None:
    readers = [await hub.listen() for _ in range(3)]
    assert [reader.stream.ended for reader in readers] == ["superseded", "superseded", None]
    await hub.send()
    assert await readers[2].read() == ["hi"]


async def test_an_agents_stream_leaves_claims_alone_when_it_opens(hub: SmallHub) -> None:
    await hub.send()
    held = await hub.take_one()
    await hub.listen()
    assert (await hub.ack(held)).state is State.DELIVERED


# ---------------------------------------------------------------------------------------------------------- observers


async def test_an_observer_sees_everything_and_takes_nothing(hub: SmallHub) -> None:
    looking = await hub.observe()
    sent = await hub.send(text="1")
    assert await looking.read() == ["1"]
    assert all(mail.again for mail in looking.seen)
    await hub.commit()
    row = await hub.row(sent)
    assert (row.state, row.attempt) == (State.QUEUED, 0)
    await hub.take()
    await hub.send(text="2")
    assert await looking.read() == ["2"]


async def test_an_observer_supersedes_nobody_and_is_superseded_by_nobody(hub: SmallHub) -> None:
    own = await hub.listen()
    looking = await hub.observe()
    again = await hub.observe()
    assert (own.stream.ended, looking.stream.ended) == (None, None)
    await hub.send(text="x")
    assert [await r.read() for r in (own, looking, again)] == [["x"]] * 3


async def test_an_observer_that_waits_is_woken(hub: SmallHub) -> None:
    looking = await hub.observe()
    await hub.listen()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(next_items(hub.bus, looking.stream))
        await settle()
        await hub.send()
    assert len(waiting.result()) == 1


async def test_an_observer_that_goes_gives_nothing_back(hub: SmallHub) -> None:
    own = await hub.listen()
    looking = await hub.observe()
    sent = await hub.send()
    await looking.close()
    assert await hub.state(sent) is State.LEASED
    assert hub.bus.streams.own("ann") is own.stream


async def test_an_observer_makes_no_name_known(hub: SmallHub) -> None:
    await hub.observe("stranger")
    assert hub.bus.directory.find("stranger") is None


# ------------------------------------------------------------------------------------------------- opening and bounds


async def test_opening_a_stream_makes_the_name_known_and_a_member(hub: SmallHub) -> None:
    await hub.listen("Dora")
    assert hub.bus.directory.name_of("dora") == "Dora"
    assert "dora" in {each.mailbox for each in hub.bus.directory.members()}


async def test_streams_are_bounded_for_each_agent_and_in_all() -> None:
    hub = await SmallHub.open(Limits(streams_per_agent=2, streams=3))
    await hub.observe()
    await hub.observe()
    with pytest.raises(RateLimited):
        await hub.observe()
    other = await hub.listen("bob")
    with pytest.raises(RateLimited):
        await hub.listen("cat")
    await other.close()
    await hub.listen("cat")


async def test_a_stream_that_could_not_be_opened_leaves_no_trace() -> None:
    hub = await SmallHub.open(Limits(open_names=2), known=())
    with pytest.raises(RateLimited):
        await hub.listen("one-too-many")
    await settle()
    assert hub.bus.streams.count == 0
    assert hub.bus.streams.own("one-too-many") is None


@pytest.mark.parametrize("observer", [False, True])
async def test_whoever_goes_away_while_it_opens_a_stream_leaves_no_trace(
    store: TroubledStore, troubled: SmallHub, observer: bool
) -> None:
    await troubled.send()
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        opening = tasks.create_task(attach(troubled.bus, "ann", Hand.AUTO, Socket(), None, observer=observer))
        await asyncio.sleep(0)
        opening.cancel()
        await settle()
        await store.let_go()
    assert opening.cancelled()
    assert troubled.bus.streams.count == 0
    assert troubled.bus.streams.own("ann") is None
    assert texts(await troubled.take()) == ["hi"]


async def test_no_stream_opens_on_a_hub_that_stops(hub: SmallHub) -> None:
    await close_bus(hub.bus)
    with pytest.raises(Stopping):
        await hub.listen()


async def test_a_stream_that_opens_as_the_hub_stops_says_goodbye(store: TroubledStore, troubled: SmallHub) -> None:
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        opening = tasks.create_task(troubled.listen())
        await settle()
        await close_bus(troubled.bus)
        await store.let_go()
    assert await opening.result().items() == [End("bye")]


# ---------------------------------------------------------------------------------------------------- what is written


async def _next(reader: Reader) -> list[Item]:
    return await next_items(reader.bus, reader.stream)


async def test_a_keepalive_comes_only_when_there_is_nothing_else(hub: SmallHub) -> None:
    reader = await hub.listen()
    await hub.send()
    reader.stream.keepalive_due = True
    assert isinstance((await _next(reader))[0], Mail)
    assert await _next(reader) == [KeepAlive()]


async def test_notices_that_are_not_stored_come_first_and_are_bounded(hub: SmallHub) -> None:
    reader = await hub.listen()
    plain = (await hub.send(text="mail")).envelope
    notices = [plain._replace(text=str(n)) for n in range(20)]
    reader.stream.transient.extend(notices)
    items = await _next(reader)
    assert items[:-1] == [Transient(notice) for notice in notices[4:]]
    assert isinstance(items[-1], Mail)


async def test_a_person_is_handed_over_first(hub: SmallHub) -> None:
    await hub.send_all("1", "2")
    await hub.send(sender="human", text="first", lane=Lane.PERSON)
    reader = await hub.listen()
    assert await reader.read() == ["first", "1", "2"]
    assert seqs(reader.seen) == sorted(seqs(reader.seen))
