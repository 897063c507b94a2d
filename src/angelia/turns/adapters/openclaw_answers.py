"""What OpenClaw's answers mean: the end of a run, and what a session remembers of one. Pure.

What must stay true: a run ended well when its status is ``ok``, it names no error and was not broken off, and no part
of its answer is marked as an error: the gateway's ``ok`` alone is none. What it names as an error is typed by that
name; what it only tells in words is handed on as it was told.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from angelia.model.failure import Reason
from angelia.turns.adapters.openclaw_gateway import listed, mapping
from angelia.turns.adapters.port import Answered, Failed, Outcome, Usage

# `meta.error.kind` of a run, and the words of OpenClaw's own list of reasons for trying another provider.
KINDS = {
    "context_overflow": Reason.CONTEXT_OVERFLOW,
    "compaction_failure": Reason.CONTEXT_OVERFLOW,
    "auth": Reason.PROVIDER_AUTH_OR_ACCESS,
    "auth_permanent": Reason.PROVIDER_AUTH_OR_ACCESS,
    "billing": Reason.PROVIDER_QUOTA_LIMIT,
    "rate_limit": Reason.PROVIDER_RATE_LIMIT,
    "overloaded": Reason.PROVIDER_SERVER_ERROR,
    "server_error": Reason.PROVIDER_SERVER_ERROR,
    "timeout": Reason.PROVIDER_SERVER_ERROR,
    "tls_certificate": Reason.PROVIDER_SERVER_ERROR,
    "model_not_found": Reason.MODEL_UNAVAILABLE,
    "hook_block": Reason.AGENT_BLOCKED,
    "image_size": Reason.TOO_LARGE,
}
# Its own sentences, where they say nothing that the common rules know.
SENTENCES = (
    (
        "after a provider auth/billing failure",
        Reason.PROVIDER_AUTH_OR_ACCESS,
    ),  # it leaves a provider alone for a minute
    ("billing error", Reason.PROVIDER_QUOTA_LIMIT),
    ("network connection error", Reason.PROVIDER_SERVER_ERROR),  # the provider hung up
    ("no route-compatible authentication source", Reason.MISSING_CONFIG),
)
BROKEN_OFF = "rpc"  # why a run stopped that somebody broke off by a call, in its own windows, too
RESUMED = "internal_system"  # a row that OpenClaw wrote to itself, to go on after a restart


def outcome(payload: Mapping[str, Any], route: str) -> Outcome:
    """What the end of a run means, as the gateway's second answer and the command line's JSON tell it."""
    result = mapping(payload.get("result"))
    meta = mapping(result.get("meta"))
    parts = listed(result.get("payloads"))
    said = "\n\n".join(filter(None, (_said(part) for part in parts)))
    error = mapping(meta.get("error"))
    wrong = bool(error) or meta.get("aborted") is True or any(part.get("isError") for part in parts)
    if payload.get("status") == "ok" and not wrong:
        return Answered(said, route, _usage(meta))
    if payload.get("stopReason") == BROKEN_OFF:
        return _broken_off(route)
    if payload.get("status") == "timeout":
        return Failed("OpenClaw's own time for a turn was over.", route, Reason.DELIVERY_TIMEOUT)
    told = (str(error.get("message") or ""), said, str(payload.get("summary") or ""))
    return failed("\n".join(filter(None, told)), route, str(error.get("kind") or ""))


def failed(output: str, route: str, kind: str = "") -> Failed:
    """A run that OpenClaw gave up, and said why."""
    reason = KINDS.get(kind)
    if reason is None:
        reason = next((reason for words, reason in SENTENCES if words in output.lower()), None)
    return Failed("OpenClaw's turn failed.", route, reason, output)


def waited(payload: Mapping[str, Any], route: str) -> Outcome | None:
    """What ``agent.wait`` knows of a run; None while it runs, and where it knows none."""
    status = payload.get("status")
    reply = mapping(payload.get("terminalReply"))
    if status == "ok" and reply:
        return Answered(str(reply.get("text") or ""), route)  # without a text it kept silent
    if payload.get("stopReason") == BROKEN_OFF:
        return _broken_off(route)
    if status == "error":
        return failed(str(payload.get("error") or payload.get("stopReason") or ""), route)
    return None


def remembered(history: Mapping[str, Any], key: str, text: str, route: str) -> Outcome | None:
    """What a session's history says of the turn that began under ``key`` (or, by the command line, with ``text``).

    None while that is open: it goes on, or may be taken up again (``runs``), or there is nothing of it (``mentions``).
    """
    waiting = _pending(history, key)
    if waiting.get("state") == "interrupted":
        return given_up(route)
    if waiting.get("state") == "cancelled":
        return _broken_off(route)
    turn = _rows(listed(history.get("messages")), key, text)
    last: Mapping[str, Any] = next((row for row in reversed(turn) if row.get("role") == "assistant"), {})
    if last.get("stopReason") == "error":
        return failed(str(last.get("errorMessage") or ""), route)
    if last.get("stopReason") == "stop":
        return Answered(_text(last), route)
    if turn and not waiting and not runs(history) and _about(history).get("status") == "killed":
        return _broken_off(route)
    return None


def mentions(history: Mapping[str, Any], key: str, text: str) -> bool:
    """Whether the session knows of the turn at all."""
    return bool(_pending(history, key) or _rows(listed(history.get("messages")), key, text))


def runs(history: Mapping[str, Any]) -> bool:
    """Whether something runs in the session, or is taken up again after a restart."""
    return _about(history).get("hasActiveRun") is True or _about(history).get("status") == "running"


def _about(history: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the history says of its session."""
    return mapping(history.get("sessionInfo"))


def _broken_off(route: str) -> Failed:
    return Failed("The turn was broken off in OpenClaw.", route, Reason.CANCELLED)


def given_up(route: str) -> Failed:
    """A turn that OpenClaw neither runs nor answered, and does not take up any more."""
    return Failed("OpenClaw was restarted in the middle of the turn and did not go on.", route, Reason.RUNTIME_OFFLINE)


def _pending(history: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The text while it waits to be taken into the conversation; "interrupted" where OpenClaw ended before that."""
    items = listed(mapping(history.get("pendingInputs")).get("items"))
    return next((item for item in items if item.get("runId") == key), {})


def _rows(messages: Sequence[Mapping[str, Any]], key: str, text: str) -> list[Mapping[str, Any]]:
    """The rows of one turn: from its text to the next one that somebody wrote."""
    rows: list[Mapping[str, Any]] = []
    for row in messages:
        if row.get("role") == "user" and mapping(row.get("provenance")).get("kind") != RESUMED:
            if rows:
                break
            if row.get("idempotencyKey") in (key, f"{key}:user") or _text(row) == text:
                rows.append(row)
        elif rows:
            rows.append(row)
    return rows


def _said(part: Mapping[str, Any]) -> str:
    said = (part.get("text"), part.get("mediaUrl"))
    return "\n".join(word for word in said if isinstance(word, str) and word)


def _text(row: Mapping[str, Any]) -> str:
    content = row.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text")) for part in listed(content) if part.get("type") == "text")


def _usage(meta: Mapping[str, Any]) -> Usage:
    about = mapping(meta.get("agentMeta"))
    used = mapping(about.get("usage"))
    cost, model = about.get("costUsd"), about.get("model")
    return Usage(
        _count(used.get("input")),
        _count(used.get("output")),
        float(cost) if isinstance(cost, int | float) else None,
        model if isinstance(model, str) else None,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None
