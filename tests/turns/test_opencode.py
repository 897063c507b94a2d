"""OpenCode, by its command line and by its server: what the adapter says of a turn, over real processes and sockets."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from angelia.model.failure import Reason
from angelia.turns.adapters.opencode import KIND, OpenCodeOptions
from angelia.turns.adapters.port import Adapter, Answered, Failed, Lost, Outcome
from tests.turns.asking import Asking
from tests.turns.programs import Program, cut_off, program_in, reason_of
from tests.turns.stand_ins.opencode_server import PASSWORD, OpenCodeServer, opencode_server
from tests.turns.watching import eventually, runs

FAILURES = [
    ("E401", Reason.PROVIDER_AUTH_OR_ACCESS),
    ("E402", Reason.PROVIDER_QUOTA_LIMIT),
    ("EQUOTA", Reason.PROVIDER_QUOTA_LIMIT),
    ("E429", Reason.PROVIDER_RATE_LIMIT),
    ("E503", Reason.PROVIDER_SERVER_ERROR),
    ("ECTX", Reason.CONTEXT_OVERFLOW),
    ("EAUTH", Reason.PROVIDER_AUTH_OR_ACCESS),
    ("ECUT", Reason.PROVIDER_SERVER_ERROR),
    ("EODD", Reason.UNKNOWN),
]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return program_in(tmp_path, "opencode", "opencode_program.py")


@pytest.fixture
def server() -> Iterator[OpenCodeServer]:
    with opencode_server() as server:
        yield server


@pytest.fixture(params=["command line", "HTTP server"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def adapter(way: str, program: Program, server: OpenCodeServer) -> Adapter:
    return by_command_line(program) if way == "command line" else by_server(program, server)


def by_command_line(program: Program) -> Adapter:
    return KIND.make(OpenCodeOptions(), program.tools)


def by_server(program: Program, server: OpenCodeServer, **options: object) -> Adapter:
    made = replace_options(OpenCodeOptions(url=server.url, password_env="OC_PASSWORD"), **options)
    tools = program.tools_with(OC_PASSWORD=PASSWORD)
    assert KIND.check(made, tools) is None
    return KIND.make(made, tools)


def replace_options(options: OpenCodeOptions, **fields: object) -> OpenCodeOptions:
    return OpenCodeOptions(**{name: getattr(options, name) for name in options.__struct_fields__} | fields)


async def run(adapter: Adapter, word: str, asking: Asking | None = None, seconds: float = 30.0) -> Outcome:
    return await adapter.run((asking or Asking()).turn(word, seconds=seconds))


def answer(outcome: Outcome | None) -> str:
    assert isinstance(outcome, Answered), outcome
    return outcome.text


# ---- by either way


async def test_turns_go_on_in_one_session(adapter: Adapter, way: str) -> None:
    asking = Asking()
    for number in (1, 2):
        outcome = await run(adapter, "hello", asking)
        assert answer(outcome) == f"REPLY[{number}] hello"
        assert isinstance(outcome, Answered)
        assert outcome.route == way
        spent = outcome.usage
        assert (spent.input_tokens, spent.output_tokens, spent.cost_usd) == (5, 7, 0.25)
    assert len(set(asking.sessions)) == 1


async def test_a_session_that_is_gone_is_begun_anew_and_that_is_said(adapter: Adapter) -> None:
    asking = Asking(["ses_gone"])
    outcome = await run(adapter, "hello", asking)
    assert answer(outcome) == "REPLY[1] hello"
    assert isinstance(outcome, Answered)
    assert "the old one is gone" in outcome.route
    assert asking.sessions[-1] != "ses_gone"


@pytest.mark.parametrize(("word", "reason"), FAILURES)
async def test_an_error_is_a_failure_with_its_reason(adapter: Adapter, word: str, reason: Reason) -> None:
    outcome = await run(adapter, word)
    assert reason_of(outcome) is reason
    assert isinstance(outcome, Failed)
    assert "sk-1" not in outcome.text
    assert "\n" not in outcome.text
    assert outcome.wait_seconds == (7.0 if word == "E429" else None)


async def test_an_answer_that_nobody_heard_is_in_its_history(adapter: Adapter) -> None:
    asking = Asking()
    turn = asking.turn("hello")
    said = answer(await adapter.run(turn))
    assert answer(await adapter.recall(replace(turn, session=asking.sessions[-1]))) == said
    other = await adapter.recall(asking.turn("hello"))  # another message of the same words
    assert other is None or (isinstance(other, Failed) and not other.began)
    assert await adapter.recall(replace(turn, session=None)) is None
    assert await adapter.recall(replace(turn, session="--help")) is None


# ---- its command line


async def test_a_text_rides_on_standard_input_alone(program: Program) -> None:
    turn = Asking(["--help"]).turn("-f 'x' \"y\" \x07\x1b[31m $HOME 日本 🙂 " + "z" * 200_000)
    await by_command_line(program).run(turn)
    (call,) = program.calls()
    assert call["stdin"] == turn.prompt
    assert call["argv"] == ["run", "--format", "json", "--print-logs", "--log-level", "ERROR"]
    assert call["environment"]["ANGELIA_ID"] == turn.message.id


async def test_leave_and_model_are_said_as_the_options_have_them(program: Program) -> None:
    options = OpenCodeOptions(permissions="allow", model="maker/model-1")
    await run(KIND.make(options, program.tools), "hello")
    assert program.calls()[0]["argv"][-3:] == ["--model", "maker/model-1", "--auto"]


async def test_the_answer_is_what_it_said_last(program: Program) -> None:
    assert answer(await run(by_command_line(program), "TOOLS")) == "REPLY[101] TOOLS"


@pytest.mark.parametrize("word", ["EXIT_0", "HALF"])
async def test_exit_code_0_alone_is_no_answer(program: Program, word: str) -> None:
    assert reason_of(await run(by_command_line(program), word)) is Reason.UNKNOWN


async def test_another_exit_code_is_what_it_printed(program: Program) -> None:
    assert reason_of(await run(by_command_line(program), "EXIT_1")) is Reason.PROVIDER_RATE_LIMIT


async def test_one_that_was_killed_is_lost_and_its_history_does_not_know(program: Program) -> None:
    adapter, asking = by_command_line(program), Asking()
    turn = asking.turn("DIE")
    assert isinstance(await adapter.run(turn), Lost)
    assert await adapter.recall(replace(turn, session=asking.sessions[-1])) is None
    assert await adapter.recall(asking.turn("never sent")) is None


async def test_one_that_lingers_after_its_answer_is_ended(program: Program) -> None:
    async with asyncio.timeout(15):
        assert answer(await run(by_command_line(program), "LINGER", seconds=2.0)) == "REPLY[1] LINGER"
    assert not runs(program.calls()[0]["pid"])


@pytest.mark.parametrize("word", ["FLOOD", "LONG_LINE"])
async def test_an_answer_without_end_is_too_large(program: Program, word: str) -> None:
    assert reason_of(await run(by_command_line(program), word)) is Reason.TOO_LARGE
    assert not runs(program.calls()[0]["pid"])


async def test_a_cancelled_turn_leaves_no_process(program: Program) -> None:
    async with asyncio.timeout(15):
        await cut_off(by_command_line(program), Asking().turn("HANG"))
    assert not runs(program.calls()[0]["pid"])


async def test_one_that_only_tries_again_is_ended_with_the_reason_that_it_logged(program: Program) -> None:
    async with asyncio.timeout(15):
        outcome = await run(by_command_line(program), "RETRY", seconds=2.0)
    assert reason_of(outcome) is Reason.PROVIDER_SERVER_ERROR
    assert not runs(program.calls()[0]["pid"])


async def test_a_program_that_is_not_there_never_began(program: Program) -> None:
    outcome = await run(KIND.make(OpenCodeOptions(program="/nowhere/opencode"), program.tools), "hello")
    assert reason_of(outcome) is Reason.MISSING_CONFIG
    assert isinstance(outcome, Failed)
    assert not outcome.began


# ---- its server


async def test_the_server_is_asked_with_the_password_in_the_folder_with_the_model(
    program: Program, server: OpenCodeServer, tmp_path: Path
) -> None:
    adapter = by_server(program, server, folder="/a b/c&d", model="maker/a/b")
    turn = Asking().turn("-f 'x' \"y\" \x07\x1b[31m $HOME 日本 🙂 " + "z" * 200_000)
    await adapter.run(turn)
    assert all(path.endswith("?directory=%2Fa%20b%2Fc%26d") for _, path, _ in server.asked)
    (body,) = [body for method, path, body in server.asked if method == "POST" and "/message" in path]
    assert body["parts"] == [{"type": "text", "text": turn.prompt}]
    assert body["model"] == {"providerID": "maker", "modelID": "a/b"}
    assert {rule["permission"] for rule in server.asked[0][2]["permission"]} >= {"question"}


@pytest.mark.parametrize("word", ["EMPTY", "E400", "E500"])
async def test_a_status_alone_is_no_answer(program: Program, server: OpenCodeServer, word: str) -> None:
    outcome = await run(by_server(program, server), word)
    assert reason_of(outcome) is Reason.UNKNOWN
    assert isinstance(outcome, Failed)
    assert outcome.began is (word != "E400")


async def test_an_answer_to_another_message_is_not_ours(program: Program, server: OpenCodeServer) -> None:
    assert isinstance(await run(by_server(program, server), "OTHER"), Lost)


async def test_a_conversation_that_was_summed_up_answers_all_the_same(program: Program, server: OpenCodeServer) -> None:
    assert answer(await run(by_server(program, server), "SUMMED_UP")) == "REPLY"
    assert reason_of(await run(by_server(program, server), "SUMMED_IN_VAIN")) is Reason.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    ("word", "seen"), [("CUT_ANSWERED", Answered), ("CUT_UNSTORED", Failed), ("CUT_FOR_EVER", type(None))]
)
async def test_after_a_lost_connection_the_history_says_what_it_knows(
    program: Program, server: OpenCodeServer, word: str, seen: type
) -> None:
    adapter, asking = by_server(program, server), Asking()
    turn = asking.turn(word)
    assert isinstance(await adapter.run(turn), Lost)
    before = server.count("POST", "/session/.*/message")
    recalled = await adapter.recall(replace(turn, session=asking.sessions[-1]))
    assert isinstance(recalled, seen)
    assert not (isinstance(recalled, Failed) and recalled.began)
    assert server.count("POST", "/session/.*/message") == before


async def test_a_turn_that_still_runs_is_waited_for(program: Program, server: OpenCodeServer) -> None:
    adapter, asking = by_server(program, server), Asking()
    turn = asking.turn("CUT_BUSY")
    assert isinstance(await adapter.run(turn), Lost)
    async with asyncio.TaskGroup() as tasks:
        recalling = tasks.create_task(adapter.recall(replace(turn, session=asking.sessions[-1])))
        await eventually(lambda: server.count("GET", "/session/.*/message"))
        server.go_on.set()
    assert answer(recalling.result()) == "REPLY[1] CUT_BUSY"


async def test_what_it_asks_leave_for_is_answered_and_nobody_elses(program: Program, server: OpenCodeServer) -> None:
    assert answer(await run(by_server(program, server), "ASK")) == "REPLY[1] ASK"
    assert server.replies == ["reject"]
    assert server.count("POST", "/permission/per_1/reply") == 1
    server.go_on.clear()
    await run(by_server(program, server, permissions="allow"), "ASK")
    assert server.replies[-1] == "once"


async def test_a_cancelled_turn_is_stopped_at_the_server(program: Program, server: OpenCodeServer) -> None:
    asking = Asking()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(by_server(program, server).run(asking.turn("HANG")))
        await eventually(server.waiting.is_set)
        running.cancel()
    assert running.cancelled()
    assert server.aborted == asking.sessions


async def test_a_server_that_only_tries_again_is_stopped_with_its_reason(
    program: Program, server: OpenCodeServer
) -> None:
    async with asyncio.timeout(15):
        outcome = await run(by_server(program, server), "RETRY", seconds=2.0)
    assert reason_of(outcome) is Reason.PROVIDER_SERVER_ERROR
    assert len(server.aborted) == 1


async def test_without_a_server_or_a_password_no_turn_begins(program: Program, server: OpenCodeServer) -> None:
    nobody = KIND.make(OpenCodeOptions(url="http://127.0.0.1:9"), program.tools)
    for adapter, reason in (
        (nobody, Reason.RUNTIME_OFFLINE),
        (KIND.make(OpenCodeOptions(url=server.url), program.tools), Reason.MISSING_CONFIG),
    ):
        outcome = await run(adapter, "hello")
        assert reason_of(outcome) is reason
        assert isinstance(outcome, Failed)
        assert not outcome.began
    assert server.sessions == {}


# ---- what is found, and refused


async def test_what_is_found_is_told_with_its_version(program: Program, server: OpenCodeServer, way: str) -> None:
    options = OpenCodeOptions() if way == "command line" else OpenCodeOptions(url=server.url, password_env="OC")
    found = await KIND.detect(options, program.tools_with(OC=PASSWORD))
    assert (found.version, found.ways, found.problem) == ("1.18.33", (way,), None)


async def test_a_problem_says_what_helps(program: Program, server: OpenCodeServer, tmp_path: Path) -> None:
    async def problem(options: OpenCodeOptions, **variables: str) -> str:
        found = await KIND.detect(options, program.tools_with(**variables))
        assert found.ways == ()
        return found.problem or ""

    assert "install it" in await problem(OpenCodeOptions(), PATH=str(tmp_path / "empty"))
    assert "opencode upgrade" in await problem(OpenCodeOptions(), STAND_IN_HELP="--format --session")
    assert "opencode serve" in await problem(OpenCodeOptions(url="http://127.0.0.1:9"))
    assert "password_file" in await problem(OpenCodeOptions(url=server.url))


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "127.0.0.1:4096"},
        {"url": "http://u:p@127.0.0.1"},
        {"url": "http://127.0.0.1:4096/?a=b"},
        {"url": "http://127.0.0.1:99999"},
        {"url": "http://127.0.0.1/\r\nHost: x"},
        {"program": "opencode"},
        {"folder": "a"},
        {"password_env": "NOT_THERE"},
        {"password_file": "/not/there"},
        {"model": "--auto"},
        {"environment": {"A": "x\0y"}},
        {"environment": {"A=B": "x"}},
    ],
)
def test_options_that_cannot_work_are_refused(program: Program, fields: dict[str, Any]) -> None:
    assert KIND.check(OpenCodeOptions(), program.tools) is None
    assert KIND.check(replace_options(OpenCodeOptions(), **fields), program.tools) is not None


async def test_a_password_may_stand_in_a_file(program: Program, server: OpenCodeServer, tmp_path: Path) -> None:
    (tmp_path / "password").touch(0o600)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    options = OpenCodeOptions(url=server.url, password_file=str(tmp_path / "password"))
    adapter = KIND.make(options, program.tools)
    assert answer(await run(adapter, "hello")) == "REPLY[1] hello"
    (tmp_path / "password").write_text("another")  # it is read anew for each turn
    assert reason_of(await run(adapter, "hello")) is Reason.MISSING_CONFIG
