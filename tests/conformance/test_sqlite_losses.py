"""Bits that flip in the rows of the SQLite store's file: whoever sent that mail learns it, once, from the hub."""

import shutil
from pathlib import Path

import apsw
import pytest

from angelia.bus.losses import IN_ITS_PLACE, settle_losses
from angelia.bus.ports import Tx
from angelia.model.agent import Token
from angelia.model.delivery import State
from angelia.model.envelope import Envelope, Intent
from angelia.model.failure import Reason
from angelia.model.loss import LOSS
from angelia.storage.sqlite import aside
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.store import SqliteStore
from angelia.storage.sqlite.tx import SqliteTx
from tests.conformance.conftest import ROOMY
from tests.conformance.mail import NOW, delivery, envelope
from tests.conformance.test_sqlite_damage import change
from tests.fakes.small_hub import SmallHub

TEXT = "x" * 40
BIT = 4  # turns a hex digit into another byte, and a letter of a name into another letter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "angelia.db"


async def open_store(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, now=NOW, reserve=ROOMY)


async def start(path: Path) -> SmallHub:
    """A hub over a store, wired as ``app.py`` does it, once all that is damaged was found."""
    store = await open_store(path)
    hub = await SmallHub.open(store=store, known=())
    store.on_loss = lambda: settle_losses(hub.bus)
    settle_losses(hub.bus)
    await store.looked_through()
    for _ in range(3):  # what was found is set aside, then seen to, then it is told
        await hub.commit()
    return hub


async def filled(path: Path) -> list[Envelope]:
    """A store with three requests."""
    store = await open_store(path)
    sent = [envelope(number, text=f"{number} {TEXT}", intent=Intent.REQUEST) for number in range(1, 4)]

    def unit(tx: Tx) -> None:
        for each in sent:
            tx.add(each, [delivery(each, tx.next_seq())])

    await store.write(unit)
    await store.close()
    return sent


@pytest.fixture
async def sent(path: Path) -> list[Envelope]:
    return await filled(path)


def flip(path: Path, place: int, bit: int = BIT) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= bit
    path.write_bytes(data)


def where(path: Path, number: int) -> range:
    """Where in a file the columns of a message lie, from its id to its text."""
    data = path.read_bytes()
    begin = data.index(f"{number:032x}Hermes".encode())
    return range(begin, data.index(f"{number} {TEXT}".encode(), begin) + 2 + len(TEXT))


async def test_the_sender_is_told_once_whatever_is_restarted(path: Path, sent: list[Envelope]) -> None:
    flip(path, where(path, 2)[-1])
    for _ in range(3):
        hub = await start(path)
        (notice,) = await hub.notices("hermes")
        assert (notice.about, notice.reason) == (sent[1].id, "damaged")
        (row,) = await hub.rows(sent[1].id)
        assert (row.state, row.reason) == (State.FAILED, Reason.DAMAGED)
        stands_in = await hub.bus.store.read(lambda view: view.message(sent[1].id))
        assert stands_in is not None
        assert (stands_in.text, stands_in.sender) == (IN_ITS_PLACE, "Hermes")
        assert [p.envelope for p in await hub.mailbox("claude")] == [sent[0], sent[2]]
        assert hub.bus.store.load("claude").open == 2
        assert await hub.bus.store.read(lambda view: view.notes(LOSS)) == []
        assert await hub.bus.store.read(lambda view: view.set_aside_count(9)) == 1
        await hub.bus.store.close()


async def test_what_was_set_aside_by_a_hub_that_died_before_it_told_is_told_by_the_next(
    path: Path, sent: list[Envelope]
) -> None:
    flip(path, where(path, 2)[-1])
    store = await open_store(path)  # it sets it aside
    await store.close()
    hub = await start(path)
    assert [n.about for n in await hub.notices("hermes")] == [sent[1].id]
    await hub.bus.store.close()


async def test_it_is_told_while_the_hub_runs(path: Path, sent: list[Envelope]) -> None:
    hub = await start(path)
    other = apsw.Connection(str(path))
    other.set_busy_timeout(10_000)  # the store may write at this moment
    other.set_busy_timeout(9000)
    other.execute("UPDATE message SET text = 'y' WHERE number = 2")
    other.close()
    assert [p.envelope for p in await hub.take("claude")] == [sent[0], sent[2]]
    for _ in range(3):
        await hub.commit()
    assert [n.about for n in await hub.notices("hermes")] == [sent[1].id]
    await hub.bus.store.close()


async def test_whichever_byte_of_a_message_it_is_its_sender_is_told(path: Path, sent: list[Envelope]) -> None:
    """Its id, too: the sum of its delivery says which bit it was."""
    copy = path.with_name("copy.db")
    for place in where(path, 2)[::5]:
        shutil.copyfile(path, copy)
        flip(copy, place)
        hub = await start(copy)
        told = [(n.about, n.reason, n.to) for n in await hub.notices("hermes")]
        assert told in ([(sent[1].id, "damaged", "Hermes")], [(sent[1].id, "damaged", "hermes")]), place
        assert [p.envelope for p in await hub.mailbox("claude")] == [sent[0], sent[2]], place
        await hub.bus.store.close()
        copy.unlink()


COLUMNS = {
    "seq": "9", "mailbox": "'clauda'", "connection": "'relay'", "sender": "'hermet'", "lane": "0", "size": "size + 1",
    "state": "6", "attempt": "1", "hand": "'turo'", "expires_at": "expires_at - 8", "sweep_at": "NULL",
    "ended_at": "1", "owes": "'relay'", "sum": "sum + 1", "message": "3",
}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
async def test_whichever_column_of_a_delivery_it_is_the_sender_is_told(
    path: Path, sent: list[Envelope], column: str
) -> None:
    change(path, f"UPDATE delivery SET {column} = {COLUMNS[column]} WHERE key = 2")
    for _ in range(2):
        hub = await start(path)
        (notice,) = await hub.notices("hermes")
        assert (notice.about, notice.reason, notice.to) == (sent[1].id, "damaged", "Hermes")
        (row,) = await hub.rows(sent[1].id)
        assert (row.mailbox, row.state, row.reason) == ("claude", State.FAILED, Reason.DAMAGED)
        assert await hub.bus.store.read(lambda view: view.message(sent[1].id)) == sent[1]
        await hub.bus.store.close()


@pytest.mark.parametrize(("at", "value"), [(1, "x"), (9, -9), (16, 1.5), (3, b"\xff"), (13, b"nobody"), (25, None)])
async def test_a_delivery_that_is_none_any_more_is_set_aside_all_the_same(
    path: Path, sent: list[Envelope], at: int, value: object
) -> None:
    """A bit in the head of a row makes a text of a number, or nothing of it; the table takes no such row from us."""
    hub = await start(path)

    def unit(tx: Tx) -> None:
        assert isinstance(tx, SqliteTx)
        desk = tx._desk
        raw = list(desk.run(SQL["raw_delivery_at"], (2,))[0])
        raw[at] = value
        aside.keep_delivery(desk, tuple(raw))
        desk.run(SQL["remove_deliveries"], ("[2]",))
        tx.then(desk.bereft)

    await hub.bus.store.write(unit)
    for _ in range(3):
        await hub.commit()
    told = [n.about for n in await hub.notices("hermes")]
    assert told == ([] if value is None else [sent[1].id])  # then nobody knows which message it was
    await hub.bus.store.close()


async def test_a_message_that_is_under_another_number_is_found_by_its_delivery(
    path: Path, sent: list[Envelope]
) -> None:
    change(path, "UPDATE message SET number = 130 WHERE number = 2")
    hub = await start(path)
    assert [n.about for n in await hub.notices("hermes")] == [sent[1].id]
    assert [d.state for d in await hub.rows(sent[1].id)] == [State.FAILED]
    await hub.bus.store.close()


async def test_of_a_delivery_that_leads_to_a_message_with_its_own_the_right_sender_is_told(
    path: Path, sent: list[Envelope]
) -> None:
    change(path, "UPDATE delivery SET message = 1 WHERE key = 2")  # two bits off
    hub = await start(path)
    assert [n.about for n in await hub.notices("hermes")] == [sent[1].id]  # which is left without any
    assert [d.state for d in await hub.rows(sent[0].id)] == [State.QUEUED]
    await hub.bus.store.close()


async def test_where_both_are_damaged_nobody_can_be_told(
    path: Path, sent: list[Envelope], caplog: pytest.LogCaptureFixture
) -> None:
    flip(path, where(path, 2)[-1])
    change(path, "UPDATE delivery SET size = size + 1 WHERE key = 2")
    hub = await start(path)
    assert await hub.notices("hermes") == []
    assert f"message {sent[1].id} is damaged: set aside" in caplog.text
    assert await hub.bus.store.read(lambda view: view.set_aside_count(9)) == 1
    await hub.bus.store.close()


async def test_what_was_over_leaves_no_message_without_a_delivery(path: Path, sent: list[Envelope]) -> None:
    hub = await start(path)
    (row,) = await hub.rows(sent[1].id)
    over = row._replace(state=State.FAILED, reason=Reason.CANCELLED, ended_at=NOW)
    await hub.bus.store.write(lambda tx: tx.move(row, over))
    await hub.bus.store.close()
    change(path, "UPDATE delivery SET size = size + 1 WHERE key = 2")
    hub = await start(path)
    assert await hub.notices("hermes") == []
    assert await hub.bus.store.read(lambda view: view.message(sent[1].id)) is None
    await hub.bus.store.close()


async def test_a_damaged_token_is_told_of_with_the_name_of_its_agent(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(path)
    await store.write(
        lambda tx: tx.put_token(Token(id="t1", mailbox="brook", digest=bytes(32), created_at=NOW, ends_at=None))
    )
    await store.close()
    change(path, "UPDATE token SET created_at = created_at + 1")
    await (await open_store(path)).close()
    assert "a row of table token is damaged (t1 of brook): set aside" in caplog.text
