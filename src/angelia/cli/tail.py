"""``angelia tail``: all that happens at the hub, a line each, for ever.

What must stay true: it outlives the hub and goes on when that is back. One event is one line, whatever a peer wrote;
colour only on a terminal. What was missed is said.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime

from angelia.cli import exits, parse, say, session
from angelia.cli.show import colour, visible
from angelia.client.client import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.cli.show import Colour
    from angelia.settings import Settings

LAST = 10
_WIDTH = 13
_COLOURS: dict[str, Colour] = {
    "failed": "red", "dead": "red", "refused": "red", "held": "yellow", "returned": "yellow", "delivered": "green",
    "answered": "green", "connected": "blue", "disconnected": "blue",
}  # fmt: skip


def run(argv: list[str], settings: Settings) -> int:
    """Follow what happens."""
    made = parse.parser(
        "tail",
        "Show all that happens at the hub, as it happens: what is accepted, handed over, answered, refused; who comes\n"
        "and who goes. It ends when it is told to, and goes on when a hub that was away is back.",
        "angelia tail\nangelia tail --agent scout\nangelia tail --json | jq -r 'select(.event == \"refused\").detail'",
    )
    made.add_argument("--agent", metavar="NAME", help="only what this one has a part in")
    made.add_argument(
        "--last", metavar="N", type=_count, default=LAST, help=f"first so many that happened before ({LAST})"
    )
    given = parse.parse(made, argv)
    way = session.owner(settings)
    hub = Client(way.address, token=way.token)
    with hub, hub.events(agent=given.agent, last=given.last, notice=say.aside) as stream:
        for item in stream:
            _tell(item.kind, item.data, as_json=given.json, enabled=not settings.no_color)
    return exits.DONE


def _count(word: str) -> int:
    return 0 if word == "0" else parse.count(word)


def _tell(kind: str, data: dict[str, Any], *, as_json: bool, enabled: bool) -> None:
    if kind == "bye":
        return
    if as_json:
        say.data({"event": kind, **data})
    elif kind == "lagged":
        say.aside(f"{data.get('missed')} events were missed: more happens than can be shown here")
    elif kind == "reset":
        say.aside("the hub was restarted; what happened meanwhile is not shown")
    else:
        told = f"{kind:<{_WIDTH}}"
        what = colour(told, _COLOURS[kind], sys.stdout, enabled=enabled) if kind in _COLOURS else visible(told)
        print(f"{_time(data.get('at'))}  {what} {visible(words(data), multiline=False)}")
    sys.stdout.flush()


def words(data: dict[str, Any]) -> str:
    """An event in one line, without when and what."""
    if data.get("id") is None:
        return " ".join(str(data[name]) for name in ("agent", "detail") if data.get(name))
    told = [f"{data.get('from')} → {data.get('to')}"]
    if (data.get("attempt") or 0) > 1:
        told.append(f"at attempt {data['attempt']}")
    told += [str(data[name]) for name in ("reason",) if data.get(name)]
    if data.get("late"):
        told.append("late")
    told.append(str(data["id"]))
    if data.get("text"):
        told.append(json.dumps(str(data["text"]), ensure_ascii=False) + (" …" if data.get("cut") else ""))
    return "  ".join(told)


def _time(stamp: object) -> str:
    """The time of day here."""
    try:
        return datetime.fromisoformat(str(stamp)).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return "--:--:--"
