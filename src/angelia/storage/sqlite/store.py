"""The store of one machine. What ``write`` promises is here; how it is kept: ``writer.py``, then ``tx.py``.

What must stay true: a future of ``write`` is done only when the unit is on the disk itself (``synchronous=FULL``; with
``durability="normal"`` a power cut may take the last moments, a crash of the program nothing). One writing connection,
on one thread; some readers beside it that never wait for it. The folder is locked by ``lock.py`` before this is opened.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Literal, TypeVar

from angelia.bus.ports import Conversation, Copy, Found, Load, Sight, Talks, Tx, View
from angelia.model.errors import AngeliaError, DiskFull, OutcomeUnknown, RateLimited, Stopping, Unwell
from angelia.model.query import Query
from angelia.storage import backups
from angelia.storage.sqlite.bad_rows import Stray
from angelia.storage.sqlite.checkpoints import Checkpoints
from angelia.storage.sqlite.connect import FULL_DETAIL, open_reader
from angelia.storage.sqlite.copying import back_up
from angelia.storage.sqlite.damage import TROUBLE, DamageSearch
from angelia.storage.sqlite.full import Disk, FullDisk, Reserve
from angelia.storage.sqlite.library import IndexDamaged, SqliteLibrary
from angelia.storage.sqlite.looking import Damaged, Pace
from angelia.storage.sqlite.opening import Opened, open_file
from angelia.storage.sqlite.place import Place
from angelia.storage.sqlite.readers import Readers
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
        self.on_loss: Callable[[], None] = _nobody  # called on the loop once mail was set aside, and left its note
        opened.desk.bereft = lambda: self.on_loss()

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        now: int,
        returned_grace_seconds: int = 900,
        durability: Literal["full", "normal"] = "full",
        on_failure: Callable[[], None] | None = None,
        on_gone: Callable[[], None] | None = None,
        reserve: Reserve | None = None,
        disk: Disk | None = None,
        vfs: str | None = None,
    ) -> "SqliteStore":
        """Open the store at ``path``, or make one. ``now``: UTC ms; what a dead hub held is queued again.

        ``on_failure`` is called once, on the loop, after a commit failed; ``on_gone`` where a write finds that the
        file is no longer the one at its path. ``reserve``, ``disk`` and ``vfs`` are for tests.
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

        writer = Writer(
            loop,
            opened.desk,
            opened.loads,
            opened.seqs,
            full,
            Place(path),
            Checkpoints(opened.desk, each(Readers.revoke)),
            on_failure,
            on_gone,
            damaged,
            before_end=each(Readers.stop),
        )
        store = cls(opened, writer, readers, finders)
        store._damage = DamageSearch(loop, path, vfs, store)

        def suspect() -> None:
            loop.call_soon_threadsafe(store._damage.suspect)

        opened.desk.suspect = suspect
        store._watch_over(opened)
        return store

    def _watch_over(self, opened: Opened) -> None:
        """Look through it, from now on; the search index rests until it was looked at."""
        index = self._writer.index
        index.held, index.look = True, self._damage.look_again
        if opened.search_fault is not None:
            self.remake_search(opened.search_fault, 0, renewed=True).add_done_callback(self._seen)
        self._damage.begin_later(checked=opened.checked)

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

    def is_at_its_place(self) -> bool:
        """Whether its files are still the ones at their paths. Once they are not, nothing is accepted any more."""
        return self._writer.place.is_ours()

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
        if sight.only is None:
            return await self._find(lambda library: library.talks(sight, before, limit))
        return (await self._find_words(lambda library: library.talks(sight, before, limit)))[0]

    async def conversation(
        self, sight: Sight, message_id: str, after: int, limit: int, max_bytes: int
    ) -> Conversation | None:
        """See ``ports.Library``."""
        return await self._find(lambda library: library.conversation(sight, message_id, after, limit, max_bytes))

    async def search(self, sight: Sight, query: Query, before: int | None, limit: int, max_bytes: int) -> Found:
        """See ``ports.Library``. What was stored before is found; where the index is so far back that it cannot catch
        up within ``INDEX_SECONDS`` (after an update of an old store, say), the answer says by how much."""
        found, whole = await self._find_words(lambda library: library.search(sight, query, before, limit, max_bytes))
        return replace(found, behind=0) if whole else found

    async def _find_words(self, work: Callable[[SqliteLibrary], T]) -> tuple[T, bool]:
        """By the search index, and whether all was in it. Where it turns out to be damaged, once more in the one that
        is made in its place."""
        whole, seen = await self._indexed(), self.renewals
        try:
            return await self._find(work), whole
        except IndexDamaged as damaged:
            if self._writer.index.off:
                raise Unwell("The search index is damaged and cannot be made anew; hub.log says why.") from damaged
            await self.remake_search(damaged.why, seen)
            whole = await self._indexed()
            return await self._find(work), whole

    def trouble(self) -> str | None:
        """See ``ports.Library``."""
        return self._damage.trouble or self.search_trouble

    @property
    def search_trouble(self) -> str | None:
        """What of that the search index has. Any thread may read it."""
        return self._writer.index.trouble

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
        """See ``ports.Archive``. On a thread of its own; a commit waits for some pages at most (``copying.py``)."""
        if self._closing:
            raise Stopping("The store is closed.")
        if self._copying is not None:
            raise RateLimited("A copy is being made already. Nothing was changed; ask again when it is done.")
        pace = self._copying = Pace(gentle=True)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Copy] = loop.create_future()
        self._writer.copied = True

        def over(made: Copy | BaseException) -> None:
            self._writer.copied, self._copying = False, None
            if self._closing:
                self._writer.queue.close()
            if done.done():
                return  # whoever asked is gone
            if isinstance(made, Copy):
                done.set_result(made)
            else:
                done.set_exception(made)

        def copy() -> None:
            made: Copy | BaseException
            try:
                made = back_up(self._path, file, now, pace, self._writer.between)
            except BaseException as error:  # noqa: BLE001  (it goes to whoever asked)
                made = error
            with suppress(RuntimeError):  # the loop is gone, and with it whoever asked
                loop.call_soon_threadsafe(over, made)

        Thread(target=copy, name="angelia-copy", daemon=True).start()
        try:
            return await done
        except Damaged as damaged:
            await asyncio.gather(*[self._set_aside(number, table) for number, table in damaged.rows])
            if damaged.rows:
                raise Unwell(f"{damaged.detail} They were set aside; make the copy again.") from damaged
            self._damage.begin()
            raise Unwell(
                f"{damaged.detail} The copy was thrown away; older ones are as they were. Where a second one ends so, "
                f"the store itself is damaged: stop the hub. {backups.remedy(self._path.parent)}"
            ) from damaged
        finally:
            pace.stop()

    async def close(self) -> None:
        """Commit what is queued, fold the log into the file, and let go of it. A copy that is made gives up first."""
        if not self._closing:
            self._closing = True
            self._damage.stop()
            try:
                await self._damage.ended()  # the last that lets go of the file is the writer, which takes the log away
            finally:
                if self._copying is None:
                    self._writer.queue.close()
                else:
                    self._copying.stop()
        await asyncio.shield(self._writer.ended)

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
            self._set_aside(number, table).add_done_callback(self._seen)

    def set_aside(self, number: int, table: str) -> None:
        """For the search: it does not wait for this."""
        self._met_damage(number, table)

    def put_in_order(self, table: str, strays: list[Stray]) -> "asyncio.Future[None]":
        """Write a large table anew, beside what else is written, without what lies in it as it should not."""

        def unit(tx: Tx) -> None:
            assert isinstance(tx, SqliteTx)
            tx.put_in_order(table, strays)

        return self.write(unit, essential=True)

    def keep_alone(self, number: int) -> None:
        """A message that has no delivery, as it seems."""

        def unit(tx: Tx) -> None:
            assert isinstance(tx, SqliteTx)
            tx.keep_alone(number)

        if not self._closing:
            self.write(unit, essential=True).add_done_callback(self._seen)

    def remake(self, names: set[str]) -> "asyncio.Future[None]":
        """Make these indexes and large tables anew, beside what else is written."""

        def unit(tx: Tx) -> None:
            assert isinstance(tx, SqliteTx)
            tx.remake(names)

        return self.write(unit, essential=True)

    def do_away(self, *, sound: bool) -> "asyncio.Future[None]":
        """With what is left of a search index that was given up."""
        return self.write(lambda tx: self._writer.index.do_away(sound=sound), essential=True)

    def release_search(self) -> None:
        """The search index was looked at, and may go on. Any thread may call it."""
        self._writer.index.release()

    @property
    def renewals(self) -> int:
        """How many times the search index was made anew. Any thread may read it."""
        return self._writer.index.renewals

    def remake_search(self, why: str, seen: int, *, renewed: bool = False) -> "asyncio.Future[None]":
        """Make the search index anew, in the quiet, if it is the one that was ``seen``: ``renewals`` before.
        ``renewed``: there is an empty one in its place already."""
        return self.write(lambda tx: self._writer.index.distrust(why, seen, renewed=renewed), essential=True)

    def _set_aside(self, number: int, table: str) -> asyncio.Future[None]:

        def unit(tx: Tx) -> None:
            assert isinstance(tx, SqliteTx)
            if not tx.set_aside(number, table):
                tx.then(self._damage.suspect)  # the row is right: what led to it is not

        return self.write(unit, essential=True)

    def _seen(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._damage.trouble = TROUBLE
            _log.error("a damaged row could not be set aside: %s", error)


def _nobody() -> None:
    """Nobody is told."""
