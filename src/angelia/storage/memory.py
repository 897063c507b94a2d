"""The store that forgets: the whole port over dictionaries, for tests and for a hub that is only tried out.

What must stay true: it behaves as the real one does wherever the port speaks. Units run in order, in groups, in a later
turn of the loop; a unit that raises leaves no trace; effects of a group come before all its futures.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from angelia.bus.ports import Conversation, Found, Load, Sight, Talks, Tx, View
from angelia.model.errors import Stopping
from angelia.model.query import Query
from angelia.storage.calls import run_effects
from angelia.storage.load import Loads
from angelia.storage.memory_library import MemoryLibrary
from angelia.storage.memory_rows import MemoryTx, MemoryView, Rows, Seqs

T = TypeVar("T")

GROUP_UNITS = 256
LAZY_SECONDS = 0.25


@dataclass
class _Unit:
    """A queued unit, and what came of it."""

    work: Callable[[Tx], Any]
    future: "asyncio.Future[Any]"
    effects: Sequence[Callable[[], None]] = ()
    result: Any = None
    error: BaseException | None = None


class MemoryStore:
    """``ports.Store`` without a disk. Make it anywhere; use it on one event loop."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self.instance = secrets.token_hex(16)
        self.secret = secrets.token_bytes(32)
        self._rows, self._loads, self._seqs = Rows(), Loads(), Seqs()
        self._queue: deque[_Unit] = deque()
        self._done: deque[_Unit] = deque()
        self._woken = self._closed = False
        self._lazy: asyncio.TimerHandle | None = None

    def write(
        self, work: Callable[[Tx], T], *, weight: int = 0, lazy: bool = False, essential: bool = False
    ) -> asyncio.Future[T]:
        """Queue a unit; see ``ports.Store.write``."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._closed:
            future.set_exception(Stopping("The store is closed; nothing was stored."))
            return future
        self._queue.append(_Unit(work, future))
        if not lazy:
            self._wake()
        elif self._lazy is None and not self._woken:
            self._lazy = loop.call_later(LAZY_SECONDS, self._wake)
        return future

    def read(self, work: Callable[[View], T]) -> asyncio.Future[T]:
        """Run ``work`` over the committed rows, in a later turn."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._closed:
            future.set_exception(Stopping("The store is closed."))
        else:
            loop.call_soon(self._look, work, future)
        return future

    def trouble(self) -> str | None:
        """See ``ports.Library``."""
        return None

    async def talks(self, sight: Sight, before: int | None, limit: int) -> Talks:
        """See ``ports.Library``."""
        return await self.read(lambda _: MemoryLibrary(self._rows).talks(sight, before, limit))

    async def conversation(
        self, sight: Sight, message_id: str, after: int, limit: int, max_bytes: int
    ) -> Conversation | None:
        """See ``ports.Library``."""
        rows = self._rows
        return await self.read(lambda _: MemoryLibrary(rows).conversation(sight, message_id, after, limit, max_bytes))

    async def search(self, sight: Sight, query: Query, before: int | None, limit: int, max_bytes: int) -> Found:
        """See ``ports.Library``."""
        return await self.read(lambda _: MemoryLibrary(self._rows).search(sight, query, before, limit, max_bytes))

    def load(self, mailbox: str) -> Load:
        """The sums now."""
        return self._loads.of(mailbox)

    async def close(self) -> None:
        """Commit what is queued, then take no more."""
        self._closed = True
        while self._queue or self._done:
            self._wake()
            await asyncio.sleep(0)

    def _look(self, work: Callable[[View], T], future: asyncio.Future[T]) -> None:
        if future.done():
            return
        try:
            future.set_result(work(MemoryView(self._rows)))
        except Exception as error:  # noqa: BLE001  (it goes to whoever asked)
            future.set_exception(error)

    def _wake(self) -> None:
        if self._lazy is not None:
            self._lazy.cancel()
            self._lazy = None
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._commit)

    def _commit(self) -> None:
        """One group: run it in this turn, answer in the next, as a store with a thread of its own does."""
        self._woken = False
        for _ in range(min(len(self._queue), GROUP_UNITS)):
            unit = self._queue.popleft()
            tx = MemoryTx(self._rows, self._loads, self._seqs)
            try:
                unit.result = unit.work(tx)
                unit.effects = tx.effects
            except Exception as error:  # noqa: BLE001  (it goes to whoever waits for the unit)
                tx.rollback()
                unit.error = error
            self._done.append(unit)
        asyncio.get_running_loop().call_soon(self._answer)
        if self._queue:
            self._wake()

    def _answer(self) -> None:
        group = list(self._done)
        self._done.clear()
        for unit in group:
            run_effects(unit.effects)
        for unit in group:
            if unit.future.done():
                continue
            if unit.error is not None:
                unit.future.set_exception(unit.error)
            else:
                unit.future.set_result(unit.result)
