"""What all verbs share: opening and closing, waking, and units of the hub's own that nobody awaits."""

import asyncio

import pytest

from angelia.bus.caller import ADMIN, OPEN, Caller, Rank
from angelia.bus.core import close_bus, open_bus
from angelia.bus.subscribe import End
from angelia.model.errors import DiskFull, OutcomeUnknown, Stopping, Unwell
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore


async def test_a_bus_begins_with_what_its_store_knows(hub: SmallHub) -> None:
    again = await open_bus(hub.bus.store, hub.clock, hub.bus.ids, hub.bus.limits)
    assert again.directory.agents == hub.bus.directory.agents
    assert len(again.leases) == 0


async def test_opening_a_second_time_writes_nothing(store: TroubledStore, troubled: SmallHub) -> None:
    before = store.commits
    await open_bus(store, troubled.clock, troubled.bus.ids, troubled.bus.limits)
    assert store.commits == before


async def test_the_name_of_a_caller_is_shown_as_registered(hub: SmallHub) -> None:
    await hub.know("Dora")
    assert hub.bus.identify(OPEN, "DORA") == ("Dora", False)
    assert hub.bus.identify(OPEN, "Emil") == ("Emil", False)
    assert hub.bus.identify(ADMIN, None) == ("human", True)
    assert hub.bus.identify(Caller(Rank.AGENT, "dora"), None) == ("Dora", True)


async def test_the_end_of_the_hub_says_goodbye_and_wakes_all_who_wait(hub: SmallHub) -> None:
    readers = [await hub.listen("ann"), await hub.observe("ann"), await hub.listen("bob")]
    poked = hub.bus.timers.poked()
    with hub.bus.signals.watch("anything") as watch:
        ticket = watch.ticket()
        await close_bus(hub.bus)
        assert watch.changed(ticket).done()
    assert poked.done()
    assert [(await reader.items())[-1] for reader in readers] == [End("bye")] * 3
    with pytest.raises(Stopping):
        hub.bus.check_running()


async def test_a_wake_reaches_streams_and_claims(hub: SmallHub) -> None:
    reader = await hub.listen("ann")
    waiter = reader.stream.waiter()
    with hub.bus.signals.watch("ann") as watch:
        ticket = watch.ticket()
        hub.bus.wake("ann")
        assert (waiter.done(), watch.changed(ticket).done()) == (True, True)


@pytest.mark.parametrize("error", [DiskFull("no room"), Unwell("busy")])
async def test_what_must_be_done_is_tried_again_until_it_is(
    store: TroubledStore, troubled: SmallHub, error: Exception
) -> None:
    done: list[int] = []
    store.refusal = error
    troubled.bus.submit(lambda tx: done.append(1))
    await settle()
    for _ in range(3):
        await troubled.clock.advance(1)
        troubled.bus.timers.fire(troubled.clock.monotonic())
        await settle()
        assert done == []
    store.refusal = None
    await troubled.pass_time(1)
    assert done == [1]
    await troubled.pass_time(10)
    assert done == [1]


@pytest.mark.parametrize("error", [OutcomeUnknown("x"), Stopping("x"), ZeroDivisionError("x")])
async def test_what_can_never_be_done_is_told_to_the_log(
    store: TroubledStore, troubled: SmallHub, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    store.refusal = error
    troubled.bus.submit(lambda tx: None)
    await settle()
    store.refusal = None
    assert len(troubled.bus.timers) == 0
    assert "a unit of the hub's own failed" in caplog.text


async def test_what_need_not_be_done_is_not_tried_again(store: TroubledStore, troubled: SmallHub) -> None:
    store.refusal = DiskFull("no room")
    troubled.bus.submit(lambda tx: None, essential=False)
    await settle()
    store.refusal = None
    assert len(troubled.bus.timers) == 0


async def test_a_unit_that_was_cancelled_says_nothing(hub: SmallHub, caplog: pytest.LogCaptureFixture) -> None:
    futures: list[asyncio.Future[None]] = []
    write = hub.bus.store.write
    troubled = await SmallHub.open(store=TroubledStore(hub.bus.store))
    troubled.bus.submit(lambda tx: None)
    futures.append(write(lambda tx: None))
    futures[0].cancel()
    await settle()
    assert caplog.text == ""
