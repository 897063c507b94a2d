"""Who is at work under which token, so that they are shown out when it ends.

What must stay true: whatever lasts (a stream, a call that waits, a socket of the gateway) is a visit for as long, and
hears of the end of its token at once when that is revoked, within a second when its time runs out. One that has ended
by itself hears nothing. How one is shown out is its door's own affair.
"""

from collections.abc import Callable


class Visits:
    """The visits that are on, by the digest of their token. For the event loop alone."""

    def __init__(self) -> None:
        self._on: dict[bytes, set[Visit]] = {}

    def tokens(self) -> list[bytes]:
        """The digests under which there are any."""
        return list(self._on)

    def end(self, token: bytes) -> None:
        """The token proves nothing any more: tell every visit under it, once."""
        for visit in self._on.pop(token, ()):
            visit.end()

    def add(self, token: bytes, visit: "Visit") -> None:
        """One begins."""
        self._on.setdefault(token, set()).add(visit)

    def remove(self, token: bytes, visit: "Visit") -> None:
        """One is over."""
        there = self._on.get(token)
        if there is not None:
            there.discard(visit)
            if not there:
                del self._on[token]


class Visit:
    """One of them, as a context. ``end`` is called when its token ends before it; ``over`` once it has ended."""

    __slots__ = ("_all", "_token", "end", "over")

    def __init__(self, visits: Visits, token: bytes | None, end: Callable[[], object]) -> None:
        """``token``: the digest of what was shown; None where nothing was, and nothing can end."""
        self._all, self._token = visits, token
        self.end, self.over = end, False

    def __enter__(self) -> None:
        if self._token is not None:
            self._all.add(self._token, self)

    def __exit__(self, *_: object) -> None:
        self.over = True
        if self._token is not None:
            self._all.remove(self._token, self)
