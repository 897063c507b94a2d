"""Whether a store's file is sound, and making it so where the rows say how.

What must stay true: only what mail is kept in decides. A damaged search index is no reason to stop serving, or to throw
a copy away: it is made anew from the messages. A row says by its sum whether it is right, so a row decides over an
index; where the rows themselves cannot be walked, nothing here helps.
"""

import logging
import re

import apsw

from angelia.storage.sqlite import aside, identity
from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.tx import SqliteTx

# What holds what people wrote and what is known of the store; the rest can be made anew.
TABLES = ("meta", "message", "delivery", "agent", "token", "contact", "removed", "note", "damaged")
_HIDES_ROWS = SQL["hides_rows"]
_SEARCH = ("search", "search_data", "search_idx", "search_docsize", "search_config", "search_again", "search_sum")
_INDEX = re.compile(r"index (\w+)$")
_log = logging.getLogger(__name__)


def fault_of(db: apsw.Connection, *, thorough: bool) -> str | None:
    """What is wrong with it, in SQLite's words; None where it is sound. ``thorough``: the indexes are compared, too."""
    check = "integrity_check" if thorough else "quick_check"
    found = _first(db, f"PRAGMA {check}(1)")
    if found == "ok":
        return None
    if (fault := _in_tables(db, check)) is not None:
        return fault
    if not any(_is_faulty(db, table) for table in _SEARCH):
        return found  # it is in no table: a page is taken twice, or by nobody
    _log.warning("the search index is damaged (%s); mail is not", found)
    return None


def _in_tables(db: apsw.Connection, check: str) -> str | None:
    for table in TABLES:
        if (fault := _first(db, f"PRAGMA {check}({table})")) != "ok":
            return fault
    return None


def _is_faulty(db: apsw.Connection, table: str) -> bool:
    try:
        return _first(db, f"PRAGMA integrity_check({table})") != "ok"
    except apsw.SQLError:
        return False  # it is not there


def faults_of(db: apsw.Connection) -> list[str]:
    """All that is wrong with it, up to SQLite's hundred."""
    found = [str(row[0]) for row in db.execute("PRAGMA integrity_check").fetchall()]
    return [] if found == ["ok"] else found


def indexes_in(faults: list[str]) -> set[str] | None:
    """The indexes that were named, where they are all that is wrong; None where something else is."""
    named = [_INDEX.search(fault) for fault in faults]
    return {match[1] for match in named if match} if all(named) else None


def mend(desk: Desk, tx: SqliteTx) -> bool:
    """Set aside what is not what was written, and make all indexes anew; whether the store is sound then."""
    try:
        desk.control("BEGIN IMMEDIATE")
        if hides_rows(desk):
            desk.control("ROLLBACK")
            return False
        desk.run(aside.REINDEX[aside.DELIVERY])
        for found in list(aside.damaged_rows(desk)):
            if found is not None:
                tx.set_aside(*found)
        for table in aside.SMALL:
            aside.write_anew(desk, table, tx.next_seq(), always=True)
        identity.write_anew(desk)
        for sql in aside.REINDEX.values():
            desk.run(sql)
        desk.control("COMMIT")
        if fault_of(desk.db, thorough=True) is not None and _in_tables(desk.db, "integrity_check") is None:
            desk.control("VACUUM")  # what is left is how pages are given out
    except apsw.Error:
        if desk.db.in_transaction:
            desk.control("ROLLBACK")
        return False
    if fault_of(desk.db, thorough=True) is not None:
        return False
    _log.error("the store was damaged: what was left was made sound again from its rows")
    return True


def hides_rows(desk: Desk) -> bool:
    """Whether rows are known that the tables do not show: no index may be made anew from those."""
    return bool(desk.run(_HIDES_ROWS)[0][0])


def _first(db: apsw.Connection, pragma: str) -> str:
    """The first line of an answer; where the damage keeps SQLite from looking at all, that."""
    try:
        return str(db.execute(pragma).fetchall()[0][0])
    except apsw.CorruptError as error:
        return str(error)
