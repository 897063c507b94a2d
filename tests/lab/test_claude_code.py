"""The real Claude Code, answered by the stand-in model."""

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from angelia.model.failure import Reason, classify_output
from angelia.turns.adapters.claude_code import KIND, NEW_SESSION, ClaudeCode, ClaudeCodeOptions
from angelia.turns.adapters.port import Answered, Failed, Lost, Tools
from tests.lab.place import Lab
from tests.turns.asking import Asking, nothing_left, tools_in

HARD = "-rf --help \"double\" 'single' `back` $HOME \\ 😀 é \x01\x1b[31m\x7f tab\t /help end"


@dataclass
class Place:
    """Claude Code in a home of its own, and one conversation with it."""

    lab: Lab
    home: Path
    tools: Tools
    agent: ClaudeCode
    asking: Asking = field(default_factory=Asking)


@pytest.fixture
def place(lab: Lab, tmp_path: Path) -> Place:
    home = lab.folder(tmp_path.name)
    lab.program("claude")
    tools = tools_in(tmp_path, lab.environment_of(home))
    return Place(lab, home, tools, ClaudeCode(ClaudeCodeOptions(folder=str(home / "proj")), tools))


async def test_it_answers_and_goes_on_in_the_same_conversation(place: Place, tmp_path: Path) -> None:
    with nothing_left(tmp_path):
        first = await place.agent.run(place.asking.turn("one"))
        second = await place.agent.run(place.asking.turn("two"))
    assert isinstance(first, Answered)
    assert first.text.startswith("REPLY[1] ")
    assert isinstance(second, Answered)
    assert second.text.startswith("REPLY[2] ")
    assert len(place.asking.sessions) == 1
    assert (second.usage.input_tokens, second.usage.output_tokens) == (5, 5)
    assert first.usage.model is not None
    assert first.usage.cost_usd is not None
    assert first.usage.cost_usd > 0
    assert second.usage.cost_usd == first.usage.cost_usd  # Claude Code itself counts for the whole session


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("FAIL_401", Reason.PROVIDER_AUTH_OR_ACCESS),
        ("FAIL_402", Reason.PROVIDER_QUOTA_LIMIT),
        ("FAIL_429", Reason.PROVIDER_RATE_LIMIT),
        ("FAIL_QUOTA", Reason.PROVIDER_QUOTA_LIMIT),
        ("FAIL_CTX", Reason.CONTEXT_OVERFLOW),
        ("FAIL_500", Reason.PROVIDER_SERVER_ERROR),
        ("DROP", Reason.PROVIDER_SERVER_ERROR),
    ],
)
async def test_a_fault_of_the_provider_is_a_typed_reason(place: Place, word: str, reason: Reason) -> None:
    turn = place.asking.turn(word)
    failed = await place.agent.run(turn)
    assert isinstance(failed, Failed)
    assert (failed.reason or classify_output(failed.output, ())) is reason
    assert str(place.home) not in failed.text
    recalled = await place.agent.recall(turn)
    assert isinstance(recalled, Failed)
    assert (recalled.reason or classify_output(recalled.output, ())) is reason


async def test_without_a_key_it_says_what_is_missing(lab: Lab, tmp_path: Path) -> None:
    home = lab.folder(tmp_path.name)
    environment = {name: value for name, value in lab.environment_of(home).items() if name != "ANTHROPIC_API_KEY"}
    agent = ClaudeCode(ClaudeCodeOptions(), tools_in(tmp_path, environment))
    failed = await agent.run(Asking().turn("hello"))
    assert isinstance(failed, Failed)
    assert failed.reason is Reason.MISSING_CONFIG


async def test_a_slow_turn_ends_when_it_is_cut_and_the_conversation_goes_on(place: Place, tmp_path: Path) -> None:
    began = time.monotonic()
    turn = place.asking.turn("SLOW_20")
    with nothing_left(tmp_path), pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await place.agent.run(turn)
    assert time.monotonic() - began < 3 * 5
    assert await place.agent.recall(turn) is None
    after = await place.agent.run(place.asking.turn("after"))
    assert isinstance(after, Answered)
    assert after.route == "command line"
    assert len(place.asking.sessions) == 1


async def test_what_is_killed_is_lost_and_its_own_history_is_no_answer(place: Place) -> None:
    turn = place.asking.turn("SLOW_20")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(place.agent.run(turn))
        while not place.asking.sessions or not place.lab.model.asked(turn.key):  # noqa: ASYNC110 - it is on a thread
            await asyncio.sleep(0.05)
        for pid in _children_of(os.getpid()):
            os.kill(pid, signal.SIGKILL)
    assert isinstance(running.result(), Lost)
    assert await place.agent.recall(turn) is None


async def test_its_own_history_tells_an_answer_that_nobody_heard(place: Place) -> None:
    turn = place.asking.turn("one")
    answered = await place.agent.run(turn)
    assert isinstance(answered, Answered)
    recalled = await ClaudeCode(place.agent.options, place.tools).recall(
        place.asking.turn("one", message=turn.message.id)
    )
    assert isinstance(recalled, Answered)
    assert recalled.text == answered.text
    never = await place.agent.recall(place.asking.turn("two"))
    assert isinstance(never, Failed)
    assert (never.began, never.reason) == (False, Reason.RUNTIME_OFFLINE)


async def test_a_conversation_that_is_gone_is_begun_anew_and_said(place: Place) -> None:
    place.asking.sessions.append("01234567-89ab-4cde-8f01-23456789abcd")
    answered = await place.agent.run(place.asking.turn("one"))
    assert isinstance(answered, Answered)
    assert answered.text.startswith("REPLY[1] ")
    assert answered.route == NEW_SESSION
    assert len(place.asking.sessions) == 2


@pytest.mark.parametrize("text", [HARD, "x" * 200_000 + " the end", "/help", "!ls"], ids=["hard", "200 kB", "/", "!"])
async def test_a_text_arrives_as_it_was_sent(place: Place, text: str) -> None:
    turn = place.asking.turn(text)
    assert isinstance(await place.agent.run(turn), Answered)
    assert turn.prompt in place.lab.model.calls[-1].last


@pytest.mark.parametrize("form", ["@{0} please", 'see @"{0}" please', "a\n@~/secret.txt\nb", "@../secret.txt please"])
async def test_a_sender_cannot_put_a_file_before_the_model(place: Place, form: str) -> None:
    (place.home / "secret.txt").write_text("the-secret-of-the-house")
    assert isinstance(await place.agent.run(place.asking.turn(form.format(place.home / "secret.txt"))), Answered)
    (transcript,) = (place.home / ".claude/projects").glob("*/*.jsonl")
    assert "the-secret-of-the-house" not in transcript.read_text()


async def test_a_turn_that_used_a_tool_is_told_and_what_was_not_allowed_is_said(place: Place) -> None:
    turn = place.asking.turn('TOOLCALL Write {"file_path": "/nowhere/x", "content": "y"}')
    answered = await place.agent.run(turn)
    assert isinstance(answered, Answered)
    assert answered.text.startswith("TOOLDONE")
    assert answered.route.endswith("not allowed: Write")
    recalled = await place.agent.recall(turn)
    assert isinstance(recalled, Answered)
    assert recalled.text == answered.text


async def test_it_is_found_with_its_version(place: Place) -> None:
    found = await KIND.detect(place.agent.options, place.tools)
    assert (found.program, found.problem, found.ways) == (place.lab.program("claude"), None, ("command line",))
    assert found.version is not None
    assert found.version[0].isdigit()


def _children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found
