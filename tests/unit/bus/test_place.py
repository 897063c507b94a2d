"""The state a delivery starts in: who takes it in the accepting commit, and that all else waits its turn."""

import asyncio

from angelia.bus.ask import ask, finished
from angelia.bus.draft import Draft
from angelia.model.delivery import LANE_ORDER, Hand, State
from angelia.model.envelope import Kind, Lane
from angelia.model.limits import Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import ShortWay, SmallHub, texts
from tests.fakes.two_hubs import Neighbourhood


async def test_with_nobody_there_it_waits(hub: SmallHub) -> None:
    (row,) = (await hub.send()).deliveries
    assert (row.state, row.attempt, row.hand, row.leased_at) == (State.QUEUED, 0, None, None)
    assert row.sweep_at == row.expires_at


async def test_a_live_stream_takes_it_at_once(hub: SmallHub) -> None:
    await hub.listen()
    (row,) = (await hub.send()).deliveries
    assert (row.state, row.attempt, row.hand, row.leased_at) == (State.LEASED, 1, Hand.AUTO, hub.clock.now())
    assert row.sweep_at is None


async def test_a_door_that_waits_writes_it_at_once_and_the_others_in_their_turn(hub: SmallHub) -> None:
    reader = await hub.listen()
    reader.stream.door = door = ShortWay(hub.bus, reader.stream)
    await hub.send(text="before it waits")
    assert await reader.read() == ["before it waits"]
    await hub.send(text="while it waits")
    reader.socket.kept = 1
    await hub.send(text="while bytes are left")
    reader.socket.kept = 0
    await hub.send(text="behind that")
    assert [text for _, text in door.written] == ["while it waits"]
    assert await reader.read() == ["while bytes are left", "behind that"]


async def test_what_is_for_oneself_stands_behind_all_others_and_keeps_its_own_order(hub: SmallHub) -> None:
    await hub.send_all("1", "2", sender="ann")
    await hub.send("ann", "ann", "3", lane=Lane.PERSON)
    await hub.send("bob", "ann", "bob's")
    await hub.send("human", "ann", "a person's", lane=Lane.PERSON)
    assert texts(await hub.take()) == ["a person's", "bob's", "1", "2", "3"]


async def test_a_name_elsewhere_is_never_oneself() -> None:
    """Whether it is what it says there, and whom it wakes, is the business of its own hub."""
    mid = (await Neighbourhood.of(mid="ann"))["mid"]
    await mid.push("mac", {"profile": "ann", "connection_id": "vps-1"})
    for sender, to in (("ann@vps-1", "ann"), ("ann@vps-1", "ann@vps-1"), ("ann", "ann@vps-1")):
        (row,) = (await mid.send(sender, to)).deliveries
        assert (row.mailbox, row.lane) == (to, LANE_ORDER[Lane.NORMAL])


async def test_the_row_on_disk_is_the_one_that_was_answered(hub: SmallHub) -> None:
    await hub.listen()
    sent = await hub.send()
    assert await hub.rows(sent) == sent.deliveries


async def test_a_stream_takes_nothing_while_earlier_mail_waits(hub: SmallHub) -> None:
    await hub.send()
    await hub.listen()
    assert (await hub.send()).deliveries[0].state is State.QUEUED


async def test_mail_that_is_put_off_does_not_stop_a_stream(hub: SmallHub) -> None:
    await hub.send()
    await hub.nack(await hub.take_one(), 60)
    await hub.listen()
    assert (await hub.send()).deliveries[0].state is State.LEASED


async def test_a_stream_takes_nothing_while_it_replays(hub: SmallHub) -> None:
    reader = await hub.listen()
    await hub.send()
    await reader.read()
    await hub.commit()
    await hub.listen(last_id=f"{hub.bus.store.epoch}-0")
    assert (await hub.send()).deliveries[0].state is State.QUEUED


async def test_a_stream_that_is_full_takes_nothing() -> None:
    hub = await SmallHub.open(Limits(stream_window_deliveries=1))
    await hub.listen()
    states = [s.deliveries[0].state for s in await hub.send_all("1", "2")]
    assert states == [State.LEASED, State.QUEUED]


async def test_the_link_that_leads_there_takes_it_at_once_and_a_message_that_is_held_back_it_does_not() -> None:
    two = await Neighbourhood.of({"lap": Limits(chain_depth=0)}, lap="bob", rack="ann")
    await (await two.line("lap", "rack")).meet()
    carrier = await two.link("lap", "rack").up()
    lap = two["lap"]
    sent = await lap.send("bob", "ann@rack")
    again = await lap.send("bob", "ann@rack", in_reply_to=sent.envelope.id)
    assert [each.deliveries[0].state for each in (sent, again)] == [State.LEASED, State.HELD]
    assert [parcel.envelope.id for parcel in carrier.queue] == [sent.envelope.id]


async def test_mail_to_everyone_is_placed_for_each_by_itself(hub: SmallHub) -> None:
    await hub.listen("hermes")
    sent = await hub.send(to="*")
    assert {row.mailbox: row.state.word for row in sent.deliveries} == {"hermes": "leased", "openclaw": "queued"}


async def test_two_units_of_one_commit_share_the_window_between_them() -> None:
    hub = await SmallHub.open(Limits(stream_window_deliveries=1))
    await hub.listen()
    async with asyncio.TaskGroup() as tasks:
        sending = [tasks.create_task(hub.send(text=str(n))) for n in range(3)]
    assert [s.result().deliveries[0].state.word for s in sending] == ["leased", "queued", "queued"]


async def test_held_mail_is_handed_to_nobody_and_wakes_nobody() -> None:
    hub = await SmallHub.open(Limits(chain_depth=0))
    root = await hub.send("cat", "bob")
    await hub.listen()
    with hub.bus.signals.watch("ann") as watch:
        ticket = watch.ticket()
        (row,) = (await hub.send(thread=root.envelope.id)).deliveries
        assert (row.state, row.attempt, row.hand) == (State.HELD, 0, None)
        assert not watch.changed(ticket).done()


async def test_a_reply_goes_to_the_ask_that_waits_before_the_stream(hub: SmallHub) -> None:
    reader = await hub.listen("bob")
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, Draft(sender="bob", to="ann", text="?"), 10))
        (question,) = await hub.take(wait_seconds=5)
        sent = await hub.send("ann", None, "!", kind=Kind.REPLY, in_reply_to=question.envelope.id)
    assert (sent.deliveries[0].state, sent.deliveries[0].hand) == (State.LEASED, Hand.ASK)
    assert await reader.items() == []
    finished(hub.bus, asking.result(), written=True)


async def test_a_reply_is_outside_the_order(hub: SmallHub) -> None:
    await hub.send("cat", "bob", "waits")
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, Draft(sender="bob", to="ann", text="?"), 10))
        (question,) = await hub.take(wait_seconds=5)
        await hub.send("ann", None, "!", kind=Kind.REPLY, in_reply_to=question.envelope.id)
    assert asking.result().reply is not None


async def test_only_an_answer_is_taken_by_an_ask(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, Draft(sender="bob", to="ann", text="?"), 10))
        (question,) = await hub.take(wait_seconds=5)
        to_itself = await hub.send("bob", "bob", "note", in_reply_to=question.envelope.id)
        assert to_itself.deliveries[0].state is State.QUEUED
        await hub.send("ann", None, "!", kind=Kind.REPLY, in_reply_to=question.envelope.id)
    assert asking.result().reply is not None


async def test_observers_are_woken_and_take_nothing(hub: SmallHub) -> None:
    looking = await hub.observe()
    (row,) = (await hub.send()).deliveries
    assert row.state is State.QUEUED
    assert await looking.read() == ["hi"]


async def test_a_manual_stream_has_a_lease_on_what_it_is_handed(hub: SmallHub) -> None:
    await hub.listen(hand=Hand.MANUAL)
    (row,) = (await hub.send()).deliveries
    await settle()
    lease = hub.bus.leases.get(row.key, 1)
    assert lease is not None
    assert (lease.hand, lease.deadline, lease.ends) == (Hand.MANUAL, None, None)
