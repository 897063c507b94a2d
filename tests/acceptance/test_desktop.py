"""Hermes' Desktop between gateways of ours: a stand-in of each generation relays, real hubs are the gateways.

Numbers (#…, or of a row) are those of docs/promises.md. What strikes the relay or a gateway on the way is in
test_desktop_troubles.py.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.acceptance.hub import Hub, eventually, hub
from tests.links.stand_ins.chat import Agent, awake
from tests.links.stand_ins.desktop import CAREFUL, G1, G2, G3, Generation, Pace, relaying
from tests.rigs.gateway import desktop

WHO = [(G1, None), (G2, None), (G3, None), (G3, "mac"), (CAREFUL, "mac")]
NAMES = [f"{generation.name}-{name or 'nameless'}" for generation, name in WHO]
of_each_generation = pytest.mark.parametrize(("generation", "called"), WHO, ids=NAMES)


@pytest.fixture(scope="module")
def near() -> Iterator[Hub]:
    """The Desktop's own machine: its ``local``."""
    with hub() as started:
        yield started


@pytest.fixture(scope="module")
def far() -> Iterator[Hub]:
    """Another machine."""
    with hub() as started:
        yield started


@pytest.fixture(scope="module")
def third() -> Iterator[Hub]:
    """And one more."""
    with hub() as started:
        yield started


def name() -> str:
    """A name that no other test uses."""
    return f"a{uuid.uuid4().hex[:10]}"


def socket_of(at: Hub) -> str:
    return f"ws://127.0.0.1:{at.port}/api/ws"


async def ask(at: Hub, sender: str, to: str, text: str, seconds: float = 20) -> dict[str, Any]:
    """A question, and what its asker gets for an answer."""
    asked = {"from": sender, "to": to, "text": text, "wait_seconds": seconds}
    answered = await asyncio.to_thread(at.post, "/v1/ask", asked)
    assert "reply" in answered.json, answered.body
    return dict(answered.json["reply"])


async def mail(at: Hub, agent: str, count: int = 1) -> list[dict[str, Any]]:
    """So many messages of its mailbox, once they are there."""
    await asyncio.to_thread(eventually, lambda: at.inbox(agent)["total"] >= count, 20)
    return at.poll(agent)


async def until(look: Callable[[], object], seconds: float = 10) -> None:
    await asyncio.to_thread(eventually, look, seconds)


def elsewhere(at: Hub) -> set[str]:
    """The agents on other connections, as the gateway's own roster shows them."""
    rows = at.get("/v1/agents").json["agents"]
    return {f"{row['handle']}@{row['connection']}" for row in rows if row["connection"] != "local"}


async def say_nothing(agent: Agent, turn: dict[str, Any]) -> str:
    """For an agent that only listens."""
    return ""


# ---------------------------------------------------------------------------------------------------------- both ways


@of_each_generation
async def test_a_question_crosses_and_its_answer_comes_back(
    near: Hub, far: Hub, generation: Generation, called: str | None
) -> None:
    """The way of every message, both ways at once."""
    here, there, asker, vps, desk = name(), name(), name(), name(), called or "desktop"
    async with (
        awake(near.port, here) as one,
        awake(far.port, there) as other,
        relaying({"local": socket_of(near), vps: socket_of(far)}, generation, name=called),
    ):
        answers = await asyncio.gather(
            ask(near, asker, f"{there}@{vps}", "is it green?"), ask(far, asker, f"{here}@{desk}", "who is up?")
        )
        assert [(answer["from"], answer["text"]) for answer in answers] == [
            (f"{there}@{vps}", f"{there} heard: is it green?"),
            (f"{here}@{desk}", f"{here} heard: who is up?"),
        ]
        ((asked,), (turn,)) = one.turns, other.turns
        assert (turn["from"], turn["text"], turn["verified"]) == (f"{asker}@{desk}", "is it green?", False)
        shown = f"{asker}@{desk if generation is G1 else vps}"  # the first release says of no sender where it is
        assert (asked["from"], asked["text"], asked["verified"]) == (shown, "who is up?", False)


@of_each_generation
async def test_who_is_written_to_can_write_back_to_the_name_that_it_was_shown(
    near: Hub, far: Hub, generation: Generation, called: str | None
) -> None:
    """10.15 (#103731), 10.19 (#115209): ``message_agent`` at both ends, several hops, each a turn of its own."""
    ping, pong, vps = name(), name(), name()

    async def goes_on(agent: Agent, turn: dict[str, Any]) -> str:
        hop = int(turn["text"]) + 1
        if hop < 5:
            told = await agent.write(turn["from"], f"{hop}")
            assert told["status"] == "queued", (turn, told)
        return ""

    async with (
        awake(near.port, ping, goes_on) as one,
        awake(far.port, pong, goes_on) as other,
        relaying({"local": socket_of(near), vps: socket_of(far)}, generation, name=called),
    ):
        assert (await one.write(f"{pong}@{vps}", "0"))["status"] == "queued"
        assert await other.heard(3) == ["0", "2", "4"]
        assert await one.heard(2) == ["1", "3"]


async def test_whoever_is_asked_may_ask_back_before_it_answers(near: Hub, far: Hub) -> None:
    """``message_agent`` does not wait, so no circle closes: neither here nor at the gateway that delivers it."""
    ann, ops, vps = name(), name(), name()

    async def asks_back(agent: Agent, turn: dict[str, Any]) -> str:
        return (await ask(far, ops, turn["from"], "which one?"))["text"]

    async with (
        awake(near.port, ann) as one,
        awake(far.port, ops, asks_back),
        relaying({"local": socket_of(near), vps: socket_of(far)}, name=name()),
    ):
        await one.write(f"{ops}@{vps}", "is it green?")
        assert await one.learned(1) == [f"{ann} heard: which one?"]


@of_each_generation
async def test_each_default_agent_answers_the_one_that_asked(
    near: Hub, far: Hub, third: Hub, generation: Generation, called: str | None
) -> None:
    """10.15 (#103731): all three are ``hermes``. A reply goes to the machine that asked, and to no other's."""
    near.call("PUT", "/v1/agents/hermes", {"title": "Maia"}, admin=True)
    third.call("PUT", "/v1/agents/hermes", {"title": "Ada"}, admin=True)
    vps, more = name(), name()
    gateways = {"local": socket_of(near), vps: socket_of(far), more: socket_of(third)}

    async def writes_back(agent: Agent, turn: dict[str, Any]) -> str:
        await agent.write(turn["from"], f"to whom asked {turn['text']}")
        return ""

    async with (
        awake(near.port, "hermes", say_nothing) as one,
        awake(far.port, "hermes", writes_back) as asked,
        awake(third.port, "hermes", say_nothing) as other,
        relaying(gateways, generation, name=called),
    ):
        await other.write(f"default@{vps}", "from vps-2")
        assert await other.heard(1) == ["to whom asked from vps-2"]
        await one.write(f"default@{vps}", "from local")
        assert await one.heard(1) == ["to whom asked from local"]
        assert (len(one.turns), len(asked.turns), len(other.turns)) == (1, 2, 1)


@of_each_generation
async def test_the_longest_legal_message_crosses_as_it_was_written(
    near: Hub, far: Hub, generation: Generation, called: str | None
) -> None:
    """11.6, 11.7: names as long as they may be take nothing from the body, and a stamp in it stays what it is."""
    sender, there, vps = (name().ljust(64, "x") for _ in range(3))
    near.call("PUT", f"/v1/agents/{sender}", {"title": "T" * 120}, admin=True)
    body = "Message from 🤖 Eve (@eve): (@hermes): ok (@hermes@local): \n".ljust(16_000, "🙂")
    async with (
        awake(near.port, sender),
        awake(far.port, there) as other,
        relaying({"local": socket_of(near), vps: socket_of(far)}, generation, name=called),
    ):
        answer = await ask(near, sender, f"{there}@{vps}", body)
        assert answer["text"] == f"{there} heard: {body}"
        assert other.turns[0]["from"] == f"{sender}@{called or 'desktop'}"


async def test_gateways_that_write_to_each_other_at_once_do_not_wait_for_each_other(near: Hub, far: Hub) -> None:
    """11.8: Hermes' pools of eight fill, and two gateways that ask each other stand still for 1,320 s."""
    here, there = [name() for _ in range(12)], [name() for _ in range(12)]
    vps, asker = name(), name()
    async with AsyncExitStack() as stack:
        for port, names in ((near.port, here), (far.port, there)):
            for each in names:
                await stack.enter_async_context(awake(port, each))
        await stack.enter_async_context(relaying({"local": socket_of(near), vps: socket_of(far)}))
        asked = [ask(near, asker, f"{each}@{vps}", "up?") for each in there]
        asked += [ask(far, asker, f"{each}@desktop", "up?") for each in here]
        answers = await asyncio.gather(*asked)
        assert [answer["text"] for answer in answers] == [f"{each} heard: up?" for each in [*there, *here]]


@of_each_generation
async def test_mail_to_one_agent_arrives_in_order_and_each_answer_once(
    near: Hub, far: Hub, generation: Generation, called: str | None
) -> None:
    """10.24; 10.17 (#95074): one way back. Nothing of an answer is fetched as mail, and no message comes twice."""
    asker, there, vps = name(), name(), name()
    async with (
        awake(near.port, asker) as one,
        awake(far.port, there) as other,
        relaying({"local": socket_of(near), vps: socket_of(far)}, generation, name=called) as relay,
    ):
        for number in range(20):
            assert (await one.write(f"{there}@{vps}", f"{number}"))["status"] == "queued"
        answers = await one.learned(20)
        assert answers == [f"{there} heard: {number}" for number in range(20)]
        assert await other.heard(20) == [f"{number}" for number in range(20)]
        assert [to for to, _ in relay.handed] == [vps] * 20
        assert one.turns == []
        assert relay.dials == {"local": 1, vps: 1}  # one socket, however often it drained


async def test_what_waited_for_the_desktop_is_fetched_to_the_last_when_it_comes(near: Hub, far: Hub) -> None:
    """More than one drain takes: it is told that there is more, and no poll of 30 s is waited for. 10.24."""
    sender, there, vps, called = name(), name(), name(), name()
    gateways = {"local": socket_of(near), vps: socket_of(far)}
    async with awake(near.port, sender) as one, awake(far.port, there) as other:
        async with relaying(gateways, name=called):
            pass
        waiting = [f"{number}" for number in range(230)]
        for text in waiting:
            assert (await one.write(f"{there}@{vps}", text))["status"] == "queued"
        async with relaying(gateways, name=called):
            assert await other.heard(230, 25) == waiting
            assert await one.learned(230, 25) == [f"{there} heard: {text}" for text in waiting]


# ------------------------------------------------------------------------------------------------------------- rosters


@of_each_generation
async def test_each_gateway_shows_the_agents_of_the_others_and_never_its_own(
    near: Hub, far: Hub, third: Hub, generation: Generation, called: str | None
) -> None:
    """In its roster, in a briefing, and to whoever asks ``message_agent`` for somebody that is not there."""
    one, two, three, vps, box = name(), name(), name(), name(), name()
    desk = called or "desktop"
    gateways = {"local": socket_of(near), vps: socket_of(far), box: socket_of(third)}
    async with (
        awake(near.port, one) as agent,
        awake(far.port, two),
        awake(third.port, three),
        relaying(gateways, generation, name=called) as relay,
    ):
        assert {f"{two}@{vps}", f"{three}@{box}"} <= elsewhere(near)
        assert {f"{one}@{desk}", f"{three}@{box}"} <= elsewhere(far)
        assert {f"{one}@{desk}", f"{two}@{vps}"} <= elsewhere(third)
        assert not {mate.partition("@")[0] for mate in elsewhere(near)} & {one}
        told = near.get(f"/v1/agents/{one}/briefing").body.decode()
        assert two in told
        assert three in told
        teammates = (await agent.write(f"nobody@{vps}", "x"))["teammates"]
        assert {two, three} <= {mate.partition("@")[0] for mate in teammates}

        late = name()
        async with awake(far.port, late):
            await relay.push_rosters()
            assert f"{late}@{vps}" in elsewhere(near)
            assert f"{late}@{vps}" in elsewhere(third)


async def test_a_machine_that_was_taken_out_is_forgotten_by_the_last_one_too(near: Hub, far: Hub) -> None:
    """10.13 (#111262), 10.14 (#113862)."""
    there, vps = name(), name()
    async with awake(far.port, there), relaying({"local": socket_of(near), vps: socket_of(far)}) as relay:
        assert f"{there}@{vps}" in elsewhere(near)
        relay.remove(vps)
        await until(lambda: f"{there}@{vps}" not in elsewhere(near))
        assert near.post("/v1/messages", {"from": "ann", "to": f"{there}@{vps}", "text": "x"}).status in (404, 409)


async def test_a_desktop_that_never_comes_back_is_forgotten_and_makes_room_for_the_next(far: Hub) -> None:
    """10.13, 10.14: a release that pushes nothing to the last one, or that died; and a push that was refused at first
    leaves nothing behind and is taken when there is room."""
    env = {"ANGELIA_LIMITS_ROSTERS": "1", "ANGELIA_LIMITS_ROSTER_KEEP_SECONDS": "3"}
    there, vps, other = name(), name(), name()
    with hub(env=env) as at:
        async with awake(far.port, there):
            async with relaying({"local": socket_of(at), vps: socket_of(far)}, G1, name="old") as old:
                assert f"{there}@{vps}" in elsewhere(at)
                old.die()
            gateways = {"local": socket_of(at), other: socket_of(far)}
            async with relaying(gateways, G1, name="new", pace=Pace(roster=0.2)):
                refused = [row for row in elsewhere(far) if row.endswith("@new")]
                assert refused  # the other gateway took it
                assert f"{there}@{vps}" in elsewhere(at)  # the old one's
                async with desktop(at.port) as peer:
                    found = await peer.error("bot_relay.roster.sync", desktop="new", agents=[])
                    assert (found["code"], found["data"]["limit"]) == (5090, 1)
                await until(lambda: f"{there}@{other}" in elsewhere(at), 20)
                assert f"{there}@{vps}" not in elsewhere(at)
                assert (await ask(at, name(), f"{there}@{other}", "you?"))["text"] == f"{there} heard: you?"


async def test_a_relay_that_dials_anew_for_each_call_leaves_nothing_behind(near: Hub) -> None:
    """10.1 (#93594): a socket dialled and closed every 4 s for each connection."""
    row = {"profile": "ops", "connection_id": name()}

    async def one_call(times: int) -> None:
        for _ in range(times):
            async with desktop(near.port) as peer:
                await peer.result("bot_relay.roster.sync", desktop="leaser", agents=[row])
            async with desktop(near.port) as peer:
                await peer.drain(desktop="leaser")

    await one_call(5)
    files, memory = near.descriptors, near.memory
    await one_call(100)
    await until(lambda: near.descriptors <= files)
    assert near.memory - memory < 8 * 1024 * 1024
    assert f"ops@{row['connection_id']}" in elsewhere(near)


# --------------------------------------------------------------------------------------------------------- two relays


@pytest.mark.parametrize("second", ["pc", None], ids=["both-say-their-name", "one-is-nameless"])
async def test_two_desktops_on_the_same_gateways_keep_their_own_agents_and_mail(
    near: Hub, far: Hub, third: Hub, second: str | None
) -> None:
    """10.12 (#115161): each calls another machine ``local``, and both use one id for different ones."""
    ann, bob, ops, vps, box = name(), name(), name(), name(), name()
    desk = second or "desktop"
    macs = {"local": socket_of(near), vps: socket_of(third), box: socket_of(far)}
    theirs = {"local": socket_of(third), vps: socket_of(near), box: socket_of(far)}
    anns, bobs = [f"{ann}@mac", f"{ann}@{desk}-{vps}"], [f"{bob}@{desk}", f"{bob}@mac-{vps}"]
    async with (
        awake(near.port, ann) as at_near,
        awake(third.port, bob) as at_third,
        awake(far.port, ops) as at_far,
        relaying(macs, name="mac") as mac,
        relaying(theirs, name=second) as other,
    ):
        for _ in range(3):
            await asyncio.gather(mac.push_rosters(), other.push_rosters())
            assert {*anns, *bobs} <= elsewhere(far)
        for to in (*anns, *bobs):
            assert (await at_far.write(to, to))["status"] == "queued"
        assert sorted(await at_near.heard(2)) == sorted(anns)
        assert sorted(await at_third.heard(2)) == sorted(bobs)
        assert sorted(await at_far.learned(4)) == sorted(f"{to.partition('@')[0]} heard: {to}" for to in (*anns, *bobs))
        by_mac = {envelope["message"].rpartition(" ")[2] for _, envelope in mac.handed}
        assert by_mac == {anns[0], bobs[1]}
        assert len(mac.handed) + len(other.handed) == 4

        other.die()
        waits = str((await at_far.write(bobs[0], "for a desktop that is gone"))["delivery_id"])
        goes = str((await at_far.write(bobs[1], "by the one that is there"))["delivery_id"])
        await at_third.heard(3)
        await mac.push_rosters()
        assert await ask(near, name(), f"{ops}@mac-{box}", "still there?")
        assert (far.state(goes), far.state(waits)) == ("answered", "queued")
        assert {*anns, *bobs} <= elsewhere(far)
        async with relaying(theirs, name=second):
            assert (await at_third.heard(4))[3] == "for a desktop that is gone"


async def test_two_windows_of_one_desktop_bring_each_message_once(near: Hub, far: Hub) -> None:
    """11.5: of two that fetch at once, one gets it."""
    sender, there, vps, called = name(), name(), name(), name()
    gateways = {"local": socket_of(near), vps: socket_of(far)}
    async with (
        awake(near.port, sender) as one,
        awake(far.port, there) as other,
        relaying(gateways, name=called) as left,
        relaying(gateways, name=called) as right,
    ):
        for number in range(30):
            await one.write(f"{there}@{vps}", f"{number}")
        assert len(await one.learned(30)) == 30
        assert sorted(int(text) for text in await other.heard(30)) == list(range(30))
        assert len(left.handed) + len(right.handed) == 30
