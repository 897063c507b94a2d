"""The store of one machine. What ``write`` promises is here; how it is kept: ``writer.py``, then ``tx.py``.

What must stay true: a future of ``write`` is done only when the unit is on the disk itself (``synchronous=FULL``; with
``durability="normal"`` a power cut may take the last moments, a crash of the program nothing). One writing connection,
on one thread; some readers beside it that never wait for it. The folder is locked by ``lock.py`` before this is opened.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Literal, TypeVar

from angelia.bus.ports import Conversation, Copy, Found, Load, Sight, Talks, Tx, View
from angelia.model.errors import AngeliaError, DiskFull, OutcomeUnknown, RateLimited, Stopping, Unwell
from angelia.model.query import Query
from angelia.storage.sqlite.checkpoints import Checkpoints
from angelia.storage.sqlite.connect import FULL_DETAIL, open_reader
from angelia.storage.sqlite.copying import back_up
from angelia.storage.sqlite.damage import DamageSearch
from angelia.storage.sqlite.full import Disk, FullDisk, Reserve
from angelia.storage.sqlite.library import SqliteLibrary
from angelia.storage.sqlite.looking import Damaged, Pace
from angelia.storage.sqlite.opening import Opened, open_file
from angelia.storage.sqlite.readers import Readers, answer
from angelia.storage.sqlite.tx import SqliteTx
from angelia.storage.sqlite.units import Unit
from angelia.storage.sqlite.writer import UNKNOWN_DETAIL, Writer

T = TypeVar("T")
_log = logging.getLogger(__name__)
READERS = 2
INDEX_SECONDS = 2.0  # what a search waits for the index at most; then it says how far that is


class SqliteStore:
    """``ports.Store`` in one SQLite file. Made by ``open``, on the loop that uses it."""

    def __init__(self, opened: Opened, writer: Writer, readers: Readers, finders: Readers) -> None:
        self.epoch, self.instance, self.secret = opened.epoch, opened.instance, opened.secret
        self._writer, self._readers, self._finders = writer, readers, finders
        self._path = opened.path
        self._copying: Pace | None = None
        self._damage: DamageSearch
        self._closing = False

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        now: int,
        returned_grace_seconds: int = 900,
        durability: Literal["full", "normal"] = "full",
        on_failure: Callable[[], None] | None = None,
        reserve: Reserve | None = None,
        disk: Disk | None = None,
        vfs: str | None = None,
    ) -> "SqliteStore":
        """Open the store at ``path``, or make one. ``now``: UTC ms; what a dead hub held is queued again.

        ``on_failure`` is called once, on the loop, after a commit failed. ``reserve``, ``disk`` and ``vfs`` are
        for tests.
        Raises ``Unwell`` where the file is damaged, is not a store, or was written by a newer program.
        """
        loop = asyncio.get_running_loop()
        full = FullDisk(path, reserve, disk)
        opened = await asyncio.to_thread(open_file, path, durability, vfs, now + returned_grace_seconds * 1000, full)
        store: SqliteStore

        def damaged(number: int, table: str) -> None:
            loop.call_soon_threadsafe(lambda: store._met_damage(number, table))

        readers = Readers(loop, [open_reader(path, vfs) for _ in range(READERS)], damaged)
        # Apart, so that no search, however long, keeps anybody's mail waiting.
        finders = Readers(loop, [open_reader(path, vfs)], damaged, SqliteLibrary)

        def each(do: Callable[[Readers], None]) -> Callable[[], None]:
            def both() -> None:
                do(readers)
                do(finders)

            return both

        checkpoints = Checkpoints(opened.desk, each(Readers.revoke))
        writer = Writer(
            loop,
            opened.desk,
            opened.loads,
            opened.seqs,
            full,
            checkpoints,
            on_failure,
            damaged,
            before_end=each(Readers.stop),
        )
        writer.index.held = True
        store = cls(opened, writer, readers, finders)
        store._damage = DamageSearch(loop, path, vfs, store)

        def suspect() -> None:
            loop.call_soon_threadsafe(store._damage.suspect)

        opened.desk.suspect = suspect
        store._damage.begin_later(checked=opened.checked)
        return store

    def write(
        self, work: Callable[[Tx], T], *, weight: int = 0, lazy: bool = False, essential: bool = False
    ) -> asyncio.Future[T]:
        """Queue a unit; see ``ports.Store.write``."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._closing:
            future.set_exception(Stopping("The store is closed; nothing was stored."))
        elif self._writer.broken:
            future.set_exception(OutcomeUnknown(UNKNOWN_DETAIL))
        elif self._writer.full.now and not essential:
            future.set_exception(DiskFull(FULL_DETAIL))
        else:
            self._writer.queue.put(Unit(work, future, weight, lazy, essential))
        return future

    def read(self, work: Callable[[View], T]) -> asyncio.Future[T]:
        """Run ``work`` over the committed rows, beside the writer."""
        if self._closing:
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            future.set_exception(Stopping("The store is closed."))
            return future
        return self._readers.submit(work)

    @property
    def refusing(self) -> bool:
        """True while the disk is full: what is not essential is refused."""
        return self._writer.full.now

    @property
    def log_bytes(self) -> int:
        """How much of the write-ahead log is in use."""
        return self._writer.log_bytes

    async def talks(self, sight: Sight, before: int | None, limit: int) -> Talks:
        """See ``ports.Library``."""
        if sight.only is not None:
            await self._indexed()
        return await self._find(lambda library: library.talks(sight, before, limit))

    async def conversation(
        self, sight: Sight, message_id: str, after: int, limit: int, max_bytes: int
    ) -> Conversation | None:
        """See ``ports.Library``."""
        return await self._find(lambda library: library.conversation(sight, message_id, after, limit, max_bytes))

    async def search(self, sight: Sight, query: Query, before: int | None, limit: int, max_bytes: int) -> Found:
        """See ``ports.Library``. What was stored before is found; where the index is so far back that it cannot catch
        up within ``INDEX_SECONDS`` (after an update of an old store, say), the answer says by how much."""
        whole = await self._indexed()
        found = await self._find(lambda library: library.search(sight, query, before, limit, max_bytes))
        return replace(found, behind=0) if whole else found

    async def _indexed(self) -> bool:
        """See that all that is stored by now is in the index; False where that takes too long or cannot be."""
        index = self._writer.index
        if index.complete:
            return True
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answer(whole: bool) -> None:
            if not answered.done():
                answered.set_result(whole)

        try:
            async with asyncio.timeout(INDEX_SECONDS):
                await self.write(lambda tx: index.ask(answer), essential=True)
                return await answered
        except (TimeoutError, AngeliaError):
            return False

    def _find(self, work: Callable[[SqliteLibrary], T]) -> asyncio.Future[T]:
        if self._closing:
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            future.set_exception(Stopping("The store is closed."))
            return future
        return self._finders.submit(work)

    def load(self, mailbox: str) -> Load:
        """The sums of what is on disk."""
        return self._writer.glance.of(mailbox)

    async def back_up(self, file: str | None, now: int) -> Copy:
        """See ``ports.Archive``. On a thread of its own and a connection that reads: nobody's commit waits for it."""
        if self._closing:
            raise Stopping("The store is closed.")
        if self._copying is not None:
            raise RateLimited("A copy is being made already. Nothing was changed; ask again when it is done.")
        pace = self._copying = Pace(gentle=True)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Copy] = loop.create_future()

        def copy() -> None:
            try:
                answer(loop, done, back_up(self._path, file, now, pace), None)
            except BaseException as error:  # noqa: BLE001  (it goes to whoever asked)
                answer(loop, done, None, error)

        Thread(target=copy, name="angelia-copy", daemon=True).start()
        try:
            return await done
        except Damaged as damaged:
            await asyncio.gather(*[self._set_aside(number, table) for number, table in damaged.rows])
            if damaged.rows:
                raise Unwell(f"{damaged.detail} They were set aside; make the copy again.") from damaged
            raise
        finally:
            pace.stop()
            self._copying = None

    async def close(self) -> None:
        """Commit what is queued, fold the log into the file, and let go of it."""
        if self._copying is not None:
            self._copying.stop()
        if not self._closing:
            self._closing = True
            self._damage.stop()
            self._writer.queue.close()
        await asyncio.shield(self._writer.ended)
        await self._damage.ended()

    async def looked_through(self) -> None:
        """Wait until the search for damage that runs or is due at once is over, and what it found was set aside."""
        await self._damage.over()

    def _met_damage(self, number: int, table: str) -> None:
        """Somebody met a row that is not what was written, or that cannot be read at all."""
        if self._closing:
            return
        if not table:
            self._damage.begin()
        else:
            self._set_aside(number, table).add_done_callback(_seen)

    def set_aside(self, number: int, table: str) -> None:
        """For the search: it does not wait for this."""
        self._met_damage(number, table)

    def remake(self, indexes: set[str]) -> "asyncio.Future[None]":
        """Make these indexes anew, beside what else is written."""

        def unit(tx: Tx) -> None:
            assert isinstance(tx, SqliteTx)
            tx.remake(indexes)

        return self.write(unit, essential=True)

    def release_search(self) -> None:
        """The search index was looked at, and may go on. Any thread may call it."""
        self._writer.index.held = False

    def remake_search(self, why: str) -> "asyncio.Future[None]":
        """Make the search index anew, in the quiet."""
        return self.write(lambda tx: self._writer.index.distrust(why), essential=True)

    def _set_aside(self, number: int, table: str) -> asyncio.Future[None]:

        def unit(tx: Tx) -> None:
            assert isinstance(tx, SqliteTx)
            if not tx.set_aside(number, table):
                tx.then(self._damage.suspect)  # the row is right: what led to it is not

        return self.write(unit, essential=True)


def _seen(future: asyncio.Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.error("a damaged row could not be set aside: %s", error)
