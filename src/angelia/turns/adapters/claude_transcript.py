"""What Claude Code's own transcript of a session says: what became of a turn, and what was spent before it.

What must stay true: a turn is found by its mark alone. An answer counts only where the model ended its turn with it; a
turn that was cut off has none. The layout is Claude Code's own and not published, so what is not there as expected is
nothing known, and never an error.

A transcript is ``projects/<folder>/<session>.jsonl`` below ``~/.claude`` or ``$CLAUDE_CONFIG_DIR``.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from angelia.turns.adapters.json_output import Event, at, event_of, events

_ENDS = {"end_turn", "stop_sequence"}
_TAIL_BYTES = 256 * 1024  # the sum stands within the last few lines of a session that has ended


@dataclass(slots=True)
class Told:
    """What became of a turn. ``failure``: the row of the error that it ended with; ``model``: who answered."""

    found: bool = False
    answer: str | None = None
    failure: Event | None = None
    model: str | None = None
    _message: object = None
    _texts: list[str] = field(default_factory=list)

    def take(self, row: Event) -> None:
        """The next row of the assistant."""
        message: Any = row.get("message")
        if at(message, "id") != self._message:
            self._message, self._texts = at(message, "id"), []
        self._texts += _texts(at(message, "content"))
        self.failure = row if row.get("isApiErrorMessage") else None
        ended = at(message, "stop_reason") in _ENDS and self.failure is None
        self.answer = "".join(self._texts) if ended else None
        if self.failure is None and isinstance(at(message, "model"), str):
            self.model = message["model"]


def find(environment: Mapping[str, str], session: str) -> Path | None:
    """The transcript of a session; None where there is none."""
    home = environment.get("CLAUDE_CONFIG_DIR") or os.path.join(environment.get("HOME", ""), ".claude")
    return next(Path(home, "projects").glob(f"*/{session}.jsonl"), None)


def told_of(path: Path, mark: str) -> Told:
    """What became of the turn with this mark. Raises ``OSError``."""
    told = Told()
    for row in events(path):
        kind, content = row.get("type"), at(row, "message", "content")
        if row.get("isSidechain") or kind not in ("user", "assistant"):
            continue
        if kind == "user" and _texts(content)[-1:] == [mark]:
            told = Told(found=True)
        elif told.found and kind == "assistant":
            told.take(row)
        elif told.found and not row.get("isMeta") and not _has_tool_result(content):
            break  # somebody's next prompt
    return told


def spent(path: Path) -> float | None:
    """Dollars that the session had cost when it ended last; 0 where it does not say. Raises ``OSError``."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        tail = file.read()
    rows = [event_of(line) for line in tail.splitlines()]
    sums = [row for row in rows if at(row, "type") == "cost-state"]
    total = at(sums[-1], "totalCostUSD") if sums else 0.0
    return float(total) if isinstance(total, int | float) else None


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [text for block in blocks if at(block, "type") == "text" and isinstance(text := at(block, "text"), str)]


def _has_tool_result(content: object) -> bool:
    return isinstance(content, list) and any(at(block, "type") == "tool_result" for block in content)
