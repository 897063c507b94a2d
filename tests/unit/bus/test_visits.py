"""Calls that last, and the end of the token that they came in on."""

from functools import partial

from angelia.bus.visits import Visit, Visits


def test_a_visit_hears_once_that_its_token_has_ended() -> None:
    visits, heard = Visits(), list[str]()
    names = ("one", "one 2", "two")
    told = {name: Visit(visits, name[:3].encode(), partial(heard.append, name)) for name in names}
    with told["one"], told["one 2"], told["two"]:
        visits.end(b"one")
        visits.end(b"one")
        assert sorted(heard) == ["one", "one 2"]
        assert visits.tokens() == [b"two"]


def test_one_that_is_over_hears_nothing_and_leaves_nothing() -> None:
    visits, heard = Visits(), list[str]()
    visit = Visit(visits, b"one", lambda: heard.append("late"))
    with visit:
        assert visits.tokens() == [b"one"]
        assert not visit.over
    assert visit.over
    visits.end(b"one")
    assert (heard, visits.tokens()) == ([], [])


def test_where_nothing_was_shown_nothing_ends() -> None:
    visits = Visits()
    with Visit(visits, None, lambda: None):
        assert visits.tokens() == []
