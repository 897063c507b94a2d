"""``angelia leave``: give a name up, and remove its token."""

from __future__ import annotations

from angelia.cli import exits, parse, say, session, tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.settings import Settings


def run(argv: list[str], settings: Settings) -> int:
    """Make the hub forget the name; its mail stays until it expires."""
    made = parse.parser("leave", "Give a name up: its tokens end, its file here is removed, its mail stays.",
                        "angelia leave scout")  # fmt: skip
    made.add_argument("name", metavar="NAME", help="the name to give up")
    given = parse.parse(made, argv)
    name = tokens.check_name(given.name)
    with session.owner(settings).looks() as hub, tokens.one_at_a_time(settings.data_dir):
        hub.remove_agent(name)
        tokens.forget(settings.data_dir, name)
    if given.json:
        say.data({"agent": name, "removed": True})
    else:
        say.line(f"{name} is gone")
    return exits.DONE
