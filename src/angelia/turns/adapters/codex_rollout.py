"""What Codex's own record of a thread (its rollout) says of a turn: how it ended, and what it used.

What must stay true: a turn is found by its mark alone, and what belongs to it by the id that Codex gives it. The layout
is Codex's own and not published, so what is not there as expected is nothing known, and never an error.

A rollout is ``sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl`` below ``~/.codex`` or ``$CODEX_HOME``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from angelia.turns.adapters.json_output import at, events


@dataclass(slots=True)
class Told:
    """What became of a turn. ``ended``: Codex says that it is over, with an ``answer`` or an ``error`` (its text and
    its class: a word, or ``{word: {"http_status_code": N}}``). The tokens are of this turn alone."""

    model: str | None = None
    ended: bool = False
    answer: str | None = None
    error: str | None = None
    error_class: object = None
    input_tokens: int | None = None
    output_tokens: int | None = None


def find(environment: Mapping[str, str], thread: str) -> Path | None:
    """The rollout of a thread; None where there is none."""
    home = environment.get("CODEX_HOME") or os.path.join(environment.get("HOME", ""), ".codex")
    return next(Path(home, "sessions").glob(f"*/*/*/rollout-*-{thread}.jsonl"), None)


def told_of(path: Path, mark: str) -> Told | None:
    """What became of the turn with this mark; None where the thread never got it. Raises ``OSError``."""
    told: Told | None = None
    model: str | None = None
    before: object = None
    for row in events(path):
        kind, payload = row.get("type"), row.get("payload")
        what = at(payload, "type")
        if kind == "turn_context" and isinstance(at(payload, "model"), str):
            model = at(payload, "model")
        elif kind == "response_item" and at(payload, "role") == "user" and _text(payload).rstrip().endswith(mark):
            told = Told(model)
        elif what == "token_count" and told is None:
            before = at(payload, "info", "total_token_usage")
        elif what == "token_count" and told is not None:
            _count(told, before, at(payload, "info", "total_token_usage"))
        elif what == "task_complete" and told is not None:
            _end(told, payload)
            return told
        elif what in ("task_started", "turn_aborted") and told is not None:
            return told  # it was cut off, and the next one began
    return told


def _text(payload: Any) -> str:
    content = at(payload, "content")
    blocks = content if isinstance(content, list) else []
    return "".join(text for block in blocks if isinstance(text := at(block, "text"), str))


def _count(told: Told, before: object, after: object) -> None:
    """Codex counts for the whole thread."""
    for name in ("input_tokens", "output_tokens"):
        total, base = at(after, name), at(before, name) or 0
        if isinstance(total, int) and isinstance(base, int) and total >= base:
            setattr(told, name, total - base)


def _end(told: Told, payload: Any) -> None:
    told.ended = True
    answer, error = at(payload, "last_agent_message"), at(payload, "error")
    told.answer = answer if isinstance(answer, str) else None
    if error is not None:
        told.error = str(at(error, "message") or "")
        told.error_class = at(error, "codex_error_info")
