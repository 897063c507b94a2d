"""What ``angelia doctor`` looks at of the agents that the hub wakes: is their program there, and would a turn work.

What must stay true: no turn is run; the hub looks as it would for a turn, and says what it saw.
"""

from __future__ import annotations

from collections.abc import Iterator

from angelia.cli import session
from angelia.cli.checks import DOUBTFUL, OK, WRONG, Finding
from angelia.client.calls import Calls
from angelia.client.errors import ClientError
from angelia.client.find import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

_ANSWER_SECONDS = 5.0


def woken(socket: Address, settings: Settings) -> Iterator[Finding]:
    """One finding for each agent that has an adapter."""
    with Calls(socket, answer_seconds=_ANSWER_SECONDS) as hub:
        try:
            agents = hub.agents()
        except ClientError as error:
            yield Finding("agents", WRONG, f"the hub does not list them: {error}", "look at the hub's log")
            return
        for agent in agents:
            if agent.get("adapter"):
                yield _found(hub, str(agent.get("handle")), settings)


def _found(hub: Calls, handle: str, settings: Settings) -> Finding:
    name = f"agent {handle}"
    join, wake = (session.command(settings, f"{word} {handle}") for word in ("join", "wake"))
    try:
        seen = hub.check_agent(handle)
    except ClientError as error:
        return Finding(name, WRONG, f"it cannot be looked at: {error}", f"join it anew: {join}")
    if seen.get("problem"):
        return Finding(name, WRONG, f"{_what(seen)}: {seen['problem']}", f"then try it: {wake}")
    notes = [str(note) for note in seen.get("notes") or []]
    text = "; ".join([f"{_what(seen)}, by {_ways(seen)}", *notes])
    return Finding(name, DOUBTFUL if notes else OK, text, f"try it: {wake}" if notes else "")


def _what(seen: dict[str, Any]) -> str:
    told = [str(seen[key]) for key in ("program", "version") if seen.get(key)]
    return " ".join([str(seen.get("kind")), *([f"({' '.join(told)})"] if told else [])])


def _ways(seen: dict[str, Any]) -> str:
    ways = [str(way) for way in seen.get("ways") or []]
    return ways[0] + (f", else {' or '.join(ways[1:])}" if ways[1:] else "") if ways else "no way at all"
