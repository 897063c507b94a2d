"""What each end of an attempt means for the message: answers, second attempts, and outcomes that nobody knows."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from angelia.bus import turns
from angelia.bus.ports import Parcel
from angelia.bus.runs import Run
from angelia.model.delivery import State
from angelia.model.envelope import Kind, Replay
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.turns.adapters.port import Accepted, Answered, Failed, Lost, Options, Outcome, Turn, Usage
from angelia.turns.attempt import Attempts
from angelia.turns.telling import Telling
from angelia.turns.way import Way
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub, texts

Step = Outcome | Callable[[Turn], Outcome]


class Scripted:
    """An agent that does as the test says: what each attempt comes to, and what its history says."""

    def __init__(self, *steps: Step, recalls: Outcome | None = None) -> None:
        self.steps, self.recalls = list(steps), recalls
        self.turns: list[Turn] = []
        self.recalled: list[Turn] = []
        self.ended = 0

    async def run(self, turn: Turn) -> Outcome:
        self.turns.append(turn)
        if not self.steps:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1
        step = self.steps.pop(0)
        return step(turn) if callable(step) else step

    async def recall(self, turn: Turn) -> Outcome | None:
        self.recalled.append(turn)
        return self.recalls

    async def close(self) -> None:
        """Nothing is warm."""


class Bench:
    """One agent, ``ann``, and the messages that wake it."""

    def __init__(self, hub: SmallHub, tokens: str = "/nowhere") -> None:
        self.hub = hub
        self.attempts = Attempts(hub.bus, Telling(bus=hub.bus, url="http://127.0.0.1:1", tokens=tokens))

    async def wake(self, adapter: Scripted, options: Options | None = None, **message: Any) -> Parcel:
        """Send a request, and run its turn; the delivery as it is then."""
        sent = await self.hub.send(**{"intent": "request", **message})
        run = await self.begin()
        await self.attempts.run(run, self.way(adapter, options))
        return Parcel(await self.hub.row(sent), sent.envelope)

    async def begin(self) -> Run:
        run = await turns.begin(self.hub.bus, "ann", "scripted")
        assert run is not None
        return run

    def way(self, adapter: Scripted, options: Options | None = None) -> Way:
        return Way(b"{}", "scripted", options or Options(), adapter, None)

    async def told(self) -> list[str | None]:
        """What the sender got, and from now on does not wait any more."""
        return texts(await self.hub.take("bob"))


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    return Bench(await SmallHub.open(), str(tmp_path))


def rate_limited(turn: Turn) -> Outcome:
    return Failed("It is busy.", "fake", output="error: HTTP 429 Too Many Requests")


# -------------------------------------------------------------------------------------------------------------- answers


async def test_the_answer_comes_back(bench: Bench) -> None:
    done = await bench.wake(Scripted(Answered("42", "fake", Usage(input_tokens=7, model="m"))))
    assert done.delivery.state is State.ANSWERED
    assert await bench.told() == ["42"]
    (run,) = bench.hub.bus.runs.lately
    assert (run.route, run.outcome, run.usage) == ("fake", "answered", {"input_tokens": 7, "model": "m"})


async def test_a_bare_mark_of_silence_is_an_empty_answer(bench: Bench) -> None:
    assert (await bench.wake(Scripted(Answered("NO_REPLY", "fake")))).delivery.state is State.ANSWERED
    assert await bench.told() == [""]


async def test_an_answer_is_kept_whole_or_the_turn_failed(tmp_path: Path) -> None:
    bench = Bench(await SmallHub.open(Limits(reply_bytes=4 * 1024 * 1024, text_bytes=10)))
    long = "ä" * (1024 * 1024)
    await bench.wake(Scripted(Answered(long, "fake")))
    assert await bench.told() == [long]
    done = await bench.wake(Scripted(Answered(long * 3, "fake")))
    assert (done.delivery.state, done.delivery.reason) == (State.FAILED, Reason.TOO_LARGE)


async def test_what_is_answered_later_is_delivered(bench: Bench) -> None:
    assert (await bench.wake(Scripted(Accepted("fake")))).delivery.state is State.DELIVERED


# ------------------------------------------------------------------------------------------------------ second attempts


async def test_what_may_have_passed_is_tried_once_more_in_the_same_conversation(bench: Bench) -> None:
    agent = Scripted(rate_limited, Answered("42", "fake"))
    done = await bench.wake(agent)
    assert (done.delivery.state, done.delivery.attempt) == (State.ANSWERED, 2)
    first, second = agent.turns
    assert (first.again, second.again) == (False, True)
    assert first.conversation == second.conversation
    assert first.key != second.key


@pytest.mark.parametrize("output", ["HTTP 429: slow down", "HTTP 503: later", "maximum context length exceeded"])
async def test_of_what_a_program_printed_three_classes_are_run_once_more(bench: Bench, output: str) -> None:
    """9.4 deliver re-runs exactly once on 429 and on overflow; the rest stands in the next two tests."""
    agent = Scripted(Failed("no", "fake", output=f"{output}\nsession_id: 7"), Answered("42", "fake"))
    done = await bench.wake(agent)
    assert (len(agent.turns), done.delivery.state) == (2, State.ANSWERED)


async def test_there_is_no_third(bench: Bench) -> None:
    agent = Scripted(rate_limited, rate_limited)
    done = await bench.wake(agent)
    assert (len(agent.turns), done.delivery.state, done.delivery.reason) == (
        2,
        State.FAILED,
        Reason.PROVIDER_RATE_LIMIT,
    )
    (told,) = await bench.told()
    assert "It is busy." in (told or "")


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Failed("no", "fake", output="HTTP 401: no"), Reason.PROVIDER_AUTH_OR_ACCESS),
        (Failed("no", "fake", reason=Reason.PROVIDER_QUOTA_LIMIT, output="HTTP 429"), Reason.PROVIDER_QUOTA_LIMIT),
        (Failed("no", "fake", output="it just broke"), Reason.UNKNOWN),
        (Failed("no", "fake", reason=Reason.PROVIDER_RATE_LIMIT, wait_seconds=3600), Reason.PROVIDER_RATE_LIMIT),
    ],
)
async def test_other_failures_are_told_at_once(bench: Bench, outcome: Failed, reason: Reason) -> None:
    agent = Scripted(outcome)
    done = await bench.wake(agent)
    assert (len(agent.turns), done.delivery.state, done.delivery.reason) == (1, State.FAILED, reason)


async def test_busy_means_wait(bench: Bench) -> None:
    """10.4, 10.5: native mail waits on where the agent's own chat is in use; it costs no attempt of the two."""
    agent = Scripted(Failed("in use", "fake", reason=Reason.TARGET_SESSION_LIVE, began=False), Answered("42", "fake"))
    sent = await bench.hub.send(intent="request")
    assert not await bench.attempts.run(await bench.begin(), bench.way(agent))
    row = await bench.hub.row(sent)
    assert (row.state, row.used) == (State.QUEUED, 0)
    assert await bench.attempts.run(await bench.begin(), bench.way(agent))
    assert (await bench.hub.row(sent)).state is State.ANSWERED
    assert [run.outcome for run in bench.hub.bus.runs.lately] == ["answered"]


async def test_names_are_no_reasons(bench: Bench) -> None:
    await bench.hub.know("quota-bot")
    agent = Scripted(Failed("no", "fake", output="quota-bot could not be served"))
    assert (await bench.wake(agent, sender="quota-bot")).delivery.reason is Reason.UNKNOWN


async def test_a_turn_that_ran_into_its_limit_ends_and_is_not_run_again(bench: Bench) -> None:
    agent = Scripted()
    done = await bench.wake(agent, Options(timeout_seconds=0.05))
    assert (len(agent.turns), agent.ended) == (1, 1)
    assert (done.delivery.state, done.delivery.reason) == (State.FAILED, Reason.DELIVERY_TIMEOUT)


async def test_an_adapters_own_fault_costs_that_turn_alone(bench: Bench) -> None:
    def broken(turn: Turn) -> Outcome:
        raise ZeroDivisionError

    done = await bench.wake(Scripted(broken))
    assert (done.delivery.state, done.delivery.reason) == (State.FAILED, Reason.UNKNOWN)
    assert (await bench.wake(Scripted(Answered("42", "fake")))).delivery.state is State.ANSWERED


async def test_a_turn_that_is_stopped_ends_and_its_sender_is_told(bench: Bench) -> None:
    agent = Scripted()
    sent = await bench.hub.send(intent="request")
    run = await bench.begin()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(bench.attempts.run(run, bench.way(agent)))
        while not agent.turns:
            await settle()
        turns.stop(bench.hub.bus, sent.envelope.id)
    row = await bench.hub.row(sent)
    assert (agent.ended, row.state, row.reason) == (1, State.FAILED, Reason.CANCELLED)


# ------------------------------------------------------------------------------------------------------ nobody knows it


async def test_what_was_lost_is_looked_up_before_anything_runs_twice(bench: Bench) -> None:
    agent = Scripted(Lost("cut off", "fake"), recalls=Answered("42", "history"))
    done = await bench.wake(agent)
    assert (len(agent.turns), done.delivery.state) == (1, State.ANSWERED)
    assert agent.recalled[0].key == agent.turns[0].key
    assert await bench.told() == ["42"]


async def test_what_nobody_knows_is_run_once_more_and_then_told_as_unknown(bench: Bench) -> None:
    agent = Scripted(Lost("cut off", "fake"), Lost("cut off", "fake"))
    done = await bench.wake(agent)
    assert (len(agent.turns), done.delivery.state, done.delivery.reason) == (2, State.FAILED, Reason.OUTCOME_UNKNOWN)


@pytest.mark.parametrize(("replay", "state"), [(Replay.NEVER, State.FAILED), (Replay.ASK, State.HELD)])
async def test_the_sender_may_want_it_otherwise(bench: Bench, replay: Replay, state: State) -> None:
    agent = Scripted(Lost("cut off", "fake"))
    done = await bench.wake(agent, replay=replay)
    assert (len(agent.turns), done.delivery.state, done.delivery.reason) == (1, state, Reason.OUTCOME_UNKNOWN)


async def test_what_the_hub_before_was_in_the_middle_of_goes_on_from_the_agents_history(bench: Bench) -> None:
    await bench.hub.send(text="thanks", intent="ack")
    sent = await bench.hub.send(intent="request")
    run = await bench.begin()
    before = await bench.attempts.telling.turn(run, bench.way(Scripted()), again=False)
    await bench.hub.restart()
    after = Bench(bench.hub)
    (run,) = await turns.orphans(after.hub.bus)
    agent = Scripted(recalls=Answered("42", "history"))
    await after.attempts.resume(run, after.way(agent))
    assert (agent.turns, agent.recalled[0].key, agent.recalled[0].prompt) == ([], before.key, before.prompt)
    assert (await after.hub.row(sent)).state is State.ANSWERED


async def test_without_a_history_it_runs_once_more_and_not_for_every_start(bench: Bench) -> None:
    sent = await bench.hub.send(intent="request")
    await bench.begin()
    for runs in (True, False):
        await bench.hub.restart()
        after = Bench(bench.hub)
        (run,) = await turns.orphans(after.hub.bus)
        agent = Scripted()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(after.attempts.resume(run, after.way(agent)))
            await settle()
            await settle()
            assert [turn.again for turn in agent.turns] == ([True] if runs else [])
            task.cancel()
    row = await bench.hub.row(sent)
    assert (row.state, row.reason) == (State.FAILED, Reason.OUTCOME_UNKNOWN)


# ------------------------------------------------------------------------------------------------------ what it is told


async def test_a_conversation_is_the_agents_or_the_threads_and_its_name_comes_back(bench: Bench) -> None:
    def names_it(turn: Turn) -> Outcome:
        turn.begun("their-own-name")
        return Answered("", "fake")

    first, second, third = Scripted(names_it), Scripted(Answered("", "fake")), Scripted(Answered("", "fake"))
    await bench.wake(first)
    await bench.wake(second)
    await bench.wake(third, Options(conversation="thread"))
    assert (first.turns[0].session, second.turns[0].session) == (None, "their-own-name")
    assert first.turns[0].conversation == second.turns[0].conversation == "ann"
    assert third.turns[0].conversation == f"ann-{third.turns[0].message.thread}"
    assert third.turns[0].session is None


async def test_the_agent_is_told_who_writes_and_gets_its_own_token_alone(bench: Bench, tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(f"{name}s-token\n")
    agent = Scripted(Answered("", "fake"))
    done = await bench.wake(agent, text="-n 'x' \N{ROBOT FACE}")
    (turn,) = agent.turns
    told = turn.environment
    assert (told["ANGELIA_AGENT"], told["ANGELIA_FROM"], told["ANGELIA_TOKEN"]) == ("ann", "bob", "anns-token")
    assert told["ANGELIA_ID"] == done.envelope.id
    assert "bobs-token" not in repr(turn)
    assert turn.text == "-n 'x' \N{ROBOT FACE}"
    assert turn.text in turn.prompt
    assert turn.stamped == "Message from \N{ROBOT FACE} bob (@bob): -n 'x' \N{ROBOT FACE}"


async def test_notices_wake_and_are_never_answered(bench: Bench) -> None:
    await bench.hub.send("ann", "bob", "?", intent="request")
    run = await turns.begin(bench.hub.bus, "bob", "scripted")
    assert run is not None
    await turns.failed(bench.hub.bus, run, Reason.UNKNOWN, "broken")
    mine = await bench.begin()
    assert mine.parcel.envelope.kind is Kind.NOTICE
    await bench.attempts.run(mine, bench.way(Scripted(Answered("oh no", "fake"))))
    assert await bench.told() == []
