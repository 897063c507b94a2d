"""``angelia message-agent``: the tool of that name, for whatever runs commands for a model.

What must stay true: stdout holds one JSON object, whatever happens but wrong usage: what became of the message, or
``error`` and ``reason``. The text comes by stdin and is nothing but text. It ends with 0 when the message was taken.
"""

from __future__ import annotations

import json
from argparse import Namespace

from angelia.cli import exits, parse, say, session, texts
from angelia.client.errors import ClientError, HubError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

_STDIN = Namespace(text="-", file=None, body=None)


def run(argv: list[str], settings: Settings) -> int:
    """Send one message; print what the tool answers."""
    made = parse.parser(
        "message-agent",
        'Send a request to one agent, as Hermes\' tool message_agent does. Reads {"target", "message"} from stdin;\n'
        "or, with --target, the text itself. Prints a JSON object; ends with 1 when it holds an error.",
        'echo \'{"target": "hermes", "message": "is the build green?"}\' | angelia message-agent --as scout\n'
        "angelia message-agent --as scout --target hermes < question.md",
    )
    made.add_argument("--target", metavar="NAME", help="whom: a handle, a title or name@connection")
    given = parse.parse(made, argv)
    text, _ = texts.read(_STDIN)
    try:
        target, message = (given.target, text or "") if given.target is not None else _asked(text or "")
        with session.caller(settings).calls() as hub:
            answer = hub.message_agent(target, message)
    except _Unreadable as error:
        say.data({"error": f"{error} Nothing was sent.", "reason": "unknown"})
        return exits.NO
    except (ClientError, exits.Refused) as error:
        say.data(_answer(error))
        return exits.code_of(error)
    say.data(answer)
    return exits.NO if "error" in answer else exits.DONE


class _Unreadable(Exception):
    """Stdin does not hold what the tool takes."""


def _asked(text: str) -> tuple[Any, Any]:
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Unreadable(f"stdin is no JSON: {error}.") from None
    if not isinstance(asked, dict) or set(asked) != {"target", "message"}:
        raise _Unreadable('stdin is to hold {"target": "…", "message": "…"} and nothing else.')
    return asked["target"], asked["message"]


def _answer(error: Exception) -> dict[str, object]:
    """What is told where no hub took it."""
    said = error.detail if isinstance(error, HubError) else str(error)
    told: dict[str, object] = {"error": said, "reason": "unknown"}
    message_id = getattr(error, "message_id", "")
    return {**told, "delivery_id": message_id} if message_id else told
