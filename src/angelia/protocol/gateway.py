"""The gateway's vocabulary: codes, parameters as they come, and the shapes of what it tells.

What must stay true: a code means what Hermes' gateways mean by it; every refusal says a reason of its closed set. What
a peer sends is coerced as Hermes does it or refused with the name of what is wrong, in JSON's words; it is data.
Our own methods answer an error with its HTTP status as the code, and its code as ``data.code``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from angelia.model.agent import Agent
from angelia.model.envelope import check_id
from angelia.model.errors import AngeliaError, BadRequest
from angelia.model.failure import Reason, on_hermes_wire
from angelia.protocol import jsonrpc
from angelia.protocol.bot_relay import DEFAULT_HANDLE, DEFAULT_PROFILE
from angelia.protocol.bot_relay_rows import text_of

NO_SESSION = 4001
NOTHING_TO_DELIVER = 4090
TOO_LONG = 4091
NO_PROFILE = 4092
NO_ID = 4093
BAD_ID = 4094
ROSTER_FAILED = 5090
DRAIN_FAILED = 5091
TURN_FAILED = 5092
TURN_TIMED_OUT = 5093
DELIVER_FAILED = 5094
REPLY_FAILED = 5095
TARGET_BUSY = 5096

# Reasons that are not the turn's own; every other one says that a turn failed.
_CODE_OF = {
    Reason.TARGET_BUSY: TARGET_BUSY,
    Reason.TARGET_SESSION_LIVE: TARGET_BUSY,
    Reason.DELIVERY_TIMEOUT: TURN_TIMED_OUT,
    Reason.OUTCOME_UNKNOWN: TURN_TIMED_OUT,
    Reason.QUEUED_EXPIRED: DELIVER_FAILED,
    Reason.RUNTIME_OFFLINE: DELIVER_FAILED,
    Reason.MAILBOX_FULL: DELIVER_FAILED,
    Reason.LOOP: DELIVER_FAILED,
    Reason.CHAIN_BUDGET: DELIVER_FAILED,
    Reason.ATTEMPTS_USED_UP: DELIVER_FAILED,
}
# What a hub refuses with, as a reason.
_REASON_OF = {
    "too_large": Reason.TOO_LARGE,
    "mailbox_full": Reason.MAILBOX_FULL,
    "ask_cycle": Reason.LOOP,
    "hop_limit": Reason.LOOP,
    "outcome_unknown": Reason.OUTCOME_UNKNOWN,
    "runtime_offline": Reason.RUNTIME_OFFLINE,
    "stopping": Reason.RUNTIME_OFFLINE,
}

_KINDS: dict[type, str] = {str: "a string", dict: "an object", list: "an array"}


class Refusal(Exception):
    """A call's answer where it is an error. ``data``: what a program can act on."""

    def __init__(self, code: int, message: str, data: Mapping[str, object] | None = None) -> None:
        """Takes them as they stand on the wire."""
        super().__init__(message)
        self.code, self.message, self.data = code, message, dict(data or {})


def invalid(code: int, message: str, reason: str = jsonrpc.BAD_PARAMS) -> Refusal:
    """Parameters that cannot be used."""
    return Refusal(code, message, {"reason": reason})


def no_delivery(reason: Reason, text: str, deadline_seconds: float) -> Refusal:
    """Why ``bot_relay.deliver`` brought no answer."""
    code = _CODE_OF.get(reason, TURN_FAILED)
    words = {TURN_FAILED: f"delivery turn failed: {text}", TURN_TIMED_OUT: f"delivery turn timed out: {text}"}
    data = {"reason": on_hermes_wire(reason), "deadline_seconds": deadline_seconds}
    return Refusal(code, words.get(code, text), data)


def refusal_of(error: AngeliaError, code: int | None) -> Refusal:
    """An error of the hub as the answer of a method that fails with ``code`` (None: one of our own)."""
    reason = on_hermes_wire(_REASON_OF.get(error.code, Reason.UNKNOWN))
    data: dict[str, object] = {"code": error.code, **error.extra, "reason": reason}
    return Refusal(error.status if code is None else code, error.detail, data)


def word(params: Mapping[str, Any], name: str) -> str:
    """A parameter as text, trimmed; empty where it is missing, or neither text nor number."""
    return text_of(params.get(name))


def whole(params: Mapping[str, Any], name: str) -> str | None:
    """A text as it came; None where it is missing or null. ``Refusal`` for anything else."""
    given = params.get(name)
    if given is not None and not isinstance(given, str):
        raise invalid(jsonrpc.INVALID_PARAMS, f"{name} is a string; here it is {kind(given)}.")
    return given


def message_id(params: Mapping[str, Any], name: str = "id") -> str:
    """A parameter that is a message's id. ``BadRequest`` for anything else."""
    given = params.get(name)
    if given is None:
        raise BadRequest(f"{name} is missing: it is a string of 32 lowercase hex digits.")
    if not isinstance(given, str):
        raise BadRequest(f"{name} is {kind(given)}; it has to be a string of 32 lowercase hex digits.")
    return check_id(given, name)


def kind(given: object) -> str:
    """What a value is, as JSON calls it."""
    if isinstance(given, bool) or given is None:
        return "null" if given is None else str(given).lower()
    return _KINDS.get(type(given), "a number")


def profiles(agents: Iterable[Agent]) -> dict[str, object]:
    """What ``profiles.list`` tells: ``default`` first, then the others by name."""
    ordered = sorted(agents, key=lambda agent: (agent.mailbox != DEFAULT_HANDLE, agent.mailbox))
    return {"profiles": [_profile(agent) for agent in ordered], "bot_mode_protocol": True}


def _profile(agent: Agent) -> dict[str, object]:
    is_default = agent.mailbox == DEFAULT_HANDLE
    return {
        "name": DEFAULT_PROFILE if is_default else agent.handle,
        "handle": agent.handle,
        "path": "",
        "is_default": is_default,
        "model": "",
        "provider": "",
        "description": agent.description,
        "display_name": agent.title,
        "skill_count": 0,
        "ui_meta": {"hermes-bots": {"title": agent.title}} if agent.title else {},
        "ui_meta_revisions": {},
        "has_avatar": False,
    }
