"""What was said already: the first of equal lines is let through, the next ones are counted.

What must stay true: nothing is ever only counted: what was held back is told at the end of its window, and when the log
ends. Lines about one subject say how it stands, so only those that follow an equal one are counted, or come after
``MOST_CHANGES`` in a window; and the last that is told of it is the last that came. Memory is bounded: beyond ``most``
kinds of lines in a window each is let through. Time comes in as an argument; nothing waits.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

WINDOW_SECONDS = 60.0
MOST_KINDS = 1_000
MOST_CHANGES = 9  # of one subject in a window; a link that goes up and down has three lines each time
First = TypeVar("First")


class _Seen(Generic[First]):
    """One kind of line, or all about one subject: what came (of a subject the last), since when the window runs, how
    many were let through in it, and how many not."""

    __slots__ = ("first", "said", "since", "times", "what")

    def __init__(self, what: Hashable, first: First, since: float, said: int) -> None:
        self.what, self.first, self.since, self.said, self.times = what, first, since, said, 0


class Repeats(Generic[First]):
    """The lines of the last window, each with how often it came again."""

    def __init__(self, seconds: float = WINDOW_SECONDS, most: int = MOST_KINDS) -> None:
        self._seconds, self._most = seconds, most
        self._seen: OrderedDict[Hashable, _Seen[First]] = OrderedDict()  # the window that ends first, first

    def is_new(self, what: Hashable, first: First, now: float, subject: str = "") -> bool:
        """True where ``first`` is to be said now; else it is counted, being the same (``what``) as one before, or one
        of many changes of a ``subject``."""
        key = ("about", subject) if subject else what
        known = self._seen.get(key)
        if known is None:
            if len(self._seen) < self._most:
                self._seen[key] = _Seen(what, first, now, said=1)
            return True
        if known.what != what:
            known.what, known.first = what, first
            if known.said < MOST_CHANGES:
                known.said += 1
                return True
        known.times += 1
        return False

    def due(self, now: float) -> list[tuple[First, int, float]]:
        """What is to be told now: which came again, how many times, within how many seconds. Ask after every line."""
        told: list[tuple[First, int, float]] = []
        while self._seen:
            key, seen = next(iter(self._seen.items()))
            if now - seen.since < self._seconds:
                break
            del self._seen[key]
            if seen.times:
                told.append((seen.first, seen.times, now - seen.since))
                self._seen[key] = _Seen(seen.what, seen.first, now, said=0)  # it may go on: one line a window
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
