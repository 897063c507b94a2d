"""What OpenCode's messages and errors mean: the same for its server, its command line and its history. Pure.

What must stay true: a turn went well where its last message has text and no error; OpenCode answers with status 200
either way. An answer is ours only where the message that it answers is. The texts of providers may hold keys, so they
go to the classifier and never to the sender.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from angelia.model.failure import Reason
from angelia.turns.adapters.port import Answered, Failed, Outcome, Turn, Usage
from angelia.turns.adapters.statuses import is_failure, reason_of, words

SESSION = re.compile(r"ses_[A-Za-z0-9]{1,64}", re.ASCII)
# OpenCode's names of errors; APIError has a status instead, and UnknownError only words.
_REASONS = {
    "ContextOverflowError": Reason.CONTEXT_OVERFLOW,
    "ProviderAuthError": Reason.PROVIDER_AUTH_OR_ACCESS,
    "ProviderModelNotFoundError": Reason.MODEL_UNAVAILABLE,
    "ContentFilterError": Reason.AGENT_BLOCKED,
    "MessageAbortedError": Reason.CANCELLED,
}
_NAME = re.compile(r"[A-Za-z]{1,40}", re.ASCII)
_CUT_OFF = re.compile(r"cannot connect to api|socket connection was closed|fetch failed|econnre", re.IGNORECASE)


def failure(error: object, route: str) -> Failed:
    """What an error of OpenCode's (``{name, data}``) means."""
    name = _field(error, "name")
    data = _field(error, "data")
    message, status = str(_field(data, "message") or ""), _field(data, "statusCode")
    said = f"OpenCode ended its turn with {name}" if _NAME.fullmatch(str(name)) else "OpenCode ended its turn in error"
    if isinstance(status, int) and is_failure(status):
        text, reason, output = f"{said}, status {status}.", reason_of(status), words(status, message)
    else:
        text, reason, output = f"{said}.", _REASONS.get(str(name)), message
    return Failed(text, route, reason=reason or cut_off(message), output=output, wait_seconds=_wait(data))


def stalled(message: str, route: str) -> Failed:
    """It tries again and again to reach its model, for ``message``, and its time is nearly over."""
    text = "OpenCode could not get an answer from its model in time; its own retries were ended."
    return Failed(text, route, reason=cut_off(message), output=message)


def cut_off(message: str) -> Reason | None:
    """The reason where a provider hung up or is not to be reached: the classifier knows no such words."""
    return Reason.PROVIDER_SERVER_ERROR if _CUT_OFF.search(message) else None


def answer(message: Mapping[str, Any], route: str) -> Outcome:
    """What a finished message of the assistant (``{info, parts}``) makes of its turn."""
    info = message.get("info")
    error = _field(info, "error")
    if error is not None:
        return failure(error, route)
    text = text_of(message)
    if not text:
        return Failed("OpenCode ended its turn without a word.", route, reason=Reason.UNKNOWN)
    return Answered(text, route, usage(info, _field(info, "modelID")))


def usage(spent: object, model: object = None) -> Usage:
    """What a message, or one step of it, says that it cost (``{tokens, cost}``)."""
    tokens, cost = _field(spent, "tokens"), _field(spent, "cost")
    return Usage(
        input_tokens=_number(_field(tokens, "input")),
        output_tokens=_number(_field(tokens, "output")),
        cost_usd=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
        model=model if isinstance(model, str) else None,
    )


def text_of(message: object) -> str:
    """All text that a message shows: not what the model thought, nor what OpenCode put in by itself."""
    parts = _field(message, "parts")
    return "\n\n".join(
        str(_field(part, "text"))
        for part in (parts if isinstance(parts, list) else ())
        if _field(part, "type") == "text" and _field(part, "text") and not _field(part, "synthetic")
    )


def is_ours(message: object, turn: Turn) -> bool:
    """Whether a message is the one that ``turn`` was given: its first line names it, or it is the very same text."""
    text = text_of(message)
    return f"id {turn.message.id}" in text.partition("\n")[0] or text.strip() == turn.prompt.strip()


def in_history(messages: Sequence[object], turn: Turn, route: str) -> tuple[bool, Outcome | None]:
    """Whether a session's messages hold ``turn``'s (its last attempt), and what became of it, where it has ended.

    A conversation that grew too long is summed up in the middle of a turn: in messages of OpenCode's own, which have no
    text of a person's, and then it asks ours anew.
    """
    there, last = False, None
    for message in messages:
        role = _field(_field(message, "info"), "role")
        if role == "user" and is_ours(message, turn):
            there, last = True, None
        elif role == "user" and there and text_of(message):
            break  # somebody else's turn
        elif role == "assistant" and there:
            last = message
    info = _field(last, "info")
    sums_up = _field(info, "summary") and not _field(info, "error")
    if isinstance(last, Mapping) and has_ended(info) and not sums_up:
        return True, answer(last, route)
    return there, None


def has_ended(info: object) -> bool:
    """Whether a message of the assistant is the last of its turn; one that calls tools is followed by another."""
    if _field(info, "error") is not None:
        return True
    return _field(info, "finish") not in (None, "tool-calls", "unknown")


def _wait(data: object) -> float | None:
    after = _field(_field(data, "responseHeaders"), "retry-after")
    return float(after) if isinstance(after, str) and after.isascii() and after.isdigit() else None


def _field(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
