"""A copy put in the place of a store, while nobody serves it.

What must stay true: the copy is looked through before anything is changed, in the very form in which it will be served.
The store that was there is kept beside the new one, with all of its log. The epoch changes, so that no reader goes on
where it was; no sequence number is given twice; the instance stays. The change itself is one rename.
"""

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from angelia.model.errors import Unwell
from angelia.storage import backups
from angelia.storage.sqlite.connect import as_model_error, open_writer
from angelia.storage.sqlite.copying import write_copy
from angelia.storage.sqlite.identity import put_known
from angelia.storage.sqlite.looking import SEAL, Pace, look_through, open_settled
from angelia.storage.sqlite.queries import SQL

# Where it cannot be known how far the replaced store had counted: more than any hub gives between two copies.
UNKNOWN_SEQS = 1_000_000_000
_LOGS = ("-wal", "-shm", "-journal")
_VALUE, _FORGET, _HIGHEST = SQL["value"], SQL["forget_value"], SQL["highest"]


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put in place; ``kept``: where the store that was there lies now, None where there was none."""

    messages: int
    deliveries: int
    epoch: str
    kept: str | None


@dataclass(frozen=True, slots=True)
class _Present:
    """The store that is to be replaced, as far as it can be read. ``whole``: its log is folded into it."""

    instance: str | None
    seq: int | None
    whole: bool


def restore(file: Path, store: Path, now: int) -> Restored:
    """Put ``file`` in the place of ``store``, whose folder the caller has locked. Raises ``Damaged`` or ``Unwell``, and
    then nothing was changed."""
    part = backups.partial(store)
    try:
        look_through(file, _HASTY)
        write_copy(open_settled(file), part, _HASTY)
        sums = look_through(part, _HASTY)
        present = _look_at(store) if store.exists() else None
        if present is not None and present.instance not in (None, _read(part, "instance")):
            raise Unwell(
                f"{file} is a copy of another hub's store than the one in {store.parent}. Nothing was changed; restore "
                "it into an empty folder: --data-dir"
            )
        epoch = _renew(part, present)
        kept = _swap(part, store, present, now)
    except OSError as error:
        raise Unwell(f"It could not be restored: {error.strerror}. Nothing was changed.") from error
    except apsw.Error as error:
        raise as_model_error(error) from error
    finally:
        for end in ("", *_LOGS):
            part.with_name(part.name + end).unlink(missing_ok=True)
    return Restored(sums.messages, sums.deliveries, epoch, None if kept is None else str(kept))


_HASTY = Pace(gentle=False)


def _read(path: Path, name: str) -> Any:
    return _with(path, lambda db: _first(db, _VALUE, (name,)))


def _first(db: apsw.Connection, sql: str, values: tuple[str, ...] = ()) -> Any:
    return db.execute(sql, values).fetchall()[0][0]


def _with(path: Path, work: Callable[[apsw.Connection], Any]) -> Any:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return work(db)
    finally:
        db.close(force=True)


def _look_at(store: Path) -> _Present:
    """What the store says of itself, with its log folded into it; nothing, where it cannot be read."""
    try:
        desk = open_writer(store, "full", None)
    except apsw.Error:
        return _Present(None, None, whole=False)
    try:
        instance, seq = (desk.run(_VALUE, (name,))[0][0] for name in ("instance", "seq"))
        seq = max(seq, desk.run(_HIGHEST)[0][0])
        pages, done = desk.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        desk.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        return _Present(str(instance), int(seq), whole=pages == done)
    except (apsw.Error, IndexError, TypeError, ValueError):
        return _Present(None, None, whole=False)
    finally:
        desk.close()


def _renew(part: Path, present: _Present | None) -> str:
    """Give the copy another epoch, and let it count on above every number that was given."""
    epoch = secrets.token_hex(4)

    def change(db: apsw.Connection) -> None:
        db.execute("PRAGMA synchronous = full; BEGIN IMMEDIATE")
        seq = max(_first(db, _VALUE, ("seq",)), _first(db, _HIGHEST))
        known = present.seq if present is not None else None
        put_known(db.execute, "seq", max(seq, known) if known is not None else seq + UNKNOWN_SEQS)
        put_known(db.execute, "epoch", epoch)
        db.execute(_FORGET, (SEAL,))  # from here on it changes
        db.execute("COMMIT")

    _with(part, change)
    return epoch


def _swap(part: Path, store: Path, present: _Present | None, now: int) -> Path | None:
    """The rename. What was there has another name by then, and its log beside that."""
    if present is None:
        _drop_logs(store)
        os.rename(part, store)
        backups.sync_folder(store.parent)
        return None
    kept = _free_name(store, now)
    os.link(store, kept)
    if not present.whole:
        with contextlib.suppress(FileNotFoundError):
            os.link(f"{store}-wal", f"{kept}-wal")
    backups.sync_folder(store.parent)
    _drop_logs(store)  # a log that is not the new store's own would be read into it
    os.replace(part, store)
    backups.sync_folder(store.parent)
    return kept


def _free_name(store: Path, now: int) -> Path:
    first = store.with_name(f"{store.name}.replaced-{backups.stamp(now)}")
    others = (first.with_name(f"{first.name}-{number}") for number in range(2, 1000))
    return next(path for path in (first, *others) if not os.path.lexists(path))


def _drop_logs(store: Path) -> None:
    for end in _LOGS:
        store.with_name(store.name + end).unlink(missing_ok=True)
