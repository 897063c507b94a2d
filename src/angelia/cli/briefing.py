"""``angelia briefing``: what an agent should be told, to be put where its model reads it."""

from __future__ import annotations

import re
import shlex

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
    if way.name == session.OWNER:
        text = _by_socket(text, str(way.address.path))
    if given.json:
        say.data({"agent": way.name, "epoch": text.split()[-1] if text.split() else "", "text": text})
    else:
        say.text(text)
    return exits.DONE


def _by_socket(text: str, path: str) -> str:
    """The owner's examples as they work: the hub knows its owner by the socket alone, and refuses the name by URL."""
    found = re.search(r"^curl (\S+)/v1/messages ", text, re.MULTILINE)
    if found is None:
        return text
    text = text.replace(found[0], f"curl --unix-socket {shlex.quote(path)} http://localhost/v1/messages ", 1)
    return text.replace(f'Client("{found[1]}", name=', f'Client("unix:{path}", name=', 1)
