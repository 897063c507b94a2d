"""Hostile texts through the gateway, on standard input too, through a Hermes' files, and over links to other hubs and
to gateways of Hermes': each comes out as it went in, and makes nothing happen.

A header like Hermes' own at the head of a text says who wrote it: there it is a relay's claim, which is taken off and
makes nobody one of ours. Anywhere else it is text.
"""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import Hub, eventually, hub
from tests.acceptance.linked import ENVIRONMENT, connect, hubs, knows, live, wait_knows
from tests.links.hermes import Gateway, a_gateway, until
from tests.rigs.gateway import Desktop, desktop
from tests.rigs.hostile_place import SECONDS, Place, answering, children, claimed, own_box, quiet, same

HEADER = "Message from \N{ROBOT FACE} "
FAR = {"profile": "ops", "handle": "ops", "connection_id": "vps-1", "title": "Ops Bot"}
SENDER: dict[str, Any] = {"from": "sender"}


@pytest.fixture(scope="module")
def town() -> Iterator[Place]:
    at = Hub()
    home = at.base / "hermes"
    home.mkdir()
    at.env = {"HERMES_HOME": str(home)}
    with quiet(at) as place:
        at.call("PUT", "/v1/agents/hermes", {"adapter": None}, admin=True)
        yield place


@pytest.fixture
def place(town: Place) -> Iterator[Place]:
    yield town
    town.nothing_happened()


@pytest.fixture
def box(town: Place) -> str:
    """A name that this test alone uses."""
    return own_box(town.at)


@asynccontextmanager
async def sitting(at: Hub, name: str) -> AsyncIterator[list[str]]:
    """As ``answering``, beside what the test awaits."""
    agent = answering(at, name)
    heard = await asyncio.to_thread(agent.__enter__)
    try:
        yield heard
    finally:
        await asyncio.to_thread(agent.__exit__, None, None, None)


def alone(text: str) -> str:
    """What is left of a text that came with nothing before it: a header is a claim, and is taken off."""
    return text.partition("): ")[2] if text.startswith(HEADER) else text


# --------------------------------------------------------------------------------------------------------- the gateway


async def test_by_a_chat(place: Place, box: str) -> None:
    """``session.open``, ``prompt.submit``, ``session.turn``, ``session.done``: in, and its answer out."""
    async with desktop(place.at.port) as peer:
        opened = await peer.result("session.open", profile=box, title="\x1b]0;x\x07")
        for name, text in place.texts.items():
            await peer.result("prompt.submit", session_id=opened["session_id"], text=text)
            turn = await peer.event("session.turn")
            assert turn["text"] == alone(text), name
            # a header like ours is a relay's own word of who wrote: a claim, and never one of our names
            who = ("@" in turn["from"], turn["from"].endswith("@local"), turn["verified"])
            assert who == (True, False, False), turn
            await peer.result("session.done", id=turn["id"], lease=turn["lease"], text=text)
        await peer.result("session.close", session_id=opened["session_id"])


async def test_as_the_answer_of_a_chat_or_why_there_is_none(place: Place, box: str) -> None:
    """What says nothing in Hermes' way is no answer. Why there is none stands at the end of what the hub says of it."""
    async with desktop(place.at.port) as peer:
        await peer.result("session.open", profile=box)
        for end in ("text", "error"):
            ids = await asyncio.to_thread(place.send_all, box, intent="request")
            for text in place.all:
                turn = await peer.event("session.turn")
                said: dict[str, Any] = {end: text}
                await peer.result("session.done", id=turn["id"], lease=turn["lease"], **said)
            if end == "text":
                found = [(await asyncio.to_thread(place.at.receipt, id))["reply"]["text"] for id in ids]
                same(dict(zip(place.texts, found, strict=True)), {**place.texts, "fence: like Hermes' silence": ""})
            else:
                await asyncio.to_thread(told_at_the_end, place.at, dict(zip(ids, place.all, strict=True)))


def told_at_the_end(at: Hub, texts: dict[str, str]) -> None:
    """The notices that the sender of these messages gets end with these texts."""
    found: dict[str, str] = {}

    def all_there() -> bool:
        for taken in at.claim("sender", 100):
            at.lease(taken["lease"]["token"], "ack")
            if taken["message"]["kind"] == "notice":
                found[taken["message"]["about"]] = taken["message"]["text"]
        return texts.keys() <= found.keys()

    eventually(all_there, SECONDS)
    same({id: found[id][-len(text) :] for id, text in texts.items()}, texts)


async def test_by_a_relay_and_back(place: Place, box: str) -> None:
    """``bot_relay.deliver``, with the header that every relay puts before it and without."""
    async with desktop(place.at.port) as peer, sitting(place.at, box) as heard:
        for stamp in (f"{HEADER}Far (@far): ", ""):
            heard.clear()
            answers = [
                peer.send("bot_relay.deliver", profile=box, message=stamp + text, id=uuid.uuid4().hex)
                for text in place.all
            ]
            async with asyncio.timeout(SECONDS):
                replies = [(await answer)["result"]["reply"] for answer in answers]
            wanted = [text.rstrip() if stamp else alone(text).strip() for text in place.all]
            assert sorted(heard) == sorted(wanted)
            same(dict(zip(place.texts, replies, strict=True)), dict(zip(place.texts, wanted, strict=True)))


async def test_to_a_desktop_and_back(place: Place) -> None:
    """``bot_relay.roster.sync``, ``.outbox.drain``, ``.reply``: behind the header, and the answers as they were."""
    async with desktop(place.at.port) as peer:
        await sync(peer, place)
        ids = await asyncio.to_thread(place.send_all, "ops@vps-1", intent="request")
        found: dict[str, str] = {}
        while len(found) < len(ids):
            found |= {row["id"]: row["message"] for row in await peer.drain()}
        place.equal([found[id].removeprefix(f"{HEADER}sender (@sender): ") for id in ids])
        for id, text in zip(ids, place.all, strict=True):
            await peer.result("bot_relay.reply", id=id, reply=text)
        place.equal([(await asyncio.to_thread(place.at.receipt, id))["reply"]["text"] for id in ids])
        failing = dict(zip(await asyncio.to_thread(place.send_all, "ops@vps-1"), place.all, strict=True))
        while failing.keys() - found.keys():
            found |= {row["id"]: row["message"] for row in await peer.drain()}
        for id, text in failing.items():
            await peer.result("bot_relay.reply", id=id, error=text)
        lined = {id: " ".join(text.split()) for id, text in failing.items()}  # another side's words stand on one line
        await asyncio.to_thread(told_at_the_end, place.at, lined)
        await peer.result("bot_relay.roster.sync", agents=[])


async def sync(peer: Desktop, place: Place) -> None:
    """A roster whose titles are all of the texts."""
    rows: list[dict[str, str]] = [
        {**FAR, "profile": f"far{number}", "handle": f"far{number}", "title": text, "connection_label": text}
        for number, text in enumerate(place.all)
    ]
    pushed = await peer.result("bot_relay.roster.sync", agents=[FAR, *rows])
    assert pushed["count"] == len(rows) + 1
    titles = {each["handle"]: each["title"] for each in place.at.get("/v1/agents").json["agents"]}
    wanted = {row["handle"]: row["title"].strip()[:120].rstrip() for row in rows}  # trimmed and cut as Hermes does it
    same(titles, wanted)


async def test_by_the_tool_of_hermes_agents(place: Place, box: str) -> None:
    """``message_agent``, whose texts are trimmed as Hermes trims them; as a target each of them is nobody."""
    async with desktop(place.at.port) as peer:
        for name, text in place.texts.items():
            answer = await peer.result("message_agent", **SENDER, target=box, message=text)
            assert answer["status"] == "queued", (name, answer)
            nobody = await peer.result("message_agent", **SENDER, target=text, message="x")
            assert "error" in nobody, (name, nobody)
    found = await asyncio.to_thread(claimed, place.at, box, len(place.texts))
    same(dict(zip(place.texts, found, strict=True)), {name: text.strip() for name, text in place.texts.items()})


def test_by_the_gateway_on_standard_input_and_output(place: Place, box: str) -> None:
    bridge = subprocess.Popen(
        [sys.executable, "-m", "angelia", "gateway", "--stdio"],
        env=place.at.cli_environment(), cwd=place.at.folder, text=True, encoding="utf-8",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert bridge.stdin is not None
    assert bridge.stdout is not None
    turns: list[str] = []
    with bridge:
        say(bridge, "session.open", profile=box)
        for text in place.all:
            say(bridge, "message_agent", target=box, message=text, **SENDER)
        while len(turns) < len(place.texts):
            frame = json.loads(bridge.stdout.readline())
            assert "error" not in frame, frame
            if frame.get("params", {}).get("type") == "session.turn":
                turn = frame["params"]["payload"]
                turns.append(turn["text"])
                say(bridge, "session.done", id=turn["id"], lease=turn["lease"], text=turn["text"])
        bridge.stdin.close()
        assert bridge.wait(SECONDS) == 0
    same(dict(zip(place.texts, turns, strict=True)), {name: text.strip() for name, text in place.texts.items()})


def say(bridge: "subprocess.Popen[str]", method: str, **params: Any) -> None:
    assert bridge.stdin is not None
    call = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": method, "params": params}
    bridge.stdin.write(json.dumps(call, ensure_ascii=False) + "\n")
    bridge.stdin.flush()


# ------------------------------------------------------------------------------------------------------ Hermes' files


def test_by_the_files_of_hermes_and_back(place: Place, box: str) -> None:
    relay = place.at.base / "hermes" / "bot_relay"
    (relay / "outbox").mkdir(parents=True, exist_ok=True)
    ids = {name: uuid.uuid4().hex for name in place.texts}
    with answering(place.at, box) as heard:
        for name, text in place.texts.items():
            envelope = {
                "id": ids[name], "created_at": int(time.time()), "from_profile": "default", "from_handle": "hermes",
                "target_connection": "angelia", "target_profile": box, "target_handle": box,
                "message": f"{HEADER}hermes (@hermes): {text}",
            }  # fmt: skip
            part = relay / "outbox" / f".{ids[name]}.tmp"
            part.write_text(json.dumps(envelope))
            part.rename(relay / "outbox" / f"{ids[name]}.json")
        replies = relay / "replies"
        answers = {name: replies / f"{id}.json" for name, id in ids.items()}
        eventually(lambda: all(path.exists() for path in answers.values()), SECONDS)
    assert sorted(heard) == sorted(place.all)
    same({name: json.loads(path.read_bytes())["reply"] for name, path in answers.items()}, place.texts)


# -------------------------------------------------------------------------------------------------------------- links


def test_over_a_link_and_back(place: Place) -> None:
    with hubs("one", "two") as (one, two):
        live(two, "box")
        live(one, "sender")
        code = two.post("/v1/pairing", {}, admin=True).json["code"]
        connect(one, "two", f"ws://127.0.0.1:{two.port}", code=code)
        eventually(lambda: knows(one, "box"), SECONDS)
        with answering(two, "box") as heard:
            sent = Place(one).send_all("box@two", intent="request")
            replies = [eventually(lambda: one.receipt(id).get("reply"), SECONDS)["text"] for id in sent]  # noqa: B023 - looked at now
        wanted = Place(one).texts
        assert heard == list(wanted.values())
        same(dict(zip(wanted, replies, strict=True)), wanted)
        for at in (one, two):
            Place(at).nothing_happened()
            assert not children(at.pid)


@pytest.fixture
async def rack(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway of Hermes' whose agents say back what they read."""
    async with a_gateway(tmp_path / "rack") as gateway:
        yield gateway


async def test_over_a_link_to_a_gateway_of_hermes_and_back(place: Place, rack: Gateway) -> None:
    """What an agent there reads, and its answer; what it writes, and the answer that it gets."""
    with hub(env=ENVIRONMENT) as here:
        there = Place(here)
        live(here, "sender", "ann")
        secret = rack.home / "secret"
        secret.write_text("secret")
        secret.chmod(0o600)
        connect(here, "Rack", f"ws://127.0.0.1:{rack.port}", token_file=str(secret))
        wait_knows(here, "ops")
        sent = await asyncio.to_thread(there.send_all, "ops@Rack", intent="request")
        await until(lambda: len(rack.turns("ops")) == len(sent), SECONDS)
        read = [text.partition("): ")[2] for text in rack.turns("ops")]
        same(dict(zip(there.texts, read, strict=True)), {name: text.rstrip() for name, text in there.texts.items()})
        for id, text in zip(sent, rack.turns("ops"), strict=True):
            reply = await until(lambda: here.receipt(id).get("reply"), SECONDS)  # noqa: B023 - looked at now
            assert reply["text"] == f"ops heard: {text}"
        await until(lambda: "ann" in [row["handle"] for row in rack.roster], SECONDS)
        async with sitting(here, "ann") as heard:
            asked = [rack.enqueue("ann@angelia", text, sender="ops") for text in there.all]
            replies = [(await rack.answered(id, SECONDS))["reply"] for id in asked]
        assert sorted(heard) == sorted(there.all)
        there.equal(replies)
        there.nothing_happened()
