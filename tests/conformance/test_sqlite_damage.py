"""Bits that flip in the SQLite store's file, and checkpoints that broke off: what is served then, and what is told."""

import asyncio
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from angelia.bus.ports import Scope, View
from angelia.model.errors import Unwell
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.conftest import ROOMY
from tests.conformance.mail import NOW, PLENTY, delivery, envelope, put

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


@pytest.fixture
def searched() -> Iterator[threading.Event]:
    """Set when a search for what is damaged is over."""
    over = threading.Event()

    class Words(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "looked at all messages" in record.getMessage():
                over.set()

    words, log = Words(), logging.getLogger("angelia.storage.sqlite.damage")
    log.addHandler(words)
    yield over
    log.removeHandler(words)


READS: dict[str, Read] = {
    "a unit": lambda view: view.waiting(CLAUDE, 9, PLENTY),
    "waiting": lambda view: view.waiting(CLAUDE, 9, PLENTY),
    "inbox": lambda view: view.inbox("claude", 0, 9, None, None),
    "message": lambda view: view.message(envelope(2).id),
}


@pytest.mark.parametrize("how", READS)
async def test_a_text_that_is_no_text_any_more_is_told_once_and_then_holds_up_nothing(
    path: Path, caplog: pytest.LogCaptureFixture, searched: threading.Event, how: str
) -> None:
    store = await open_store(path)
    for number in range(1, 4):
        await put(store, number)
    other = apsw.Connection(str(path))
    other.execute("UPDATE message SET text = CAST(x'74ff' AS TEXT) WHERE number = 2")
    other.close()
    looking = store.write(READS[how]) if how == "a unit" else store.read(READS[how])
    with pytest.raises(Unwell, match="no text"):
        await looking
    assert await asyncio.to_thread(searched.wait, 20)
    await store.write(lambda tx: None)  # behind the unit that sets it aside
    assert await texts(store) == ["text 1", "text 3"]
    assert await store.read(lambda view: view.message(envelope(2).id)) is None
    assert store.load("claude").open == 2
    assert f"message {envelope(2).id} is damaged: set aside" in caplog.text
    await store.close()


async def test_a_text_that_is_no_text_any_more_is_found_when_the_store_is_opened(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(path)
    other = apsw.Connection(str(path))
    other.execute("UPDATE message SET text = CAST(x'74ff' AS TEXT) WHERE number = 2")
    other.close()
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
    assert "an index of the store was damaged: made anew" in caplog.text
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


async def test_a_damaged_delivery_is_no_guess(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whether row or index is right cannot be told, so mail is handed to nobody: the start is refused."""
    await filled(path)
    copy = path.with_name("copy.db")
    refused = 0
    for place in places(bytes_of(path), b"claude"):
        shutil.copyfile(path, copy)
        flip(copy, place)
        caplog.clear()
        try:
            store = await open_store(copy)
        except Unwell as error:
            refused += "angelia restore" in error.detail
            continue
        aside = caplog.text.count("set aside")
        assert len(await texts(store)) == 5 - aside
        await store.close()
    assert refused >= 10  # five rows, and as many entries of the index that a claim takes from


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


def places(data: bytes, what: bytes) -> list[int]:
    """Where it stands."""
    found = []
    place = data.find(what)
    while place >= 0:
        found.append(place)
        place = data.find(what, place + 1)
    return found
