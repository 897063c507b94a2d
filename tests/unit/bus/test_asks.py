"""Who waits for which answer, and which questions would close a circle."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.bus.asks import Asks, Waiter
from angelia.bus.ports import Tx
from angelia.storage.memory import MemoryStore

ID, OTHER = "0" * 32, "1" * 32


def waiting(asks: Asks, asker: str, *targets: str, message_id: str = ID) -> Waiter:
    waiter = Waiter(message_id, asker, targets)
    waiter.users = 1
    asks.add(waiter)
    return waiter


async def in_unit(work: Callable[[Tx], object]) -> None:
    await MemoryStore().write(work)


async def test_the_answer_is_taken_by_the_asker_of_that_question_alone() -> None:
    asks = Asks()
    waiter = waiting(asks, "bob", "ann")
    assert asks.taker(ID, "bob") is waiter
    assert asks.taker(ID, "ann") is None
    assert asks.taker(OTHER, "bob") is None


async def test_only_one_answer_is_taken() -> None:
    asks = Asks()
    waiter = waiting(asks, "bob", "ann")
    await in_unit(waiter.take)
    assert asks.taker(ID, "bob") is None
    assert asks.find(ID, "bob") is waiter


async def test_a_unit_that_failed_took_nothing() -> None:
    asks = Asks()
    waiter = waiting(asks, "bob", "ann")

    def unit(tx: Tx) -> None:
        waiter.take(tx)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await in_unit(unit)
    assert asks.taker(ID, "bob") is waiter


def test_a_question_that_is_over_takes_nothing() -> None:
    asks = Asks()
    waiter = waiting(asks, "bob", "ann")
    asks.remove(waiter)
    asks.remove(waiter)
    assert (asks.taker(ID, "bob"), asks.find(ID, "bob"), len(asks)) == (None, None, 0)
    assert not waiter.open


def test_two_askers_under_one_id_do_not_see_each_other() -> None:
    asks = Asks()
    bob, cat = waiting(asks, "bob", "ann"), waiting(asks, "cat", "ann")
    asks.remove(cat)
    assert asks.find(ID, "bob") is bob


def test_the_circle_is_named_from_the_one_that_would_close_it() -> None:
    asks = Asks()
    waiting(asks, "b", "c")
    waiting(asks, "c", "d")
    waiting(asks, "d", "a")
    assert asks.would_close_circle("a", ("b",)) == ["a", "b", "c", "d", "a"]


def test_a_question_to_oneself_is_a_circle() -> None:
    assert Asks().would_close_circle("a", ("a",)) == ["a", "a"]


def test_a_chain_is_no_circle() -> None:
    asks = Asks()
    waiting(asks, "b", "c")
    waiting(asks, "x", "a")
    assert asks.would_close_circle("a", ("b",)) is None


def test_a_question_to_several_is_stuck_only_when_all_of_them_are() -> None:
    asks = Asks()
    waiting(asks, "b", "a")
    assert asks.would_close_circle("a", ("b", "c")) is None
    waiting(asks, "c", "a")
    assert asks.would_close_circle("a", ("b", "c")) is not None


def test_only_calls_that_wait_now_count() -> None:
    asks = Asks()
    kept_back = waiting(asks, "b", "a")
    kept_back.users = 0
    answered = waiting(asks, "c", "a")
    answered.taken = True
    assert asks.would_close_circle("a", ("b",)) is None
    assert asks.would_close_circle("a", ("c",)) is None


def test_a_person_neither_closes_a_circle_nor_is_part_of_one() -> None:
    asks = Asks()
    waiting(asks, "human", "a")
    assert asks.would_close_circle("a", ("human",)) is None
    waiting(asks, "a", "human")
    assert asks.would_close_circle("human", ("a",)) is None


NAMES = st.sampled_from("abcdef")


@given(st.lists(st.tuples(NAMES, NAMES), max_size=30))
def test_whatever_is_asked_in_any_order_somebody_can_always_answer(questions: list[tuple[str, str]]) -> None:
    asks = Asks()
    waits: dict[str, set[str]] = {}
    for number, (asker, target) in enumerate(questions):
        if asks.would_close_circle(asker, (target,)) is None:
            waiting(asks, asker, target, message_id=f"{number:032x}")
            waits.setdefault(asker, set()).add(target)
    free = set("abcdef") - waits.keys()
    grown = True
    while grown:
        grown = False
        for asker, targets in waits.items():
            if asker not in free and targets & free:
                waits[asker] = targets - free
                grown = True
                if not waits[asker]:
                    free.add(asker)
    assert all(not targets or targets & free for targets in waits.values())
    assert free == set("abcdef")
