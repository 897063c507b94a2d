"""What is remembered of who was there: when streams ended or took over, who has exchanged mail with whom, and what was
left for those who were away.

What must stay true: presence never touches mail. This memory only saves work, or is for people to look at: contacts and
notices are on disk, and a restart forgets no more than when the last streams ended and took over.
"""

from collections import deque
from typing import NamedTuple

MOST_ENDED = 10_000
TAKEOVERS_KEPT = 8  # of one mailbox, for a glance
MOST_PAIRS = 100_000  # pairs remembered as already written; forgetting one costs a needless row
MOST_NOTICES = 100_000  # whose places are remembered; forgetting them costs a look through their mailboxes


class News(NamedTuple):
    """Somebody is connected. ``others``: who is still to be told; None where it is not known yet who wants to know."""

    mailbox: str
    body: bytes
    others: tuple[str, ...] | None = None


class Unread:
    """Where in a mailbox, by its key, the notice with a certain body lies that was left there last. Used inside units
    alone. Of a mailbox all that is there is known, or nothing."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[bytes, int]] = {}
        self._count = 0

    def knows(self, mailbox: str) -> bool:
        """Whether it is known what is there."""
        return mailbox in self._keys

    def know(self, mailbox: str, keys: dict[bytes, int]) -> None:
        """These are all that are there."""
        self.forget(mailbox)
        if self._count + len(keys) > MOST_NOTICES:
            self._forget_all()
        self._keys[mailbox] = keys
        self._count += len(keys)

    def find(self, mailbox: str, body: bytes) -> int | None:
        """The key of the last one, which may have been read since."""
        return self._keys[mailbox].get(body)

    def put(self, mailbox: str, body: bytes, key: int) -> None:
        """This one is there now."""
        keys = self._keys[mailbox]
        self._count += body not in keys
        keys[body] = key
        if self._count > MOST_NOTICES:
            self._forget_all()

    def forget(self, mailbox: str) -> None:
        """It is not known any more what is there."""
        self._count -= len(self._keys.pop(mailbox, ()))

    def _forget_all(self) -> None:
        self._keys.clear()
        self._count = 0


class Presence:
    """Ends of streams (monotonic seconds), and pairs of mailboxes known to be on disk as contacts.

    ``news``: of whom others are still to be told, oldest first; ``bus/announce.py`` does that.
    """

    def __init__(self) -> None:
        self.news: deque[News] = deque()
        self.unread = Unread()
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
