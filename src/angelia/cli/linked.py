"""What ``angelia doctor`` looks at of the connections: whether each is up, and what would mend one that is down.

What must stay true: nothing is dialled; the hub says how each stands. One that cannot be reached may only be switched
off, which is doubtful; one that was refused, or is not understood, does not mend itself, which is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from angelia.cli import session
from angelia.cli.checks import DOUBTFUL, OK, WRONG, Finding
from angelia.cli.connections import state
from angelia.cli.dialling import why
from angelia.client.calls import Calls
from angelia.client.errors import ClientError
from angelia.client.find import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

_ANSWER_SECONDS = 5.0


def linked(socket: Address, settings: Settings) -> Iterator[Finding]:
    """One finding for each connection."""
    with Calls(socket, answer_seconds=_ANSWER_SECONDS) as hub:
        try:
            connections = hub.connections()
        except ClientError as error:
            yield Finding("connections", WRONG, f"the hub does not list them: {error}", "look at the hub's log")
            return
    for connection in connections:
        yield _found(connection, settings)


def _found(connection: dict[str, Any], settings: Settings) -> Finding:
    name = f"connection {connection.get('name')}"
    if connection.get("up"):
        if connection.get("warning"):
            return Finding(name, DOUBTFUL, str(connection["warning"]), "let one relay do the work there")
        return Finding(name, OK, f"{state(connection)}, {connection.get('agents', 0)} agents known behind it")
    if not connection.get("target"):
        return Finding(name, OK, f"{state(connection)}; only the other side dials")
    kind = DOUBTFUL if connection.get("kind") in (None, "unreachable") else WRONG
    text = f"{state(connection)}; {why(connection)}"
    showing = f"{session.command(settings, 'connections')} shows how it stands"
    return Finding(name, kind, text, str(connection.get("advice") or showing))
