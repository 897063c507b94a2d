"""Pages of the SQLite store's file that cannot be read at all, in what can be made again: the search index, indexes."""

import asyncio
import contextlib
import re
import shutil
import threading
from pathlib import Path

import apsw
import pytest

from angelia.bus.glance import glance
from angelia.bus.ports import Scope, Sight, Tx
from angelia.model.delivery import Delivery
from angelia.model.errors import Unwell
from angelia.model.query import Phrase, Query
from angelia.storage.sqlite.connect import Desk, as_model_error, open_reader, open_writer
from angelia.storage.sqlite.damage import damage_of
from angelia.storage.sqlite.index import BEING_MADE, LEFT_ROWS, STEP_ROWS, SearchIndex
from angelia.storage.sqlite.looking import Pace, look_closely, look_through
from angelia.storage.sqlite.opening import SMALL_PAGES
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.conftest import ROOMY
from tests.conformance.mail import NOW, PLENTY, delivery, envelope
from tests.fakes.small_hub import SmallHub

PAGE = 4096
COUNT = 300
CLAUDE = Scope("claude")
SEARCH = ("search_data", "search_idx", "search_docsize", "search_config", "search_sum", "search_again")
GARBAGE = bytes(range(255, -1, -1)) * 16
QUICK = Pace(gentle=False)


async def open_store(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, now=NOW, reserve=ROOMY)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with mail, all of it in the search index, of several pages."""
    path = tmp_path_factory.mktemp("filled") / "angelia.db"

    async def fill() -> None:
        store = await open_store(path)
        await asyncio.gather(*[send(store, number, text_of(number)) for number in range(1, COUNT + 1)])
        assert await found(store) == COUNT
        await store.close()

    asyncio.run(fill())
    return path


async def send(store: SqliteStore, number: int, text: str, box: str = "claude") -> Delivery:
    """A message, and its delivery."""

    def unit(tx: Tx) -> Delivery:
        message = envelope(number, text=text)
        row = delivery(message, tx.next_seq(), box)
        tx.add(message, [row])
        return row

    return await store.write(unit)


def text_of(number: int) -> str:
    return f"text {number} " + " ".join(f"w{number * each * 7919 % 100_000:05}" for each in range(1, 30))


@pytest.fixture
def path(tmp_path: Path, filled: Path) -> Path:
    return Path(shutil.copyfile(filled, tmp_path / "angelia.db"))


async def found(store: SqliteStore, word: str = "text") -> int:
    """How many are found once all was looked into, which a search says for itself."""
    async with asyncio.timeout(20):
        while True:
            page = await store.search(Sight(), Query(phrases=(Phrase(word),)), None, 9999, PLENTY)
            if not page.behind:
                return len(page.envelopes)


def pages_of(path: Path, name: str) -> list[int]:
    """The pages of a table or index, its first first."""
    db = apsw.Connection(str(path))
    rows = db.execute("SELECT pageno FROM dbstat WHERE name = ? ORDER BY path", (name,)).fetchall()
    db.close()
    return [int(str(page)) for (page,) in rows]


def ends_of(path: Path, name: str) -> list[tuple[int, bytes]]:
    """Its first page and its last, and what is written over each."""
    pages = pages_of(path, name)
    return [(pages[0], bytes(PAGE)), *([(pages[-1], GARBAGE)] if len(pages) > 1 else [])]


def overwrite(path: Path, page: int, fill: bytes) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(fill)


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def checked(path: Path) -> list[str]:
    """What SQLite has against the file."""
    db = apsw.Connection(str(path))
    try:
        return [str(text) for (text,) in db.execute("PRAGMA integrity_check")]
    finally:
        db.close()


WHOLE = "the search index is whole again: searches find all messages"
REMADE = "the search index is damaged (): it is made anew from the messages; mail is not concerned"
UNREADABLE = "the store is damaged: something in it cannot be read; looking for what it is"
UNUSED = "N pages of the store's file belong to nothing: no mail is in them, only room is lost"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the store said, but for what SQLite calls it."""
    said = [record.getMessage() for record in caplog.records]
    assert not [line for line in said if "\n" in line]
    return [re.sub(r"\(.*\)", "()", re.sub(r"^\d+", "N", line)) for line in said]


def change(path: Path, sql: str) -> None:
    """Something changes on the disk, behind the store's back."""
    db = apsw.Connection(str(path))
    db.set_busy_timeout(9000)
    db.execute(sql)
    db.close()


def forget_pages(path: Path) -> None:
    """Something else writes the file, so that no connection of the store's may go by what it has read before."""
    change(path, "INSERT OR REPLACE INTO meta (name, value) VALUES ('self_test', random())")


async def use(store: SqliteStore) -> None:
    """All that has to go on."""
    await send(store, COUNT + 1, "text and more")
    row = await send(store, COUNT + 2, "text")
    with contextlib.suppress(Unwell):  # tried again by the timekeeper
        await store.write(lambda tx: tx.remove([row]))
    await store.looked_through()
    await store.write(lambda tx: tx.remove([row]))
    waiting = await store.read(lambda view: view.waiting(CLAUDE, 9999, PLENTY))
    assert [each.envelope.text for each in waiting] == [*map(text_of, range(1, COUNT + 1)), "text and more"]
    assert await store.read(lambda view: view.set_aside_count(9)) == 0


@pytest.mark.parametrize("table", SEARCH)
async def test_the_search_index_is_made_anew_whichever_page_of_it_cannot_be_read(
    path: Path, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    for page, fill in ends_of(path, table):
        copy = Path(shutil.copyfile(path, path.with_name(f"copy{page}.db")))
        overwrite(copy, page, fill)
        caplog.clear()
        store = await open_store(copy)
        assert store.trouble() in (None, BEING_MADE)
        await use(store)
        assert (await found(store), await found(store, "more")) == (COUNT + 1, 1)
        assert store.trouble() is None
        await store.close()
        assert told(caplog) == [REMADE, WHOLE]
        assert checked(copy) == ["ok"]


def test_the_look_at_it_reads_each_of_its_tables(path: Path) -> None:
    """So that it is found in seconds, however long SQLite takes to compare all there is."""
    for table in SEARCH:
        copy = Path(shutil.copyfile(path, path.with_name(f"{table}.db")))
        overwrite(copy, pages_of(path, table)[-1], GARBAGE)
        desk = open_reader(copy, None)
        with pytest.raises((apsw.CorruptError, apsw.SQLError)):
            list(damage_of(desk, 100))
        desk.close()


@pytest.mark.parametrize("table", SEARCH)
async def test_it_is_made_anew_where_that_happens_while_it_is_used(
    path: Path, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    for page, fill in ends_of(path, table):
        copy = Path(shutil.copyfile(path, path.with_name(f"copy{page}.db")))
        caplog.clear()
        store = await open_store(copy)
        await store.looked_through()
        overwrite(copy, page, fill)
        forget_pages(copy)
        await use(store)
        assert (await found(store), await found(store, "more")) == (COUNT + 1, 1)
        await store.looked_through()
        assert store.trouble() is None
        assert not store._writer.broken
        await store.close()
        lines = told(caplog)
        assert (lines.count(REMADE), lines.count(WHOLE)) == (1, 1)
        assert set(lines) <= {REMADE, WHOLE, UNREADABLE, UNUSED}
        again = await open_store(copy)
        assert (await found(again), again.trouble()) == (COUNT + 1, None)
        await again.close()
        assert checked(copy) == ["ok"]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, filled: Path) -> Path:
    """The same, too large to be compared when it is opened."""
    path = Path(shutil.copyfile(filled, tmp_path_factory.mktemp("large") / "angelia.db"))

    async def fill() -> None:
        store = await open_store(path)
        for number in range(COUNT + 10, COUNT + 50):
            await send(store, number, "x" * 500_000, "other")
        await store.close()

    asyncio.run(fill())
    assert path.stat().st_size > SMALL_PAGES * PAGE
    return path


def tables_left(path: Path) -> int:
    db = apsw.Connection(str(path))
    ((count,),) = db.execute("SELECT count(*) FROM sqlite_schema WHERE name GLOB 'search_left*'").fetchall()
    db.close()
    return int(str(count))


async def settled(store: SqliteStore) -> None:
    """What is left of an old search index was done away with."""
    async with asyncio.timeout(20):
        while tables_left(store._path):
            await store.looked_through()
            store._damage._start(True)  # which comes within a minute by itself
            await store.looked_through()
            await asyncio.to_thread(threading.Event().wait, 0.1)


@pytest.mark.parametrize("table", ["search_data", "search_again"])
async def test_in_a_large_store_it_is_made_anew_beside_the_mail(
    tmp_path: Path, large: Path, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    path = Path(shutil.copyfile(large, tmp_path / "angelia.db"))
    overwrite(path, pages_of(path, table)[0], GARBAGE)
    store = await open_store(path)
    await store.looked_through()
    assert told(caplog)[0] == REMADE
    await use(store)
    assert await found(store) == COUNT + 1
    await settled(store)
    copy = await store.back_up(None, NOW)
    await store.close()
    assert told(caplog).count(REMADE) == told(caplog).count(WHOLE) == 1
    assert not [line for line in checked(path) if line != "ok" and "never used" not in line]
    assert look_through(Path(copy.file), QUICK).messages == COUNT + 41


async def test_the_pages_of_one_that_can_be_read_are_given_back_in_small_steps(tmp_path: Path, large: Path) -> None:
    """Once SQLite has seen that they are nobody else's."""
    path = Path(shutil.copyfile(large, tmp_path / "angelia.db"))
    change(path, "UPDATE search_data SET block = replace(block, x'74657874', x'74657875') WHERE id > 100")
    store = await open_store(path)
    assert await found(store) == COUNT
    await store.looked_through()
    await settled(store)
    await store.close()
    assert checked(path) == ["ok"]


def test_no_step_is_long(path: Path) -> None:
    """Another in its place is made in one that looks at no page of it; then some messages a step, and some pages."""
    desk = open_writer(path, "full", None)
    index = SearchIndex(desk, lambda call, whole: call(whole))
    index.distrust("it is tried")
    index.work(0, lambda: True)
    assert rows(desk, "search_left_docsize") == COUNT
    assert rows(desk, "search_docsize") == 0
    done = 0
    while not index.complete:
        index.work(0, lambda: True)
        done, before = rows(desk, "search_docsize"), done
        assert done - before <= STEP_ROWS
    left = COUNT + rows(desk, "search_left_data")
    index.do_away(sound=True)
    while index.patience is not None:
        index.work(0, lambda: True)
        before, left = left, sum(rows(desk, f"search_left_{name}") for name in ("docsize", "data"))
        assert before - left <= LEFT_ROWS
    desk.close()
    assert checked(path) == ["ok"]
    assert tables_left(path) == 0


def rows(desk: Desk, table: str) -> int:
    """How many rows it has; 0 where it is not there."""
    there = desk.run("SELECT count(*) FROM sqlite_schema WHERE name = ?", (table,))[0][0]
    return int(desk.run(f"SELECT count(*) FROM {table}")[0][0]) if there else 0


@pytest.mark.parametrize("running", [False, True], ids=["stopped", "running"])
async def test_a_page_that_names_pages_of_others_costs_them_nothing(path: Path, running: bool) -> None:
    """A page of messages was written where one of the index belongs: its texts lie on pages that are still theirs."""
    store = await open_store(path)
    for number in range(COUNT + 10, COUNT + 40):
        await send(store, number, f"text {number} " + "long " * 3000, "other")
    assert await found(store) == COUNT + 30
    await store.close()
    messages, index = pages_of(path, "message"), pages_of(path, "search_data")
    data = bytes_of(path)
    leaf = [page for page in messages if data[(page - 1) * PAGE] == 13][-1]
    for page in (index[0], index[1]):
        copy = Path(shutil.copyfile(path, path.with_name(f"copy{page}.db")))
        if running:
            store = await open_store(copy)
            await store.looked_through()
        overwrite(copy, page, data[(leaf - 1) * PAGE : leaf * PAGE])
        if running:
            forget_pages(copy)
        else:
            store = await open_store(copy)
        await send(store, COUNT + 50, "text and more")
        assert await found(store) == COUNT + 31
        await store.looked_through()
        await settled(store)
        await send(store, COUNT + 51, "x" * 200_000)  # on pages that are free now
        await store.close()
        assert not [line for line in checked(copy) if line != "ok" and "never used" not in line]
        assert look_through(copy, QUICK).messages == COUNT + 32


async def test_where_none_can_be_made_that_is_said_and_mail_goes_on(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change(path, "DROP TABLE search; CREATE INDEX search_data ON message (number)")  # the name is taken
    store = await open_store(path)
    await send(store, COUNT + 1, "text and more")
    await store.looked_through()
    with pytest.raises(Unwell, match="cannot be made anew"):
        await found(store)
    hub = await SmallHub.open(store=store)
    [problem] = (await glance(hub.bus, None, None)).problems
    assert problem.startswith("the search index is damaged and cannot be made anew: searches find nothing")
    assert len(await store.read(lambda view: view.waiting(CLAUDE, 9999, PLENTY))) == COUNT + 1
    await store.close()
    assert len([line for line in told(caplog) if "tried again each day and at each start" in line]) == 1


async def test_while_it_is_made_anew_searches_give_what_there_is_and_say_how_much_is_missing(path: Path) -> None:
    overwrite(path, pages_of(path, "search_data")[0], GARBAGE)
    store = await open_store(path)
    hub = await SmallHub.open(store=store)
    store._writer.index.held = True
    await store.looked_through()
    store._writer.index.held = True
    store._writer.index.complete = False
    page = await store.search(Sight(), Query(phrases=(Phrase("text"),)), None, 9999, PLENTY)
    assert page.behind + len(page.envelopes) == COUNT
    assert (await glance(hub.bus, None, None)).problems in ([BEING_MADE], [])
    store._writer.index.held = False
    assert await found(store) == COUNT
    assert (await glance(hub.bus, None, None)).problems == []
    await store.close()


# --------------------------------------------------------------------------------------------------------------- copies


async def test_a_copy_of_a_store_whose_search_index_is_damaged_is_sound(path: Path) -> None:
    """Whether the store has found out by then or not."""
    pages = pages_of(path, "search_data")
    store = await open_store(path)
    await store.looked_through()
    overwrite(path, pages[0], GARBAGE)
    forget_pages(path)
    copy = await store.back_up(None, NOW)
    await store.close()
    file = Path(copy.file)
    assert look_closely(file, QUICK)[1] is None
    assert not [line for line in checked(file) if line != "ok" and "never used" not in line]
    again = await open_store(file)
    assert await found(again) == COUNT
    await again.close()


async def test_a_copy_of_a_store_whose_mail_is_damaged_is_refused_with_what_to_do(path: Path) -> None:
    page = pages_of(path, "message")[-1]
    store = await open_store(path)
    await store.looked_through()
    made = await store.back_up(None, NOW)
    overwrite(path, page, GARBAGE)
    forget_pages(path)
    with pytest.raises(Unwell, match=f"stop the hub. Put the newest copy back: angelia restore {made.file}"):
        await store.back_up(None, NOW)
    assert list(Path(made.file).parent.iterdir()) == [Path(made.file)]
    await store.close()


# -------------------------------------------------------------------------------------------------------------- indexes


def index_names(path: Path) -> list[str]:
    db = apsw.Connection(str(path))
    names = [str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")]
    db.close()
    return names


async def test_an_index_that_cannot_be_read_is_made_anew_when_the_store_is_opened(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in index_names(path):
        for page, fill in ends_of(path, name):
            copy = Path(shutil.copyfile(path, path.with_name(f"{name}{page}.db")))
            overwrite(copy, page, fill)
            caplog.clear()
            store = await open_store(copy)
            await use(store)
            assert await found(store) == COUNT + 1
            await store.close()
            assert told(caplog) == ["the store was damaged: what was left was made sound again from its rows"]
            assert checked(copy) == ["ok"]


@pytest.mark.parametrize("name", ["message_id", "message_key", "delivery_message", "delivery_open"])
async def test_in_a_large_store_it_is_made_anew_by_the_look_through_it(
    tmp_path: Path, large: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    path = Path(shutil.copyfile(large, tmp_path / "angelia.db"))
    overwrite(path, pages_of(path, name)[-1], GARBAGE)
    store = await open_store(path)
    await store.looked_through()
    await use(store)
    assert await found(store) == COUNT + 1
    await store.close()
    assert {
        "indexes of the store are damaged (): made anew from the rows",
        "indexes of the store could not be read: all were made anew from the rows",  # read before anybody is served
    } & set(told(caplog))
    assert store.trouble() is None
    assert not [line for line in checked(path) if line != "ok" and "never used" not in line]


# ------------------------------------------------------------------------------------------------------ what is advised


async def test_a_store_that_is_refused_names_the_newest_copy_or_says_that_there_is_none(path: Path) -> None:
    store = await open_store(path)
    await store.back_up(None, NOW)
    newest = await store.back_up(None, NOW + 5000)
    await store.close()
    overwrite(path, pages_of(path, "delivery")[0], bytes(PAGE))
    with pytest.raises(Unwell) as refused:
        await open_store(path)
    assert refused.value.detail.endswith(
        f"It was left as it is. Put the newest copy back: angelia restore {newest.file} --data-dir {path.parent}"
    )
    assert "\n" not in refused.value.detail
    shutil.rmtree(path.parent / "backups")
    with pytest.raises(Unwell, match=f"There is no copy in {path.parent / 'backups'}. Where you keep one elsewhere"):
        await open_store(path)


def test_the_words_of_sqlite_are_one_line_wherever_they_are_told() -> None:
    said = "*** in database main ***\nTree 5 page 5: btreeInitPage() returns error code 11\nPage 6: never used"
    told = as_model_error(apsw.CorruptError(said))
    assert str(told) == (
        "The store could not be used: Tree 5 page 5: btreeInitPage() returns error code 11 Page 6: never used. "
        "Nothing was stored."
    )
