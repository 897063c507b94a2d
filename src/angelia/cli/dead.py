"""``angelia dead``: what could not be delivered, and what the owner does about it."""

from __future__ import annotations

from angelia.cli import exits, inbox, parse, say, session
from angelia.cli.ages import age
from angelia.cli.show import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

HEADERS = ("LETTER", "AGE", "FROM", "TO", "WHY", "TEXT")


def run(argv: list[str], settings: Settings) -> int:
    """List the dead letters, requeue one, or drop one."""
    made = parse.parser(
        "dead",
        "What was handed over again and again and never finished. Requeue it once its reader is mended, or drop it.",
        "angelia dead\nangelia dead requeue 17",
    )
    made.add_argument("what", nargs="?", default="list", choices=("list", "requeue", "drop"), help="list (the default)")
    made.add_argument("letter", nargs="?", metavar="ID", help="which one to requeue or drop")
    given = parse.parse(made, argv)
    if (given.what == "list") != (given.letter is None):
        raise exits.UsageError(f"angelia dead {given.what} " + ("takes no ID" if given.letter else "takes an ID"))
    with session.owner(settings).calls() as hub:
        if given.what == "list":
            answer = hub.dead_letters()
        else:
            answer = hub.requeue(given.letter) if given.what == "requeue" else hub.drop(given.letter)
    if given.json:
        say.data(answer)
    elif given.what != "list":
        say.line(f"{given.letter}: {'queued again' if given.what == 'requeue' else 'dropped'}")
    else:
        _print(answer.get("dead_letters") or answer.get("deliveries") or [])
    return exits.DONE


def _print(letters: list[dict[str, Any]]) -> None:
    if not letters:
        say.line("no dead letters")
        return
    say.lines(table([_row(letter) for letter in letters], HEADERS))


def _row(letter: dict[str, Any]) -> tuple[str, ...]:
    message = letter.get("message") or letter
    return (
        str(letter.get("id") or letter.get("seq") or message.get("id", "")), age(message.get("created_at")),
        str(message.get("from", "")), str(letter.get("to") or message.get("to", "")), str(letter.get("reason") or ""),
        inbox.short(message),
    )  # fmt: skip
