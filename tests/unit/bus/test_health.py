"""Health is true: a write, a read and a wake-up, really done, at most five seconds ago."""

import asyncio

import pytest

from angelia.bus.health import Health, look
from angelia.model.errors import DiskFull, OutcomeUnknown
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore


def test_nothing_is_said_to_be_well_before_it_was_looked_at() -> None:
    assert Health().failing is not None


async def test_a_hub_that_works_is_well(hub: SmallHub) -> None:
    health = await look(hub.bus, Health())
    assert health.failing is None
    assert health.at_utc == hub.clock.now()


async def test_what_is_said_is_at_most_five_seconds_old(store: TroubledStore, troubled: SmallHub) -> None:
    health = Health()
    await look(troubled.bus, health)
    before = store.commits
    await troubled.clock.advance(4.9)
    await look(troubled.bus, health)
    assert store.commits == before
    await troubled.clock.advance(0.2)
    await look(troubled.bus, health)
    assert store.commits == before + 1


@pytest.mark.parametrize("error", [DiskFull("x"), OutcomeUnknown("x"), ZeroDivisionError("x")])
async def test_a_store_that_refuses_is_named(store: TroubledStore, troubled: SmallHub, error: Exception) -> None:
    store.refusal = error
    failing = (await look(troubled.bus, Health())).failing
    assert failing is not None
    assert failing.startswith("writing fails")


async def test_health_comes_back_when_the_store_does(store: TroubledStore, troubled: SmallHub) -> None:
    health = Health()
    store.refusal = DiskFull("x")
    await look(troubled.bus, health)
    store.refusal = None
    await troubled.clock.advance(6)
    assert (await look(troubled.bus, health)).failing is None


async def test_a_store_that_hangs_is_waited_for_two_seconds(store: TroubledStore, troubled: SmallHub) -> None:
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(look(troubled.bus, Health()))
        await troubled.clock.advance(1.9)
        assert not looking.done()
        await troubled.clock.advance(0.2)
    failing = looking.result().failing
    assert failing is not None
    assert "writing took longer" in failing
    await store.let_go()


async def test_what_was_given_up_on_may_still_fail_without_a_word(store: TroubledStore, troubled: SmallHub) -> None:
    store.late = True
    store.fault = DiskFull("x")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(look(troubled.bus, Health()))
        await troubled.clock.advance(2.1)
    await store.let_go()


async def test_all_who_look_at_once_share_one_test_and_none_is_told_of_an_old_one(
    store: TroubledStore, troubled: SmallHub
) -> None:
    health, before = Health(), store.commits
    seen = await asyncio.gather(*[look(troubled.bus, health) for _ in range(5)])
    assert [each.failing for each in seen] == [None] * 5
    assert store.commits == before + 1


async def test_whoever_goes_away_while_looking_does_not_spoil_it_for_the_next(
    store: TroubledStore, troubled: SmallHub
) -> None:
    health = Health()
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(look(troubled.bus, health))
        second = tasks.create_task(look(troubled.bus, health))
        await settle()
        first.cancel()
        await settle()
        await store.let_go()
    assert second.result().failing is None


async def test_a_self_test_disturbs_no_mail(hub: SmallHub) -> None:
    await hub.send()
    before = await hub.mailbox()
    await look(hub.bus, Health())
    assert await hub.mailbox() == before
