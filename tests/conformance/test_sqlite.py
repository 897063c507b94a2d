"""What only the SQLite store has: groups, a file with a format, starts after a kill, messages that are damaged."""

import asyncio
import logging
import os
import re
import shutil
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest

from angelia.bus.ports import Scope, Tx, View
from angelia.model.agent import Agent
from angelia.model.delivery import Hand, State
from angelia.model.errors import Unwell
from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.migrate import APPLICATION_ID, Migration, known, migrate
from angelia.storage.sqlite.queries import HERE, SQL, parse
from angelia.storage.sqlite.renewing import renew_search
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.conftest import ROOMY
from tests.conformance.mail import HOUR, NOW, PLENTY, accept, change, delivery, envelope, lease, put, seqs, settle
from tests.fakes.disks import FaultyDisk

CLAUDE = Scope("claude")


async def open_store(path: Path, **how: object) -> SqliteStore:
    return await SqliteStore.open(path, now=NOW, reserve=ROOMY, **how)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "angelia.db"


@pytest.fixture
async def disk(request: pytest.FixtureRequest) -> AsyncIterator[FaultyDisk]:
    disk = FaultyDisk(f"faulty-{request.node.name}")
    yield disk
    disk.unregister()


def image_of(path: Path, tmp_path: Path, name: str = "image.db") -> Path:
    """The files as they are now: what a kill leaves behind."""
    image = tmp_path / name
    for end in ("", "-wal"):
        source = path.with_name(path.name + end)
        if source.exists():
            shutil.copyfile(source, image.with_name(image.name + end))
    return image


# --------------------------------------------------------------------------------------------------------------- groups


async def test_a_unit_alone_costs_one_sync(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path, vfs=disk.name)
    await put(store, 1)
    for number in range(2, 12):
        before = dict(disk.syncs)
        await put(store, number)
        assert disk.syncs["-wal"] == before["-wal"] + 1
        assert disk.syncs[""] == before[""]
    await store.close()


async def test_many_units_share_a_sync(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path, vfs=disk.name)
    await put(store, 1)
    before = disk.syncs["-wal"]
    await asyncio.gather(*[put(store, number) for number in range(2, 1002)])
    assert disk.syncs["-wal"] - before <= 8  # the first may go alone; the others in groups of 256
    await store.close()


async def test_a_group_ends_at_four_megabytes(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path, vfs=disk.name)
    await put(store, 1)
    before = disk.syncs["-wal"]
    units = [
        store.write(lambda tx, n=n: accept(tx, n), weight=1024 * 1024)  # type: ignore[misc]
        for n in range(2, 42)
    ]
    await asyncio.gather(*units)
    assert disk.syncs["-wal"] - before >= 10
    await store.close()


async def test_units_that_change_nothing_cost_no_sync(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path, vfs=disk.name)
    row = (await put(store, 1)).delivery
    before = dict(disk.syncs)

    def fails(tx: Tx) -> None:
        accept(tx, 2)
        raise ZeroDivisionError

    await store.write(lambda tx: tx.waiting(CLAUDE, 9, PLENTY))
    await store.write(lambda tx: tx.next_seq())
    await asyncio.gather(*[store.write(lambda tx: tx.load("claude")) for _ in range(50)])
    await asyncio.gather(*[store.write(fails) for _ in range(3)], return_exceptions=True)
    assert await store.write(lambda tx: tx.move(row._replace(attempt=7), row)) is False
    await store.read(lambda view: view.message(envelope(1).id))
    assert disk.syncs == before
    await store.close()


async def test_lazy_units_cost_no_sync_of_their_own(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path, vfs=disk.name)
    await put(store, 1)
    before = disk.syncs["-wal"]
    lazy = [store.write(lambda tx, n=n: accept(tx, n), lazy=True) for n in range(2, 9)]  # type: ignore[misc]
    await put(store, 20)
    await asyncio.gather(*lazy)
    assert disk.syncs["-wal"] == before + 1
    await asyncio.gather(*[store.write(lambda tx, n=n: accept(tx, n), lazy=True) for n in range(30, 39)])  # type: ignore[misc]
    assert disk.syncs["-wal"] == before + 2
    await store.close()


async def test_normal_durability_does_not_sync_each_commit(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path, vfs=disk.name, durability="normal")
    await put(store, 1)
    before = dict(disk.syncs)
    for number in range(2, 12):
        await put(store, number)
    assert disk.syncs == before
    await store.close()


# ------------------------------------------------------------------------------------------------------- start and stop


async def test_what_was_stored_is_there_after_a_stop(path: Path) -> None:
    store = await open_store(path)
    names = (store.epoch, store.instance, store.secret)
    parcels = [await put(store, number) for number in range(1, 4)]
    await store.write(lambda tx: tx.put_agent(Agent(handle="Claude", created_at=1, seen_at=2)))
    await store.close()
    again = await open_store(path)
    assert (again.epoch, again.instance, again.secret) == names
    assert await again.read(lambda view: view.waiting(CLAUDE, 9, PLENTY)) == parcels
    assert [agent.handle for agent in await again.read(lambda view: view.agents())] == ["Claude"]
    load = again.load("claude")
    assert (load.open, load.ready, load.queued, load.bytes, load.by_sender) == (3, 3, 3, 300, {"hermes": 3})
    assert load.bytes_by_sender == {"hermes": 300}
    assert await again.write(lambda tx: dict(tx.load("claude").bytes_by_sender)) == {"hermes": 300}
    assert await again.write(lambda tx: tx.load("claude").open) == 3
    assert await again.write(lambda tx: tx.next_seq()) == 4
    await again.close()


async def test_two_stores_are_not_the_same(tmp_path: Path) -> None:
    one, two = await open_store(tmp_path / "one.db"), await open_store(tmp_path / "two.db")
    assert one.epoch != two.epoch
    assert one.instance != two.instance
    assert one.secret != two.secret
    await one.close()
    await two.close()


async def test_a_stop_leaves_one_file_and_the_space_kept_back(path: Path) -> None:
    store = await open_store(path)
    await put(store, 1)
    await store.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["angelia.db", "angelia.db-ballast"]


async def test_a_killed_hub_holds_nothing_any_more(path: Path, tmp_path: Path) -> None:
    """Leases and delays lived in its memory: all is queued and due again, in its place, under its attempt."""
    store = await open_store(path)
    rows = [(await put(store, number, lane=number % 2)).delivery for number in range(1, 8)]
    leased = await lease(store, rows[0], Hand.AUTO, expires_at=NOW + 5)
    long_lived = await lease(store, rows[1], Hand.CLAIM, expires_at=NOW + 99 * HOUR)
    await change(store, rows[2], deferred=True, attempt=3)
    settled = await settle(store, rows[3])
    forwarded = await change(store, await lease(store, rows[4]), state=State.FORWARDED, sweep_at=NOW)
    held = await change(store, rows[5], state=State.HELD)
    again = await open_store(image_of(path, tmp_path))
    found = await again.read(lambda view: [view.delivery(key) for key in range(1, 8)])
    first, second, third, fourth, fifth, sixth, seventh = found
    assert first is not None
    assert (first.state, first.deferred, first.hand, first.attempt, first.seq) == (State.QUEUED, False, Hand.AUTO, 1, 1)
    assert first.sweep_at == NOW + 900_000
    assert first.leased_at == leased.leased_at
    assert second is not None
    assert (second.state, second.hand, second.sweep_at) == (State.QUEUED, Hand.CLAIM, long_lived.expires_at)
    assert third is not None
    assert (third.state, third.deferred, third.attempt) == (State.QUEUED, False, 3)
    assert (fourth, fifth, sixth, seventh) == (settled, forwarded, held, rows[6])
    assert seqs(await again.read(lambda view: view.waiting(CLAUDE, 99, PLENTY))) == [2, 1, 3, 7]
    assert [row.seq for row in await again.read(lambda view: view.returned("claude", Hand.AUTO, 99))] == [1]
    load = again.load("claude")
    assert (load.open, load.ready, load.queued) == (6, 4, 4)
    await again.close()
    await store.close()


async def test_a_killed_hub_was_in_the_middle_of_its_turns(path: Path, tmp_path: Path) -> None:
    """Whether they ran is looked at before anybody else gets their messages."""
    store = await open_store(path)
    first, second = [(await put(store, number)).delivery for number in (1, 2)]
    turn = await lease(store, first, Hand.TURN)
    await lease(store, second, Hand.CLAIM)
    again = await open_store(image_of(path, tmp_path))
    assert await again.read(lambda view: view.turns()) == [turn]
    assert seqs(await again.read(lambda view: view.waiting(CLAUDE, 99, PLENTY))) == [2]
    await again.close()
    await store.close()


async def test_no_seq_is_given_twice_over_kills(path: Path, tmp_path: Path) -> None:
    given: list[int] = []

    def unit(tx: Tx, count: int, fails: bool) -> None:
        given.extend(tx.next_seq() for _ in range(count))
        if fails:
            raise ZeroDivisionError

    store = await open_store(path)
    for life in range(4):
        for count, fails in ((1, False), (700, True), (1, False), (3000, True), (5, True)):
            units = [store.write(lambda tx, c=count, f=fails: unit(tx, c, f))]  # type: ignore[misc]
            await asyncio.gather(*units, return_exceptions=True)
        following = await open_store(image_of(path, tmp_path, f"life-{life}.db"))
        await store.close()
        store, path = following, tmp_path / f"life-{life}.db"
    assert given == sorted(set(given))
    assert len(given) == 4 * 3707
    await store.close()


async def test_a_counter_that_was_lost_is_found_again_from_the_rows(path: Path) -> None:
    store = await open_store(path)
    for number in range(1, 6):
        await put(store, number)
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("UPDATE meta SET value = 0 WHERE name = 'seq'")
    db.close()
    again = await open_store(path)
    assert await again.write(lambda tx: tx.next_seq()) > 5
    await again.close()


@pytest.fixture
def careless(path: Path) -> Iterator[None]:
    """A umask that hides nothing, and an empty file that was made under it."""
    umask = os.umask(0)
    path.parent.mkdir()
    path.touch()
    yield
    os.umask(umask)


@pytest.mark.usefixtures("careless")
async def test_files_are_for_their_owner_alone(path: Path) -> None:
    store = await open_store(path)
    await put(store, 1)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    await store.close()
    assert modes == {f"angelia.db{end}": 0o600 for end in ("", "-wal", "-shm", "-ballast")}


async def test_a_folder_that_is_made_is_for_its_owner_alone(path: Path) -> None:
    store = await open_store(path)
    await store.close()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


# ---------------------------------------------------------------------------------------------------------- the reading


async def test_a_read_does_not_wait_for_the_writer_and_the_writer_not_for_a_read(path: Path) -> None:
    store = await open_store(path)
    await put(store, 1)
    in_unit, in_read = asyncio.Event(), asyncio.Event()
    go_on = [threading.Event() for _ in range(2)]
    loop = asyncio.get_running_loop()

    def unit(tx: Tx) -> None:
        accept(tx, 2)
        loop.call_soon_threadsafe(in_unit.set)
        assert go_on[0].wait(20)

    def look(view: View) -> list[int]:
        first = seqs(view.waiting(CLAUDE, 9, PLENTY))
        loop.call_soon_threadsafe(in_read.set)
        assert go_on[1].wait(20)
        return first + seqs(view.waiting(CLAUDE, 9, PLENTY))

    writing = store.write(unit)
    await in_unit.wait()
    assert seqs(await store.read(lambda view: view.waiting(CLAUDE, 9, PLENTY))) == [1]
    reading = store.read(look)
    await in_read.wait()
    go_on[0].set()
    await writing
    await put(store, 3)
    go_on[1].set()
    assert await reading == [1, 1]
    assert seqs(await store.read(lambda view: view.waiting(CLAUDE, 9, PLENTY))) == [1, 2, 3]
    await store.close()


async def test_a_glance_at_the_sums_never_sees_what_is_not_on_disk(path: Path) -> None:
    """Else whoever saw nothing to take would sleep, and nobody would wake it when the unit fails."""
    store = await open_store(path)
    row = (await put(store, 1)).delivery
    in_unit, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def unit(tx: Tx) -> None:
        tx.move(row, row._replace(state=State.LEASED, attempt=1, sweep_at=None))
        assert tx.load("claude").ready == 0
        loop.call_soon_threadsafe(in_unit.set)
        assert go_on.wait(20)
        raise ZeroDivisionError

    writing = store.write(unit)
    await in_unit.wait()
    assert store.load("claude").ready == 1
    go_on.set()
    with pytest.raises(ZeroDivisionError):
        await writing
    assert store.load("claude").ready == 1
    await store.close()


async def test_no_transaction_outlives_its_function(path: Path) -> None:
    """Another program can fold the whole log at once, which takes that nobody reads."""
    store = await open_store(path)
    await put(store, 1)

    def fails(view: View) -> None:
        view.message(envelope(1).id)
        raise ZeroDivisionError

    await asyncio.gather(*[store.read(fails) for _ in range(9)], return_exceptions=True)
    await asyncio.gather(*[store.read(lambda view: view.waiting(CLAUDE, 9, PLENTY)) for _ in range(9)])
    other = apsw.Connection(str(path))
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0
    other.close()
    await put(store, 2)
    await store.close()


async def test_what_is_forgotten_is_gone_from_the_disk(path: Path) -> None:
    store = await open_store(path)
    for number, text in ((1, "a short zanzibar"), (2, "one long zanzibar " * 9000), (3, "not a matter of hiding")):
        message = envelope(number, text=text)
        await store.write(lambda tx, m=message: tx.add(m, [delivery(m, tx.next_seq())]))  # type: ignore[misc]
    rows = [parcel.delivery for parcel in await store.read(lambda view: view.waiting(CLAUDE, 9, PLENTY))]
    await store.write(lambda tx: tx.remove(rows[:2]))
    await store.close()
    left = content_of(path)
    assert b"zanzibar" not in left
    assert b"not a matter of hiding" in left


# ----------------------------------------------------------------------------------------------------------- the format


def shape(db: apsw.Connection) -> list[tuple[str, ...]]:
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
    return [(*map(str, row[:3]), " ".join(str(row[3]).split())) for row in rows]


def test_the_schema_is_what_the_migrations_add_up_to(tmp_path: Path) -> None:
    migrated, written = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    migrate(migrated, tmp_path / "x", known())
    written.execute((HERE / "schema.sql").read_text("utf-8"))
    assert shape(migrated) == shape(written)


async def test_every_statement_can_be_prepared_and_each_is_used(path: Path) -> None:
    store = await open_store(path)
    await store.close()
    db, empty = apsw.Connection(str(path)), apsw.Connection(":memory:")
    renew_search(Desk(db))  # so that something is left of an old one, too
    db.execute("PRAGMA writable_schema = on")
    for made in ("create_message_anew", "create_delivery_anew"):
        db.execute(SQL[made])
    db.create_scalar_function("is_chosen", lambda *keys: True, 1)
    code = "".join(file.read_text("utf-8") for file in HERE.glob("*.py"))
    for name, sql in SQL.items():
        assert f'SQL["{name}"]' in code, f"nobody uses {name}"
        numbers = [int(digit) for digit in re.findall(r"\?(\d)", sql)]
        there = empty if sql.startswith("CREATE") else db
        there.execute("EXPLAIN " + sql, [0] * (max(numbers) if numbers else sql.count("?"))).fetchall()
    db.close()


def test_two_statements_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two of the name"):
        parse("-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n")


def make(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)


def content_of(path: Path) -> bytes:
    return path.read_bytes()


async def test_a_store_of_a_newer_program_is_left_alone(path: Path) -> None:
    store = await open_store(path)
    await store.close()
    db = apsw.Connection(str(path))
    db.execute(f"PRAGMA user_version = {len(known()) + 1}")
    db.close()
    before = content_of(path)
    with pytest.raises(Unwell, match="newer Angelia"):
        await open_store(path)
    assert content_of(path) == before


async def test_another_programs_file_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE message (x); PRAGMA user_version = 1")
    db.close()
    with pytest.raises(Unwell, match="not a store of Angelia"):
        await open_store(path)


@pytest.mark.parametrize("content", [b"no database at all" * 500, b"SQLite format 3\0" + b"\xff" * 9000])
async def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    make(path, content)
    with pytest.raises(Unwell):
        await open_store(path)
    assert content_of(path) == content


async def test_a_store_with_a_broken_page_is_not_served(path: Path) -> None:
    store = await open_store(path)
    await asyncio.gather(*[put(store, number) for number in range(1, 500)])
    await store.close()
    db = apsw.Connection(str(path))
    ((root,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'delivery'").fetchall()
    db.close()
    with path.open("r+b") as file:
        file.seek(4096 * (int(str(root)) - 1))
        file.write(b"\xa5" * 4096)
    with pytest.raises(Unwell):
        await open_store(path)


async def old_store(path: Path) -> apsw.Connection:
    store = await open_store(path)
    await put(store, 1)
    await put(store, 2)
    await store.close()
    return apsw.Connection(str(path))


async def test_a_migration_keeps_the_old_file_and_every_row(path: Path) -> None:
    db = await old_store(path)
    step = Migration(len(known()) + 1, "more", "ALTER TABLE agent ADD COLUMN colour TEXT")
    migrate(db, path, [*known(), step])
    assert db.pragma("user_version") == step.number
    kept = path.with_name(f"angelia.db.format-{step.number - 1}")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    copy = apsw.Connection(str(kept))
    for one in (db, copy):
        assert one.execute("SELECT count(*) FROM message").fetchall() == [(2,)]
    assert copy.pragma("user_version") == step.number - 1
    assert copy.pragma("application_id") == APPLICATION_ID
    copy.close()
    db.close()


@pytest.mark.parametrize("sql", ["DELETE FROM delivery WHERE key = 1", "CREATE TABLE x (y); SELECT * FROM nowhere"])
async def test_a_migration_that_loses_rows_or_fails_changes_nothing(path: Path, sql: str) -> None:
    db = await old_store(path)
    before = shape(db)
    with pytest.raises((Unwell, apsw.SQLError)):
        migrate(db, path, [*known(), Migration(len(known()) + 1, "bad", sql)])
    assert db.pragma("user_version") == len(known())
    assert shape(db) == before
    assert db.execute("SELECT count(*) FROM delivery").fetchall() == [(2,)]
    db.close()
    store = await open_store(path)
    assert store.load("claude").open == 2
    await store.close()


def test_migrations_are_numbered_without_a_gap(tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").touch()
    (tmp_path / "0003_b.sql").touch()
    with pytest.raises(ValueError, match="not numbered"):
        known(tmp_path)


# --------------------------------------------------------------------------------------------------------- damaged mail


def flip(path: Path, number: int) -> None:
    """A bit of a message flips on the disk, behind the store's back."""
    db = apsw.Connection(str(path))
    db.set_busy_timeout(9000)
    db.execute("UPDATE message SET text = 'text of another' WHERE number = ?", (number,))
    db.close()


async def set_aside(store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture, seq: int) -> None:
    """Message ``seq`` is nowhere any more but in the table of the damaged; the others are untouched."""
    await store.write(lambda tx: None)  # what a reader found is set aside by a unit of the store's own
    await store.write(lambda tx: None)
    assert f"message {envelope(seq).id} is damaged" in caplog.text
    assert await store.read(lambda view: (view.message(envelope(seq).id), view.delivery(seq))) == (None, None)
    assert store.load("claude").open == 2
    db = apsw.Connection(str(path))
    rows = db.execute("SELECT message_id, json_extract(message, '$.text'), deliveries FROM damaged").fetchall()
    db.close()
    assert [row[:2] for row in rows] == [(envelope(seq).id, "text of another")]
    assert f'"key":{seq},' in str(rows[0][2])


async def test_a_damaged_message_is_set_aside_when_a_unit_meets_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(path)
    for number in range(1, 4):
        await put(store, number)
    flip(path, 2)
    assert seqs(await store.write(lambda tx: tx.waiting(CLAUDE, 9, PLENTY))) == [1, 3]
    await set_aside(store, path, caplog, 2)
    await store.close()


@pytest.mark.parametrize("look", ["message", "waiting", "due", "inbox"])
async def test_a_damaged_message_is_never_read_and_set_aside_afterwards(
    path: Path, caplog: pytest.LogCaptureFixture, look: str
) -> None:
    store = await open_store(path)
    for number in range(1, 4):
        await put(store, number)
    flip(path, 1)

    def read(view: View) -> object:
        if look == "message":
            return [envelope(n).id for n in (1, 2, 3) if view.message(envelope(n).id)]
        if look == "waiting":
            return [parcel.envelope.id for parcel in view.waiting(CLAUDE, 2, PLENTY)]
        if look == "due":
            return [parcel.envelope.id for parcel in view.due(NOW + 2 * HOUR, 3)]
        return [parcel.envelope.id for parcel in view.inbox("claude", 0, 3, None, None).parcels]

    assert await store.read(read) == [envelope(2).id, envelope(3).id]
    await set_aside(store, path, caplog, 1)
    await store.close()


async def test_the_newest_messages_are_looked_at_when_the_store_is_opened(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(path)
    for number in range(1, 4):
        await put(store, number)
    await store.close()
    flip(path, 3)
    again = await open_store(path)
    await set_aside(again, path, caplog, 3)
    await put(again, 3)
    assert again.load("claude").open == 3
    await again.close()


async def test_a_message_that_is_whole_is_not_set_aside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    store = await open_store(path)
    await put(store, 1)
    store.set_aside(1, "message")  # a reader that misread
    assert seqs(await store.write(lambda tx: tx.waiting(CLAUDE, 9, PLENTY))) == [1]
    assert "damaged" not in caplog.text
    await store.close()
