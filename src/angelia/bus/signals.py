"""Wake-ups: a ticket before the look, a wait after it.

What must stay true: whoever takes a ticket, looks and then waits on that ticket wakes for everything that happened
after the ticket was taken. A wake-up carries no message; it only says "look". All of it happens on the event loop.
"""

import asyncio


class Signals:
    """One counter for each key that somebody has waited on, and the futures of those who wait now."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._users: dict[str, int] = {}

    def watch(self, key: str) -> "Watch":
        """A context in which changes of ``key`` are counted."""
        return Watch(self, key)

    def wake(self, key: str) -> None:
        """Say that something about ``key`` changed; costs a look-up when nobody watches."""
        if key not in self._users:
            return
        self._count[key] += 1
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    def watching(self, key: str) -> int:
        """How many watch ``key`` now."""
        return self._users.get(key, 0)

    def watched(self) -> list[str]:
        """The keys that anybody watches now."""
        return list(self._users)

    def wake_all(self) -> None:
        """Wake every waiter, as the hub stops."""
        for key in list(self._users):
            self.wake(key)

    def enter(self, key: str) -> None:
        self._users[key] = self._users.get(key, 0) + 1
        self._count.setdefault(key, 0)

    def leave(self, key: str) -> None:
        left = self._users[key] - 1
        if left:
            self._users[key] = left
        else:
            del self._users[key], self._count[key]
            self._waiting.pop(key, None)

    def ticket(self, key: str) -> int:
        return self._count[key]

    def future(self, key: str, ticket: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._count[key] != ticket:
            future.set_result(None)
        else:
            self._waiting.setdefault(key, []).append(future)
        return future

    def forget(self, key: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(key)
        if waiting and future in waiting:
            waiting.remove(future)


class Watch:
    """``with signals.watch(key) as watch``: take ``watch.ticket()``, look, then ``watch.changed(ticket)``."""

    __slots__ = ("_key", "_last", "_signals")

    def __init__(self, signals: Signals, key: str) -> None:
        self._signals, self._key = signals, key
        self._last: asyncio.Future[None] | None = None

    def __enter__(self) -> "Watch":
        self._signals.enter(self._key)
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._signals.forget(self._key, self._last)
        self._signals.leave(self._key)

    def ticket(self) -> int:
        """The count now; whatever happens after it ends ``changed(ticket)``."""
        return self._signals.ticket(self._key)

    def changed(self, ticket: int) -> asyncio.Future[None]:
        """A future that is done as soon as something happened after ``ticket`` was taken."""
        if self._last is not None:
            self._signals.forget(self._key, self._last)
        self._last = self._signals.future(self._key, ticket)
        return self._last
