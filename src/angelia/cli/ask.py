"""``angelia ask``: send a question and wait for its answer.

What must stay true: stdout holds the answer's text and nothing else; everything that is no answer goes to stderr, with
an exit code of its own.
"""

from __future__ import annotations

from angelia.cli import exits, parse, say, session, texts
from angelia.client.errors import AskFailed, TimedOut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.settings import Settings

WAIT_SECONDS = 600.0


def run(argv: list[str], settings: Settings) -> int:
    """Ask, wait, print the answer."""
    made = parse.parser(
        "ask",
        "Ask an agent and print its answer. Ends with 1 when there will be none, with 5 when there is none yet.",
        "angelia ask hermes 'which port does staging use?'\n"
        "angelia ask --as scout reviewer --file patch.diff --wait 15m > review.md",
    )
    made.add_argument(
        "to", metavar="TO", help="an agent, or agent@connection; * asks everyone, and the first answer counts"
    )
    texts.add_arguments(made)
    made.add_argument("--wait", metavar="TIME", type=parse.seconds, default=WAIT_SECONDS,
                      help="how long to wait for the answer, such as 90, 15m, 2h (10m)")  # fmt: skip
    made.add_argument("--thread", metavar="ID", type=parse.message_id, help="the conversation that it belongs to")
    made.add_argument("--ttl", metavar="TIME", type=parse.seconds, help="how long the question may wait to be read")
    made.add_argument("--id", metavar="ID", type=parse.message_id, help="the question's id; the same again waits on")
    given = parse.parse(made, argv)
    text, body = texts.read(given)
    with session.caller(settings).calls() as hub:
        try:
            answer = hub.ask(
                given.to, text, body=body, thread=given.thread, ttl_seconds=given.ttl, id=given.id,
                wait_seconds=given.wait,
            )  # fmt: skip
        except AskFailed as error:
            say.trouble(error, as_json=given.json)
            return exits.NO
        except TimedOut as error:
            say.trouble(error, as_json=given.json)
            return exits.TIMED_OUT
    if given.json:
        say.data(answer)
        return exits.DONE
    reply = answer["reply"]
    if reply.get("text") is not None:
        say.text(reply["text"])
    else:
        say.data(reply.get("body"))
    return exits.DONE
