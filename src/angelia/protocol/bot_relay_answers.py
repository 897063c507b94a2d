"""What a gateway of Hermes answers to a relay: its agents, what its outbox held, how a delivery ended.

What must stay true: everything in an answer is untrusted and of any shape; what is no good is left out or counts as not
said, and never an error. A reason comes from the gateway's own word or from its code, both fixed; what its text may
speak of is judged elsewhere, after the names in it were taken out (``bus/forward.py``).
"""

from typing import Any

from angelia.model.address import LOCAL
from angelia.model.failure import Reason, read_reason
from angelia.protocol.bot_relay import handle_of
from angelia.protocol.bot_relay_mail import BadEnvelope, RelayEnvelope, read_envelope
from angelia.protocol.bot_relay_rows import Row, normalise, text_of
from angelia.protocol.foreign_json import write
from angelia.protocol.gateway import (
    NO_PROFILE,
    NO_SESSION,
    NOTHING_TO_DELIVER,
    TARGET_BUSY,
    TOO_LONG,
    TURN_TIMED_OUT,
)
from angelia.protocol.jsonrpc import UNKNOWN_METHOD

SENDER_REFUSED = 4095  # of generation 2 alone, where who logged in may not say for whom it speaks (#107598)

# What a code says where no word does. Older gateways send no ``data`` with these (#113532).
_SAYS = {
    NO_SESSION: Reason.RUNTIME_OFFLINE,
    NOTHING_TO_DELIVER: Reason.AGENT_BLOCKED,
    TOO_LONG: Reason.TOO_LARGE,
    NO_PROFILE: Reason.RUNTIME_OFFLINE,
    SENDER_REFUSED: Reason.AGENT_BLOCKED,
    TURN_TIMED_OUT: Reason.DELIVERY_TIMEOUT,
    TARGET_BUSY: Reason.TARGET_BUSY,
    UNKNOWN_METHOD: Reason.MISSING_CONFIG,
}


def agents(answer: object, label: str) -> tuple[Row, ...] | None:
    """The rows that ``profiles.list`` is answered with, on connection ``local``; None where it is no such answer.

    ``label``: how their connection is called here. Private ones are left out. A handle of its own counts; without one
    ``default`` is ``hermes``.
    """
    profiles = answer.get("profiles") if isinstance(answer, dict) else None
    if not isinstance(profiles, list):
        return None
    return normalise([_row(profile, label) for profile in profiles]).rows


def _row(profile: Any, label: str) -> object:
    if not isinstance(profile, dict):
        return None
    meta = profile.get("ui_meta")
    bots = meta.get("hermes-bots") if isinstance(meta, dict) else None
    bots = bots if isinstance(bots, dict) else {}
    name = text_of(profile.get("name"))
    row = {
        "connection_id": LOCAL,
        "connection_label": label,
        "profile": name,
        "handle": text_of(profile.get("handle")) or handle_of(name),
        "title": text_of(bots.get("title")) or text_of(profile.get("display_name")),
        "description": profile.get("description"),
        "online": True,
        "private": profile.get("private"),
    }
    return row if normalise([{**row, "private": bots.get("private")}]).rows else None


def envelopes(answer: object) -> list[RelayEnvelope | BadEnvelope]:
    """What ``outbox.drain`` is answered with, each judged by itself."""
    found = answer.get("envelopes") if isinstance(answer, dict) else None
    return [_envelope(each) for each in found] if isinstance(found, list) else []


def _envelope(given: object) -> RelayEnvelope | BadEnvelope:
    try:
        return read_envelope(write(given))
    except BadEnvelope as bad:
        return bad


def reply_text(answer: object) -> str:
    """What ``deliver`` is answered with; empty where it says nothing."""
    reply = answer.get("reply") if isinstance(answer, dict) else None
    return reply if isinstance(reply, str) else text_of(reply)


def why(code: int, data: dict[str, object]) -> Reason | None:
    """Why ``deliver`` was refused: by its word where that is one of the set, else by its code. None where neither
    says it, and only the text is left."""
    word = text_of(data.get("reason"))
    found = read_reason(word)
    if found is not Reason.UNKNOWN:
        return found
    return _SAYS.get(code) or (Reason.UNKNOWN if word else None)
