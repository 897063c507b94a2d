"""What was said already: the first of equal lines is let through, the next ones are counted.

What must stay true: nothing is ever only counted: what was held back is told at the end of its window, and when the log
ends. Memory is bounded: beyond ``most`` kinds of lines in a window each is let through. Time comes in as an argument;
nothing waits.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

WINDOW_SECONDS = 60.0
MOST_KINDS = 1_000
First = TypeVar("First")


class _Seen(Generic[First]):
    """One kind of line: what was let through of it, since when the window runs, and how often it came since then."""

    __slots__ = ("first", "since", "times")

    def __init__(self, first: First, since: float) -> None:
        self.first, self.since, self.times = first, since, 0


class Repeats(Generic[First]):
    """The lines of the last window, each with how often it came again."""

    def __init__(self, seconds: float = WINDOW_SECONDS, most: int = MOST_KINDS) -> None:
        self._seconds, self._most = seconds, most
        self._seen: OrderedDict[Hashable, _Seen[First]] = OrderedDict()  # the window that ends first, first

    def is_new(self, what: Hashable, first: First, now: float) -> bool:
        """True where ``first`` is to be said now; else it is counted, being the same (``what``) as one before."""
        known = self._seen.get(what)
        if known is None:
            if len(self._seen) < self._most:
                self._seen[what] = _Seen(first, now)
            return True
        known.times += 1
        return False

    def due(self, now: float) -> list[tuple[First, int, float]]:
        """What is to be told now: which came again, how many times, within how many seconds. Ask after every line."""
        told: list[tuple[First, int, float]] = []
        while self._seen:
            what, seen = next(iter(self._seen.items()))
            if now - seen.since < self._seconds:
                break
            del self._seen[what]
            if seen.times:
                told.append((seen.first, seen.times, now - seen.since))
                self._seen[what] = _Seen(seen.first, now)  # it may go on: one line a window
        return told

    def wait(self, now: float) -> float | None:
        """Seconds until ``due`` has something to tell; None while nothing came again."""
        ends = [seen.since + self._seconds for seen in self._seen.values() if seen.times]
        return max(0.0, min(ends) - now) if ends else None

    def rest(self, now: float) -> list[tuple[First, int, float]]:
        """Everything that was counted and not told: the log ends."""
        told = [(seen.first, seen.times, now - seen.since) for seen in self._seen.values() if seen.times]
        self._seen.clear()
        return told
