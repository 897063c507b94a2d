"""How the SQLite store's full-text index keeps up: beside the mail, in small steps, through kills and damage."""

import asyncio
import os
import random
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from angelia.bus.ports import Found, Sight, Tx
from angelia.model.query import Query, read_phrases
from angelia.storage.sqlite.connect import Desk, open_writer
from angelia.storage.sqlite.damage import damage_of
from angelia.storage.sqlite.index import BUSY_CHANGES, BUSY_SECONDS, STEP_ROWS, SearchIndex
from angelia.storage.sqlite.migrate import known, migrate
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import CHECKED, CHECKSUM, delivery_row, message_row
from angelia.storage.sqlite.store import SqliteStore
from angelia.storage.sqlite.tx import SqliteTx
from tests.conformance.conftest import ROOMY
from tests.conformance.mail import NOW, PLENTY, accept, delivery, envelope, put
from tests.fakes.disks import FaultyDisk


async def open_store(path: Path, **how: Any) -> SqliteStore:
    return await SqliteStore.open(path, now=NOW, reserve=ROOMY, **how)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "angelia.db"


@pytest.fixture
async def disk(request: pytest.FixtureRequest) -> AsyncIterator[FaultyDisk]:
    disk = FaultyDisk(f"index-{request.node.name}")
    yield disk
    disk.unregister()


async def find(store: SqliteStore, words: str) -> Found:
    return await store.search(Sight(), Query(read_phrases(words)), None, 100, PLENTY)


async def found(store: SqliteStore, words: str) -> list[int]:
    page = await find(store, words)
    assert page.behind == 0
    return [int(message.id, 16) for message in page.envelopes]


async def until(look: Callable[[], bool]) -> None:
    """Wait for something that the store does by itself; nothing is asked of it meanwhile."""
    never = threading.Event()
    async with asyncio.timeout(20):
        while not look():
            await asyncio.to_thread(never.wait, 0.005)


def add(tx: Tx, number: int, text: str) -> int:
    message = envelope(number, text=text)
    tx.add(message, [delivery(message, tx.next_seq())])
    return number


def mark_of(path: Path) -> int:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    ((mark,),) = db.execute("SELECT value FROM meta WHERE name = 'indexed'").fetchall()
    db.close()
    assert isinstance(mark, int)
    return mark


def image_of(path: Path, image: Path) -> Path:
    """The files as they are now: what a kill leaves behind."""
    for end in ("", "-wal"):
        source = path.with_name(path.name + end)
        if source.exists():
            shutil.copyfile(source, image.with_name(image.name + end))
    return image


# ------------------------------------------------------------------------------------------------------- in the quiet


async def test_an_idle_store_indexes_by_itself_and_without_a_sync(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path, vfs=disk.name)
    await until(lambda: store._writer.index.complete)
    await asyncio.gather(*[put(store, number) for number in range(1, 400)])
    before = dict(disk.syncs)
    await until(lambda: store._writer.index.complete)
    assert disk.syncs == before
    assert mark_of(path) == 399
    assert len(await found(store, "text")) == 100
    assert disk.syncs == before  # a search of what is indexed writes nothing
    await store.close()


async def test_what_a_unit_adds_costs_the_index_nothing(path: Path, disk: FaultyDisk) -> None:
    """It is not in the unit's transaction: the commit of a message is as it was."""
    store = await open_store(path, vfs=disk.name)
    rows = await store.write(lambda tx: (add(tx, 1, "a word"), _rows_of_index(tx)))
    assert rows[1] == 0
    await store.close()


def _rows_of_index(tx: Tx) -> int:
    assert isinstance(tx, SqliteTx)
    return int(tx._desk.run("SELECT count(*) FROM search_docsize")[0][0])


def open_index(path: Path) -> tuple[Desk, SearchIndex]:
    desk = open_writer(path, "full", None)
    return desk, SearchIndex(desk, lambda call, whole: call(whole))


async def test_what_it_writes_is_summed_through_merges_and_removals(path: Path) -> None:
    """So that nothing passes for damaged that is not: after each step."""
    store = await open_store(path)
    dice = random.Random(1)
    texts = [" ".join(f"w{dice.randrange(9999)}" for _ in range(60)) for _ in range(1500)]
    image = path.with_name("image.db")
    await store.write(lambda tx: [add(tx, number, text) for number, text in enumerate(texts, 1)])
    image_of(path, image)
    await store.close()
    desk, index = open_index(image)
    signs = 0
    for removed in range(0, 1500, 300):
        index.complete = False
        while not index.complete:
            index.work(0, lambda: True)
            assert not any(damage_of(desk, 100))
        signs = max(signs, desk.run("SELECT count(*) FROM search_idx")[0][0])
        desk.run("DELETE FROM message WHERE number > ? AND number % 300 < 50", (removed,))
    assert signs > 100
    desk.close()


async def test_a_step_is_small(path: Path) -> None:
    store = await open_store(path)
    await store.write(lambda tx: [add(tx, number, f"word{number}") for number in range(1, 1000)])
    await store.write(lambda tx: [add(tx, number, "long " * 200_000) for number in range(1000, 1003)])
    image = image_of(path, path.with_name("image.db"))
    await store.close()
    desk, index = open_index(image)
    done, steps = desk.run("SELECT count(*) FROM search_docsize")[0][0], 0
    while not index.complete:
        mark = desk.run("SELECT value FROM meta WHERE name = 'indexed'")[0][0]
        index.work(0, lambda: True)
        rows = desk.run("SELECT count(*) FROM search_docsize")[0][0]
        assert rows - done <= (64 if mark < 999 else 5)  # messages; parts of a long one, of 16,384 letters each
        done, steps = rows, steps + 1
        assert steps < 1000
    assert desk.run("SELECT value FROM meta WHERE name = 'indexed'") == [(1002,)]
    desk.close()


async def test_work_ends_as_soon_as_somebody_waits(path: Path) -> None:
    store = await open_store(path)
    await store.write(lambda tx: [add(tx, number, f"word{number}") for number in range(1, 1000)])
    image = image_of(path, path.with_name("image.db"))
    await store.close()
    desk, index = open_index(image)
    before = desk.run("SELECT value FROM meta WHERE name = 'indexed'")[0][0]
    index.work(60.0, lambda: False)
    assert desk.run("SELECT value FROM meta WHERE name = 'indexed'")[0][0] <= before + STEP_ROWS
    desk.close()


async def test_opening_makes_nothing_anew(path: Path) -> None:
    store = await open_store(path)
    await asyncio.gather(*[put(store, number) for number in range(1, 300)])
    assert len(await found(store, "text")) == 100
    await store.close()
    assert mark_of(path) == 299
    again = await open_store(path)
    assert again._writer.index._changes == 0
    assert await found(again, "299") == [299]
    await again.close()


async def test_what_is_not_indexed_yet_is_never_mistaken_for_what_was_there_before(path: Path) -> None:
    """A search that does not wait for the index sees less, and nothing that is not so."""
    store = await open_store(path)
    row = (await put(store, 1)).delivery
    for number in range(2, 40):
        assert await found(store, f"{number - 1}") == [number - 1]
        old = row

        def unit(tx: Tx, number: int = number, old: Any = old) -> Any:
            tx.remove([old])
            return accept(tx, number).delivery

        row = await store.write(unit)
        query = Query(read_phrases(f"{number - 1}"))
        page = await store._find(lambda library, query=query: library.search(Sight(), query, None, 9, PLENTY))  # type: ignore[misc]
        assert page.envelopes == []
    await store.close()


async def test_a_page_looks_at_so_many_messages_and_says_where_it_stopped(path: Path) -> None:
    store = await open_store(path)
    await store.write(lambda tx: [add(tx, number, "word") for number in range(1, 5001)])
    nobody = Sight(owns=lambda box: False)
    before, pages = None, 0
    while pages == 0 or before is not None:
        page = await store.search(nobody, Query(read_phrases("word")), before, 20, PLENTY)
        assert page.envelopes == []
        before, pages = page.next, pages + 1
    assert pages == 3
    talks = await store.talks(nobody, None, 20)
    assert (talks.talks, talks.next) == ([], 3001)
    await store.close()


# ----------------------------------------------------------------------------------------------------- while it is busy


async def test_a_search_between_writes_finds_all_that_was_answered(path: Path) -> None:
    store = await open_store(path)
    answered: list[int] = []
    stop = False

    async def send(first: int) -> None:
        number = first
        while not stop:
            await put(store, number)
            answered.append(number)
            number += 8

    async with asyncio.TaskGroup() as tasks:
        for first in range(1, 9):
            tasks.create_task(send(first))
        for _ in range(60):
            await put(store, 1_000_000 + len(answered))
            known = list(answered)
            for number in known[-3:]:
                assert await found(store, f"{number}") == [number]
        stop = True
    assert len(answered) > 100
    await store.close()


async def test_a_steady_trickle_does_not_leave_the_index_behind(path: Path) -> None:
    """The store is never quiet for as long as idle work waits; small groups leave room for a step."""
    store = await open_store(path)
    await store.write(lambda tx: [add(tx, number, "backlog") for number in range(1, BUSY_CHANGES + 1)])
    before = mark_of(path)
    for number in range(BUSY_CHANGES + 1, BUSY_CHANGES + 60):
        await put(store, number)
    assert mark_of(path) > before + 200
    await store.close()


def test_between_large_groups_it_waits_and_between_small_ones_it_works_once_it_is_far_behind(path: Path) -> None:
    path.parent.mkdir()
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    desk, index = open_index(path)
    assert index.wants(1) is None
    index.committed(BUSY_CHANGES - 1)
    assert index.wants(1) is None
    index.committed(1)
    assert (index.wants(1), index.wants(16), index.wants(17)) == (0.0, 0.0, None)
    index.ask(lambda whole: None)
    assert index.wants(256) == BUSY_SECONDS
    desk.close()


async def test_a_search_that_cannot_wait_any_longer_says_how_far_the_index_is(path: Path) -> None:
    store = await open_store(path)
    await put(store, 1)
    assert await found(store, "text") == [1]
    for number in range(2, 6):
        await put(store, number)
    mark = mark_of(path)
    go_on = threading.Event()
    blocked = store.write(lambda tx: go_on.wait(30))
    page = await find(store, "text")
    assert page.behind == 5 - mark
    assert [int(message.id, 16) for message in page.envelopes] == list(range(mark, 0, -1))
    go_on.set()
    await blocked
    assert await found(store, "text") == [5, 4, 3, 2, 1]
    await store.close()


async def test_on_a_full_disk_one_still_finds_what_is_indexed(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path, vfs=disk.name)
    await put(store, 1)
    assert await found(store, "text") == [1]
    await put(store, 2)
    await store.write(lambda tx: store._writer.full.enter())
    store._writer.full._next_probe += 3600
    page = await find(store, "text")
    assert page.behind + len(page.envelopes) == 2
    store._writer.full._next_probe = 0.0
    await store.write(lambda tx: None, essential=True)
    assert await found(store, "text") == [2, 1]
    await store.close()


# ----------------------------------------------------------------------------------------------------- kills and damage


@pytest.mark.parametrize("seed", range(6))
async def test_after_a_power_cut_it_is_as_far_as_it_says(
    path: Path, disk: FaultyDisk, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    store = await open_store(path, vfs=disk.name)
    texts: dict[int, str] = {}

    def unit(tx: Tx, first: int) -> None:
        for number in range(first, first + chance.randrange(1, 90)):
            words = f"word{number} " * chance.choice([1, 1, 1, 9000])
            add(tx, number, words)
            texts[number] = words
        for row in [tx.delivery(key) for key in chance.sample(range(1, first + 1), min(3, first))]:
            if row is not None:
                tx.remove([row])
                texts.pop(int(row.message_id, 16), None)

    for part in range(8):
        await store.write(lambda tx, part=part: unit(tx, 1 + part * 100))  # type: ignore[misc]
        if chance.random() < 0.7:
            await find(store, "anything")
        else:
            await until(lambda: chance.random() < 0.2)
    image = tmp_path / "cut.db"
    disk.power_cut(path, image, lambda: chance.random() < 0.5)
    await store.close()
    again = await open_store(image)
    for number in range(1, 900):
        assert await found(again, f"word{number}") == ([number] if number in texts else []), number
    await again.close()


async def test_a_message_that_was_half_indexed_is_indexed_once(path: Path) -> None:
    store = await open_store(path)
    await store.write(lambda tx: add(tx, 1, "".join(f"word{number} " for number in range(30_000))))
    image = image_of(path, path.with_name("image.db"))
    await store.close()
    for steps in (1, 2, 3):
        desk, index = open_index(image)
        for _ in range(steps):
            index.work(0, lambda: True)
        desk.close()  # and with it what it remembered
    desk, index = open_index(image)
    index.work(60, lambda: True)
    rows = [row[0] for row in desk.run("SELECT id FROM search_docsize ORDER BY id")]
    assert rows == list(range(512, 512 + len(rows)))
    desk.run("INSERT INTO search (search) VALUES ('integrity-check')")
    desk.close()
    again = await open_store(image)
    assert await found(again, "word29999") == [1]
    await again.close()


async def test_a_damaged_index_is_made_anew_and_costs_no_mail(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await open_store(path)
    await asyncio.gather(*[put(store, number) for number in range(1, 300)])
    assert await found(store, "299") == [299]
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("UPDATE search_data SET block = zeroblob(40) WHERE id > 1")
    db.execute("UPDATE search_data SET block = x'ffffffff00' WHERE id = 10")
    db.close()
    again = await open_store(path)
    await asyncio.gather(*[put(again, number) for number in range(300, 400)])
    await until(lambda: again._writer.index.complete)
    assert "mail is not concerned" in caplog.text
    assert not again._writer.broken
    assert await found(again, "text 7") == [7]
    assert await found(again, "399") == [399]
    await again.close()


async def test_a_page_of_the_index_that_is_torn_keeps_nobody_from_his_mail(path: Path) -> None:
    """The store is not refused when it is opened, and another index is made, though this one cannot even be emptied."""
    store = await open_store(path)
    await asyncio.gather(*[put(store, number) for number in range(1, 300)])
    assert await found(store, "299") == [299]
    await store.close()
    tear(path, "search_data")
    again = await open_store(path)
    for number in range(300, 320):
        await put(again, number)
    await until(lambda: again._writer.index.complete)
    assert not again._writer.broken
    assert again.load("claude").open == 319
    assert await found(again, "299") == [299]
    await again.close()


def tear(path: Path, table: str) -> None:
    """Overwrite the first page of a table, or of an index, as a disk may."""
    db = apsw.Connection(str(path))
    ((page,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchall()
    db.close()
    with path.open("r+b") as file:
        file.seek((int(str(page)) - 1) * 4096)
        file.write(b"\xa5" * 4096)


async def test_an_index_that_is_gone_is_made_anew(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await open_store(path)
    row = (await put(store, 1)).delivery
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("DROP TABLE search")
    db.close()
    again = await open_store(path)
    await put(again, 2)
    assert await found(again, "text") == [2, 1]
    await again.write(lambda tx: tx.remove([row]))
    await put(again, 3)
    assert await found(again, "text") == [3, 2]
    assert "search is not described as it was made" in caplog.text
    assert not again._writer.broken
    await again.close()


async def test_bytes_that_flipped_do_not_stop_it(path: Path) -> None:
    store = await open_store(path)
    for number in range(1, 4):
        await put(store, number)
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("UPDATE message SET text = CAST(x'fffe80' AS TEXT), body = x'7b22' WHERE number = 2")
    db.execute("UPDATE meta SET value = 0 WHERE name = 'indexed'")
    db.execute("INSERT INTO search (search) VALUES ('delete-all')")
    db.close()
    desk, index = open_index(path)
    index.work(60, lambda: True)
    assert index.complete
    desk.close()


def _put_as_first(desk: Desk, number: int) -> None:
    """A message and its delivery in the columns of the first format."""
    message = envelope(number)
    columns = message_row(message, message.created_at)
    desk.run(
        SQL["add_message"].replace(" origin,", "").replace("(?, ", "(", 1), (*columns[:CHECKED], columns[CHECKSUM])
    )
    row = delivery_row(number, delivery(message, number))
    desk.run(SQL["add_delivery"].replace(", owes, sum", "").replace("(?, ?, ", "(", 1), row[:-2])


async def test_a_store_of_the_first_format_becomes_one_that_is_searched(path: Path) -> None:
    path.parent.mkdir()
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    desk = open_writer(path, "full", None)
    migrate(desk.db, path, known()[:1])
    desk.control("BEGIN IMMEDIATE")
    for number in range(1, 400):
        _put_as_first(desk, number)
    desk.run("INSERT INTO meta (name, value) VALUES ('seq', 399), ('epoch', 'abcdef01'), ('instance', 'x')")
    desk.run("INSERT INTO meta (name, value) VALUES ('secret', zeroblob(32))")
    desk.control("COMMIT")
    desk.close()
    store = await open_store(path)
    assert await found(store, "text 7") == [7]
    assert (await store.conversation(Sight(), envelope(9).id, 0, 9, PLENTY)) is not None
    await store.close()
