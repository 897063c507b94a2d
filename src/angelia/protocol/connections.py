"""Connections as they are written down, in a request or in the settings, and as they are shown.

What must stay true: one check for both, so that what a file may say a request may say, too. No secret is ever taken or
shown: a password in a target is refused, a token is named by the file or the variable that holds it. Who does not
administer sees names and numbers, and no way to another machine.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from angelia.model.address import check_handle
from angelia.model.connection import Away, Condition, Connection, Speaks
from angelia.model.errors import BadName
from angelia.protocol.native import In, Out
from angelia.protocol.times import rfc3339

TARGETS = "ws://HOST, wss://HOST, ssh://USER@HOST, exec:COMMAND or docker://NAME"
_SECRET_ARGUMENTS = {"token", "ticket", "password"}
_PASSWORD = re.compile(r"(//[^/@:\s]*):[^/@\s]*@")
_HOST = re.compile(r"[A-Za-z0-9:_][A-Za-z0-9.:_%-]*")  # what ssh could take for an option of its own is none
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LETTERS = 4096  # of one text: as long as a path may be


class ConnectionIn(In, kw_only=True):
    """``PUT /v1/connections/{name}``. ``target`` is left out where only the other side dials. ``code``: shown there, to
    pair with it."""

    target: str = ""
    speaks: Literal["auto", "hub", "hermes"] = "auto"
    away: Literal["wait", "refuse"] = "wait"
    share: list[str] | None = None
    accept: list[str] | None = None
    token_file: str | None = None
    token_variable: str | None = None
    user: str | None = None
    password_file: str | None = None
    password_variable: str | None = None
    ca_file: str | None = None
    command: str | None = None
    code: str | None = None


class ConnectionOut(Out, kw_only=True):
    """A connection and how it stands. ``kind``, ``problem``, ``advice``: why it is down, and what helps.

    ``waiting``: how many messages wait to go there; ``oldest_at``: since when. All from ``target`` on is shown to admin
    alone."""

    name: str
    up: bool
    since: str
    speaks: str
    agents: int
    waiting: int
    oldest_at: str | None = None
    kind: str | None = None
    target: str | UnsetType = UNSET
    problem: str | None = None
    advice: str | None = None
    warning: str | None = None
    version: str | None = None
    away: str | UnsetType = UNSET
    share: list[str] | None = None
    accept: list[str] | None = None
    token_file: str | None = None
    token_variable: str | None = None
    user: str | None = None
    password_file: str | None = None
    password_variable: str | None = None
    ca_file: str | None = None
    command: str | None = None
    hub: str | None = None
    fixed: bool = False


class ConnectionsOut(Out, kw_only=True):
    """All of them, by name."""

    connections: list[ConnectionOut]


class DisconnectedOut(Out, kw_only=True):
    """Which connection was given up. ``ended``: how many messages that waited for it have ended; ``handed_over``: how
    many had been handed over there, whose outcome is not learned any more. Their senders see both as failed; each is
    left out where there are none."""

    removed: str
    ended: int = 0
    handed_over: int = 0


class PairingOut(Out, kw_only=True):
    """A code that another hub's owner types, once, while it is good."""

    code: str
    expires_in_seconds: float


class WrongField(ValueError):
    """What is wrong with one field: its name, words that go on after it, and what is allowed."""

    def __init__(self, field: str, problem: str, allowed: str) -> None:
        super().__init__(f"{field} {problem}; allowed: {allowed}")
        self.field, self.problem, self.allowed = field, problem, allowed


# ------------------------------------------------------------------------------------------------------------------- in


def read(name: str, fields: Mapping[str, object], *, fixed: bool = False) -> Connection:
    """A connection out of its fields; those that are None are not there. Raises ``WrongField``."""
    found: dict[str, Any] = {}
    for field, value in fields.items():
        if value is None:
            continue
        if field not in CHECKS:
            raise WrongField(field, "is nothing that a connection has", ", ".join(CHECKS))
        check, allowed = CHECKS[field]
        try:
            found[field] = check(value)
        except ValueError as error:
            raise WrongField(field, str(error), allowed) from None
    _go_together(found)
    return Connection(name=name, fixed=fixed, **found)


def _go_together(found: Mapping[str, object]) -> None:
    """Raise ``WrongField`` for two fields that do not fit, or one that lacks its other."""
    for one, other in (
        ("token_file", "token_variable"), ("password_file", "password_variable"),
        ("token_file", "user"), ("token_variable", "user"),
    ):  # fmt: skip
        if one in found and other in found:
            raise WrongField(other, f"is there together with {one}", "one way to sign in")
    password = "password_file" in found or "password_variable" in found
    if password != ("user" in found):
        here, needed = ("user", "password_file or password_variable") if not password else ("the password", "user")
        raise WrongField("user", f"and its password go together; there is {here} alone", needed)
    target = str(found.get("target", ""))
    forwarded = target.startswith("ssh:") and "?forward=" in target
    for field in ("token_file", "token_variable", "user"):
        if field in found and not (forwarded or target.startswith(("ws:", "wss:"))):
            raise WrongField(field, "goes with a target that one signs in at", "ws://, wss:// or ssh://…?forward=PORT")
    if "ca_file" in found and not target.startswith("wss:"):
        raise WrongField("ca_file", "goes with a target that shows a certificate", "wss://")
    if "command" in found and (forwarded or not target.startswith("ssh:")):
        raise WrongField("command", "is what ssh runs on the other side", "ssh:// without a forwarded port")


def check_target(value: object) -> str:
    """A target as it is kept; ``ValueError`` where it is none, or holds a secret."""
    text = _text(value) if value != "" else ""
    scheme, _, rest = text.partition(":")
    if scheme == "exec":
        _words(rest)
    elif scheme == "docker":
        if _CONTAINER.fullmatch(rest.removeprefix("//")) is None or not rest.startswith("//"):
            raise ValueError("names no container")
    elif scheme in ("ws", "wss", "ssh"):
        _check_url(text)
    elif scheme in ("http", "https"):
        raise ValueError(f"is an address for a browser; write {scheme.replace('http', 'ws')}:{rest}")
    elif text:
        raise ValueError(f"{without_password(text)[:80]!r} is no target")
    return text


def _check_url(text: str) -> None:
    if any(sign.isspace() for sign in text):
        raise ValueError("holds a space")
    try:
        url = urlsplit(text)
        asked = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
        port = url.port
    except ValueError:
        raise ValueError("is no address that can be read") from None
    if port == 0:
        raise ValueError("has port 0, at which nobody can be")
    if not text.startswith(f"{url.scheme}://") or _HOST.fullmatch(url.hostname or "") is None:
        raise ValueError("names no host")
    if url.password is not None or _SECRET_ARGUMENTS & asked.keys():
        raise ValueError("holds a secret, which does not belong there; put it into a file (0600) and name that")
    _check_rest(url, asked)


def _check_rest(url: SplitResult, asked: Mapping[str, str]) -> None:
    if url.fragment:
        raise ValueError("has something behind a '#', which means nothing here")
    if url.scheme != "ssh":
        if url.username is not None:
            raise ValueError("names a user; say that with user, and name the file of the password")
        if url.query:
            raise ValueError("has something behind a '?', which means nothing here")
        return
    if url.username is not None and not re.fullmatch(r"[A-Za-z0-9_.][A-Za-z0-9_.@\\-]*", url.username):
        raise ValueError("names no user that ssh could take")
    if url.path.strip("/"):
        raise ValueError("has a path; ssh takes USER@HOST:PORT")
    port = asked.get("forward", "1")
    if asked.keys() - {"forward"} or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise ValueError("has something behind a '?' that is not forward=PORT")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is no text")
    if not value.strip():
        raise ValueError("is empty")
    if len(value) > _LETTERS:
        raise ValueError(f"has more than {_LETTERS} letters")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in value):
        raise ValueError("holds a control character")
    return value.strip()


def _words(value: object) -> str:
    """A command, which is split as a shell would and never run by one."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("names no program")
    text = _text(value)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"cannot be split into words: {error}") from None
    if not words or not words[0]:
        raise ValueError("names no program")
    return text


def _path(value: object) -> str:
    text = _text(value)
    if not text.startswith("/"):
        raise ValueError(f"{text!r} depends on where it is read")
    return text


def _variable(value: object) -> str:
    if not isinstance(value, str) or _VARIABLE.fullmatch(value) is None:
        raise ValueError("is no name of a variable")
    return value


def _handles(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("is no list")
    try:
        return tuple(dict.fromkeys(check_handle(handle).lower() for handle in value))
    except BadName as error:
        raise ValueError(f"holds no name: {error.detail.removesuffix('.')}") from None


def _speaks(value: object) -> Speaks:
    try:
        return Speaks(value)  # type: ignore[arg-type]  # what is none of them raises, whatever it is
    except ValueError:
        raise ValueError(f"{value!r} is none of them") from None


def _away(value: object) -> Away:
    try:
        return Away(value)  # type: ignore[arg-type]  # as above
    except ValueError:
        raise ValueError(f"{value!r} is none of them") from None


_A_FILE, _A_VARIABLE = "an absolute path", "letters, digits and _"
_NAMES = "a list of agents' names"
# Every field that a connection may be given: how it is checked, and what is allowed.
CHECKS: dict[str, tuple[Callable[[object], object], str]] = {
    "target": (check_target, TARGETS),
    "speaks": (_speaks, ", ".join(Speaks)),
    "away": (_away, ", ".join(Away)),
    "share": (_handles, _NAMES),
    "accept": (_handles, _NAMES),
    "token_file": (_path, _A_FILE),
    "token_variable": (_variable, _A_VARIABLE),
    "user": (_text, "a user's name"),
    "password_file": (_path, _A_FILE),
    "password_variable": (_variable, _A_VARIABLE),
    "ca_file": (_path, _A_FILE),
    "command": (_words, "a command"),
}


# ------------------------------------------------------------------------------------------------------------------ out


def without_password(target: str) -> str:
    """A target, or any text with addresses, as it may be shown."""
    return _PASSWORD.sub(r"\1@", target)


def shown(condition: Condition, *, in_full: bool) -> ConnectionOut:
    """A connection as it is shown: ``in_full`` to admin."""
    connection = condition.connection
    found = ConnectionOut(
        name=connection.name,
        up=condition.up,
        since=rfc3339(condition.since),
        speaks=condition.speaks.value,
        agents=condition.agents,
        waiting=condition.waiting,
        oldest_at=None if condition.oldest_at is None else rfc3339(condition.oldest_at),
        kind=condition.kind,
    )
    if not in_full:
        return found
    return msgspec.structs.replace(
        found,
        target=without_password(connection.target),
        problem=condition.problem,
        advice=condition.advice,
        warning=condition.warning,
        version=condition.version,
        away=connection.away.value,
        share=None if connection.share is None else list(connection.share),
        accept=None if connection.accept is None else list(connection.accept),
        token_file=connection.token_file,
        token_variable=connection.token_variable,
        user=connection.user,
        password_file=connection.password_file,
        password_variable=connection.password_variable,
        ca_file=connection.ca_file,
        command=connection.command,
        hub=connection.hub,
        fixed=connection.fixed,
    )
