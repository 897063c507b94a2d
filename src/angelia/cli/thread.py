"""``angelia thread``: a whole conversation, as people read it.

What must stay true: what somebody wrote is set in, so that no text can pass for the line that says who wrote it. It is
shown whole.
"""

from __future__ import annotations

import json

from angelia.cli import exits, parse, say, session
from angelia.cli.ages import before
from angelia.cli.show import visible
from angelia.client.errors import HubError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from angelia.client.calls import Calls
    from angelia.settings import Settings

PAGE = 100
MARGIN = "    "


def run(argv: list[str], settings: Settings) -> int:
    """Print a conversation from its beginning."""
    made = parse.parser(
        "thread",
        "Show a whole conversation, from its beginning. The id of any message of it will do.",
        "angelia thread 0197f0c2a4b17c3e8d21f6a09b5e4c77",
    )
    made.add_argument(
        "message", metavar="ID", type=parse.message_id, help="a message of it, or the conversation itself"
    )
    given = parse.parse(made, argv)
    with session.caller(settings).calls() as hub:
        if given.json:
            whole = list(pages(hub, given.message))
            rows = [row for page in whole for row in page["messages"]]
            say.data({"thread": whole[0]["thread"], "messages": rows, "next": None})
            return exits.DONE
        for number, page in enumerate(pages(hub, given.message)):
            if number == 0:
                say.line(f"conversation {page['thread']}")
            for row in page["messages"]:
                _print(row)
    return exits.DONE


def notices(hub: Calls, message_id: str) -> list[str]:
    """What the hub wrote of a message that failed, as often as it did; it says more than the reason. None: []."""
    try:
        said = [row.get("message") or {} for page in pages(hub, message_id) for row in page.get("messages") or []]
    except HubError:
        return []
    return [str(each.get("text") or "") for each in said if each.get("about") == message_id and each.get("reason")]


def pages(hub: Calls, message_id: str) -> Iterator[dict[str, Any]]:
    """A conversation from its beginning, a page after the other."""
    after: int | None = None
    while True:
        page = hub.thread(message_id, after=after, limit=PAGE)
        yield page
        after = page.get("next")
        if after is None:
            return


def _print(row: dict[str, Any]) -> None:
    message = row.get("message") or {}
    say.line("")
    say.line(head(message, row.get("states") or {}))
    if message.get("text") is not None:
        _print_set_in(str(message["text"]))
    if "body" in message:
        _print_set_in(json.dumps(message["body"], ensure_ascii=False, indent=2))


def head(message: dict[str, Any], states: dict[str, int]) -> str:
    """Who said it to whom, when, and what became of it."""
    proof = "" if message.get("verified") else " (unproved)"
    kind = "" if message.get("kind") in (None, "message") else f"{message['kind']}, "
    became = ", ".join(state if count == 1 else f"{count} {state}" for state, count in states.items())
    when = before(message.get("created_at"))
    return f"{kind}{message.get('from')}{proof} to {message.get('to')}, {when}, {became}  {message.get('id')}"


def _print_set_in(text: str) -> None:
    for line in visible(text).split("\n"):
        print(f"{MARGIN}{line}".rstrip())
