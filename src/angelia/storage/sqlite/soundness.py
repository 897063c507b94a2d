"""Whether a store's file is sound, and making it so where the rows say how.

What must stay true: only what mail is kept in decides. A damaged search index is no reason to stop serving, or to throw
a copy away: it is made anew from the messages. A row says by its sum whether it is right, so a row decides over an
index; where the rows themselves cannot be walked, nothing here helps. Pages that belong to nothing are no fault.
"""

import logging
import re
from typing import NamedTuple

import apsw

from angelia.storage.sqlite import aside, bad_rows, identity
from angelia.storage.sqlite.connect import Desk, in_a_line
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.renewing import SEARCH, forget_left, renew_indexes, renew_search
from angelia.storage.sqlite.tx import SqliteTx

# What holds what people wrote and what is known of the store; the rest can be made anew.
TABLES = ("meta", "message", "delivery", "agent", "token", "contact", "removed", "note", "damaged")
_HIDES_ROWS, _ROOTS = (SQL["hides_messages"], SQL["hides_deliveries"]), SQL["roots"]
_LEFT, _OWNER_OF_PAGE = SQL["tables_left"], SQL["owner_of_page"]
_INDEX = re.compile(r"index (\w+)$")
_TREE = re.compile(r"Tree (\d+) page")
_BYTES = re.compile(r"^(?:Multiple uses for byte|Fragmentation of) .* page (\d+)$")
_NOBODYS = re.compile(r"Page \d+(:| is) never used$")
_GAVE_UP = "database disk image is malformed"
ANEW_BYTES = 128 * 1024 * 1024  # of a store whose messages may be written anew: as much as its log may hold otherwise
_ALL = 1 << 40  # rows at once
_MORE = 100  # lines beside one for each page: as many as SQLite gives by itself
_log = logging.getLogger(__name__)


class Looked(NamedTuple):
    """What is wrong with a file, in SQLite's words, None where nothing is: with what mail is kept in, and with the
    search index. ``unused``: how many pages belong to nothing, or to what is left of an old search index."""

    mail: str | None
    search: str | None
    unused: int


def look_at(db: apsw.Connection, *, thorough: bool) -> Looked:
    """Look. ``thorough``: the indexes are compared, too."""
    check = "integrity_check" if thorough else "quick_check"
    faults, unused = faults_of(db, check)
    if not faults:
        return Looked(None, None, unused)
    if (mail := _in_tables(db, check)) is not None:
        return Looked(mail, None, unused)
    if (search := search_fault(db)) is not None:
        return Looked(None, search, unused)
    if db.execute(_LEFT).fetchall():
        return Looked(None, None, unused + 1)  # nothing can be said before that is forgotten: it may name others' pages
    return Looked(faults[0], None, unused)  # in no table: a page is taken twice, or the free ones are counted wrong


def fault_of(db: apsw.Connection, *, thorough: bool) -> str | None:
    """What is wrong with what mail is kept in; None where that is sound."""
    return look_at(db, thorough=thorough).mail


def search_fault(db: apsw.Connection) -> str | None:
    """What is wrong with the search index; None where it is sound, or is not there."""
    return _first(db, "integrity_check", SEARCH)


def faults_of(db: apsw.Connection, check: str = "integrity_check") -> tuple[list[str], int]:
    """All that is wrong with it, but for pages that belong to nothing; and how many those are."""
    most = int(str(db.pragma("page_count"))) + _MORE
    lines = _lines(db, f"PRAGMA {check}({most})")
    faults = [line for line in lines if not _NOBODYS.match(line)]
    return faults, len(lines) - len(faults)


def _lines(db: apsw.Connection, pragma: str) -> list[str]:
    """What it says, a fault a line; where the damage keeps SQLite from looking on, that."""
    said: list[str] = []
    try:
        for (text,) in db.execute(pragma):
            said += [line for line in str(text).splitlines() if line != "ok" and not line.startswith("*** in database")]
    except apsw.CorruptError as error:
        said.append(in_a_line(error))
    return said


def _in_tables(db: apsw.Connection, check: str) -> str | None:
    return _first(db, check, TABLES)


def _first(db: apsw.Connection, check: str, tables: tuple[str, ...]) -> str | None:
    for table in tables:
        try:
            if faults := _lines(db, f"PRAGMA {check}({table})"):
                return faults[0]
        except apsw.SQLError:
            pass  # it is not there
    return None


def places_of(db: apsw.Connection, faults: list[str]) -> set[str] | None:
    """The indexes and large tables that were named, where they are all that is wrong; None where something else is."""
    roots = {int(str(root)): str(name) for name, root in db.execute(_ROOTS)}
    if len(faults) > 1 and faults[-1] == _GAVE_UP:  # at one of those that were named before, very likely
        faults = faults[:-1]
    named = [_place_of(db, fault, roots) for fault in faults]
    return {name for name in named if name is not None} if all(named) else None


def _place_of(db: apsw.Connection, fault: str, roots: dict[int, str]) -> str | None:
    if match := _INDEX.search(fault):
        return match[1]
    if match := _TREE.match(fault):
        return roots.get(int(match[1]))
    match = _BYTES.search(fault)
    owners = _owners(db, int(match[1])) if match else []
    return owners[0] if owners and owners[0] in roots.values() else None


def _owners(db: apsw.Connection, page: int) -> list[str]:
    """What a page belongs to; nothing where that cannot be seen."""
    try:
        return [str(name) for (name,) in db.execute(_OWNER_OF_PAGE, (page,))]
    except (apsw.CorruptError, apsw.SQLError):
        return []


def mend(desk: Desk, tx: SqliteTx) -> bool:
    """Set aside what is not what was written, and make all indexes anew; whether the store is sound then."""
    try:
        # Before the transaction: SQLite writes nothing more in one in which it met a page that it cannot read.
        if hides_rows(desk):
            return False
        search_is_damaged = search_fault(desk.db) is not None
        strays, found = _bad_rows(desk)
        desk.control("BEGIN IMMEDIATE")
        if search_is_damaged:
            renew_search(desk)
        for large in (bad_rows.MESSAGE, bad_rows.DELIVERY):
            aside.put_in_order(desk, large, [stray for stray in strays if stray.table == large])
        for number, table in found:
            tx.set_aside(number, table)
        for table in bad_rows.SMALL:
            aside.write_anew(desk, table, tx.next_seq(), always=True)
        identity.write_anew(desk)
        desk.control("COMMIT")
    except apsw.Error:
        if desk.db.in_transaction:
            desk.control("ROLLBACK")
        return False
    if not tidied(desk) or fault_of(desk.db, thorough=True) is not None:
        return False
    _log.error("the store was damaged: what was left was made sound again from its rows")
    return True


def _bad_rows(desk: Desk) -> tuple[list[bad_rows.Stray], list[tuple[int, str]]]:
    """What is not what was written in a small store, looked at as it lies, without a key to go by."""
    strays: list[bad_rows.Stray] = []
    others: list[tuple[int, str]] = []
    for large in (bad_rows.MESSAGE, bad_rows.DELIVERY):
        strays += bad_rows.out_of_order(desk, large) or []
    for found in bad_rows.damaged_rows(desk, _ALL):
        if isinstance(found, bad_rows.Stray):
            strays.append(found)
        elif found is not None:
            others.append(found)
    return list(dict.fromkeys(strays)), others


def renewed(desk: Desk) -> bool:
    """Make all indexes anew, and the deliveries; where they are damaged, and not very many, the messages, too. Whether
    that could be done."""
    if desk.db.in_transaction:
        desk.control("ROLLBACK")
    if hides_rows(desk):
        return False
    try:
        for large in (bad_rows.MESSAGE, bad_rows.DELIVERY) if is_soon_written(desk) else (bad_rows.DELIVERY,):
            if (strays := bad_rows.out_of_order(desk, large)) is not None:
                _put_in_order(desk, large, strays)
            strays = bad_rows.strays_in(desk, large)
            if strays or large == bad_rows.DELIVERY:
                _put_in_order(desk, large, strays)
        desk.control("BEGIN IMMEDIATE")
        renew_indexes(desk)
        desk.control("COMMIT")
    except apsw.CorruptError:
        if desk.db.in_transaction:
            desk.control("ROLLBACK")
        return False
    _log.error("indexes of the store could not be read: all were made anew from the rows")
    return True


def _put_in_order(desk: Desk, table: str, strays: list[bad_rows.Stray]) -> None:
    desk.control("BEGIN IMMEDIATE")
    aside.put_in_order(desk, table, strays)
    desk.control("COMMIT")


def is_soon_written(desk: Desk) -> bool:
    """Whether the store is so small that its messages can be written anew while others wait."""
    return bool(desk.db.pragma("page_count") * desk.db.pragma("page_size") <= ANEW_BYTES)


def tidied(desk: Desk) -> bool:
    """Write the file anew, so that each page belongs to something; whether it could be done. Where rows cannot be read
    it is not tried."""
    try:
        desk.control("BEGIN IMMEDIATE")
        forget_left(desk)
        desk.control("COMMIT")
        looked = look_at(desk.db, thorough=True)
        if looked.mail is not None and _in_tables(desk.db, "integrity_check") is not None:
            return False
        if looked.mail is not None or looked.unused:
            desk.control("VACUUM")
    except apsw.Error as error:
        if desk.db.in_transaction:
            desk.control("ROLLBACK")
        _log.warning("the store's file could not be written anew (%s); pages in it stay unused", in_a_line(error))
        return False
    return True


def hides_rows(desk: Desk) -> bool:
    """Whether rows are known that the tables do not show: no index may be made anew from those. An index that cannot be
    read knows of none."""
    return any(_says(desk, sql) for sql in _HIDES_ROWS)


def _says(desk: Desk, sql: str) -> bool:
    try:
        return bool(desk.run(sql)[0][0])
    except apsw.CorruptError:
        return False
