"""Gemini CLI itself, by the Agent Client Protocol; and that other agents of the lab speak it, too."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from angelia.model.failure import Reason, classify
from angelia.turns.adapters.acp import KIND, AcpOptions
from angelia.turns.adapters.port import Adapter, Answered, Failed, Lost, Outcome, Tools
from tests.lab.place import Lab
from tests.turns.asking import Asking, tools_in

ODD = "-\"quotes\" 'single' `back` $HOME \\n é 日本 🙂\ttab"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def tools(lab: Lab, tmp_path: Path) -> Tools:
    return tools_in(tmp_path, lab.environment_of(lab.folder(tmp_path.name)))


@pytest.fixture
def options(lab: Lab) -> AcpOptions:
    return AcpOptions(argv=[lab.program("gemini"), "--acp", "--model", "gemini-2.5-flash", "--skip-trust"])


@pytest.fixture
async def adapter(options: AcpOptions, tools: Tools) -> AsyncIterator[Adapter]:
    assert KIND.check(options, tools) is None
    async with AsyncExitStack() as stack:
        made = KIND.make(options, tools)
        stack.push_async_callback(made.close)
        yield made


def why(outcome: Outcome) -> Reason:
    assert isinstance(outcome, Failed), outcome
    return outcome.reason or classify(outcome.output)


async def test_it_is_found_with_its_version(options: AcpOptions, tools: Tools) -> None:
    found = await KIND.detect(options, tools)
    assert (found.problem, found.ways, found.version) == (None, ("ACP",), "0.61.0")


async def test_a_flag_that_it_does_not_know_is_said(lab: Lab, tools: Tools) -> None:
    found = await KIND.detect(AcpOptions(argv=[lab.program("gemini"), "--speak-acp"]), tools)
    assert found.problem is not None
    assert "does not speak the protocol" in found.problem


async def test_turns_go_on_in_one_conversation_also_after_a_restart(
    adapter: Adapter, options: AcpOptions, tools: Tools
) -> None:
    asking = Asking()
    for number, text in enumerate(("one", "two"), 1):
        outcome = await adapter.run(asking.turn(text))
        assert isinstance(outcome, Answered)
        assert outcome.text.startswith(f"REPLY[{number}]")
        assert outcome.text.endswith(text)
        assert outcome.usage.input_tokens
    await adapter.close()
    # Gemini CLI 0.61 names a conversation's file by its minute, and overwrites it when it is opened in the same one.
    await asyncio.sleep(61 - time.time() % 60)
    third = await adapter.run(asking.turn("three"))
    assert isinstance(third, Answered)
    assert third.text.startswith("REPLY[3]"), third
    assert third.text.endswith("three")
    assert (len(set(asking.sessions)), third.route) == (1, "ACP")


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
async def test_a_fault_of_the_model_is_its_reason(adapter: Adapter, word: str, reason: Reason) -> None:
    async with asyncio.timeout(25):
        assert why(await adapter.run(Asking().turn(word, seconds=25))) is reason
    assert isinstance(await adapter.run(Asking().turn("well?")), Answered)


async def test_a_slow_turn_is_ended_at_the_limit(adapter: Adapter) -> None:
    asking = Asking()
    assert isinstance(await adapter.run(asking.turn("warm up")), Answered)
    async with asyncio.timeout(10):
        assert why(await adapter.run(asking.turn("SLOW_60", seconds=10))) is Reason.DELIVERY_TIMEOUT
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await adapter.run(asking.turn("SLOW_60", seconds=60))
    after = await adapter.run(asking.turn("well?"))
    assert isinstance(after, Answered)
    assert after.text.endswith("well?")


async def test_a_text_arrives_as_it_was_sent(adapter: Adapter, lab: Lab) -> None:
    for text in ("-f", "--help", ODD, "\x07\x1b[31m red \x00", "@file !ls /help"):
        outcome = await adapter.run(Asking().turn(text))
        assert isinstance(outcome, Answered), outcome
        assert lab.model.calls[-1].last.endswith(text.strip()), lab.model.calls[-1].last


async def test_200_kilobytes_arrive_whole(adapter: Adapter, lab: Lab) -> None:
    text = "".join(f"{number:07d} " for number in range(25_000))
    assert isinstance(await adapter.run(Asking().turn(text)), Answered)
    assert any(text.strip() in call.last for call in lab.model.calls)


async def test_killed_in_mid_turn_it_is_lost_and_the_next_turn_starts_it_anew(
    adapter: Adapter, lab: Lab, tmp_path: Path
) -> None:
    asking = Asking()
    first = await adapter.run(asking.turn("one"))
    assert isinstance(first, Answered)
    turn = asking.turn("SLOW_5")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(adapter.run(turn))
        while not lab.model.asked(turn.message.id):  # noqa: ASYNC110 - a real program tells no event
            await asyncio.sleep(0.05)
        (note,) = (tmp_path / "children").iterdir()
        os.kill(int(note.stem), signal.SIGKILL)
    assert isinstance(running.result(), Lost)
    assert list((tmp_path / "children").iterdir()) == []
    after = await adapter.run(asking.turn("after"))
    assert isinstance(after, Answered)


@pytest.mark.parametrize("argv", [["opencode", "acp"], ["hermes", "acp"]])
async def test_other_agents_speak_it_too(lab: Lab, tools: Tools, argv: list[str]) -> None:
    asking = Asking()
    made = KIND.make(AcpOptions(argv=lab.wrap(argv)), tools)
    try:
        for number in (1, 2):
            outcome = await made.run(asking.turn(f"number {number}", seconds=60))
            assert isinstance(outcome, Answered), outcome
            assert outcome.text.startswith(f"REPLY[{number}]")
        assert why(await made.run(asking.turn("FAIL_402", seconds=60))) in (
            Reason.PROVIDER_QUOTA_LIMIT,
            Reason.UNKNOWN,  # OpenCode says here the provider's words alone, without a status
        )
    finally:
        await made.close()
