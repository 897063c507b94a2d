"""Hermes as an adapter: what its command line and its API server are given, and what their answers are taken for.

Stand-ins for both (a program, a server on a real socket) do what the real ones were seen to do; the real one is run by
tests/lab/test_hermes.py.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from angelia.model.failure import Reason, classify_output
from angelia.turns.adapters.hermes import KIND, Hermes, HermesOptions, check, detect, lock_place
from angelia.turns.adapters.port import Answered, Failed, Lost, Outcome, Tools, Usage
from tests.turns.stand_ins import hermes_program
from tests.turns.stand_ins.hermes_server import KEY, HermesServer, serving
from tests.turns.turn import envelope, tools, turn
from tests.turns.watching import eventually


class Install:
    """A Hermes: its home, and its program in PATH."""

    def __init__(self, base: Path) -> None:
        self.home = base / ".hermes"
        self.home.mkdir()
        bin = base / "bin"
        bin.mkdir()
        self.program = bin / "hermes"
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {hermes_program.__file__} "$@"\n')
        self.program.chmod(0o700)
        self.options = HermesOptions(home=str(self.home))
        lent = tools(base, grace_seconds=0.5)
        self.tools = replace(lent, environment={**lent.environment, "PATH": f"{bin}:/usr/bin:/bin"})

    def adapter(self, **changes: Any) -> Hermes:
        return Hermes(self.with_options(**changes), self.tools)

    def with_options(self, **changes: Any) -> HermesOptions:
        return HermesOptions(**{"home": str(self.home), **changes})

    def runs(self) -> list[dict[str, Any]]:
        """What the program was given, each time."""
        path = self.home / "runs.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def texts_left(self) -> list[Path]:
        return list(Path(self.tools.private).iterdir())


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return Install(tmp_path)


@pytest.fixture
def server(install: Install) -> Iterator[HermesServer]:
    """Its API server runs, and its program is an older release."""
    (install.home / "old").touch()
    with serving() as server:
        port = server.url.rpartition(":")[2]
        (install.home / ".env").write_text(
            f"# a comment\nAPI_SERVER_ENABLED=true\nexport API_SERVER_KEY='{KEY}'\nAPI_SERVER_PORT={port}\n"
        )
        yield server


def reason(outcome: Outcome) -> Reason:
    """As the runner finds it."""
    assert isinstance(outcome, Failed), outcome
    return outcome.reason or classify_output(outcome.output, ())


# ------------------------------------------------------------------------------------------------------- command line


async def test_the_command_is_the_one_of_hermes_own_relay(install: Install) -> None:
    text = '-q "quoted" $HOME \N{ROBOT FACE}\n' + "x" * 200_000
    sessions: list[str] = []
    outcome = await install.adapter().run(turn(stamped=text, begun=sessions.append))
    (run,) = install.runs()
    assert outcome == Answered(f"REPLY[1] {text}", "command line")
    fixed = "-p default chat --in ~ -c|Bot Chat|--create-if-missing -Q --query-file"
    words = [word for part in fixed.split("|") for word in ([part] if part == "Bot Chat" else part.split())]
    assert run["arguments"] == [*words, run["path"]]
    assert (run["text"], run["mode"], sessions) == (text, 0o600, ["20261129_120000_abc"])
    assert Path(run["path"]).name.startswith("hermes-relay-dm-")
    assert Path(run["path"]).name.endswith(".txt")
    assert install.texts_left() == []


async def test_hermes_reads_its_own_attribution_and_not_our_prompt(install: Install) -> None:
    await install.adapter().run(
        turn("hello", stamped="Message from \N{ROBOT FACE} anna (@anna): hello", prompt="fenced")
    )
    assert install.runs()[0]["text"] == "Message from \N{ROBOT FACE} anna (@anna): hello"


async def test_the_conversation_is_one_for_all_mail_or_one_for_each_thread(install: Install) -> None:
    first = await install.adapter().run(turn(stamped="one"))
    second = await install.adapter().run(turn(stamped="two"))
    other = await install.adapter(conversation="thread").run(turn(stamped="one", conversation="thread-7"))
    assert [first, second, other] == [
        Answered(text, "command line") for text in ("REPLY[1] one", "REPLY[2] two", "REPLY[1] one")
    ]
    assert [run["title"] for run in install.runs()] == ["Bot Chat", "Bot Chat", "Bot Chat thread-7"]


async def test_the_child_knows_who_writes_and_nothing_of_somebody_elses_session(install: Install) -> None:
    strange = {"HERMES_TURN_AUTHOR": "{}", "HERMES_SESSION_KEY": "x", "HERMES_UI_SESSION_ID": "x"}
    kept = {"HERMES_SESSION_STALL_TIMEOUT": "9"}
    install.tools = replace(install.tools, environment={**install.tools.environment, **strange, **kept})
    for sender, author in (
        ("ops@rack3", {"id": "bot:rack3/ops", "name": "ops", "is_bot": True}),
        ("openclaw", {"id": "bot:local/openclaw", "name": "openclaw", "is_bot": True}),
        ("hermes@rack3", {"id": "bot:rack3/default", "name": "hermes", "is_bot": True}),
        ("human", None),
    ):
        await install.adapter().run(turn(message=envelope(sender=sender)))
        variables = install.runs()[-1]["variables"]
        assert json.loads(variables.get("HERMES_TURN_AUTHOR", "null")) == author
        assert not {"HERMES_SESSION_KEY", "HERMES_UI_SESSION_ID"} & variables.keys()
        assert variables["HERMES_SESSION_STALL_TIMEOUT"] == "9"
        assert variables["HERMES_HOME"] == str(install.home)
        assert variables["ANGELIA_FROM"] == "alice"  # what the turn brings reaches it


async def test_only_a_second_attempt_takes_up_what_was_left_unanswered(install: Install) -> None:
    for again in (False, True):
        await install.adapter().run(turn(again=again))
    told = [run["variables"].get("HERMES_RESUME_UNANSWERED_TURN") for run in install.runs()]
    assert told == [None, "1"]
    first, second = (run["arguments"][:-1] for run in install.runs())
    assert first == second


async def test_a_text_that_cannot_be_written_leaves_none_behind(install: Install) -> None:
    """9.2 deliver_write_failure_still_removes_tempfile: the disk is full in the middle of it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            await install.adapter().run(turn(stamped="x" * 100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (install.texts_left(), install.runs()) == ([], [])


@pytest.mark.parametrize(
    ("text", "expected", "began"),
    [
        ("FAIL-401", Reason.PROVIDER_AUTH_OR_ACCESS, True),
        ("CUT", Reason.PROVIDER_SERVER_ERROR, True),
        ("ZERO-AND-FAILED", Reason.PROVIDER_RATE_LIMIT, True),
        ("WITHOUT-A-SESSION", Reason.UNKNOWN, True),
        ("NOT-OWNED", Reason.TARGET_SESSION_LIVE, False),
        ("LIVE-BEFORE-THE-MARKER", Reason.TARGET_SESSION_LIVE, False),
        ("OTHER-REFUSAL", Reason.UNKNOWN, True),
    ],
)
async def test_what_is_no_answer_is_a_failure(install: Install, text: str, expected: Reason, began: bool) -> None:
    outcome = await install.adapter().run(turn(stamped=text))
    assert reason(outcome) is expected
    assert isinstance(outcome, Failed)
    assert outcome.began is began
    assert install.texts_left() == []


async def test_both_streams_are_told_standard_output_first(install: Install) -> None:
    outcome = await install.adapter().run(turn(stamped="FAIL-401"))
    assert isinstance(outcome, Failed)
    assert outcome.output == "HTTP 401: Incorrect API key provided.\nsession_id: 20261129_120000_abc"


async def test_ended_by_somebody_else_it_is_lost(install: Install) -> None:
    assert isinstance(await install.adapter().run(turn(stamped="KILLED")), Lost)


async def test_a_turn_that_is_cancelled_leaves_no_text_behind(install: Install) -> None:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(install.adapter().run(turn(stamped="HANG")))
        await eventually(install.runs)
        assert [path.name for path in install.texts_left()] == [Path(install.runs()[0]["path"]).name]
        running.cancel()
    assert install.texts_left() == []


async def test_a_release_is_told_by_its_help_and_asked_again_when_it_changes(install: Install) -> None:
    adapter = install.adapter()
    (install.home / "old").touch()
    refused = await adapter.run(turn())
    assert (reason(refused), install.runs()) == (Reason.MISSING_CONFIG, [])
    (install.home / "old").unlink()
    install.program.rename(install.program.with_name("before"))
    install.program.write_text(install.program.with_name("before").read_text())
    install.program.chmod(0o700)
    assert isinstance(await adapter.run(turn()), Answered)


# --------------------------------------------------------------------------------------------------------- API server


async def test_the_api_server_goes_on_in_one_conversation(install: Install, server: HermesServer) -> None:
    sessions: list[str] = []
    text = '-q "quoted" \N{ROBOT FACE}\n\x01 end'
    first = await install.adapter().run(turn(stamped=text, conversation="bot", begun=sessions.append))
    second = await install.adapter().run(turn(stamped="two", conversation="bot", session=sessions[-1]))
    assert first == Answered(f"REPLY[1] {text}", "API server", Usage(5, 5))
    assert second == Answered("REPLY[2] two", "API server", Usage(5, 5))
    assert server.asked == [("bot", text), ("bot", "two")]
    assert install.runs() == []


async def test_a_session_that_was_compacted_is_followed(install: Install, server: HermesServer) -> None:
    sessions: list[str] = []
    server.moved["bot"] = "bot-2"
    await install.adapter().run(turn(conversation="bot", begun=sessions.append))
    await install.adapter().run(turn(conversation="bot", session=sessions[-1]))
    assert sessions == ["bot", "bot-2"]
    assert [session for session, _ in server.asked] == ["bot", "bot-2"]


async def test_a_session_is_never_a_second_header(install: Install, server: HermesServer) -> None:
    sessions: list[str] = []
    server.moved["bot"] = "bot-2\r\nX-Forged: 1"
    assert isinstance(await install.adapter().run(turn(conversation="bot", begun=sessions.append)), Answered)
    assert sessions == ["bot"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("TALKS-OF-IT", "HTTP 401: that is what a server says to a wrong key."),
        ("TOOL", "REPLY[1] TOOL"),
        ("UNSTREAMED", "REPLY[1] UNSTREAMED"),
    ],
)
async def test_an_answer_is_what_was_said_last(install: Install, server: HermesServer, text: str, answer: str) -> None:
    outcome = await install.adapter().run(turn(stamped=text))
    assert isinstance(outcome, Answered)
    assert outcome.text == answer


@pytest.mark.parametrize(
    ("text", "expected", "began"),
    [
        ("AN-ERROR", Reason.PROVIDER_QUOTA_LIMIT, True),
        ("BARE-ERROR", Reason.PROVIDER_SERVER_ERROR, True),
        ("ONLY-WORDS", Reason.PROVIDER_RATE_LIMIT, True),
        ("CUT-SHORT", Reason.UNKNOWN, True),
        ("STATUS 403", Reason.MISSING_CONFIG, False),
        ("STATUS 404", Reason.MISSING_CONFIG, False),
        ("STATUS 413", Reason.TOO_LARGE, False),
        ("STATUS 429", Reason.TARGET_BUSY, False),
        ("STATUS 503", Reason.RUNTIME_OFFLINE, False),
        ("STATUS 500", Reason.PROVIDER_SERVER_ERROR, True),
        ("x" * 65_537, Reason.TOO_LARGE, False),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_status_200_and_words_are_no_answer(
    install: Install, server: HermesServer, text: str, expected: Reason, began: bool
) -> None:
    outcome = await install.adapter().run(turn(stamped=text))
    assert reason(outcome) is expected
    assert isinstance(outcome, Failed)
    assert outcome.began is began


async def test_a_stream_that_breaks_off_is_lost_and_nothing_is_asked_twice(
    install: Install, server: HermesServer
) -> None:
    assert isinstance(await install.adapter().run(turn(stamped="BREAK")), Lost)
    assert len(server.asked) == 1


async def test_nobody_there_is_no_turn(install: Install, server: HermesServer) -> None:
    (install.home / ".env").write_text(f"API_SERVER_ENABLED=true\nAPI_SERVER_KEY={KEY}\nAPI_SERVER_PORT=9\n")
    outcome = await install.adapter().run(turn())
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.began) == (Reason.RUNTIME_OFFLINE, False)


async def test_a_turn_that_is_cancelled_hangs_up_so_that_hermes_ends_it(install: Install, server: HermesServer) -> None:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(install.adapter().run(turn(stamped="HANG")))
        await eventually(lambda: server.asked)
        running.cancel()
    await eventually(server.hung_up.is_set)


async def test_its_history_tells_of_an_answer_that_was_lost(install: Install, server: HermesServer) -> None:
    now = time.time()
    message = envelope(created_at=int(now * 1000))
    server.note("bot", "user", "once", at=now - 60)
    server.note("bot", "assistant", "an answer to an earlier one", at=now - 59, finish="stop")
    server.note("bot", "user", "once", at=now + 1)
    server.note("bot", "assistant", "", at=now + 2, finish="tool_calls")
    server.note("bot", "tool", "found", at=now + 3)
    server.note("bot", "assistant", "the answer", at=now + 4, finish="stop")
    server.note("bot", "user", "something else", at=now + 5)
    asked = turn(stamped="once", message=message, seconds=3.0)
    assert await install.adapter().recall(asked) == Answered("the answer", "API server, its history")
    server.note("cut", "user", "once", at=now + 1)
    server.note("cut", "assistant", "I look it up", at=now + 2, finish="tool_calls")
    assert await install.adapter().recall(replace(asked, conversation="cut", seconds=0.3)) is None
    server.note("bot", "user", "once", at=now + 6)  # a second one: whose answer that is nobody can say
    assert await install.adapter().recall(asked) is None
    assert await install.adapter().recall(turn(stamped="never", message=message, seconds=1.0)) is None
    assert server.asked == []


# -------------------------------------------------------------------------------------------------------- how it is set


async def test_what_is_found_says_what_works_or_what_would_help(install: Install, server: HermesServer) -> None:
    found = await detect(install.options, install.tools)
    assert (found.program, found.version) == (str(install.program), "Hermes Agent v0.21.0")
    assert (found.ways, found.problem) == (("API server",), None)
    (install.home / "old").unlink()
    assert (await detect(install.options, install.tools)).ways == ("command line", "API server")
    (install.home / "old").touch()
    wrong = install.with_options(api_url=server.url, api_key_env="WRONG")
    lent = replace(install.tools, variables={"WRONG": "another key"})
    assert "refuses the key" in ((await detect(wrong, lent)).problem or "")
    (install.home / ".env").unlink()
    silent = await detect(install.options, install.tools)
    assert silent.ways == ()
    assert "API_SERVER_ENABLED=true" in (silent.problem or "")
    install.program.unlink()
    assert "no Hermes in PATH" in ((await detect(install.options, install.tools)).problem or "")


async def test_a_server_that_is_named_is_asked_with_the_key_that_is_given(
    install: Install, server: HermesServer, tmp_path: Path
) -> None:
    (install.home / ".env").unlink()
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text(f"{KEY}\n# and what else stands there\n")
    named = {"api_url": server.url, "api_key_file": str(tmp_path / "key")}
    assert isinstance(await install.adapter(**named).run(turn()), Answered)
    (tmp_path / "key").write_text("another\n")
    assert reason(await install.adapter(**named).run(turn())) is Reason.MISSING_CONFIG


@pytest.mark.parametrize(
    "wrong",
    [
        {"profile": "../x"},
        {"profile": "nobody"},
        {"program": "/nowhere/hermes"},
        {"home": "/nowhere"},
        {"api_url": "127.0.0.1:8642", "api_key_env": "K"},
        {"api_url": "http://127.0.0.1:8642"},
        {"api_key_file": "/nowhere/key"},
    ],
    ids=str,
)
def test_what_cannot_work_is_said_when_it_is_set(install: Install, wrong: dict[str, str]) -> None:
    assert check(install.options, install.tools) is None
    assert (check(install.with_options(**wrong), install.tools) or "").endswith((".", "api_key_env."))


def test_the_turn_lock_lies_where_hermes_own_processes_take_it(install: Install, tmp_path: Path) -> None:
    root = tmp_path / "root"
    inside = HermesOptions(home=str(root / "profiles" / "ops"), profile="ops")
    assert lock_place(inside) == (str(root / "bot_relay/locks"), "ops")
    assert lock_place(HermesOptions(home=str(root))) == (str(root / "bot_relay/locks"), "default")
    lent = replace(install.tools, environment={"HERMES_HOME": str(root / "profiles" / "ops")})
    assert lock_place(HermesOptions(), lent) == (str(root / "bot_relay/locks"), "default")
    plain: Tools = replace(install.tools, environment={})
    assert lock_place(HermesOptions(), plain) == (str(Path(plain.home) / ".hermes/bot_relay/locks"), "default")
    assert KIND.lock is lock_place


async def test_a_profile_without_a_gateway_of_its_own_is_asked_at_the_roots(
    install: Install, server: HermesServer
) -> None:
    (install.home / "profiles/ops").mkdir(parents=True)
    found = await detect(install.with_options(profile="ops"), install.tools)
    assert "/p/ops" in str(found.notes) + str(found.problem)
