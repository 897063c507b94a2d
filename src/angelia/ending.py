"""The end of a hub: who called for it, and why.

What must stay true: whoever asks for the end (SIGTERM, SIGINT, an admin's stop) gets it, at any instant since the loop
began: while the store is opened, while the hub serves and stops, while the loop is closed, and while the process waits
to become a new hub. So these signals are the process's own, not the loop's, which lets go of its own before it is over.
"""

import asyncio
import signal
import sys
from collections.abc import Callable
from enum import Enum, auto


class End(Enum):
    """Why the serving ended."""

    ASKED = auto()
    STORE_FAILED = auto()
    LOCK_LOST = auto()
    STORE_GONE = auto()


class Ending:
    """The end, once somebody has called for it. The first reason counts, but whoever asks for the end gets it, of a hub
    that is about to replace itself, too."""

    def __init__(self) -> None:
        self.reason: End | None = None
        self._called = asyncio.Event()

    def call(self, reason: End) -> None:
        """End it, for this reason."""
        if self.reason is None or (self.reason is End.STORE_FAILED and reason is End.ASKED):
            self.reason = reason
        self._called.set()

    async def wait(self) -> End:
        """Until somebody does."""
        await self._called.wait()
        assert self.reason is not None
        return self.reason

    def hear_signals(self, hang_up: Callable[[], None]) -> None:
        """SIGTERM and SIGINT ask for the end from now on. ``hang_up`` is called on the running loop when the terminal
        is closed, and no more once that loop is."""
        loop = asyncio.get_running_loop()

        def hung_up(*_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(hang_up)

        _on_asking(lambda *_: self.call(End.ASKED))
        signal.signal(signal.SIGHUP, hung_up)

    @staticmethod
    def obey_at_once() -> None:
        """Whoever asks from now on ends the process, with everything put away (``SystemExit``). What was asked before
        is the ``reason``."""
        _on_asking(lambda *_: sys.exit(0))


def _on_asking(do: Callable[..., object]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, do)
