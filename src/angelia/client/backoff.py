"""How long to wait before trying again: full jitter, so that a hub's return is not a stampede.

What must stay true: each wait is drawn evenly from nothing up to a ceiling that doubles with every failure in a row.
Drawing from the whole range spreads a thousand readers better than a fixed wait with a little noise does.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def chance() -> float:
    """A number from 0 to 1; the ``random`` module would have to be loaded first."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


class Backoff:
    """The waits of one thing that is tried again and again. ``first_seconds``, the first ceiling, may be changed."""

    def __init__(self, first_seconds: float, most_seconds: float, draw: Callable[[], float] = chance) -> None:
        self.first_seconds = first_seconds
        self._most = most_seconds
        self._draw = draw
        self._failures = 0

    def reset(self) -> None:
        """It worked: start again from the first ceiling."""
        self._failures = 0

    def next_seconds(self) -> float:
        """It failed: how long to wait now."""
        ceiling = min(max(self._most, self.first_seconds), self.first_seconds * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return self._draw() * ceiling
