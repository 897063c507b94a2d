"""``angelia wake``: run a real turn of an agent, and say by which route, how fast, and what it answered.

What must stay true: nothing is pretended. The turn is that of a message like any other, from the hub's owner; the word
in it is new each time, so that an answer which holds it is the answer to this very message.
"""

from __future__ import annotations

import os
import time

from angelia.cli import exits, parse, say, session, tokens
from angelia.cli.thread import notices
from angelia.client.errors import AskFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.client.calls import Calls
    from angelia.settings import Settings

WAIT_SECONDS = 1500.0  # what a turn may take by itself: the wait for a lock, and two attempts of ten minutes
NO_ROUTE = "none"  # of a turn that came as far as no program or endpoint


def run(argv: list[str], settings: Settings) -> int:
    """Wake it, wait, tell."""
    made = parse.parser(
        "wake",
        "Run a real turn of an agent: ask it for a word that is new each time, and say which route worked, how long\n"
        "it took and what it answered. Ends with 1 when the turn failed.",
        "angelia wake scout\nangelia wake scout --wait 2m --json",
    )
    made.add_argument("name", metavar="NAME", help="the agent")
    made.add_argument("--wait", metavar="TIME", type=parse.seconds, default=WAIT_SECONDS,
                      help="how long to wait for its answer (25m)")  # fmt: skip
    given = parse.parse(made, argv)
    name = tokens.check_name(given.name)
    word = os.urandom(4).hex()
    with session.owner(settings).calls() as hub:
        agent = hub.agent(name)
        if not agent.get("adapter") and agent.get("presence") != "online":
            raise exits.Refused(
                f"nothing wakes {name}, and it is not there: say how with angelia join {name} --command PROGRAM"
            )
        if not given.json:
            say.aside(f"waking {name}, and waiting for its answer")
        begun = time.monotonic()
        try:
            answer = hub.ask(name, _question(word), wait_seconds=given.wait)
        except AskFailed as error:
            _tell_failure(hub, name, error, time.monotonic() - begun, as_json=given.json)
            return exits.NO
        seconds = time.monotonic() - begun
        turn = _turn(hub, answer["id"])
    said = str(answer["reply"].get("text") or "")
    told = {"agent": name, "id": answer["id"], "answered": True, "seconds": round(seconds, 3), "word": word,
            "word_came_back": word in said, **_of_turn(turn), "answer": said}  # fmt: skip
    if given.json:
        say.data(told)
        return exits.DONE
    say.line(f"{name} answered after {seconds:.1f} s{_by(turn)}")
    came = "its answer holds the word that it was asked for" if word in said else "its answer does not hold the word"
    say.line(f"{came}, {word}:")
    say.lines(said or "(an empty answer)")
    return exits.DONE


def _question(word: str) -> str:
    return f"This is a test of whether you can be reached. Please answer with the word {word} and nothing else."


def _turn(hub: Calls, message_id: str) -> dict[str, Any]:
    """The turn that was run for a message; {} where it was read in another way."""
    return next((turn for turn in hub.turns()["turns"] if turn.get("id") == message_id), {})


def _of_turn(turn: dict[str, Any]) -> dict[str, Any]:
    return {
        name: turn[name] for name in ("kind", "route", "attempt", "usage") if turn.get(name) not in (None, NO_ROUTE)
    }


def _by(turn: dict[str, Any]) -> str:
    """By which way, in words; where none was tried, by what it would have been woken."""
    if not turn:
        return ", by reading its mailbox itself"
    route = turn.get("route") or "adapter"
    told = ("" if route == NO_ROUTE else f", by its {route}") + f" ({turn.get('kind')})"
    if (turn.get("attempt") or 0) > 1:
        told += f", at attempt {turn['attempt']}"
    usage = turn.get("usage") or {}
    spent = [f"{usage[key]} {words}" for key, words in _USAGE.items() if usage.get(key) is not None]
    return told + (f"; {', '.join(spent)}" if spent else "")


_USAGE = {"input_tokens": "tokens in", "output_tokens": "tokens out", "cost_usd": "USD", "model": "(model)"}


def _tell_failure(hub: Calls, name: str, error: AskFailed, seconds: float, *, as_json: bool) -> None:
    turn = _turn(hub, error.message_id)
    why = "\n".join(notices(hub, error.message_id)) or error.text
    if as_json:
        say.data({"agent": name, "id": error.message_id, "answered": False, "seconds": round(seconds, 3),
                  "reason": error.reason, "text": why, **_of_turn(turn)})  # fmt: skip
        return
    route = _by(turn) if turn else ""
    say.line(f"{name} did not answer ({error.reason}), after {seconds:.1f} s{route}")
    say.lines(why)
