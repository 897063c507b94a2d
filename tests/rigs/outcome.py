"""What a rig without a history found: its breaches in words, and its figures."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Result:
    """``good`` where nothing was wrong."""

    breaches: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not self.breaches
