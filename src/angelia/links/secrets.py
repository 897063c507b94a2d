"""Secrets for signing in elsewhere: from a file that nobody else may read, or from the hub's environment.

What must stay true: a secret is read when it is needed and kept nowhere; what is wrong with a file or a variable is
said by its name, never by what it holds.
"""

import os
import shlex
import stat
from collections.abc import Mapping

from angelia.links.port import Kind, Trouble
from angelia.model.connection import Connection

MOST_BYTES = 16 * 1024  # of a file: tokens of the largest kind have a fourth of it


def token_of(connection: Connection, environment: Mapping[str, str]) -> str | None:
    """The token of a connection, None where none is named. Raises ``Trouble``."""
    token = _secret("token", connection.token_file, connection.token_variable, environment)
    if token is not None and not (token.isascii() and token.isprintable()):
        raise _wrong("The token that is named holds signs that no token can have.", "Write the token alone into it.")
    return token


def password_of(connection: Connection, environment: Mapping[str, str]) -> str | None:
    """The password of a connection, None where none is named. Raises ``Trouble``."""
    return _secret("password", connection.password_file, connection.password_variable, environment)


def _secret(what: str, path: str | None, variable: str | None, environment: Mapping[str, str]) -> str | None:
    if path is not None:
        return _read(path, what)
    if variable is None:
        return None
    found = environment.get(variable, "")
    if not found:
        advice = f"Set it for the hub and start that again, or name a file: --{what}-file."
        raise _wrong(f"The variable {variable} is not set where the hub runs.", advice)
    return found


def _read(path: str, what: str) -> str:
    """The text of a file of ours, without the end of its line."""
    try:
        # Without waiting, in case it is a pipe that nobody writes to.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        advice = f"Put the {what} there, with chmod 600, or name another file: --{what}-file."
        raise _wrong(f"The {what}'s file {path} cannot be read: {error.strerror}.", advice) from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise _wrong(f"{path} is no file.", f"Name the file that holds the {what}: --{what}-file.")
        if status.st_uid not in (os.geteuid(), 0):
            advice = f"Run: chown {os.geteuid()} {shlex.quote(path)}"
            raise _wrong(f"{path}, which holds a {what}, belongs to another user (uid {status.st_uid}).", advice)
        if status.st_mode & 0o077:
            advice = f"Run: chmod 600 {shlex.quote(path)}"
            raise _wrong(f"Others than its owner may use {path}, which holds a {what}.", advice)
        content = os.read(file, MOST_BYTES + 1)
    finally:
        os.close(file)
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        text = ""
    if not text or len(content) > MOST_BYTES:
        raise _wrong(f"{path} holds no {what}.", f"Put the {what} into it, and nothing else.")
    return text


def _wrong(problem: str, advice: str) -> Trouble:
    return Trouble(Kind.REFUSED, problem, advice, lasting=True)
