"""Agents of the Agent Client Protocol: what the adapter says of a turn, over real processes that speak it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from angelia.model.failure import Reason
from angelia.turns.adapters.acp import KIND, MISSING, AcpOptions
from angelia.turns.adapters.port import Adapter, Answered, Failed, Lost, Outcome
from tests.turns.asking import Asking
from tests.turns.programs import Program, cut_off, program_in, reason_of
from tests.turns.watching import eventually, runs

Make = Callable[..., Adapter]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return program_in(tmp_path, "agent", "acp_agent.py")


@pytest.fixture
async def make(program: Program) -> AsyncIterator[Make]:
    """Makes the adapter; ``variables`` go to the stand-in."""
    async with AsyncExitStack() as stack:

        def make(permissions: Any = "deny", **variables: str) -> Adapter:
            options = AcpOptions(argv=[str(program.path), "--acp"], permissions=permissions)
            adapter = KIND.make(options, program.tools_with(**variables))
            stack.push_async_callback(adapter.close)
            return adapter

        yield make


async def run(adapter: Adapter, word: str, asking: Asking | None = None, seconds: float = 30.0) -> Outcome:
    return await adapter.run((asking or Asking()).turn(word, seconds=seconds))


def calls(program: Program, method: str) -> list[dict[str, Any]]:
    return [call for call in program.calls() if call.get("method") == method]


def pids(program: Program) -> list[int]:
    return [call["pid"] for call in program.calls() if call.get("started")]


def answer(outcome: Outcome) -> str:
    assert isinstance(outcome, Answered), outcome
    return outcome.text


# ---- one process, one conversation


async def test_all_turns_of_an_agent_go_to_one_warm_process_and_one_session(make: Make, program: Program) -> None:
    adapter, asking = make(), Asking()
    for number in (1, 2, 3):
        outcome = await run(adapter, "hello", asking)
        assert answer(outcome) == f"REPLY[{number}] hello"
        assert isinstance(outcome, Answered)
        assert (outcome.route, outcome.usage.input_tokens, outcome.usage.output_tokens) == ("ACP", 5, 7)
    assert len(pids(program)) == 1
    assert len(asking.sessions) == 1
    assert calls(program, "session/load") == []
    await adapter.close()
    assert not runs(pids(program)[0])


async def test_the_text_rides_in_the_prompt_alone_as_it_was_sent(make: Make, program: Program) -> None:
    turn = Asking().turn("-f 'x' \"y\" \x07\x1b[31m $HOME 日本 🙂 " + "z" * 200_000)
    await make().run(turn)
    (call,) = calls(program, "session/prompt")
    assert call["params"]["prompt"] == [{"type": "text", "text": turn.prompt}]
    assert program.calls()[0]["argv"] == ["--acp"]


async def test_a_process_that_outlives_a_turn_has_no_variable_of_that_turn(make: Make, program: Program) -> None:
    await run(make(), "hello")
    environment = program.calls()[0]["environment"]
    assert environment["ANGELIA_AGENT"] == "agent"
    assert "ANGELIA_ID" not in environment


@pytest.mark.parametrize("way", ["load", "resume"])
async def test_a_conversation_goes_on_after_a_restart_and_its_past_is_no_answer(
    make: Make, program: Program, way: str
) -> None:
    asking = Asking()
    first = make(STAND_IN_LOADS=way)
    await run(first, "one", asking)
    await run(first, "two", asking)
    await first.close()
    outcome = await run(make(STAND_IN_LOADS=way), "three", asking)
    assert answer(outcome) == "REPLY[3] three"
    assert [call["method"] for call in program.calls() if call.get("method") in ("session/load", "session/resume")] == [
        f"session/{way}"
    ]
    assert len(asking.sessions) == 1


@pytest.mark.parametrize("way", ["load", "none"])
async def test_where_it_cannot_go_on_a_new_session_is_begun_and_said(make: Make, way: str) -> None:
    asking = Asking(["a-session-that-is-gone"])
    outcome = await run(make(STAND_IN_LOADS=way), "hello", asking)
    assert isinstance(outcome, Answered)
    assert "could not be loaded" in outcome.route
    assert len(asking.sessions) == 2


async def test_what_is_not_of_this_turn_is_not_heard(make: Make) -> None:
    assert answer(await run(make(), "STRANGERS")) == "REPLY[1] STRANGERS"


async def test_what_is_said_around_a_tool_does_not_run_together(make: Make) -> None:
    assert answer(await run(make(), "THINK_ALOUD")) == "I look. Now.\n\nREPLY[1] THINK_ALOUD"


# ---- ends


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("REFUSE", Reason.AGENT_BLOCKED),
        ("TOKENS", Reason.UNKNOWN),
        ("REQUESTS", Reason.UNKNOWN),
        ("NEW_STOP", Reason.UNKNOWN),
        ("SILENT_END", Reason.UNKNOWN),
        ("E401", Reason.PROVIDER_AUTH_OR_ACCESS),
        ("E402", Reason.PROVIDER_QUOTA_LIMIT),
        ("E429", Reason.PROVIDER_RATE_LIMIT),
        ("EQUOTA", Reason.PROVIDER_QUOTA_LIMIT),
        ("E400", Reason.CONTEXT_OVERFLOW),
        ("E500", Reason.PROVIDER_SERVER_ERROR),
        ("ELOGIN", Reason.PROVIDER_AUTH_OR_ACCESS),
        ("ECUT", Reason.PROVIDER_SERVER_ERROR),
        ("EODD", Reason.UNKNOWN),
    ],
)
async def test_an_end_that_is_no_answer_is_a_failure_with_its_reason(make: Make, word: str, reason: Reason) -> None:
    adapter = make()
    outcome = await run(adapter, word)
    assert reason_of(outcome) is reason
    assert isinstance(outcome, Failed)
    assert outcome.began
    assert "sk-1" not in outcome.text
    assert answer(await run(adapter, "well?")).endswith("well?")


@pytest.mark.parametrize(("name", "failed"), [("hermes-agent", True), ("another", False)])
async def test_the_one_agent_that_calls_its_failures_answers_is_not_believed(
    make: Make, name: str, failed: bool
) -> None:
    outcome = await run(make(STAND_IN_NAME=name), "HERMES_401")
    assert isinstance(outcome, Failed) is failed
    if failed:
        assert reason_of(outcome) is Reason.PROVIDER_AUTH_OR_ACCESS


@pytest.mark.parametrize("word", ["FLOOD", "LONG_LINE"])
async def test_an_answer_without_end_is_too_large_and_the_next_turn_is_well(make: Make, word: str) -> None:
    adapter = make()
    assert reason_of(await run(adapter, word)) is Reason.TOO_LARGE
    assert answer(await run(adapter, "well?")).endswith("well?")


async def test_an_agent_that_ends_in_mid_turn_is_lost_and_started_anew_for_the_next(
    make: Make, program: Program
) -> None:
    adapter, asking = make(), Asking()
    assert isinstance(await run(adapter, "DIE", asking), Lost)
    assert answer(await run(adapter, "well?", asking)) == "REPLY[2] well?"
    assert len(calls(program, "session/prompt")) == 2


async def test_a_last_word_before_its_end_counts(make: Make) -> None:
    adapter = make()
    assert answer(await run(adapter, "ANSWER_AND_DIE")) == "REPLY[1] ANSWER_AND_DIE"
    assert answer(await run(adapter, "well?")).endswith("well?")


async def test_one_that_ended_while_idle_is_started_anew_and_the_turn_runs_once(make: Make, program: Program) -> None:
    adapter, asking = make(), Asking()
    await run(adapter, "one", asking)
    os.kill(pids(program)[0], signal.SIGKILL)
    await eventually(lambda: not runs(pids(program)[0]))
    assert answer(await run(adapter, "two", asking)) == "REPLY[2] two"
    assert [call["pid"] for call in calls(program, "session/prompt")] == pids(program)


async def test_one_that_does_not_speak_the_protocol_never_began(program: Program) -> None:
    adapter = KIND.make(AcpOptions(argv=[str(program.path), "--broken"]), program.tools)
    outcome = await run(adapter, "hello")
    assert isinstance(outcome, Failed)
    assert not outcome.began
    assert "unknown option" in outcome.output
    assert len(pids(program)) == 1


async def test_one_that_is_not_there_never_began(program: Program) -> None:
    outcome = await run(KIND.make(AcpOptions(argv=["/nowhere/agent"]), program.tools), "hello")
    assert reason_of(outcome) is Reason.MISSING_CONFIG
    assert isinstance(outcome, Failed)
    assert not outcome.began


# ---- leave


@pytest.mark.parametrize(
    ("permissions", "word", "expected"),
    [("deny", "ASK", '"no"'), ("allow", "ASK", '"yes"'), ("deny", "ASK_ONLY_YES", '"cancelled"')],
)
async def test_what_it_asks_leave_for_is_answered_as_the_options_say(
    make: Make, permissions: str, word: str, expected: str
) -> None:
    said = answer(await run(make(permissions), word))
    assert expected in said
    assert ("yes" in said) is (permissions == "allow")


async def test_nothing_of_ours_is_lent_to_it(make: Make) -> None:
    assert answer(await run(make("allow"), "READ")) == '{"error": -32601}'


# ---- time


async def test_a_cancelled_turn_is_stopped_by_asking_and_the_process_stays(make: Make, program: Program) -> None:
    adapter, asking = make(), Asking()
    await run(adapter, "one", asking)
    async with asyncio.timeout(9):
        await _cancelled_in(adapter, asking, "HANG", program)
    assert len(calls(program, "session/cancel")) == 1
    assert answer(await run(adapter, "well?", asking)) == "REPLY[3] well?"
    assert len(pids(program)) == 1


async def test_one_that_does_not_stop_is_ended(make: Make, program: Program) -> None:
    adapter, asking = make(), Asking()
    await run(adapter, "one", asking)
    async with asyncio.timeout(15):  # three seconds to stop, one of grace to end
        await _cancelled_in(adapter, asking, "DEAF", program)
    assert not runs(pids(program)[0])
    assert answer(await run(adapter, "well?", asking)) == "REPLY[3] well?"


async def test_a_turn_that_is_cancelled_before_it_began_leaves_nothing(make: Make, program: Program) -> None:
    adapter = make()
    begun = asyncio.Event()
    turn = replace(Asking().turn("HANG"), begun=lambda session: begun.set())
    await cut_off(adapter, turn)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(adapter.run(Asking().turn("hello")))
        await asyncio.sleep(0)
        running.cancel()
    await adapter.close()
    assert [pid for pid in pids(program) if runs(pid)] == []


async def test_one_that_only_tries_again_is_ended_with_the_reason_that_it_logged(make: Make, program: Program) -> None:
    adapter = make()
    async with asyncio.timeout(15):
        assert reason_of(await run(adapter, "RETRY", seconds=1.0)) is Reason.PROVIDER_SERVER_ERROR
    assert not runs(pids(program)[0])


async def test_one_that_is_silent_is_ended_before_its_time_is_over(make: Make) -> None:
    async with asyncio.timeout(15):
        assert reason_of(await run(make(), "HANG", seconds=1.0)) is Reason.DELIVERY_TIMEOUT


async def test_one_that_is_at_work_has_all_of_its_time(make: Make) -> None:
    adapter = make()
    await run(adapter, "warm up")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await run(adapter, "THINK", seconds=1.0)


async def _cancelled_in(adapter: Adapter, asking: Asking, word: str, program: Program) -> None:
    turn = asking.turn(word)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(adapter.run(turn))
        await eventually(lambda: any(turn.message.id in str(call) for call in calls(program, "session/prompt")))
        running.cancel()
    assert running.cancelled()


# ---- what is found, and refused


async def test_what_is_found_is_what_it_says_of_itself(program: Program) -> None:
    found = await KIND.detect(AcpOptions(argv=[str(program.path)]), program.tools)
    assert (found.version, found.ways, found.problem, found.notes) == ("1.2.3", ("ACP",), None, ())
    forgets = await KIND.detect(AcpOptions(argv=[str(program.path)]), program.tools_with(STAND_IN_LOADS="none"))
    assert "cannot load" in forgets.notes[0]
    assert [pid for pid in pids(program) if runs(pid)] == []


@pytest.mark.parametrize(
    ("argv", "said"), [(["/nowhere/agent"], "cannot be started"), (["--broken"], "does not speak")]
)
async def test_a_problem_says_what_it_is(program: Program, argv: list[str], said: str) -> None:
    argv = argv if argv[0].startswith("/") else [str(program.path), *argv]
    found = await KIND.detect(AcpOptions(argv=argv), program.tools)
    assert found.problem is not None
    assert said in found.problem


@pytest.mark.parametrize(
    "options",
    [AcpOptions(argv=[]), AcpOptions(argv=["agent"]), AcpOptions(argv=["/a"], folder="b"),
     AcpOptions(argv=["/a"], environment={"A": "x\0y"}), AcpOptions(argv=["/a"], environment={"ANGELIA_TOKEN": "x"})],
)  # fmt: skip
def test_options_that_cannot_work_are_refused(program: Program, options: AcpOptions) -> None:
    assert KIND.check(AcpOptions(argv=["/usr/bin/agent", "--acp"]), program.tools) is None
    assert KIND.check(options, program.tools) is not None


async def test_a_missing_package_is_said_with_what_helps(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    options = AcpOptions(argv=[str(program.path)])
    assert KIND.check(options, program.tools) == MISSING
    assert (await KIND.detect(options, program.tools)).problem == MISSING


def test_the_package_is_loaded_when_such_an_agent_is_used_and_not_before() -> None:
    script = "import sys, angelia.turns.adapters.acp; sys.exit('acp' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
