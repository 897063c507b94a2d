"""Bits that flip so that a row cannot be read as it was, or at all: it is set aside all the same, the rest is served,
and its sender is told. What could not be put right is said.

A bit that makes a text no text any more; one in the head of a row, which SQLite reads the row by; one in the number
that leads from a delivery to its message.
"""

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import apsw
import pytest

from angelia.bus.glance import glance
from angelia.bus.ports import Parcel, Scope, Tx
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Envelope, Intent
from angelia.model.errors import Unwell
from angelia.storage.sqlite import renewing
from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.index import BEING_MADE
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.mail import PLENTY, delivery, envelope, lease
from tests.conformance.test_sqlite_losses import open_store, start

PAGE = 4096
COUNT = 40
LARGE = 18  # megabytes of other mail: a store of over 16 MiB is not looked through before it serves


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "angelia.db"


@pytest.fixture
async def sent(path: Path, request: pytest.FixtureRequest) -> list[Envelope]:
    """What is stored; in a large store where the test has no size, or that one."""
    store = await open_store(path)
    sent = [envelope(number, text=f"{number} text", intent=Intent.REQUEST) for number in range(1, COUNT + 1)]
    for each in sent:
        await store.write(lambda tx, each=each: tx.add(each, [delivery(each, tx.next_seq())]))  # type: ignore[misc]
    if "size" not in request.fixturenames or request.getfixturevalue("size") == "large":
        for number in range(1000, 1000 + LARGE):
            each = envelope(number, text="x" * 1_000_000, sender="filler")
            await store.write(lambda tx, each=each: tx.add(each, [delivery(each, tx.next_seq(), "other")]))  # type: ignore[misc]
    await store.close()
    return sent


def change(path: Path, column: str, bit: str, key: int = 2) -> None:
    """Flip a bit of a row: the first of a column, or the last. Its indexes say what they said."""
    db = apsw.Connection(str(path))
    place = cell(path, db, key)
    names = [str(row[1]) for row in db.execute("PRAGMA table_info(delivery)")]
    db.close()
    data = bytearray(path.read_bytes())
    begin, length = columns(bytes(data), place)[names.index(column)]
    if bit == "high bit":
        data[begin] ^= 0x80
    else:
        data[begin + length - 1] ^= 1
    path.write_bytes(data)


def varint(data: bytes, place: int) -> tuple[int, int]:
    """A number as SQLite writes it, and where the next begins."""
    number = 0
    while True:
        byte = data[place]
        number, place = number << 7 | byte & 127, place + 1
        if not byte & 128:
            return number, place


def cells(path: Path, db: apsw.Connection) -> Iterator[tuple[int, int]]:
    """The key of each delivery, and where the head of its row begins."""
    data = path.read_bytes()
    for (page,) in db.execute("SELECT pageno FROM dbstat WHERE name = 'delivery' AND pagetype = 'leaf'").fetchall():
        begin = (int(str(page)) - 1) * PAGE
        (count,) = struct.unpack_from(">H", data, begin + 3)
        for place in struct.unpack_from(f">{count}H", data, begin + 8):
            _, after = varint(data, begin + place)
            yield varint(data, after)


def cell(path: Path, db: apsw.Connection, key: int) -> int:
    return dict(cells(path, db))[key]


def columns(data: bytes, head: int) -> list[tuple[int, int]]:
    """Where the columns of a row lie, and how long they are."""
    length, place = varint(data, head)
    ends = begin = head + length
    found = []
    while place < ends:
        kind, place = varint(data, place)
        size = (kind - 12) // 2 if kind >= 12 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind]
        found.append((begin, size))
        begin += size
    return found


def make_blob(path: Path, key: int, column: str) -> None:
    """One bit in what the head of a row says of a column: the same bytes are no text then."""
    db = apsw.Connection(str(path))
    place = cell(path, db, key)
    names = [str(row[1]) for row in db.execute("PRAGMA table_info(delivery)")]
    db.close()
    data = bytearray(path.read_bytes())
    data[place + 1 + names.index(column)] ^= 1
    path.write_bytes(data)


def flip_name(path: Path, name: bytes, bit: int) -> None:
    """A bit of a name in table meta."""
    db = apsw.Connection(str(path))
    pages = db.execute("SELECT pageno FROM dbstat WHERE name = 'meta' AND pagetype = 'leaf'").fetchall()
    db.close()
    data = bytearray(path.read_bytes())
    places = [data.find(name, (int(str(page)) - 1) * PAGE, int(str(page)) * PAGE) for (page,) in pages]
    data[max(places)] ^= bit
    path.write_bytes(data)


def break_head(path: Path, *keys: int) -> None:
    """One bit in how long the head of a row says to be."""
    db = apsw.Connection(str(path))
    places = dict(cells(path, db))
    db.close()
    data = bytearray(path.read_bytes())
    for key in keys:
        data[places[key]] ^= 2
    path.write_bytes(data)
    db = apsw.Connection(str(path))
    with pytest.raises(apsw.CorruptError):
        db.execute("SELECT sum FROM delivery").fetchall()
    db.close()


async def well(store: SqliteStore) -> None:
    """Nothing is left to be put right, but perhaps the search index, which is made anew once a minute at most."""
    async with asyncio.timeout(20):
        while store.trouble() not in (None, BEING_MADE):
            await asyncio.to_thread(Event().wait, 0.02)


async def told_of(path: Path, lost: Envelope, sent: list[Envelope], starts: int = 2) -> None:
    """It failed, its sender was told once, the rest is there, and nothing is left to be put right."""
    for _ in range(starts):
        hub = await start(path)
        assert [p.envelope for p in await hub.mailbox("claude")] == [each for each in sent if each != lost]
        assert [(n.about, n.reason, n.to) for n in await hub.notices("hermes")] == [(lost.id, "damaged", "Hermes")]
        assert [row.state for row in await hub.rows(lost.id)] == [State.FAILED]
        assert hub.bus.store.load("claude").open == len(sent) - 1
        assert isinstance(hub.bus.store, SqliteStore)
        await well(hub.bus.store)
        assert sum("damaged row" in each for each in (await glance(hub.bus, None, None)).problems) == 1
        await hub.bus.store.close()
    db = apsw.Connection(str(path))
    faults = [row[0] for row in db.execute("PRAGMA integrity_check").fetchall() if "never used" not in str(row[0])]
    assert faults in ([], ["ok"])
    db.close()


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("bit", ["high bit", "low bit"])
@pytest.mark.parametrize("column", ["mailbox", "sender", "message"])
async def test_whichever_bit_of_a_delivery_it_is_the_rest_is_served_and_the_sender_told(
    path: Path, sent: list[Envelope], column: str, bit: str
) -> None:
    change(path, column, bit)
    await told_of(path, sent[1], sent)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("column", ["mailbox", "sender"])
async def test_a_text_of_the_same_bytes_that_says_to_be_none_is_none(
    path: Path, sent: list[Envelope], column: str
) -> None:
    make_blob(path, 2, column)
    await told_of(path, sent[1], sent)


@pytest.mark.parametrize("column", ["mailbox", "sender"])
async def test_a_claim_that_meets_a_text_that_is_none_gets_the_others(
    path: Path, sent: list[Envelope], column: str
) -> None:
    store = await open_store(path)
    await store.looked_through()
    db = apsw.Connection(str(path))
    db.set_busy_timeout(9000)
    db.execute(f"UPDATE delivery SET {column} = CAST(x'e361' AS TEXT) WHERE key = 2")
    db.execute(f"UPDATE message SET {column.replace('mailbox', 'text')} = CAST(x'e361' AS TEXT) WHERE number = 5")
    db.close()
    found = await store.write(lambda tx: tx.waiting(Scope("claude"), 99, PLENTY))
    assert [parcel.envelope for parcel in found] == [each for each in sent if each not in (sent[1], sent[4])]
    assert store.load("claude").open == COUNT - 2
    await store.close()


async def test_what_a_dead_hub_had_leased_is_no_reason_not_to_start(path: Path, sent: list[Envelope]) -> None:
    store = await open_store(path)
    held = await store.read(lambda view: [view.delivery(key) for key in (2, 3)])
    for each in held:
        assert each is not None
        await lease(store, each, Hand.CLAIM)
    await store.close()
    change(path, "mailbox", "high bit")
    break_head(path, 3)
    hub = await start(path)
    assert len(await hub.mailbox("claude")) == COUNT - 2
    assert {n.about for n in await hub.notices("hermes")} == {sent[1].id, sent[2].id}
    await hub.bus.store.close()


@pytest.mark.usefixtures("size")
async def test_a_row_that_cannot_be_read_is_taken_out_and_its_sender_told(path: Path, sent: list[Envelope]) -> None:
    break_head(path, 2)
    await told_of(path, sent[1], sent)


@pytest.mark.usefixtures("size")
async def test_so_are_several(path: Path, sent: list[Envelope]) -> None:
    break_head(path, 2, 3, 30)
    hub = await start(path)
    lost = {sent[1].id, sent[2].id, sent[29].id}
    assert {p.envelope.id for p in await hub.mailbox("claude")} == {each.id for each in sent} - lost
    assert {n.about for n in await hub.notices("hermes")} == lost
    await hub.bus.store.close()


async def test_a_unit_that_meets_a_row_that_cannot_be_read_ends_no_hub(path: Path, sent: list[Envelope]) -> None:
    """SQLite commits nothing of what was done before it in the transaction; what comes behind it is done."""
    failed: list[str] = []
    break_head(path, 2)
    store = await SqliteStore.open(path, now=0, on_failure=lambda: failed.append("it"))

    def note(name: str) -> "asyncio.Future[None]":
        return store.write(lambda tx: tx.put_note(name, b"x", 0))

    first, claim, last = await asyncio.gather(note("first"), store.write(_claim), note("last"), return_exceptions=True)
    assert isinstance(claim, Unwell | list)  # what looks through it may have come first
    assert last is None
    kept = await store.read(lambda view: [each.name for each in view.notes("") if each.name in ("first", "last")])
    assert kept == (["last"] if isinstance(first, Unwell) else ["first", "last"])
    await store.looked_through()
    await store.write(lambda tx: None)
    assert len(await store.write(_claim)) == COUNT - 1
    assert not failed
    await store.close()


def _claim(tx: Tx) -> list[Parcel]:
    return tx.waiting(Scope("claude"), 99, PLENTY)


@pytest.mark.usefixtures("size")
async def test_a_message_whose_delivery_does_not_say_whose_it_was_is_taken_for_lost(
    path: Path, sent: list[Envelope]
) -> None:
    db = apsw.Connection(str(path))
    db.execute("UPDATE delivery SET message = 4711, size = size + 1 WHERE key = 2")
    db.close()
    await told_of(path, sent[1], sent)


async def test_indexes_that_could_not_be_made_anew_are_there_as_before(path: Path, sent: list[Envelope]) -> None:
    """What was written by hand in the schema is taken back, and known to be."""
    break_head(path, 2)
    db = apsw.Connection(str(path))
    desk = Desk(db)
    names = {name for name, *_ in desk.run(renewing._INDEXES)}
    desk.control("BEGIN IMMEDIATE")
    with pytest.raises(apsw.CorruptError):
        renewing.renew_indexes(desk)
    assert {name for name, *_ in desk.run(renewing._INDEXES)} == names
    desk.run("SELECT count(*) FROM delivery INDEXED BY delivery_open WHERE state <= 3")
    db.close()


@pytest.mark.parametrize("bit", [0x80, 1])
async def test_a_name_of_what_the_store_knows_of_itself_may_be_none(path: Path, sent: list[Envelope], bit: int) -> None:
    store = await open_store(path)
    known = (store.instance, store.epoch, store.secret)
    await store.close()
    flip_name(path, b"instance", bit)
    store = await open_store(path)
    assert (store.instance, store.epoch, store.secret) == known
    await store.close()
