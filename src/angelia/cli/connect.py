"""``angelia connect``: reach another hub, or a gateway of Hermes', under a name of one's own."""

from __future__ import annotations

from angelia.cli import dialling, parse, session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.settings import Settings


def run(argv: list[str], settings: Settings) -> int:
    """Make a connection; end with 0 when it stands."""
    made = parse.parser(
        "connect",
        "Connect this hub to another one, or to a gateway of Hermes', and dial it once. It is kept, and dialled again\n"
        "whenever it is down. Two hubs of different owners pair first: angelia pair.",
        "angelia connect garage ssh://me@garage.lan\n"
        "angelia connect box docker://agents\n"
        "angelia connect cloud wss://cloud.example --token-file ~/cloud.token --accept hermes\n"
        "angelia connect pod 'exec:kubectl exec -i pod/agents -- angelia gateway --stdio'",
    )
    made.add_argument(
        "connection", metavar="CONNECTION", help="what it is called here: 1 to 64 letters, digits, _ or -"
    )
    made.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        help=f"{dialling.TARGETS}; without one only the other side dials",
    )
    dialling.add_arguments(made)
    given = parse.parse(made, argv)
    dialling.check_name(given.connection)
    dialling.fields(given)  # what is used wrongly is told without a hub, too
    with session.owner(settings).calls() as hub:
        return dialling.connect(hub, given)
