"""Waits for what is outside of the hub end when it stops, cleaned up, with words."""

import asyncio
from contextlib import suppress

import pytest

from angelia.bus.core import close_bus
from angelia.bus.outside import Outside
from angelia.model.errors import Stopping
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub


class Waiting:
    """Somebody who waits for ever, and cleans up in two steps."""

    def __init__(self) -> None:
        self.told = ""
        self.is_clean = False

    async def run(self, outside: Outside) -> None:
        try:
            async with outside.wait("Nothing is kept."):
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0)
                    self.is_clean = True
        except Stopping as stopping:
            assert self.is_clean
            self.told = stopping.detail


async def test_a_stop_ends_all_who_wait_once_they_have_cleaned_up(hub: SmallHub) -> None:
    waiting = [Waiting(), Waiting()]
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for each in waiting:
            tasks.create_task(each.run(hub.bus.outside))
        await settle()
        await close_bus(hub.bus)
    assert [each.told for each in waiting] == ["The hub is stopping. Nothing is kept."] * 2


async def test_whoever_begins_to_wait_after_the_stop_does_not_wait(hub: SmallHub) -> None:
    await close_bus(hub.bus)
    with pytest.raises(Stopping, match="It is kept"):
        async with hub.bus.outside.wait("It is kept."):
            pytest.fail("it was begun")


async def test_what_ends_by_itself_ends_as_it_does(hub: SmallHub) -> None:
    outside = hub.bus.outside
    async with outside.wait("x"):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with outside.wait("x"), asyncio.timeout(0):
            await asyncio.Event().wait()
    with pytest.raises(ZeroDivisionError):
        async with outside.wait("x"):
            raise ZeroDivisionError
    await close_bus(hub.bus)


async def test_a_cancellation_is_one_still(hub: SmallHub) -> None:
    waiting = Waiting()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(waiting.run(hub.bus.outside))
        await settle()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert (task.cancelled(), waiting.told) == (True, "")
    await close_bus(hub.bus)
