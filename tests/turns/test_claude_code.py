"""The adapter for Claude Code, over a program that prints what the real one printed. tests/lab runs the real one."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from angelia.model.errors import BadRequest
from angelia.model.failure import Reason
from angelia.turns.adapters import registry
from angelia.turns.adapters.claude_code import KIND, NEW_SESSION, ROUTE, ClaudeCode, ClaudeCodeOptions
from angelia.turns.adapters.json_output import DRAIN_SECONDS, LINGER_SECONDS, mark
from angelia.turns.adapters.port import Answered, Failed, Found, Lost
from tests.turns.asking import nothing_left
from tests.turns.programs import Program, cut_off, program_in, reason_of, telling


@pytest.fixture
def claude(tmp_path: Path) -> Program:
    return program_in(tmp_path, "claude", "claude.py")


@pytest.fixture
def agent(claude: Program) -> ClaudeCode:
    return ClaudeCode(ClaudeCodeOptions(), claude.tools)


# -------------------------------------------------------------------------------------------------------------- answers


async def test_the_first_turn_begins_a_session_and_the_next_goes_on_in_it(
    claude: Program, agent: ClaudeCode, tmp_path: Path
) -> None:
    with nothing_left(tmp_path):
        first = await agent.run(claude.asking.turn("one"))
        assert isinstance(first, Answered)
        (session,) = claude.asking.sessions
        second = await agent.run(claude.asking.turn("two"))
    assert isinstance(second, Answered)
    assert first.text.startswith("REPLY[1] ")
    assert second.text.startswith("REPLY[2] ")
    assert claude.asking.sessions == [session]  # said once, for it stays the same
    begun, resumed = (call["argv"] for call in claude.calls())
    assert begun[-2:] == ["--session-id", session]
    assert resumed[-2:] == ["--resume", session]


async def test_a_session_that_goes_on_under_another_name_is_known_by_that(claude: Program) -> None:
    agent = ClaudeCode(ClaudeCodeOptions(), claude.tools_with(STAND_IN_FORKS="1"))
    for text in ("one", "two", "three"):
        assert isinstance(await agent.run(claude.asking.turn(text)), Answered)
    assert len(set(claude.asking.sessions)) == 3
    assert [call["argv"][-1] for call in claude.calls()][1:] == claude.asking.sessions[:2]


async def test_what_a_turn_used_is_told_for_that_turn_alone(claude: Program, agent: ClaudeCode) -> None:
    for text in ("one", "two", "three"):
        answered = await agent.run(claude.asking.turn(text))
        assert isinstance(answered, Answered)
        assert (answered.usage.input_tokens, answered.usage.output_tokens) == (5 + 2 + 3, 4)
        assert answered.usage.cost_usd == pytest.approx(0.00012)
        assert answered.usage.model == "claude-opus-5-5"


async def test_what_a_turn_cost_is_not_said_where_nobody_can_know(claude: Program, agent: ClaudeCode) -> None:
    await agent.run(claude.asking.turn("one"))
    elsewhere = ClaudeCode(agent.options, claude.tools_with(CLAUDE_CONFIG_DIR="/nowhere"))
    answered = await elsewhere.run(claude.asking.turn("two"))
    assert isinstance(answered, Answered)
    assert answered.usage.cost_usd is None


async def test_the_text_is_data(claude: Program, agent: ClaudeCode) -> None:
    text = "-p --help \"double\" 'single' `back` $HOME \\ 😀 é \x01\x1b[31m\x7f\r\n tab\t end " + "x" * 200_000
    turn = claude.asking.turn(text)
    assert isinstance(await agent.run(turn), Answered)
    (call,) = claude.calls()
    said = json.loads(call["stdin"])
    assert said["message"]["content"][0] == {"type": "text", "text": turn.prompt}
    assert not any(word in " ".join(call["argv"]) for word in ("double", "😀", "xxxx"))


async def test_the_senders_text_is_not_in_the_block_that_claude_code_obeys(claude: Program, agent: ClaudeCode) -> None:
    turn = claude.asking.turn("/help @/etc/passwd")
    await agent.run(turn)
    *others, last = json.loads(claude.calls()[0]["stdin"])["message"]["content"]
    assert [block["text"] for block in others] == [turn.prompt]
    assert last["text"] == mark(turn)
    assert not set(last["text"]) & set("/@!#")


async def test_what_it_was_not_allowed_is_said_with_the_answer(claude: Program, agent: ClaudeCode) -> None:
    answered = await agent.run(claude.asking.turn("CASE:denied"))
    assert isinstance(answered, Answered)
    assert answered.route == f"{ROUTE}; not allowed: Bash, Write"


async def test_a_persons_own_options_are_handed_on(claude: Program, agent: ClaudeCode) -> None:
    options = ClaudeCodeOptions(program=str(claude.path), model="opus", arguments=("--permission-mode", "acceptEdits"))
    assert isinstance(await ClaudeCode(options, claude.tools).run(claude.asking.turn("one")), Answered)
    (call,) = claude.calls()
    assert call["argv"][-4:] == ["--model", "opus", "--permission-mode", "acceptEdits"]
    assert call["environment"]["ANGELIA_AGENT"] == "agent"


# ------------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("401", Reason.PROVIDER_AUTH_OR_ACCESS),
        ("402", Reason.PROVIDER_QUOTA_LIMIT),
        ("429", Reason.PROVIDER_RATE_LIMIT),
        ("quota", Reason.PROVIDER_QUOTA_LIMIT),
        ("plan", Reason.PROVIDER_QUOTA_LIMIT),
        ("context", Reason.CONTEXT_OVERFLOW),
        ("500", Reason.PROVIDER_SERVER_ERROR),
        ("drop", Reason.PROVIDER_SERVER_ERROR),
        ("model", Reason.MODEL_UNAVAILABLE),
        ("login", Reason.MISSING_CONFIG),
        ("turns", Reason.AGENT_BLOCKED),
        ("fault", Reason.UNKNOWN),
    ],
)
async def test_a_fault_is_a_typed_reason_then_and_later(
    claude: Program, agent: ClaudeCode, case: str, reason: Reason
) -> None:
    turn = claude.asking.turn(f"CASE:{case}")
    failed = await agent.run(turn)
    assert reason_of(failed) is reason
    assert isinstance(failed, Failed)
    assert failed.began
    assert "127.0.0.1" not in failed.text
    recalled = await agent.recall(turn)
    if case in ("turns", "fault"):  # of these the transcript has nothing
        assert recalled is None
    else:
        assert reason_of(recalled) is reason


@pytest.mark.parametrize("case", ["command", "wordless", "no_result", "error_success", "silent", "early"])
async def test_a_false_success_is_no_answer(claude: Program, agent: ClaudeCode, case: str) -> None:
    assert reason_of(await agent.run(claude.asking.turn(f"CASE:{case}"))) is Reason.UNKNOWN


async def test_where_no_session_began_no_turn_did(claude: Program, agent: ClaudeCode) -> None:
    failed = await agent.run(claude.asking.turn("CASE:early"))
    assert isinstance(failed, Failed)
    assert not failed.began
    assert "unknown option" in failed.output
    assert claude.asking.sessions == []


async def test_a_session_that_is_gone_is_begun_anew_once_and_said(claude: Program, agent: ClaudeCode) -> None:
    gone = "01234567-89ab-4cde-8f01-23456789abcd"
    claude.asking.sessions.append(gone)
    answered = await agent.run(claude.asking.turn("one" * 100_000))
    assert isinstance(answered, Answered)
    assert answered.text.startswith("REPLY[1] ")
    assert answered.route == NEW_SESSION
    assert claude.asking.sessions[-1] != gone
    later = await agent.run(claude.asking.turn("two"))
    assert isinstance(later, Answered)
    assert (later.text[:9], later.route) == ("REPLY[2] ", ROUTE)


async def test_any_other_failure_leaves_the_session_as_it_is(claude: Program, agent: ClaudeCode) -> None:
    await agent.run(claude.asking.turn("one"))
    for case in ("401", "fault", "silent", "early"):
        await agent.run(claude.asking.turn(f"CASE:{case}"))
    assert len(claude.asking.sessions) == 1
    assert len(claude.calls()) == 5


@pytest.mark.parametrize("session", ["--help", "../../x", "an old name"])
async def test_what_is_no_session_is_never_asked_for(claude: Program, agent: ClaudeCode, session: str) -> None:
    claude.asking.sessions.append(session)
    answered = await agent.run(claude.asking.turn("one"))
    assert isinstance(answered, Answered)
    assert answered.route == ROUTE  # no second try, in a new session
    assert session not in claude.calls()[0]["argv"]


async def test_a_program_that_is_not_there_costs_no_attempt(claude: Program, agent: ClaudeCode) -> None:
    outcomes = [
        await ClaudeCode(options, claude.tools).run(claude.asking.turn("one"))
        for options in (ClaudeCodeOptions(program="/nowhere/claude"), ClaudeCodeOptions(folder="/nowhere"))
    ]
    claude.path.unlink()
    for failed in (*outcomes, await agent.run(claude.asking.turn("one"))):
        assert isinstance(failed, Failed)
        assert (failed.reason, failed.began) == (Reason.MISSING_CONFIG, False)


# ---------------------------------------------------------------------------------------------------------- how it ends


async def test_when_it_is_cut_all_of_it_ends_and_the_session_is_known(
    claude: Program, agent: ClaudeCode, tmp_path: Path
) -> None:
    turn = claude.asking.turn("CASE:killed")
    with nothing_left(tmp_path):
        await cut_off(agent, turn)
    assert len(claude.asking.sessions) == 1
    assert await agent.recall(turn) is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_what_somebody_else_ended_is_lost(claude: Program, agent: ClaudeCode, number: int) -> None:
    begun = asyncio.Event()
    turn = telling(claude.asking.turn("CASE:killed"), begun)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(agent.run(turn))
        await begun.wait()
        os.kill(claude.calls()[0]["pid"], number)
    assert isinstance(running.result(), Lost)


async def test_it_is_over_with_its_result_though_it_lingers(claude: Program, agent: ClaudeCode, tmp_path: Path) -> None:
    began = time.monotonic()
    with nothing_left(tmp_path):
        assert isinstance(await agent.run(claude.asking.turn("CASE:lingering")), Answered)
    assert time.monotonic() - began < LINGER_SECONDS * 3


async def test_it_is_over_with_its_process_though_a_child_of_its_holds_the_pipes(
    claude: Program, agent: ClaudeCode, tmp_path: Path
) -> None:
    began = time.monotonic()
    with nothing_left(tmp_path):
        failed = await agent.run(claude.asking.turn("CASE:holding"))
    assert isinstance(failed, Failed)
    assert time.monotonic() - began < (DRAIN_SECONDS + 2) * 3


async def test_what_it_prints_besides_is_passed_over(claude: Program, agent: ClaudeCode) -> None:
    assert isinstance(await agent.run(claude.asking.turn("CASE:noisy")), Answered)


async def test_a_program_that_does_not_listen_to_the_end_may_answer_all_the_same(claude: Program) -> None:
    deaf = ClaudeCode(ClaudeCodeOptions(), claude.tools_with(STAND_IN_DEAF="1"))
    assert isinstance(await deaf.run(claude.asking.turn("x" * 1_000_000)), Answered)


# -------------------------------------------------------------------------------------------------------------- history


async def test_its_transcript_tells_an_answer_that_nobody_heard(claude: Program, agent: ClaudeCode) -> None:
    for text in ("one", "two", "three"):
        turn = claude.asking.turn(text)
        answered = await agent.run(turn)
        assert isinstance(answered, Answered)
        asked = claude.asking.turn(text, message=turn.message.id)
        recalled = await ClaudeCode(agent.options, claude.tools).recall(asked)
        assert isinstance(recalled, Answered)
        assert recalled.text == answered.text
    assert len(claude.calls()) == 3  # looking runs nothing


async def test_what_its_transcript_does_not_have_never_ran(claude: Program, agent: ClaudeCode) -> None:
    await agent.run(claude.asking.turn("one"))
    failed = await agent.recall(claude.asking.turn("one"))
    assert isinstance(failed, Failed)
    assert (failed.began, failed.reason) == (False, Reason.RUNTIME_OFFLINE)


async def test_the_answer_to_somebody_elses_prompt_is_not_ours(claude: Program, agent: ClaudeCode) -> None:
    turn = claude.asking.turn("CASE:killed")
    await cut_off(agent, turn)
    await agent.run(claude.asking.turn("two"))
    assert await agent.recall(claude.asking.turn("CASE:killed", message=turn.message.id)) is None


async def test_without_a_transcript_nobody_knows(claude: Program, agent: ClaudeCode) -> None:
    assert await agent.recall(claude.asking.turn("one")) is None
    claude.asking.sessions.append("01234567-89ab-4cde-8f01-23456789abcd")
    assert await agent.recall(claude.asking.turn("one")) is None


# ------------------------------------------------------------------------------------------------ options and detection


@pytest.mark.parametrize(
    "wrong",
    [
        {"program": "claude"},
        {"folder": "proj"},
        {"arguments": ["--resume", "x"]},
        {"arguments": ["--output-format=text"]},
        {"arguments": ["a\0b"]},
        {"other": 1},
    ],
)
def test_options_that_would_take_the_turn_away_are_refused(
    claude: Program, agent: ClaudeCode, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BadRequest):
        registry.read({"kind": "claude_code", **wrong}, claude.tools)


def test_it_is_a_kind(claude: Program, agent: ClaudeCode) -> None:
    kind, options = registry.read({"kind": "claude_code", "arguments": ["--add-dir", "/tmp"]}, claude.tools)
    assert (kind, options) == (KIND, ClaudeCodeOptions(arguments=("--add-dir", "/tmp")))


async def test_it_is_found_with_its_version(claude: Program, agent: ClaudeCode) -> None:
    found = await KIND.detect(agent.options, claude.tools)
    assert found == Found(str(claude.path), "2.1.332", (ROUTE,))


async def test_what_is_missing_is_said_with_what_helps(claude: Program, agent: ClaudeCode) -> None:
    old = await KIND.detect(agent.options, claude.tools_with(STAND_IN_OLD="1"))
    assert "--session-id" in (old.problem or "")
    assert "npm install" in (old.problem or "")
    assert "not there" in ((await KIND.detect(ClaudeCodeOptions(folder="/nowhere"), claude.tools)).problem or "")
    assert (await KIND.detect(ClaudeCodeOptions(program="/nowhere/claude"), claude.tools)).problem
    claude.path.unlink()
    gone = await KIND.detect(agent.options, claude.tools)
    assert gone.program is None
    assert "npm install" in (gone.problem or "")
