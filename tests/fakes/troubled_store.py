"""A store that can be slow, full, or broken, over any other.

What must stay true: it keeps the port's promises otherwise. ``late``: units run, and what they tell the loop (effects,
then answers) is kept until ``let_go``: the gap that a store with a thread of its own has between a unit and the loop.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from angelia.bus.ports import Load, Store, Tx, View
from angelia.storage.memory import MemoryStore
from tests.fakes.clock import settle

T = TypeVar("T")


class _Keeping:
    """A unit's ``Tx`` whose effects are kept."""

    def __init__(self, tx: Tx, effects: list[Callable[[], None]]) -> None:
        self._tx, self._effects = tx, effects

    def then(self, effect: Callable[[], None]) -> None:
        self._effects.append(effect)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)  # `otherwise` too: the store below rolls back what fails


class TroubledStore:
    """``ports.Store``. ``refusal`` is raised to every unit while it is set; ``fault`` is raised inside the next one."""

    def __init__(self, inner: Store | None = None) -> None:
        self.inner: Store = inner or MemoryStore()
        self.late = False
        self.refusal: Exception | None = None
        self.fault: Exception | None = None
        self.commits = 0
        self._kept: list[tuple[list[Callable[[], None]], Callable[[], None]]] = []

    @property
    def epoch(self) -> str:
        return self.inner.epoch

    @property
    def instance(self) -> str:
        return self.inner.instance

    @property
    def secret(self) -> bytes:
        return self.inner.secret

    def load(self, mailbox: str) -> Load:
        return self.inner.load(mailbox)

    def read(self, work: Callable[[View], T]) -> asyncio.Future[T]:
        return self.inner.read(work)

    async def close(self) -> None:
        await self.inner.close()

    def write(
        self, work: Callable[[Tx], T], *, weight: int = 0, lazy: bool = False, essential: bool = False
    ) -> asyncio.Future[T]:
        outer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self.refusal is not None:
            outer.set_exception(self.refusal)
            return outer
        effects: list[Callable[[], None]] = []

        def unit(tx: Tx) -> T:
            result = work(cast(Tx, _Keeping(tx, effects)))
            fault, self.fault = self.fault, None
            if fault is not None:
                raise fault
            return result

        inner = self.inner.write(unit, weight=weight, lazy=lazy, essential=essential)
        inner.add_done_callback(lambda done: self._done(done, effects, outer))
        return outer

    def kept_last(self, then: Callable[[], object]) -> None:
        """Call ``then`` when everything that is kept so far has reached the loop, before anybody can act on it."""

        def answer() -> None:
            then()

        self._kept.append(([], answer))

    async def let_go(self) -> None:
        """Everything that was kept reaches the loop, in its order; from here on nothing is late."""
        await settle()
        self.late = False
        kept, self._kept = self._kept, []
        for effects, _ in kept:
            for effect in effects:
                effect()
        for _, answer in kept:
            answer()
        await settle()

    def _done(self, inner: "asyncio.Future[T]", effects: list[Callable[[], None]], outer: "asyncio.Future[T]") -> None:
        def answer() -> None:
            if outer.done():
                inner.exception()
            elif (error := inner.exception()) is not None:
                outer.set_exception(error)
            else:
                outer.set_result(inner.result())

        self.commits += 1
        if inner.exception() is not None:
            effects.clear()
        if self.late or self._kept:
            self._kept.append((effects, answer))
            return
        for effect in effects:
            effect()
        answer()
