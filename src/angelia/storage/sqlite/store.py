"""The store of one machine. What ``write`` promises is here; how it is kept: ``writer.py``, then ``tx.py``.

What must stay true: a future of ``write`` is done only when the unit is on the disk itself (``synchronous=FULL``; with
``durability="normal"`` a power cut may take the last moments, a crash of the program nothing). One writing connection,
on one thread; some readers beside it that never wait for it. The folder is locked by ``lock.py`` before this is opened.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from angelia.bus.ports import Load, Tx, View
from angelia.model.errors import DiskFull, OutcomeUnknown, Stopping
from angelia.storage.sqlite.checkpoints import Checkpoints
from angelia.storage.sqlite.connect import FULL_DETAIL, open_reader
from angelia.storage.sqlite.full import Disk, FullDisk, Reserve
from angelia.storage.sqlite.opening import Opened, open_file
from angelia.storage.sqlite.readers import Readers
from angelia.storage.sqlite.tx import SqliteTx
from angelia.storage.sqlite.units import Unit
from angelia.storage.sqlite.writer import UNKNOWN_DETAIL, Writer

T = TypeVar("T")
READERS = 2


class SqliteStore:
    """``ports.Store`` in one SQLite file. Made by ``open``, on the loop that uses it."""

    def __init__(self, opened: Opened, writer: Writer, readers: Readers) -> None:
        self.epoch, self.instance, self.secret = opened.epoch, opened.instance, opened.secret
        self._writer, self._readers = writer, readers
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

        def damaged(number: int, message_id: str) -> None:
            loop.call_soon_threadsafe(store._set_aside, number, message_id)

        readers = Readers(loop, [open_reader(path, vfs) for _ in range(READERS)], damaged)
        checkpoints = Checkpoints(opened.desk, readers.revoke)
        writer = Writer(
            loop, opened.desk, opened.loads, opened.seqs, full, checkpoints, on_failure, before_end=readers.stop
        )
        store = cls(opened, writer, readers)
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

    def load(self, mailbox: str) -> Load:
        """The sums of what is on disk."""
        return self._writer.glance.of(mailbox)

    async def close(self) -> None:
        """Commit what is queued, fold the log into the file, and let go of it."""
        if not self._closing:
            self._closing = True
            self._writer.queue.close()
        await asyncio.shield(self._writer.ended)

    def _set_aside(self, number: int, message_id: str) -> None:
        """A reader met a message that is not what was written."""

        def unit(tx: Tx) -> None:
            assert isinstance(tx, SqliteTx)
            tx.set_aside(number, message_id)

        if not self._closing:
            self.write(unit, essential=True)
