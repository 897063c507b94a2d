"""The agents' tokens of this data folder: ``<data>/tokens/NAME``, 0600 in a folder that is 0700.

What must stay true: a name is checked before it becomes part of a path, and nobody gets another's token. One that
others can read is refused, with the command that mends it. A file is
there whole or not at all. Names are compared without regard to case, files are named as they were joined. Who asks the
hub for a new token and keeps it does both while nobody else does (``one_at_a_time``): the token on disk is the last.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
from contextlib import contextmanager, suppress

from angelia.cli.exits import Refused, UsageError

FOLDER = "tokens"  # in the data folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def check_name(name: str) -> str:
    """Return ``name`` if it can be an agent's; it is safe in a path then."""
    plain = name.replace("-", "").replace("_", "")
    if not (name.isascii() and 0 < len(name) <= 64 and name[0].isalnum() and plain.isalnum()):
        raise UsageError(f"'{name}' is no agent's name: 1 to 64 letters, digits, _ or -, the first a letter or a digit")
    return name


def find(data_dir: str, name: str) -> str | None:
    """The path of an agent's token, or None where this folder has none."""
    folder = os.path.join(data_dir, FOLDER)
    with suppress(OSError):
        for entry in os.listdir(folder):
            if entry.lower() == check_name(name).lower():
                return os.path.join(folder, entry)
    return None


def read(data_dir: str, name: str) -> str | None:
    """An agent's token, or None where this folder has none."""
    path = find(data_dir, name)
    if path is None:
        return None
    try:
        with open(path, encoding="ascii") as file:
            found = os.fstat(file.fileno())
            token = file.read(1024).strip()
    except (OSError, UnicodeDecodeError):
        raise Refused(f"the token of {name} in {path} cannot be read") from None
    if found.st_uid not in (os.geteuid(), 0):
        raise Refused(f"the token of {name} in {path} belongs to another user (uid {found.st_uid}); remove it")
    if (mode := stat.S_IMODE(found.st_mode)) & 0o077:
        mend = f"chmod 600 {shlex.quote(path)}"
        raise Refused(f"others can use the token of {name} (mode {mode:o}); close it: {mend}; or make a new one")
    if not token.isprintable() or not token or " " in token:
        raise Refused(f"{path} holds no token")
    return token


def save(data_dir: str, name: str, token: str) -> str:
    """Keep an agent's token, in the place of an earlier one. Out: the path of its file."""
    old = find(data_dir, name)
    folder = _folder(data_dir)
    path = os.path.join(folder, check_name(name))
    fresh = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(fresh)
    if old is not None and old != path:
        with suppress(FileNotFoundError):
            if not os.path.samefile(old, path):
                os.unlink(old)
    return path


@contextmanager
def one_at_a_time(data_dir: str) -> Iterator[None]:
    """Nobody else changes the tokens of this folder meanwhile: what is asked of the hub last is what is kept last."""
    descriptor = os.open(_folder(data_dir), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _folder(data_dir: str) -> str:
    folder = os.path.join(data_dir, FOLDER)
    os.makedirs(data_dir, mode=0o700, exist_ok=True)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    return folder


def forget(data_dir: str, name: str) -> None:
    """Remove an agent's token."""
    path = find(data_dir, name)
    if path is not None:
        with suppress(FileNotFoundError):
            os.unlink(path)
