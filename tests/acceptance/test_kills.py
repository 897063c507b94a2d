"""SIGKILL again and again under load: nothing that was promised breaks (`tests/rigs/kills.py` does it and judges)."""

import pytest

from tests.rigs.broken import FAULTS, is_found, try_it
from tests.rigs.kills import Plan, Result, run


def check(result: Result, kills: int, accepted: int) -> None:
    figures = result.verdict.figures
    assert result.good, "\n".join([str(result.verdict), *result.faults])
    # So that a rig that does nothing is no pass: there was load, kills came, and what was held came again.
    assert figures["hub kills"] >= kills, figures
    assert figures["accepted"] >= accepted, figures
    assert figures["repeats"] > 0, figures
    assert figures["outcomes"] > 0, figures
    # What a dying poll or stream had in its hands is its own, and little.
    assert figures["excused"] < figures["accepted"] / 50, figures


@pytest.mark.timeout(180)
def test_twenty_kills_break_no_promise() -> None:
    check(run(Plan(seed=1, kills=20, kill_every=0.5)), 20, 2000)


@pytest.mark.soak
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_minutes_of_kills_break_no_promise(seed: int) -> None:
    check(run(Plan(seed=seed, seconds=300, kill_every=1.0, pause=0.4)), 100, 10_000)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FAULTS)
def test_the_judge_notices_a_hub_that_is_broken(name: str) -> None:
    """So that a pass above means something."""
    result = try_it(FAULTS[name])
    assert is_found(FAULTS[name], result), str(result.verdict)
