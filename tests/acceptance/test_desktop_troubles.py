"""What strikes Hermes' Desktop, or a gateway of ours, while a message is on its way between two gateways.

A stand-in relays, real hubs are the gateways. Hermes' own Desktop (``G3``) says no id with a delivery, so what it lost
in between can run twice; a relay that says it (``CAREFUL``) never has that. The sender learns one outcome of each.
Numbers are those of docs/promises.md.
"""

import asyncio
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import ROOT, Hub, eventually, hub
from tests.links.stand_ins.chat import Agent, answer_to, awake
from tests.links.stand_ins.desktop import CAREFUL, G1, G3, Envelope, Generation, Pace, Step, relaying

# deliver: 1 + 2 + 1 s, offered again after 1 s more, and 10 s until its sender stops waiting.
SHORT = {
    "ANGELIA_LIMITS_LOCK_WAIT_SECONDS": "1",
    "ANGELIA_LIMITS_TURN_SECONDS": "2",
    "ANGELIA_LIMITS_TURN_ATTEMPTS": "1",
}
MARGINS = (("_REPORT_SECONDS = 180.0", "_REPORT_SECONDS = 1.0"), ("_MARGIN_SECONDS = 60.0", "_MARGIN_SECONDS = 1.0"))
WITHOUT_ID_AND_WITH = pytest.mark.parametrize("generation", [G3, CAREFUL], ids=["without-id", "with-id"])


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hub's source, where the margins beside the limits are seconds, too: no test waits for half an hour."""
    source = tmp_path_factory.mktemp("hurried") / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    path = source / "angelia/protocol/bot_relay.py"
    text = path.read_text("utf-8")
    for old, new in MARGINS:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text, "utf-8")
    return source


@pytest.fixture(scope="module")
def near(hurried: Path) -> Iterator[Hub]:
    """The senders' gateway, which offers again after 5 s what stays unanswered."""
    with hub(source=hurried, env=SHORT) as started:
        yield started


@pytest.fixture(scope="module")
def far() -> Iterator[Hub]:
    """The recipients'; it lives through the tests that use it."""
    with hub() as started:
        yield started


@pytest.fixture
def doomed() -> Iterator[Hub]:
    """A gateway to be killed, or to be short of time: an agent that is busy is waited for 1 s."""
    with hub(env={"ANGELIA_LIMITS_LOCK_WAIT_SECONDS": "1"}) as started:
        yield started


def name() -> str:
    """A name that no other test uses."""
    return f"a{uuid.uuid4().hex[:10]}"


def socket_of(at: Hub) -> str:
    return f"ws://127.0.0.1:{at.port}/api/ws"


async def until(look: Callable[[], object], seconds: float = 20) -> None:
    await asyncio.to_thread(eventually, look, seconds)


async def told_of(at: Hub, id: object) -> dict[str, Any]:
    """Where a message stands: the one delivery of its receipt."""
    answered = await asyncio.to_thread(at.get, f"/v1/messages/{id}")
    return dict(answered.json["deliveries"][0])


def at_once(step: Step, do: Callable[[], Any]) -> Callable[[Step, str, Envelope], Any]:
    """Watches for the first envelope that gets so far: ``do`` is called then, once; and awaited where it can be."""
    struck: list[Envelope] = []

    async def watch(here: Step, source: str, envelope: Envelope) -> None:
        if here is step and not struck:
            struck.append(envelope)
            done = do()
            if asyncio.iscoroutine(done):
                await done
            await asyncio.sleep(0)  # where the Desktop has died, it ends here

    return watch


# ------------------------------------------------------------------------------------------------------ the relay dies


async def _dies(near: Hub, far: Hub, generation: Generation, step: Step) -> tuple[int, list[dict[str, Any]], str]:
    """A message whose relay dies at ``step``, and its successor. How often it ran, what its sender heard, its state."""
    sender, there, vps, called = name(), name(), name(), name()
    gateways = {"local": socket_of(near), vps: socket_of(far)}
    async with awake(near.port, sender) as one, awake(far.port, there) as other:
        async with relaying(gateways, generation, name=called) as relay:
            relay.watch = at_once(step, relay.die)
            told = await one.write(f"{there}@{vps}", "once")
            async with asyncio.timeout(10):
                await relay.ended.wait()
        async with relaying(gateways, generation, name=called, pace=Pace(backstop=0.5)):
            await one.learned(1)
            return len(other.turns), one.outcomes, (await told_of(near, told["delivery_id"]))["state"]


@WITHOUT_ID_AND_WITH
async def test_wherever_the_relay_dies_the_sender_gets_the_answer_and_gets_it_once(
    near: Hub, far: Hub, generation: Generation
) -> None:
    """10.11 (#111021), 11.10: between drain and deliver, in a delivery, before the reply, and at the reply."""
    steps = (Step.DRAINED, Step.ASKED, Step.ANSWERED, Step.REPLYING)
    found = await asyncio.gather(*(_dies(near, far, generation, step) for step in steps))
    for step, (runs, outcomes, state) in zip(steps, found, strict=True):
        assert [(turn["kind"], turn["text"][-4:]) for turn in outcomes] == [("reply", "once")], step
        assert state == "answered", step
        again = generation is G3 and step is not Step.DRAINED
        assert runs in ((1, 2) if again else (1,)), step


# ----------------------------------------------------------------------------------------------------- a gateway dies

PROGRAM = """
import pathlib, sys, time
folder, text = pathlib.Path(sys.argv[1]), sys.stdin.read()
with (folder / "begun").open("a") as begun:
    begun.write("x")
while not (folder / "gate").exists():
    time.sleep(0.02)
print("done", end="")
"""


@WITHOUT_ID_AND_WITH
async def test_a_gateway_that_is_killed_in_a_delivery_comes_back_and_the_sender_has_one_outcome(
    far: Hub, doomed: Hub, tmp_path: Path, generation: Generation
) -> None:
    """10.11 (#111021), 10.22. With the id the answer comes; without it the sender is told that there is none."""
    sender, vps = name(), name()
    adapter = {"kind": "command", "argv": [sys.executable, "-c", PROGRAM, str(tmp_path)]}
    assert doomed.call("PUT", "/v1/agents/ops", {"adapter": adapter}, admin=True).status == 201
    begun = tmp_path / "begun"
    gateways = {"local": socket_of(far), vps: socket_of(doomed)}
    async with awake(far.port, sender) as one, relaying(gateways, generation, name=name()) as relay:
        id = (await one.write(f"ops@{vps}", "work"))["delivery_id"]
        await until(begun.exists)
        await asyncio.to_thread(doomed.restart)
        (tmp_path / "gate").touch()
        await one.learned(1)
        ((turn,), delivery) = one.outcomes, await told_of(far, id)
        if generation is CAREFUL:
            assert (turn["kind"], turn["text"], delivery["state"]) == ("reply", "done", "answered")
        else:
            assert (turn["kind"], turn["in_reply_to"], delivery["state"]) == ("notice", id, "failed")
        assert begun.read_text() in ("x", "xx")  # what a killed hub left of a turn is run once more, and no oftener
        await relay.settled()
        await one.write(f"ops@{vps}", "and again")
        assert (await one.learned(2))[1:] == ["done"]


@WITHOUT_ID_AND_WITH
async def test_a_senders_gateway_that_is_killed_before_the_reply_learns_it_all_the_same(
    hurried: Path, far: Hub, generation: Generation
) -> None:
    """10.11 (#111021): what was handed out is known after the restart, and its outcome is taken then."""
    sender, there, vps, called = name(), name(), name(), name()
    with hub(source=hurried, env=SHORT) as doomed:
        gateways = {"local": socket_of(doomed), vps: socket_of(far)}
        async with awake(far.port, there) as other, relaying(gateways, generation, name=called) as relay:
            relay.watch = at_once(Step.ANSWERED, lambda: asyncio.to_thread(doomed.restart))
            id = doomed.send(f"{there}@{vps}", "once", sender, intent="request")["id"]
            await until(lambda: doomed.starts == 2 and doomed.is_ready() and doomed.state(id) == "answered")
            assert [message["text"] for message in doomed.poll(sender)] == [f"{there} heard: once"]
            assert len(other.turns) == 1 if generation is CAREFUL else len(other.turns) in (1, 2)


# -------------------------------------------------------------------------------------------------- a socket is cut


@WITHOUT_ID_AND_WITH
async def test_a_socket_that_is_cut_in_a_delivery_costs_no_second_turn(
    far: Hub, doomed: Hub, generation: Generation
) -> None:
    """10.11 (#111021): the answer is lost with the socket; under the id it is asked for again, and is the same."""
    sender, there, vps = name(), name(), name()
    cut = asyncio.Event()

    async def once_it_is_cut(agent: Agent, turn: dict[str, Any]) -> str:
        await cut.wait()
        return await answer_to(agent, turn)

    gateways = {"local": socket_of(far), vps: socket_of(doomed)}
    async with (
        awake(far.port, sender) as one,
        awake(doomed.port, there, once_it_is_cut) as other,
        relaying(gateways, generation, name=name()) as relay,
    ):

        async def strike() -> None:
            await other.heard(1)
            relay.lines[vps].cut()
            cut.set()

        relay.watch = at_once(Step.ASKED, strike)
        await one.write(f"{there}@{vps}", "once")
        await one.learned(1)
        (outcome,) = one.outcomes
        if generation is CAREFUL:
            assert (outcome["kind"], outcome["text"]) == ("reply", f"{there} heard: once")
            assert len(relay.handed) == 2
        else:
            assert outcome["kind"] == "notice"
            assert "connection closed" in outcome["text"]
        await relay.settled()
        await one.write(f"{there}@{vps}", "next")
        assert (await one.learned(2))[1] == f"{there} heard: next"
        assert await other.heard(2) == ["once", "next"]


# ---------------------------------------------------------------------------------------------------- slow, busy, away


async def test_a_slow_agent_ages_out_nobodys_mail(far: Hub) -> None:
    """10.10 (#111587), F116: mail for others goes beside it; its own, which was claimed, waits for it in order."""
    sender, slow, fast, vps = name(), name(), name(), name()
    free = asyncio.Event()

    async def takes_its_time(agent: Agent, turn: dict[str, Any]) -> str:
        await free.wait()
        return await answer_to(agent, turn)

    with hub(env={"ANGELIA_LIMITS_RELAY_TTL_SECONDS": "2"}) as at:
        async with (
            awake(at.port, sender) as one,
            awake(far.port, slow, takes_its_time) as other,
            awake(far.port, fast),
            relaying({"local": socket_of(at), vps: socket_of(far)}, name=name()),
        ):
            ids = [(await one.write(f"{slow}@{vps}", f"{number}"))["delivery_id"] for number in range(3)]
            await other.heard(1)
            for number in range(5):
                await one.write(f"{fast}@{vps}", f"{number}")
            assert await one.learned(5) == [f"{fast} heard: {number}" for number in range(5)]
            await asyncio.sleep(3)  # longer than mail may wait to be fetched
            stand = [await told_of(at, id) for id in ids]
            assert [(row["state"], row["attempt"]) for row in stand] == [("forwarded", 1)] * 3
            free.set()
            assert (await one.learned(8))[5:] == [f"{slow} heard: {number}" for number in range(3)]


async def test_what_a_serial_relay_leaves_lying_behind_a_slow_agent_is_told_with_its_reason(far: Hub) -> None:
    """10.10 (#111587): the first releases fetch nothing while a turn runs. Nobody waits for what has expired."""
    sender, slow, fast, vps = name(), name(), name(), name()
    free = asyncio.Event()

    async def takes_its_time(agent: Agent, turn: dict[str, Any]) -> str:
        await free.wait()
        return ""

    with hub(env={"ANGELIA_LIMITS_RELAY_TTL_SECONDS": "2"}) as at:
        async with (
            awake(at.port, sender) as one,
            awake(far.port, slow, takes_its_time) as other,
            awake(far.port, fast) as third,
            relaying({"local": socket_of(at), vps: socket_of(far)}, G1, name=name()),
        ):
            await one.write(f"{slow}@{vps}", "long")
            await other.heard(1)
            id = (await one.write(f"{fast}@{vps}", "too late"))["delivery_id"]
            await one.learned(1)
            ((notice,), delivery) = one.outcomes, await told_of(at, id)
            assert (notice["kind"], notice["in_reply_to"]) == ("notice", id)
            assert (delivery["state"], delivery["reason"]) == ("failed", "queued_expired")
            free.set()
            await one.learned(2)
            await one.write(f"{fast}@{vps}", "now")
            assert (await one.learned(3))[2] == f"{fast} heard: now"
            assert await third.heard(1) == ["now"]


@WITHOUT_ID_AND_WITH
async def test_a_busy_agent_is_told_as_busy_and_under_an_id_it_is_waited_for(
    far: Hub, doomed: Hub, generation: Generation
) -> None:
    """10.8 (#113532), 9.3.12: ``target_busy`` reaches the sender, and nothing is left that could still begin."""
    sender, there, vps = name(), name(), name()
    free = asyncio.Event()

    async def takes_its_time(agent: Agent, turn: dict[str, Any]) -> str:
        await free.wait()
        return await answer_to(agent, turn)

    async with (
        awake(far.port, sender) as one,
        awake(doomed.port, there, takes_its_time) as other,
        relaying({"local": socket_of(far), vps: socket_of(doomed)}, generation, name=name()) as relay,
    ):
        doomed.send(there, "somebody here was first", "bob", intent="request")
        await other.heard(1)
        id = (await one.write(f"{there}@{vps}", "may I?"))["delivery_id"]
        if generation is CAREFUL:
            await until(lambda: doomed.inbox(there)["total"] == 2)
            free.set()
            assert await one.learned(1) == [f"{there} heard: may I?"]
            return
        await one.learned(1)
        delivery = await told_of(far, id)
        assert (delivery["state"], delivery["reason"]) == ("failed", "target_busy")
        assert relay.told[-1][1]["reason"] == "target_busy"
        free.set()
        await one.write(f"{there}@{vps}", "and now?")
        assert (await one.learned(2))[1] == f"{there} heard: and now?"
        assert await other.heard(2) == ["somebody here was first", "and now?"]


async def test_a_gateway_that_is_away_is_told_as_offline_keeps_its_rows_and_is_reached_again(
    far: Hub, doomed: Hub
) -> None:
    """11.2, 11.1: no ``unknown``, also where a name reads like another reason."""
    sender = name()
    gateways = {"local": socket_of(far), "balance-1": socket_of(doomed)}
    async with awake(far.port, sender) as one, relaying(gateways, name=name()) as relay:
        async with awake(doomed.port, "quota-bot"):
            await relay.push_rosters()
            await one.write("quota-bot@balance-1", "there?")
            assert await one.learned(1) == ["quota-bot heard: there?"]
        await asyncio.to_thread(doomed.kill9)
        await until(lambda: "balance-1" not in relay.lines)
        await relay.push_rosters()
        told = await one.write("quota-bot@balance-1", "and now?")
        assert told["status"] == "queued", told
        await one.learned(2)
        delivery = await told_of(far, told["delivery_id"])
        assert (delivery["state"], delivery["reason"]) == ("failed", "runtime_offline")
        await asyncio.to_thread(doomed.start)
        async with awake(doomed.port, "quota-bot"):
            await until(lambda: "balance-1" in relay.lines)
            await one.write("quota-bot@balance-1", "back?")
            assert (await one.learned(3))[2] == "quota-bot heard: back?"
