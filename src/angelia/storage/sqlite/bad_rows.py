"""Which rows of a store are not what was written, or cannot be read at all.

What must stay true: only tables are believed here, no index (but where it is said), and one row that cannot be read
keeps none of the others from being looked at. Nothing is changed: what becomes of them is ``aside.py``.

A row that lies at a wrong place, since a bit of its key flipped, is not found by its key, and leads looks for others
astray: ``out_of_order``, which needs no order, comes before what goes by keys.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import apsw

from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import Row, decoded, is_right, is_whole, is_whole_delivery

MESSAGE, DELIVERY = "message", "delivery"
ROWS = 500
KEY_BITS = 40  # more than any key has
LOWEST = -1 << 63  # of keys
PAGE_ROWS = 64  # more than lie in one page

_RAW_MESSAGES, _RAW_DELIVERIES = SQL["raw_messages"], SQL["raw_deliveries"]
_RAW_MESSAGE, _RAW_DELIVERY = SQL["raw_message_at"], SQL["raw_delivery_at"]
_MESSAGE_NUMBERS, _DELIVERY_KEYS = SQL["message_numbers"], SQL["delivery_keys"]
_DELIVERY_SUM, _LEFT_ALONE, _NUMBER = SQL["delivery_sum_at"], SQL["left_alone"], SQL["message_number"]
_SUM_BY_PLACE = SQL["delivery_sum_by_place"]
_BY_PLACE = {MESSAGE: SQL["raw_message_by_place"], DELIVERY: SQL["raw_delivery_by_place"]}
_DISORDER = {MESSAGE: SQL["disorder_of_messages"], DELIVERY: SQL["disorder_of_deliveries"]}
_DISORDER_NEAR = SQL["disorder_near"]

Read = Row | apsw.CorruptError | None
Found = list[tuple[int | None, int, Read]]


class Stray(NamedTuple):
    """A message or a delivery that cannot be moved by its key: by it nothing is found, another row, or one that cannot
    be read; or its key is all that is wrong. ``before``: the key of the row before it, which tells it from another of
    its key; None where it is the first. ``raw``: None where it cannot be read. ``right``: the key that it was written
    under, where that is known."""

    table: str
    before: int | None
    key: int
    raw: Row | None = None
    right: int | None = None


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


def out_of_order(desk: Desk, table: str) -> list[Stray] | None:
    """What lies at a wrong place in a large table, as far as the rows beside it tell; None where all keys rise. One
    picture is held for it, a second or two for a million rows. Not inside a transaction."""
    desk.control("BEGIN")
    try:
        breaks = desk.run(_DISORDER[table])
        found = [
            _stray_by_place(desk, table, *each)
            for place, key, before, first in breaks
            for each in ((place - 1, first, before), (place, before, key))
        ]
    finally:
        desk.control("ROLLBACK")
    return list(dict.fromkeys(stray for stray in found if stray is not None)) if breaks else None


def _stray_by_place(desk: Desk, table: str, place: int, before: int | None, key: int) -> Stray | None:
    """What lies behind so many rows; None where it is what was written."""
    row = _one(desk, _BY_PLACE[table], place)
    if isinstance(row, apsw.CorruptError):
        if table == DELIVERY and not isinstance(_one(desk, _SUM_BY_PLACE, place), apsw.CorruptError):
            raise row  # its message cannot be read
        return Stray(table, before, key)
    if row is None or (table == DELIVERY and is_whole_delivery(row)):
        return None
    if table == DELIVERY:
        return Stray(table, before, key, row, _right_key(row))
    right = _right_number(desk, row)
    return None if right == key else Stray(table, before, key, row, right)


def _right_key(raw: Row) -> int | None:
    """The key of a delivery before one bit of it flipped; None where it is something else that is wrong."""
    return next((was for bit in range(KEY_BITS) if is_whole_delivery(((was := raw[0] ^ 1 << bit), *raw[1:]))), None)


def _right_number(desk: Desk, raw: Row) -> int | None:
    """The number of a message as the index of ids has it, since no sum is made over it; its own where that knows none.
    None where it is not what was written."""
    if not is_whole(raw):
        return None
    found = desk.run(_NUMBER, (bytes.decode(raw[0]),))
    return int(found[0][0]) if found else int(raw[-1])


def damaged_rows(desk: Desk, rows_at_once: int = ROWS) -> Iterator[tuple[int, str] | Stray | None]:
    """Every row that is not what was written, as its number and table, 0 for the small tables, or as a stray; None
    after each piece of work, when others may be let in. Reads the tables alone, no index. Not inside a transaction that
    writes: SQLite commits none in which it met a row that it cannot read.

    Raises ``apsw.CorruptError`` where pages cannot be read, or the rows are in no order."""
    yield from _damaged_messages(desk, rows_at_once)
    yield from _damaged_deliveries(desk, rows_at_once)
    for table in SMALL:
        if any(row is None for row, _ in small_rows(desk, table)):
            yield 0, table
        yield None


def _damaged_messages(desk: Desk, rows_at_once: int) -> Iterator[tuple[int, str] | Stray | None]:
    for rows in _all_rows(desk, MESSAGE, rows_at_once):
        for before, number, row in rows:
            if isinstance(row, apsw.CorruptError):
                yield Stray(MESSAGE, before, number)
            elif row is not None and not is_whole(row):
                yield Stray(MESSAGE, before, number, row) if row[0] is None else (number, MESSAGE)  # as in _stray
        yield None


def _damaged_deliveries(desk: Desk, rows_at_once: int) -> Iterator[tuple[int, str] | Stray | None]:
    for rows in _all_rows(desk, DELIVERY, rows_at_once):
        for before, key, row in rows:
            if isinstance(row, apsw.CorruptError):
                if not _is_readable(desk, key):  # else its message is not
                    yield Stray(DELIVERY, before, key)
            elif row is not None and not is_whole_delivery(row):
                yield _stray(desk, before, row) or (key, DELIVERY)
        yield None


def strays_in(desk: Desk, table: str) -> list[Stray]:
    """Those in a large table that is in order."""
    rows = (_damaged_messages if table == MESSAGE else _damaged_deliveries)(desk, ROWS)
    return [found for found in rows if isinstance(found, Stray)]


def _stray(desk: Desk, before: int | None, raw: Row) -> Stray | None:
    """Whether a delivery that is not what was written is one. So is what is no row: its second column is none. That is
    how it is read where the key took a byte from the row, or gave it one: each begins with an empty place for it."""
    right = _right_key(raw)
    if right is None and raw[1] is not None and _one(desk, _RAW_DELIVERY, raw[0]) == raw:
        return None
    return Stray(DELIVERY, before, raw[0], raw, right)


def _all_rows(desk: Desk, table: str, rows_at_once: int) -> Iterator[Found]:
    """All rows of a large table, some at a time, by number, each behind the number before it; in place of one that
    cannot be read, what SQLite says."""
    statement, at, numbers, one = {
        MESSAGE: (_RAW_MESSAGES, -1, _MESSAGE_NUMBERS, _RAW_MESSAGE),
        DELIVERY: (_RAW_DELIVERIES, 0, _DELIVERY_KEYS, _RAW_DELIVERY),
    }[table]
    last = LOWEST
    before: int | None = None
    while True:
        rows: list[tuple[int, Read]]
        try:
            rows = [(row[at], row) for row in desk.run(statement, (last, rows_at_once))]
        except apsw.CorruptError:
            rows = [(number, _one(desk, one, number)) for (number,) in desk.run(numbers, (last, rows_at_once))]
        found: Found = []
        for number, row in rows:
            found.append((before, number, row))
            before = number
        yield found
        if len(rows) < rows_at_once:
            return
        if rows[-1][0] <= last:
            raise apsw.CorruptError("rows are in no order")
        last = rows[-1][0]


def _one(desk: Desk, statement: str, number: int) -> Read:
    """The row; None where it is gone meanwhile."""
    try:
        rows = desk.run(statement, (number,))
        return rows[0] if rows else None
    except apsw.CorruptError as error:
        return error


def _is_readable(desk: Desk, key: int) -> bool:
    """Whether a delivery is, its message aside."""
    return not isinstance(_one(desk, _DELIVERY_SUM, key), apsw.CorruptError)


def lie_in_order(desk: Desk, keys: Iterable[int]) -> bool:
    """Whether the deliveries around these keys do, as many as share a page with them: before one of them is changed,
    since a row that seems to be longer than it is takes what lies beside it along."""
    some = {key // PAGE_ROWS: key for key in keys}
    return not any(desk.run(_DISORDER_NEAR, (key, 2 * PAGE_ROWS))[0][0] for key in some.values())


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
