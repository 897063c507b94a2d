"""``angelia send``: put a message into somebody's mailbox."""

from __future__ import annotations

from angelia.cli import exits, parse, say, session, texts
from angelia.client.errors import ClientError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

MOST = 3  # recipients that are told by name
STATES = {
    "queued": "queued until it is read",
    "leased": "being handed over",
    "held": "held until a person lets it go",
    "forwarded": "passed on",
}


def run(argv: list[str], settings: Settings) -> int:
    """Send one message; print its id and what became of it so far."""
    made = parse.parser(
        "send",
        "Send a message. It is on the hub's disk when this says so.",
        "angelia send hermes 'the build is green'\n"
        "git diff | angelia send --as scout reviewer - --intent request --ttl 2h\n"
        'angelia send \'*\' --body \'{"type": "deploy", "version": 7}\'',
    )
    made.add_argument("to", metavar="TO", help="an agent, agent@connection, #room, or * for everyone")
    texts.add_arguments(made)
    made.add_argument("--intent", choices=("request", "inform", "ack"), help="request wants an answer, inform none")
    made.add_argument("--thread", metavar="ID", type=parse.message_id, help="the conversation that it belongs to")
    made.add_argument("--reply-to", metavar="ID", type=parse.message_id, help="the message that it answers")
    made.add_argument("--ttl", metavar="TIME", type=parse.seconds, help="how long it may wait, such as 90, 15m, 2h, 7d")
    made.add_argument("--id", metavar="ID", type=parse.message_id, help="its id; the same again is no second message")
    given = parse.parse(made, argv)
    text, body = texts.read(given)
    way = session.caller(settings)
    with way.calls() as hub:
        answer = hub.send(
            given.to, text, body=body, intent=given.intent, thread=given.thread, in_reply_to=given.reply_to,
            ttl_seconds=given.ttl, id=given.id,
        )  # fmt: skip
    show(answer, way, as_json=given.json)
    return exits.DONE


def show(answer: dict[str, Any], way: session.Way, *, as_json: bool) -> None:
    """What a send is answered with, in one line."""
    if as_json:
        say.data(answer)
        return
    rows = answer["deliveries"]
    told = [_told(row, way) for row in rows[:MOST]]
    if len(rows) > MOST:
        told.append(f"and {len(rows) - MOST} more")
    again = " (sent before)" if answer.get("duplicate") else ""
    say.line(f"{answer['id']}{again} {', '.join(told)}")
    for refusal in answer.get("refused") or []:
        say.aside(f"not to {refusal.get('to')}: {refusal.get('detail') or refusal.get('code')}")


def _told(row: dict[str, Any], way: session.Way) -> str:
    """What became of one delivery so far."""
    to, state = str(row["to"]), str(row["state"])
    if row.get("expected"):  # of what goes to another machine, which may be off, or wakes nobody
        return f"{to}: {state}; {row['expected']}"
    if state in ("queued", "leased") and _is_woken(to, way):
        return f"{to} is woken by it"
    return f"{to}: {STATES.get(state, state)}"


def _is_woken(name: str, way: session.Way) -> bool:
    """Whether the hub runs a turn of it for each message. The message is sent: what fails here is no trouble of it."""
    if "@" in name or name.lower() == session.OWNER:
        return False
    try:
        with way.looks() as hub:
            return bool(hub.agent(name).get("adapter"))
    except ClientError:
        return False
