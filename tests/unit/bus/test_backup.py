"""The verb for a copy: where it may go, and that it is told as done only when it is."""

import asyncio
from typing import Any

import pytest

from angelia.bus.backup import back_up
from angelia.bus.core import close_bus
from angelia.bus.events import What
from angelia.bus.ports import Copy
from angelia.model.errors import BadRequest, NotFound, Stopping, Unwell
from angelia.storage.memory import MemoryStore
from tests.fakes.small_hub import SmallHub

COPY = Copy("/there/x.db", 4096, 3, 4, 1)


class ArchivedStore(MemoryStore):
    """A store that notes what it is asked for, and answers as it was told to."""

    def __init__(self, answer: Copy | Exception) -> None:
        super().__init__()
        self.asked: list[tuple[str | None, int]] = []
        self._outcome = answer

    async def back_up(self, file: str | None, now: int) -> Copy:
        self.asked.append((file, now))
        await asyncio.sleep(0)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


async def opened(answer: Copy | Exception = COPY) -> tuple[SmallHub, ArchivedStore]:
    store = ArchivedStore(answer)
    return await SmallHub.open(store=store), store


def told(hub: SmallHub) -> list[Any]:
    return [event.detail for event in hub.bus.events.after(0)[1] if event.what is What.BACKED_UP]


@pytest.mark.parametrize("file", [None, "/there/x.db"])
async def test_a_copy_is_made_and_told(file: str | None) -> None:
    hub, store = await opened()
    assert await back_up(hub.bus, file) == COPY
    assert store.asked == [(file, hub.clock.now())]
    assert told(hub) == ["3 messages in /there/x.db"]


@pytest.mark.parametrize("file", ["x.db", "./x.db", "", "/a\0b", "/" + "x" * 5000])
async def test_what_is_no_absolute_path_is_refused(file: str) -> None:
    hub, store = await opened()
    with pytest.raises(BadRequest):
        await back_up(hub.bus, file)
    assert store.asked == []


async def test_a_copy_that_failed_is_not_told_as_done() -> None:
    hub, _ = await opened(Unwell("It is damaged."))
    with pytest.raises(Unwell):
        await back_up(hub.bus, None)
    assert told(hub) == []


async def test_a_store_that_cannot_be_copied_says_so(hub: SmallHub) -> None:
    with pytest.raises(NotFound, match="cannot be copied"):
        await back_up(hub.bus, None)


async def test_none_is_begun_while_the_hub_stops() -> None:
    hub, store = await opened()
    await close_bus(hub.bus)
    with pytest.raises(Stopping):
        await back_up(hub.bus, None)
    assert store.asked == []
