"""A store that tells which changes of rows were committed, and else is the one that it wraps.

What must stay true: a change is told in the order of commits, once, and only where its unit is stored.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from angelia.bus.ports import Load, Store, Tx, View
from angelia.model.delivery import Delivery

T = TypeVar("T")
Change = tuple[Delivery, Delivery]


class WatchedStore:
    """``bus.ports.Store`` around another; ``changes`` is where it tells."""

    def __init__(self, inner: Store, changes: list[Change]) -> None:
        self.inner, self._changes = inner, changes

    @property
    def epoch(self) -> str:
        return self.inner.epoch

    @property
    def instance(self) -> str:
        return self.inner.instance

    @property
    def secret(self) -> bytes:
        return self.inner.secret

    def write(
        self, work: Callable[[Tx], T], *, weight: int = 0, lazy: bool = False, essential: bool = False
    ) -> asyncio.Future[T]:
        """As the store inside; its changes are noted."""

        def unit(tx: Tx) -> T:
            return work(cast(Tx, _Watched(tx, self._changes)))

        return self.inner.write(unit, weight=weight, lazy=lazy, essential=essential)

    def read(self, work: Callable[[View], T]) -> asyncio.Future[T]:
        """As the store inside."""
        return self.inner.read(work)

    def load(self, mailbox: str) -> Load:
        return self.inner.load(mailbox)

    async def close(self) -> None:
        """Close the store inside."""
        await self.inner.close()


class _Watched:
    def __init__(self, tx: Tx, changes: list[Change]) -> None:
        self._tx, self._changes = tx, changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def move(self, old: Delivery, new: Delivery) -> bool:
        moved = self._tx.move(old, new)
        if moved:
            self._tx.then(lambda: self._changes.append((old, new)))
        return moved

    def move_all(self, pairs: Sequence[tuple[Delivery, Delivery]]) -> Sequence[tuple[Delivery, Delivery]]:
        moved = self._tx.move_all(pairs)
        self._tx.then(lambda: self._changes.extend(moved))
        return moved
