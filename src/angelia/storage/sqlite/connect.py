"""Connections to the store's file: how they are set, and what can be asked of one.

What must stay true: the writer's connection is the only one that writes, and no connection checkpoints by itself, not
even when it is closed. Files are for their owner alone. What drivers raise leaves as an error of the model.
"""

import os
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from threading import Lock

import apsw

from angelia.model.errors import AngeliaError, DiskFull, Unwell
from angelia.storage.sqlite.queries import AS_BYTES
from angelia.storage.sqlite.rows import Row, as_text

BUSY_MS = 10_000  # another program (a backup, a curious person) may hold the file for a moment
# 2 to 128 MiB cost the same with a million rows: the system's own cache is behind it. And small: a commit whose pages
# SQLite put in order goes through all of it, 25 ms for 8 MiB where memory is slow to come (pcache1TruncateUnsafe).
WRITER_CACHE_KIB = 2 * 1024
READER_CACHE_KIB = 4 * 1024  # a commit empties it, so a larger one would not pay
LOG_KEPT_BYTES = 32 * 1024 * 1024  # what the log is cut to where it had to grow; as full.Reserve.log_bytes

FULL_DETAIL = "The disk is full; nothing was stored. Free some space: the hub goes on by itself."


# What was written as text is: bits flipped in it.
NO_TEXT = "a text in it is no text"


class PictureLost(Exception):
    """The picture of this read was taken back, so that the write-ahead log could be reset; read again."""


def _nobody() -> None:
    """Nobody is told."""


def _as_bytes(sql: str, error: UnicodeDecodeError) -> str:
    """The statement that gives the same with texts as bytes."""
    if sql not in AS_BYTES:
        raise apsw.CorruptError(NO_TEXT) from error
    return AS_BYTES[sql]


class Desk:
    """One connection, used by one thread. ``suspect``: told where an index led to a row that it should not lead to;
    ``bereft``: on the loop, once mail is set aside (``model/loss.py``)."""

    __slots__ = ("_cursor", "_execute", "bereft", "db", "suspect")

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        self.suspect: Callable[[], None] = _nobody
        self.bereft: Callable[[], None] = _nobody
        self._cursor = db.cursor()
        self._execute = self._cursor.execute

    def run(self, sql: str, values: Row = ()) -> list[Row]:
        """Every row that a statement gives. A message or a delivery with a text that is none is given as well: as one
        that is not what was written."""
        try:
            return self._execute(sql, values).fetchall()
        except UnicodeDecodeError as error:
            return [as_text(row) for row in self._execute(_as_bytes(sql, error), values).fetchall()]
        except apsw.Error:
            self._begin_anew()
            raise

    def _begin_anew(self) -> None:
        """A statement broke off. Its cursor would say so once more at the next one, which may be a COMMIT."""
        self._cursor.close(force=True)
        self._cursor = self.db.cursor()
        self._execute = self._cursor.execute

    def change(self, sql: str, values: Row) -> int:
        """How many rows a statement changed that gives none."""
        self._execute(sql, values)
        return self.db.changes()

    def change_many(self, sql: str, rows: Iterable[Row]) -> int:
        """One statement for many rows: prepared once, it costs a sixth of reading them out of a JSON array. How many
        rows it changed, with all that followed."""
        before = self.db.total_changes()
        self._cursor.executemany(sql, rows)
        return self.db.total_changes() - before

    def walk(self, sql: str, values: Row, visit: Callable[[Row], bool]) -> None:
        """The rows of a statement one by one, until ``visit`` has enough; it may not use this desk. As ``run``."""
        visited = 0
        try:
            try:
                for row in self._execute(sql, values):
                    visited += 1
                    if not visit(row):
                        break
            except UnicodeDecodeError as error:
                for row in islice(self._execute(_as_bytes(sql, error), values), visited, None):
                    if not visit(as_text(row)):
                        break
        except apsw.Error:
            self._begin_anew()
            raise

    def control(self, word: str) -> None:
        """A word of control: BEGIN, COMMIT, SAVEPOINT …"""
        self._execute(word)

    def close(self) -> None:
        """Let go of the file."""
        self._cursor.close(force=True)
        self.db.close(force=True)


class ReadingDesk(Desk):
    """A connection whose picture another thread may take back between two statements: ``lost``."""

    __slots__ = ("_gate", "lost")

    def __init__(self, db: apsw.Connection) -> None:
        super().__init__(db)
        self._gate = Lock()
        self.lost = False

    def begin(self) -> None:
        """Take a new picture."""
        with self._gate:
            self.lost = False
            self._execute("BEGIN")

    def end(self) -> None:
        """Let go of the picture."""
        with self._gate:
            if self.db.in_transaction:
                self._execute("ROLLBACK")

    def revoke(self) -> None:
        """Called by another thread: whatever runs is interrupted, and what follows in this picture raises."""
        self.db.interrupt()
        with self._gate:
            if self.db.in_transaction:
                self._execute("ROLLBACK")
                self.lost = True

    def run(self, sql: str, values: Row = ()) -> list[Row]:
        """As above; ``PictureLost`` where the picture is gone."""
        with self._gate:
            self._check()
            return super().run(sql, values)

    def walk(self, sql: str, values: Row, visit: Callable[[Row], bool]) -> None:
        """As above."""
        with self._gate:
            self._check()
            super().walk(sql, values, visit)

    def _check(self) -> None:
        if self.lost:
            raise PictureLost


def make_file(path: Path) -> None:
    """Make an empty file that only its owner can read; tighten one that is there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_mode & 0o077:
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_writer(path: Path, durability: str, vfs: str | None) -> Desk:
    """The writing connection."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    db.set_busy_timeout(BUSY_MS)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    for pragma in (
        "journal_mode = wal",
        f"synchronous = {'full' if durability == 'full' else 'normal'}",
        "wal_autocheckpoint = 0",
        f"journal_size_limit = {LOG_KEPT_BYTES}",
        "secure_delete = on",  # what retention forgets is written over
        "foreign_keys = off",  # rows are only added and removed by whole messages; checking costs 3 % of an add
        "temp_store = memory",  # what a savepoint keeps stays off the disk
        "cache_spill = off",  # a full disk is met at COMMIT alone
        f"cache_size = {-WRITER_CACHE_KIB}",
    ):
        db.execute("PRAGMA " + pragma).fetchall()
    if sys.platform == "darwin":
        db.execute("PRAGMA fullfsync = on; PRAGMA checkpoint_fullfsync = on").fetchall()
    return Desk(db)


def open_reader(path: Path, vfs: str | None) -> ReadingDesk:
    """A connection that cannot write."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
    db.set_busy_timeout(BUSY_MS)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.execute(f"PRAGMA query_only = on; PRAGMA cache_size = {-READER_CACHE_KIB}").fetchall()
    return ReadingDesk(db)


def in_a_line(error: object) -> str:
    """SQLite's words, which may be several lines, as they stand in a log line or an answer."""
    return " ".join(str(error).replace("*** in database main ***", "").split())


def as_model_error(error: BaseException) -> BaseException:
    """The model's word for what a driver raised; anything else as it is (a future cannot carry StopIteration)."""
    if isinstance(error, StopIteration):
        return RuntimeError("a unit let StopIteration out")
    if isinstance(error, AngeliaError) or not isinstance(error, apsw.Error):
        return error
    if isinstance(error, apsw.FullError):
        wanted: AngeliaError = DiskFull(FULL_DETAIL)
    elif isinstance(error, apsw.ConstraintError):
        wanted = Unwell(f"The store refused a row: {in_a_line(error)}. Nothing was stored.")
    else:
        wanted = Unwell(f"The store could not be used: {in_a_line(error)}. Nothing was stored.")
    wanted.__cause__ = error
    return wanted
