"""OpenClaw as an adapter: what its gateway and its command line are asked, and what their answers are taken for.

Stand-ins for both do what the real ones were seen to do; the real ones are run by tests/lab/test_openclaw.py.
"""

import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from angelia.model.failure import Reason, classify_output
from angelia.turns.adapters.openclaw import OpenClaw, OpenClawOptions, check, detect
from angelia.turns.adapters.port import Answered, Failed, Lost, Outcome, Usage
from tests.turns.stand_ins import openclaw_program
from tests.turns.stand_ins.openclaw_server import TOKEN, OpenClawServer, serving
from tests.turns.turn import tools, turn
from tests.turns.watching import eventually

SESSION = "agent:main:angelia-bot"


class Install:
    """An OpenClaw: its home, and what the hub lends. Its program is in PATH once ``with_program`` was called."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.tools = tools(base, grace_seconds=0.5)
        self.home = Path(self.tools.home) / ".openclaw"
        self.home.mkdir()
        self.tools = replace(self.tools, environment={**self.tools.environment, "HOME": self.tools.home})

    def configure(self, url: str, token: object = TOKEN) -> None:
        port = int(url.rpartition(":")[2])
        told = {"gateway": {"port": port, "auth": {"mode": "token", "token": token}}}
        (self.home / "openclaw.json").write_text(json.dumps(told))

    def with_program(self) -> str:
        program = self.base / "openclaw"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {openclaw_program.__file__} "$@"\n')
        program.chmod(0o700)
        self.tools = replace(self.tools, environment={**self.tools.environment, "PATH": f"{self.base}:/usr/bin:/bin"})
        return str(program)

    def adapter(self, **options: Any) -> OpenClaw:
        return OpenClaw(OpenClawOptions(**options), self.tools, settle_seconds=0.5)

    def without_program(self) -> None:
        (self.base / "openclaw").unlink()

    def texts_left(self) -> list[Path]:
        return list(Path(self.tools.private).iterdir())

    def runs(self) -> list[dict[str, Any]]:
        path = Path(self.tools.home) / "runs.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return Install(tmp_path)


@pytest.fixture
async def server(install: Install) -> AsyncIterator[OpenClawServer]:
    async with serving() as server:
        install.configure(server.url)
        yield server


def reason(outcome: Outcome | None) -> Reason:
    """As the runner finds it."""
    assert isinstance(outcome, Failed), outcome
    return outcome.reason or classify_output(outcome.output, ())


# -------------------------------------------------------------------------------------------------------------- gateway


async def test_a_turn_is_asked_for_under_its_key_in_its_own_session(install: Install, server: OpenClawServer) -> None:
    sessions: list[str] = []
    text = '-q "quoted" \N{ROBOT FACE}\n\x01' + "x" * 200_000
    asked = turn(prompt=text, conversation="Bot", begun=sessions.append, seconds=29.5)
    outcome = await install.adapter().run(asked)
    assert outcome == Answered(f"REPLY {text}", "gateway", Usage(7, 3, 0.25, "m"))
    assert server.asked == [
        (
            "agent",
            {
                "message": text, "agentId": "main", "sessionKey": SESSION, "deliver": False,
                "idempotencyKey": asked.key, "timeout": 30,
            },
        )
    ]  # fmt: skip
    assert sessions == [SESSION]


async def test_it_comes_in_as_a_local_program_that_speaks_protocols_3_and_4(
    install: Install, server: OpenClawServer
) -> None:
    await install.adapter().run(turn())
    (hello,) = server.hellos
    assert (hello["minProtocol"], hello["maxProtocol"], hello["role"]) == (3, 4, "operator")
    assert (hello["client"]["id"], hello["client"]["mode"]) == ("gateway-client", "backend")
    assert hello["auth"] == {"token": TOKEN}


async def test_asked_for_again_it_is_the_same_run(install: Install, server: OpenClawServer) -> None:
    asked = turn(prompt="once")
    assert await install.adapter().run(asked) == await install.adapter().run(asked)
    assert server.begun == ["once"]


async def test_a_gateway_that_starts_or_is_full_is_waited_for(install: Install, server: OpenClawServer) -> None:
    server.starting, server.busy = 3, 1
    assert isinstance(await install.adapter().run(turn()), Answered)
    assert (len(server.hellos), len(server.params("agent")), len(server.begun)) == (4, 2, 1)


async def test_and_not_for_longer_than_the_turn_has(install: Install, server: OpenClawServer) -> None:
    server.starting = 10**6
    begun = time.monotonic()
    outcome = await install.adapter().run(turn(seconds=0.3))
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.began) == (Reason.RUNTIME_OFFLINE, False)
    assert time.monotonic() - begun < 3
    assert server.asked == []


def test_one_that_hangs_up_at_once_is_not_there(install: Install) -> None:
    """Before, or while, the first bytes are sent; on the loop that a hub has, where one of three is before."""

    def hang_up(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                listener.accept()[0].close()

    async def thirty(port: int) -> set[tuple[Reason | None, bool]]:
        agent = install.adapter(url=f"ws://127.0.0.1:{port}")
        outcomes = [await agent.run(turn()) for _ in range(30)]
        return {(each.reason, each.began) for each in outcomes if isinstance(each, Failed)}

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        threads.submit(hang_up, listener)
        try:
            assert uvloop.run(thirty(listener.getsockname()[1])) == {(Reason.RUNTIME_OFFLINE, False)}
        finally:
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("text", "answer"), [("TWO PARTS", "one\n\ntwo\n/tmp/picture.png"), ("SILENT", "")])
async def test_an_answer_is_all_of_its_parts(install: Install, server: OpenClawServer, text: str, answer: str) -> None:
    outcome = await install.adapter().run(turn(prompt=text))
    assert isinstance(outcome, Answered)
    assert outcome.text == answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FULL", Reason.CONTEXT_OVERFLOW),
        ("OK-BUT-AN-ERROR", Reason.PROVIDER_RATE_LIMIT),
        ("OK-BUT-A-KIND", Reason.MODEL_UNAVAILABLE),
        ("OK-BUT-ABORTED", Reason.UNKNOWN),
        ("BROKEN-OFF", Reason.CANCELLED),
        ("OWN-TIME", Reason.DELIVERY_TIMEOUT),
        ("401", Reason.PROVIDER_AUTH_OR_ACCESS),
        ("COOLING", Reason.PROVIDER_AUTH_OR_ACCESS),
        ("402", Reason.PROVIDER_QUOTA_LIMIT),
        ("429", Reason.PROVIDER_RATE_LIMIT),
        ("500", Reason.PROVIDER_SERVER_ERROR),
        ("CUT", Reason.PROVIDER_SERVER_ERROR),
        ("NO-KEY", Reason.MISSING_CONFIG),
    ],
)
async def test_what_is_no_answer_is_a_failure(
    install: Install, server: OpenClawServer, text: str, expected: Reason
) -> None:
    outcome = await install.adapter().run(turn(prompt=text))
    assert reason(outcome) is expected
    assert isinstance(outcome, Failed)
    assert outcome.began


async def test_what_was_not_taken_did_not_begin(install: Install, server: OpenClawServer) -> None:
    unknown = await install.adapter(agent="nobody").run(turn())
    install.configure(server.url, "a wrong token")
    shut_out = await install.adapter().run(turn())
    install.configure("ws://127.0.0.1:9")
    nobody = await install.adapter().run(turn())
    seen = [(outcome.reason, outcome.began) for outcome in (unknown, shut_out, nobody) if isinstance(outcome, Failed)]
    assert seen == [
        (Reason.MISSING_CONFIG, False),
        (Reason.MISSING_CONFIG, False),
        (Reason.RUNTIME_OFFLINE, False),
    ]
    assert server.begun == []


@pytest.mark.parametrize("text", ["BEFORE", "AFTER"])
async def test_a_connection_that_breaks_once_it_was_asked_is_lost(
    install: Install, server: OpenClawServer, text: str
) -> None:
    assert isinstance(await install.adapter().run(turn(prompt=text)), Lost)
    assert len(server.params("agent")) == 1


@pytest.mark.parametrize("text", ["HANG", "LATE HANG"])
async def test_a_turn_that_is_cancelled_is_broken_off_there_too(
    install: Install, server: OpenClawServer, text: str
) -> None:
    asked = turn(prompt=text, conversation="bot")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(install.adapter().run(asked))
        await eventually(lambda: server.begun)
        running.cancel()
    assert server.params("sessions.abort") == [{"key": SESSION, "runId": asked.key}]
    assert server.aborted.is_set()


# -------------------------------------------------------------------------------------------------------------- recall


def user(text: str, key: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, "idempotencyKey": f"{key}:user", **more}


def assistant(text: str, stop: str = "stop", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": stop, **more}


def history(*rows: dict[str, Any], runs: bool = False, **more: Any) -> dict[str, Any]:
    return {"messages": list(rows), "sessionInfo": {"hasActiveRun": runs}, **more}


RESUMED = user("[System] Your previous turn was interrupted", "other", provenance={"kind": "internal_system"})


async def test_its_end_is_asked_for_first(install: Install, server: OpenClawServer) -> None:
    asked = turn(conversation="bot")
    server.waits[asked.key] = {"status": "ok", "terminalReply": {"text": "the answer"}}
    assert await install.adapter().recall(asked) == Answered("the answer", "gateway")
    server.waits[asked.key] = {"status": "error", "error": "HTTP 402: no credits"}
    assert reason(await install.adapter().recall(asked)) is Reason.PROVIDER_QUOTA_LIMIT
    server.waits[asked.key] = {"status": "error", "stopReason": "rpc"}
    assert reason(await install.adapter().recall(asked)) is Reason.CANCELLED
    assert server.params("agent") == []


async def test_then_its_history_by_the_key_and_across_a_restart(install: Install, server: OpenClawServer) -> None:
    asked = turn(conversation="bot")
    before = (user("same", "another"), assistant("an older answer"))
    after = (user("later", "third"), assistant("a later answer"))
    found = Answered("the answer", "gateway, its history")
    for ours in (
        (user("same", asked.key), assistant("the answer")),
        (user("same", asked.key), RESUMED, assistant("", "toolUse"), assistant("the answer")),
    ):
        server.history[SESSION] = history(*before, *ours, *after)
        assert await install.adapter().recall(asked) == found
    assert server.params("agent") == []


async def test_one_that_kept_silent_has_answered_so(install: Install, server: OpenClawServer) -> None:
    asked = turn(conversation="bot")
    server.waits[asked.key] = {"status": "ok", "terminalReply": {"disposition": "silent"}}
    assert await install.adapter().recall(asked) == Answered("", "gateway")


async def test_a_turn_that_runs_is_waited_for(install: Install, server: OpenClawServer) -> None:
    asked = turn(conversation="bot")
    server.history[SESSION] = history(user("same", asked.key), runs=True)
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(install.adapter().recall(asked))
        await eventually(lambda: server.params("chat.history"))
        server.history[SESSION] = history(user("same", asked.key), RESUMED, assistant("the answer"))
    assert looking.result() == Answered("the answer", "gateway, its history")


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"pendingInputs": {"items": [{"runId": "KEY", "state": "interrupted"}]}}, Reason.RUNTIME_OFFLINE),
        ({"pendingInputs": {"items": [{"runId": "KEY", "state": "cancelled"}]}}, Reason.CANCELLED),
        (history(user("x", "KEY")), Reason.RUNTIME_OFFLINE),
        (history(user("x", "KEY")) | {"sessionInfo": {"status": "killed"}}, Reason.CANCELLED),
        (history(user("x", "KEY"), assistant("", "error", errorMessage="HTTP 429: slow")), Reason.PROVIDER_RATE_LIMIT),
    ],
)
async def test_one_that_was_given_up_is_a_failure(
    install: Install, server: OpenClawServer, seen: dict[str, Any], expected: Reason
) -> None:
    asked = turn(conversation="bot", key="KEY")
    server.history[SESSION] = seen
    assert reason(await install.adapter().recall(asked)) is expected


async def test_one_that_may_still_be_taken_up_is_not_given_up(install: Install, server: OpenClawServer) -> None:
    """A gateway that was restarted shows the turn as it left it, for some seconds."""
    asked = turn(conversation="bot")
    server.history[SESSION] = history(user("same", asked.key)) | {"sessionInfo": {"status": "done"}}
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(install.adapter().recall(asked))
        await eventually(lambda: server.params("chat.history"))
        server.history[SESSION] = history(user("same", asked.key), RESUMED, runs=True)
        await eventually(lambda: len(server.params("chat.history")) > 2)
        server.history[SESSION] = history(user("same", asked.key), RESUMED, assistant("the answer"))
    assert looking.result() == Answered("the answer", "gateway, its history")


async def test_where_there_is_no_trace_nobody_can_say(install: Install, server: OpenClawServer) -> None:
    server.history[SESSION] = history(user("same", "another"), assistant("an answer"))
    assert await install.adapter().recall(turn(conversation="bot")) is None
    install.configure("ws://127.0.0.1:9")
    assert await install.adapter().recall(turn(conversation="bot", seconds=0.2)) is None


# -------------------------------------------------------------------------------------------------------- command line


async def test_who_is_not_let_in_goes_by_the_command_line(install: Install, server: OpenClawServer) -> None:
    install.configure(server.url, "a wrong token")
    install.with_program()
    text = '-q "quoted" $HOME \N{ROBOT FACE}\n' + "x" * 200_000
    outcome = await install.adapter().run(turn(prompt=text, seconds=9.2))
    assert outcome == Answered(f"REPLY {text}", "command line")
    (run,) = install.runs()
    path = run["arguments"][6]
    fixed = ["agent", "--agent", "main", "--session-key", SESSION, "--message-file", path, "--json", "--timeout", "10"]
    assert (run["arguments"], run["text"], run["mode"]) == (fixed, text, 0o600)
    assert install.texts_left() == []
    assert server.asked == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NOBODY", Reason.RUNTIME_OFFLINE),
        ("REFUSED", Reason.PROVIDER_AUTH_OR_ACCESS),
        ("BY-ITSELF", Reason.UNKNOWN),
        ("IS-ERROR", Reason.UNKNOWN),
        ("x" * (4 * 1024 * 1024 + 1), Reason.TOO_LARGE),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_exit_codes_and_json_are_no_answer(
    install: Install, server: OpenClawServer, text: str, expected: Reason
) -> None:
    install.configure(server.url, "a wrong token")
    install.with_program()
    assert reason(await install.adapter().run(turn(prompt=text))) is expected


async def test_a_program_whose_connection_broke_is_lost(install: Install, server: OpenClawServer) -> None:
    install.configure(server.url, "a wrong token")
    install.with_program()
    assert isinstance(await install.adapter().run(turn(prompt="GONE")), Lost)


# -------------------------------------------------------------------------------------------------------- how it is set


async def test_what_is_found_says_what_works_or_what_would_help(install: Install, server: OpenClawServer) -> None:
    assert (await detect(OpenClawOptions(), install.tools)).ways == ("gateway",)
    program = install.with_program()
    found = await detect(OpenClawOptions(), install.tools)
    assert (found.program, found.version) == (program, "OpenClaw 2026.9.6 (abc)")
    assert (found.ways, found.problem) == (("gateway", "command line"), None)
    server.starting = 1
    assert (await detect(OpenClawOptions(), install.tools)).ways == ("gateway",)
    install.configure(server.url, "a wrong token")
    assert (await detect(OpenClawOptions(), install.tools)).ways == ("command line",)
    install.without_program()
    shut_out = await detect(OpenClawOptions(), install.tools)
    assert shut_out.ways == ()
    assert "token_file" in (shut_out.problem or "")
    install.configure("ws://127.0.0.1:9")
    assert "openclaw gateway run" in ((await detect(OpenClawOptions(), install.tools)).problem or "")
    assert server.asked == []


async def test_the_token_is_the_one_that_is_given(install: Install, server: OpenClawServer, tmp_path: Path) -> None:
    install.configure(server.url, "another")
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    install.tools = replace(install.tools, variables={"OC": TOKEN})
    assert isinstance(await install.adapter(token_file=str(tmp_path / "token")).run(turn()), Answered)
    assert isinstance(await install.adapter(token_env="OC").run(turn()), Answered)
    install.configure(server.url, "${OC}")  # as OpenClaw's own configuration may name a variable
    assert isinstance(await install.adapter().run(turn()), Answered)
    (tmp_path / "elsewhere").mkdir()
    (install.home / "openclaw.json").rename(tmp_path / "elsewhere/openclaw.json")
    assert isinstance(await install.adapter(home=str(tmp_path / "elsewhere")).run(turn()), Answered)


async def test_a_token_of_this_machine_is_not_sent_to_another(install: Install, server: OpenClawServer) -> None:
    """``localhost.`` with a dot is the same machine by another name, as far as the name goes one that is not known."""
    server.token = None
    port = server.url.rpartition(":")[2]
    assert isinstance(await install.adapter(url=f"ws://127.1:{port}").run(turn()), Answered)
    assert "auth" not in server.hellos[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": "Main:x"},
        {"agent": ""},
        {"url": "http://127.0.0.1:1"},
        {"program": "/nowhere/openclaw"},
        {"home": "/nowhere"},
        {"token_file": "/nowhere/token"},
    ],
    ids=str,
)
def test_what_cannot_work_is_said_when_it_is_set(install: Install, wrong: dict[str, Any]) -> None:
    assert check(OpenClawOptions(), install.tools) is None
    assert (check(OpenClawOptions(**wrong), install.tools) or "").endswith((".", "ws://HOST:PORT."))
