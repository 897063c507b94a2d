"""Equal lines are counted, and none is lost."""

from angelia.cli.repeats import MOST_CHANGES, Repeats


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


# ---- lines about one subject


def test_a_state_that_comes_again_after_another_one_is_news() -> None:
    seen = Repeats[str](60)
    for what in ("up", "down", "why", "up"):
        assert seen.is_new(what, what, 0, "garage")
    assert not seen.is_new("up", "up", 1, "garage")
    assert seen.is_new("up", "up", 1, "shed")
    assert seen.due(60) == [("up", 1, 60)]


def test_a_state_that_flaps_is_told_some_times_and_the_last_one_always() -> None:
    seen = Repeats[str](60)
    log: list[str] = []
    for second in range(300):
        for what in ("up", "down"):
            log += [what] if seen.is_new(what, what, second, "garage") else []
        log += [first for first, _, _ in seen.due(second)]
    seen.is_new("up", "up", 300, "garage")
    log += [first for first, _, _ in seen.due(360)]
    assert log[-1] == "up"
    assert len(log) <= 6 * (MOST_CHANGES + 1)


def test_what_was_held_back_of_a_subject_is_the_last_word_when_the_log_ends() -> None:
    seen = Repeats[str](60)
    for number in range(MOST_CHANGES + 4):
        seen.is_new(number, str(number), 0, "garage")
    assert seen.rest(5) == [(str(MOST_CHANGES + 3), 4, 5)]
