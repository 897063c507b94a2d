"""What doctor has from the hub itself: all that it says is wrong, once, with what to do about it."""

from pathlib import Path

import pytest

from angelia.cli.checks import DOUBTFUL, OK, WRONG, Finding
from angelia.cli.condition import condition
from angelia.client.find import Address
from angelia.settings import load
from angelia.storage.sqlite.damage import TROUBLE
from tests.fakes.fake_hub import FakeHub, answer, problem

STATUS = "GET /status"
DAMAGED = "2 damaged rows: set aside, never served; hub.log names them"
DEAD = "1 dead letter: angelia dead lists them"


def found(data_dir: Path) -> list[Finding]:
    return list(condition(Address(path=str(data_dir / "hub.sock")), load({})))


def test_all_that_the_hub_says_is_wrong_is_shown_with_advice(hub: FakeHub, data_dir: Path) -> None:
    hub.on(STATUS, answer({"problems": [DAMAGED, DEAD], "connections": {}}))
    damaged, dead = found(data_dir)
    assert (damaged.state, damaged.text) == (DOUBTFUL, DAMAGED)
    assert "angelia backup" in damaged.mend
    assert (dead.state, dead.text, dead.mend) == (DOUBTFUL, DEAD, "")


@pytest.mark.parametrize("words", [TROUBLE, "the store could not be read just now: hub.log says why"])
def test_a_store_that_is_not_whole_is_wrong(hub: FakeHub, data_dir: Path, words: str) -> None:
    """Only then does doctor not say that all is well."""
    hub.on(STATUS, answer({"problems": [words], "connections": {}}))
    assert [(each.state, each.text) for each in found(data_dir)] == [(WRONG, words)]


def test_what_has_a_check_of_its_own_is_not_told_twice(hub: FakeHub, data_dir: Path) -> None:
    problems = ["the disk is nearly full: 9 MiB are free", "mac has been down for 2 h", "macbook is read by 2 at once"]
    hub.on(STATUS, answer({"problems": problems, "connections": {"mac": {"up": False, "waiting": 0}}}))
    assert [each.text for each in found(data_dir)] == [problems[-1]]


@pytest.mark.parametrize("status", [{"problems": []}, {}, {"problems": None, "connections": None}])
def test_a_hub_that_is_well_is_told_so(hub: FakeHub, data_dir: Path, status: dict[str, object]) -> None:
    hub.on(STATUS, answer(status))
    assert [each.state for each in found(data_dir)] == [OK]


def test_one_that_does_not_say_how_it_is_is_told_of(hub: FakeHub, data_dir: Path) -> None:
    hub.on(STATUS, problem(503, "unwell", "The store is sick."))
    assert [each.state for each in found(data_dir)] == [WRONG]
