"""Copies of a store: made from one picture while others write, looked through, and only then named.

What must stay true: a copy is one committed picture of the store. It counts only once it is sealed, was looked through,
and its rows were counted against the picture. Of a store that is served the pages are copied by the connection that
writes, some at a time between two groups: what is written meanwhile goes into the copy, too, so that no picture is held
and the log is reset as ever; others wait for some pages at most. The picture is that of the last page. On another disk,
which may be slow or hang, the thread that writes does nothing: for such a copy a picture is held, and the log grows.
A copy that fails leaves nothing behind, and nothing that was there is gone.
"""

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import apsw

from angelia.bus.ports import Copy
from angelia.model.errors import BadRequest, DiskFull, Stopping, Unwell
from angelia.storage import backups
from angelia.storage.sqlite.connect import BUSY_MS, Desk, as_model_error, in_a_line
from angelia.storage.sqlite.looking import SEAL, Damaged, Pace, Sums, count, digest, look_closely, look_through
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.renewing import forget_left, renew_search

STEP_PAGES = 512  # 2 MiB, 2 to 6 ms; then it rests
REST_SHARE = 0.3  # of the time that a step took: shorter, and others feel it
MOST_GROWN_PAGES = 2048  # 8 MiB, 10 to 20 ms: as much as the store has grown meanwhile is taken with a step
MOST_ROUNDS = 4  # so much longer than its size takes: it is given up. A full disk, for one, lets it begin anew
SYNC_STEPS = 8  # so much is on its way to the disk at most, ahead of the writer's own syncs
ROOM_LEFT_BYTES = 64 * 1024 * 1024  # what a hub keeps back for itself, twice

_PUT_VALUE = SQL["put_value"]


Call = Callable[[apsw.Connection], Any]


class Source(Protocol):
    """What is copied."""

    def do(self, call: Call) -> Any:
        """``call``, with the connection that the pages come from."""
        ...

    def hold(self) -> None:
        """Called by ``call`` once the last page is copied: what there is now is to be counted."""
        ...

    def count(self) -> Sums:
        """The rows of what was copied."""
        ...

    def close(self) -> None:
        """Nothing of it is needed any more."""
        ...


class Settled:
    """One picture, of a store that nobody serves; ``db`` is closed with it."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        db.execute("BEGIN")

    def do(self, call: Call) -> Any:
        return call(self._db)

    def hold(self) -> None:
        """It is held from the beginning."""

    def count(self) -> Sums:
        return count(self._db)

    def close(self) -> None:
        self._db.close(force=True)


class Served:
    """A store that somebody writes to; ``between`` runs a call on the thread and the connection that do."""

    def __init__(self, store: Path, between: Callable[[Call], Any]) -> None:
        self._picture, self._between = open_beside(store), between

    def do(self, call: Call) -> Any:
        return self._between(call)

    def hold(self) -> None:
        self._picture.execute("BEGIN")
        self._picture.pragma("schema_version")  # a picture is taken by the first look

    def count(self) -> Sums:
        return count(self._picture)

    def close(self) -> None:
        self._picture.close(force=True)


def back_up(store: Path, file: str | None, now: int, pace: Pace, between: Callable[[Call], Any] | None = None) -> Copy:
    """Copy ``store`` to ``file``, or to its folder's own place for copies, where the newest three are kept.
    ``between``: of one that is served, as for ``Served``."""
    data_dir = store.parent
    try:
        target = backups.fresh(data_dir, now) if file is None else backups.check(Path(file), data_dir)
        part = backups.partial(target)
        try:
            at_hand = between if target.parent.stat().st_dev == store.stat().st_dev else None
            source = Settled(open_beside(store)) if at_hand is None else Served(store, at_hand)
            sums = _write(source, part, pace)
            seen, search_fault = look_closely(part, pace)
            if search_fault is not None:
                _renew_search(part, pace)
                seen = look_through(part, pace)
            if seen != sums:
                raise Damaged("The copy does not hold the rows that the store held. It was thrown away.")
            size = part.stat().st_size
            backups.settle(part, target)
        finally:
            _throw_away(part)
        removed = backups.keep_newest(data_dir, target) if file is None else []
    except backups.Taken as taken:
        raise BadRequest(str(taken)) from None
    except apsw.InterruptError:
        raise Stopping("The copy was given up. Nothing was changed.") from None
    except (apsw.Error, OSError) as error:
        raise _told(error) from error
    return Copy(str(target), size, sums.messages, sums.deliveries, now, tuple(str(path) for path in removed))


def _told(error: Exception) -> BaseException:
    if isinstance(error, OSError):
        return Unwell(f"The copy could not be made: {error.strerror}. Nothing was changed.")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return Damaged(f"The store, or the copy of it, cannot be read ({in_a_line(error)}).")
    return as_model_error(error)


def _throw_away(part: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        part.with_name(part.name + end).unlink(missing_ok=True)


def open_beside(store: Path) -> apsw.Connection:
    """A connection that only reads, and leaves the log alone even when it is the last to be closed."""
    source = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READWRITE)
    source.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    source.set_busy_timeout(BUSY_MS)
    source.execute("PRAGMA query_only = on")
    return source


def write_copy(settled: apsw.Connection, part: Path, pace: Pace) -> Sums:
    """What ``settled`` sees, which is closed then, sealed, in a file that needs no log; what it counts."""
    return _write(Settled(settled), part, pace)


def _write(source: Source, part: Path, pace: Pace) -> Sums:
    try:
        descriptor = backups.begin(part)
    except BaseException:
        source.close()
        raise
    try:
        try:
            _see_to_room(part.parent, source.do(lambda db: db.pragma("page_count") * db.pragma("page_size")))
            _pages(source, part, descriptor, pace)
            sums = source.count()
        finally:
            source.close()  # the sooner the better: while a picture is held the log only grows
        _seal(part, pace)
        os.fsync(descriptor)
        return sums
    finally:
        os.close(descriptor)


def _pages(source: Source, part: Path, descriptor: int, pace: Pace) -> None:
    target = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        target.execute("PRAGMA synchronous = off; PRAGMA locking_mode = exclusive").fetchall()
        copy = source.do(lambda db: target.backup("main", db, "main"))
        try:
            _take_all(source, copy, part, descriptor, pace)
        finally:
            source.do(lambda db: copy.close(force=True))
        target.execute("PRAGMA journal_mode = delete").fetchall()
    finally:
        target.close(force=True)


def _take_all(source: Source, copy: apsw.Backup, part: Path, descriptor: int, pace: Pace) -> None:
    """Step by step, each further than the store grew since the last one, so that there is an end."""
    pages = most_steps = steps = 0
    page_bytes = source.do(lambda db: db.pragma("page_size"))

    def step(db: apsw.Connection) -> float:
        begun = perf_counter()
        grown = db.pragma("page_count") - pages if pages else 0
        copy.step(STEP_PAGES + min(max(grown, 0), MOST_GROWN_PAGES))
        if copy.done:
            source.hold()
        return perf_counter() - begun

    while not copy.done:
        took = source.do(step)
        pages, steps = copy.page_count, steps + 1
        most_steps = most_steps or MOST_ROUNDS * (pages // STEP_PAGES + SYNC_STEPS)
        if steps % SYNC_STEPS == 0:
            begun = perf_counter()
            os.fsync(descriptor)
            took += perf_counter() - begun
            _see_to_room(part.parent, copy.remaining * page_bytes)
        if steps > most_steps:
            raise Unwell(
                "The store changed faster than it could be copied. The copy was given up; make it again later."
            )
        pace.rest(took * REST_SHARE)


def _seal(part: Path, pace: Pace) -> None:
    target = pace.running = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        target.execute(_PUT_VALUE, (SEAL, digest(target, part, pace)))
    finally:
        pace.running = None
        target.close(force=True)


def _renew_search(part: Path, pace: Pace) -> None:
    """An empty search index in a copy of a store whose own is damaged: whoever serves the copy fills it."""
    target = pace.running = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        desk = Desk(target)
        desk.control("BEGIN IMMEDIATE")
        renew_search(desk)
        forget_left(desk)
        desk.control("COMMIT")
    finally:
        pace.running = None
        target.close(force=True)


def _see_to_room(folder: Path, needed: int) -> None:
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < needed + ROOM_LEFT_BYTES:
        raise DiskFull(
            f"There is no room for a copy in {folder}: it takes {needed >> 20} MiB and some for the hub, "
            f"{free >> 20} MiB are free. Nothing was changed."
        )
