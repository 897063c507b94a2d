"""Copies of a store that is written to meanwhile: the log stays short, nobody waits long, and there is an end."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from angelia.bus.ports import Copy, Tx
from angelia.model.errors import Stopping
from angelia.storage.sqlite.checkpoints import BUSY_BYTES
from angelia.storage.sqlite.copying import Call, back_up
from angelia.storage.sqlite.looking import Pace
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.mail import NOW, delivery, envelope, put

MIB = 1024 * 1024
FIRST = 8  # messages of a MiB each
SHARED = Path("/dev/shm")


async def open_store(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, now=NOW)


async def add(store: SqliteStore, number: int, size: int = MIB) -> None:
    """A message that takes so much of the file."""

    def unit(tx: Tx) -> None:
        message = envelope(number, text=None, body=b'"%b"' % (b"x" * size))
        tx.add(message, [delivery(message, tx.next_seq())])

    await store.write(unit)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "angelia.db"


@pytest.fixture
async def store(path: Path) -> SqliteStore:
    """A store of 8 MiB, none of it in its log."""
    store = await open_store(path)
    for number in range(FIRST):
        await add(store, number)
    await store.close()
    return await open_store(path)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A file that is not there, on another disk."""
    if not SHARED.is_dir() or SHARED.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other disk here")
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        yield Path(folder, "copy.db")


async def test_the_log_stays_short_and_there_is_an_end_though_the_store_grows_faster_than_a_step(
    store: SqliteStore, path: Path
) -> None:
    """Twice as much as a step copies is written after each; a picture that is held meanwhile keeps it all."""
    loop = asyncio.get_running_loop()
    longest, written = 0, FIRST

    async def grow() -> None:
        nonlocal longest, written
        await add(store, written, 4 * MIB)
        written += 1
        longest = max(longest, store.log_bytes)

    def between(call: Call) -> Any:
        outcome = store._writer.between(call)
        asyncio.run_coroutine_threadsafe(grow(), loop).result()
        return outcome

    copy = await asyncio.to_thread(back_up, path, None, NOW, Pace(gentle=False), between)
    assert FIRST < copy.messages <= written
    assert (written - FIRST) * 4 * MIB > 3 * BUSY_BYTES
    assert longest < 2 * BUSY_BYTES
    await store.close()


async def test_the_thread_that_writes_does_nothing_on_another_disk(
    store: SqliteStore, path: Path, elsewhere: Path
) -> None:
    """It may be slow, or hang."""

    def between(call: Call) -> Any:
        raise AssertionError("it was asked to")

    copy = await asyncio.to_thread(back_up, path, str(elsewhere), NOW, Pace(gentle=False), between)
    assert copy.messages == FIRST
    await store.close()


async def test_changes_that_are_undone_do_not_make_a_copy_begin_anew(store: SqliteStore) -> None:
    row = (await put(store, 100)).delivery

    def change_and_fail(tx: Tx) -> None:
        assert tx.move(row, row._replace(deferred=True))
        raise Stopping("Not this one.")

    undone = 0
    async with asyncio.TaskGroup() as tasks:
        making = tasks.create_task(store.back_up(None, NOW))
        while not making.done():
            with pytest.raises(Stopping):
                await store.write(change_and_fail)
            undone += 1
    assert making.result().messages == FIRST + 1
    assert undone > FIRST
    await store.close()


async def test_a_store_that_is_closed_in_the_middle_of_its_pages_gives_the_copy_up(
    store: SqliteStore, path: Path
) -> None:
    outcomes: list[Copy | Stopping] = []

    async def make() -> None:
        try:
            outcomes.append(await store.back_up(None, NOW))
        except Stopping as stopping:
            outcomes.append(stopping)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(make())
        while not any((path.parent / "backups").glob("*")):
            await store.write(lambda tx: None)
        await store.close()
    (outcome,) = outcomes
    assert isinstance(outcome, Stopping)
    assert list((path.parent / "backups").iterdir()) == []
    again = await open_store(path)
    assert (await again.back_up(None, NOW)).messages == FIRST
    await again.close()
