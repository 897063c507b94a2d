"""Used hard, a hub has nothing more afterwards than before (`tests/rigs/leaks.py`)."""

import ast
import sys
from importlib import import_module

import pytest

from tests.acceptance.hub import ROOT
from tests.rigs.inside import SLOTS
from tests.rigs.leaks import held_picture, long_run, run

PARTS = ("bus", "doors", "links", "storage", "turns")
KNOWN = {"_count", "_known", "up"}  # notices and names that are known, not taken; a set
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc of another process")


def test_whatever_is_counted_up_and_down_is_looked_at() -> None:
    for kind in SLOTS:
        module, _, name = f"angelia.{kind}".rpartition(".")
        assert hasattr(import_module(module), name), kind
    falls = {
        node.target.attr: file.name
        for part in PARTS
        for file in (ROOT / "src/angelia" / part).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub) and isinstance(node.target, ast.Attribute)
    }
    looked_at = {name for names in SLOTS.values() for each in names for name in each.split("-")}
    assert {name: file for name, file in falls.items() if name not in looked_at | KNOWN} == {}


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
