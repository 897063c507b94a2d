"""``angelia status``: one screen, what is wrong first.

What must stay true: it fits a screen whatever the hub holds; what does not fit is counted. An unwell hub ends it with
1, so that a script may ask.
"""

from __future__ import annotations

import sys

from angelia.cli import exits, parse, say, session
from angelia.cli.ages import age
from angelia.cli.show import colour, table, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

ROWS = 12
PROBLEMS = 5
HEADERS = ("AGENT", "STATE", "QUEUED", "OLDEST")


def run(argv: list[str], settings: Settings) -> int:
    """Print what is wrong, the hub, and its agents."""
    made = parse.parser("status", "Show what is wrong, the hub, and who is here. Ends with 1 when the hub is unwell.",
                        "angelia status\nangelia status --json | jq .queues")  # fmt: skip
    given = parse.parse(made, argv)
    way = session.anyone(settings)
    with way.calls() as hub:
        health = hub.health()
        status = hub.status()
        roster = hub.agents()
    well = health.get("status") == "ok"
    if given.json:
        say.data({**status, "health": health})
        return exits.DONE if well else exits.NO
    _print_problems(health, status, enabled=not settings.no_color)
    _print_hub(health, status, str(way.address))
    _print_agents(status, {str(agent.get("handle")): agent for agent in roster})
    return exits.DONE if well else exits.NO


def _print_problems(health: dict[str, Any], status: dict[str, Any], *, enabled: bool) -> None:
    problems = [_words(problem) for problem in status.get("problems") or []]
    if health.get("status") != "ok":
        problems = [problem for problem in problems if problem != health.get("failing")]
        problems.insert(0, f"the hub is unwell: {health.get('failing') or health.get('status')}")
    for problem in problems[:PROBLEMS]:
        print(colour(visible(problem, multiline=False), "red", sys.stdout, enabled=enabled))
    if len(problems) > PROBLEMS:
        print(colour(f"and {len(problems) - PROBLEMS} more: angelia status --json", "red", sys.stdout, enabled=enabled))


def _words(problem: object) -> str:
    if isinstance(problem, dict):
        return str(problem.get("text") or problem.get("detail") or problem.get("code") or problem)
    return str(problem)


def _print_hub(health: dict[str, Any], status: dict[str, Any], where: str) -> None:
    since = status.get("since") or health.get("since")
    durability = health.get("durability") or status.get("durability") or "unknown"
    say.line(f"Angelia {health.get('version', '')} at {where}, up for {age(since)}, since {since}")
    say.line(
        f"durability {durability}, pid {status.get('pid')}, port {status.get('port')}, data in {status.get('data_dir')}"
    )


def _print_agents(status: dict[str, Any], roster: dict[str, dict[str, Any]]) -> None:
    queues = status.get("queues") or {}
    online = {name for name, agent in (status.get("agents") or {}).items() if agent.get("online")}
    # Those with the most mail first, since that is what may be wrong; then who is here.
    names = sorted(
        {*queues, *(status.get("agents") or {})},
        key=lambda name: (-int(queues.get(name, 0)), name not in online, name),
    )
    rows = [
        (name, "online" if name in online else "away", str(queues.get(name, 0)),
         age(roster.get(name, {}).get("oldest_unread_at")))
        for name in names[:ROWS]
    ]  # fmt: skip
    if rows:
        print()
        print(table(rows, HEADERS))
    if len(names) > ROWS:
        waiting = sum(1 for name in names[ROWS:] if queues.get(name))
        say.line(f"and {len(names) - ROWS} more, {waiting} of them with mail: angelia agents")
