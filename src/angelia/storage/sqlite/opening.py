"""What happens before a store is served: its file, its format, whether it is sound, and what a dead hub left behind.

What must stay true: it is bounded, however large the store: no full check, no walk over settled rows. Whoever held
something before holds nothing now.
"""

import errno
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from angelia.model.errors import DiskFull, Unwell
from angelia.storage.load import Loads
from angelia.storage.sqlite.connect import FULL_DETAIL, Desk, as_model_error, make_file, open_writer
from angelia.storage.sqlite.full import FullDisk
from angelia.storage.sqlite.migrate import known, migrate
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import is_whole, name_of
from angelia.storage.sqlite.soundness import fault_of, mend
from angelia.storage.sqlite.tx import Seqs, SqliteTx

SMALL_PAGES = 4096  # a store of 16 MiB is checked whole, indexes too, in some 150 ms
NEWEST = 200  # messages whose checksums are looked at: the end of the file is where a crash would show
_REMEDY = "It was left as it is. Put a copy back: angelia restore FILE; the hub's own lie in backups, beside it."

_VALUE, _PUT_VALUE, _SUMS, _HIGHEST = SQL["value"], SQL["put_value"], SQL["sums"], SQL["highest"]
_END_LEASES, _END_DELAYS, _NEWEST = SQL["end_leases"], SQL["end_delays"], SQL["newest_messages"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that is ready: the writer's connection, who it is, its counter, and its sums twice (writer's, loop's)."""

    path: Path
    desk: Desk
    epoch: str
    instance: str
    secret: bytes
    seqs: Seqs
    loads: tuple[Loads, Loads]


def open_file(path: Path, durability: str, vfs: str | None, returned_at: int, full: FullDisk) -> Opened:
    """Open or make the store at ``path``. ``returned_at``: when what was leased is looked at (UTC ms)."""
    try:
        make_file(path)
        try:
            opened = _open(path, durability, vfs, returned_at)
        except (apsw.FullError, apsw.IOError) as error:
            # The log's index, a file of shared memory, cannot be grown: SQLite does not call that a full disk.
            if isinstance(error, apsw.IOError) and not full.nothing_left():
                raise
            full.enter()
            opened = _open(path, durability, vfs, returned_at)
        try:
            full.start()
        except BaseException:
            opened.desk.close()
            full.close()
            raise
        return opened
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise Unwell(f"{path} is damaged ({error}). {_REMEDY}") from error
    except apsw.IOError as error:
        raise (DiskFull(FULL_DETAIL) if full.nothing_left() else _unusable(path, str(error))) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _unusable(path, str(error.strerror)) from error
    except BaseException as error:
        raise as_model_error(error) from error


def _unusable(path: Path, why: str) -> Unwell:
    return Unwell(f"{path} could not be used ({why}). Look at the disk that it is on; the store was left as it is.")


def _open(path: Path, durability: str, vfs: str | None, returned_at: int) -> Opened:
    desk = open_writer(path, durability, vfs)
    try:
        migrate(desk.db, path, known())
        _check(desk, path)
        _introduce(desk)
        _start_over(desk, returned_at)
        loads = (Loads(), Loads())
        for mailbox, sender, opened, ready, queued, size in desk.run(_SUMS):
            for load in loads:
                load.apply(((mailbox, sender.lower(), opened, ready, queued, size),))
        seqs = Seqs(max(_value(desk, "seq"), desk.run(_HIGHEST)[0][0]))
        _set_aside_damaged(desk, loads, seqs)
        return Opened(path, desk, _value(desk, "epoch"), _value(desk, "instance"), _value(desk, "secret"), seqs, loads)
    except BaseException:
        desk.close()
        raise


def _check(desk: Desk, path: Path) -> None:
    """A bounded look: all of a small store, the shape of a large one."""
    pages, page_size = desk.db.pragma("page_count"), desk.db.pragma("page_size")
    if pages <= SMALL_PAGES:
        fault = fault_of(desk.db, thorough=True)
        if fault is not None and not mend(desk.db):
            raise Unwell(f"{path} is damaged ({fault}). {_REMEDY}")
    if not _is_long(path, pages, page_size):
        # A checkpoint that was cut off leaves a file that is; the log has those pages still, and brings them again.
        desk.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if not _is_long(path, pages, page_size):
            raise Unwell(f"{path} is cut off. {_REMEDY}")


def _is_long(path: Path, pages: int, page_size: int) -> bool:
    """Whether a file has all of its pages, to the last byte."""
    size = path.stat().st_size
    return size >= pages * page_size and not size % page_size


def _introduce(desk: Desk) -> None:
    """Give a new store its names."""
    if desk.run(_VALUE, ("instance",)):
        return
    values = {
        "epoch": secrets.token_hex(4),
        "instance": secrets.token_hex(16),
        "secret": secrets.token_bytes(32),
        "seq": 0,
    }
    desk.control("BEGIN IMMEDIATE")
    for name, value in values.items():
        desk.run(_PUT_VALUE, (name, value))
    desk.control("COMMIT")


def _start_over(desk: Desk, returned_at: int) -> None:
    """End every lease and every delay: they were in the memory of a hub that is gone."""
    desk.control("BEGIN IMMEDIATE")
    desk.run(_END_LEASES, (returned_at,))
    desk.run(_END_DELAYS)
    desk.control("COMMIT")


def _set_aside_damaged(desk: Desk, loads: tuple[Loads, Loads], seqs: Seqs) -> None:
    damaged = [row for row in desk.run(_NEWEST, (NEWEST,)) if not is_whole(row)]
    if not damaged:
        return
    desk.control("BEGIN IMMEDIATE")
    tx = SqliteTx(desk, loads[0], seqs)
    for row in damaged:
        tx.set_aside(row[-1], name_of(row))
    desk.control("COMMIT")
    loads[1].apply(tx.changes)


def _value(desk: Desk, name: str) -> Any:
    rows = desk.run(_VALUE, (name,))
    if not rows:
        raise Unwell(f"{desk.db.filename} is damaged (it does not say its {name}). {_REMEDY}")
    return rows[0][0]
