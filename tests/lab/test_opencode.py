"""OpenCode itself, by its command line and by its server: what its adapter promises, seen on the real program."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from angelia.model.failure import Reason, classify
from angelia.turns.adapters.opencode import KIND, OpenCodeOptions
from angelia.turns.adapters.port import Adapter, Answered, Failed, Lost, Outcome, Tools
from tests.lab.place import Lab, Served
from tests.turns.asking import Asking, tools_in

PORT = 14096
PASSWORD = "lab-password"
URL = f"http://127.0.0.1:{PORT}"
ODD = "-\"quotes\" 'single' `back` $HOME \\n é 日本 🙂\ttab"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(params=["command line", "HTTP server"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tools(lab: Lab, tmp_path: Path) -> Tools:
    return tools_in(tmp_path, {**lab.environment_of(lab.folder(tmp_path.name)), "PASSWORD": PASSWORD})


@pytest.fixture
def served(lab: Lab, way: str, tmp_path: Path) -> Iterator[Served | None]:
    if way == "command line":
        yield None
        return
    home = lab.folder(tmp_path.name)
    log = home / "serve.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [lab.program("opencode"), "serve", "--hostname", "127.0.0.1", "--port", str(PORT)],
            cwd=home,
            env={**lab.environment_of(home), "OPENCODE_SERVER_PASSWORD": PASSWORD},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    server = Served(process, log)
    while "listening on" not in log.read_text():  # `Lab.serve` cannot ask: every path wants the password
        assert process.poll() is None
        time.sleep(0.1)
    yield server
    server.end()


@pytest.fixture
def adapter(way: str, tools: Tools, served: Served | None) -> Adapter:
    options = OpenCodeOptions(url=URL, password_env="PASSWORD") if served else OpenCodeOptions()
    assert KIND.check(options, tools) is None
    return KIND.make(options, tools)


def why(outcome: Outcome) -> Reason:
    assert isinstance(outcome, Failed), outcome
    return outcome.reason or classify(outcome.output)


async def test_it_is_found_with_its_version(tools: Tools, served: Served | None, way: str) -> None:
    options = OpenCodeOptions(url=URL, password_env="PASSWORD") if served else OpenCodeOptions()
    found = await KIND.detect(options, tools)
    assert (found.problem, found.ways) == (None, (way,))
    assert found.version == "1.18.33"


async def test_a_second_turn_goes_on_in_the_same_conversation(adapter: Adapter, lab: Lab, way: str) -> None:
    asking = Asking()
    first = await adapter.run(asking.turn("one"))
    assert isinstance(first, Answered)
    assert first.route == way
    assert first.text.startswith("REPLY[1]")
    assert first.text.endswith("one")
    assert first.usage.input_tokens
    second = await adapter.run(asking.turn("two"))
    assert isinstance(second, Answered)
    assert second.text.startswith("REPLY[2]")
    assert len(set(asking.sessions)) == 1


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("FAIL_401", Reason.PROVIDER_AUTH_OR_ACCESS),
        ("FAIL_402", Reason.PROVIDER_QUOTA_LIMIT),
        ("FAIL_429", Reason.PROVIDER_RATE_LIMIT),
        ("FAIL_CTX", Reason.CONTEXT_OVERFLOW),
        ("FAIL_500", Reason.PROVIDER_SERVER_ERROR),
        ("DROP", Reason.PROVIDER_SERVER_ERROR),
    ],
)
async def test_a_fault_of_the_model_is_its_reason(adapter: Adapter, lab: Lab, word: str, reason: Reason) -> None:
    async with asyncio.timeout(20):
        assert why(await adapter.run(Asking().turn(word, seconds=20))) is reason


async def test_a_slow_turn_is_ended_at_the_limit(adapter: Adapter, lab: Lab) -> None:
    asking = Asking()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(8):
            await adapter.run(asking.turn("SLOW_60", seconds=8))
    after = await adapter.run(asking.turn("well?"))  # what was stopped holds up nothing
    assert isinstance(after, Answered)


@pytest.mark.parametrize("text", ["-f", "--help", ODD, "\x07\x1b[31m red \x00", "@file !ls /help"])
async def test_a_text_arrives_as_it_was_sent(adapter: Adapter, lab: Lab, text: str) -> None:
    outcome = await adapter.run(Asking().turn(text))
    assert isinstance(outcome, Answered)
    assert lab.model.calls[-1].last.endswith(text.strip()), lab.model.calls[-1].last


async def test_200_kilobytes_arrive_whole(adapter: Adapter, lab: Lab) -> None:
    text = "".join(f"{number:07d} " for number in range(25_000))
    outcome = await adapter.run(Asking().turn(text))
    assert isinstance(outcome, Answered)
    assert any(text.strip() in call.last for call in lab.model.calls)


async def test_killed_in_mid_turn_it_is_lost_and_its_history_knows_no_answer(
    adapter: Adapter, lab: Lab, served: Served | None, tmp_path: Path
) -> None:
    asking = Asking()
    turn = asking.turn("SLOW_5")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(adapter.run(turn))
        while not lab.model.asked(turn.message.id):  # noqa: ASYNC110 - a real program tells no event
            await asyncio.sleep(0.05)
        if served is not None:
            served.kill()
        else:
            (note,) = (tmp_path / "children").iterdir()
            os.kill(int(note.stem), signal.SIGKILL)
    assert isinstance(running.result(), Lost)
    again = asking.turn("SLOW_5", message=turn.message.id)
    assert await adapter.recall(again) is None


async def test_what_was_answered_while_nobody_listened_is_in_its_history(adapter: Adapter, lab: Lab, way: str) -> None:
    asking = Asking()
    turn = asking.turn("the answer that got lost")
    outcome = await adapter.run(turn)
    assert isinstance(outcome, Answered)
    calls = len(lab.model.calls)
    again = asking.turn("the answer that got lost", message=turn.message.id)
    recalled = await adapter.recall(again)
    assert isinstance(recalled, Answered)
    assert recalled.text == outcome.text
    assert len(lab.model.calls) == calls
    nothing = await adapter.recall(asking.turn("never sent"))
    assert nothing is None or (isinstance(nothing, Failed) and not nothing.began)
