"""``angelia threads``: the conversations there are, the latest first."""

from __future__ import annotations

from angelia.cli import exits, parse, say, session
from angelia.cli.ages import age
from angelia.cli.show import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

LIMIT = 20
PEOPLE = 4
HEADERS = ("AGE", "MESSAGES", "WHO", "ID", "LAST")


def run(argv: list[str], settings: Settings) -> int:
    """List conversations, each with its last message."""
    made = parse.parser(
        "threads",
        "List conversations, the one with the latest message first.",
        "angelia threads\nangelia threads --as scout --limit 5 --json | jq -r '.threads[].thread'",
    )
    made.add_argument("--limit", metavar="N", type=parse.count, default=LIMIT, help=f"how many at most ({LIMIT})")
    made.add_argument("--before", metavar="PLACE", type=parse.count, help="go on before this place of the list")
    given = parse.parse(made, argv)
    page: dict[str, Any] = {"threads": [], "next": given.before}
    with session.caller(settings).calls() as hub:
        while True:  # a page may be short, and only the one without a next is the last
            found = hub.threads(before=page["next"], limit=min(given.limit - len(page["threads"]), 100))
            page = {"threads": page["threads"] + found["threads"], "next": found["next"]}
            if page["next"] is None or len(page["threads"]) >= given.limit:
                break
    if given.json:
        say.data(page)
        return exits.DONE
    if page["threads"]:
        say.lines(table([row(talk) for talk in page["threads"]], HEADERS))
    else:
        say.line("no conversations")
    if page["next"] is not None:
        say.line(f"more: --before {page['next']}")
    return exits.DONE


def row(talk: dict[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    last = talk.get("last") or {}
    people = [str(name) for name in talk.get("people") or []]
    more = len(people) - PEOPLE
    who = ", ".join(people[:PEOPLE]) + (f" and {more} more" if more > 0 else "")
    count = f"{talk.get('messages', '')}{'+' if talk.get('more') else ''}"
    said = str(last.get("text") or "")
    if last.get("left_out"):
        said += f" … and {last['left_out']} letters more"
    return age(last.get("created_at")), count, who, str(talk.get("thread", "")), f"{last.get('from', '')}: {said}"
