"""``angelia desktop``: give a desktop that relays a token of its own, or take it back.

What must stay true: the token is printed once, on stdout and alone, so that it can go into a file or a password store.
"""

from __future__ import annotations

from angelia.cli import exits, parse, say, session, tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.settings import Settings


def run(argv: list[str], settings: Settings) -> int:
    """Print a token, or end all that there are."""
    made = parse.parser(
        "desktop",
        "Make a token for Hermes' Desktop, or another relay, that comes in from elsewhere: with it, it pushes its\n"
        "rosters and fetches its mail under this name, and can do nothing else. Again, it makes a new one; the\n"
        "old one works for five minutes more.",
        "angelia desktop mac\nangelia desktop mac --remove",
    )
    made.add_argument("name", metavar="NAME", help="1 to 64 letters, digits, _ or -: what the desktop is called here")
    made.add_argument("--remove", action="store_true", help="end its tokens, its connections and its mail, at once")
    given = parse.parse(made, argv)
    name = tokens.check_name(given.name)
    with session.owner(settings).looks() as hub:
        found = hub.remove_desktop(name) if given.remove else hub.new_desktop_token(name)
    if given.json:
        say.data(found)
    elif given.remove:
        say.line(f"{name} has no token any more")
    else:
        say.line(found["token"])
        say.aside(f"shown this once: give it to the desktop as its token. To end it: angelia desktop {name} --remove")
    return exits.DONE
