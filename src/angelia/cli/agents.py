"""``angelia agents``: everyone who can be reached, here and elsewhere."""

from __future__ import annotations

from angelia.cli import exits, parse, say, session
from angelia.cli.ages import age
from angelia.cli.show import fitted, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

HEADERS = ("AGENT", "PRESENCE", "QUEUED", "OLDEST", "WHAT IT IS")
WORDS = 80  # letters of what an agent says of itself; --json has all of it


def run(argv: list[str], settings: Settings) -> int:
    """Print the roster."""
    made = parse.parser("agents", "List everyone who can be reached, with presence and what waits for them.",
                        "angelia agents\nangelia agents --json | jq -r '.agents[].handle'")  # fmt: skip
    given = parse.parse(made, argv)
    with session.anyone(settings).looks() as hub:
        found = hub.agents()
    if given.json:
        say.data({"agents": found})
    elif not found:
        say.line("nobody yet")
    else:
        say.lines(table([row(agent) for agent in found], HEADERS))
    return exits.DONE


def row(agent: dict[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    name = str(agent.get("handle", ""))
    connection = agent.get("connection")
    here = connection in (None, "", "local", "@local")
    if not here:
        name = f"{name}@{connection}"
    what = " - ".join(str(agent[key]) for key in ("title", "description") if agent.get(key))
    how = presence(str(agent.get("presence") or ""), agent) + (" (open)" if here and not agent.get("keyed") else "")
    # The hub's time is that of what is in hand, too.
    oldest = age(agent.get("oldest_unread_at")) if agent.get("queued") else ""
    return name, how.strip(), str(agent.get("queued", "")), oldest, fitted(what, WORDS)


def presence(word: str, agent: dict[str, Any]) -> str:
    """Whether it is there, and by what kind of adapter it is woken."""
    waked_by = agent.get("adapter")
    return f"{word}, {waked_by.get('kind')}" if isinstance(waked_by, dict) else word
