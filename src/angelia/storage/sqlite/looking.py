"""Looking through a store or a copy that nobody changes: is it whole, ours, and what was written?

What must stay true: ``look_through`` sees every page, every row that people's mail depends on, and every row's own
sum. A copy also holds a seal, a digest over all of its rows, so that bits that flip in it later are found wherever
they are. Looking changes nothing and makes no files.
"""

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

import apsw
import msgspec

from angelia.model.errors import Stopping, Unwell
from angelia.storage.sqlite import bad_rows
from angelia.storage.sqlite.connect import Desk, in_a_line
from angelia.storage.sqlite.identity import misshapen
from angelia.storage.sqlite.migrate import APPLICATION_ID, known
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import CHECKSUM, is_sound
from angelia.storage.sqlite.soundness import look_at

SUMMED = 5  # the format since which each row has a sum
SEAL = "seal"  # in meta, of a copy alone
ROWS = 500  # some ms of looking; then others get a turn
REST_SECONDS = 0.001

_COUNTS, _ALL_MESSAGES, _VALUE = SQL["counts"], SQL["all_messages"], SQL["value"]
# Of tables as they are in the file: a copy of an older format is looked through as it was written.
_ALL_OTHERS = (SQL["all_deliveries"], SQL["all_agents"], SQL["all_tokens"], SQL["all_contacts"], SQL["all_removed"])
_ALL_NOTES, _HAS_NOTES, _HAS_ORIGIN = SQL["all_notes"], SQL["has_notes"], SQL["has_origin"]
_pack = msgspec.msgpack.Encoder().encode


class Sums(NamedTuple):
    """How many rows there are of what nobody may lose."""

    messages: int
    deliveries: int
    agents: int
    tokens: int


class Damaged(Unwell):
    """A store or copy is not what was written. ``rows``: the numbers and tables of those that are not."""

    def __init__(self, detail: str, rows: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(detail)
        self.rows = rows


class Pace:
    """How it goes about its work beside others. ``gentle``: it rests between steps. Any thread may call ``stop``."""

    def __init__(self, *, gentle: bool) -> None:
        self._gentle, self._stopped = gentle, False
        self.running: apsw.Connection | None = None

    def stop(self) -> None:
        """Give it up."""
        self._stopped = True
        if (db := self.running) is not None:
            with suppress(apsw.ConnectionClosedError):
                db.interrupt()

    def rest(self, seconds: float) -> None:
        """Let others work; raises where it was given up."""
        if self._stopped:
            raise Stopping("The copy was given up. Nothing was changed.")
        if self._gentle:
            sleep(seconds)


def open_settled(file: Path) -> apsw.Connection:
    """A connection to a store that nobody changes; it makes no files, and takes no locks."""
    quoted = str(file.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    uri = f"file:{quoted}?immutable=1"
    try:
        return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    except apsw.Error as error:
        raise Damaged(f"{file} cannot be opened: {in_a_line(error)}.") from None


def look_through(file: Path, pace: Pace) -> Sums:
    """Look at all of it; ``Damaged`` where it is not a whole and sound store, else what it holds."""
    return look_closely(file, pace)[0]


def look_closely(file: Path, pace: Pace) -> tuple[Sums, str | None]:
    """The same, and what is wrong with its search index, which is no reason to refuse it."""
    if (log := file.with_name(file.name + "-wal")).exists() and log.stat().st_size:
        raise Damaged(f"{file} has a log beside it: it was not copied as a whole. Make a copy with: angelia backup")
    db = pace.running = open_settled(file)
    try:
        _is_ours(db, file)
        if (what := misshapen(Desk(db))) is not None:
            raise Damaged(f"{file} is damaged: {what} is not described as it was made.")
        looked = look_at(db, thorough=True)
        if looked.mail is not None:
            raise Damaged(f"{file} is damaged: {looked.mail}.")
        seal = db.execute(_VALUE, (SEAL,)).fetchall()
        if digest(db, file, pace) != (seal[0][0] if seal else None) and seal:
            raise Damaged(f"{file} is damaged: its rows are not those that were copied.")
        return count(db), looked.search
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise Damaged(f"{file} is damaged: {in_a_line(error)}.") from None
    finally:
        pace.running = None
        db.close(force=True)


def count(db: apsw.Connection) -> Sums:
    """The rows of a store."""
    messages, deliveries, agents, tokens = (int(str(each)) for each in db.execute(_COUNTS).fetchall()[0])
    return Sums(messages, deliveries, agents, tokens)


def digest(db: apsw.Connection, file: Path, pace: Pace) -> bytes:
    """What all rows come to; ``Damaged`` where one is not what was written."""
    whole = blake2b(digest_size=32)
    bad: list[tuple[int, str]] = []
    names: list[str] = []
    messages = _ALL_MESSAGES if db.execute(_HAS_ORIGIN).fetchall() else _ALL_MESSAGES.replace("m.origin", "NULL")
    for rows in _slices(db, messages, pace):
        bad += [(row[-1], bad_rows.MESSAGE) for row in rows if not is_sound(row)]
        names += [row[0] for row in rows if not is_sound(row)]
        whole.update(b"".join(row[CHECKSUM] for row in rows))
    if bad:
        raise Damaged(f"{len(bad)} messages in {file} are not what was written ({', '.join(names[:3])}).", tuple(bad))
    if db.pragma("user_version") >= SUMMED and (others := list(_others_damaged(db, pace))):
        tables = ", ".join(sorted({table for _, table in others}))
        raise Damaged(f"Rows in {file} are not what was written ({tables}).", tuple(others))
    for sql in (*_ALL_OTHERS, *([_ALL_NOTES] if db.execute(_HAS_NOTES).fetchall() else [])):
        for rows in _slices(db, sql, pace):
            whole.update(_pack(rows))
    return whole.digest()


def _others_damaged(db: apsw.Connection, pace: Pace) -> Iterator[tuple[int, str]]:
    for found in bad_rows.damaged_rows(Desk(db)):
        if isinstance(found, bad_rows.Stray):
            raise apsw.CorruptError(f"a row of table {found.table} cannot be read, or not by its key")
        if found is not None:
            yield found
        else:
            pace.rest(REST_SECONDS)


def _slices(db: apsw.Connection, sql: str, pace: Pace) -> Iterator[list[Any]]:
    """The rows of a statement, some at a time."""
    rows: list[Any] = []
    for row in db.execute(sql):
        rows.append(row)
        if len(rows) == ROWS:
            yield rows
            rows = []
            pace.rest(REST_SECONDS)
    yield rows


def _is_ours(db: apsw.Connection, file: Path) -> None:
    if db.pragma("application_id") != APPLICATION_ID:
        raise Damaged(f"{file} is not a store of Angelia.")
    here, newest = db.pragma("user_version"), len(known())
    if here > newest:
        raise Damaged(f"{file} is of a newer Angelia (format {here}; this program knows {newest}).")
    for name in ("epoch", "instance", "secret", "seq"):
        if not db.execute(_VALUE, (name,)).fetchall():
            raise Damaged(f"{file} is damaged: it does not say its {name}.")
