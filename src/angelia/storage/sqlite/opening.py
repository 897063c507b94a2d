"""What happens before a store is served: its file, its format, whether it is sound, and what a dead hub left behind.

What must stay true: it is bounded, however large the store: no full check, no walk over settled rows. Whoever held
something before holds nothing now.
"""

import errno
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from angelia.model.delivery import State
from angelia.model.errors import DiskFull, Unwell
from angelia.storage.load import Loads
from angelia.storage.sqlite import aside, bad_rows, identity
from angelia.storage.sqlite.connect import FULL_DETAIL, Desk, as_model_error, in_a_line, make_file, open_writer
from angelia.storage.sqlite.full import FullDisk
from angelia.storage.sqlite.migrate import known, migrate, remedy
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.renewing import has_left, renew_search, schema_again
from angelia.storage.sqlite.rows import changed_row, is_whole, whole_delivery
from angelia.storage.sqlite.soundness import look_at, mend, renewed, tidied
from angelia.storage.sqlite.tx import Seqs, SqliteTx, sums_of

SMALL_PAGES = 4096  # a store of 16 MiB is checked whole, indexes too, in some 150 ms
NEWEST = 200  # messages whose checksums are looked at: the end of the file is where a crash would show

_DISORDER = "deliveries are not found by their keys"
_log = logging.getLogger(__name__)
_VALUE, _HIGHEST, _NEWEST = SQL["value"], SQL["highest"], SQL["newest_messages"]
_HELD_BEFORE, _CHANGE = SQL["held_before"], SQL["change"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that is ready: the writer's connection, who it is, its counter, and its sums twice (writer's, loop's).
    ``checked``: its indexes were compared with its rows. ``search_fault``: what was wrong with its search index,
    which is made anew from the start then."""

    path: Path
    desk: Desk
    checked: bool
    search_fault: str | None
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
        raise Unwell(f"{path} is damaged ({in_a_line(error)}). {remedy(path)}") from error
    except apsw.IOError as error:
        raise (DiskFull(FULL_DETAIL) if full.nothing_left() else _unusable(path, in_a_line(error))) from error
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
        if (what := identity.misshapen(desk)) is not None:
            raise Unwell(f"{path} is damaged ({what} is not described as it was made). {remedy(path)}")
        checked, search_fault = _check(desk, path)
        _introduce(desk)
        if search_fault is None and (what := identity.search_misshapen(desk)) is not None:
            search_fault = f"{what} is not described as it was made"
        if search_fault is not None:
            _renew_search(desk, small=checked)
        try:
            seqs, loads = _start_over(desk, returned_at)
        except apsw.CorruptError:
            # An index cannot be read, perhaps. In a small store those were made anew by now, where that helps.
            if checked or not renewed(desk):
                raise
            seqs, loads = _start_over(desk, returned_at)
        who = (_value(desk, "epoch"), _value(desk, "instance"), _value(desk, "secret"))
        return Opened(path, desk, checked, search_fault, *who, seqs, loads)
    except BaseException:
        desk.close()
        raise


def _check(desk: Desk, path: Path) -> tuple[bool, str | None]:
    """A bounded look: all of a small store, the shape of a large one. Whether it was all, and what is wrong with the
    search index."""
    pages, page_size = desk.db.pragma("page_count"), desk.db.pragma("page_size")
    search_fault = None
    if pages <= SMALL_PAGES:
        looked = look_at(desk.db, thorough=True)
        if looked.mail is not None and not _mended(desk):
            raise Unwell(f"{path} is damaged ({looked.mail}). {remedy(path)}")
        sound = looked.mail is None and looked.search is None
        if sound and (looked.unused or has_left(desk)) and tidied(desk):
            _log.warning("%d pages of the store's file belonged to nothing: it was written anew", looked.unused)
        pages, search_fault = desk.db.pragma("page_count"), looked.search
    if not _is_long(path, pages, page_size):
        # A checkpoint that was cut off leaves a file that is; the log has those pages still, and brings them again.
        desk.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if not _is_long(path, pages, page_size):
            raise Unwell(f"{path} is cut off. {remedy(path)}")
    return bool(pages <= SMALL_PAGES), search_fault


def _renew_search(desk: Desk, *, small: bool) -> None:
    """An empty search index instead; where that cannot be, the index itself will find that out, and say so."""
    try:
        desk.control("BEGIN IMMEDIATE")
        renew_search(desk)
        desk.control("COMMIT")
    except (apsw.CorruptError, apsw.SQLError):
        desk.control("ROLLBACK")
        schema_again(desk)
        return
    if small:
        tidied(desk)


def _is_long(path: Path, pages: int, page_size: int) -> bool:
    """Whether a file has all of its pages, to the last byte."""
    size = path.stat().st_size
    return size >= pages * page_size and not size % page_size


def _mended(desk: Desk) -> bool:
    _settle(desk)
    return mend(desk, SqliteTx(desk, Loads(), _seqs(desk)))


def _settle(desk: Desk) -> None:
    desk.control("BEGIN IMMEDIATE")
    identity.settle(desk)
    desk.control("COMMIT")


def _seqs(desk: Desk) -> Seqs:
    return Seqs(max(_value(desk, "seq"), desk.run(_HIGHEST)[0][0]))


def _introduce(desk: Desk) -> None:
    """See who it is; give a new store its names."""
    desk.control("BEGIN IMMEDIATE")
    identity.settle(desk)
    if not desk.run(_VALUE, ("instance",)):
        _name(desk)
    desk.control("COMMIT")


def _name(desk: Desk) -> None:
    values = {
        "epoch": secrets.token_hex(4),
        "instance": secrets.token_hex(16),
        "secret": secrets.token_bytes(32),
        "seq": 0,
    }
    for name, value in values.items():
        identity.put_known(desk.run, name, value)


def _look_at_names(desk: Desk, seqs: Seqs) -> None:
    """The small tables that all rests on: who is known, by what token, and how far retention has come."""
    desk.control("BEGIN IMMEDIATE")
    for table in ("agent", "token", "note", "removed"):
        aside.write_anew(desk, table, seqs.last)
    desk.control("COMMIT")


def _start_over(desk: Desk, returned_at: int) -> tuple[Seqs, tuple[Loads, Loads]]:
    """See what there is, and end what a dead hub left behind."""
    seqs = _seqs(desk)
    _look_at_names(desk, seqs)
    _queue_again(desk, seqs, returned_at)
    loads = (Loads(), Loads())
    sums = sums_of(desk)
    for load in loads:
        load.apply(sums)
    _set_aside_damaged(desk, loads, seqs)
    return seqs, loads


def _queue_again(desk: Desk, seqs: Seqs, returned_at: int) -> None:
    """End every lease and every delay: they were in the memory of a hub that is gone. What came back is looked at at
    ``returned_at``, unless it lives longer."""
    desk.control("BEGIN IMMEDIATE")
    held = desk.run(_HELD_BEFORE)
    if not bad_rows.lie_in_order(desk, [row[0] for row in held]):
        raise apsw.CorruptError(_DISORDER)
    for row in held:
        old = whole_delivery(row)
        if old is None:
            SqliteTx(desk, Loads(), seqs).set_aside(row[0], bad_rows.DELIVERY)
            continue
        new = old._replace(state=State.QUEUED, deferred=False)
        if old.state is State.LEASED:
            new = new._replace(sweep_at=max(old.expires_at, returned_at))
        if desk.change(_CHANGE, changed_row(new, old)) != 1:
            raise apsw.CorruptError(_DISORDER)
    desk.control("COMMIT")


def _set_aside_damaged(desk: Desk, loads: tuple[Loads, Loads], seqs: Seqs) -> None:
    damaged = [row for row in desk.run(_NEWEST, (NEWEST,)) if not is_whole(row)]
    if not damaged:
        return
    desk.control("BEGIN IMMEDIATE")
    tx = SqliteTx(desk, loads[0], seqs)
    for row in damaged:
        tx.set_aside(row[-1], bad_rows.MESSAGE)
    desk.control("COMMIT")
    loads[1].apply(tx.changes)


def _value(desk: Desk, name: str) -> Any:
    rows = desk.run(_VALUE, (name,))
    if not rows:
        path = Path(desk.db.filename)
        raise Unwell(f"{path} is damaged (it does not say its {name}). {remedy(path)}")
    return rows[0][0]
