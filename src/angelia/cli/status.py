"""``angelia status``: one screen, what is wrong first.

What must stay true: it fits a terminal of 24 lines and 80 columns whatever the hub holds; what does not fit is counted.
A hub that is unwell ends it with 1 and none with 4, so that a script may ask.
"""

from __future__ import annotations

import os
import re
import sys

from angelia.cli import exits, parse, say, session
from angelia.cli.agents import presence
from angelia.cli.ages import age
from angelia.cli.show import colour, fitted, table, within
from angelia.cli.turns import in_a_line
from angelia.client.errors import HubError, NoHub

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.client.calls import Calls
    from angelia.settings import Settings

LINES, COLUMNS = 23, 80  # one line is left for the prompt
PROBLEMS = 6
HEADERS = ("AGENT", "STATE", "QUEUED", "OLDEST")
_LOG_BYTES = 16_384
_BROKEN = "could not be put right"  # as the hub says of its store: no hub gets over that by itself
_FAULT = re.compile(r" (?:error|critical): |\"level\": \"(?:error|critical)\"")


def run(argv: list[str], settings: Settings) -> int:
    """Print what is wrong, the hub, and its agents."""
    made = parse.parser("status", "Show what is wrong, the hub, and who is here. Ends with 1 when the hub is unwell.",
                        "angelia status\nangelia status --json | jq -r '.problems[]'")  # fmt: skip
    given = parse.parse(made, argv)
    try:
        way = session.anyone(settings)
        with way.looks() as hub:
            health = hub.health()
            status = hub.status()
            working = _working(hub)
            woken = {} if given.json else _woken(hub)
    except NoHub as error:
        if settings.hub_url:
            raise
        if not given.json and (words := _last_words(settings)):
            say.aside(words)
        if isinstance(error, session.NoHubHere):
            raise
        raise NoHub(error.where, f"{error.why}. Start it: {session.command(settings, 'up')}") from None
    well = health.get("status") == "ok" and not any(_BROKEN in _words(each) for each in status.get("problems") or [])
    if given.json:
        say.data({**status, "health": health})
        return exits.DONE if well else exits.NO
    lines = _problems(health, status, enabled=not settings.no_color)
    lines += _hub(health, status, str(way.address))
    lines += [fitted(working, COLUMNS)] if working else []
    lines += _agents(status, woken, LINES - len(lines))
    print("\n".join(lines))
    return exits.DONE if well else exits.NO


def _working(hub: Calls) -> str:
    """The turns that run, in a line; "" where none does, or whoever asks may not know."""
    try:
        return in_a_line(hub.turns())
    except HubError:
        return ""


def _woken(hub: Calls) -> dict[str, dict[str, Any]]:
    """The agents here that have an adapter, by name."""
    try:
        return {str(agent.get("handle")): agent for agent in hub.agents() if agent.get("adapter")}
    except HubError:
        return {}


def _last_words(settings: Settings) -> str:
    """By what fault a hub without a terminal ended, where it said so; else ""."""
    path = os.path.join(settings.data_dir, "hub.log")
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
            said = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    for line in reversed(said):
        if "the hub serves" in line or "the hub has stopped" in line:
            return ""
        if _FAULT.search(line):
            return f"the last hub ended so ({path}): {fitted(line, 200)}"
    return ""


def _problems(health: dict[str, Any], status: dict[str, Any], *, enabled: bool) -> list[str]:
    problems = [_words(problem) for problem in status.get("problems") or []]
    if health.get("status") != "ok":
        problems = [problem for problem in problems if problem != health.get("failing")]
        problems.insert(0, f"the hub is unwell: {health.get('failing') or health.get('status')}")
    if not problems:
        return [colour("All is well.", "green", sys.stdout, enabled=enabled)]
    more = len(problems) - PROBLEMS
    shown = [fitted(problem, COLUMNS) for problem in problems[: PROBLEMS if more <= 0 else PROBLEMS - 1]]
    if more > 0:
        shown.append(f"… and {len(problems) - len(shown)} more: angelia status --json")
    return [colour(line, "red", sys.stdout, enabled=enabled) for line in shown]


def _words(problem: object) -> str:
    if isinstance(problem, dict):
        return str(problem.get("text") or problem.get("detail") or problem.get("code") or problem)
    return str(problem)


def _hub(health: dict[str, Any], status: dict[str, Any], where: str) -> list[str]:
    lines = [
        f"Angelia {health.get('version', '')}, pid {status.get('pid')}, port {status.get('port')}, "
        f"up for {age(status.get('since') or health.get('since'))}; durability {status.get('durability', 'unknown')}",
        f"at {where}, data in {status.get('data_dir')}",
    ]
    counts = [f"{status.get('streams', 0)} listening"]
    for name, words in (("dead", "dead letters"), ("held", "held")):
        if name in status:
            counts.append(f"{status[name]} {words}")
    if isinstance(free := status.get("disk_free_bytes"), int):
        counts.append(f"{_size(free)} of disk free")
    lines.append(", ".join(counts))
    if links := status.get("connections"):
        up = sum(1 for link in links.values() if link.get("up"))
        lines.append(f"{up} of {len(links)} {'connection' if len(links) == 1 else 'connections'} up")
    if own := status.get("waiting_for_human"):
        lines.append(f"{own} {'message waits' if own == 1 else 'messages wait'} for you: angelia inbox")
    return [fitted(line, COLUMNS) for line in lines]


def _size(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB" if count >= 1024**3 else f"{count // 1024**2} MiB"


def _agents(status: dict[str, Any], woken: dict[str, dict[str, Any]], room: int) -> list[str]:
    queues = status.get("queues") or {}
    since = status.get("waiting_since") or {}
    online = {name for name, agent in (status.get("agents") or {}).items() if agent.get("online")}
    # First those with mail that nobody reads, since that is what may be wrong; then by their mail; then who is here.
    names = sorted(
        {*queues, *(status.get("agents") or {})},
        key=lambda name: (
            not (queues.get(name) and name not in online),
            -int(queues.get(name, 0)),
            name not in online,
            name,
        ),
    )
    fitting = room - 2  # an empty line and the headers
    shown = names if len(names) <= fitting else names[: fitting - 1]
    rows = [
        (
            name,
            presence("online" if name in online else "away", woken.get(name, {})),
            str(queues.get(name, 0)),
            age(since.get(name)) if queues.get(name) else "",
        )
        for name in shown
    ]
    lines = ["", *table(within(rows, HEADERS, COLUMNS, names=(0,)), HEADERS).splitlines()] if rows else []
    if len(names) > len(shown):
        left = names[len(shown) :]
        waiting = sum(1 for name in left if queues.get(name))
        lines.append(f"… and {len(left)} more, {waiting} of them with mail: angelia agents")
    return lines
