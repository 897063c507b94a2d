"""The writing thread: it takes what was queued while the last commit ran, and commits it as one.

What must stay true: this thread alone writes, and it alone checkpoints. A group is one transaction: every unit that
raises is undone alone, then one COMMIT makes the rest durable, then the loop is told once: all effects, then all
futures, in order. A unit runs once. After a commit that failed nothing is written any more: what is on the disk is
known only to the next start. Nor is anything where the file is no longer the one at its path (``place.py``). But where
something cannot be read, SQLite has stored nothing of the transaction, and says so: those in it are refused, and all
goes on.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from time import monotonic
from typing import Any

import apsw

from angelia.model.errors import AngeliaError, DiskFull, OutcomeUnknown, Unwell
from angelia.storage.calls import run_effects, run_undos
from angelia.storage.load import Loads
from angelia.storage.sqlite.checkpoints import IDLE_SECONDS, REVOKE_BYTES, Checkpoints
from angelia.storage.sqlite.connect import FULL_DETAIL, Desk, as_model_error, in_a_line
from angelia.storage.sqlite.damage import UNKNOWN
from angelia.storage.sqlite.full import FullDisk
from angelia.storage.sqlite.index import WORK_SECONDS, SearchIndex
from angelia.storage.sqlite.place import GONE_DETAIL, Place
from angelia.storage.sqlite.tx import Added, Seqs, SqliteTx
from angelia.storage.sqlite.units import Unit, UnitQueue

UNKNOWN_DETAIL = "Storing it failed; whether it is there shows when the hub is back. Ask again with the same id."
_log = logging.getLogger(__name__)


class Writer:
    """The thread and what it owns. ``glance`` are the sums as the loop sees them: only what is on disk."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        desk: Desk,
        loads: tuple[Loads, Loads],
        seqs: Seqs,
        full: FullDisk,
        place: Place,
        checkpoints: Checkpoints,
        on_failure: Callable[[], None] | None,
        on_gone: Callable[[], None] | None,
        damaged: Callable[[int, str], None],
        before_end: Callable[[], None],
    ) -> None:
        self._loop, self._desk, self._seqs = loop, desk, seqs
        self._loads, self.glance = loads
        self._checkpoints, self._before_end = checkpoints, before_end
        self._on_failure, self._on_gone, self._damaged = on_failure, on_gone, damaged
        self.full, self.place = full, place
        self.index = SearchIndex(desk, self._tell)
        self._served_at = monotonic()
        self._added: list[tuple[Unit, list[Added]]] = []  # those of this transaction whose rows are not written yet
        self._dirty = False  # something is changed in it
        self._chores: deque[Callable[[], None]] = deque()
        self.copied = False  # its pages are being copied: undoing a whole transaction would begin that anew
        self.queue = UnitQueue(loop)
        self.broken = self._told = self._told_gone = False
        self.ended = loop.create_future()
        Thread(target=self._main, name="angelia-write", daemon=True).start()

    @property
    def log_bytes(self) -> int:
        """How much of the write-ahead log is in use; a glance from another thread."""
        return self._checkpoints.used

    def _main(self) -> None:
        """Until the queue is closed and empty."""
        while not (self.queue.closed and self.queue.empty):
            if self._chores:
                self._chores.popleft()()
            units = self.queue.take()
            if units:
                self._serve(units)
                continue
            self.queue.wait(self._patience())
            if self.queue.empty:
                self._guard(self._tidy)
        try:
            self._end()
        finally:
            self._tell(self._finish_end)

    def between(self, call: Callable[[apsw.Connection], Any]) -> Any:
        """Run ``call`` on this thread, with the connection, between two groups; what comes of it. Called, and waited
        for, by a thread of its own, until the queue is closed; one call at a time, so that units go between."""
        outcome: Future[Any] = Future()

        def chore() -> None:
            try:
                outcome.set_result(call(self._desk.db))
            except BaseException as error:  # noqa: BLE001  (it goes to whoever asked)
                outcome.set_exception(error)

        self._chores.append(chore)
        self.queue.call()
        return outcome.result()

    def _patience(self) -> float | None:
        if self.broken:
            return None
        if self.full.now:
            return self.full.wait()
        waits = (self.index.patience, IDLE_SECONDS if self._checkpoints.pending else None)
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def _tidy(self) -> None:
        self.full.probe()
        if monotonic() - self._served_at >= IDLE_SECONDS:
            self._checkpoints.when_idle()
        if self.index.patience is not None:
            self._work_on_index(WORK_SECONDS, lambda: self.queue.empty)

    def _work_on_index(self, seconds: float, go_on: Callable[[], bool]) -> None:
        """As any group does it, it sees to the room that it takes first."""
        self._make_room()
        if self.full.now or self.broken or self.place.lost:
            self.index.answer(whole=False)
        else:
            self.index.work(seconds, go_on)

    def _serve(self, units: list[Unit]) -> None:
        """Bring one group to its end, whatever that is, and tell the loop."""
        if not self.broken:
            try:
                self.full.probe()
                self._commit(units)
            except BaseException as error:  # noqa: BLE001  (whatever it is, the state of the store is not known)
                self._break(error)
        if self.broken:
            for unit in units:
                unit.error, unit.effects, unit.changes = OutcomeUnknown(UNKNOWN_DETAIL), (), ()
        self.index.committed(sum([len(unit.changes) for unit in units]))
        self._tell(self._finish, units)
        self._guard(self._checkpoints.after_commit)
        if (seconds := self.index.wants(len(units))) is not None:
            self._guard(lambda: self._work_on_index(seconds, lambda: True))
        self._served_at = monotonic()

    def _is_ours(self) -> bool:
        """Whether the file is still at its path, as far as was seen lately; whoever is to know hears of it once."""
        if self.place.is_ours_lately():
            return True
        if not self._told_gone and self._on_gone is not None:
            self._tell(self._on_gone)
        self._told_gone = True
        return False

    def _guard(self, work: Callable[[], None]) -> None:
        """Do what no unit waits for."""
        try:
            if not self.broken and self._is_ours():
                work()
        except apsw.FullError:
            self._full_disk()
        except BaseException as error:  # noqa: BLE001  (the thread goes on, so that nobody waits for ever)
            self._break(error)
        if self.broken and not self._told:
            self._told = True
            # Whoever hears of a failure looks anew at what is at the path, and would make a new store there.
            if (told := self._on_failure if self.place.is_ours() else self._on_gone) is not None:
                self._tell(told)

    def _full_disk(self) -> None:
        """Go on with what was kept back; the log is folded with it, so that it can be written over."""
        self.full.enter()
        try:
            self._checkpoints.now()
        except apsw.FullError:
            _log.warning("the disk is so full that the log cannot be folded")
        except apsw.Error as error:
            self._break(error)

    def _make_room(self) -> None:
        """See that the log has room for a group: by writing it over, else by growing it; else the disk is full."""
        full, log = self.full, self._checkpoints
        if full.room(log.used) or not self.place.is_ours():
            return
        try:
            log.fold()
            if full.room(log.used) or (log.used < REVOKE_BYTES and not full.now and full.grow(log.used)):
                return
            log.now()
        except apsw.FullError:
            self._full_disk()
        if not (full.now or full.room(log.used) or full.grow(log.used)):
            full.enter()

    def _commit(self, units: list[Unit]) -> None:
        """One group; where the disk is full, what is essential in it; none of it into a file that nobody finds."""
        if self._is_ours():
            self._make_room()
        if self.place.lost:
            for unit in units:
                unit.error = Unwell(GONE_DETAIL)
            return
        if self.full.now:
            for unit in units:
                if not unit.essential:
                    unit.error = DiskFull(FULL_DETAIL)
            units = [unit for unit in units if unit.essential]
        if units and not self.broken:
            self._transact(units)

    def _transact(self, units: list[Unit]) -> None:
        desk = self._desk
        error: AngeliaError
        begun, rest = 0, list[Unit]()
        try:
            desk.control("BEGIN IMMEDIATE")
            self._dirty, self._added = self.copied, []
            for unit in units:
                begun += 1
                self._run(unit)
            self._write_added()
            self._seqs.save(desk)
            desk.control("COMMIT")
            self._seqs.saved()
            return
        except apsw.FullError:
            self.full.enter()
            error = DiskFull(FULL_DETAIL)
        except apsw.BusyError as busy:
            error = Unwell(f"Another program keeps the store busy ({in_a_line(busy)}). Nothing was stored.")
        except apsw.CorruptError as corrupt:
            # SQLite commits nothing any more in a transaction in which it met what it cannot read. Those that had their
            # turn in it are refused, the others have theirs in another.
            self._damaged(UNKNOWN, "")
            error = Unwell(f"The store could not be used: {in_a_line(corrupt)}. Nothing was stored.")
            units, rest = units[: begun or None], units[begun:] if begun else []
        if desk.db.in_transaction:
            desk.control("ROLLBACK")
        for unit in reversed(units):
            self._take_back(unit, error)
        if rest:
            self._transact(rest)

    def _run(self, unit: Unit) -> None:
        """One unit. Where it did nothing but add, that waits for what others add."""
        tx = SqliteTx(self._desk, self._loads, self._seqs, self._write_added)
        try:
            unit.result = unit.work(tx)
            tx.finish()
        except BaseException as error:
            tx.rollback()
            if _ends_all(error) or not self._desk.db.in_transaction:
                raise  # SQLite gave up the whole transaction
            unit.error = self._meant(error)
            return
        unit.error = None
        unit.effects, unit.undos, unit.changes = tx.effects, tx.undos, tx.changes
        self._dirty = self._dirty or tx.dirty
        if tx.added:
            self._added.append((unit, tx.added))

    def _write_added(self) -> bool:
        """Write what units have added, for all of them at once; whether anything is changed by now in the transaction.

        Where it cannot be written, each is tried alone, so that none suffers for another. The first change needs no
        savepoint: before it nothing was done.
        """
        several, self._added = self._added, []
        if not several:
            return self._dirty
        tx = SqliteTx(self._desk, self._loads, self._seqs, lambda: self._dirty)
        tx.added = [each for _, added in several for each in added]
        try:
            tx.write_added()
            tx.finish()
            self._dirty = True
        except BaseException as error:
            tx.rollback()
            if _ends_all(error) or not self._desk.db.in_transaction:
                raise
            if len(several) == 1:
                self._take_back(several[0][0], self._meant(error))
                return self._dirty
            for one in several:
                self._added = [one]
                self._write_added()
        return self._dirty

    def _meant(self, error: BaseException) -> BaseException:
        """What a unit's caller is told of a failure; where the file is damaged, that is told, too."""
        if isinstance(error, apsw.CorruptError):
            self._damaged(UNKNOWN, "")
        meant = as_model_error(error)
        # Where a refusal was raised nobody asks. The traceback knows the unit, which knows the refusal: a circle that
        # would stay until a collection, and a collection holds up everybody.
        return meant.with_traceback(None) if isinstance(meant, AngeliaError) else meant

    def _take_back(self, unit: Unit, error: BaseException) -> None:
        """Nothing of it is stored after all."""
        self._loads.undo(unit.changes)
        run_undos(reversed(unit.undos))
        unit.effects, unit.undos, unit.changes, unit.error = (), (), (), error

    def _break(self, error: BaseException) -> None:
        """Nothing is known any more; nothing is written any more."""
        self.broken = True
        _log.critical("the store failed, nothing is written any more: %s", in_a_line(error), exc_info=error)

    def _end(self) -> None:
        if not self.broken and self.place.is_ours():
            try:
                self._seqs.settle(self._desk)
            except apsw.Error as error:
                _log.warning("the counter was not settled (%s); the next start skips some numbers", in_a_line(error))
        self._before_end()
        if not self.broken and self.place.is_ours():
            self._checkpoints.at_end()
        elif not self.broken and self.place.has_main:
            self._checkpoints.save()
        self._desk.close()
        self.full.close()

    def _tell(self, call: Callable[..., object], *values: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *values)
        except RuntimeError:
            _log.debug("the loop is gone; nobody is left to tell")

    def _finish(self, units: list[Unit]) -> None:
        """On the loop: the group is on disk (or failed as a whole)."""
        for unit in units:
            if unit.changes:
                self.glance.apply(unit.changes)
        for unit in units:
            run_effects(unit.effects)
        for unit in units:
            if unit.future.done():
                continue
            if unit.error is not None:
                unit.future.set_exception(unit.error)
            else:
                unit.future.set_result(unit.result)

    def _finish_end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _ends_all(error: BaseException) -> bool:
    """Whether SQLite commits nothing of a transaction in which it said this. An index that does not know a row, and a
    text that is none, are no such things."""
    if isinstance(error, apsw.CorruptError):
        return getattr(error, "extendedresult", None) == apsw.SQLITE_CORRUPT
    return isinstance(error, apsw.FullError)
