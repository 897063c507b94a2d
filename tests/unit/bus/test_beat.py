"""Moments that all share."""

import pytest

from angelia.bus.beat import to_beat


@pytest.mark.parametrize("now", [0.0, 1.0, 4.2, 4.9, 5.0004, 123456.789])
def test_whoever_asks_is_told_the_same_moments(now: float) -> None:
    beat = now + to_beat(now, 5.0)
    assert beat % 5.0 < 0.0011, "at the beat, or in the millisecond behind it"
    assert now < beat <= now + 5.001


def test_beats_of_whole_multiples_fall_together() -> None:
    fives, twenties = 1000.0, 1000.0
    five = {round(fives := fives + to_beat(fives, 5.0), 1) for _ in range(24)}
    twenty = {round(twenties := twenties + to_beat(twenties, 20.0), 1) for _ in range(6)}
    assert twenty < five


def test_a_timer_that_comes_early_does_not_make_a_beat_twice() -> None:
    assert to_beat(4.998, 5.0) == pytest.approx(5.002)
