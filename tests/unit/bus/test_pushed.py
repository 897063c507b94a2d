"""What the connections of pushed rosters are called: each once, and the same whatever came first."""

from itertools import permutations

import pytest

from angelia.bus.neighbours import Neighbours
from angelia.bus.pushed import Names, Push
from angelia.protocol.bot_relay_rows import Row

KEYED = frozenset({"studio"})


def row(connection: str) -> Row:
    return Row(connection, "ops", "ops")


def push(name: str, *connections: str, former: tuple[str, ...] = ()) -> Push:
    return Push(name, tuple(map(row, connections)), tuple(map(row, former)), 0)


def named(*pushes: Push) -> dict[tuple[str, str], str]:
    """By pusher and id: those of rows, and those of rows that were dropped."""
    names = Names({each.scope: each for each in pushes}, Neighbours(), KEYED.__contains__)
    return {
        (each.name, found.connection_id): names.of(each, found) for each in pushes for found in each.rows + each.former
    }


PUSHES = {
    "alone": [push("mac", "local", "vps")],
    "shared": [push("mac", "vps"), push("pc", "vps", "nas")],
    "keyed": [push("mac", "vps"), push("studio", "vps")],
    "was keyed": [push("mac", "vps"), push("studio", former=("vps",))],
    "was shared": [push("mac", "vps"), push("pc", former=("vps",))],
    "long": [push("mac", "vps"), push("pc", "vps", "mac-vps")],
    "long of two": [push("a", "b-c", "c"), push("a-b", "c", "b-c")],
    "own": [push("mac", "pc", "mac"), push("pc", "local")],
}


@pytest.mark.parametrize(
    ("case", "names"),
    [
        ("alone", {("mac", "local"): "mac", ("mac", "vps"): "vps"}),
        ("shared", {("mac", "vps"): "mac-vps", ("pc", "vps"): "pc-vps", ("pc", "nas"): "nas"}),
        ("keyed", {("mac", "vps"): "mac-vps", ("studio", "vps"): "vps"}),
        ("was keyed", {("mac", "vps"): "mac-vps", ("studio", "vps"): "vps"}),
        ("was shared", {("mac", "vps"): "vps", ("pc", "vps"): "pc-vps"}),
        ("own", {("mac", "pc"): "mac-pc", ("mac", "mac"): "mac", ("pc", "local"): "pc"}),
    ],
)
def test_who_has_the_short_name(case: str, names: dict[tuple[str, str], str]) -> None:
    assert named(*PUSHES[case]) == names


@pytest.mark.parametrize("pushes", PUSHES.values(), ids=PUSHES)
def test_each_has_one_of_its_own_whatever_came_first_and_finds_its_mail_by_it(pushes: list[Push]) -> None:
    found = named(*pushes)
    assert len({name.lower() for name in found.values()}) == len(found)
    assert all(named(*order) == found for order in permutations(pushes))
    for each in pushes:
        assert all(each.had(it, found[each.name, it.connection_id].lower()) for it in each.rows + each.former)


@pytest.mark.parametrize(
    ("name", "had"),
    [("vps", True), ("mac-vps", True), ("mac-vps-2", True), ("mac-vps-", False), ("mac-vps-x", False), ("mac", False),
     ("vps-2", False)],
)  # fmt: skip
def test_the_names_that_one_may_have_had(name: str, had: bool) -> None:
    assert push("Mac").had(row("VPS"), name) is had
