"""Real Hermes Agent 0.19 by its API server, answered by the stand-in model: what a turn gives back, and what it costs.

Its command line cannot be handed a text in a file before 0.21, which no registry has; tests/turns/test_hermes.py runs a
stand-in for that one.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from angelia.model.failure import Reason, classify_output
from angelia.turns.adapters.hermes import Hermes, HermesOptions, check, detect
from angelia.turns.adapters.port import Answered, Failed, Lost, Outcome, Tools, Usage
from tests.lab.place import Lab, Served
from tests.turns.turn import envelope, tools, turn
from tests.turns.watching import eventually

URL = "http://127.0.0.1:8642"
pytestmark = pytest.mark.timeout(600)  # most take seconds
SPECIAL = "-q \"quoted\" 'single' `tick` $HOME \\n \N{ROBOT FACE}\N{ZERO WIDTH JOINER} a\tb\x1b[31m\x07 end"


@pytest.fixture(scope="module")
def home(lab: Lab) -> Path:
    return lab.folder("hermes")


def served(lab: Lab, home: Path) -> Served:
    return lab.serve(["hermes", "gateway", "run"], home, url=f"{URL}/health")


@pytest.fixture(scope="module")
def server(lab: Lab, home: Path) -> Iterator[Served]:
    gateway = served(lab, home)
    yield gateway
    gateway.end()


def hub(lab: Lab, home: Path, base: Path) -> tuple[HermesOptions, Tools]:
    return HermesOptions(home=str(home / ".hermes")), replace(tools(base), environment=lab.environment_of(home))


@pytest.fixture
async def hermes(lab: Lab, home: Path, server: Served, tmp_path: Path) -> AsyncIterator[Hermes]:
    adapter = Hermes(*hub(lab, home, tmp_path))
    yield adapter
    await adapter.close()


def said(outcome: Outcome) -> str:
    assert isinstance(outcome, Answered), outcome
    return outcome.text


def reason(outcome: Outcome) -> Reason:
    """As the runner finds it."""
    assert isinstance(outcome, Failed), outcome
    return outcome.reason or classify_output(outcome.output, ())


async def test_it_is_found_with_what_works(lab: Lab, home: Path, server: Served, tmp_path: Path) -> None:
    options, lent = hub(lab, home, tmp_path)
    found = await detect(options, lent)
    assert (found.ways, found.problem) == (("API server",), None)
    assert "0.19.0" in (found.version or "")
    assert "0.19.0" in found.notes[0]
    assert check(options, lent) is None
    assert check(HermesOptions(home=options.home, profile="nobody"), lent) is not None


async def test_a_conversation_goes_on(hermes: Hermes) -> None:
    sessions: list[str] = []
    first = await hermes.run(turn(stamped="one", conversation="goes-on", begun=sessions.append))
    second = await hermes.run(turn(stamped="two", conversation="goes-on", session=sessions[-1]))
    other = await hermes.run(turn(stamped="one", conversation="another"))
    assert [said(first), said(second), said(other)] == ["REPLY[1] one", "REPLY[2] two", "REPLY[1] one"]
    assert sessions == ["goes-on"]
    assert first == Answered("REPLY[1] one", "API server", Usage(5, 5))


async def test_each_fault_comes_back_as_its_reason(hermes: Hermes) -> None:
    expected = {
        "FAIL_401": Reason.PROVIDER_AUTH_OR_ACCESS,
        "FAIL_402": Reason.PROVIDER_QUOTA_LIMIT,
        "FAIL_429": Reason.PROVIDER_RATE_LIMIT,
        "FAIL_QUOTA": Reason.PROVIDER_QUOTA_LIMIT,
        "FAIL_CTX": Reason.CONTEXT_OVERFLOW,
        "FAIL_500": Reason.PROVIDER_SERVER_ERROR,
        "DROP": Reason.PROVIDER_SERVER_ERROR,
    }
    outcomes = await asyncio.gather(*(hermes.run(turn(stamped=word, conversation=word)) for word in expected))
    assert {word: reason(outcome) for word, outcome in zip(expected, outcomes, strict=True)} == expected


async def test_a_slow_turn_ends_with_its_time_and_hermes_is_told(lab: Lab, hermes: Hermes, home: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(hermes.run(turn(stamped="SLOW_90 HERMES-SLOWLY", conversation="slow")))
        await eventually(lambda: lab.model.asked("HERMES-SLOWLY"), seconds=60)
        begun = time.monotonic()
        running.cancel()
    assert time.monotonic() - begun < 3
    logs = home / ".hermes/logs"
    # Its keep-alive comes each 30 s.
    await eventually(lambda: any("interrupted agent" in log.read_text() for log in logs.glob("*.log")), seconds=100)


async def test_a_text_arrives_as_it_was_sent(lab: Lab, hermes: Hermes) -> None:
    longest = "begin " + "0123456789" * 6_552 + " the end"
    for text in (SPECIAL, longest):
        outcome = await hermes.run(turn(stamped=text, conversation=f"text-{len(text)}"))
        assert said(outcome).endswith(text[-20:])
        assert lab.model.calls[-1].last == text
    assert reason(await hermes.run(turn(stamped=longest + "!" * 12))) is Reason.TOO_LARGE


async def test_two_at_once_are_two_turns(hermes: Hermes) -> None:
    one, two = await asyncio.gather(
        hermes.run(turn(stamped="SLOW_2 left", conversation="left")),
        hermes.run(turn(stamped="SLOW_2 right", conversation="right")),
    )
    assert [said(one), said(two)] == ["REPLY[1] SLOW_2 left", "REPLY[1] SLOW_2 right"]


async def test_killed_in_mid_turn_nobody_knows_and_it_is_not_run_again(lab: Lab, tmp_path: Path) -> None:
    home = lab.folder("hermes-killed")
    # The module's own server has the port; this one is another Hermes with another.
    (home / ".hermes/.env").write_text((home / ".hermes/.env").read_text().replace("8642", "8652"))
    gateway = lab.serve(["hermes", "gateway", "run"], home, url="http://127.0.0.1:8652/health")
    adapter = Hermes(*hub(lab, home, tmp_path))
    now = int(time.time() * 1000)
    try:
        warm = await adapter.run(turn(stamped="warm", conversation="killed"))
        assert isinstance(warm, Answered)
        asked = turn(
            stamped="SLOW_30 HERMES-KILLED", conversation="killed", seconds=20.0, message=envelope(created_at=now)
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(adapter.run(asked))
            await eventually(lambda: lab.model.asked("HERMES-KILLED"), seconds=30)
            gateway.kill()
        assert isinstance(running.result(), Lost)
        gateway = lab.serve(["hermes", "gateway", "run"], home, url="http://127.0.0.1:8652/health")
        assert await adapter.recall(asked) is None  # Hermes does not take it up again, and keeps no outcome
        assert lab.model.asked("HERMES-KILLED") == 1
        known = turn(stamped="warm", conversation="killed", message=envelope(created_at=now))
        assert await adapter.recall(known) == Answered("REPLY[1] warm", "API server, its history")
    finally:
        gateway.end()


async def test_without_its_api_server_it_cannot_be_woken_and_says_how(lab: Lab, tmp_path: Path) -> None:
    home = lab.folder("hermes-mute")
    (home / ".hermes/.env").unlink()
    options, lent = hub(lab, home, tmp_path)
    found = await detect(options, lent)
    assert found.ways == ()
    assert "API_SERVER_ENABLED=true" in (found.problem or "")
    outcome = await Hermes(options, lent).run(turn(stamped="hello"))
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.began) == (Reason.MISSING_CONFIG, False)
