"""``angelia dead``: what could not be delivered or is held, and what the owner does about it."""

from __future__ import annotations

from angelia.cli import exits, inbox, parse, say, session
from angelia.cli.ages import age
from angelia.cli.show import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

HEADERS = ("AGE", "FROM", "TO", "STATE", "ID", "TEXT")


def run(argv: list[str], settings: Settings) -> int:
    """List the dead letters, requeue one, or drop one."""
    made = parse.parser(
        "dead",
        "What was handed over again and again and never finished, and what is held for a person to release.\n"
        "Requeue it once its reader is mended, or drop it.",
        "angelia dead\nangelia dead requeue 0197f0c2a4b17c3e8d21f6a09b5e4c77",
    )
    made.add_argument("what", nargs="?", default="list", choices=("list", "requeue", "drop"), help="list (the default)")
    made.add_argument("message", nargs="?", metavar="ID", type=parse.message_id, help="which one to requeue or drop")
    made.add_argument("--to", metavar="NAME", help="only for this recipient of it")
    made.add_argument("--after", metavar="PLACE", type=parse.count, help="go on after this place of the list")
    given = parse.parse(made, argv)
    if (given.what == "list") != (given.message is None):
        raise exits.UsageError(f"angelia dead {given.what} " + ("takes no ID" if given.message else "takes an ID"))
    way = session.owner(settings)
    with way.looks() if given.what == "list" else way.calls() as hub:
        if given.what == "list":
            answer = hub.dead_letters(after=given.after)
        elif given.what == "requeue":
            answer = hub.requeue(given.message, to=given.to)
        else:
            answer = hub.drop(given.message, to=given.to)
    if given.json:
        say.data(answer)
    elif given.what == "list":
        _print(answer)
    else:
        done = ", ".join(f"{row.get('to')}: {row.get('state')}" for row in answer.get("deliveries") or [])
        say.line(f"{given.message} {done}")
    return exits.DONE


def _print(page: dict[str, Any]) -> None:
    letters = page.get("deliveries") or []
    if not letters:
        say.line("no dead letters, and nothing held")
        return
    say.lines(table([_row(letter) for letter in letters], HEADERS))
    if page.get("next") is not None:
        say.line(f"more: --after {page['next']}")


def _row(letter: dict[str, Any]) -> tuple[str, ...]:
    message, delivery = letter.get("message") or {}, letter.get("delivery") or {}
    state = " ".join(str(delivery[key]) for key in ("state", "reason") if delivery.get(key))
    return (
        age(message.get("created_at")), str(message.get("from", "")), str(delivery.get("to", "")), state,
        str(message.get("id", "")), inbox.short(message),
    )  # fmt: skip
