"""What happens by time alone: times to live, retention, reminders, keep-alives, and readers that stall."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from angelia.bus.agents import OVERLAP_SECONDS, make_token
from angelia.bus.beat import BEAT_SECONDS
from angelia.bus.caller import ADMIN
from angelia.bus.claim import claim
from angelia.bus.core import close_bus
from angelia.bus.directory import digest_of
from angelia.bus.ports import Scope
from angelia.bus.runs import ADAPTERS
from angelia.bus.subscribe import End, KeepAlive, next_items
from angelia.bus.timekeeper import (
    BEHIND_SECONDS,
    CUT_PAUSE_SECONDS,
    LATE_SHARE,
    LOOK_SECONDS,
    SICK_STORE_SECONDS,
    SWEEP_BATCH,
    keep_time,
    patrol,
    sweep,
    wake_behind,
)
from angelia.bus.visits import Visit
from angelia.model.delivery import Hand, State
from angelia.model.errors import DiskFull
from angelia.model.limits import DAY, Limits
from tests.conformance.mail import delivery, envelope
from tests.fakes.clock import settle
from tests.fakes.small_hub import Reader, ShortWay, SmallHub, texts
from tests.fakes.troubled_store import TroubledStore

KEEPALIVE = 15.0


@asynccontextmanager
async def time_kept(hub: SmallHub, keepalive: float = KEEPALIVE) -> AsyncIterator[None]:
    """The timekeeper runs beside the test, until the hub stops."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_time(hub.bus, keepalive))
        await settle()
        yield
        await close_bus(hub.bus)
        await hub.clock.advance(0)


# ----------------------------------------------------------------------------------------- what a lost wake-up left


async def store_in_silence(hub: SmallHub, to: str, number: int) -> None:
    """Mail is there, and the wake-up that says so was lost."""
    message = envelope(number, to=to)
    await hub.bus.store.write(lambda tx: tx.add(message, [delivery(message, tx.next_seq(), to)]))
    await settle()


async def test_a_claim_whose_wake_up_was_lost_is_answered_within_half_a_minute(hub: SmallHub) -> None:
    await hub.know("ann")
    async with time_kept(hub), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=60))
        await settle()
        await store_in_silence(hub, "ann", 1)
        assert not waiting.done()
        await hub.clock.advance(BEHIND_SECONDS)
        assert texts((await waiting).parcels) == ["text 1"]


async def test_a_stream_and_a_turn_whose_wake_ups_were_lost_are_waked_within_half_a_minute(hub: SmallHub) -> None:
    reader = await hub.listen("ann")
    await reader.read()
    async with time_kept(hub):
        with hub.bus.runs.signals.watch("bob") as work:
            stream, ticket = reader.stream.waiter(), work.ticket()
            await store_in_silence(hub, "ann", 1)
            await store_in_silence(hub, "bob", 2)
            assert (stream.done(), work.ticket()) == (False, ticket)
            await hub.clock.advance(BEHIND_SECONDS)
            assert (stream.done(), work.ticket()) == (True, ticket + 1)
        assert await reader.read() == ["text 1"]


async def test_who_runs_turns_looks_anew_whatever_was_said_to_it(hub: SmallHub) -> None:
    async with time_kept(hub):
        with hub.bus.runs.signals.watch(ADAPTERS) as watch:
            ticket = watch.ticket()
            await hub.clock.advance(BEHIND_SECONDS)
            assert watch.ticket() > ticket


async def test_who_waits_beside_nothing_is_not_waked_for_it(hub: SmallHub) -> None:
    with hub.bus.runs.signals.watch("bob") as work:
        reader = await hub.listen("ann")
        await reader.read()
        stream, ticket = reader.stream.waiter(), work.ticket()
        wake_behind(hub.bus)
        assert (stream.done(), work.ticket()) == (False, ticket)


# ---------------------------------------------------------------------------------------------------------- the sweep


async def test_what_waits_expires_at_its_time_and_not_before(hub: SmallHub) -> None:
    sent = await hub.send(ttl_seconds=60)
    await hub.pass_time(59.9)
    assert await hub.state(sent) is State.QUEUED
    await hub.pass_time(0.2)
    row = await hub.row(sent)
    assert (row.state, row.reason, row.ended_at) == (State.FAILED, "queued_expired", hub.clock.now())


async def test_what_is_in_hand_does_not_expire(hub: SmallHub) -> None:
    sent = await hub.send(ttl_seconds=1)
    held = await hub.take_one(lease_seconds=1800)
    await hub.pass_time(1799)
    await hub.ack(held)
    assert await hub.state(sent) is State.DELIVERED


async def test_a_delivered_request_is_looked_at_once_more_and_then_kept(hub: SmallHub) -> None:
    sent = await hub.send(ttl_seconds=60, intent="request")
    await hub.ack(await hub.take_one())
    await hub.pass_time(61)
    row = await hub.row(sent)
    assert (row.state, row.reason) == (State.DELIVERED, "delivery_timeout")
    await hub.pass_time(29 * DAY)
    assert await hub.row(sent) == row
    await hub.pass_time(2 * DAY)
    assert await hub.rows(sent) == []


@pytest.mark.parametrize("end", ["delivered", "answered", "failed"])
async def test_a_settled_message_is_kept_for_thirty_days(hub: SmallHub, end: str) -> None:
    sent = await hub.send(ttl_seconds=60)
    if end == "answered":
        await hub.send("ann", "bob", "done", in_reply_to=sent.envelope.id)
    elif end == "delivered":
        await hub.ack(await hub.take_one())
    await hub.pass_time(61)
    assert (await hub.row(sent)).state.word == end
    await hub.pass_time(29 * DAY)
    assert len(await hub.rows(sent)) == 1
    await hub.pass_time(2 * DAY)
    assert await hub.rows(sent) == []
    assert await hub.bus.store.read(lambda view: view.message(sent.envelope.id)) is None


async def test_a_message_goes_with_the_last_of_its_deliveries(hub: SmallHub) -> None:
    sent = await hub.send(to="*", ttl_seconds=DAY)
    await hub.ack(await hub.take_one("hermes"))
    await hub.pass_time(DAY + 1)
    await hub.pass_time(29 * DAY)
    assert [row.mailbox for row in await hub.rows(sent)] == ["openclaw"]
    await hub.pass_time(2 * DAY)
    assert await hub.rows(sent) == []


async def test_a_backlog_is_settled_in_batches_without_a_pause(hub: SmallHub) -> None:
    await hub.send_all(*["x"] * (SWEEP_BATCH + 10), ttl_seconds=1)
    await hub.clock.advance(2)
    assert not await sweep(hub.bus)
    assert len(await hub.mailbox("ann", State.FAILED)) == SWEEP_BATCH
    assert await sweep(hub.bus)
    assert len(await hub.mailbox("ann", State.FAILED)) == SWEEP_BATCH + 10


async def test_a_sick_store_is_swept_again_later(store: TroubledStore, troubled: SmallHub) -> None:
    await troubled.send(ttl_seconds=1)
    await troubled.clock.advance(2)
    store.refusal = DiskFull("no room")
    await sweep(troubled.bus)
    assert troubled.bus.timers.sweep_at == troubled.clock.now() + SICK_STORE_SECONDS * 1000
    store.refusal = None
    async with time_kept(troubled):
        await troubled.clock.advance(SICK_STORE_SECONDS + 0.1)
        assert await troubled.mailbox() == []


async def test_the_next_sweep_is_known_to_the_millisecond(hub: SmallHub) -> None:
    early = await hub.send(ttl_seconds=60)
    await hub.send(ttl_seconds=90)
    await sweep(hub.bus)
    assert hub.bus.timers.sweep_at == early.envelope.expires_at
    await hub.ack(await hub.take_one())
    await hub.ack(await hub.take_one())
    await hub.clock.advance(61)
    await sweep(hub.bus)
    assert hub.bus.timers.sweep_at == (await hub.row(early)).sweep_at


async def test_what_is_stored_while_a_sweep_is_under_way_is_not_forgotten(hub: SmallHub) -> None:
    await hub.send(ttl_seconds=3600)
    sent, _ = await asyncio.gather(hub.send(ttl_seconds=1), sweep(hub.bus))
    assert hub.bus.timers.sweep_at == sent.envelope.expires_at
    _, sent = await asyncio.gather(sweep(hub.bus), hub.send(ttl_seconds=1))
    assert hub.bus.timers.sweep_at == sent.envelope.expires_at


async def test_a_hub_that_was_away_settles_what_ran_out_meanwhile(hub: SmallHub) -> None:
    sent = await hub.send(ttl_seconds=60, intent="request")
    await hub.clock.advance(3600)
    await hub.restart()
    async with time_kept(hub):
        await hub.clock.advance(1)
        assert await hub.state(sent) is State.FAILED
        assert len(await hub.notices()) == 1


# ------------------------------------------------------------------------------------------------------ keeping time


async def test_time_runs_by_itself(hub: SmallHub) -> None:
    expires = await hub.send(to="ann", ttl_seconds=2)
    await hub.send(to="cat")
    held = await hub.take_one("cat", lease_seconds=3)
    await hub.send(to="bob")
    nacked = await hub.take_one("bob")
    await hub.nack(nacked, 4)
    async with time_kept(hub):
        await hub.clock.advance(5.5)
        assert await hub.state(expires) is State.FAILED
        assert (await hub.row(held)).state is State.QUEUED
        assert len(await hub.take("bob")) == 1


async def test_what_expires_sooner_than_was_slept_for_does_so_in_time(hub: SmallHub) -> None:
    await hub.send(ttl_seconds=3600)
    async with time_kept(hub):
        await hub.clock.advance(0.3)
        sent = await hub.send(ttl_seconds=1)
        await hub.clock.advance(0.9)
        assert await hub.state(sent) is State.QUEUED
        await hub.clock.advance(0.2)
        assert await hub.state(sent) is State.FAILED


async def test_what_time_must_change_at_once_is_changed_at_once(hub: SmallHub) -> None:
    sent = await hub.send(ttl_seconds=1, intent="request")
    held = await hub.take_one(lease_seconds=1800)
    async with time_kept(hub):
        await hub.clock.advance(2.3)
        await hub.ack(held)
        await hub.clock.advance(0.1)
        assert (await hub.row(sent)).reason == "delivery_timeout"


async def test_what_expired_while_the_machine_slept_is_found_at_the_next_beat(hub: SmallHub) -> None:
    sent = await hub.send(ttl_seconds=3600)
    async with time_kept(hub):
        await hub.clock.advance(0.3)
        before = hub.clock.now
        hub.clock.now = lambda: before() + 7_200_000  # type: ignore[method-assign]
        await hub.clock.advance(BEAT_SECONDS)
        assert await hub.state(sent) is State.FAILED


@pytest.mark.parametrize("keepalive", [KEEPALIVE, 3.0, 0.3])
@pytest.mark.parametrize("opened", [0.1, 0.45, 0.9, 1.3])
async def test_a_stream_that_opens_where_there_was_none_is_kept_alive_in_time(
    hub: SmallHub, keepalive: float, opened: float
) -> None:
    async with time_kept(hub, keepalive), asyncio.TaskGroup() as tasks:
        await hub.clock.advance(keepalive * opened)
        reader = await hub.listen()
        waiting = tasks.create_task(next_items(hub.bus, reader.stream))
        await hub.clock.advance(keepalive * 1.05)
        assert waiting.done()
        assert waiting.result() == [KeepAlive()]


async def test_an_idle_hub_leaves_its_store_alone(store: TroubledStore, troubled: SmallHub) -> None:
    await troubled.send(ttl_seconds=3600)
    async with time_kept(troubled):
        await troubled.listen("cat")
        await troubled.clock.advance(1)
        before = store.commits
        await troubled.clock.advance(600)
        assert store.commits == before


async def test_a_reminder_is_heard_while_the_timekeeper_sleeps(hub: SmallHub) -> None:
    async with time_kept(hub):
        await hub.clock.advance(0.3)
        await hub.send()
        await hub.take(lease_seconds=1)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=30))
            await hub.clock.advance(0.9)
            assert not waiting.done()
            await hub.clock.advance(0.11)
            assert waiting.done()


async def test_a_reminder_that_fails_does_not_stop_time(hub: SmallHub) -> None:
    sent = await hub.send(ttl_seconds=2)
    async with time_kept(hub):
        hub.bus.timers.at(hub.clock.monotonic() + 1, lambda: 1 / 0)
        await hub.clock.advance(4)
        assert await hub.state(sent) is State.FAILED


async def test_what_is_at_work_under_a_token_that_was_rotated_ends_within_a_second_of_its_last_one(
    hub: SmallHub,
) -> None:
    ended: list[int] = []
    async with time_kept(hub):
        old, _ = await make_token(hub.bus, ADMIN, "ann")
        with Visit(hub.bus.directory.visits, digest_of(old), lambda: ended.append(hub.clock.now())):
            await hub.clock.advance(1.7)  # so that its end falls upon no beat
            await make_token(hub.bus, ADMIN, "ann")
            over = hub.clock.now() + OVERLAP_SECONDS * 1000
            await hub.clock.advance(OVERLAP_SECONDS - 1)
            assert ended == []
            await hub.clock.advance(2)
            [at] = ended
            assert over <= at <= over + 1000


async def test_names_that_nobody_uses_are_forgotten(hub: SmallHub) -> None:
    hub = await SmallHub.open(Limits(open_name_idle_seconds=7200))
    async with time_kept(hub):
        await hub.clock.advance(3 * 3600)
        assert hub.bus.directory.find("ann") is None
        assert hub.bus.directory.find("hermes") is not None


# ----------------------------------------------------------------------------------------------------------- patrol


async def test_streams_that_nothing_happens_on_are_not_looked_at(hub: SmallHub) -> None:
    readers = idle, busy, jammed = [await hub.listen(name) for name in ("ann", "bob", "cat")]
    for reader in (busy, jammed.jam()):
        await hub.send("hermes", reader.stream.name)
        await reader.read()
    before = [reader.socket.asked for reader in readers]
    for _ in range(5):
        await hub.clock.advance(1)
        patrol(hub.bus, hub.clock.monotonic(), KEEPALIVE)
    # What was written to is looked at until its bytes have left, and the idle one not at all until it is due.
    assert [reader.socket.asked - was for reader, was in zip(readers, before, strict=True)] == [0, 1, 5]
    assert not idle.stream.keepalive_due


# ------------------------------------------------------------------------------------------------------- keep-alives


async def test_a_quiet_stream_is_kept_alive_every_fifteen_seconds(hub: SmallHub) -> None:
    reader = await hub.listen()
    async with time_kept(hub), asyncio.TaskGroup() as tasks:
        for _ in range(3):
            before = hub.clock.monotonic()
            waiting = tasks.create_task(next_items(hub.bus, reader.stream))
            await hub.clock.advance(14.9)
            assert not waiting.done()
            while not waiting.done():
                await hub.clock.advance(0.1)
            assert waiting.result() == [KeepAlive()]
            assert hub.clock.monotonic() - before < 16.1
            reader.write(waiting.result())


async def test_a_door_that_needs_no_keep_alive_is_not_woken_each_second_from_then_on(hub: SmallHub) -> None:
    reader = await hub.listen()
    async with time_kept(hub), asyncio.TaskGroup() as tasks:
        for _ in range(2):
            waiting = tasks.create_task(next_items(hub.bus, reader.stream))
            await hub.clock.advance(13)
            assert not waiting.done()
            await hub.clock.advance(3)
            assert waiting.result() == [KeepAlive()]


async def test_streams_that_were_opened_one_by_one_are_kept_alive_at_a_few_moments(hub: SmallHub) -> None:
    await hub.know(*(f"agent{number}" for number in range(30)))
    opened: dict[ShortWay, float] = {}
    async with asyncio.TaskGroup() as tasks, time_kept(hub):
        for number in range(30):
            stream = (await hub.listen(f"agent{number}")).stream
            tasks.create_task(next_items(hub.bus, stream))
            await settle()
            stream.door = door = ShortWay(hub.bus, stream)
            opened[door] = hub.clock.monotonic()
            await hub.clock.advance(0.51)
        await hub.clock.advance(60)
    written = [[at, *(moment for moment, _ in door.written)] for door, at in opened.items()]
    for moments in written:
        pauses = [later - earlier for earlier, later in pairwise([*moments, hub.clock.monotonic()])]
        assert max(pauses) <= KEEPALIVE + LOOK_SECONDS * LATE_SHARE, moments
        assert min(pauses[:-1]) > KEEPALIVE / 2, moments
    kept = {moment for moments in written for moment in moments[1:]}
    assert len(kept) <= 75 / LOOK_SECONDS


async def test_a_keep_alive_that_left_at_once_is_not_looked_at_again(hub: SmallHub) -> None:
    reader = await hub.listen()
    async with asyncio.TaskGroup() as tasks, time_kept(hub):
        tasks.create_task(next_items(hub.bus, reader.stream))
        await settle()
        reader.stream.door = ShortWay(hub.bus, reader.stream)
        await hub.clock.advance(KEEPALIVE + 0.1)
        asked = reader.socket.asked
        await hub.clock.advance(4)
        assert (reader.socket.asked, hub.bus.streams.unsure) == (asked, set())


async def test_a_keep_alive_passes_a_task_that_waits_and_a_fault_in_one_stops_no_other(hub: SmallHub) -> None:
    readers = [await hub.listen(name) for name in ("ann", "bob")]
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(next_items(hub.bus, reader.stream)) for reader in readers]
        await settle()
        doors = [
            ShortWay(hub.bus, reader.stream, broken=step) for reader, step in zip(readers, ("write", None), strict=True)
        ]
        for reader, door in zip(readers, doors, strict=True):
            reader.stream.door = door
        patrol(hub.bus, hub.clock.monotonic() + KEEPALIVE, KEEPALIVE)
        await settle()
        assert [len(door.written) for door in doors] == [0, 1]
        assert [task.done() for task in waiting] == [True, False]
        assert waiting[0].result() == [End("gone")]
        readers[1].stream.end("bye")


async def test_a_stream_that_was_written_to_is_not_quiet(hub: SmallHub) -> None:
    reader = await hub.listen()
    for _ in range(5):
        await hub.clock.advance(10)
        await hub.send()
        await reader.read()
        reader.stream.keepalive_due = False
        patrol(hub.bus, hub.clock.monotonic() + 4, KEEPALIVE)
        assert not reader.stream.keepalive_due


# ------------------------------------------------------------------------------------------------- readers that stall


async def stalled(hub: SmallHub, reader: Reader, seconds: float) -> bool:
    """Whether the stream is cut within so long, looked at once a second."""
    for _ in range(int(seconds)):
        await hub.clock.advance(1)
        patrol(hub.bus, hub.clock.monotonic(), KEEPALIVE)
    return reader.socket.aborted


async def test_a_reader_that_takes_no_byte_for_ten_seconds_is_cut(hub: SmallHub) -> None:
    reader = (await hub.listen()).jam()
    sent = await hub.send()
    await reader.read()
    assert not await stalled(hub, reader, 10)
    assert await stalled(hub, reader, 2)
    assert await reader.items() == [End("gone")]
    await reader.close()
    row = await hub.row(sent)
    assert (row.state, row.used) == (State.QUEUED, 1)


async def test_a_reader_that_stalls_while_nobody_looks_is_found_soon_enough(hub: SmallHub) -> None:
    await hub.send(to="cat", ttl_seconds=3600)  # so that nothing of what follows is due sooner
    async with time_kept(hub):
        reader = (await hub.listen()).jam()
        await hub.clock.advance(0.3)
        await hub.send()
        await reader.read()
        await hub.clock.advance(9.9)
        assert not reader.socket.aborted
        await hub.clock.advance(2.2)
        assert reader.socket.aborted
        await reader.items()


async def test_many_that_stall_together_are_cut_one_by_one_and_soon_all(hub: SmallHub) -> None:
    async with time_kept(hub):
        readers = [(await hub.listen(f"reader-{number}")).jam() for number in range(4)]
        for number, reader in enumerate(readers):
            await hub.send(to=f"reader-{number}")
            await reader.read()
        cut: list[int] = []
        for _ in range(700):
            await hub.clock.advance(CUT_PAUSE_SECONDS)
            if (count := sum(reader.socket.aborted for reader in readers)) > sum(cut):
                cut.append(count - sum(cut))
        assert cut == [1, 1, 1, 1]
        for reader in readers:
            await reader.items()


async def test_a_reader_that_is_slow_and_takes_something_is_not_cut(hub: SmallHub) -> None:
    reader = (await hub.listen()).jam()
    await hub.send_all(*"123456789")
    await reader.read()
    for _ in range(8):
        reader.socket.kept -= 100
        assert not await stalled(hub, reader, 9)


async def test_what_was_taken_long_ago_is_not_held_against_a_reader(hub: SmallHub) -> None:
    reader = (await hub.listen()).jam()
    await hub.send()
    await reader.read()
    await stalled(hub, reader, 5)
    reader.socket.drain()
    await stalled(hub, reader, 60)
    # Bytes are in the socket, and the door has not told yet that it wrote them.
    reader.socket.kept = 100
    assert not await stalled(hub, reader, 9)
    assert await stalled(hub, reader, 3)


async def test_a_reader_with_bytes_on_the_way_is_not_kept_alive(hub: SmallHub) -> None:
    reader = (await hub.listen()).jam()
    await hub.send()
    await reader.read()
    await hub.clock.advance(20)
    patrol(hub.bus, hub.clock.monotonic(), KEEPALIVE)
    assert not reader.stream.keepalive_due


async def test_one_stalled_reader_leaves_the_others_alone(hub: SmallHub) -> None:
    bad, good = (await hub.listen("ann")).jam(), await hub.listen("cat", hand=Hand.MANUAL)
    await hub.send(to="ann")
    await bad.read()
    assert await stalled(hub, bad, 12)
    await hub.send(to="cat")
    assert await good.read() == ["hi"]
    assert not good.socket.aborted
