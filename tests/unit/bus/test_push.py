"""What is leased to a stream goes past its task where that waits, in order, and step by step for many."""

import asyncio

import pytest

from angelia.bus.push import TOGETHER, keep_alive
from angelia.bus.subscribe import next_items
from angelia.model.delivery import Hand, State
from tests.fakes.clock import settle
from tests.fakes.small_hub import Reader, ShortWay, SmallHub


async def waiting(hub: SmallHub, tasks: asyncio.TaskGroup, name: str) -> Reader:
    """A reader whose task waits, as a door's does."""
    reader = await hub.listen(name)
    tasks.create_task(next_items(hub.bus, reader.stream))
    await settle()
    return reader


async def test_what_many_are_handed_goes_on_step_by_step(hub: SmallHub) -> None:
    steps: list[str] = []
    several = TOGETHER + 1
    async with asyncio.TaskGroup() as tasks:
        readers = [await waiting(hub, tasks, f"agent{number}") for number in range(several)]
        for reader in readers:
            reader.stream.door = ShortWay(hub.bus, reader.stream, steps)
        await hub.send("bob", "*")
        for reader in readers:
            reader.stream.end("bye")
    first = [step for step in ("frame", "write", "wrote") for _ in range(TOGETHER)]
    assert steps == [*first, "frame", "write", "wrote"]


@pytest.mark.parametrize("broken", ["frame", "write"])
async def test_a_fault_with_one_stream_ends_that_and_stops_no_other(hub: SmallHub, broken: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        readers = [await waiting(hub, tasks, name) for name in ("ann", "bea", "cas")]
        for reader in readers:
            reader.stream.door = ShortWay(hub.bus, reader.stream, broken=broken if reader is readers[1] else None)
        sent = await hub.send("bob", "*")
        assert [reader.stream.ended for reader in readers] == [None, "gone", None]
        await readers[1].close()
        rows = await hub.rows(sent)
        for reader in readers:
            reader.stream.end("bye")
    states = {row.mailbox: row.state for row in rows}
    assert [states[name] for name in ("ann", "bea", "cas")] == [State.DELIVERED, State.QUEUED, State.DELIVERED]


async def test_what_comes_behind_mail_that_is_kept_is_kept_too(hub: SmallHub) -> None:
    reader = await hub.listen()
    reader.stream.door = door = ShortWay(hub.bus, reader.stream)
    for text in ("one", "two"):
        await hub.send(text=text)
    assert (door.written, await reader.read()) == ([], ["one", "two"])


async def test_mail_that_is_acked_by_hand_has_a_lease_whichever_way_it_goes(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    rows = [(await hub.send()).deliveries[0]]
    await reader.read()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(next_items(hub.bus, reader.stream))
        await settle()
        reader.stream.door = ShortWay(hub.bus, reader.stream)
        rows.append((await hub.send()).deliveries[0])
        reader.stream.end("bye")
    assert all(hub.bus.leases.get(row.key, 1) is not None for row in rows)


async def test_a_keep_alive_waits_for_a_task_that_is_at_work(hub: SmallHub) -> None:
    reader = await hub.listen()
    reader.stream.door = door = ShortWay(hub.bus, reader.stream)
    keep_alive(reader.stream)
    assert (reader.stream.keepalive_due, door.written) == (True, [])
