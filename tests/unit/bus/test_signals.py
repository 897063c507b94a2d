"""A ticket before the look, a wait after it: no wake-up is ever lost between the two."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from angelia.bus.signals import Signals
from tests.fakes.clock import FakeClock


async def test_what_happens_between_the_ticket_and_the_wait_is_not_lost() -> None:
    signals = Signals()
    with signals.watch("ann") as watch:
        ticket = watch.ticket()
        signals.wake("ann")
        assert watch.changed(ticket).done()


async def test_what_happened_before_the_ticket_does_not_wake() -> None:
    signals = Signals()
    with signals.watch("ann") as watch:
        signals.wake("ann")
        assert not watch.changed(watch.ticket()).done()


async def test_what_happens_while_it_waits_wakes() -> None:
    signals = Signals()
    with signals.watch("ann") as watch:
        changed = watch.changed(watch.ticket())
        signals.wake("bob")
        assert not changed.done()
        signals.wake("ann")
        assert changed.done()


async def test_every_watcher_is_woken() -> None:
    signals = Signals()
    with signals.watch("ann") as one, signals.watch("ann") as two:
        waits = [each.changed(each.ticket()) for each in (one, two)]
        signals.wake("ann")
        assert [wait.done() for wait in waits] == [True, True]


async def test_a_wait_that_was_given_up_is_forgotten_and_the_next_one_works() -> None:
    signals = Signals()
    with signals.watch("ann") as watch:
        waits = [watch.changed(watch.ticket()) for _ in range(100)]
        assert not await FakeClock().wait(waits[-1], 0)
        assert len(signals._waiting["ann"]) == 1
        signals.wake("ann")
        assert waits[-1].done()


async def test_a_cancelled_wait_does_no_harm() -> None:
    signals = Signals()
    with signals.watch("ann") as watch:
        watch.changed(watch.ticket()).cancel()
        signals.wake("ann")


async def test_when_the_last_watcher_leaves_nothing_is_kept() -> None:
    signals = Signals()
    with signals.watch("ann") as outer:
        with signals.watch("ann") as inner:
            inner.changed(inner.ticket())
        changed = outer.changed(outer.ticket())
        signals.wake("ann")
        assert changed.done()
    assert [signals._count, signals._waiting, signals._users] == [{}, {}, {}]
    signals.wake("ann")
    assert not signals._count


async def test_when_the_hub_stops_everyone_is_woken() -> None:
    signals = Signals()
    with signals.watch("ann") as one, signals.watch("bob") as two:
        waits = [each.changed(each.ticket()) for each in (one, two)]
        signals.wake_all()
        assert all(wait.done() for wait in waits)


@given(st.lists(st.sampled_from(["put", "look"]), max_size=30))
def test_whoever_looks_and_waits_in_turn_sees_everything(steps: list[str]) -> None:
    """A consumer that always takes its ticket first never sleeps while there is something it has not seen."""

    async def run() -> None:
        signals, there, seen = Signals(), 0, 0
        with signals.watch("box") as watch:
            ticket = watch.ticket()
            for step in steps:
                if step == "put":
                    there += 1
                    signals.wake("box")
                elif watch.changed(ticket).done():
                    ticket = watch.ticket()
                    seen = there
            assert seen == there or watch.changed(ticket).done()

    asyncio.run(run())


async def test_it_tells_how_many_watch() -> None:
    signals = Signals()
    assert signals.watching("ann") == 0
    with signals.watch("ann"), signals.watch("ann"):
        assert (signals.watching("ann"), signals.watching("bob")) == (2, 0)
    assert signals.watching("ann") == 0
