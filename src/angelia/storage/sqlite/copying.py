"""Copies of a store: made from one picture while others write, looked through, and only then named.

What must stay true: a copy is one committed picture of the store. It counts only once it is sealed, was looked through,
and its rows were counted against the picture. The writer is not waited for and does not wait; the log is not reset for
as long as the picture is held, so the disk has to have room for the copy and more.
A copy that fails leaves nothing behind, and nothing that was there is gone.
"""

import os
from pathlib import Path
from time import perf_counter

import apsw

from angelia.bus.ports import Copy
from angelia.model.errors import BadRequest, DiskFull, Stopping, Unwell
from angelia.storage import backups
from angelia.storage.sqlite.connect import BUSY_MS, as_model_error
from angelia.storage.sqlite.looking import SEAL, Damaged, Pace, Sums, count, digest, look_through
from angelia.storage.sqlite.queries import SQL

STEP_PAGES = 256  # 1 MiB; then it rests
REST_SHARE = 0.3  # of the time that a step took: longer, and the log grows; shorter, and others feel it
SYNC_STEPS = 16  # so much is on its way to the disk at most, ahead of the writer's own syncs
ROOM_LEFT_BYTES = 64 * 1024 * 1024  # what a hub keeps back for itself, twice

_PUT_VALUE = SQL["put_value"]


def back_up(store: Path, file: str | None, now: int, pace: Pace) -> Copy:
    """Copy ``store`` to ``file``, or to its folder's own place for copies, where the newest three are kept."""
    data_dir = store.parent
    try:
        target = backups.fresh(data_dir, now) if file is None else backups.check(Path(file), data_dir)
        part = backups.partial(target)
        try:
            sums = write_copy(_open_beside(store), part, pace)
            if look_through(part, pace) != sums:
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
    return as_model_error(error)


def _throw_away(part: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        part.with_name(part.name + end).unlink(missing_ok=True)


def _open_beside(store: Path) -> apsw.Connection:
    """A connection that only reads, and leaves the log alone even when it is the last to be closed."""
    source = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READWRITE)
    source.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    source.set_busy_timeout(BUSY_MS)
    source.execute("PRAGMA query_only = on")
    return source


def write_copy(source: apsw.Connection, part: Path, pace: Pace) -> Sums:
    """One picture of ``source``, which is closed then, sealed, in a file that needs no log; what it counts."""
    try:
        descriptor = backups.begin(part)
    except BaseException:
        source.close(force=True)
        raise
    try:
        try:
            source.execute("BEGIN")
            sums = count(source)
            _see_to_room(part.parent, source.pragma("page_count") * source.pragma("page_size"))
            _pages(source, part, descriptor, pace)
        finally:
            source.close(force=True)  # the sooner the better: until then the log only grows
        _seal(part, pace)
        os.fsync(descriptor)
        return sums
    finally:
        os.close(descriptor)


def _pages(source: apsw.Connection, part: Path, descriptor: int, pace: Pace) -> None:
    target = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        target.execute("PRAGMA synchronous = off; PRAGMA locking_mode = exclusive").fetchall()
        page, steps = source.pragma("page_size"), 0
        with target.backup("main", source, "main") as copy:
            while not copy.done:
                begun = perf_counter()
                copy.step(STEP_PAGES)
                steps += 1
                if steps % SYNC_STEPS == 0:
                    os.fsync(descriptor)
                    _see_to_room(part.parent, copy.remaining * page)
                pace.rest((perf_counter() - begun) * REST_SHARE)
        target.execute("PRAGMA journal_mode = delete").fetchall()
    finally:
        target.close(force=True)


def _seal(part: Path, pace: Pace) -> None:
    target = pace.running = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        target.execute(_PUT_VALUE, (SEAL, digest(target, part, pace)))
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
