"""``angelia disconnect``: give a connection to another hub or gateway up."""

from __future__ import annotations

from angelia.cli import exits, parse, say, session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.settings import Settings


def run(argv: list[str], settings: Settings) -> int:
    """Remove a connection."""
    made = parse.parser(
        "disconnect",
        "Give a connection up. Its agents are no longer known here, and who waits for an answer from there is told.",
        "angelia disconnect garage",
    )
    made.add_argument("connection", metavar="CONNECTION", help="which one: angelia connections lists them")
    given = parse.parse(made, argv)
    with session.owner(settings).calls() as hub:
        answer = hub.disconnect(given.connection)
    if given.json:
        say.data(answer)
    else:
        say.line(f"{answer.get('removed')} is no longer connected")
    return exits.DONE
