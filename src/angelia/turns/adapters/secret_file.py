"""A secret out of a file of ours that nobody else can read: an agent's own token, a key to the server that it is
reached by.

What must stay true: it is read when it is needed and kept nowhere, so that another may take its place. A file that
others can use is refused with the command that mends it, and no sentence shows what a file holds. What a secret has to
look like is the business of whoever uses it.
"""

import os
import shlex
import stat

MOST_BYTES = 64 * 1024  # a key may be the first line of a file of settings, which has some KiB
_ROOT = 0  # may read everything anyway


class UnfitSecret(ValueError):
    """A secret cannot be used as it is kept: what is wrong with it, and what helps, for whoever runs the agent."""


def secret_in(path: str) -> str:
    """The text of the file, without white space around it. Raises ``UnfitSecret``."""
    if "\0" in path:
        raise UnfitSecret("The path of a secret's file holds no NUL.")
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            _refuse_open(path, os.fstat(file.fileno()))
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnfitSecret(f"The secret in {path} cannot be read: {error.strerror}.") from None
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(content) > MOST_BYTES:
        raise UnfitSecret(f"There is no secret in {path}; put it there, and nothing else.")
    return text


def wrong_with(path: str) -> str | None:
    """Why the file cannot be used, as a sentence; None where it can."""
    try:
        secret_in(path)
    except UnfitSecret as error:
        return str(error)
    return None


def _without_waiting(path: str, flags: int) -> int:
    """In case it is a pipe that nobody writes to."""
    return os.open(path, flags | os.O_NONBLOCK)


def _refuse_open(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnfitSecret(f"{path}, where a secret should be, is no file.")
    user = os.geteuid()
    if found.st_uid not in (user, _ROOT):
        mend = f"chown {user} {shlex.quote(path)}"
        raise UnfitSecret(f"The secret in {path} belongs to another user (uid {found.st_uid}): {mend}")
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        mend = f"chmod 600 {shlex.quote(path)}"
        anew = "if somebody may have read it, have a new one made instead."
        raise UnfitSecret(f"Others can use the secret in {path} (mode {mode:o}): {mend}; {anew}")
