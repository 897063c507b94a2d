"""Where units that come by the hundred at once wait, so that whoever sends meanwhile does not wait for all of them.

Readers that are cut off together give back what they held, and when they are back they fetch what waits. The store does
its units in the order in which they came, so these are let into its queue a few at a time, and others' go between.

What must stay true: they go in as they came, each whatever became of those before it; a unit that nobody waits for any
more does not run. Once the hub ends nobody is kept back.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from angelia.bus.ports import Store, Tx

T = TypeVar("T")

# Weights are in bytes of messages that are read, by the time that it takes of the store's thread.
MOST_BYTES = 1024 * 1024  # at a time: 5 ms; a stream's whole window
ROW_BYTES = 8 * 1024  # one delivery that changes: 30 µs
UNIT_BYTES = 16 * 1024  # a unit that finds nothing to do: 80 µs


class _Waiting(NamedTuple):
    weight: int
    enter: Callable[[], asyncio.Future[Any]]
    outcome: asyncio.Future[Any]


class Turnstile:
    """The way into a store's queue for such units. ``open``: for all at once."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._inside = 0
        self._is_open = False

    def write(self, store: Store, work: Callable[[Tx], T], weight: int) -> asyncio.Future[T]:
        """Queue an essential unit, now or soon; the future is its outcome. One that is heavier than all may be together
        goes alone."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(UNIT_BYTES + weight, partial(store.write, work, essential=True), outcome))
        self._let_in()
        return outcome

    def open(self) -> None:
        """Let in whoever waits, and whoever comes."""
        self._is_open = True
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and (
            self._is_open or not self._inside or self._inside + self._waiting[0].weight <= MOST_BYTES
        ):
            weight, enter, outcome = self._waiting.popleft()
            if not outcome.done():
                self._inside += weight
                enter().add_done_callback(partial(self._left, weight, outcome))

    def _left(self, weight: int, outcome: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
        self._inside -= weight
        error = done.exception()
        if outcome.done():
            pass
        elif error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())
        self._let_in()
