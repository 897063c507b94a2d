"""Why a delivery failed: a closed set of reasons, each with the word that it becomes on Hermes' wire.

What must stay true: a reason is typed where it arises and never read back out of prose. The first thirteen are
Hermes' own and keep their names for ever.
"""

from enum import StrEnum


class Reason(StrEnum):
    """The closed set."""

    RUNTIME_OFFLINE = "runtime_offline"
    QUEUED_EXPIRED = "queued_expired"
    DELIVERY_TIMEOUT = "delivery_timeout"
    AGENT_BLOCKED = "agent_blocked"
    CANCELLED = "cancelled"
    PROVIDER_AUTH_OR_ACCESS = "provider_auth_or_access"
    PROVIDER_QUOTA_LIMIT = "provider_quota_limit"
    PROVIDER_RATE_LIMIT = "provider_rate_limit"
    PROVIDER_SERVER_ERROR = "provider_server_error"
    CONTEXT_OVERFLOW = "context_overflow"
    MISSING_CONFIG = "missing_config"
    MODEL_UNAVAILABLE = "model_unavailable"
    UNKNOWN = "unknown"

    TARGET_BUSY = "target_busy"
    TARGET_SESSION_LIVE = "target_session_live"
    ATTEMPTS_USED_UP = "attempts_used_up"
    OUTCOME_UNKNOWN = "outcome_unknown"
    TOO_LARGE = "too_large"
    MAILBOX_FULL = "mailbox_full"
    LOOP = "loop"
    CHAIN_BUDGET = "chain_budget"


HERMES_WORD = {
    Reason.ATTEMPTS_USED_UP: Reason.UNKNOWN,
    Reason.OUTCOME_UNKNOWN: Reason.DELIVERY_TIMEOUT,
    Reason.TOO_LARGE: Reason.AGENT_BLOCKED,
    Reason.MAILBOX_FULL: Reason.AGENT_BLOCKED,
    Reason.LOOP: Reason.AGENT_BLOCKED,
    Reason.CHAIN_BUDGET: Reason.AGENT_BLOCKED,
}

PROSE = {
    Reason.QUEUED_EXPIRED: "Nobody took it within its time to live; it was not delivered.",
    Reason.DELIVERY_TIMEOUT: "It was delivered, and no answer came within its time to live.",
    Reason.CANCELLED: "It was withdrawn.",
    Reason.ATTEMPTS_USED_UP: "It was handed over again and again and never finished; it lies among the dead letters.",
    Reason.CHAIN_BUDGET: "Its conversation is long or fast enough to be a loop; a person must release it.",
}


def on_hermes_wire(reason: Reason) -> str:
    """The word for ``reason`` that a Hermes peer knows."""
    return str(HERMES_WORD.get(reason, reason))


def prose(reason: Reason) -> str:
    """One plain sentence for a person or a model."""
    return PROSE.get(reason, f"It failed: {reason.value.replace('_', ' ')}.")
