"""The writer's thread: what a refusal leaves behind. (What units are promised: `tests/conformance`.)"""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from angelia.bus.ports import Tx
from angelia.model.errors import MailboxFull
from angelia.storage.sqlite.store import SqliteStore

REFUSALS = 50


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "angelia.db", now=0)
    yield opened
    await opened.close()


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_refusals_leave_nothing_that_only_a_collection_would_free(store: SqliteStore, uncollected: None) -> None:
    """A flood of them would make collections, each of which holds up everybody for as long as ten commits."""

    def unit(tx: Tx) -> None:
        raise MailboxFull("It is full.")

    async def ask() -> None:
        with pytest.raises(MailboxFull):
            await store.write(unit)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(REFUSALS):
            tasks.create_task(ask())
    left = [found for found in gc.get_objects() if isinstance(found, MailboxFull)]
    assert len(left) < REFUSALS / 10, "the last may still be somebody's"


async def test_a_fault_of_ours_is_still_told_with_its_place(store: SqliteStore) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        await store.write(lambda tx: 1 / 0)
    assert caught.traceback[-1].name == "<lambda>"
