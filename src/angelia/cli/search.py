"""``angelia search``: find messages by their words.

What must stay true: ends with 1 when nothing was found, as programs that search do. A text is cut for its line only,
and then the line says so.
"""

from __future__ import annotations

import json

from angelia.cli import exits, parse, say, session
from angelia.cli.ages import age
from angelia.cli.show import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

LIMIT = 20
LETTERS = 120  # of a text in its line, around the first word that was found
HEADERS = ("AGE", "FROM", "TO", "ID", "TEXT")


def run(argv: list[str], settings: Settings) -> int:
    """Print what was found, the latest first."""
    made = parse.parser(
        "search",
        "Find messages that hold all these words, the latest first: in texts and in the strings of bodies.\n"
        'Case and accents do not count. "Words in quotes" stand together, beginn* is the beginning of a word; nothing\n'
        "else in them is special.",
        "angelia search staging port\nangelia search '\"the build is green\"' --from hermes --limit 5",
    )
    made.add_argument("words", nargs="*", metavar="WORDS", help="what to look for")
    made.add_argument("--from", dest="sender", metavar="NAME", help="only what this one sent")
    made.add_argument("--to", dest="recipient", metavar="NAME", help="only what this one got, or what went to it")
    made.add_argument("--limit", metavar="N", type=parse.count, default=LIMIT, help=f"how many at most ({LIMIT})")
    made.add_argument("--before", metavar="PLACE", type=parse.count, help="go on before this place")
    given = parse.parse(made, argv)
    words = " ".join(given.words)
    page: dict[str, Any] = {"messages": [], "next": given.before, "behind": 0}
    with session.caller(settings).calls() as hub:
        while True:  # a page may be short, and only the one without a next is the last
            found = hub.search(
                words, sender=given.sender, recipient=given.recipient, before=page["next"],
                limit=min(given.limit - len(page["messages"]), 100),
            )  # fmt: skip
            page = {**found, "messages": page["messages"] + found["messages"]}
            if page["next"] is None or len(page["messages"]) >= given.limit:
                break
    if given.json:
        say.data(page)
    else:
        _print(page, words)
    return exits.DONE if page["messages"] else exits.NO


def _print(page: dict[str, Any], words: str) -> None:
    if page["messages"]:
        say.lines(table([row(message, words) for message in page["messages"]], HEADERS))
    else:
        say.line("nothing found")
    if page["next"] is not None:
        say.line(f"more: --before {page['next']}")
    if page["behind"]:
        say.aside(f"{page['behind']} messages were not looked into: the hub's index is still catching up")


def row(message: dict[str, Any], words: str) -> tuple[str, ...]:
    """One line of the table."""
    sender = str(message.get("from", "")) + ("" if message.get("verified") else " (unproved)")
    shown = [str(message["text"])] if isinstance(message.get("text"), str) else []
    if "body" in message and not shown:
        shown.append(json.dumps(message["body"], ensure_ascii=False))
    return (
        age(message.get("created_at")),
        sender,
        str(message.get("to", "")),
        str(message.get("id", "")),
        part(" ".join(shown), words),
    )


def part(text: str, words: str) -> str:
    """The part of a text that holds the first of the words; says how much there is where that is not all."""
    if len(text) <= LETTERS:
        return text
    plain = text.lower()
    found = [plain.find(word) for word in words.lower().replace('"', " ").replace("*", " ").split()]
    place = min((spot for spot in found if spot >= 0), default=0)
    start = max(min(place - LETTERS // 4, len(text) - LETTERS), 0)
    shown = text[start : start + LETTERS]
    ends = "" if start + LETTERS >= len(text) else " …"
    return f"{'… ' if start else ''}{shown}{ends} ({len(text)} letters in all)"
