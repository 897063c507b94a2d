"""``angelia reply``: answer a message."""

from __future__ import annotations

from angelia.cli import exits, parse, send, session, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.settings import Settings


def run(argv: list[str], settings: Settings) -> int:
    """Answer one message; its sender gets the text, and whoever waits in an ``ask`` gets it at once."""
    made = parse.parser(
        "reply",
        "Answer a message that you got.",
        "angelia reply --as reviewer 0197f0c2a4b17c3e8d21f6a09b5e4c77 'looks good'\n"
        "make test 2>&1 | angelia reply --as builder 0197f0c2a4b17c3e8d21f6a09b5e4c77 -",
    )
    made.add_argument("message", metavar="ID", type=parse.message_id, help="the message to answer")
    texts.add_arguments(made)
    made.add_argument("--id", metavar="ID", type=parse.message_id, help="the reply's own id, to repeat it safely")
    given = parse.parse(made, argv)
    text, body = texts.read(given)
    way = session.caller(settings)
    with way.calls() as hub:
        answer = hub.reply(given.message, text, body=body, id=given.id)
    send.show(answer, way, as_json=given.json)
    return exits.DONE
