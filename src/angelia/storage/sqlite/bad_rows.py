"""Which rows of a store are not what was written, or cannot be read at all.

What must stay true: only tables are believed here, no index (but by ``left_alone``, which says so), and one row that
cannot be read keeps none of the others from being looked at. Nothing is changed: what becomes of them is ``aside.py``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import apsw

from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import Row, decoded, is_right, is_whole, is_whole_delivery

MESSAGE, DELIVERY = "message", "delivery"
UNREADABLE = "delivery that cannot be read"
ROWS = 500

_RAW_MESSAGES, _RAW_DELIVERIES = SQL["raw_messages"], SQL["raw_deliveries"]
_RAW_MESSAGE, _RAW_DELIVERY = SQL["raw_message_at"], SQL["raw_delivery_at"]
_MESSAGE_NUMBERS, _DELIVERY_KEYS = SQL["message_numbers"], SQL["delivery_keys"]
_DELIVERY_SUM, _LEFT_ALONE = SQL["delivery_sum_at"], SQL["left_alone"]

Found = list[tuple[int, Row | apsw.CorruptError | None]]


@dataclass(frozen=True, slots=True)
class Small:
    """A table that is read and written anew as a whole."""

    raw: str
    clear: str
    put: str
    texts: frozenset[int]


SMALL = {
    "removed": Small(SQL["raw_removed"], SQL["clear_removed"], SQL["put_removed"], frozenset((0,))),
    "agent": Small(SQL["raw_agents"], SQL["clear_agents"], SQL["put_agent"], frozenset((0, 1, 2, 3))),
    "token": Small(SQL["raw_tokens"], SQL["clear_tokens"], SQL["put_token"], frozenset((0, 1))),
    "contact": Small(SQL["raw_contacts"], SQL["clear_contacts"], SQL["add_contact"], frozenset((0, 1))),
    "note": Small(SQL["raw_notes"], SQL["clear_notes"], SQL["put_note"], frozenset((0,))),
}


def damaged_rows(desk: Desk, rows_at_once: int = ROWS) -> Iterator[tuple[int, str] | None]:
    """Every row that is not what was written, as its number and table, 0 for the small tables; None after each piece of
    work, when others may be let in. Reads the tables alone, no index. Not inside a transaction that writes: SQLite
    commits none in which it met a row that it cannot read.

    Raises ``apsw.CorruptError`` at the end where a message cannot be read at all, and at once where pages cannot."""
    unread: apsw.CorruptError | None = None
    for table, whole in ((MESSAGE, is_whole), (DELIVERY, is_whole_delivery)):
        for rows in _all_rows(desk, table, rows_at_once):
            for number, row in rows:
                if isinstance(row, apsw.CorruptError):
                    if table == DELIVERY and not _is_readable(desk, number):
                        yield number, UNREADABLE
                    else:
                        unread = row
                elif row is not None and not whole(row):
                    yield number, table
            yield None
    for table in SMALL:
        if any(row is None for row, _ in small_rows(desk, table)):
            yield 0, table
        yield None
    if unread is not None:
        raise unread


def unreadable(desk: Desk) -> list[int]:
    """The keys of deliveries that cannot be read at all."""
    every = _all_rows(desk, DELIVERY, ROWS)
    broken = [key for rows in every for key, row in rows if isinstance(row, apsw.CorruptError)]
    return [key for key in broken if not _is_readable(desk, key)]


def _all_rows(desk: Desk, table: str, rows_at_once: int) -> Iterator[Found]:
    """All rows of a large table, some at a time, by number; in place of one that cannot be read, what SQLite says."""
    statement, at, numbers, one = {
        MESSAGE: (_RAW_MESSAGES, -1, _MESSAGE_NUMBERS, _RAW_MESSAGE),
        DELIVERY: (_RAW_DELIVERIES, 0, _DELIVERY_KEYS, _RAW_DELIVERY),
    }[table]
    last = 0
    while True:
        found: Found
        try:
            found = [(row[at], row) for row in desk.run(statement, (last, rows_at_once))]
        except apsw.CorruptError:
            found = [(number, _one(desk, one, number)) for (number,) in desk.run(numbers, (last, rows_at_once))]
        if not found:
            return
        yield found
        last = found[-1][0]


def _one(desk: Desk, statement: str, number: int) -> Row | apsw.CorruptError | None:
    """The row; None where it is gone meanwhile."""
    try:
        rows = desk.run(statement, (number,))
        return rows[0] if rows else None
    except apsw.CorruptError as error:
        return error


def _is_readable(desk: Desk, key: int) -> bool:
    """Whether a delivery is, its message aside."""
    return not isinstance(_one(desk, _DELIVERY_SUM, key), apsw.CorruptError)


def left_alone(desk: Desk, rows_at_once: int) -> Iterator[int | None]:
    """The numbers of messages that have no delivery; None after each piece of work. Believes the index: for where that
    was compared."""
    last = 0
    while rows := desk.run(_LEFT_ALONE, (last, rows_at_once)):
        yield from (number for number, alone in rows if alone)
        yield None
        last = rows[-1][0]


def small_rows(desk: Desk, table: str) -> list[tuple[Row | None, Row]]:
    """The rows of a small table, as they are, and beside them as they should be; None where they are not."""
    small = SMALL[table]
    found = []
    for raw in desk.run(small.raw):
        row = decoded(raw, small.texts)
        found.append((row if row is not None and is_right(row) else None, raw))
    return found
