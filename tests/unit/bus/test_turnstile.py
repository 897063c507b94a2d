"""The turnstile: a few at a time and others between, in their order, whatever becomes of each."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from angelia.bus.ports import Store, Tx
from angelia.bus.turnstile import MOST_BYTES, UNIT_BYTES, Turnstile
from angelia.model.errors import DiskFull
from tests.fakes.clock import settle

HALF = MOST_BYTES // 2 - UNIT_BYTES


class Queue:
    """As much of a store as a turnstile knows: what was queued, until the test does it."""

    def __init__(self) -> None:
        self.inside: list[tuple[Callable[[Tx], Any], asyncio.Future[Any]]] = []
        self.begun: list[object] = []

    def write(self, work: Callable[[Tx], Any], *, essential: bool) -> asyncio.Future[Any]:
        assert essential
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.inside.append((work, future))
        self.begun.append(work(cast(Tx, None)))
        return future

    async def do(self, error: Exception | None = None) -> None:
        """The first that was queued is done."""
        work, future = self.inside.pop(0)
        if error is None:
            future.set_result(work(cast(Tx, None)))
        else:
            future.set_exception(error)
        await settle()


def enter(turnstile: Turnstile, queue: Queue, name: str, weight: int) -> asyncio.Future[str]:
    return turnstile.write(cast(Store, queue), lambda tx: name, weight)


async def test_of_heavy_ones_the_next_goes_in_when_one_is_done_and_in_their_order() -> None:
    turnstile, queue = Turnstile(), Queue()
    outcomes = [enter(turnstile, queue, name, HALF) for name in "abcd"]
    assert queue.begun == ["a", "b"]
    await queue.do()
    assert queue.begun == ["a", "b", "c"]
    await queue.do()
    assert queue.begun == ["a", "b", "c", "d"]
    await queue.do()
    await queue.do()
    assert [outcome.result() for outcome in outcomes] == ["a", "b", "c", "d"]


async def test_light_ones_go_together_and_not_without_end() -> None:
    turnstile, queue = Turnstile(), Queue()
    for number in range(1000):
        enter(turnstile, queue, str(number), 0)
    assert len(queue.begun) == MOST_BYTES // UNIT_BYTES


async def test_a_light_one_does_not_overtake_a_heavy_one() -> None:
    """What a stream gives back is back before the next stream of that agent looks."""
    turnstile, queue = Turnstile(), Queue()
    for name, weight in (("a", HALF), ("heavy", MOST_BYTES), ("light", 0)):
        enter(turnstile, queue, name, weight)
    assert queue.begun == ["a"]
    await queue.do()
    assert queue.begun == ["a", "heavy"]
    await queue.do()
    assert queue.begun == ["a", "heavy", "light"]


async def test_one_that_is_heavier_than_all_may_be_together_goes_alone() -> None:
    turnstile, queue = Turnstile(), Queue()
    outcome = enter(turnstile, queue, "a", 10 * MOST_BYTES)
    enter(turnstile, queue, "b", 0)
    assert queue.begun == ["a"]
    await queue.do()
    assert (outcome.result(), queue.begun) == ("a", ["a", "b"])


async def test_one_that_fails_is_told_and_keeps_nobody_back() -> None:
    turnstile, queue = Turnstile(), Queue()
    outcomes = [enter(turnstile, queue, name, MOST_BYTES) for name in "ab"]
    await queue.do(DiskFull("full"))
    await queue.do()
    with pytest.raises(DiskFull):
        outcomes[0].result()
    assert outcomes[1].result() == "b"


async def test_a_unit_that_nobody_waits_for_any_more_does_not_run_and_one_that_is_in_harms_no_other() -> None:
    turnstile, queue = Turnstile(), Queue()
    outcomes = [enter(turnstile, queue, name, MOST_BYTES) for name in "abc"]
    outcomes[0].cancel()
    outcomes[1].cancel()
    await queue.do(DiskFull("full"))
    assert queue.begun == ["a", "c"]
    await queue.do()
    assert outcomes[2].result() == "c"


async def test_once_it_is_open_nobody_is_kept_back() -> None:
    turnstile, queue = Turnstile(), Queue()
    for name in "abc":
        enter(turnstile, queue, name, MOST_BYTES)
    turnstile.open()
    enter(turnstile, queue, "d", MOST_BYTES)
    assert queue.begun == ["a", "b", "c", "d"]
