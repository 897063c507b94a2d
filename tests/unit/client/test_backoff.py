"""Waits: how far they reach, and that they begin anew after a success."""

from angelia.client.backoff import Backoff, chance


def test_ceilings_double_up_to_the_most() -> None:
    waits = Backoff(2.0, 30.0, draw=lambda: 1.0)
    assert [waits.next_seconds() for _ in range(6)] == [2, 4, 8, 16, 30, 30]


def test_the_whole_range_is_drawn_from() -> None:
    assert Backoff(2.0, 30.0, draw=lambda: 0.0).next_seconds() == 0
    drawn = [chance() for _ in range(1000)]
    assert all(0 <= each < 1 for each in drawn)
    assert min(drawn) < 0.1
    assert max(drawn) > 0.9


def test_a_success_starts_again() -> None:
    waits = Backoff(2.0, 30.0, draw=lambda: 1.0)
    waits.next_seconds()
    waits.next_seconds()
    waits.reset()
    assert waits.next_seconds() == 2


def test_a_hubs_own_first_wait_counts_even_above_the_most() -> None:
    waits = Backoff(2.0, 30.0, draw=lambda: 1.0)
    waits.first_seconds = 60.0
    assert waits.next_seconds() == 60
    assert waits.next_seconds() == 60


def test_thousands_of_failures_are_no_overflow() -> None:
    waits = Backoff(2.0, 30.0, draw=lambda: 1.0)
    assert [waits.next_seconds() for _ in range(5000)][-1] == 30


def test_a_hundred_clients_spread_over_the_time() -> None:
    third = []
    for _ in range(100):
        waits = Backoff(2.0, 30.0)
        third.append(sum(waits.next_seconds() for _ in range(3)))
    assert max(third) - min(third) > 5
