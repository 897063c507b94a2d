"""``angelia pair``: two hubs learn each other's key, by a short code read from one screen and typed at the other.

What must stay true: the code is never an argument, where other users of the machine could read it: it is typed at the
terminal, or comes on stdin. What is shown here says exactly what to do over there.
"""

from __future__ import annotations

import os
import socket as sockets
import sys

from angelia.cli import dialling, exits, parse, say, session
from angelia.cli.show import colour

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from angelia.settings import Settings

MOST_BYTES = 200  # of a line that is to hold a code
_LOOPBACK = ("127.", "localhost", "[::1]")
_ANY = ("0.0.0.0", "[::]")  # every address of this machine


def run(argv: list[str], settings: Settings) -> int:
    """Show a code; or, with a name and a target, take one and connect."""
    made = parse.parser(
        "pair",
        "Pair this hub with another one. Alone it shows a code, and what to type at the other hub. With a name\n"
        "and a target it asks for the code that the other hub shows, or reads it from stdin, and connects.",
        "angelia pair\nangelia pair garage wss://garage.example:18900",
    )
    made.add_argument("connection", metavar="CONNECTION", nargs="?", help="what the other hub is called here")
    made.add_argument("target", metavar="TARGET", nargs="?", help="where it is: wss://HOST:PORT, ws://HOST:PORT")
    dialling.add_arguments(made)
    given = parse.parse(made, argv)
    if given.connection is None:
        return _offer(given, settings)
    if not given.target:
        raise exits.UsageError(f"say where {given.connection} is: angelia pair {given.connection} wss://HOST:PORT")
    dialling.check_name(given.connection)
    dialling.fields(given)
    way = session.owner(settings)
    code = _asked()
    with way.calls() as hub:
        return dialling.connect(hub, given, code)


def _offer(given: Namespace, settings: Settings) -> int:
    if any(value is not None for value in dialling.fields(given).values()):
        raise exits.UsageError("options go with a name and a target; angelia pair alone shows a code")
    with session.owner(settings).looks() as hub:
        answer = hub.pairing_code()
    targets = _targets(settings)
    if given.json:
        say.data({**answer, "name": settings.hub_name, "targets": targets})
        return exits.DONE
    code = colour(str(answer["code"]), "bold", sys.stdout, enabled=not settings.no_color)
    print(f"\n        {code}\n")
    _explain(settings, targets, answer)
    return exits.DONE


def _explain(settings: Settings, targets: list[str], answer: dict[str, Any]) -> None:
    minutes = max(1, round(float(answer.get("expires_in_seconds") or 0) / 60))
    say.line(f"Type it at the other hub within {minutes} min; it is good once. There:")
    say.line("")
    for target in targets:
        say.line(f"  angelia pair {settings.hub_name} {target}")
    if not _from_elsewhere(settings):
        say.line("")
        say.line("Only hubs of this machine get there: this one listens on loopback alone. From")
        say.line("another machine there is ssh, which takes no code:")
        say.line("")
        say.line(f"  angelia connect {settings.hub_name} ssh://{_user()}@{sockets.gethostname()}")


def _targets(settings: Settings) -> list[str]:
    """Where another hub may find this one, as far as this one knows."""
    return list(dict.fromkeys(_from_elsewhere(settings))) or _from_here(settings)


def _from_elsewhere(settings: Settings) -> list[str]:
    """Those that lead here from other machines, too."""
    found: list[str] = []
    for url in session.addresses(settings):
        scheme, host, port = _parts(url)
        if not host.startswith(_LOOPBACK):
            found += [f"{scheme}://{name}:{port}" for name in settings.allowed_hosts]
        elif settings.behind_proxy:
            found += [f"wss://{name}" for name in settings.allowed_hosts]
    return found


def _from_here(settings: Settings) -> list[str]:
    """Those of this machine alone. A certificate names hosts, so with TLS they are those that are allowed."""
    urls = session.addresses(settings)
    scheme, host, port = _parts(urls[0]) if urls else ("ws", "127.0.0.1", str(settings.port))
    names = list(settings.allowed_hosts) if scheme == "wss" else []
    return [f"{scheme}://{name}:{port}" for name in names or ["127.0.0.1" if host in _ANY else host]]


def _parts(url: str) -> tuple[str, str, str]:
    """The scheme of a hub's target, the host and the port of an address of ours."""
    scheme, _, rest = url.partition("://")
    host, _, port = rest.rpartition(":")
    return scheme.replace("http", "ws"), host, port


def _user() -> str:
    import pwd  # noqa: PLC0415 - only for this sentence

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "USER"


def _asked() -> str:
    """The code, from the terminal or as one line of stdin."""
    if sys.stdin is None:
        raise exits.UsageError("there is no stdin to read the code from")
    if sys.stdin.isatty():
        print("The code that the other hub shows (angelia pair, over there): ", end="", file=sys.stderr, flush=True)
    code = sys.stdin.buffer.readline(MOST_BYTES).decode("ascii", "replace").strip().upper()
    if not code:
        raise exits.UsageError("no code came; the other hub shows one: angelia pair, over there")
    return code
