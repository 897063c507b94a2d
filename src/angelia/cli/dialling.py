"""What ``angelia connect`` and ``angelia pair`` share: how a connection is described on the command line, and told.

What must stay true: no secret is an argument; a file is named by a whole path, since the hub reads it, and has to be
there; where it holds a secret nobody else can use it. A connection that is kept and does not stand ends the command
with 1, with what is wrong and what to do.
"""

from __future__ import annotations

import os
import shlex
import stat

from angelia.cli import exits, say
from angelia.cli.exits import Refused, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from angelia.client.calls import Calls

TARGETS = "ws://HOST, wss://HOST, ssh://USER@HOST, exec:COMMAND or docker://CONTAINER"
# In the order in which they are said of a connection that is down.
KINDS = {
    "unreachable": "it cannot be reached",
    "refused": "it does not let this hub in",
    "wrong_version": "it does not speak as this hub does",
}


def add_arguments(made: ArgumentParser) -> None:
    """The options that ``fields`` reads."""
    token = made.add_mutually_exclusive_group()
    token.add_argument("--token-file", metavar="F", help="the file (0600) with the token that opens a Hermes gateway")
    token.add_argument("--token-variable", metavar="VARIABLE", help="or the variable of the hub's environment with it")
    made.add_argument("--user", metavar="USER", help="who signs in there, with a password")
    password = made.add_mutually_exclusive_group()
    password.add_argument("--password-file", metavar="F", help="with --user: the file (0600) with the password")
    password.add_argument("--password-variable", metavar="VARIABLE", help="or the variable of the hub's environment")
    made.add_argument("--ca", metavar="F", help="with wss://: the certificates of a CA of your own")
    made.add_argument("--speaks", choices=("hub", "hermes"), help="what is there, where it cannot be found out")
    made.add_argument("--away", choices=("wait", "refuse"), help="what mail does while it is down (wait)")
    made.add_argument("--share", metavar="LIST", type=_names, help="only these agents are seen there: scout,ann")
    made.add_argument("--accept", metavar="LIST", type=_names, help="only these agents of theirs are seen here")
    made.add_argument("--command", metavar="LINE", help="with ssh://: what is run there, where angelia is not found")


def fields(given: Namespace) -> dict[str, Any]:
    """The options as ``Calls.connect`` takes them. Raises ``UsageError``, and ``Refused`` for a secret that others can
    use."""
    if bool(given.user) != bool(given.password_file or given.password_variable):
        raise UsageError("--user goes with --password-file or --password-variable")
    if given.user and (given.token_file or given.token_variable):
        raise UsageError("give a token or a user, not both")
    return {
        "speaks": given.speaks,
        "away": given.away,
        "share": given.share,
        "accept": given.accept,
        "token_file": _secret(given.token_file),
        "token_variable": given.token_variable,
        "user": given.user,
        "password_file": _secret(given.password_file),
        "password_variable": given.password_variable,
        "ca_file": _file(given.ca),
        "command": given.command,
    }


def check_name(name: str) -> None:
    """Raise ``UsageError``, which says what a name is, where a connection cannot be called so."""
    from angelia.model.address import check_handle  # noqa: PLC0415 - for these commands alone
    from angelia.model.errors import BadName  # noqa: PLC0415

    try:
        check_handle(name, "connection")
    except BadName as error:
        raise UsageError(error.detail) from None


def connect(hub: Calls, given: Namespace, code: str | None = None) -> int:
    """Make the connection and say how it stands; the exit code."""
    name = given.connection.lower()
    before = next((each for each in hub.connections() if str(each.get("name")).lower() == name), None)
    made = hub.connect(given.connection, given.target or "", code=code, **fields(given))
    done = bool(made.get("up")) or not given.target
    if given.json:
        say.data(made)
    elif made.get("up"):
        say.line(f"{made['name']} is up: {_what(made)}")
        _advise_of_agents(made, is_new=before is None)
    elif not given.target:
        say.line(f"{made['name']} is kept; it is up whenever the other side dials")
    else:
        say.line(f"{made['name']} is kept, but {why(made)}")
        if made.get("advice"):
            say.aside(str(made["advice"]))
        say.aside("it is tried again by itself; angelia connections shows how it stands")
    if before is not None and not given.json:
        _tell_of_change(given, before, str(made["name"]))
    if made.get("warning") and not given.json:
        say.aside(str(made["warning"]))
    return exits.DONE if done else exits.NO


def _tell_of_change(given: Namespace, before: dict[str, Any], name: str) -> None:
    """What the one that was replaced was, and is not any more."""
    if before.get("target") and before["target"] != given.target:
        say.aside(f"{name} led to {before['target']} until now")
    gone = [
        f"--{option} {shlex.quote(','.join(before[option]))}"
        for option in ("share", "accept")
        if before.get(option) is not None and getattr(given, option) is None
    ]
    gone += ["--away refuse"] if before.get("away") == "refuse" and given.away is None else []
    if gone:
        say.aside(f"{name} had {' '.join(gone)} until now; give that again to keep it")


def why(made: dict[str, Any]) -> str:
    """In a sentence or two, why a connection is down."""
    kind = KINDS.get(str(made.get("kind")), "it is down")
    return f"{kind}: {made['problem']}" if made.get("problem") else kind


def _what(made: dict[str, Any]) -> str:
    kind = "a gateway of Hermes'" if made.get("speaks") == "hermes" else "a hub"
    version = f", version {made['version']}" if made.get("version") else ""
    return f"{kind}{version}"


def _advise_of_agents(made: dict[str, Any], *, is_new: bool) -> None:
    # What is known of one that was replaced is from before, until its agents are told anew.
    count = int(made.get("agents") or 0) if is_new else 0
    known = (
        f"{count} {'agent is' if count == 1 else 'agents are'} known there" if count else "its agents come in a moment"
    )
    say.aside(f"{known}: angelia agents; write to one by its name, or as NAME@{made['name']}")


def _file(path: str | None) -> str | None:
    if path is None:
        return None
    found = os.path.abspath(os.path.expanduser(path))
    if not os.path.isfile(found):
        raise UsageError(f"there is no file {found}")
    return found


def _secret(path: str | None) -> str | None:
    """The file of a secret, which the hub will read: it takes none that others than its user can use."""
    found = _file(path)
    if found is None:
        return None
    status, user = os.stat(found), os.geteuid()
    if status.st_uid not in (user, 0):
        mend = f"chown {user} {shlex.quote(found)}"
        raise Refused(f"{found} belongs to another user (uid {status.st_uid}); nothing was changed; {mend}")
    if (mode := stat.S_IMODE(status.st_mode)) & 0o077:
        raise Refused(f"others can use {found} (mode {mode:o}); nothing was changed; chmod 600 {shlex.quote(found)}")
    return found


def _names(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]
