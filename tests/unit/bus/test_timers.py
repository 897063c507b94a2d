"""Reminders: in their order, at their time, and whoever waits for the earliest hears of an earlier one."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.bus.timers import CANCELLED_KEPT, Timers


@given(st.lists(st.floats(0, 100)), st.floats(0, 100))
def test_what_is_due_is_called_in_order_and_the_rest_is_kept(times: list[float], now: float) -> None:
    timers, called = Timers(), list[float]()
    for when in times:
        timers.at(when, lambda when=when: called.append(when))  # type: ignore[misc]
    timers.fire(now)
    assert called == sorted(when for when in times if when <= now)
    assert timers.next() == min((when for when in times if when > now), default=None)
    assert len(timers) == len(times) - len(called)


def test_two_at_the_same_time_are_called_in_the_order_in_which_they_were_set() -> None:
    timers, called = Timers(), list[str]()
    for name in ("a", "b", "c"):
        timers.at(1.0, lambda name=name: called.append(name))  # type: ignore[misc]
    timers.fire(1.0)
    assert called == ["a", "b", "c"]


def test_a_reminder_may_set_another() -> None:
    timers, called = Timers(), list[str]()
    timers.at(1.0, lambda: timers.at(2.0, lambda: called.append("second")))
    timers.fire(1.0)
    assert (called, timers.next()) == ([], 2.0)
    timers.fire(2.0)
    assert called == ["second"]


def test_a_reminder_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    timers, called = Timers(), list[str]()
    timers.at(1.0, lambda: 1 / 0)
    timers.at(2.0, lambda: called.append("second"))
    timers.fire(3.0)
    assert called == ["second"]
    assert "ZeroDivisionError" in caplog.text


def test_a_cancelled_reminder_is_never_called() -> None:
    timers, called = Timers(), list[str]()
    first = timers.at(1.0, lambda: called.append("first"))
    timers.at(2.0, lambda: called.append("second"))
    first.cancel()
    first.cancel()
    assert (len(timers), timers.next()) == (1, 2.0)
    timers.fire(3.0)
    assert (called, len(timers)) == (["second"], 0)
    first.cancel()
    assert len(timers) == 0


def test_one_that_was_called_cannot_be_cancelled_any_more() -> None:
    timers = Timers()
    timer = timers.at(1.0, lambda: None)
    timers.at(2.0, lambda: None)
    timers.fire(1.0)
    timer.cancel()
    assert len(timers) == 1


def test_cancelled_reminders_take_no_memory() -> None:
    timers, called = Timers(), list[float]()
    for n in range(20_000):
        timers.at(1000.0 + n, lambda: None).cancel()
        assert len(timers._heap) <= CANCELLED_KEPT + 100
    for when in (5.0, 3.0, 4.0):
        timers.at(when, lambda when=when: called.append(when))  # type: ignore[misc]
    timers.fire(10.0)
    assert called == [3.0, 4.0, 5.0]


async def test_only_an_earlier_reminder_pokes() -> None:
    timers = Timers()
    poked = timers.poked()
    timers.at(5.0, lambda: None)
    assert poked.done()
    poked = timers.poked()
    timers.at(6.0, lambda: None)
    assert not poked.done()
    timers.at(4.0, lambda: None)
    assert poked.done()


async def test_a_poke_between_the_look_and_the_wait_is_not_lost() -> None:
    timers = Timers()
    poked = timers.poked()
    timers.fire(0.0)
    timers.at(1.0, lambda: None)
    await asyncio.wait_for(poked, 1)
    assert not timers.poked().done()


async def test_only_an_earlier_sweep_pokes() -> None:
    timers = Timers()
    assert timers.sweep_at == 0, "at once after a start"
    timers.sweep_at = 5000
    poked = timers.poked()
    timers.sweep_by(6000)
    assert (poked.done(), timers.sweep_at) == (False, 5000)
    timers.sweep_by(4000)
    assert (poked.done(), timers.sweep_at) == (True, 4000)
