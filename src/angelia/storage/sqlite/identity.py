"""What a store knows of itself, kept twice: its epoch, instance, secret, counter, and what its tables look like.

What must stay true: bits that flip in one of the two cost nothing, not even a start. The spare says by its own sum
whether it is what was written, so that it decides; where it is not, what it stands in for does.

Not here: what these values mean (``opening.py``), and how far the search index is, which can be made anew.
"""

import logging
from collections.abc import Callable
from typing import Any
from zlib import crc32

import apsw
import msgspec

from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import Row

NAMES = ("epoch", "instance", "secret", "seq")
SHAPE = "shape"
_SPARE, _SEARCH, _LEFT = "spare of ", "search", "search_left_"
_VALUE, _PUT_VALUE, _VALUES, _CLEAR = SQL["value"], SQL["put_value"], SQL["values"], SQL["clear_values"]
_SCHEMA, _FORGET = SQL["schema"], SQL["forget_value"]
_KINDS = (*NAMES, SHAPE)
_OTHERS = frozenset(("indexed", "self_test"))
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
_log = logging.getLogger(__name__)


def put_known(run: Callable[[str, Row], object], name: str, value: Any) -> None:
    """Write a value and its spare."""
    packed = _pack(value)
    run(_PUT_VALUE, (name, value))
    run(_PUT_VALUE, (_SPARE + name, packed + crc32(packed).to_bytes(4, "big")))


def settle(desk: Desk) -> None:
    """Put right what is damaged, and give a spare to what has none. Inside a transaction."""
    for name in _KINDS:
        value, spare = _read(desk, name), _opened(_read(desk, _SPARE + name))
        if spare is not None:
            if value != spare:
                _log.error("what the store knows of itself was damaged (%s): put right from its spare", name)
                put_known(desk.run, name, spare)
        elif value is not None:
            put_known(desk.run, name, value)
    if _read(desk, SHAPE) is None:
        put_known(desk.run, SHAPE, _pack(_described(desk)))


def write_anew(desk: Desk) -> None:
    """The table made anew from what can be read of it and belongs there. Inside a transaction."""
    known = _OTHERS.union(_KINDS, (_SPARE + name for name in _KINDS))
    read = [(name.decode("utf-8", "replace"), value) for name, value in desk.run(_VALUES)]
    values = [row for row in read if row[0] in known]
    desk.run(_CLEAR)
    for row in values:
        desk.run(_PUT_VALUE, row)
    settle(desk)


def forget_shape(run: Callable[[str, Row], object]) -> None:
    """The tables will look otherwise now."""
    for name in (SHAPE, _SPARE + SHAPE):
        run(_FORGET, (name,))


def put_search_shape(desk: Desk) -> None:
    """The tables that searches need were made anew. Inside a transaction."""
    here, written = _described(desk), _written(desk)
    kept = {name: sum_ for name, sum_ in written.items() if not name.startswith(_SEARCH)} if written else here
    put_known(desk.run, SHAPE, _pack(kept | {name: here[name] for name in here if _is_of_search(name)}))


def misshapen(desk: Desk) -> str | None:
    """The first table or index that is not described as it was when it was made. What is there besides may be: a
    person's index, what SQLite notes for itself. Mail goes on without what is for searches."""
    return next((name for name in _wrong(desk) if not name.startswith(_SEARCH)), None)


def search_misshapen(desk: Desk) -> str | None:
    """The same for the tables that searches need."""
    return next((name for name in _wrong(desk) if _is_of_search(name)), None)


def _is_of_search(name: str) -> bool:
    return name.startswith(_SEARCH) and not name.startswith(_LEFT)


def _wrong(desk: Desk) -> list[str]:
    here = _described(desk)
    return [name for name, sum_ in _written(desk).items() if here.get(name) != sum_]


def _written(desk: Desk) -> dict[str, int]:
    """The sums as they were noted; none where they never were, or cannot be read."""
    written = _opened(_read(desk, _SPARE + SHAPE)) or _read(desk, SHAPE)
    return dict(_unpack(written)) if isinstance(written, bytes) else {}


def _described(desk: Desk) -> dict[str, int]:
    return {str(name): crc32(str(sql).encode()) for name, sql in desk.run(_SCHEMA)}


def _read(desk: Desk, name: str) -> Any:
    try:
        rows = desk.run(_VALUE, (name,))
    except apsw.CorruptError:  # a text that is none
        return None
    return rows[0][0] if rows else None


def _opened(spare: Any) -> Any:
    if not isinstance(spare, bytes) or crc32(spare[:-4]).to_bytes(4, "big") != spare[-4:]:
        return None
    return _unpack(spare[:-4])
