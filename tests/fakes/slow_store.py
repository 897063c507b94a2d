"""A store that answers late: several turns of the loop after the one that it wraps, and still in order.

What must stay true: only the answers are late. Units run, commit and have their effects when they do in the store
inside; so whoever reads first and waits afterwards meets what came in between.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from angelia.bus.ports import Load, Store, Tx, View

T = TypeVar("T")


class SlowStore:
    """``bus.ports.Store`` around another."""

    def __init__(self, inner: Store, turns: int = 7) -> None:
        self.inner, self._turns = inner, turns

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
        """As the store inside, some turns later."""
        return self._late(self.inner.write(work, weight=weight, lazy=lazy, essential=essential))

    def read(self, work: Callable[[View], T]) -> asyncio.Future[T]:
        """As the store inside, some turns later."""
        return self._late(self.inner.read(work))

    def load(self, mailbox: str) -> Load:
        return self.inner.load(mailbox)

    async def close(self) -> None:
        """Close the store inside, and give every late answer first."""
        await self.inner.close()
        for _ in range(self._turns + 2):
            await asyncio.sleep(0)

    def _late(self, answer: asyncio.Future[T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        late: asyncio.Future[T] = loop.create_future()

        def turn(left: int) -> None:
            if left:
                loop.call_soon(turn, left - 1)
            elif answer.cancelled():
                late.cancel()
            elif late.done():
                answer.exception()
            elif (error := answer.exception()) is not None:
                late.set_exception(error)
            else:
                late.set_result(answer.result())

        answer.add_done_callback(lambda _: turn(self._turns))
        return late
