"""The format of the store: numbered migrations, and who may open what.

What must stay true: a store is brought from its number to the newest in one transaction, or not at all; what it was is
kept beside it; no migration loses a row of what people wrote, which is counted before and after. A store newer than the
program, or a file that is not a store, is left alone.

``schema.sql`` is what the migrations add up to, for reading; a test holds them together.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from angelia.model.errors import Unwell
from angelia.storage import backups
from angelia.storage.sqlite.connect import in_a_line
from angelia.storage.sqlite.identity import forget_shape
from angelia.storage.sqlite.queries import HERE, SQL
from angelia.storage.sqlite.rows import delivery_sum, row_sum

APPLICATION_ID = 0x414E4745  # "ANGE": tells a store from any other SQLite file
_NAME = re.compile(r"(\d{4})_\w+\.sql")
_COUNTS = SQL["counts"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: the SQL that makes format ``number`` out of the one before."""

    number: int
    name: str
    sql: str


def remedy(path: Path, when: str = "") -> str:
    """What became of a store that is refused, and what to do."""
    return f"It was left as it is. {when}{backups.remedy(path.parent)}"


def known(folder: Path = HERE / "migrations") -> list[Migration]:
    """The migrations of this program, in order."""
    found = []
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match:
            found.append(Migration(int(match[1]), path.name, path.read_text("utf-8")))
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations in {folder} are not numbered 1, 2, 3 …")
    return found


def migrate(db: apsw.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    """Bring the store to the newest format. Raises ``Unwell`` where it may not or cannot be opened."""
    newest = len(migrations)
    here, owner = _pragma(db, "user_version"), _pragma(db, "application_id")
    tables = _pragma(db, "schema_version")
    if (tables or here) and owner != APPLICATION_ID:
        raise Unwell(f"{path} is not a store of Angelia. {remedy(path, 'If it is only damaged: ')}")
    if here > newest:
        raise Unwell(
            f"{path} was written by a newer Angelia (format {here}; this program knows {newest}). "
            f"Start the newer program. {remedy(path, 'If it is only damaged: ')}"
        )
    if here == newest:
        return
    kept = _keep(db, path, here) if here else None
    db.create_scalar_function("row_sum", row_sum, deterministic=True)  # what a new column of an old row holds
    db.create_scalar_function("delivery_sum", delivery_sum, deterministic=True)
    db.execute("BEGIN IMMEDIATE")
    try:
        before = _counts(db) if here else None
        for migration in migrations[here:]:
            db.execute(migration.sql)
        forget_shape(db.execute)
        if before is not None and _counts(db) != before:
            raise Unwell(f"The migration of {path} to format {newest} would lose rows. Nothing was changed.")
        db.execute(f"PRAGMA user_version = {newest}; PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
    except apsw.SQLError as error:
        db.execute("ROLLBACK")
        raise Unwell(f"{path} is damaged (format {here}: {in_a_line(error)}). {remedy(path)}") from error
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    if kept is not None:
        _log.warning("%s was brought from format %d to %d; what it was is in %s", path, here, newest, kept)


def _keep(db: apsw.Connection, path: Path, here: int) -> Path:
    """A whole copy of the store as it is, beside it."""
    kept = path.with_name(f"{path.name}.format-{here}")
    kept.unlink(missing_ok=True)
    kept.touch(mode=0o600)
    copy = apsw.Connection(str(kept))
    try:
        with copy.backup("main", db, "main") as backup:
            backup.step()
    finally:
        copy.close()
    return kept


def _pragma(db: apsw.Connection, name: str) -> int:
    value = db.pragma(name)
    assert isinstance(value, int)
    return value


def _counts(db: apsw.Connection) -> tuple[int, ...]:
    row: tuple[Any, ...] = db.execute(_COUNTS).fetchall()[0]
    return row
