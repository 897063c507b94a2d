"""What ``angelia doctor`` looks at inside the data folder: that what has to be private is, and that the store is one.

What must stay true: it opens nothing for writing and asks no hub, so that it tells what the next start would say while
there is still one that runs, and after it has ended. What a start, or ``--as``, refuses is wrong; what the folder alone
keeps from others (the store, which a start closes by itself, the log, copies) is doubtful: it is open once it is moved.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote

from angelia.cli import tokens
from angelia.cli.checks import DOUBTFUL, OK, WRONG, Finding
from angelia.settings import Settings
from angelia.storage import backups, folder

# How every database of SQLite begins (https://www.sqlite.org/fileformat.html), but for one that is still empty.
_MAGIC = b"SQLite format 3\0"
_NAMED = 3  # of the files that are doubtful; the command that mends it takes them all


def kept(settings: Settings) -> Iterator[Finding]:
    """The files of the folder, its secrets and its store; nothing where there is no folder, or none to look into."""
    try:
        wide = list(_wide(settings.data_dir))
    except OSError:
        return  # the folder's own check tells
    yield from _privacy(settings.data_dir, wide)
    yield from _secrets(settings.data_dir, {path for path, _ in wide})
    yield from _store(settings.data_dir)


def _wide(data_dir: str) -> Iterator[tuple[str, int]]:
    """Each file and folder in the data folder, and in those there, that others may do something with, and its mode."""
    for path, mode in _entries(data_dir):
        yield from _if_wide(path, mode)
        if stat.S_ISDIR(mode):
            with suppress(OSError):  # it is gone by now, or another user's
                for inner, inner_mode in _entries(path):
                    yield from _if_wide(inner, inner_mode)


def _entries(place: str) -> Iterator[tuple[str, int]]:
    for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
        with suppress(FileNotFoundError):  # a hub that runs makes and removes some
            yield entry.path, entry.stat(follow_symlinks=False).st_mode


def _if_wide(path: str, mode: int) -> Iterator[tuple[str, int]]:
    # angelia.toml, which macOS has here, holds no secret. A link says nothing; sockets have a check of their own.
    if (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) and mode & 0o077 and os.path.basename(path) != "angelia.toml":
        yield path, mode


def _privacy(data_dir: str, wide: list[tuple[str, int]]) -> Iterator[Finding]:
    refused = [(path, mode) for path, mode in wide if _is_refused(data_dir, path, mode)]
    for path, mode in refused:
        text = f"{path} is open to other users (mode {stat.S_IMODE(mode):o}), and refused so"
        anew = "; if somebody may have read it, have a new one made instead"
        mend = f"chmod 700 {quote(path)}" if stat.S_ISDIR(mode) else f"chmod 600 {quote(path)}{anew}"
        yield Finding("folder" if stat.S_ISDIR(mode) else "secret", WRONG, text, mend)
    others = [os.path.relpath(path, data_dir) for path, mode in wide if (path, mode) not in refused]
    if others:
        names = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED} more" if len(others) > _NAMED else "")
        text = f"{names} in {data_dir}: open to other users, whom only the folder keeps out"
        yield Finding("files", DOUBTFUL, text, f"chmod -R go= {quote(data_dir)}")
    elif not refused:
        yield Finding("files", OK, "none in the folder is open to other users")


def _is_refused(data_dir: str, path: str, mode: int) -> bool:
    """Whether a hub does not start over it, or the agent whose token it is cannot be acted as."""
    place, name = os.path.split(path)
    if stat.S_ISDIR(mode):  # one that holds nothing is closed by the start
        return os.path.join(data_dir, folder.TURNS) in (path, place) and _holds_something(path)
    return name in folder.SECRETS if place == data_dir else place == os.path.join(data_dir, tokens.FOLDER)


def _holds_something(path: str) -> bool:
    try:
        return bool(os.listdir(path))
    except OSError:
        return True


def _secrets(data_dir: str, told: set[str]) -> Iterator[Finding]:
    """The hub's own, each as the next start would take it."""
    for name in folder.SECRETS:
        path = os.path.join(data_dir, name)
        if path in told or not os.path.lexists(path):
            continue
        try:
            folder.kept_secret(path)
        except folder.UnfitFolder as error:
            yield Finding("secret", WRONG, str(error), "mend it before the hub starts again, which it would refuse")


def _store(data_dir: str) -> Iterator[Finding]:
    """What it is and how it begins; all that is in it is looked through by a start, and while a hub runs."""
    path = os.path.join(data_dir, folder.STORE)
    if not os.path.lexists(path):
        return
    remedy = backups.remedy(Path(data_dir))
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            yield Finding("store", WRONG, f"{path} is no file", f"Move it away. {remedy}")
            return
        with open(path, "rb") as file:
            begins = file.read(len(_MAGIC))
    except OSError as error:
        yield Finding("store", WRONG, f"{path} cannot be read: {error.strerror}", "look at the disk that it is on")
        return
    if begins not in (b"", _MAGIC):
        yield Finding("store", WRONG, f"{path} is damaged: it does not begin as a store does", remedy)
        return
    yield Finding("store", OK, f"{path} begins as a store does" if begins else f"{path} is empty, as a new one is")
