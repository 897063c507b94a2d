"""The SQLite store on disks that fail: failed syncs, no space, power cuts; and readers that hold the log."""

import asyncio
import errno
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from angelia.bus.ports import Scope, Tx, View
from angelia.model.errors import DiskFull, OutcomeUnknown, Unwell
from angelia.storage.sqlite.full import Disk, Reserve, index_bytes
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.conftest import ROOMY, SMALL
from tests.conformance.mail import NOW, PLENTY, accept, delivery, envelope, lease, put, settle
from tests.fakes.disks import FaultyDisk, SmallDisk

CLAUDE = Scope("claude")
MIB = 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "angelia.db"


@pytest.fixture
async def disk(request: pytest.FixtureRequest) -> AsyncIterator[FaultyDisk]:
    disk = FaultyDisk(f"faulty-{request.node.name}")
    yield disk
    disk.unregister()


async def open_store(path: Path, under: FaultyDisk | None = None, **how: object) -> SqliteStore:
    how = {"now": NOW, "reserve": ROOMY, "vfs": under.name if under else None, **how}
    return await SqliteStore.open(path, **how)  # type: ignore[arg-type]


async def texts(store: SqliteStore) -> list[str | None]:
    """The texts of all that waits."""
    return [parcel.envelope.text for parcel in await store.read(lambda view: view.waiting(CLAUDE, 9999, PLENTY))]


def sound(image: Path) -> bool:
    """Whether SQLite finds a file whole, and each delivery has its message."""
    db = apsw.Connection(str(image))
    try:
        orphans = db.execute(
            "SELECT count(*) FROM delivery WHERE message NOT IN (SELECT number FROM message)"
        ).fetchall()
        return db.execute("PRAGMA integrity_check").fetchall() == [("ok",)] and orphans == [(0,)]
    finally:
        db.close()


# --------------------------------------------------------------------------------------------------------- failed syncs


@pytest.mark.parametrize("nth", [1, 2, 3, 7])
async def test_a_failed_sync_is_unknown_to_its_group_and_to_all_later_ones(
    path: Path, disk: FaultyDisk, nth: int, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[int] = []
    told: list[int] = []
    store = await open_store(path, disk, on_failure=lambda: failures.append(1))
    left = [nth]

    def fails(kind: str) -> bool:
        left[0] -= 1
        return left[0] == 0

    disk.fail_sync = fails

    def unit(tx: Tx, number: int) -> None:
        accept(tx, number)
        tx.then(lambda: told.append(number))
        tx.otherwise(lambda: told.append(-number))

    for number in range(1, nth):
        await store.write(lambda tx, n=number: unit(tx, n))  # type: ignore[misc]
    group = [store.write(lambda tx, n=n: unit(tx, n)) for n in range(100, 103)]  # type: ignore[misc]
    for future in group:
        with pytest.raises(OutcomeUnknown):
            await future
    written = dict(disk.writes)
    for lazy, essential in ((False, False), (False, True), (True, True)):
        with pytest.raises(OutcomeUnknown):
            await store.write(lambda tx: accept(tx, 200), lazy=lazy, essential=essential)
    assert told == list(range(1, nth))
    assert await texts(store) == [f"text {number}" for number in range(1, nth)]
    await store.close()
    assert failures == [1]
    assert disk.writes == written
    assert "nothing is written any more" in caplog.text
    again = await open_store(path)
    found = await texts(again)
    assert found[: nth - 1] == [f"text {number}" for number in range(1, nth)]
    assert await again.write(lambda tx: tx.next_seq()) > nth + 3
    await again.close()


async def test_units_queued_behind_a_failed_group_are_unknown_too(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path, disk)
    disk.fail_sync = lambda kind: True
    ran: list[int] = []

    def unit(tx: Tx, number: int) -> None:
        ran.append(number)
        accept(tx, number)

    futures = [store.write(lambda tx, n=n: unit(tx, n)) for n in range(1, 900)]  # type: ignore[misc]
    answers = await asyncio.gather(*futures, return_exceptions=True)
    assert {type(answer) for answer in answers} == {OutcomeUnknown}
    assert len(ran) <= 256
    await store.close()


async def test_a_checkpoint_that_fails_stops_the_store_too(path: Path, disk: FaultyDisk) -> None:
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    store = await open_store(path, disk, on_failure=lambda: failed.set_result(None))
    disk.fail_sync = lambda kind: kind == ""
    await fill(store, 20 * MIB)
    await failed
    with pytest.raises(OutcomeUnknown):
        await put(store, 9999)
    await store.close()


async def fill(store: SqliteStore, size: int, first: int = 1000) -> None:
    """Messages of 64 KiB, of so many bytes in all."""

    def unit(tx: Tx, number: int) -> None:
        message = envelope(number, text="x" * 65_536)
        tx.add(message, [delivery(message, tx.next_seq(), "heavy")])

    count = size // 65_536
    for start in range(first, first + count, 16):
        units = [
            store.write(lambda tx, n=n: unit(tx, n), weight=65_536)  # type: ignore[misc]
            for n in range(start, min(start + 16, first + count))
        ]
        await asyncio.gather(*units, return_exceptions=True)


async def test_a_start_that_the_disk_does_not_let_says_which_store_it_is(path: Path, disk: FaultyDisk) -> None:
    class Broken(Disk):
        def fill(self, path: Path, size: int, block: bytes) -> bool:
            raise OSError(errno.EIO, "Input/output error")

    disk.fail_sync = lambda kind: True
    with pytest.raises(Unwell, match=r"angelia\.db could not be used \(the fake disk could not sync\)"):
        await open_store(path, disk)
    disk.fail_sync = lambda kind: False
    with pytest.raises(Unwell, match=r"angelia\.db could not be used \(Input/output error\)"):
        await open_store(path, disk, disk=Broken())
    store = await open_store(path, disk)
    await put(store, 1)
    await store.close()


# ---------------------------------------------------------------------------------------------------------- a full disk


async def until_full(store: SqliteStore) -> int:
    """Send until the disk is full; how many were accepted."""
    number = 0
    while True:
        message = envelope(number, text="x" * 20_000)
        try:
            await store.write(lambda tx, m=message: tx.add(m, [delivery(m, tx.next_seq())]))  # type: ignore[misc]
        except DiskFull:
            return number
        number += 1


async def until_room(store: SqliteStore) -> None:
    """Try until a message is accepted again, which takes some 20 ms."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + 10
    while True:
        try:
            await put(store, 900_000, "later")
            return
        except DiskFull:
            assert loop.time() < ends
            await asyncio.sleep(0)


async def test_on_a_full_disk_acks_work_reads_work_and_the_rest_is_refused_until_there_is_room(
    path: Path, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    small = SmallDisk(path.parent, 3 * MIB)
    disk.full = small.refuses
    store = await open_store(path, disk, disk=small, reserve=SMALL)
    rows = [(await put(store, 10_000 + number, "acks")).delivery for number in range(40)]
    leased = [await lease(store, row) for row in rows]
    accepted = await until_full(store)
    assert accepted > 20
    load = store.load("claude").open
    assert load == accepted
    for row in leased:
        with pytest.raises(DiskFull):
            await put(store, 1)
        new = delivery(envelope(10_000), row.seq, "acks", message_id=row.message_id, attempt=1, expires_at=NOW)
        assert await store.write(lambda tx, o=row, n=new: tx.move(o, n), essential=True)  # type: ignore[misc]
    assert store.load("acks").ready == 40
    assert len(await texts(store)) == accepted
    small.total += 3 * MIB
    await until_room(store)
    assert store.load("claude").open == load
    assert caplog.text.count("the disk is full") == 1
    assert "there is room on the disk again" in caplog.text
    disk.full = lambda path, kind, grows: False
    await store.close()
    assert sound(path)
    again = await open_store(path)
    assert len(await texts(again)) == accepted
    await again.close()


async def test_no_unit_runs_for_nothing_on_a_full_disk(path: Path, disk: FaultyDisk) -> None:
    small = SmallDisk(path.parent, 3 * MIB)
    disk.full = small.refuses
    store = await open_store(path, disk, disk=small, reserve=SMALL)
    await until_full(store)
    ran: list[int] = []
    for _ in range(5):
        with pytest.raises(DiskFull):
            await store.write(lambda tx: ran.append(1))
    assert ran == []
    disk.full = lambda path, kind, grows: False
    await store.close()


async def test_a_commit_that_finds_no_space_stored_nothing_and_is_taken_back(path: Path, disk: FaultyDisk) -> None:
    """What a file system that copies on write may do, however much was kept back."""
    store = await open_store(path, disk)
    await put(store, 1)
    disk.full = lambda path, kind, grows: True
    told: list[object] = []

    def unit(tx: Tx, number: int) -> None:
        accept(tx, number)
        tx.then(lambda: told.append(("on disk", number)))
        tx.otherwise(lambda: told.append(("undone", number)))

    units = [store.write(lambda tx, n=n: unit(tx, n), essential=n == 3) for n in (2, 3, 4)]  # type: ignore[misc]
    answers = await asyncio.gather(*units, return_exceptions=True)
    assert [type(answer) for answer in answers] == [DiskFull] * 3
    assert told == [("undone", 4), ("undone", 3), ("undone", 2)]
    assert await texts(store) == ["text 1"]
    assert store.load("claude").open == 1
    assert await store.write(lambda tx: tx.load("claude").open, essential=True) == 1
    disk.full = lambda path, kind, grows: False
    await store.write(lambda tx: unit(tx, 5), essential=True)
    await until_room(store)
    assert await texts(store) == ["text 1", "text 5"]
    await store.close()


async def test_a_store_can_be_opened_on_a_full_disk_and_drained(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path)
    row = (await put(store, 1)).delivery
    await store.close()
    small = SmallDisk(path.parent, 0)
    small.total = -small.free(path.parent) + 300_000
    disk.full = small.refuses
    store = await open_store(path, disk, disk=small, reserve=Reserve(500_000, 500_000, 65_536, 0.02))
    with pytest.raises(DiskFull):
        await put(store, 2)
    assert await texts(store) == ["text 1"]
    assert (await settle_essential(store, row)) is True
    disk.full = lambda path, kind, grows: False
    await store.close()


async def settle_essential(store: SqliteStore, row: object) -> bool:
    new = delivery(envelope(1), 1, attempt=1, hand=None, sweep_at=NOW)
    return await store.write(lambda tx: tx.move(row, new), essential=True)  # type: ignore[arg-type]


async def test_the_space_kept_back_is_really_written(tmp_path: Path) -> None:
    file = tmp_path / "ballast"
    assert Disk().fill(file, MIB, b"\xa5" * 4096)
    info = file.stat()
    assert (info.st_size, info.st_blocks * 512 >= MIB) == (MIB, True)
    assert Disk().fill(file, MIB, b"")
    assert Disk().free(tmp_path) > 0


async def test_the_logs_index_is_as_long_as_the_log_will_need(path: Path) -> None:
    """SQLite would grow it in the middle of a commit, and a full disk would then be a commit that failed."""
    store = await open_store(path, reserve=Reserve())
    index = path.with_name("angelia.db-shm")
    assert await asyncio.to_thread(Disk().size, index) >= index_bytes(Reserve().log_bytes) == 2 * 32_768
    # Where the log grows, its index does so first: here readers keep it from being written over.
    other = apsw.Connection(str(path))
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM message").fetchall()
    await fill(store, 40 * MIB)
    log = await asyncio.to_thread(Disk().size, path.with_name("angelia.db-wal"))
    assert log > 40 * MIB
    assert await asyncio.to_thread(Disk().size, index) >= index_bytes(log)
    other.close()
    await store.close()


# ----------------------------------------------------------------------------------------------------------- power cuts


@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0])
async def test_what_was_accepted_survives_a_power_cut(
    path: Path, disk: FaultyDisk, tmp_path: Path, kept: float
) -> None:
    """The power goes at any moment, in commits and checkpoints too; of what was not synced, a part stays."""
    store = await open_store(path, disk, reserve=SMALL)
    chance = random.Random(17)
    accepted: set[str] = set()
    cuts: list[tuple[Path, set[str]]] = []
    wanted = threading.Event()

    async def sender(first: int) -> None:
        for number in range(first, first + 60):
            parcel = await put(store, number)
            accepted.add(parcel.envelope.text or "")
            if number % 7 == 0:
                await settle(store, parcel.delivery)

    def in_a_sync(kind: str) -> bool:
        if wanted.is_set():
            cut()
        return False

    def cut() -> None:
        image = tmp_path / f"cut-{len(cuts)}.db"
        known = set(accepted)
        disk.power_cut(path, image, lambda: chance.random() < kept)
        cuts.append((image, known))
        wanted.clear()

    disk.fail_sync = in_a_sync
    senders = asyncio.gather(*[sender(first) for first in range(0, 6000, 1000)])
    while not senders.done():
        await put(store, 100_000 + len(cuts) * 100 + chance.randrange(100), "others")
        if chance.random() < 0.2:
            cut()
        elif chance.random() < 0.3:
            wanted.set()
    await senders
    await store.close()
    assert len(cuts) > 5
    for image, known in cuts:
        again = await open_store(image)
        rows = await again.read(lambda view: view.inbox("claude", 0, 9999, None, None).parcels)
        settled = await again.read(lambda view: view.history("claude", 0, 1 << 40, 9999, PLENTY))
        assert known <= {parcel.envelope.text or "" for parcel in [*rows, *settled]}
        assert again.load("claude").open == len(rows)
        await again.close()
        assert sound(image)


# ---------------------------------------------------------------------------------------------- the log and its readers


async def test_the_log_stays_short_while_a_reader_holds_an_old_picture(path: Path) -> None:
    """A read sits on its picture while 200 MiB are written; it is run again, and still sees one picture."""
    store = await open_store(path, reserve=Reserve())
    await put(store, 1)
    began, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    runs: list[int] = []

    def look(view: View) -> tuple[int, int]:
        runs.append(1)
        first = view.inbox("heavy", 0, 1, None, None).total
        loop.call_soon_threadsafe(began.set)
        assert go_on.wait(50)
        return first, view.inbox("heavy", 0, 1, None, None).total

    reading = store.read(look)
    await began.wait()
    longest = 0
    for part in range(40):
        await fill(store, 5 * MIB, first=1000 + part * 80)
        longest = max(longest, path.with_name("angelia.db-wal").stat().st_size)
    go_on.set()
    assert await reading == (3200, 3200)
    assert len(runs) == 2
    assert longest < 128 * MIB
    await store.close()


async def test_a_read_that_always_loses_its_picture_is_told_so(path: Path) -> None:
    store = await open_store(path)
    await put(store, 1)
    runs: list[int] = []

    def look(view: View) -> int:
        runs.append(1)
        first = len(view.waiting(CLAUDE, 9, PLENTY))
        store._readers.revoke()
        return first + len(view.waiting(CLAUDE, 9, PLENTY))

    with pytest.raises(Unwell, match="took so long"):
        await store.read(look)
    assert len(runs) > 1
    assert await texts(store) == ["text 1"]
    await store.close()


async def test_the_log_is_folded_when_nothing_happens(path: Path, disk: FaultyDisk) -> None:
    store = await open_store(path, disk)
    await fill(store, 6 * MIB)
    folded = asyncio.Event()
    loop = asyncio.get_running_loop()

    def sees(kind: str) -> bool:
        if kind == "":
            loop.call_soon_threadsafe(folded.set)
        return False

    disk.fail_sync = sees
    await asyncio.wait_for(folded.wait(), 10)
    await store.close()


async def test_another_program_that_writes_for_a_moment_is_waited_for(path: Path) -> None:
    store = await open_store(path)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    writing = put(store, 1)
    task = asyncio.ensure_future(writing)  # noqa: TID251  (it has to be under way while the other program ends)
    assert await texts(store) == []
    other.execute("ROLLBACK")
    other.close()
    await task
    assert await texts(store) == ["text 1"]
    await store.close()
