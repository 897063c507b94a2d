"""A store whose files are taken away under it: that is noticed, and nothing more is accepted into them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from angelia.model.errors import Unwell
from angelia.storage.sqlite.place import ENDS, LOOK_SECONDS, Place
from angelia.storage.sqlite.store import SqliteStore

MARGIN = 3


@pytest.fixture
async def gone() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def store(tmp_path: Path, gone: asyncio.Event) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "angelia.db", now=0, on_gone=gone.set)
    yield opened
    await opened.close()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_a_write_is_refused_once_a_file_is_no_longer_at_its_path(
    store: SqliteStore, tmp_path: Path, gone: asyncio.Event, end: str, how: str
) -> None:
    await store.write(lambda tx: tx.put_self_test(1))
    assert store.is_at_its_place()
    take_away(tmp_path / f"angelia.db{end}", how)
    async with asyncio.timeout(LOOK_SECONDS * MARGIN):
        with suppress(Unwell):
            while True:
                await store.write(lambda tx: tx.put_self_test(1))
    for essential in (False, True, True):
        with pytest.raises(Unwell, match="Nothing was stored"):
            await store.write(lambda tx: tx.put_self_test(2), essential=essential)
    async with asyncio.timeout(1.0):
        await gone.wait()
    assert not store.is_at_its_place()
    assert await store.read(lambda view: view.self_test()) == 1


async def test_a_look_is_enough_and_what_to_do_is_said_once(
    store: SqliteStore, tmp_path: Path, gone: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "angelia.db").unlink()
    assert [store.is_at_its_place() for _ in range(3)] == [False] * 3
    said = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(said) == 1
    assert "was removed or replaced while the hub ran" in said[0].getMessage()
    with pytest.raises(Unwell):
        await store.write(lambda tx: tx.put_self_test(2))
    async with asyncio.timeout(1.0):
        await gone.wait()  # whoever looked first, the owner hears of it


async def test_a_store_that_was_put_back_is_not_taken_for_the_one_that_was_written(
    store: SqliteStore, tmp_path: Path
) -> None:
    """The moment in between is not known, so what was found lost stays so."""
    (tmp_path / "angelia.db").rename(tmp_path / "aside")
    assert not store.is_at_its_place()
    (tmp_path / "aside").rename(tmp_path / "angelia.db")
    assert not store.is_at_its_place()


async def test_nothing_of_another_store_is_touched_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "angelia.db"
    opened = await SqliteStore.open(path, now=0)
    for end in ENDS:
        take_away(tmp_path / f"angelia.db{end}", "replaced")
    await opened.close()
    assert [(tmp_path / name).read_bytes() for name in ("angelia.db", "angelia.db-wal")] == [b"another"] * 2


async def test_what_is_in_a_log_that_was_removed_is_brought_into_the_file_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "angelia.db"
    opened = await SqliteStore.open(path, now=0)
    await opened.write(lambda tx: tx.put_self_test(7))
    for end in ENDS[1:]:
        (tmp_path / f"angelia.db{end}").unlink()
    assert not opened.is_at_its_place()
    await opened.close()
    db = apsw.Connection(str(path))
    assert db.execute("SELECT value FROM meta WHERE name = 'self_test'").fetchall() == [(7,)]
    db.close()


def test_a_file_that_is_gone_before_the_first_look_is_gone(tmp_path: Path) -> None:
    where = Place(tmp_path / "angelia.db")
    (tmp_path / "angelia.db").touch()
    assert not where.has_main
    assert not where.is_ours()


def test_a_disk_that_does_not_answer_is_no_proof(tmp_path: Path) -> None:
    path = tmp_path / "angelia.db"
    path.touch()
    where = Place(path)
    path.unlink()
    path.symlink_to(path)  # ELOOP, as good as EIO
    with pytest.raises(OSError, match="symbolic links"):
        path.stat()
    assert where.is_ours()


async def test_what_the_store_itself_does_to_its_files_is_no_loss(store: SqliteStore, tmp_path: Path) -> None:
    """A copy, a search for damage, a log that is folded."""
    await store.write(lambda tx: tx.put_self_test(1))
    await store.back_up(None, 0)
    await store.looked_through()
    await store.write(lambda tx: tx.put_self_test(2))
    assert store.is_at_its_place()


def take_away(path: Path, how: str) -> None:
    path.rename(path.with_name(path.name + ".away"))
    if how == "replaced":
        path.write_bytes(b"another")
