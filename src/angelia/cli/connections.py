"""``angelia connections``: the other hubs and gateways, how each stands, and what is wrong with it.

What must stay true: the table fits a terminal's width. What is wrong stands below it, with what to do about it. Who is
not the owner sees no way to another machine.
"""

from __future__ import annotations

from angelia.cli import exits, parse, say, session
from angelia.cli.ages import age
from angelia.cli.dialling import why
from angelia.cli.show import table, visible, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

COLUMNS = 80
HEADERS = ("NAME", "STATE", "AGENTS", "WAITING", "TARGET")


def run(argv: list[str], settings: Settings) -> int:
    """List them, and what is wrong."""
    made = parse.parser(
        "connections",
        "List the connections to other hubs and gateways: whether each is up and since when, how many agents are\n"
        "known behind it, how much mail waits to go there and for how long. What is wrong stands below, with what\n"
        "to do.",
        "angelia connections\nangelia connections --json | jq -r '.connections[] | select(.up | not).name'",
    )
    made.add_argument("connection", metavar="CONNECTION", nargs="?", help="this one alone")
    given = parse.parse(made, argv)
    with session.anyone(settings).looks() as hub:
        found = hub.connections()
    if given.connection:
        found = [each for each in found if each.get("name") == given.connection]
        if not found:
            say.fault("not_found", f"no connection is called {given.connection}", as_json=given.json)
            return exits.NO
    if given.json:
        say.data({"connections": found})
    elif not found:
        say.line("no connections; make one: angelia connect, or angelia pair")
    else:
        rows = within([row(each) for each in found], HEADERS, COLUMNS, names=(0, 4))
        say.lines(table(rows, HEADERS))
        for each in found:
            _tell(each)
    return exits.DONE


def row(connection: dict[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    waiting = str(connection.get("waiting") or 0)
    if connection.get("waiting") and connection.get("oldest_at"):
        waiting += f" ({age(connection['oldest_at'])})"
    target = connection.get("target")
    return (
        str(connection.get("name", "")),
        state(connection),
        str(connection.get("agents", "")),
        waiting,
        "(it dials us)" if target == "" else str(target or ""),
    )


def state(connection: dict[str, Any]) -> str:
    """``up 3 h`` or ``down 5 min``."""
    return f"{'up' if connection.get('up') else 'down'} {age(connection.get('since'))}"


def _tell(connection: dict[str, Any]) -> None:
    """What is wrong with it, wrapped to the terminal's width; nothing where all is well."""
    from textwrap import wrap  # noqa: PLC0415 - only where something is wrong

    told = [f"{connection.get('name')}: {connection['warning']}"] if connection.get("warning") else []
    if not connection.get("up") and connection.get("kind"):
        told.append(f"{connection.get('name')}: {why(connection)}")
        told += [f"→ {connection['advice']}"] if connection.get("advice") else []
    if told:
        say.line("")
    for words in told:
        for line in wrap(visible(words, multiline=False), COLUMNS, subsequent_indent="  "):
            say.line(line)
