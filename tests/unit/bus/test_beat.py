"""Moments that all share."""

import pytest

from angelia.bus.beat import BEAT_SECONDS, PING_SECONDS, to_beat
from angelia.bus.timekeeper import BEHIND_SECONDS, LOOK_SECONDS


@pytest.mark.parametrize("now", [0.0, 1.0, 4.2, 4.9, 5.0004, 123456.789])
def test_whoever_asks_is_told_the_same_moments(now: float) -> None:
    beat = now + to_beat(now, 5.0)
    assert beat % 5.0 < 0.0011, "at the beat, or in the millisecond behind it"
    assert now < beat <= now + 5.001


def test_beats_of_whole_multiples_fall_together() -> None:
    def beats(period: float, count: int) -> set[float]:
        now = 1000.0
        return {round(now := now + to_beat(now, period), 1) for _ in range(count)}

    assert beats(30.0, 4) < beats(10.0, 12) < beats(5.0, 24)


def test_what_an_idle_hub_does_falls_on_its_beats() -> None:
    assert BEAT_SECONDS % LOOK_SECONDS == PING_SECONDS % BEAT_SECONDS == BEHIND_SECONDS % BEAT_SECONDS == 0


def test_a_timer_that_comes_early_does_not_make_a_beat_twice() -> None:
    assert to_beat(4.998, 5.0) == pytest.approx(5.002)
