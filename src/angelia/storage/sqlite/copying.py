"""Copies of a store: made from one picture while others write, looked through, and only then named.

What must stay true: a copy is one committed picture of the store. It counts only after every page of it was checked,
its rows were counted against the picture and every message's checksum was made again. The writer is not waited for and
does not wait; the log is not reset as long as the picture is held, so the disk has to have room for the copy and more.
A copy that fails leaves nothing behind, and nothing that was there is gone.
"""

import os
from contextlib import suppress
from pathlib import Path
from time import perf_counter, sleep
from typing import NamedTuple

import apsw

from angelia.bus.ports import Copy
from angelia.model.errors import BadRequest, DiskFull, Stopping, Unwell
from angelia.storage import backups
from angelia.storage.sqlite.connect import BUSY_MS, as_model_error
from angelia.storage.sqlite.migrate import APPLICATION_ID, known
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import CHECKED, checksum
from angelia.storage.sqlite.soundness import fault_of

STEP_PAGES = 256  # 1 MiB; then it rests as long as that took
SYNC_STEPS = 16  # so much is on its way to the disk at most, ahead of the writer's own syncs
ROOM_LEFT_BYTES = 64 * 1024 * 1024  # what a hub keeps back for itself, twice
LOOK_ROWS = 500  # some ms of looking; then others get a turn

_COUNTS, _ALL_MESSAGES, _VALUE = SQL["counts"], SQL["all_messages"], SQL["value"]


class Sums(NamedTuple):
    """How many rows there are of what nobody may lose."""

    messages: int
    deliveries: int
    agents: int
    tokens: int


class Damaged(Unwell):
    """A store or copy is not what was written. ``messages``: the numbers and ids of those that are not."""

    def __init__(self, detail: str, messages: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(detail)
        self.messages = messages


class Pace:
    """How a copy behaves beside others. ``gentle``: it rests between its steps. Any thread may call ``stop``."""

    def __init__(self, *, gentle: bool) -> None:
        self._gentle, self._stopped = gentle, False
        self.running: apsw.Connection | None = None

    def stop(self) -> None:
        """Give the copy up."""
        self._stopped = True
        if (db := self.running) is not None:
            with suppress(apsw.ConnectionClosedError):
                db.interrupt()

    def rest(self, seconds: float) -> None:
        """Let others work; raises where the copy was given up."""
        if self._stopped:
            raise Stopping("The copy was given up. Nothing was changed.")
        if self._gentle:
            sleep(seconds)


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


def open_settled(file: Path) -> apsw.Connection:
    """A connection to a copy that nobody changes; it makes no files, and takes no locks."""
    quoted = str(file.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    uri = f"file:{quoted}?immutable=1"
    try:
        return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    except apsw.Error as error:
        raise Damaged(f"{file} cannot be opened: {error}.") from None


def write_copy(source: apsw.Connection, part: Path, pace: Pace) -> Sums:
    """One picture of ``source``, which is closed then, in a file that needs no log; what that picture counts."""
    try:
        descriptor = backups.begin(part)
        try:
            source.execute("BEGIN")
            sums = count(source)
            _see_to_room(part.parent, source.pragma("page_count") * source.pragma("page_size"))
            _pages(source, part, descriptor, pace)
            os.fsync(descriptor)
            return sums
        finally:
            os.close(descriptor)
    finally:
        source.close(force=True)


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
                pace.rest(perf_counter() - begun)
        target.execute("PRAGMA journal_mode = delete").fetchall()
    finally:
        target.close(force=True)


def _see_to_room(folder: Path, needed: int) -> None:
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < needed + ROOM_LEFT_BYTES:
        raise DiskFull(
            f"There is no room for a copy in {folder}: it takes {needed >> 20} MiB and some for the hub, "
            f"{free >> 20} MiB are free. Nothing was changed."
        )


def count(db: apsw.Connection) -> Sums:
    """The rows of a store."""
    messages, deliveries, agents, tokens = (int(str(each)) for each in db.execute(_COUNTS).fetchall()[0])
    return Sums(messages, deliveries, agents, tokens)


def look_through(file: Path, pace: Pace) -> Sums:
    """Look at all of a copy; ``Damaged`` where it is not a whole and sound store, else what it holds."""
    if (log := file.with_name(file.name + "-wal")).exists() and log.stat().st_size:
        raise Damaged(f"{file} has a log beside it: it was not copied as a whole. Make a copy with: angelia backup")
    db = pace.running = open_settled(file)
    try:
        _is_ours(db, file)
        if (fault := fault_of(db, thorough=True)) is not None:
            raise Damaged(f"{file} is damaged: {fault}.")
        _look_at_messages(db, file, pace)
        return count(db)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise Damaged(f"{file} is damaged: {error}.") from None
    finally:
        pace.running = None
        db.close(force=True)


def _is_ours(db: apsw.Connection, file: Path) -> None:
    if db.pragma("application_id") != APPLICATION_ID:
        raise Damaged(f"{file} is not a store of Angelia.")
    here, newest = db.pragma("user_version"), len(known())
    if here > newest:
        raise Damaged(f"{file} is of a newer Angelia (format {here}; this program knows {newest}).")
    for name in ("epoch", "instance", "secret", "seq"):
        if not db.execute(_VALUE, (name,)).fetchall():
            raise Damaged(f"{file} is damaged: it does not say its {name}.")


def _look_at_messages(db: apsw.Connection, file: Path, pace: Pace) -> None:
    bad: list[tuple[int, str]] = []
    for place, row in enumerate(db.execute(_ALL_MESSAGES)):
        if checksum(row[:CHECKED]) != row[CHECKED]:
            bad.append((row[-1], row[0]))
        if place % LOOK_ROWS == 0:
            pace.rest(0.001)
    if bad:
        names = ", ".join(message_id for _, message_id in bad[:3])
        raise Damaged(f"{len(bad)} messages in {file} are not what was written ({names}).", tuple(bad))
