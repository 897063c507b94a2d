"""Bits that flip in the SQLite store's file, and checkpoints that broke off: what is served then, and what is told."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from angelia.bus.glance import glance
from angelia.bus.ports import Scope, Sight, Tx, View
from angelia.model.agent import Agent, Token
from angelia.model.delivery import Delivery, Hand
from angelia.model.envelope import Envelope
from angelia.model.errors import Unwell
from angelia.model.query import Phrase, Query
from angelia.storage.sqlite.opening import SMALL_PAGES
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.conftest import ROOMY
from tests.conformance.mail import NOW, PLENTY, delivery, envelope, lease, put
from tests.fakes.small_hub import SmallHub

CLAUDE = Scope("claude")
Read = Callable[[View], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "angelia.db"


async def open_store(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, now=NOW, reserve=ROOMY)


async def filled(path: Path, count: int = 5) -> None:
    store = await open_store(path)
    for number in range(1, count + 1):
        await put(store, number)
    await store.close()


async def texts(store: SqliteStore) -> list[str | None]:
    return [each.envelope.text for each in await store.read(lambda view: view.waiting(CLAUDE, 99, PLENTY))]


def flip(path: Path, place: int) -> None:
    """The lowest bit of one byte."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


async def test_an_index_that_cannot_even_be_walked_is_made_anew(path: Path) -> None:
    """Its cells lie where there are none: SQLite does not compare it with the rows then, it gives up."""
    await filled(path, 40)
    db = apsw.Connection(str(path))
    page = int(str(db.execute("SELECT pageno FROM dbstat WHERE name = 'delivery_open'").fetchall()[0][0]))
    db.close()
    copy, gave_up = path.with_name("copy.db"), 0
    for place in range(9, 64, 9):
        shutil.copyfile(path, copy)
        data = bytearray(copy.read_bytes())
        data[(page - 1) * 4096 + place] ^= 2
        copy.write_bytes(data)
        db = apsw.Connection(str(copy))
        try:
            db.execute("PRAGMA integrity_check(delivery)").fetchall()
        except apsw.CorruptError:
            gave_up += 1
        db.close()
        store = await open_store(copy)
        assert len(await texts(store)) == 40
        await store.close()
    assert gave_up > 1


async def test_what_was_set_aside_is_told_at_a_glance(path: Path) -> None:
    await filled(path, 3)
    change(path, "UPDATE delivery SET seq = seq + 100 WHERE seq < 3")
    store = await open_store(path)
    hub = await SmallHub.open(store=store)
    await store.looked_through()
    assert (await glance(hub.bus, None, None)).problems[0] == (
        "2 damaged rows: set aside, never served; hub.log names them"
    )
    await store.close()


READS: dict[str, Read] = {
    "a unit": lambda view: view.waiting(CLAUDE, 9, PLENTY),
    "waiting": lambda view: view.waiting(CLAUDE, 9, PLENTY),
    "inbox": lambda view: view.inbox("claude", 0, 9, None, None),
    "message": lambda view: view.message(envelope(2).id),
}


@pytest.mark.parametrize("how", READS)
async def test_a_text_that_is_no_text_any_more_is_told_once_and_then_holds_up_nothing(
    path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    store = await open_store(path)
    for number in range(1, 4):
        await put(store, number)
    await store.looked_through()
    change(path, "UPDATE message SET text = CAST(x'74ff' AS TEXT) WHERE number = 2")
    await (store.write(READS[how]) if how == "a unit" else store.read(READS[how]))  # and the others are served
    await store.looked_through()
    await store.write(lambda tx: None)
    assert await texts(store) == ["text 1", "text 3"]
    assert await store.read(lambda view: view.message(envelope(2).id)) is None
    assert store.load("claude").open == 2
    assert f"message {envelope(2).id} is damaged: set aside" in caplog.text
    await store.close()


async def test_a_text_that_is_no_text_any_more_is_found_when_the_store_is_opened(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(path)
    change(path, "UPDATE message SET text = CAST(x'74ff' AS TEXT) WHERE number = 2")
    store = await open_store(path)
    assert await texts(store) == ["text 1", "text 3", "text 4", "text 5"]
    assert f"message {envelope(2).id} is damaged: set aside" in caplog.text
    await store.close()


async def test_an_index_of_messages_that_is_damaged_is_made_anew_and_loses_none(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(path)
    data = bytes_of(path)
    in_table = data.index(envelope(3).id.encode() + b"Hermes")
    [in_index] = [place for place in places(data, envelope(3).id.encode()) if place != in_table]
    flip(path, in_index + 31)
    caplog.set_level(logging.ERROR)
    store = await open_store(path)
    assert "the store was damaged: what was left was made sound again" in caplog.text
    assert await store.read(lambda view: view.message(envelope(3).id)) == envelope(3)
    assert len(await texts(store)) == 5
    await put(store, 6)
    await store.close()


async def test_a_message_that_its_index_does_not_find_is_set_aside(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its id flipped; what is left of it in the index must not be in the way."""
    await filled(path)
    flip(path, bytes_of(path).index(envelope(3).id.encode() + b"Hermes"))
    store = await open_store(path)
    assert await texts(store) == ["text 1", "text 2", "text 4", "text 5"]
    assert "is damaged: set aside, with 1 deliveries" in caplog.text
    await put(store, 3)
    assert len(await texts(store)) == 5
    await store.close()


async def test_a_damaged_delivery_is_set_aside_and_the_others_are_handed_over(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever its mailbox stands: in its row, or in one of the indexes, which cost nothing."""
    await filled(path)
    copy = path.with_name("copy.db")
    lost = []
    for place in places(bytes_of(path), b"claude"):
        shutil.copyfile(path, copy)
        flip(copy, place)
        caplog.clear()
        store = await open_store(copy)
        await store.looked_through()
        assert len(await texts(store)) == 5 - caplog.text.count("set aside")
        assert await store.read(lambda view: view.waiting(Scope("blaude"), 9, PLENTY)) == []
        assert (store.load("claude").open, store.load("blaude").open) == (5 - caplog.text.count("set aside"), 0)
        lost.append(caplog.text.count("a delivery of message"))
        await store.close()
    assert sum(lost) == 5
    assert len(lost) > 14


async def test_a_checkpoint_that_was_cut_off_costs_nothing(path: Path, tmp_path: Path) -> None:
    """Half a page at the end of the file: the log has it whole."""
    store = await open_store(path)
    for number in range(1, 30):
        message = envelope(number, text="x" * 5000)
        await store.write(lambda tx, m=message: tx.add(m, [delivery(m, tx.next_seq())]))  # type: ignore[misc]
    image = tmp_path / "image.db"
    for end in ("", "-wal"):
        shutil.copyfile(f"{path}{end}", f"{image}{end}")
    await store.close()
    with image.open("ab") as file:
        file.write(bytes(1000))
    again = await open_store(image)
    assert len(await texts(again)) == 29
    await again.close()


async def test_a_file_that_lacks_its_end_is_refused(path: Path) -> None:
    await filled(path)
    os.truncate(path, len(bytes_of(path)) - 1000)
    with pytest.raises(Unwell, match=r"is (cut off|damaged)"):
        await open_store(path)


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, data: bytes | bytearray) -> None:
    path.write_bytes(data)


def places(data: bytes, what: bytes) -> list[int]:
    """Where it stands."""
    found = []
    place = data.find(what)
    while place >= 0:
        found.append(place)
        place = data.find(what, place + 1)
    return found


# -------------------------------------------------------------------------------------------------------- rows and sums

CHANGES = {
    "seq": "9", "message": "1", "mailbox": "'clauda'", "recipient": "'Claude'", "connection": "'relay'",
    "sender": "'Hermet'", "lane": "0", "size": "size + 1", "state": "4", "attempt": "1", "used": "1", "deferred": "1",
    "hand": "'turn'", "reason": "'expired'", "late": "1", "accepted_at": "accepted_at + 4",
    "expires_at": "expires_at - 8", "sweep_at": "NULL", "leased_at": "1", "delivered_at": "1",
    "answered_at": "1", "ended_at": "1", "owes": "'relay'", "sum": "sum + 1",
}  # fmt: skip


def change(path: Path, sql: str) -> None:
    """Something changes on the disk, behind the store's back."""
    db = apsw.Connection(str(path))
    db.set_busy_timeout(9000)
    db.execute(sql)
    db.close()


@pytest.mark.parametrize("column", CHANGES)
async def test_no_column_of_a_delivery_changes_unseen(
    path: Path, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    store = await open_store(path)
    for number in range(1, 4):
        await put(store, number)
    await store.looked_through()
    change(path, f"UPDATE delivery SET {column} = {CHANGES[column]} WHERE key = 2")
    waiting = await store.write(lambda tx: tx.waiting(CLAUDE, 9, PLENTY))
    assert [each.envelope.text for each in waiting] == ["text 1", "text 3"]
    assert await store.read(lambda view: view.delivery(2)) is None
    await store.write(lambda tx: None)  # behind the unit that sets it aside
    await store.looked_through()
    if "is damaged: set aside" not in caplog.text:  # what a claim takes from no longer leads to it
        await store.close()
        store = await open_store(path)
        await store.looked_through()
    assert caplog.text.count("is damaged: set aside") == 1
    assert (store.load("claude").open, store.load("clauda").open) == (2, 0)
    assert await texts(store) == ["text 1", "text 3"]
    assert await store.read(set_aside_count) == 1
    await store.close()
    db = apsw.Connection(str(path))
    [(kind, name, message)] = db.execute("SELECT kind, message_id, message FROM damaged").fetchall()
    db.close()
    assert kind == "delivery"
    if column != "message":
        assert (name, "text 2" in str(message)) == (envelope(2).id, True)


async def test_a_delivery_that_is_damaged_costs_the_other_recipients_nothing(path: Path) -> None:
    store = await open_store(path)
    message = envelope(1, to="*")
    rows = [delivery(message, number, box) for number, box in enumerate(("ada", "brook", "cleo"), 1)]
    await store.write(lambda tx: tx.add(message, rows))
    change(path, "UPDATE delivery SET expires_at = 0 WHERE mailbox = 'brook'")
    for box, count in (("ada", 1), ("brook", 0), ("cleo", 1)):
        found = await store.write(lambda tx, b=box: tx.waiting(Scope(b), 9, PLENTY))  # type: ignore[misc]
        assert [each.envelope for each in found] == [message] * count
        assert store.load(box).open == count
    assert await store.read(lambda view: view.message(message.id)) == message
    await store.close()


async def with_names(path: Path) -> SqliteStore:
    store = await open_store(path)

    def introduce(tx: Tx) -> None:
        for name in ("ada", "brook"):
            tx.put_agent(Agent(handle=name, title=name, member=True, keyed=name == "ada", created_at=NOW, seen_at=NOW))
            tx.put_token(Token(id=f"t-{name}", mailbox=name, digest=name.encode() * 8, created_at=NOW, ends_at=None))
            tx.put_note(f"note/{name}", b"value", NOW)
            tx.add_contact(name, "claude", NOW)

    await store.write(introduce)
    return store


SMALL = {
    "agent title": "UPDATE agent SET title = 'x' WHERE mailbox = 'brook'",
    "agent adapter": "UPDATE agent SET adapter = x'7b7d' WHERE mailbox = 'brook'",
    "token": "UPDATE token SET mailbox = 'ada' WHERE id = 't-brook'",
    "token digest": "UPDATE token SET digest = zeroblob(32) WHERE id = 't-brook'",
    "note": "UPDATE note SET value = x'00' WHERE name = 'note/brook'",
    "note name": "UPDATE note SET name = 'note/broom' WHERE name = 'note/brook'",
    "contact": "UPDATE contact SET at = 1 WHERE one = 'brook'",
    "no text": "UPDATE note SET name = CAST(x'6e6f74652f62ff' AS TEXT) WHERE name = 'note/brook'",
}


def everything_named(view: View) -> list[object]:
    return [*view.agents(), *view.tokens(), *view.notes("note/"), *view.contacts("brook", 9), *view.contacts("ada", 9)]


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("what", SMALL)
async def test_no_row_of_names_is_believed_that_is_not_what_was_written(
    path: Path, caplog: pytest.LogCaptureFixture, what: str, running: bool
) -> None:
    store = await with_names(path)
    whole = await store.read(everything_named)
    if not running:
        await store.close()
    change(path, SMALL[what])
    if not running:
        store = await open_store(path)
    with suppress(Unwell):  # a text that is none fails the read that meets it
        assert len([each for each in await store.read(everything_named) if each in whole]) == len(whole) - 1
    await store.looked_through()
    await store.write(lambda tx: None)
    found = await store.read(everything_named)
    kept = Agent(handle="brook", keyed=True, created_at=0, seen_at=0)  # a token is for that name
    assert [each for each in found if each not in whole] == ([kept] if what.startswith("agent") else [])
    assert len(whole) - len([each for each in found if each in whole]) == 1
    assert f"a row of table {what.split()[0].replace('no', 'note')[:7]}"[:18] in caplog.text
    assert await store.read(set_aside_count) == 1
    await store.close()


@pytest.mark.parametrize(
    "sql",
    ["UPDATE agent SET keyed = 0 WHERE mailbox = 'ada'", "UPDATE agent SET title = 'x' WHERE mailbox = 'ada'"],
)
async def test_a_keyed_name_stays_keyed_though_its_row_and_its_token_are_gone(path: Path, sql: str) -> None:
    store = await with_names(path)
    await store.write(lambda tx: tx.remove_token("t-ada"))
    await store.close()
    change(path, sql)
    store = await open_store(path)
    ada = await store.read(lambda view: view.agent("ada"))
    assert ada is not None
    assert ada.keyed
    await store.close()


async def test_a_mailbox_whose_mark_of_removal_is_damaged_counts_as_emptied(path: Path) -> None:
    store = await open_store(path)
    for number in range(1, 6):
        await put(store, number)
    second = await store.read(lambda view: view.delivery(2))
    assert second is not None
    leased = await lease(store, second, Hand.CLAIM)
    await store.write(lambda tx: tx.remove([leased]))
    assert await store.read(lambda view: view.replay_floor("claude", 0, 99)) == 3
    await store.close()
    change(path, "UPDATE removed SET seq = 0")
    store = await open_store(path)
    assert await store.read(lambda view: view.replay_floor("claude", 0, 99)) >= 6
    await store.close()


@pytest.mark.parametrize("name", ["epoch", "instance", "secret", "seq"])
@pytest.mark.parametrize("spare", ["", "spare of "])
async def test_what_the_store_knows_of_itself_survives_in_one_of_two_places(path: Path, name: str, spare: str) -> None:
    store = await open_store(path)
    await put(store, 1)
    last = await store.write(lambda tx: tx.next_seq())
    known = (store.epoch, store.instance, store.secret)
    await store.close()
    for sql in ("UPDATE meta SET value = 'x' WHERE name = '{}'", "DELETE FROM meta WHERE name = '{}'"):
        change(path, sql.format(spare + name))
        store = await open_store(path)
        assert (store.epoch, store.instance, store.secret) == known
        assert await store.write(lambda tx: tx.next_seq()) > last
        await store.close()


async def test_tables_that_are_described_otherwise_are_not_read(path: Path) -> None:
    await filled(path)
    db = apsw.Connection(str(path))
    db.execute("PRAGMA writable_schema = on")
    db.execute("UPDATE sqlite_schema SET sql = replace(sql, 'late ', 'lave ') WHERE name = 'delivery'")
    db.close()
    with pytest.raises(Unwell, match="angelia restore"):
        await open_store(path)


@pytest.mark.parametrize("sql", ["PRAGMA user_version = 4", "PRAGMA user_version = 1", "PRAGMA application_id = 1",
                                 "PRAGMA user_version = 4101"])  # fmt: skip
async def test_a_header_that_is_damaged_is_refused_with_what_to_do(path: Path, sql: str) -> None:
    await filled(path)
    change(path, sql)
    with pytest.raises(Unwell, match="angelia restore"):
        await open_store(path)


# -------------------------------------------------------------------------------------------------------------- indexes


async def large(path: Path) -> None:
    """Too large to be compared when it is opened."""
    store = await open_store(path)
    for number in range(1, 6):
        await put(store, number)
    for number in range(6, 46):
        message = envelope(number, to="other", text="x" * 500_000)
        await store.write(lambda tx, m=message: tx.add(m, [delivery(m, tx.next_seq(), "other")]))  # type: ignore[misc]
    await store.close()
    assert len(bytes_of(path)) > SMALL_PAGES * 4096


async def test_an_index_of_a_large_store_hides_a_delivery_only_until_it_was_looked_through(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing is handed to whom the index names."""
    await large(path)
    data = bytes_of(path)
    hidden = 0
    for place in places(data, b"claude"):
        copy = path.with_name(f"copy-{place}.db")
        shutil.copyfile(path, copy)
        flip(copy, place)
        caplog.clear()
        store = await open_store(copy)
        hidden += len(await texts(store)) < 5
        for read in (lambda view: view.waiting(Scope("blaude"), 9, PLENTY),
                     lambda view: view.inbox("blaude", 0, 9, None, None).parcels):  # fmt: skip
            assert await store.read(read) == []
        await store.looked_through()
        await store.write(lambda tx: None)
        await store.looked_through()
        assert len(await texts(store)) == 5 - caplog.text.count("set aside")
        assert store.load("claude").open == 5 - caplog.text.count("set aside")
        assert store.load("blaude").open == 0
        assert caplog.text
        await store.close()
        copy.unlink()
    assert hidden >= 5


async def test_a_piece_of_the_search_index_that_is_damaged_is_seen(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(path)
    store = await open_store(path)
    look = Query(phrases=(Phrase("text"),))
    assert len((await store.search(Sight(), look, None, 99, PLENTY)).envelopes) == 5
    await store.close()
    change(path, "UPDATE search_data SET block = replace(block, x'74657874', x'74657875') WHERE id > 100")
    store = await open_store(path)
    await store.looked_through()
    assert len((await store.search(Sight(), look, None, 99, PLENTY)).envelopes) == 5
    assert "the search index is damaged" in caplog.text
    await store.close()


# One of the rows that lead to pages of the search index, and what can become of it. A smaller "term" takes words of the
# page before along, which are found no more, and neither SQLite nor FTS5 sees anything wrong.
SIGN = "(segid, term) = (SELECT segid, term FROM search_idx ORDER BY segid, term LIMIT 1 OFFSET 4)"
SIGNS = {
    "segid": "segid = segid + 64",
    "term": "term = CAST(substr(term, 1, 2) || x'30' || substr(term, 4) AS BLOB)",
    "term, shorter": "term = substr(term, 1, length(term) - 1)",
    "term, its kind": "term = CAST(term AS TEXT)",
    "pgno": "pgno = pgno + 2",
    "pgno, its mark": "pgno = pgno + 1",
    "pgno, nowhere": "pgno = pgno + 2048",
}


@pytest.fixture(scope="module")
def many_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a search index of some ten pages."""
    path = tmp_path_factory.mktemp("words") / "angelia.db"

    async def fill() -> None:
        store = await open_store(path)
        for number in range(1, 61):
            message = envelope(number, text=" ".join(f"w{number * each * 7919 % 100_000:05}" for each in range(1, 100)))
            await store.write(lambda tx, m=message: _add(tx, m))  # type: ignore[misc]
        await store.search(Sight(), Query(phrases=(Phrase("w07919"),)), None, 99, PLENTY)
        await store.close()

    asyncio.run(fill())
    return path


async def found(store: SqliteStore) -> list[int]:
    """How many messages are found by each of many words."""
    look = [Query(phrases=(Phrase(f"w{each * 7919 % 100_000:05}"),)) for each in range(1, 100)]
    return [len((await store.search(Sight(), each, None, 99, PLENTY)).envelopes) for each in look]


@pytest.mark.parametrize("what", SIGNS)
def test_what_leads_to_a_page_of_the_search_index_does_not_change_unseen(
    path: Path, many_words: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    shutil.copyfile(many_words, path)
    change(path, f"UPDATE search_idx SET {SIGNS[what]} WHERE {SIGN}")

    async def look() -> None:
        store = await open_store(path)
        await store.looked_through()
        assert 0 not in await found(store)
        assert "the search index is damaged" in caplog.text
        await store.close()

    asyncio.run(look())


async def test_pages_that_are_given_out_wrong_are_put_right_from_the_rows(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The list of free pages names one that a table is on."""
    store = await open_store(path)
    rows = []
    for number in range(1, 40):
        message = envelope(number, text="x" * 5000)
        rows.append(await store.write(lambda tx, m=message: _add(tx, m)))  # type: ignore[misc]
    await store.write(lambda tx: tx.remove(rows[9:]))
    await store.close()
    data = bytearray(bytes_of(path))
    trunk = (int.from_bytes(data[32:36], "big") - 1) * 4096
    assert int.from_bytes(data[trunk + 4 : trunk + 8], "big") > 0
    data[trunk + 8 : trunk + 12] = (5).to_bytes(4, "big")
    copy = path.with_name("copy.db")  # without the log
    write(copy, data)
    store = await open_store(copy)
    assert "made sound again from its rows" in caplog.text
    assert len(await texts(store)) == 9
    await store.close()


def set_aside_count(view: View) -> int:
    return view.set_aside_count(9)


def _add(tx: Tx, message: Envelope) -> Delivery:
    row = delivery(message, tx.next_seq())
    tx.add(message, [row])
    return row
