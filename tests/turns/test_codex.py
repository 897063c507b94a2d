"""The adapter for Codex, over a program that prints what the real one printed. tests/lab runs the real one."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from angelia.model.errors import BadRequest
from angelia.model.failure import Reason
from angelia.turns.adapters import registry
from angelia.turns.adapters.codex import KIND, NEW_THREAD, ROUTE, Codex, CodexOptions
from angelia.turns.adapters.json_output import mark
from angelia.turns.adapters.port import Answered, Failed, Found, Lost, Usage
from tests.turns.asking import nothing_left
from tests.turns.programs import Program, cut_off, program_in, reason_of, telling


@pytest.fixture
def codex(tmp_path: Path) -> Program:
    return program_in(tmp_path, "codex", "codex.py")


@pytest.fixture
def agent(codex: Program) -> Codex:
    return Codex(CodexOptions(), codex.tools)


# -------------------------------------------------------------------------------------------------------------- answers


async def test_the_first_turn_begins_a_thread_and_the_next_goes_on_in_it(
    codex: Program, agent: Codex, tmp_path: Path
) -> None:
    with nothing_left(tmp_path):
        first = await agent.run(codex.asking.turn("one"))
        assert isinstance(first, Answered)
        (thread,) = codex.asking.sessions
        second = await agent.run(codex.asking.turn("two"))
    assert isinstance(second, Answered)
    assert first.text.startswith("REPLY[1] ")  # the last of what it said, not all of it
    assert second.text.startswith("REPLY[2] ")
    assert codex.asking.sessions == [thread]
    assert [call["argv"] for call in codex.calls()] == [
        ["exec", "--json", "--skip-git-repo-check", "-"],
        ["exec", "--json", "--skip-git-repo-check", "resume", thread, "-"],
    ]


async def test_what_a_turn_used_is_told_for_that_turn_alone(codex: Program, agent: Codex) -> None:
    for text in ("one", "two", "three"):
        answered = await agent.run(codex.asking.turn(text))
        assert isinstance(answered, Answered)
        assert answered.usage == Usage(input_tokens=5, output_tokens=4, model="fake-model")


async def test_what_a_turn_used_is_not_said_where_nobody_can_know(codex: Program) -> None:
    answered = await Codex(CodexOptions(), codex.tools_with(CODEX_HOME="/nowhere")).run(codex.asking.turn("one"))
    assert isinstance(answered, Answered)
    assert answered.usage == Usage()


async def test_the_text_is_data(codex: Program, agent: Codex) -> None:
    text = "-c x=1 --help \"double\" 'single' `back` $HOME \\ 😀 é \x01\x1b[31m\x7f tab\t end " + "x" * 200_000
    turn = codex.asking.turn(text)
    assert isinstance(await agent.run(turn), Answered)
    (call,) = codex.calls()
    assert call["stdin"] == f"{turn.prompt}\n{mark(turn)}\n"
    assert not any(word in " ".join(call["argv"]) for word in ("double", "😀", "xxxx"))


async def test_a_persons_own_options_are_handed_on(codex: Program) -> None:
    options = CodexOptions(
        program=str(codex.path), model="large", sandbox="read-only", arguments=("--profile", "bus"), folder="/"
    )
    agent = Codex(options, codex.tools)
    for text in ("one", "two"):
        assert isinstance(await agent.run(codex.asking.turn(text)), Answered)
    for call in codex.calls():
        assert call["argv"][3:9] == ["--sandbox", "read-only", "--model", "large", "--profile", "bus"]
        assert call["environment"]["ANGELIA_AGENT"] == "agent"


# ------------------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("home", ["its own record", "no record"])
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
        ("key", Reason.MISSING_CONFIG),
        ("fault", Reason.UNKNOWN),
    ],
)
async def test_a_fault_is_a_typed_reason_then_and_later(codex: Program, case: str, reason: Reason, home: str) -> None:
    tools = codex.tools if home == "its own record" else codex.tools_with(CODEX_HOME="/nowhere")
    agent = Codex(CodexOptions(), tools)
    turn = codex.asking.turn(f"CASE:{case}")
    failed = await agent.run(turn)
    assert reason_of(failed) is reason
    assert isinstance(failed, Failed)
    assert failed.began
    assert not any(secret in failed.text for secret in ("127.0.0.1", "sk-"))
    recalled = await agent.recall(turn)
    assert recalled is None if home == "no record" else reason_of(recalled) is reason


async def test_its_own_class_of_an_error_tells_where_its_words_do_not(codex: Program, agent: Codex) -> None:
    assert reason_of(await agent.run(codex.asking.turn("CASE:full"))) is Reason.PROVIDER_SERVER_ERROR


@pytest.mark.parametrize("case", ["wordless", "unfinished", "silent", "early"])
async def test_a_false_success_is_no_answer(codex: Program, agent: Codex, case: str) -> None:
    assert reason_of(await agent.run(codex.asking.turn(f"CASE:{case}"))) is Reason.UNKNOWN


async def test_where_no_thread_began_no_turn_did(codex: Program, agent: Codex) -> None:
    failed = await agent.run(codex.asking.turn("CASE:early"))
    assert isinstance(failed, Failed)
    assert not failed.began
    assert "unexpected argument" in failed.output
    assert codex.asking.sessions == []


async def test_a_thread_that_is_open_elsewhere_is_left_alone(codex: Program, agent: Codex) -> None:
    await agent.run(codex.asking.turn("one"))
    (thread,) = codex.asking.sessions
    (codex.folder / f"home/.codex/sessions/2026/11/29/{thread}.lock").touch()
    failed = await agent.run(codex.asking.turn("two" * 100_000))
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.began) == (Reason.TARGET_SESSION_LIVE, False)
    assert "open somewhere else" in failed.text
    assert codex.asking.sessions == [thread]
    assert len(codex.calls()) == 1


async def test_a_thread_that_is_gone_is_begun_anew_once_and_said(codex: Program, agent: Codex) -> None:
    gone = "01900000-0000-7000-8000-000000000000"
    codex.asking.sessions.append(gone)
    answered = await agent.run(codex.asking.turn("one" * 100_000))
    assert isinstance(answered, Answered)
    assert answered.text.startswith("REPLY[1] ")
    assert answered.route == NEW_THREAD
    assert codex.asking.sessions[-1] != gone
    later = await agent.run(codex.asking.turn("two"))
    assert isinstance(later, Answered)
    assert (later.text[:9], later.route) == ("REPLY[2] ", ROUTE)


async def test_any_other_failure_leaves_the_thread_as_it_is(codex: Program, agent: Codex) -> None:
    await agent.run(codex.asking.turn("one"))
    for case in ("401", "fault", "silent", "early"):
        await agent.run(codex.asking.turn(f"CASE:{case}"))
    assert len(codex.asking.sessions) == 1
    assert len(codex.calls()) == 5


@pytest.mark.parametrize("thread", ["--last", "../../x", "an old name"])
async def test_what_is_no_thread_is_never_asked_for(codex: Program, agent: Codex, thread: str) -> None:
    codex.asking.sessions.append(thread)
    assert isinstance(await agent.run(codex.asking.turn("one")), Answered)
    assert "resume" not in codex.calls()[0]["argv"]


async def test_a_program_that_is_not_there_costs_no_attempt(codex: Program, agent: Codex) -> None:
    outcomes = [
        await Codex(options, codex.tools).run(codex.asking.turn("one"))
        for options in (CodexOptions(program="/nowhere/codex"), CodexOptions(folder="/nowhere"))
    ]
    codex.path.unlink()
    for failed in (*outcomes, await agent.run(codex.asking.turn("one"))):
        assert isinstance(failed, Failed)
        assert (failed.reason, failed.began) == (Reason.MISSING_CONFIG, False)


# ---------------------------------------------------------------------------------------------------------- how it ends


async def test_when_it_is_cut_all_of_it_ends_and_the_thread_is_known(
    codex: Program, agent: Codex, tmp_path: Path
) -> None:
    turn = codex.asking.turn("CASE:killed")
    with nothing_left(tmp_path):
        await cut_off(agent, turn)
    assert len(codex.asking.sessions) == 1
    assert await agent.recall(turn) is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_what_somebody_else_ended_is_lost(codex: Program, agent: Codex, number: int) -> None:
    begun = asyncio.Event()
    turn = telling(codex.asking.turn("CASE:killed"), begun)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(agent.run(turn))
        await begun.wait()
        os.kill(codex.calls()[0]["pid"], number)
    assert isinstance(running.result(), Lost)


# -------------------------------------------------------------------------------------------------------------- history


async def test_its_record_tells_an_answer_that_nobody_heard(codex: Program, agent: Codex) -> None:
    for text in ("one", "two", "three"):
        turn = codex.asking.turn(text)
        answered = await agent.run(turn)
        assert isinstance(answered, Answered)
        recalled = await Codex(CodexOptions(), codex.tools).recall(codex.asking.turn(text, message=turn.message.id))
        assert isinstance(recalled, Answered)
        assert (recalled.text, recalled.usage) == (answered.text, answered.usage)
    assert len(codex.calls()) == 3  # looking runs nothing


async def test_what_its_record_does_not_have_never_ran(codex: Program, agent: Codex) -> None:
    await agent.run(codex.asking.turn("one"))
    failed = await agent.recall(codex.asking.turn("one"))
    assert isinstance(failed, Failed)
    assert (failed.began, failed.reason) == (False, Reason.RUNTIME_OFFLINE)


async def test_the_answer_to_somebody_elses_prompt_is_not_ours(codex: Program, agent: Codex) -> None:
    turn = codex.asking.turn("CASE:killed")
    await cut_off(agent, turn)
    await agent.run(codex.asking.turn("two"))
    assert await agent.recall(codex.asking.turn("CASE:killed", message=turn.message.id)) is None


async def test_without_a_record_nobody_knows(codex: Program, agent: Codex) -> None:
    assert await agent.recall(codex.asking.turn("one")) is None
    codex.asking.sessions.append("01900000-0000-7000-8000-000000000000")
    assert await agent.recall(codex.asking.turn("one")) is None


# ------------------------------------------------------------------------------------------------ options and detection


@pytest.mark.parametrize(
    "wrong",
    [
        {"program": "codex"},
        {"folder": "proj"},
        {"arguments": ["resume", "--last"]},
        {"arguments": ["--ephemeral"]},
        {"arguments": ["a\0b"]},
        {"other": 1},
    ],
)
def test_options_that_would_take_the_turn_away_are_refused(codex: Program, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        registry.read({"kind": "codex", **wrong}, codex.tools)


def test_it_is_a_kind(codex: Program) -> None:
    assert registry.read({"kind": "codex", "sandbox": "read-only"}, codex.tools) == (
        KIND,
        CodexOptions(sandbox="read-only"),
    )


async def test_it_is_found_with_its_version(codex: Program, agent: Codex) -> None:
    assert await KIND.detect(agent.options, codex.tools) == Found(str(codex.path), "0.171.0", (ROUTE,))


async def test_what_is_missing_is_said_with_what_helps(codex: Program, agent: Codex) -> None:
    old = await KIND.detect(agent.options, codex.tools_with(JSON="--text"))
    assert "--json" in (old.problem or "")
    assert "npm install" in (old.problem or "")
    assert "not there" in ((await KIND.detect(CodexOptions(folder="/nowhere"), codex.tools)).problem or "")
    assert (await KIND.detect(CodexOptions(program="/nowhere/codex"), codex.tools)).problem
    codex.path.unlink()
    gone = await KIND.detect(agent.options, codex.tools)
    assert gone.program is None
    assert "npm install" in (gone.problem or "")
