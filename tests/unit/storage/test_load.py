"""The sums of mailboxes: what changes add, that it can be taken back, and that memory follows what is open."""

from angelia.model.delivery import State
from angelia.storage.load import KEPT, Change, Loads, weigh


def mail(mailbox: str, sign: int = 1) -> Change:
    found = weigh(mailbox, "Bob", State.QUEUED, False, 10, sign)
    assert found is not None
    return found


Shown = tuple[int, int, int, int, dict[str, int], dict[str, int]]


def shown(loads: Loads, mailbox: str) -> Shown:
    found = loads.of(mailbox)
    return found.open, found.ready, found.queued, found.bytes, found.by_sender, found.bytes_by_sender


def test_changes_add_up_and_are_taken_back() -> None:
    loads = Loads()
    loads.apply([mail("ann"), mail("ann"), mail("cat")])
    assert shown(loads, "ann") == (2, 2, 2, 20, {"bob": 2}, {"bob": 20})
    loads.undo([mail("ann"), mail("cat")])
    assert shown(loads, "ann") == (1, 1, 1, 10, {"bob": 1}, {"bob": 10})
    assert shown(loads, "cat") == (0, 0, 0, 0, {}, {})


def test_no_more_than_some_entries_are_kept_where_nothing_is_open() -> None:
    loads = Loads()
    names = [f"agent{number}" for number in range(KEPT + 9)]
    loads.apply(map(mail, names))
    for name in names:
        loads.apply([mail(name, -1)])
    assert len(loads._of) == KEPT
    assert all(shown(loads, name) == (0, 0, 0, 0, {}, {}) for name in names)


def test_sums_that_are_wrong_become_what_was_counted() -> None:
    here, real = Loads(), Loads()
    here.apply([("ada", "x", 2, 1, 2, 30), ("brook", "y", 1, 1, 1, 5), ("dee", "x", 2, 2, 2, 7)])
    real.apply([("ada", "x", 1, 1, 1, 10), ("ada", "z", 1, 0, 1, 9), ("cleo", "y", 1, 0, 0, 4)])
    real.apply([("dee", "x", 2, 2, 2, 8)])  # as many, and heavier
    names = ("ada", "brook", "cleo", "dee")
    before = [shown(here, name) for name in names]
    changes = here.towards(real)
    here.apply(changes)
    assert [shown(here, name) for name in names] == [shown(real, name) for name in names]
    here.undo(changes)
    assert [shown(here, name) for name in names] == before
    assert real.towards(real) == []
