"""Watching: where a reader begins, what it hears, and that a slow one is told what it missed."""

import asyncio

import pytest

from angelia.bus.core import close_bus
from angelia.bus.events import KEPT, What
from angelia.bus.watch import Watcher, news, watcher
from angelia.model.errors import BadRequest, RateLimited, Stopping
from angelia.model.limits import Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub


def note(hub: SmallHub, count: int, first: int = 1) -> None:
    for number in range(first, first + count):
        hub.bus.events.note(What.REFUSED, number, None, str(number))


async def heard(hub: SmallHub, reader: Watcher, seconds: float = 0) -> tuple[int, list[str]]:
    missed, found = await news(hub.bus, reader, seconds)
    return missed, [str(event.detail) for event in found]


async def test_a_reader_hears_what_happens_from_now_on(hub: SmallHub) -> None:
    note(hub, 5)
    with watcher(hub.bus, 0, None) as reader:
        assert await heard(hub, reader) == (0, [])
        note(hub, 2, 6)
        assert await heard(hub, reader) == (0, ["6", "7"])
        assert await heard(hub, reader) == (0, [])


@pytest.mark.parametrize(("last", "found"), [(0, []), (2, ["4", "5"]), (99, ["1", "2", "3", "4", "5"])])
async def test_it_may_begin_with_what_happened_last(hub: SmallHub, last: int, found: list[str]) -> None:
    note(hub, 5)
    with watcher(hub.bus, last, None) as reader:
        assert await heard(hub, reader) == (0, found)


async def test_it_may_hear_only_what_one_agent_has_a_part_in(hub: SmallHub) -> None:
    for text in ("1", "2", "3"):
        await hub.send("bob", "ann", text)
        await hub.send("cat", "ann", text)
    with watcher(hub.bus, 2, None, "bob") as reader:
        assert await heard(hub, reader) == (0, ["2", "3"])
        await hub.send("cat", "ann", "4")
        assert await heard(hub, reader) == (0, [])
        await hub.send("ann", "bob", "5")
        assert await heard(hub, reader) == (0, ["5"])
    with watcher(hub.bus, 9, None, "nobody") as reader:
        assert await heard(hub, reader) == (0, [])


async def test_it_goes_on_behind_an_id(hub: SmallHub) -> None:
    note(hub, 5)
    with watcher(hub.bus, 99, f"{hub.bus.events.run}-3") as reader:
        assert reader.reset is None
        assert await heard(hub, reader) == (0, ["4", "5"])


@pytest.mark.parametrize(
    "last_id", ["00000000-3", "x", "-", "{run}-", "{run}-x", "{run}-99", "{run}-" + "9" * 40, "{run}-٣"]
)
async def test_an_id_that_means_nothing_here_is_told(hub: SmallHub, last_id: str) -> None:
    note(hub, 5)
    with watcher(hub.bus, 0, last_id.format(run=hub.bus.events.run)) as reader:
        assert reader.reset is not None
        note(hub, 1, 6)
        assert await heard(hub, reader) == (0, ["6"])


async def test_one_that_is_too_slow_is_told_how_many_it_missed(hub: SmallHub) -> None:
    with watcher(hub.bus, 0, None) as reader:
        note(hub, KEPT + 7)
        missed, found = await heard(hub, reader)
        assert (missed, found[0], len(found)) == (7, "8", KEPT)


async def test_it_wakes_for_what_happens_and_after_its_patience(hub: SmallHub) -> None:
    with watcher(hub.bus, 0, None) as reader:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(heard(hub, reader, 15))
            await settle()
            assert not waiting.done()
            await hub.clock.advance(14)
            assert not waiting.done()
            note(hub, 1)
        assert waiting.result() == (0, ["1"])
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(heard(hub, reader, 15))
            await settle()
            await hub.clock.advance(15)
        assert waiting.result() == (0, [])


async def test_what_is_not_for_it_does_not_wake_it(hub: SmallHub) -> None:
    with watcher(hub.bus, 0, None, "cat") as reader:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(heard(hub, reader, 15))
            await settle()
            await hub.send("bob", "ann")
            await hub.clock.advance(14)
            assert not waiting.done()
            await hub.clock.advance(1)
        assert waiting.result() == (0, [])


async def test_it_wakes_when_the_hub_stops(hub: SmallHub) -> None:
    with watcher(hub.bus, 0, None) as reader:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(heard(hub, reader, 15))
            await settle()
            await close_bus(hub.bus)
        assert waiting.result() == (0, [])
    with pytest.raises(Stopping), watcher(hub.bus, 0, None):
        pass


async def test_readers_are_bounded_and_counted() -> None:
    hub = await SmallHub.open(Limits(event_streams=2))
    with watcher(hub.bus, 0, None), watcher(hub.bus, 0, None):
        with pytest.raises(RateLimited), watcher(hub.bus, 0, None):
            pass
        assert hub.bus.events.readers == 2
    assert hub.bus.events.readers == 0


@pytest.mark.parametrize("last", [-1, KEPT + 1])
async def test_more_than_is_kept_cannot_be_asked_for(hub: SmallHub, last: int) -> None:
    with pytest.raises(BadRequest), watcher(hub.bus, last, None):
        pass
    assert hub.bus.events.readers == 0
