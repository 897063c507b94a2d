"""Real OpenClaw 2026.9 by its gateway, answered by the stand-in model: what a turn gives back, and what a crash leaves.

Each fault has an agent with a provider of its own: OpenClaw leaves one alone for a minute once it refused.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from angelia.model.failure import Reason, classify_output
from angelia.turns.adapters import openclaw_cli
from angelia.turns.adapters.openclaw import OpenClaw, OpenClawOptions, check, detect
from angelia.turns.adapters.port import Answered, Failed, Lost, Outcome, Tools
from tests.lab.place import Lab, Served
from tests.turns.turn import tools
from tests.turns.turn import turn as any_turn
from tests.turns.watching import eventually

HEALTH = "http://127.0.0.1:18789/healthz"
pytestmark = pytest.mark.timeout(600)  # most take seconds; OpenClaw alone tries a limited provider for 140
turn = partial(any_turn, seconds=120.0)  # OpenClaw ends it by itself then
SPECIAL = "-q \"quoted\" 'single' `tick` $HOME \\n \N{ROBOT FACE}\N{ZERO WIDTH JOINER} a\tb\x1b[31m\x07 end"


class Place:
    """One home with its gateway, which may be killed and started again."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.home = lab, lab.folder("openclaw")
        self.start()

    def start(self) -> None:
        self.gateway: Served = self.lab.serve(["openclaw", "gateway", "run"], self.home, url=HEALTH)

    def lent(self, base: Path) -> Tools:
        lent = tools(base)
        return replace(lent, environment=self.lab.environment_of(self.home), home=str(self.home))

    def adapter(self, base: Path, agent: str = "main") -> OpenClaw:
        return OpenClaw(OpenClawOptions(agent=agent), self.lent(base))


@pytest.fixture(scope="module")
def place(lab: Lab) -> Iterator[Place]:
    place = Place(lab)
    yield place
    place.gateway.end()


@pytest.fixture
def openclaw(place: Place, tmp_path: Path) -> OpenClaw:
    return place.adapter(tmp_path)


def said(outcome: Outcome) -> str:
    assert isinstance(outcome, Answered), outcome
    return outcome.text


def reason(outcome: Outcome | None) -> Reason:
    """As the runner finds it."""
    assert isinstance(outcome, Failed), outcome
    return outcome.reason or classify_output(outcome.output, ())


async def test_a_gateway_that_starts_is_waited_for_and_a_conversation_goes_on(openclaw: OpenClaw) -> None:
    """The first turn comes while the gateway still loads: it answers UNAVAILABLE until then."""
    sessions: list[str] = []
    first = await openclaw.run(turn(prompt="one", conversation="Goes-On", begun=sessions.append))
    second = await openclaw.run(turn(prompt="two", conversation="Goes-On", session=sessions[-1]))
    other = await openclaw.run(turn(prompt="one", conversation="another"))
    assert [said(first), said(second), said(other)] == ["REPLY[1] one", "REPLY[2] two", "REPLY[1] one"]
    assert sessions == ["agent:main:angelia-goes-on"]
    assert isinstance(first, Answered)
    assert first.route == "gateway"
    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.model) == (5, 5, "fake-model")


async def test_it_is_found_with_what_works(place: Place, tmp_path: Path) -> None:
    lent = place.lent(tmp_path)
    found = await detect(OpenClawOptions(), lent)
    assert (found.ways, found.problem) == (("gateway", "command line"), None)
    assert "2026.9.6" in (found.version or "")
    assert check(OpenClawOptions(), lent) is None
    elsewhere = await detect(OpenClawOptions(url="ws://127.0.0.1:9"), lent)
    assert elsewhere.ways == ()
    assert "openclaw gateway run" in (elsewhere.problem or "")


async def test_asked_again_under_one_key_it_runs_once(lab: Lab, openclaw: OpenClaw) -> None:
    asked = turn(prompt="ONLY-ONCE", conversation="once")
    assert said(await openclaw.run(asked)) == "REPLY[1] ONLY-ONCE"
    assert said(await openclaw.run(asked)) == "REPLY[1] ONLY-ONCE"
    assert said(await openclaw.recall(asked) or Lost("", "")) == "REPLY[1] ONLY-ONCE"
    assert lab.model.asked("ONLY-ONCE") == 1
    assert await openclaw.recall(turn(prompt="never sent", conversation="once")) is None


async def test_each_fault_comes_back_as_its_reason(place: Place, tmp_path: Path) -> None:
    """At once, each to its own agent: OpenClaw tries a limited provider for 140 s, and a failing one for 90."""
    expected = {
        "FAIL_401": Reason.PROVIDER_AUTH_OR_ACCESS,
        "FAIL_402": Reason.PROVIDER_QUOTA_LIMIT,
        "FAIL_429": Reason.PROVIDER_RATE_LIMIT,
        "FAIL_QUOTA": Reason.PROVIDER_QUOTA_LIMIT,
        "FAIL_CTX": Reason.CONTEXT_OVERFLOW,
        "FAIL_500": Reason.PROVIDER_SERVER_ERROR,
        "DROP": Reason.PROVIDER_SERVER_ERROR,
    }

    async def failing(word: str) -> Outcome:
        adapter = place.adapter(tmp_path, word.lower().replace("_", "-"))
        return await adapter.run(turn(prompt=word, conversation="fault", seconds=400.0))

    outcomes = await asyncio.gather(*(failing(word) for word in expected))
    assert {word: reason(outcome) for word, outcome in zip(expected, outcomes, strict=True)} == expected
    cooling = await failing("FAIL_401")  # the minute in which it does not even ask
    assert reason(cooling) is Reason.PROVIDER_AUTH_OR_ACCESS


async def test_a_slow_turn_ends_with_its_time_in_openclaw_too(lab: Lab, openclaw: OpenClaw) -> None:
    asked = turn(prompt="SLOW_60 CLAW-SLOWLY", conversation="slow", seconds=100.0)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(openclaw.run(asked))
        await eventually(lambda: lab.model.asked("CLAW-SLOWLY"), seconds=60)
        begun = time.monotonic()
        running.cancel()
    assert time.monotonic() - begun < 15
    assert reason(await openclaw.recall(asked)) is Reason.CANCELLED
    assert time.monotonic() - begun < 45


async def test_a_text_arrives_as_it_was_sent(lab: Lab, openclaw: OpenClaw) -> None:
    for text in (SPECIAL, "begin " + "0123456789" * 20_000 + " the end"):
        answer = said(await openclaw.run(turn(prompt=text, conversation=f"text-{len(text)}")))
        assert answer.endswith(text[-20:])
        assert lab.model.calls[-1].last == text


async def test_two_at_once_to_two_agents_are_two_turns(place: Place, tmp_path: Path) -> None:
    one, two = await asyncio.gather(
        place.adapter(tmp_path).run(turn(prompt="SLOW_2 left", conversation="both")),
        place.adapter(tmp_path, "second").run(turn(prompt="SLOW_2 right", conversation="both")),
    )
    assert [said(one), said(two)] == ["REPLY[1] SLOW_2 left", "REPLY[1] SLOW_2 right"]


async def test_who_is_not_let_in_goes_by_the_command_line(place: Place, tmp_path: Path) -> None:
    """Its own command line knows the token; the hub was given a wrong one."""
    wrong = tmp_path / "token"
    wrong.touch(0o600)
    wrong.write_text("not the token")
    adapter = OpenClaw(OpenClawOptions(token_file=str(wrong)), place.lent(tmp_path))
    first = await adapter.run(turn(prompt="one", conversation="by-command"))
    second = await adapter.run(turn(prompt="-two", conversation="by-command"))
    assert [said(first), said(second)] == ["REPLY[1] one", "REPLY[2] -two"]
    assert (first.route, list((tmp_path / "private").iterdir())) == (openclaw_cli.ROUTE, [])
    lone = replace(place.lent(tmp_path), environment={"PATH": "/nowhere"})
    outcome = await OpenClaw(OpenClawOptions(token_file=str(wrong)), lone).run(turn(prompt="three"))
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.began) == (Reason.MISSING_CONFIG, False)


async def test_killed_in_mid_turn_it_goes_on_by_itself_or_is_known_not_to(place: Place, tmp_path: Path) -> None:
    """It goes on where it had written down that it runs, which is some moment after it asked the model."""
    openclaw, model = place.adapter(tmp_path), place.lab.model
    said(await openclaw.run(turn(prompt="warm", conversation="killed")))
    asked = turn(prompt="SLOW_15 CLAW-KILLED", conversation="killed", seconds=200.0)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(openclaw.run(asked))
        await eventually(lambda: model.asked("CLAW-KILLED"), seconds=30)
        place.gateway.kill()
    assert isinstance(running.result(), Lost)
    place.start()
    outcome = await openclaw.recall(asked)
    # If it went on, then with words of its own behind ours: nobody asked for the turn a second time.
    assert [call.last for call in model.calls].count("SLOW_15 CLAW-KILLED") == 1
    if isinstance(outcome, Answered):
        assert outcome.text.startswith("REPLY[")
        assert "interrupted by a gateway restart" in model.calls[-1].last
    else:
        assert reason(outcome) is Reason.RUNTIME_OFFLINE
        assert len(model.calls) == 1 + [call.last for call in model.calls].index("SLOW_15 CLAW-KILLED")
