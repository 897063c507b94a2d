"""One after another, with a pause after each: how those are read who keep the loop busy with next to nothing.

What must stay true: however many they are, the loop has nothing of theirs to do for about as long as it had. A share of
its turns is not enough for everybody else: while the loop runs, the threads of the store wait for the interpreter, up
to 5 ms each time that they want it, and a commit wants it a hundred times.
"""

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

# Timers count in whole milliseconds, begun ones too: this is one at least, as long as a piece of a WebSocket takes.
PAUSE_SECONDS = 0.002


class Trickle:
    """Of one loop: who waits, in order."""

    def __init__(self) -> None:
        """With nobody."""
        self._waiting: dict[Callable[[], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def join(self, go_on: Callable[[], None]) -> None:
        """Call it when it is its turn."""
        self._waiting[go_on] = None
        self._pause()

    def has(self, go_on: Callable[[], None]) -> bool:
        """Whether it waits."""
        return go_on in self._waiting

    def leave(self, go_on: Callable[[], None]) -> None:
        """Call it no more; nothing where it does not wait."""
        self._waiting.pop(go_on, None)

    def _pause(self) -> None:
        if self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._next)

    def _next(self) -> None:
        go_on = next(iter(self._waiting), None)
        try:
            if go_on is not None:
                del self._waiting[go_on]
                go_on()
        finally:
            self._timer = None
            self._pause()


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Trickle] = WeakKeyDictionary()


def trickle_of(loop: asyncio.AbstractEventLoop) -> Trickle:
    """The one that all share who run on this loop."""
    return _of_loops.setdefault(loop, Trickle())
