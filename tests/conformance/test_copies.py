"""Copies of the SQLite store, and putting one back: whole or not at all, and nothing that was there is lost."""

import asyncio
import os
import random
import shutil
import stat
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from angelia.bus.ports import Archive, Copy, Scope, Sight
from angelia.model.agent import Agent
from angelia.model.errors import BadRequest, RateLimited, Stopping, Unwell
from angelia.model.query import Query, read_phrases
from angelia.storage import backups
from angelia.storage.sqlite.copying import back_up
from angelia.storage.sqlite.looking import Damaged, Pace, look_through
from angelia.storage.sqlite.migrate import known
from angelia.storage.sqlite.restoring import UNKNOWN_SEQS, Restored, restore
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.conftest import ROOMY
from tests.conformance.mail import HOUR, NOW, PLENTY, envelope, lease, put, settle

CLAUDE = Scope("claude")
QUICK = Pace(gentle=False)


async def open_store(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, now=NOW, reserve=ROOMY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "angelia.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """A store with some mail, an agent, and something settled."""
    store = await open_store(path)
    for number in range(1, 30):
        await put(store, number)
    await settle(store, (await put(store, 30)).delivery)
    await store.write(lambda tx: tx.put_agent(Agent(handle="Claude", created_at=1, seen_at=2)))
    yield store
    await store.close()


async def waiting(store: SqliteStore) -> list[str | None]:
    return [parcel.envelope.text for parcel in await store.read(lambda view: view.waiting(CLAUDE, 9999, PLENTY))]


def everything(folder: Path) -> dict[str, str]:
    """Every file under a folder, by its content."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest() for file in files}


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def write_to(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def is_there(path: str) -> bool:
    return Path(path).exists()


def meta(path: Path, name: str) -> Any:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchall()
    db.close()
    return rows[0][0]


# --------------------------------------------------------------------------------------------------------------- copies


async def test_a_copy_is_a_store_with_all_that_was_there(store: SqliteStore, tmp_path: Path) -> None:
    assert isinstance(store, Archive)
    copy = await store.back_up(None, NOW)
    assert (copy.messages, copy.deliveries, copy.made_at, copy.removed) == (30, 30, NOW, ())
    assert Path(copy.file).parent == tmp_path / "home" / "backups"
    assert len(content_of(Path(copy.file))) == copy.bytes
    there = tmp_path / "there.db"
    shutil.copyfile(copy.file, there)
    other = await open_store(there)
    assert (other.epoch, other.instance, other.secret) == (store.epoch, store.instance, store.secret)
    assert await waiting(other) == await waiting(store)
    assert [agent.handle for agent in await other.read(lambda view: view.agents())] == ["Claude"]
    found = await other.search(Sight(), Query(read_phrases("30")), None, 9, PLENTY)
    assert [message.text for message in found.envelopes] == ["text 30"]
    await other.close()


async def test_a_copy_is_one_file_for_its_owner_alone_that_needs_no_log(store: SqliteStore) -> None:
    before = os.umask(0)
    try:
        copy = await store.back_up(None, NOW)
    finally:
        os.umask(before)
    file = Path(copy.file)
    assert names(file.parent) == [file.name]
    assert mode_of(file) == 0o600
    assert mode_of(file.parent) == 0o700
    assert content_of(file)[18:20] == b"\x01\x01"  # as SQLite's header says: written and read without a log


async def test_what_was_answered_before_is_in_it_while_others_write(path: Path) -> None:
    store = await open_store(path)
    answered: list[int] = []
    enough = [asyncio.Event() for _ in range(3)]
    stop = False

    async def send(number: int) -> None:
        while not stop:
            await put(store, number)
            answered.append(number)
            if len(answered) % 200 == 0 and len(answered) <= 600:
                enough[len(answered) // 200 - 1].set()
            number += 8

    async with asyncio.TaskGroup() as tasks:
        for first in range(1, 9):
            tasks.create_task(send(first))
        for part in range(3):
            await enough[part].wait()
            already = len(answered)
            copy = await store.back_up(None, NOW + part)
            assert copy.messages >= already
            assert len(answered) > already  # nobody waited for it
            assert look_through(Path(copy.file), QUICK).messages == copy.messages
        stop = True
    assert (await store.read(lambda view: view.message(envelope(answered[-1]).id))) is not None
    await store.close()


async def test_the_newest_three_are_kept(store: SqliteStore, path: Path) -> None:
    made = [await store.back_up(None, NOW + day * 24 * HOUR) for day in range(3)]
    assert [copy.removed for copy in made] == [(), (), ()]
    fourth = await store.back_up(None, NOW + 3 * 24 * HOUR)
    assert fourth.removed == (made[0].file,)
    assert names(path.parent / "backups") == [Path(copy.file).name for copy in (*made[1:], fourth)]


async def test_one_that_is_made_while_the_clock_is_wrong_stays(store: SqliteStore) -> None:
    made = [await store.back_up(None, NOW + day * 24 * HOUR) for day in range(3)]
    early = await store.back_up(None, NOW - 999 * HOUR)
    assert early.removed == (made[0].file,)
    assert is_there(early.file)


async def test_two_of_one_second_have_two_names_in_their_order(store: SqliteStore, path: Path) -> None:
    made = [await store.back_up(None, NOW) for _ in range(12)]
    assert len({copy.file for copy in made}) == 12
    assert [str(file) for file in backups.listed(path.parent)] == [copy.file for copy in reversed(made[-3:])]


async def test_other_files_in_the_folder_are_left_alone(store: SqliteStore, path: Path) -> None:
    folder = path.parent / "backups"
    folder.mkdir()
    for name in (
        "notes.txt",
        "angelia-old.db",
        "angelia-20200101T000000Z.db.gz",
        ".angelia-20200101T000000Z.db.partial",
    ):
        (folder / name).write_text("mine")
    for part in range(5):
        await store.back_up(None, NOW + part * 1000)
    assert len(names(folder)) == 3 + 3  # what was left half done is nobody's


async def test_a_copy_goes_where_it_is_told(store: SqliteStore, tmp_path: Path) -> None:
    copy = await store.back_up(str(tmp_path / "a copy #1?.db"), NOW)
    assert copy.file == str(tmp_path / "a copy #1?.db")
    assert look_through(Path(copy.file), QUICK).messages == 30
    assert not (tmp_path / "home" / "backups").exists()


@pytest.mark.parametrize("where", ["there", "missing/x.db", "home/x.db", "home/angelia.db-journal", "link", "home"])
async def test_a_place_where_none_can_be_put_is_told_and_left(store: SqliteStore, tmp_path: Path, where: str) -> None:
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    before = names(tmp_path), names(tmp_path / "home")
    with pytest.raises(BadRequest):
        await store.back_up(str(tmp_path / where), NOW)
    assert (names(tmp_path), names(tmp_path / "home")) == before
    assert (tmp_path / "there").read_text() == "mine"


async def test_a_copy_that_fails_leaves_nothing_and_takes_nothing(store: SqliteStore, path: Path) -> None:
    """A message in the store is not what was written: that is no copy to rely on."""
    for part in range(3):
        await store.back_up(None, NOW + part * 1000)
    before = names(path.parent / "backups")
    db = apsw.Connection(str(path))
    db.set_busy_timeout(9000)
    db.execute("UPDATE message SET text = 'another' WHERE number = 7")
    db.close()
    with pytest.raises(Unwell, match="set aside; make the copy again"):
        await store.back_up(None, NOW + 9000)
    assert names(path.parent / "backups") == before
    copy = await store.back_up(None, NOW + 10_000)
    assert copy.messages == 29
    assert len(copy.removed) == 1


async def test_a_copy_that_is_given_up_leaves_nothing(store: SqliteStore, path: Path) -> None:
    pace = Pace(gentle=True)
    pace.stop()
    with pytest.raises(Stopping):
        back_up(path, None, NOW, pace)
    assert names(path.parent / "backups") == []


async def test_only_one_is_made_at_a_time(store: SqliteStore) -> None:
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(store.back_up(None, NOW))
        await asyncio.sleep(0)
        with pytest.raises(RateLimited):
            await store.back_up(None, NOW)
    assert first.result().messages == 30
    assert (await store.back_up(None, NOW)).messages == 30


async def test_a_store_that_closes_gives_its_copy_up(path: Path) -> None:
    store = await open_store(path)
    await put(store, 1)
    async with asyncio.TaskGroup() as tasks:
        making = tasks.create_task(_outcome(store))
        await asyncio.sleep(0)
        await store.close()
    assert isinstance(making.result(), Copy | Stopping)
    with pytest.raises(Stopping):
        await store.back_up(None, NOW)


async def _outcome(store: SqliteStore) -> Copy | Stopping:
    try:
        return await store.back_up(None, NOW)
    except Stopping as stopping:
        return stopping


async def test_a_store_whose_index_is_torn_gives_no_copy(store: SqliteStore, path: Path) -> None:
    """Of the indexes of mail: with one that lacks a row, mail would be passed over."""
    await store.close()
    db = apsw.Connection(str(path))
    ((page,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'delivery_sweep'").fetchall()
    db.close()
    content = bytearray(content_of(path))
    content[(int(str(page)) - 1) * 4096 + 3 : (int(str(page)) - 1) * 4096 + 5] = b"\0\0"  # it says that it is empty
    write_to(path, bytes(content))
    with pytest.raises(Damaged, match="is damaged"):
        back_up(path, None, NOW, QUICK)
    assert names(path.parent / "backups") == []


async def test_a_damaged_search_index_does_not_cost_the_copy(store: SqliteStore, path: Path) -> None:
    await store.search(Sight(), Query(read_phrases("text")), None, 9, PLENTY)
    db = apsw.Connection(str(path))
    db.set_busy_timeout(9000)
    db.execute("UPDATE search_data SET block = x'ffffffff00' WHERE id > 1")
    db.close()
    assert (await store.back_up(None, NOW)).messages == 30


async def test_a_bit_that_flipped_in_a_copy_is_seen_wherever_it_matters(store: SqliteStore, tmp_path: Path) -> None:
    copy = Path((await store.back_up(None, NOW)).file)
    whole = content_of(copy)
    rows = contents(copy)
    chance = random.Random(7)
    seen = 0
    for _ in range(150):
        place = chance.randrange(len(whole))
        broken = tmp_path / "broken.db"
        broken.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :])
        try:
            look_through(broken, QUICK)
        except Damaged:
            seen += 1
        else:
            assert contents(broken) == rows, place
    assert seen >= 10


TABLES = ("message", "delivery", "agent", "token", "contact", "removed")


def contents(path: Path) -> object:
    db = apsw.Connection(f"file:{path}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    found = [db.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in TABLES]
    db.close()
    return found


# ----------------------------------------------------------------------------------------------------- putting one back


async def closed(store: SqliteStore, path: Path) -> Path:
    """A copy of the store, which is closed then, outside of its folder."""
    copy = await store.back_up(str(path.parent.parent / "copy.db"), NOW)
    await store.close()
    return Path(copy.file)


async def test_what_is_put_back_is_what_was_copied(store: SqliteStore, path: Path) -> None:
    copy = await store.back_up(str(path.parent.parent / "copy.db"), NOW)
    before = await waiting(store)
    later = [await put(store, number) for number in range(100, 110)]
    epoch, instance, secret = store.epoch, store.instance, store.secret
    await store.close()
    done = restore(Path(copy.file), path, NOW)
    assert (done.messages, done.deliveries) == (30, 30)
    again = await open_store(path)
    assert await waiting(again) == before
    assert (again.instance, again.secret) == (instance, secret)
    assert again.epoch == done.epoch != epoch
    seqs = [parcel.delivery.seq for parcel in later]
    assert await again.write(lambda tx: tx.next_seq()) > max(seqs)
    await again.close()


async def test_what_was_there_is_kept_and_can_be_put_back(store: SqliteStore, path: Path) -> None:
    copy = await store.back_up(str(path.parent.parent / "copy.db"), NOW)
    await put(store, 100)
    await store.close()
    done = restore(Path(copy.file), path, NOW)
    assert done.kept == str(path.with_name("angelia.db.replaced-20270115T080000Z"))
    assert mode_of(Path(done.kept)) == 0o600
    second = restore(Path(done.kept), path, NOW)
    assert second.kept == str(path.with_name("angelia.db.replaced-20270115T080000Z-2"))
    again = await open_store(path)
    assert "text 100" in await waiting(again)
    assert again.epoch not in (done.epoch, store.epoch)
    await again.close()


async def test_the_log_of_a_hub_that_was_killed_is_kept_with_its_store_and_not_read_into_the_new(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    copy = Path((await store.back_up(str(tmp_path / "copy.db"), NOW)).file)
    await put(store, 100)
    killed = tmp_path / "killed" / "angelia.db"
    killed.parent.mkdir()
    for end in ("", "-wal", "-shm"):
        shutil.copyfile(f"{path}{end}", f"{killed}{end}")
    done = restore(copy, killed, NOW)
    assert done.kept is not None
    assert sorted(names(killed.parent)) == ["angelia.db", Path(done.kept).name]
    new, old = await open_store(killed), await open_store(Path(done.kept))
    assert "text 100" not in await waiting(new)
    assert "text 100" in await waiting(old)
    await new.close()
    await old.close()


async def test_a_store_that_cannot_be_read_is_replaced_and_kept_with_its_log(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    copy = await closed(store, path)
    write_to(path, b"\xff" * 40_000)
    path.with_name("angelia.db-wal").write_bytes(b"a log that nobody can read")
    done = restore(copy, path, NOW)
    assert done.kept is not None
    assert content_of(Path(done.kept)) == b"\xff" * 40_000
    assert content_of(Path(f"{done.kept}-wal")) == b"a log that nobody can read"
    again = await open_store(path)
    assert len(await waiting(again)) == 29
    assert await again.write(lambda tx: tx.next_seq()) > UNKNOWN_SEQS
    await again.close()


async def test_a_sound_log_of_a_store_that_is_not_is_kept_and_not_read_into_the_new(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    copy = Path((await store.back_up(str(tmp_path / "copy.db"), NOW)).file)
    killed = tmp_path / "killed" / "angelia.db"
    killed.parent.mkdir()
    fold(path)
    row = await store.read(lambda view: view.delivery(3))
    assert row is not None
    await lease(store, row)  # a change that needs no new page, so that the log says nothing of the file as a whole
    shutil.copyfile(f"{path}-wal", f"{killed}-wal")
    write_to(killed, b"\xff" * len(content_of(path)))
    log = content_of(Path(f"{killed}-wal"))
    done = restore(copy, killed, NOW)
    assert done.kept is not None
    assert content_of(Path(f"{done.kept}-wal")) == log
    assert names(killed.parent) == ["angelia.db", Path(done.kept).name, Path(done.kept).name + "-wal"]
    new = await open_store(killed)
    assert await new.read(lambda view: view.delivery(3)) == row
    await new.close()


def fold(path: Path) -> None:
    """Bring all of the log into the store, from outside."""
    db = apsw.Connection(str(path))
    db.set_busy_timeout(9000)
    assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0
    db.close()


async def test_into_an_empty_folder(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    copy = await closed(store, path)
    there = tmp_path / "other" / "angelia.db"
    there.parent.mkdir()
    done = restore(copy, there, NOW)
    assert done.kept is None
    assert names(there.parent) == ["angelia.db"]
    again = await open_store(there)
    assert (again.instance, len(await waiting(again))) == (store.instance, 29)
    assert await again.write(lambda tx: tx.next_seq()) > UNKNOWN_SEQS
    await again.close()


async def refused(copy: Path, path: Path, match: str) -> None:
    """It is not put back, and nothing at all has changed."""
    before = everything(path.parent)
    with pytest.raises(Unwell, match=match):
        restore(copy, path, NOW)
    assert everything(path.parent) == before


@pytest.mark.parametrize("how", ["cut", "empty", "zeroes", "text", "garbled"])
async def test_a_damaged_copy_changes_nothing(store: SqliteStore, path: Path, how: str) -> None:
    copy = await closed(store, path)
    whole = content_of(copy)
    content = {
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "zeroes": bytes(len(whole)),
        "text": b"not a store at all",
        "garbled": whole[:8192] + bytes(len(whole) - 8192),
    }[how]
    copy.write_bytes(content)
    await refused(copy, path, ".")


async def test_a_message_that_is_not_what_was_written_is_not_put_back(store: SqliteStore, path: Path) -> None:
    copy = await closed(store, path)
    db = apsw.Connection(str(copy))
    db.execute("UPDATE message SET text = 'another' WHERE number = 7")
    db.close()
    await refused(copy, path, "not what was written")


@pytest.mark.parametrize(
    "sql",
    ["UPDATE delivery SET attempt = 9 WHERE key = 3", "DELETE FROM agent", "DELETE FROM delivery WHERE key = 5",
     "INSERT INTO contact VALUES ('a', 'b', 1, 2)", "INSERT INTO removed VALUES ('claude', 7, 8)"],
)  # fmt: skip
async def test_rows_that_are_not_those_that_were_copied_are_not_put_back(
    store: SqliteStore, path: Path, sql: str
) -> None:
    copy = await closed(store, path)
    db = apsw.Connection(str(copy))
    db.execute(sql)
    db.close()
    await refused(copy, path, "not (those that were copied|what was written)")


async def test_a_copy_of_another_hub_is_not_put_back(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    copy = await closed(store, path)
    other = await open_store(tmp_path / "other" / "angelia.db")
    await other.close()
    await refused(copy, tmp_path / "other" / "angelia.db", "another hub")


async def test_a_copy_of_a_newer_program_is_not_put_back(store: SqliteStore, path: Path) -> None:
    copy = await closed(store, path)
    db = apsw.Connection(str(copy))
    db.execute(f"PRAGMA user_version = {len(known()) + 1}")
    db.close()
    await refused(copy, path, "newer Angelia")


async def test_a_file_that_was_copied_without_its_log_is_not_put_back(store: SqliteStore, path: Path) -> None:
    copy = await closed(store, path)
    copy.with_name(copy.name + "-wal").write_bytes(b"the last of it")
    await refused(copy, path, "a log beside it")


async def test_a_copy_of_the_first_format_is_put_back_and_brought_up_to_date(path: Path, tmp_path: Path) -> None:
    done: Restored = restore(_first_format(tmp_path / "old.db"), _made(path), NOW)
    assert done.messages == 0
    again = await open_store(path)
    await put(again, 1)
    await again.close()
    assert meta(path, "epoch") == done.epoch


def _made(path: Path) -> Path:
    path.parent.mkdir()
    return path


def _first_format(path: Path) -> Path:
    db = apsw.Connection(str(path))
    db.execute(known()[0].sql)
    db.execute("INSERT INTO meta (name, value) VALUES ('seq', 9), ('epoch', 'abcdef01'), ('instance', 'x')")
    db.execute("INSERT INTO meta (name, value) VALUES ('secret', zeroblob(32))")
    db.execute("PRAGMA user_version = 1; PRAGMA application_id = 0x414E4745")
    db.close()
    return path
