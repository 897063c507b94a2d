"""Wrong tokens: at what pace they are answered, by address."""

import pytest

from angelia.doors.http.guesses import AT_ONCE, LONGEST_SECONDS, Guesses, canonical
from angelia.model.errors import RateLimited


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("given", "counts_as"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::FFFF:C000:207", "192.0.2.7"),
        ("0:0:0:0:0:ffff:c000:0207", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:DB8:0:0:ffff::9", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("unix:", "unix:"),
    ],
)
def test_an_address_is_one_however_it_is_written(given: str, counts_as: str) -> None:
    assert canonical(given) == counts_as


def test_the_first_are_answered_at_once_then_one_a_second_and_beyond_the_bound_none() -> None:
    clock = Clock()
    wrong = Guesses(clock)
    assert [wrong.wait("192.0.2.7") for _ in range(AT_ONCE)] == [0.0] * AT_ONCE
    assert [wrong.wait("::ffff:192.0.2.7") for _ in range(5)] == [1.0, 2.0, 3.0, 4.0, LONGEST_SECONDS]
    for _ in range(100):
        with pytest.raises(RateLimited) as refused:
            wrong.wait("192.0.2.7")
        assert refused.value.extra["retry_after_seconds"] == 6
    assert wrong.wait("192.0.2.8") == 0.0  # somebody else's answers do not wait
    clock.now += 1
    assert wrong.wait("192.0.2.7") == LONGEST_SECONDS  # those that were refused cost nothing
    clock.now += 60
    assert wrong.wait("192.0.2.7") == 0.0


def test_memory_is_bounded_whoever_comes() -> None:
    wrong = Guesses(Clock(), most=8)
    for _ in range(AT_ONCE):
        wrong.wait("192.0.2.7")
    for number in range(7):
        wrong.wait(f"198.51.100.{number}")
    assert wrong.wait("192.0.2.7") == 1.0  # seen lately, so not the one that is forgotten
    for number in range(100):
        wrong.wait(f"2001:db8:0:{number:x}::1")
    assert len(wrong._paid_until) == 8
