"""docs/promises.md keeps its word: the tests it names are there, and no promise, no known fault and no line of what
Hermes' own tests protect is left out."""

import ast
import re
from functools import cache

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (F\d{3}|\d{1,2}(?:\.\d{1,2}){0,2}) \| (.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
FAULTS, PROMISES = 125, 17
# How many lines each list has: Hermes' own tests of its files, its gateway, its turn lock, its reasons and retries;
# what was reported of its relay; what its code lets happen. They are facts about Hermes, kept outside this repository.
RELAY = {"9.1": 30, "9.2": 16, "9.3": 14, "9.4": 16, "10": 30, "11": 11}
LATER = {"links", "tool server", "dashboard", "retention", "digests"}
HELD_OTHERWISE = re.compile(r"later \(|cannot occur: |not ours: |not built: Windows$")


def rows() -> list[tuple[str, str, str]]:
    """(number, what, held by) of all tables."""
    return ROW.findall(PAGE)


@cache
def names_in(path: str) -> set[str]:
    """The tests of a file, by name."""
    module = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(module) if isinstance(node, kinds) and node.name.startswith("test_")}


def test_every_promise_every_fault_and_every_line_about_the_relay_stands_there_once() -> None:
    expected = [str(number) for number in range(1, PROMISES + 1)]
    expected += [f"F{number:03d}" for number in range(1, FAULTS + 1)]
    expected += [f"{part}.{number}" for part, lines in RELAY.items() for number in range(1, lines + 1)]
    assert [number for number, _, _ in rows()] == expected


def test_no_two_rows_say_the_same() -> None:
    """So that none stands in the place of one that was left out."""
    whats = [what for _, what, _ in rows()]
    assert [what for what in whats if whats.count(what) > 1] == []


def test_every_row_is_held_or_says_why_not() -> None:
    for number, _, held in rows():
        assert TEST.search(held) or HELD_OTHERWISE.match(held), f"{number}: {held}"
        assert set(re.findall(r"later \(([^)]+)\)", held)) <= LATER, f"{number}: {held}"


def test_the_tests_it_names_are_there() -> None:
    missing = [
        f"{number}: {path}::{name}"
        for number, _, held in rows()
        for path, name in TEST.findall(held)
        if not (ROOT / "tests" / path).is_file() or name not in names_in(path)
    ]
    assert missing == []
