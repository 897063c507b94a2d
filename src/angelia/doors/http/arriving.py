"""What has come and is not whole yet: bodies of requests, and messages over WebSockets.

What must stay true: each is bounded by itself, and all that came by TCP are together. A message over a WebSocket that
is small costs nothing here and is never refused for what others send; a larger one comes as fast as a body has to, so
that nobody holds for ever what all share.
"""

from angelia.model.errors import RateLimited

FREE_BYTES = 64 * 1024  # of each connection: as much as a head may have, for which nobody counts either
PACE_BYTES, PACE_SECONDS = 10 * 1024, 10.0  # no line is so slow that it brings less than a kilobyte a second


class Arriving:
    """How much there is of all. ``bytes``: now; ``most``: together."""

    __slots__ = ("bytes", "most")

    def __init__(self, most: int) -> None:
        self.bytes, self.most = 0, most

    def check(self) -> None:
        """Raise ``RateLimited`` where it is too much."""
        if self.bytes > self.most:
            raise RateLimited(
                f"More than {self.most} bytes of unfinished requests are here. Of this one nothing was stored; send it "
                "again in a moment, or in smaller parts.",
                limit=self.most,
            )


class Growing:
    """The message that a WebSocket is in the middle of. ``counted``: its bytes beyond those that are free."""

    __slots__ = ("_arriving", "counted")

    def __init__(self, arriving: Arriving) -> None:
        """``arriving``: shared by all of a hub."""
        self._arriving, self.counted = arriving, 0

    def is_too_much(self, size: int) -> bool:
        """So many bytes of it are here, 0 once it is whole or gone. Whether it has to be refused for that."""
        before, self.counted = self.counted, max(size - FREE_BYTES, 0)
        self._arriving.bytes += self.counted - before
        return self.counted > before and self._arriving.bytes > self._arriving.most
