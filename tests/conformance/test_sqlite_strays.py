"""Bits that flip in what a table is ordered by, or in how long a row is said to be: rows that are not where they are
looked for. They are put back where they belong, and nobody notices; what cannot be read is set aside, and is told.
"""

import asyncio
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import apsw
import pytest

from angelia.bus.ports import Scope, Tx
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Envelope, Intent
from angelia.storage.sqlite import aside
from angelia.storage.sqlite.bad_rows import DELIVERY, MESSAGE, Stray, damaged_rows, out_of_order
from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import is_whole_delivery
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.mail import PLENTY, delivery, envelope, lease
from tests.conformance.test_sqlite_losses import open_store, start
from tests.conformance.test_sqlite_stubborn import LARGE, PAGE, told_of, varint, well

COUNT = 90  # rows on two pages
ROWS = SQL["raw_deliveries"]
MANY = 999


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, sent: list[Envelope]) -> Path:
    """A small store, and a large one: with other mail behind, so that it is not looked through before it serves."""
    folder = tmp_path_factory.mktemp("filled")
    asyncio.run(fill(folder / "small.db", sent, 0))
    asyncio.run(fill(folder / "large.db", sent, LARGE))
    return folder


async def fill(path: Path, sent: list[Envelope], large: int) -> None:
    store = await open_store(path)
    more = [envelope(1000 + number, text="x" * 1_000_000, sender="filler") for number in range(large)]

    def unit(tx: Tx) -> None:
        for each in sent:
            tx.add(each, [delivery(each, tx.next_seq())])
        for each in more:
            tx.add(each, [delivery(each, tx.next_seq(), "other")])

    await store.write(unit)
    await store.close()


@pytest.fixture
def path(tmp_path: Path, filled: Path, size: str) -> Path:
    return Path(shutil.copyfile(filled / f"{size}.db", tmp_path / "angelia.db"))


@pytest.fixture(scope="module")
def sent() -> list[Envelope]:
    return [envelope(number, text=f"{number} text", intent=Intent.REQUEST) for number in range(1, COUNT + 1)]


def pages(path: Path, table: str, kind: str) -> list[int]:
    """Where its pages begin."""
    db = apsw.Connection(str(path))
    rows = db.execute("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ?", (table, kind)).fetchall()
    db.close()
    return [(int(str(page)) - 1) * PAGE for (page,) in rows]


def cells(path: Path, table: str) -> Iterator[tuple[int, int, int]]:
    """Each row: its key, where it begins, and where its key stands."""
    data = path.read_bytes()
    for begin in pages(path, table, "leaf"):
        (count,) = struct.unpack_from(">H", data, begin + 3)
        for place in struct.unpack_from(f">{count}H", data, begin + 8):
            _, after = varint(data, begin + place)
            yield varint(data, after)[0], begin + place, after


def signpost(path: Path) -> int:
    """Where the first key above the rows stands: the last of those that it leads to."""
    [root] = pages(path, DELIVERY, "internal")
    (first,) = struct.unpack_from(">H", path.read_bytes(), root + 12)
    return root + int(first) + 4


def flip(path: Path, place: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def flip_key(path: Path, key: int, bit: int, table: str = DELIVERY) -> None:
    [place] = [place for found, _, place in cells(path, table) if found == key]
    flip(path, place, bit)


def raw(path: Path) -> list[object]:
    """All deliveries that are what was written, as SQLite alone reads them; and it has nothing against the file."""
    db = apsw.Connection(str(path))
    faults = [row[0] for row in db.execute("PRAGMA integrity_check").fetchall() if "never used" not in str(row[0])]
    assert faults in ([], ["ok"])
    rows = Desk(db).run(ROWS, (0, 9999))
    db.close()
    assert all(map(is_whole_delivery, rows))
    return list(rows)


async def put_back(path: Path, sent: list[Envelope], whole: list[object]) -> None:
    """All of it is served, nobody is told, and every row is as it was."""
    for _ in range(2):
        hub = await start(path)
        store = hub.bus.store
        assert isinstance(store, SqliteStore)
        assert [p.envelope for p in await hub.mailbox("claude")] == sent
        assert await hub.notices("hermes") == []
        assert {row.state for each in sent for row in await hub.rows(each.id)} == {State.QUEUED}
        assert store.load("claude").open == len(sent)
        assert await store.read(lambda view: view.set_aside_count(9)) == 0
        await well(store)
        await store.close()
        assert raw(path) == whole


@pytest.mark.parametrize(("bit", "held"), [(6, 0), (6, 1), (7, 0)])
async def test_what_a_dead_hub_held_beside_it_waits_again_and_is_not_taken_along(
    path: Path, sent: list[Envelope], bit: int, held: int
) -> None:
    """Before anybody looks for damage, the start changes rows that lie beside it; all looks for a row begin in the
    middle of its page."""
    store = await open_store(path)
    waiting = await store.read(lambda view: view.waiting(Scope("claude"), COUNT, PLENTY))
    await asyncio.gather(*[lease(store, row, Hand.CLAIM) for row, _ in waiting if row.key % 2 == held])
    await store.close()
    leaf = pages(path, DELIVERY, "leaf")[0]
    keys = [found for found, place, _ in cells(path, DELIVERY) if leaf < place < leaf + PAGE]
    key = next(key for key in keys[(len(keys) - 1) // 2 :] if key % 2 != held)
    flip_key(path, key, bit)
    hub = await start(path)
    left = [each for each in sent if bit < 7 or each != sent[key - 1]]
    assert [p.envelope for p in await hub.mailbox("claude")] == left
    assert {row.state for each in left for row in await hub.rows(each.id)} == {State.QUEUED}
    assert len(await hub.notices("hermes")) == len(sent) - len(left)
    assert isinstance(hub.bus.store, SqliteStore)
    await hub.bus.store.close()
    raw(path)


# The key becomes that of the next row, of one behind, of one on another page.
@pytest.mark.parametrize("bit", [0, 3, 6])
async def test_a_delivery_whose_key_flipped_is_put_back_under_it(path: Path, sent: list[Envelope], bit: int) -> None:
    whole = raw(path)
    flip_key(path, 20, bit)
    await put_back(path, sent, whole)


@pytest.mark.parametrize(("key", "bit"), [(1, 0), (COUNT, 2)])
async def test_so_is_the_first_and_the_last(path: Path, sent: list[Envelope], key: int, bit: int) -> None:
    whole = raw(path)
    flip_key(path, key, bit)
    await put_back(path, sent, whole)


async def test_so_are_two(path: Path, sent: list[Envelope]) -> None:
    whole = raw(path)
    flip_key(path, 20, 4)
    flip_key(path, 30, 6)
    await put_back(path, sent, whole)


@pytest.mark.parametrize("key", [20, COUNT])
async def test_where_the_key_takes_a_byte_of_the_row_it_is_set_aside_and_the_sender_told(
    path: Path, sent: list[Envelope], key: int
) -> None:
    whole = raw(path)
    flip_key(path, key, 7)
    await told_of(path, sent[key - 1], sent)
    left = raw(path)
    assert [row for row in whole if row not in left] == [whole[key - 1]]


@pytest.mark.parametrize("bit", [0, 5, 7])
async def test_so_it_is_where_its_length_flipped_and_what_lies_beside_it_is_left_alone(
    path: Path, sent: list[Envelope], bit: int
) -> None:
    whole = raw(path)
    [place] = [place for key, place, _ in cells(path, DELIVERY) if key == 20]
    flip(path, place, bit)
    await told_of(path, sent[19], sent)
    left = raw(path)
    assert [row for row in whole if row not in left] == [whole[19]]


@pytest.mark.parametrize("bit", [2, 5])
async def test_what_leads_to_rows_may_flip_and_costs_none(path: Path, sent: list[Envelope], bit: int) -> None:
    """The key in the page above them: some are not found by theirs any more, though all is right with them."""
    whole = raw(path)
    flip(path, signpost(path), bit)
    await put_back(path, sent, whole)


@pytest.mark.parametrize("table", [DELIVERY, "delivery_message"])
async def test_rows_that_seem_to_lie_upon_one_another_are_written_apart(
    path: Path, sent: list[Envelope], table: str
) -> None:
    """How much is free between them flipped, or where one of them lies: SQLite names a page then, not whose it is."""
    whole = raw(path)
    page = pages(path, table, "leaf")[0]
    flip(path, page + 7 if table == DELIVERY else page + 8 + 2 * 10 + 1, 3)
    await put_back(path, sent, whole)


@pytest.mark.parametrize("bit", [0, 4])
async def test_a_message_whose_number_flipped_is_put_back_under_it(path: Path, sent: list[Envelope], bit: int) -> None:
    whole = raw(path)
    flip_key(path, 20, bit, MESSAGE)
    await put_back(path, sent, whole)


@pytest.mark.parametrize("what", ["number", "length"])
async def test_a_message_that_cannot_be_read_is_set_aside_and_its_sender_told(
    path: Path, sent: list[Envelope], what: str
) -> None:
    [(place, number)] = [(place, number) for key, place, number in cells(path, MESSAGE) if key == 20]
    flip(path, number if what == "number" else place + 1, 7 if what == "number" else 1)
    for _ in range(2):
        hub = await start(path)
        assert [p.envelope for p in await hub.mailbox("claude")] == [each for each in sent if each != sent[19]]
        assert [(n.about, n.reason) for n in await hub.notices("hermes")] == [(sent[19].id, "damaged")]
        assert [row.state for row in await hub.rows(sent[19].id)] == [State.FAILED]
        assert isinstance(hub.bus.store, SqliteStore)
        await well(hub.bus.store)
        await hub.bus.store.close()
        raw(path)


@pytest.fixture
def desk(path: Path) -> Iterator[Desk]:
    db = apsw.Connection(str(path))
    yield Desk(db)
    db.close()


@pytest.mark.parametrize("size", ["small"])
@pytest.mark.parametrize(("bit", "key"), [(0, 21), (3, 28), (4, 4), (6, 84)])
async def test_no_look_goes_on_for_ever_wherever_it_meets_one(
    path: Path, sent: list[Envelope], desk: Desk, bit: int, key: int
) -> None:
    flip_key(path, 20, bit)
    found = out_of_order(desk, DELIVERY)
    assert found is not None
    assert [(stray.before, stray.key, stray.right) for stray in found] == [(19, key, 20)]
    for rows in range(1, COUNT + 2):
        with suppress(apsw.CorruptError):  # that the rows are in no order
            assert len(list(islice(damaged_rows(desk, rows), MANY))) < MANY


@pytest.mark.parametrize("size", ["small"])
async def test_where_it_lies_elsewhere_by_now_nothing_is_changed(path: Path, sent: list[Envelope], desk: Desk) -> None:
    flip_key(path, 20, 4)
    before = desk.run(ROWS, (0, COUNT))
    desk.control("BEGIN IMMEDIATE")
    with pytest.raises(apsw.ConstraintError):
        aside.put_in_order(desk, DELIVERY, [Stray(DELIVERY, 18, 4, None, 20)])
    desk.control("ROLLBACK")
    assert desk.run(ROWS, (0, COUNT)) == before
