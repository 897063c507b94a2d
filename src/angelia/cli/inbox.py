"""``angelia inbox``: look at a mailbox, and change nothing.

What must stay true: looking takes nothing and marks nothing. What the filter hides, and how old the oldest unread is,
is always said, so that "nothing here" is never mistaken for "nothing waits".
"""

from __future__ import annotations

import json

from angelia.cli import exits, parse, say, session
from angelia.cli.ages import age, before
from angelia.cli.show import NAME, fitted, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

LETTERS = 160  # of a text in its line; how much more there is, is said
HEADERS = ("AGE", "FROM", "STATE", "ID", "TEXT")


def run(argv: list[str], settings: Settings) -> int:
    """Print the mail, oldest first."""
    made = parse.parser(
        "inbox",
        "Look at your mail, oldest first. This takes nothing: the same again shows the same.",
        "angelia inbox --as scout\nangelia inbox --from hermes --json | jq -r '.deliveries[].message.text'",
    )
    made.add_argument("--state", metavar="STATE", help="only what is queued, leased, held, delivered, failed …")
    made.add_argument("--from", dest="sender", metavar="NAME", help="only what this one sent")
    made.add_argument("--limit", metavar="N", type=parse.count, help="how many at most")
    made.add_argument("--after", metavar="PLACE", help="go on after this place, which the last page named")
    given = parse.parse(made, argv)
    way = session.caller(settings)
    with way.looks() as hub:
        page = hub.inbox(after=given.after, limit=given.limit, state=given.state, sender=given.sender)
    if given.json:
        say.data(page)
        return exits.DONE
    found = page.get("deliveries") or []
    if found:
        say.lines(table([row(delivery) for delivery in found], HEADERS))
    told = _summary(page, len(found))
    if way.name == session.OWNER and page.get("oldest_unread_at"):
        told.append("take the next: angelia listen --once")
    say.line("; ".join(told))
    return exits.DONE


def row(delivery: dict[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    message = delivery.get("message") or {}
    sender = fitted(str(message.get("from", "")), NAME) + ("" if message.get("verified") else " (unproved)")
    return (
        age(message.get("created_at")), sender, str(delivery.get("state", "")), str(message.get("id", "")),
        short(message),
    )  # fmt: skip


def short(message: dict[str, Any]) -> str:
    """A message in part of a line, with the number of letters that do not fit."""
    text = message.get("text")
    shown = text if isinstance(text, str) else json.dumps(message.get("body"), ensure_ascii=False)
    more = len(shown) - LETTERS
    return shown if more <= 0 else f"{shown[:LETTERS]} … and {more} more: angelia message {message.get('id')}"


def _summary(page: dict[str, Any], shown: int) -> list[str]:
    told = [f"{shown} shown" if shown else "nothing here", f"{page.get('total', 0)} open"]
    if page.get("hidden"):
        told[-1] += f", {page['hidden']} of them hidden by the filter"
    oldest = before(page.get("oldest_unread_at"))
    told.append(f"the oldest unread came {oldest}" if oldest else "none unread")
    if page.get("next") is not None:
        told.append(f"more: --after {page['next']}")
    return told
