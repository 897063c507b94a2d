"""``angelia message``: a message in full, and what became of it."""

from __future__ import annotations

import json

from angelia.cli import exits, parse, say, session
from angelia.cli.ages import before
from angelia.cli.show import visible
from angelia.cli.thread import MARGIN, notices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

WAIT_MOST_SECONDS = 50.0  # one look; the hub waits at most 60 s
_STEPS = ("accepted_at", "leased_at", "delivered_at", "answered_at", "ended_at")


def run(argv: list[str], settings: Settings) -> int:
    """Print a message and its receipt."""
    made = parse.parser(
        "message",
        "Show a message in full, and what became of it.",
        "angelia message 0197f0c2a4b17c3e8d21f6a09b5e4c77\nangelia message 0197f0c2a4b17c3e8d21f6a09b5e4c77 --wait 30",
    )
    made.add_argument("message", metavar="ID", type=parse.message_id, help="the message")
    made.add_argument("--wait", metavar="TIME", type=parse.seconds, default=0.0,
                      help="wait until something changes, at most 50 s")  # fmt: skip
    given = parse.parse(made, argv)
    with session.caller(settings).looks() as hub:
        receipt = hub.message(given.message, wait_seconds=min(given.wait, WAIT_MOST_SECONDS))
        failed = any(delivery.get("reason") for delivery in receipt.get("deliveries") or [])
        told = notices(hub, given.message) if failed and not given.json else []
    if given.json:
        say.data(receipt)
        return exits.DONE
    message = receipt["message"]
    proof = "" if message.get("verified") else " (unproved)"
    kind = "" if message.get("kind") in (None, "message") else f"{message['kind']}, "
    say.line(f"{kind}from {message.get('from')}{proof} to {message.get('to')}, {before(message.get('created_at'))}")
    for delivery in receipt.get("deliveries") or []:
        say.line(_became(delivery))
    failure = receipt.get("failure")
    if not told and isinstance(failure, dict):
        told = [f"{failure.get('text') or ''} ({failure.get('reason')})"]
    for text in told:
        say.lines("failed: " + visible(text).replace("\n", f"\n{MARGIN}"))
    _print_content("", message)
    reply = receipt.get("reply")
    if isinstance(reply, dict):
        _print_content(f"the answer of {reply.get('from')}, {reply.get('id')}:", reply)
    return exits.DONE


def _became(delivery: dict[str, Any]) -> str:
    told = [f"{delivery.get('to')}: {delivery.get('state')}"]
    last = [step for step in _STEPS if delivery.get(step)]
    if last:
        told.append(before(delivery[last[-1]]))
    if delivery.get("reason"):
        told.append(f"({delivery['reason']})")
    if (delivery.get("attempt") or 0) > 1:
        told.append(f"at attempt {delivery['attempt']}")
    holder = delivery.get("holder")
    if isinstance(holder, dict) and holder.get("by"):
        told.append(f"by {holder['by']}")
    if delivery.get("expected"):
        told.append(f"- {delivery['expected']}")
    return " ".join(told)


def _print_content(title: str, message: dict[str, Any]) -> None:
    say.line("")
    if title:
        say.line(title)
    if message.get("text") is not None:
        say.lines(str(message["text"]))
    if "body" in message:
        say.lines(json.dumps(message["body"], ensure_ascii=False, indent=2))
