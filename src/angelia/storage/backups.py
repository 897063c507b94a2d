"""Where copies of a store lie, and what they are called: temporary names, final ones, and the newest three.

What must stay true: under its final name a copy is whole and verified, and readable by its owner alone; what is there
already is never written over. An older copy goes only when a newer one is in its place. Standard library alone. Nothing
here opens a file of the store itself: closing one by hand would end the locks that SQLite has on it.
"""

import contextlib
import os
import re
import shlex
import time
from pathlib import Path

KEPT = 3
FOLDER = "backups"  # in the data folder
_NAME = re.compile(r"angelia-\d{8}T\d{6}Z(-\d+)?\.db")
_PARTIAL = re.compile(r"\.angelia-\d{8}T\d{6}Z(-\d+)?\.db\.partial(-journal|-wal|-shm)?")


class Taken(Exception):
    """There is something of that name already, or it cannot be written there; the text says so."""


def stamp(milliseconds: int) -> str:
    """A moment as it stands in file names: ``20261129T181000Z``."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(milliseconds / 1000))


def fresh(data_dir: Path, now: int) -> Path:
    """A name for a new copy in the data folder's own place for them, which is made; what was left half done goes."""
    folder = data_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in folder.iterdir():
        if _PARTIAL.fullmatch(path.name):
            path.unlink(missing_ok=True)
    # Behind those of the same second, so that their order is that of their names.
    same = [number for moment, number in map(_age, listed(data_dir)) if moment == stamp(now)]
    number = max(same, default=0) + 1
    return folder / (f"angelia-{stamp(now)}-{number}.db" if same else f"angelia-{stamp(now)}.db")


def check(file: Path, data_dir: Path) -> Path:
    """A name that somebody chose, if a copy can be put there; ``Taken`` else."""
    if not file.is_absolute() or "\0" in str(file):
        raise Taken(f"{file} is no absolute path.")
    folder = file.parent
    if not folder.is_dir():
        raise Taken(f"There is no folder {folder}.")
    if os.path.lexists(file):
        raise Taken(f"{file} is there already; it was left as it is.")
    if folder.resolve() == data_dir.resolve():  # a file there may mean something to the hub or to SQLite
        raise Taken(f"{folder} is the hub's own; choose another folder, or none, for {data_dir / FOLDER}.")
    return file


def partial(file: Path) -> Path:
    """What a copy is called until it is whole."""
    return file.with_name(f".{file.name}.partial")


def begin(path: Path) -> int:
    """Make the file, for its owner alone; a descriptor to sync it by. One that was left half done goes first."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def settle(path: Path, file: Path) -> None:
    """Give a verified copy its name; ``Taken`` where somebody else has got it meanwhile."""
    try:
        os.link(path, file)
    except FileExistsError:
        raise Taken(f"{file} is there already; it was left as it is.") from None
    except OSError:  # a file system without links
        if os.path.lexists(file):
            raise Taken(f"{file} is there already; it was left as it is.") from None
        os.rename(path, file)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def listed(data_dir: Path) -> list[Path]:
    """The copies in the data folder's own place for them, the newest first."""
    try:
        found = [path for path in (data_dir / FOLDER).iterdir() if _NAME.fullmatch(path.name) and path.is_file()]
    except FileNotFoundError:
        return []
    return sorted(found, key=_age, reverse=True)


def remedy(data_dir: Path) -> str:
    """What a person can do about a store that cannot be used: put the newest copy back, where there is one. The folder
    is always named: nobody here knows whether it is the one that is meant where none is."""
    here = f"--data-dir {shlex.quote(str(data_dir))}"
    if copies := listed(data_dir):
        return f"Put the newest copy back: angelia restore {shlex.quote(str(copies[0]))} {here}"
    return (
        f"There is no copy in {data_dir / FOLDER}. Where you keep one elsewhere, put it back: "
        f"angelia restore FILE {here}; else move the store away to begin with an empty one."
    )


def _age(path: Path) -> tuple[str, int]:
    _, moment, *number = path.stem.split("-")
    return moment, int(number[0]) if number else 1


def keep_newest(data_dir: Path, made: Path) -> list[Path]:
    """Remove what is older than the newest three; the one just ``made`` is one of them, whatever the clock said."""
    others = [path for path in listed(data_dir) if path != made]
    old = others[KEPT - 1 :]
    for path in old:
        path.unlink(missing_ok=True)
    return old
