"""Whether a store's file is sound.

What must stay true: only what mail is kept in decides. A damaged search index is no reason to stop serving, or to throw
a copy away: it is made anew from the messages.
"""

import logging

import apsw

from angelia.storage.sqlite.queries import SQL

_REINDEX = SQL["reindex_messages"]
# What holds what people wrote and what is known of the store; the rest can be made anew.
_TABLES = ("meta", "message", "delivery", "agent", "token", "contact", "removed", "note", "damaged")
_log = logging.getLogger(__name__)


def fault_of(db: apsw.Connection, *, thorough: bool) -> str | None:
    """What is wrong with it, in SQLite's words; None where it is sound. ``thorough``: the indexes are compared, too."""
    check = "integrity_check" if thorough else "quick_check"
    found = _first(db, f"PRAGMA {check}(1)")
    if found == "ok":
        return None
    for table in _TABLES:
        if (fault := _first(db, f"PRAGMA {check}({table})")) != "ok":
            return fault
    _log.warning("the search index is damaged (%s); mail is not", found)
    return None


def mend(db: apsw.Connection) -> bool:
    """Make the indexes of messages anew, where nothing else is wrong; whether the store is sound then.

    Only these: a message says by its checksum whether it is right, so that its row decides. Nothing says that of a
    delivery, and whichever of row and index was believed might be the one where bits flipped.
    """
    if any(_first(db, f"PRAGMA integrity_check({table})") != "ok" for table in _TABLES if table != "message"):
        return False
    try:
        db.execute(_REINDEX)
    except apsw.Error:
        return False
    if fault_of(db, thorough=True) is not None:
        return False
    _log.error("an index of the store was damaged: made anew from the messages")
    return True


def _first(db: apsw.Connection, pragma: str) -> str:
    return str(db.execute(pragma).fetchall()[0][0])
