"""``angelia briefing``: what an agent should be told, to be put where its model reads it."""

from __future__ import annotations

from angelia.cli import exits, parse, say, session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.settings import Settings


def run(argv: list[str], settings: Settings) -> int:
    """Print the briefing."""
    made = parse.parser(
        "briefing",
        "Print what an agent should be told: who it is, whom it can reach by which form, and how; in Markdown, whose\n"
        "last line names an epoch that changes whenever the text does.",
        "angelia briefing --as scout > BRIEFING.md\nangelia briefing --as scout --json | jq -r .epoch",
    )
    given = parse.parse(made, argv)
    way = session.caller(settings)
    with way.looks() as hub:
        text = hub.briefing()
    if given.json:
        say.data({"agent": way.name, "epoch": text.split()[-1] if text.split() else "", "text": text})
    else:
        say.text(text)
    return exits.DONE
