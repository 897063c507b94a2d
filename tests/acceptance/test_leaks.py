"""Used hard, a hub has nothing more afterwards than before (`tests/rigs/leaks.py`)."""

import sys

import pytest

from tests.rigs.leaks import held_picture, long_run, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc of another process")


@pytest.mark.timeout(240)
def test_after_each_kind_of_use_everything_is_back_where_it_was() -> None:
    """Streams, claims, asks, sockets of the gateway, turns, links; then clients by the thousand that vanish."""
    result = run(1, many=2000)
    assert result.good, "\n".join([*result.breaches, str(result.figures)])


@pytest.mark.timeout(120)
def test_the_log_of_the_store_stays_short_whoever_reads() -> None:
    """Enough is written to fill it, while a reader sits on what it sees; in the soak for a minute."""
    result = held_picture(7.0)
    print(result.figures)
    assert result.good, result.breaches


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_ten_thousand_that_vanish_and_a_minute_of_reading_leave_nothing() -> None:
    for result in (run(3, many=10_000), held_picture(60.0)):
        assert result.good, "\n".join([*result.breaches, str(result.figures)])


@pytest.mark.soak
@pytest.mark.timeout(4500)
def test_after_an_hour_the_memory_is_where_it_was() -> None:
    result = long_run(3600, 1)
    assert result.good, "\n".join([*result.breaches, str(result.figures)])
