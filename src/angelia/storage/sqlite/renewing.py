"""Making anew what can be made from the messages, though SQLite cannot read its pages: the search index, and indexes.

What must stay true: what is given up is taken out of the schema, and none of its pages is looked at: a page that is not
what was written may name pages of other tables, and freeing those would cost mail. All of it is one transaction, some
ms long however large the index was. A table is written anew in one, too, which takes as long as its indexes take.

What is left of a search index keeps its pages under other names (``search_left_…``) until SQLite has seen that they are
right and nobody else's; then they are freed, some at a time. Else they are forgotten: room that nothing uses, until the
file is written anew (VACUUM; the start of a small store does it).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import apsw

from angelia.storage.sqlite import identity
from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import row_sum

LEFT = {
    "search_data": ("search_left_data", SQL["as_numbered"]),
    "search_idx": ("search_left_idx", SQL["as_words"]),
    "search_docsize": ("search_left_docsize", SQL["as_numbered"]),
    "search_config": ("search_left_config", SQL["as_names"]),
    "search_sum": ("search_left_sum", SQL["as_numbered"]),
    "search_again": ("search_left_again", SQL["as_numbered"]),
}
SEARCH = ("search", *LEFT)
LEFT_NAMES = tuple(name for name, _ in LEFT.values())
_CREATE = (SQL["create_search"], SQL["no_automerge"], SQL["create_search_again"], SQL["create_search_sum"])
_RENAME, _FORGET, _THERE = SQL["rename_in_schema"], SQL["forget_in_schema"], SQL["tables_left"]
_CLEAR, _DROP = (SQL["clear_left_data"], SQL["clear_left_docsize"]), SQL["drop_left"]
_INDEXES, _ALL_BLOCKS = SQL["indexes"], SQL["all_blocks"]
_ANEW = {
    "message": (SQL["create_message_anew"], SQL["copy_messages"]),
    "delivery": (SQL["create_delivery_anew"], SQL["copy_deliveries"]),
}
_TAKE_ROOT, _INDEXES_OF = SQL["take_root"], SQL["indexes_of"]
_PUT_SUM, _PUT_VALUE = SQL["put_index_sum"], SQL["put_value"]


def renew_search(desk: Desk) -> None:
    """An empty search index in the place of the one that is there, or is not. Inside a transaction."""
    with _schema_open(desk):
        _forget(desk, ("search", *LEFT_NAMES))
        for table, (name, described) in LEFT.items():
            desk.run(_RENAME, (table, name, described.replace("left_over", name)))
    for sql in _CREATE:
        desk.run(sql)
    desk.change_many(_PUT_SUM, [(id_, row_sum(block)) for id_, block in desk.run(_ALL_BLOCKS)])
    desk.run(_PUT_VALUE, ("indexed", 0))
    identity.put_search_shape(desk)


def has_left(desk: Desk) -> bool:
    """Whether something is left of a search index that was given up."""
    return bool(desk.run(_THERE))


def forget_left(desk: Desk) -> None:
    """Leave those pages to nobody. Inside a transaction."""
    with _schema_open(desk):
        _forget(desk, LEFT_NAMES)


def free_left(desk: Desk, rows: int) -> bool:
    """Free the pages of so many rows; False once all are free. Inside a transaction. Raises ``apsw.CorruptError`` where
    they cannot be read after all."""
    there = {name for (name,) in desk.run(_THERE)}
    for name, sql in zip(("search_left_data", "search_left_docsize"), _CLEAR, strict=True):
        if name in there and desk.change(sql, (rows,)):
            return True
    for name in there.intersection(LEFT_NAMES):
        desk.control(_DROP.replace("search_left_data", name))
    return False


def renew_index(desk: Desk, name: str) -> None:
    """An index anew from the rows of its table. Inside a transaction."""
    renew_indexes(desk, frozenset((name,)))


def renew_indexes(desk: Desk, names: frozenset[str] | None = None, meanwhile: Callable[[], None] | None = None) -> None:
    """The same for these, or for all that there are. ``meanwhile``: what is done while they are away."""
    indexes = [(name, sql) for name, _, sql in desk.run(_INDEXES) if names is None or name in names]
    try:
        with _schema_open(desk):
            _forget(desk, [name for name, _ in indexes])
        if meanwhile is not None:
            meanwhile()
        for _, sql in indexes:
            desk.run(sql)
    except apsw.Error:
        if desk.db.in_transaction:
            desk.control("ROLLBACK")  # whatever was done in it: SQLite would not commit that any more
        schema_again(desk)
        raise


def copy_table(desk: Desk, table: str, moved: Mapping[tuple[int | None, int], int | None]) -> None:
    """Copy the rows of a large table as they lie into one beside it (``…_anew``), which is in order. ``moved``: by the
    key of the row before, and its own, the key that a row gets instead; those with None are left out, and are not read.
    Inside a transaction."""
    create, copy = _ANEW[table]
    desk.run(create)
    _copy(desk, copy, None, lambda pair: pair not in moved)
    for at, key in moved.items():
        if key is not None:
            _copy(desk, copy, key, lambda pair, at=at: pair == at)  # type: ignore[misc]


def _copy(desk: Desk, sql: str, key: int | None, chosen: Callable[[tuple[int | None, int]], bool]) -> None:
    before: int | None = None

    def is_chosen(*keys: Any) -> bool:
        nonlocal before
        pair, before = (before, keys[0]), keys[0]
        return chosen(pair)

    desk.db.create_scalar_function("is_chosen", is_chosen, 1)
    desk.run(sql, (key,))
    desk.db.create_scalar_function("is_chosen", None, 1)


def replace_table(desk: Desk, table: str) -> None:
    """Put what ``copy_table`` made in the table's place, with indexes of its own. What it was before belongs to
    nothing then. Inside a transaction."""

    def swap() -> None:
        with _schema_open(desk):
            desk.run(_TAKE_ROOT, (table, f"{table}_anew"))
            _forget(desk, (f"{table}_anew",))

    renew_indexes(desk, frozenset(name for (name,) in desk.run(_INDEXES_OF, (table,))), swap)


def _forget(desk: Desk, names: Iterable[str]) -> None:
    for name in names:
        desk.run(_FORGET, (name,))


@contextmanager
def _schema_open(desk: Desk) -> Iterator[None]:
    """Let the schema be written by hand; afterwards it is read again."""
    desk.db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)  # as some builds of SQLite do not have it from the start
    desk.control("PRAGMA writable_schema = on")
    try:
        yield
    finally:
        desk.control("PRAGMA writable_schema = reset")


def schema_again(desk: Desk) -> None:
    """Read the schema again: a transaction that changed it by hand was taken back."""
    desk.control("PRAGMA writable_schema = reset")
