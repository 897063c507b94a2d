"""docs/promises.md keeps its word: the tests it names are there, and no promise and no known fault is left out."""

import ast
import re
from functools import cache

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (F\d{3}|\d{1,2}) \| (.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
FAULTS, PROMISES = 125, 17
LATER = {"turns", "links", "gateway", "tool server", "dashboard", "retention", "client outbox"}


def rows() -> list[tuple[str, str, str]]:
    """(number, what, held by) of both tables."""
    return ROW.findall(PAGE)


@cache
def names_in(path: str) -> set[str]:
    """The tests of a file, by name."""
    module = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(module) if isinstance(node, kinds) and node.name.startswith("test_")}


def test_every_promise_and_every_fault_stands_there_once() -> None:
    expected = [str(number) for number in range(1, PROMISES + 1)] + [
        f"F{number:03d}" for number in range(1, FAULTS + 1)
    ]
    assert [number for number, _, _ in rows()] == expected


def test_every_row_is_held_or_says_why_not() -> None:
    for number, _, held in rows():
        assert TEST.search(held) or re.match(r"later \(|cannot occur: |not built: Windows$", held), f"{number}: {held}"
        assert set(re.findall(r"later \(([^)]+)\)", held)) <= LATER, f"{number}: {held}"


def test_the_tests_it_names_are_there() -> None:
    missing = [
        f"{number}: {path}::{name}"
        for number, _, held in rows()
        for path, name in TEST.findall(held)
        if not (ROOT / "tests" / path).is_file() or name not in names_in(path)
    ]
    assert missing == []
