"""What is remembered of who was there: when streams ended or took over, and who has exchanged mail with whom.

What must stay true: presence never touches mail. This memory only saves work, or is for people to look at: contacts are
on disk, and a restart forgets no more than when the last streams ended and took over.
"""

from collections import deque

MOST_ENDED = 10_000
TAKEOVERS_KEPT = 8  # of one mailbox, for a glance
MOST_PAIRS = 100_000  # pairs remembered as already written; forgetting one costs a needless row


class Presence:
    """Ends of streams (monotonic seconds), and pairs of mailboxes known to be on disk as contacts."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}
        self._taken_over: dict[str, deque[float]] = {}
        self._pairs: set[tuple[str, str]] = set()

    def knows(self, one: str, other: str) -> bool:
        """Whether this pair is known to be on disk."""
        return _pair(one, other) in self._pairs

    def remember(self, one: str, other: str) -> None:
        """This pair is on disk now."""
        if len(self._pairs) >= MOST_PAIRS:
            self._pairs.clear()
        self._pairs.add(_pair(one, other))

    def left(self, mailbox: str, now: float) -> None:
        """A stream of this mailbox ended, and it has no other."""
        self._ended[mailbox] = now

    def ended(self, mailbox: str) -> float | None:
        """When its last stream ended, where it has none; None where that is not known any more."""
        return self._ended.get(mailbox)

    def came_back(self, mailbox: str, now: float, gap: float) -> bool:
        """True where the stream that opens now is news: none before, or none for ``gap`` seconds."""
        ended = self._ended.pop(mailbox, None)
        if len(self._ended) >= MOST_ENDED:  # whoever has been away for longer is as if never here
            self._ended = {box: at for box, at in self._ended.items() if now - at < gap}
        return ended is None or now - ended >= gap

    def took_over(self, mailbox: str, now: float) -> None:
        """A stream of this mailbox took another's place."""
        if len(self._taken_over) >= MOST_ENDED:
            self._taken_over.clear()
        self._taken_over.setdefault(mailbox, deque(maxlen=TAKEOVERS_KEPT)).append(now)

    def takeovers(self, mailbox: str, since: float) -> int:
        """How many times that happened at or after ``since``; ``TAKEOVERS_KEPT`` at most."""
        return sum(at >= since for at in self._taken_over.get(mailbox, ()))


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
