"""Equal lines are counted, and none is lost."""

from angelia.cli.repeats import Repeats


def test_the_first_is_said_and_the_others_are_told_when_the_window_ends() -> None:
    seen = Repeats[str](60)
    assert seen.is_new("a", "first", 0)
    assert [seen.is_new("a", "later", second) for second in (1, 2, 59)] == [False] * 3
    assert seen.due(59.9) == []
    assert seen.due(60) == [("first", 3, 60)]


def test_one_line_a_window_for_as_long_as_it_goes_on() -> None:
    seen = Repeats[str](60)
    told = []
    for second in range(600):
        if seen.is_new("a", "a", second):
            told.append(second)
        told += [times for _, times, _ in seen.due(second)]
    assert told == [0, *[60] * 9]


def test_after_a_quiet_window_it_is_news_again() -> None:
    seen = Repeats[str](60)
    assert seen.is_new("a", "a", 0)
    assert seen.due(60) == []
    assert seen.is_new("a", "a", 61)


def test_it_says_how_long_nobody_has_to_look() -> None:
    seen = Repeats[str](60)
    seen.is_new("a", "a", 0)
    seen.is_new("b", "b", 10)
    assert seen.wait(20) is None
    seen.is_new("b", "b", 20)
    assert seen.wait(20) == 50
    assert seen.wait(100) == 0


def test_at_the_end_everything_is_told() -> None:
    seen = Repeats[str](60)
    for what in ("a", "a", "b", "c", "c", "c"):
        seen.is_new(what, what, 0)
    assert seen.rest(7) == [("a", 1, 7), ("c", 2, 7)]
    assert seen.rest(7) == []


def test_beyond_its_bound_it_remembers_no_more_and_lets_everything_through() -> None:
    seen = Repeats[int](60, most=2)
    assert [seen.is_new(number, number, 0) for number in (1, 2, 3, 3, 1)] == [True, True, True, True, False]
