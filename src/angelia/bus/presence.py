"""What is remembered of who was there: when a stream ended, and who has exchanged mail with whom.

What must stay true: presence never touches mail. This memory only saves work: contacts are on disk, and a restart
forgets no more than when the last streams ended.
"""

MOST_ENDED = 10_000
MOST_PAIRS = 100_000  # pairs remembered as already written; forgetting one costs a needless row


class Presence:
    """Ends of streams (monotonic seconds), and pairs of mailboxes known to be on disk as contacts."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}
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

    def came_back(self, mailbox: str, now: float, gap: float) -> bool:
        """True where the stream that opens now is news: none before, or none for ``gap`` seconds."""
        ended = self._ended.pop(mailbox, None)
        if len(self._ended) >= MOST_ENDED:  # whoever has been away for longer is as if never here
            self._ended = {box: at for box, at in self._ended.items() if now - at < gap}
        return ended is None or now - ended >= gap


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
