"""``angelia disconnect``: give a connection to another hub or gateway up."""

from __future__ import annotations

from angelia.cli import exits, parse, say, session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings


def run(argv: list[str], settings: Settings) -> int:
    """Remove a connection."""
    made = parse.parser(
        "disconnect",
        "Give a connection up. Its agents are no longer known here, and who waits for an answer from there is told.\n"
        "The hub there is not let in either, until it is connected, or paired, again.",
        "angelia disconnect garage",
    )
    made.add_argument("connection", metavar="CONNECTION", help="which one: angelia connections lists them")
    given = parse.parse(made, argv)
    with session.owner(settings).calls() as hub:
        answer = hub.disconnect(given.connection)
    if given.json:
        say.data(answer)
    else:
        say.line(f"{answer.get('removed')} is no longer connected{_ended(answer)}")
    return exits.DONE


def _ended(answer: dict[str, Any]) -> str:
    """What mail ended with it, as the rest of a sentence."""
    waited, gone = int(answer.get("ended") or 0), int(answer.get("handed_over") or 0)
    told = []
    if waited:
        have = "message that waited for it has" if waited == 1 else "messages that waited for it have"
        told.append(f"{waited} {have} ended")
    if gone:
        have = "message that had gone there has" if gone == 1 else "messages that had gone there have"
        told.append(f"{gone} {have} no known outcome")
    sees = "its sender sees that" if waited + gone == 1 else "their senders see that"
    return f"; {' and '.join(told)}: {sees} as failed" if told else ""
