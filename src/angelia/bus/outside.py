"""Waits for what is outside of the hub: another hub, a program, a person. All of them end when the hub stops.

What must stay true: a stop ends each of them at once, and what was waited for has cleaned up after itself before
``Stopping`` is raised. No unit of work is awaited inside of such a wait: it would be ended in the middle, and nobody
could say whether it was committed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from angelia.model.errors import Stopping


class Outside:
    """Those who wait now."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Timeout] = set()
        self._over = False

    @asynccontextmanager
    async def wait(self, words: str) -> AsyncIterator[None]:
        """A context that is ended, as by a cancellation, when the hub stops; ``Stopping`` is raised then. ``words`` say
        how things stand in that case: what is kept, and what is not."""
        if self._over:
            raise Stopping(f"The hub is stopping. {words}")
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._waiting.add(scope)
                try:
                    yield
                finally:
                    self._waiting.discard(scope)
        except TimeoutError:
            if scope.expired():
                raise Stopping(f"The hub is stopping. {words}") from None
            raise

    def end_all(self) -> None:
        """The hub stops: end them, and all that would begin."""
        self._over = True
        now = asyncio.get_running_loop().time()
        while self._waiting:
            self._waiting.pop().reschedule(now)
