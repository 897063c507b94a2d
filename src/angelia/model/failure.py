"""Why a delivery failed: a closed set of reasons, what may be tried again after each, and each in words.

What must stay true:

- A reason is typed where it arises and never read back out of our own prose. Only what a foreign program printed is
  ever classified, in a fixed order, and after the names in it were taken out: an agent called ``quota-bot`` has not run
  out of anything.
- A number alone says nothing: it counts only as the status that it is called.
- The first thirteen are Hermes' own and keep their names for ever.

When a retry is due, and how often, is the runner's business.
"""

import re
from collections.abc import Iterable
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
    DAMAGED = "damaged"
    CONNECTION_GONE = "connection_gone"
    QUESTION_UNKNOWN = "question_unknown"


class Retry(StrEnum):
    """What may be done once more after a turn that failed, always in the same conversation."""

    NONE = "none"
    RESUME = "resume"
    COMPRESS_THEN_RESUME = "compress_then_resume"


RETRY_AFTER = {
    Reason.RUNTIME_OFFLINE: Retry.RESUME,
    Reason.DELIVERY_TIMEOUT: Retry.RESUME,
    Reason.PROVIDER_RATE_LIMIT: Retry.RESUME,
    Reason.PROVIDER_SERVER_ERROR: Retry.RESUME,
    Reason.CONTEXT_OVERFLOW: Retry.COMPRESS_THEN_RESUME,
}

HERMES_WORD = {
    Reason.ATTEMPTS_USED_UP: Reason.UNKNOWN,
    Reason.OUTCOME_UNKNOWN: Reason.DELIVERY_TIMEOUT,
    Reason.TOO_LARGE: Reason.AGENT_BLOCKED,
    Reason.MAILBOX_FULL: Reason.AGENT_BLOCKED,
    Reason.LOOP: Reason.AGENT_BLOCKED,
    Reason.CHAIN_BUDGET: Reason.AGENT_BLOCKED,
    Reason.DAMAGED: Reason.UNKNOWN,
    Reason.CONNECTION_GONE: Reason.DELIVERY_TIMEOUT,
    Reason.QUESTION_UNKNOWN: Reason.AGENT_BLOCKED,
}

# One sentence each: what happened; what to do about it.
PROSE = {
    Reason.RUNTIME_OFFLINE: "Its agent is not connected, and nothing was delivered; send it again once it is back.",
    Reason.QUEUED_EXPIRED: "Nobody took it within its time to live; it was not delivered, so it is safe to send again.",
    Reason.DELIVERY_TIMEOUT: "It was delivered, and no answer came in time; one may still come, so look before you "
    "send it again.",
    Reason.AGENT_BLOCKED: "It was refused as it is, by the agent or by a limit on the way there; change it, or ask the "
    "person who runs that agent.",
    Reason.CANCELLED: "It was withdrawn; send it again if it is still wanted.",
    Reason.PROVIDER_AUTH_OR_ACCESS: "The agent's model provider refused its key or its access; a person must mend that "
    "before it can answer.",
    Reason.PROVIDER_QUOTA_LIMIT: "The agent's account with its model provider has no money or quota left; a person "
    "must top it up.",
    Reason.PROVIDER_RATE_LIMIT: "The agent's model provider has too many requests; send it again in some minutes.",
    Reason.PROVIDER_SERVER_ERROR: "The agent's model provider had an error of its own; send it again in some minutes.",
    Reason.CONTEXT_OVERFLOW: "The conversation no longer fits into the agent's model; send something shorter, or have "
    "the agent start anew.",
    Reason.MISSING_CONFIG: "The agent is not set up to answer: a program, a key or a provider is missing; a person "
    "must finish its configuration.",
    Reason.MODEL_UNAVAILABLE: "The agent's model is not there at its provider; a person must choose another.",
    Reason.UNKNOWN: "It failed and nobody can say why; look at the agent's own log before you send it again.",
    Reason.TARGET_BUSY: "The agent was at work on something else and nothing was delivered; send it again later.",
    Reason.TARGET_SESSION_LIVE: "The agent's chat is in use at this moment and nothing was delivered; send it again "
    "later.",
    Reason.ATTEMPTS_USED_UP: "It was handed over again and again and never finished; it lies among the dead letters, "
    "where a person can requeue it.",
    Reason.OUTCOME_UNKNOWN: "The agent was lost in the middle of it and nobody knows what it did; look before you send "
    "it again.",
    Reason.TOO_LARGE: "It, or the answer to it, is larger than what is carried; send or ask for less at a time.",
    Reason.MAILBOX_FULL: "The mailbox that it is for is full; send it again once that has been read.",
    Reason.LOOP: "It goes round in a circle; a person should look at who answers whom.",
    Reason.CHAIN_BUDGET: "Its conversation is long or fast enough to be a loop; a person must release it.",
    Reason.DAMAGED: "Bits of it flipped on the disk of a hub, which set it aside; send it again as a new message, but "
    "look first if it may have been handed over by then.",
    Reason.CONNECTION_GONE: "It was handed to the hub there, and then the connection was given up, so what becomes of "
    "it will not be known here; look before you send it again.",
    Reason.QUESTION_UNKNOWN: "The question that it answers is not known there, or not any more, and nobody waits for "
    "it; send it as a message of its own if it still matters.",
}

# "status N" of Hermes: the number right after one of these, and ended by what is no letter or digit.
_STATUS = r"(?:error code|status(?: *code)?|http):?\s*"
# The first that is found counts. Access stands before money: real refusals of a key speak of funds, too.
_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), reason)
    for pattern, reason in (
        (rf"authentication_error|invalid api key|{_STATUS}40[13]\b", Reason.PROVIDER_AUTH_OR_ACCESS),
        (rf"{_STATUS}402\b|out of funds|quota|balance", Reason.PROVIDER_QUOTA_LIMIT),
        (rf"{_STATUS}429\b|rate.?limit", Reason.PROVIDER_RATE_LIMIT),
        (rf"{_STATUS}5[0-9][0-9]\b|server[ _]?error|overloaded", Reason.PROVIDER_SERVER_ERROR),
        (r"context length|context_overflow|maximum context", Reason.CONTEXT_OVERFLOW),
        (r"no llm provider configured|missing config|no access token", Reason.MISSING_CONFIG),
        # By lines and from the first "model" on alone: tried from each of many, one long line would take for ever.
        (r"(?m:^)(?>.*?model ).*?(?:not found|does not exist)|model_not_found", Reason.MODEL_UNAVAILABLE),
    )
)
# Stands where a name was: neither a separator nor a space, so that no two halves around it become a phrase.
_TAKEN_OUT = "__"


def classify(text: str | None) -> Reason:
    """The reason that a foreign program's text speaks of; ``UNKNOWN`` where it speaks of none, or there is none."""
    if text:
        for pattern, reason in _RULES:
            if pattern.search(text):
                return reason
    return Reason.UNKNOWN


def classify_output(output: str | None, names: Iterable[str]) -> Reason:
    """``classify`` over all that a program printed (both streams), after ``names`` were taken out.

    ``names``: handles, connections, profiles and titles that may stand in it. A name goes where it is a whole word; one
    that speaks of a reason by itself (``quota-bot``) goes wherever it stands, in a file's name too.
    """
    known = sorted({name.strip().lower() for name in names} - {""}, key=lambda name: (-len(name), name))
    if not output or not known:
        return classify(output)
    words = [
        re.escape(name) if classify(name) is not Reason.UNKNOWN else rf"(?<![\w-]){re.escape(name)}(?![\w-])"
        for name in known
    ]
    return classify(re.sub("|".join(words), _TAKEN_OUT, output, flags=re.IGNORECASE))


def read_reason(word: object) -> Reason:
    """The reason that a word from outside names; ``UNKNOWN`` for any other word and for what is no word."""
    try:
        return Reason(word.strip()) if isinstance(word, str) else Reason.UNKNOWN
    except ValueError:
        return Reason.UNKNOWN


def reason_of(error: BaseException, names: Iterable[str]) -> Reason:
    """The reason of an error that ended a delivery: its own where that is one of the set (errors of other libraries
    have a ``reason``, too), a time-out's, else what its text speaks of (``names`` as for ``classify_output``)."""
    own = read_reason(getattr(error, "reason", None))
    if own is not Reason.UNKNOWN:
        return own
    return Reason.DELIVERY_TIMEOUT if isinstance(error, TimeoutError) else classify_output(str(error), names)


def retry_after(reason: str) -> Retry:
    """What may be tried once more after ``reason``; nothing after a word that is none.

    The one thing that this cannot know is the runner's care: a turn that ran into its own time limit is never run
    again, whatever its reason, since it may have done all of its work.
    """
    return RETRY_AFTER.get(read_reason(reason), Retry.NONE)


def on_hermes_wire(reason: Reason) -> str:
    """The word for ``reason`` that a Hermes peer knows."""
    return str(HERMES_WORD.get(reason, reason))


def prose(reason: Reason) -> str:
    """One plain sentence for a person or a model: what happened, and what to do."""
    return PROSE[reason]
