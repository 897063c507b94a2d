"""``angelia completion``: a shell's script that completes commands, options and the names of agents.

What must stay true: the script is made of what the commands' own parsers say. Names come from the hub by a call that
ends within a second; without a hub there are none, and nothing is said. A name reaches a shell only if it has a name's
shape, so nothing that a hub says can be taken for a word of the shell's language.
"""

from __future__ import annotations

import re

from angelia.cli import complete_bash, complete_fish, complete_zsh, described, exits, parse, session
from angelia.client.calls import Calls
from angelia.client.errors import ClientError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.settings import Settings

SCRIPTS = {"bash": complete_bash.script, "zsh": complete_zsh.script, "fish": complete_fish.script}
ANSWER_SECONDS = 1.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}(?:@[A-Za-z0-9][A-Za-z0-9_-]{0,63})?")


def run(argv: list[str], settings: Settings) -> int:
    """Print a script; or, for the scripts, the names that are known."""
    made = parse.parser(
        "completion",
        "Print a script that makes a shell complete angelia's commands, options and names of agents.",
        "source <(angelia completion bash)                 # in ~/.bashrc\n"
        "source <(angelia completion zsh)                  # in ~/.zshrc, after compinit\n"
        "angelia completion fish > ~/.config/fish/completions/angelia.fish",
    )
    made.add_argument("what", choices=(*SCRIPTS, "names"), help="the shell; or the names that its script asks for")
    given = parse.parse(made, argv)
    if given.what == "names":
        for name in names(settings):
            print(name)
    else:
        print(SCRIPTS[given.what](described.commands(), described.everywhere()), end="")
    return exits.DONE


def names(settings: Settings) -> list[str]:
    """Whom a message can be sent to, as far as the hub says so at once."""
    try:
        way = session.anyone(settings, ANSWER_SECONDS)
        with Calls(way.address, name=way.name, token=way.token, answer_seconds=ANSWER_SECONDS) as hub:
            found = hub.agents()
    except (ClientError, exits.Refused, exits.UsageError, OSError):
        return []
    told = ["human"]
    for agent in found:
        connection = str(agent.get("connection") or "local").removeprefix("@")
        far = f"@{connection}" if connection != "local" else ""
        told.append(f"{agent.get('handle')}{far}")
    return [name for name in told if _NAME.fullmatch(name)]
