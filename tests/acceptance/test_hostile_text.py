"""Hostile texts through every door and every hand: each comes out as it went in, and makes nothing happen.

A text that would run something would make a file of one name; at the end of every test here that file is not there, no
file but the hub's own has appeared, and the hub has no child left.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.acceptance.hub import Hub, Stream, environment, eventually
from tests.acceptance.linked import connect, hubs, knows
from tests.rigs.gateway import desktop
from tests.rigs.hostile import texts
from tests.turns.endpoint import endpoint

SECONDS = 40.0
ECHO = "import sys; sys.stdout.buffer.write(b'[' + sys.stdin.buffer.read() + b']')"
SECRET = "whsec_" + "QUJD" * 11


class Place:
    """A hub, the texts, and what must not be there afterwards."""

    def __init__(self, at: Hub) -> None:
        self.at = at
        self.mark = at.base / "mark"
        self.texts = texts(str(self.mark))

    def strays(self) -> list[str]:
        """Files that nobody of the hub's own makes."""
        known = {"d", "output", "hermes", ".cache"}
        return [str(path) for path in self.at.base.iterdir() if path.name not in known]

    def children(self) -> list[str]:
        return [line for line in _children(self.at.pid) if "multiprocessing" not in line]


def _children(pid: int) -> list[str]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append((stat.parent / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def town() -> Iterator[Place]:
    at = Hub()
    home = at.base / "hermes"
    home.mkdir()
    at.env = {"HERMES_HOME": str(home)}
    with at:
        yield Place(at)
        said = at.output()
    assert "Traceback" not in said
    assert "\x1b" not in said


@pytest.fixture
def place(town: Place) -> Iterator[Place]:
    yield town
    assert not town.mark.exists()
    assert town.strays() == []
    assert eventually(lambda: not town.children(), SECONDS)
    assert town.at.is_ready()


@pytest.fixture
def box(town: Place) -> str:
    """A name that this test alone uses."""
    name = f"b{uuid.uuid4().hex[:10]}"
    town.at.claim(name)
    return name


def claimed(at: Hub, name: str, count: int) -> list[str]:
    """The texts that wait for a name, in their order; each is settled."""
    found: list[str] = []

    def more() -> bool:
        for taken in at.claim(name, 100):
            found.append(taken["message"].get("text") or json.dumps(taken["message"].get("body")))
            assert at.lease(taken["lease"]["token"], "ack").status == 200
        return len(found) >= count

    eventually(more, SECONDS, f"{count} texts")
    return found


def equal(found: list[str], place: Place) -> None:
    """All of them, each as it went in."""
    wrong = {name: got for (name, text), got in zip(place.texts.items(), found, strict=True) if got != text}
    assert wrong == {}


# -------------------------------------------------------------------------------------------------------------- doors


def test_by_v1(place: Place, box: str) -> None:
    for text in place.texts.values():
        place.at.send(box, text, "sender")
    equal(claimed(place.at, box, len(place.texts)), place)


def test_by_a_batch(place: Place, box: str) -> None:
    messages = [{"to": box, "text": text, "from": "sender"} for text in place.texts.values()]
    outcomes = place.at.post("/v1/messages", {"messages": messages}).json["outcomes"]
    assert {each["status"] for each in outcomes} == {201}
    equal(claimed(place.at, box, len(messages)), place)


def test_by_the_seeds_way_as_a_text_and_as_any_json(place: Place, box: str) -> None:
    payloads = [{"text": text, text or "x": [text, {text: None}]} for text in place.texts.values() if text != "text"]
    for payload in payloads:
        place.at.broadcast(payload, "sender", box)
    got: list[dict[str, Any]] = []
    while len(got) < len(payloads):
        got += place.at.poll(box, wait=1)
    for payload, shown in zip(payloads, got, strict=True):
        meta = shown.pop("_meta")
        assert shown == payload
        assert meta["from"] == "sender"


def test_as_a_body_and_as_every_word_that_a_caller_may_choose(place: Place, box: str) -> None:
    """Where a word is none it is refused, and stored nowhere."""
    at = place.at
    for text in place.texts.values():
        body = {"text": text, "more": [text], text: text}
        answer = at.post("/v1/messages", {"to": box, "from": "sender", "body": body})
        assert answer.status == 201
        [taken] = at.claim(box)
        assert taken["message"]["body"] == body
        at.lease(taken["lease"]["token"], "ack")
        for field in ("to", "from", "id", "thread", "in_reply_to", "intent", "lane"):
            refused = at.post("/v1/messages", {"to": box, "from": "sender", "text": "x", field: text})
            assert refused.status in (400, 404), (field, text, refused.status)
        for path in ("/v1/agents/{}/inbox", "/v1/messages/{}", "/v1/leases/{}/ack", "/v1/threads/{}", "/poll?agent={}"):
            method = "POST" if path.endswith("ack") else "GET"
            refused = at.call(method, path.format(quote(text, safe="")))
            assert refused.status in (400, 404), (path, text, refused.status)
        assert at.get(f"/v1/search?q={quote(text, safe='')}").status in (200, 400)
        key = {"Idempotency-Key": f"{box}-{quote(text)[:200]}"}
        assert at.post("/v1/messages", {"to": box, "from": "sender", "text": text}, headers=key).status == 201
        assert claimed(at, box, 1) == [text]
        put = at.call("PUT", f"/v1/agents/{box}", {"title": text[:100], "description": text[:100]}, admin=True)
        assert put.status in (200, 400)
        for name in ("PUT", "DELETE"):
            wrong = at.call(name, f"/v1/agents/{quote(text, safe='')}", {} if name == "PUT" else None, admin=True)
            assert wrong.status in (400, 404), (name, text)
            wrong = at.call(name, f"/v1/connections/{quote(text, safe='')}", {"target": "ws://127.0.0.1:9"}
                            if name == "PUT" else None, admin=True)  # fmt: skip
            assert wrong.status in (400, 404), (name, text)


async def test_by_the_gateway(place: Place, box: str) -> None:
    at = place.at
    async with desktop(at.port) as peer:
        opened = await peer.result("session.open", profile=box, title="\x1b]0;x\x07")
        for name, text in place.texts.items():
            await peer.result("prompt.submit", session_id=opened["session_id"], text=text)
            turn = await peer.event("session.turn")
            if "header" not in name:
                assert turn["text"] == text, name
            # a header like ours is a relay's own word of who wrote: a claim, and never one of our names
            assert ("@" in turn["from"], turn["from"].endswith("@local"), turn["verified"]) == (True, False, False), (
                turn
            )
            await peer.result("session.done", id=turn["id"], lease=turn["lease"], text=text)
        await peer.result("session.close", session_id=opened["session_id"])
        for name, text in place.texts.items():
            if not text.strip() or "header" in name:
                continue
            answered = peer.send("bot_relay.deliver", profile=box, message=text, id=uuid.uuid4().hex, from_handle="far")
            [taken] = await asyncio.to_thread(eventually, lambda: at.claim(box), SECONDS)
            assert taken["message"]["text"] == text.strip(), name  # which is what Hermes' own gateway takes
            reply = {"from": box, "text": text}
            assert at.post(f"/v1/messages/{taken['message']['id']}/reply", reply).status == 201
            result = await asyncio.wait_for(answered, SECONDS)
            assert result["result"]["reply"] == text, name
            at.lease(taken["lease"]["token"], "ack")


def test_over_a_link_and_back(place: Place) -> None:
    with hubs("one", "two") as (one, two):
        two.claim("box")
        one.claim("sender")
        code = two.post("/v1/pairing", {}, admin=True).json["code"]
        connect(one, "two", f"ws://127.0.0.1:{two.port}", code=code)
        eventually(lambda: knows(one, "box"), SECONDS)
        sent = [one.send("box@two", text, "sender", intent="request")["id"] for text in place.texts.values()]
        taken: list[Any] = []

        def all_there() -> bool:
            taken.extend(two.claim("box", 100))
            return len(taken) >= len(sent)

        eventually(all_there, SECONDS)
        equal([each["message"]["text"] for each in taken], place)
        for each in taken:
            answer = {"from": "box", "text": each["message"]["text"]}
            assert two.post(f"/v1/messages/{each['message']['id']}/reply", answer).status == 201
        for id, text in zip(sent, place.texts.values(), strict=True):
            assert eventually(lambda: one.receipt(id).get("reply"), SECONDS)["text"] == text  # noqa: B023 - looked at now
        assert not _children(one.pid)
        assert not _children(two.pid)


def test_by_the_files_of_hermes(place: Place, box: str) -> None:
    outbox = place.at.base / "hermes" / "bot_relay" / "outbox"
    outbox.mkdir(parents=True, exist_ok=True)
    given = {name: text for name, text in place.texts.items() if text.strip() and "header" not in name}
    ids = {}
    for name, text in given.items():
        ids[name] = uuid.uuid4().hex
        envelope = {
            "id": ids[name], "created_at": int(time.time()), "from_profile": "default", "from_handle": "hermes",
            "target_connection": "angelia", "target_profile": box, "target_handle": box,
            "message": f"Message from \N{ROBOT FACE} hermes (@hermes): {text}",
        }  # fmt: skip
        part = outbox / f".{ids[name]}.tmp"
        part.write_text(json.dumps(envelope))
        part.rename(outbox / f"{ids[name]}.json")
    found: dict[str, str] = {}

    def more() -> bool:
        for taken in place.at.claim(box, 100):
            found[taken["message"]["id"]] = taken["message"]["text"]
            place.at.lease(taken["lease"]["token"], "ack")
        return len(found) >= len(given)

    eventually(more, SECONDS)
    assert {name: found[ids[name]] for name in given} == given


# -------------------------------------------------------------------------------------------------------------- hands


@pytest.mark.parametrize("path", ["/v1/agents/{}/stream", "/subscribe?agent={}"])
def test_by_a_stream(place: Place, box: str, path: str) -> None:
    with Stream(place.at, path.format(box)) as stream:
        for text in place.texts.values():
            place.at.send(box, text, "sender")
        events = stream.messages(len(place.texts), SECONDS)
    shown = [event.json for event in events]
    equal([each["message"]["text"] if "message" in each else each["text"] for each in shown], place)


def test_by_a_poll(place: Place, box: str) -> None:
    for text in place.texts.values():
        place.at.send(box, text, "sender")
    equal([each["text"] for each in place.at.poll(box)], place)


def adapter(place: Place, name: str, spec: dict[str, Any]) -> None:
    answer = place.at.call("PUT", f"/v1/agents/{name}", {"adapter": spec}, admin=True)
    assert answer.status in (200, 201), answer.body


def test_by_a_turn_of_a_program_and_back(place: Place, box: str) -> None:
    """In by its standard input, out by its standard output; and no part of it in the argv of any process."""
    argv = [sys.executable, "-c", ECHO]
    adapter(place, box, {"kind": "command", "argv": argv})
    place.at.call("PUT", "/v1/agents/hermes", {"adapter": None}, admin=True)
    sent = [place.at.send(box, text, "asker", intent="request")["id"] for text in place.texts.values()]
    lines: set[str] = set()
    not_yet = " ".join(Path(f"/proc/{place.at.pid}/cmdline").read_text().split("\0")).strip()  # between fork and exec

    def all_answered() -> bool:
        lines.update(_children(place.at.pid))
        return all(place.at.receipt(id).get("reply") for id in sent[-1:])

    eventually(all_answered, 120)
    replies = [eventually(lambda: place.at.receipt(id).get("reply"), SECONDS)["text"] for id in sent]  # noqa: B023
    equal([reply[1:-1] for reply in replies], place)
    assert {line.strip() for line in lines} <= {" ".join(argv), not_yet, ""}


async def test_by_a_webhook(place: Place, box: str) -> None:
    async with endpoint() as there:
        there.answer(200, "text/plain", b"heard")
        spec = {"kind": "webhook", "url": there.url(), "secret": SECRET, "allow_private": True}
        await asyncio.to_thread(adapter, place, box, spec)
        for text in place.texts.values():
            await asyncio.to_thread(place.at.send, box, text, "asker", intent="request")
        async with asyncio.timeout(SECONDS * 2):
            while len(there.bodies) < len(place.texts):  # noqa: ASYNC110 - it looks from outside
                await asyncio.sleep(0.02)
        posted = [json.loads(body) for body in there.bodies]
        equal([str(find(each, "text")) for each in posted], place)
        assert {line.split(" ")[1] for line in there.requests} == {"/hook?a=b"}
        assert not [headers for headers in there.headers if "x-evil" in headers]
        await asyncio.to_thread(adapter_ends, place, box)


def adapter_ends(place: Place, name: str) -> None:
    place.at.call("PUT", f"/v1/agents/{name}", {"adapter": None}, admin=True)


def find(shown: Any, key: str) -> Any:
    """The value of a key, wherever it stands."""
    if isinstance(shown, dict):
        if key in shown:
            return shown[key]
        return next((found for each in shown.values() if (found := find(each, key)) is not None), None)
    return None


def listening(place: Place, name: str, *words: str) -> "subprocess.Popen[bytes]":
    env = environment(place.at.base / "hermes", **{"ANGELIA_DATA_DIR": str(place.at.folder)})
    line = [sys.executable, "-m", "angelia", "listen", "--as", name, *words]
    return subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=place.at.folder)


@pytest.mark.parametrize("way", ["standard output", "a FIFO"])
def test_by_a_listener(place: Place, box: str, way: str) -> None:
    pipe = place.at.folder / f"{box}.pipe"
    os.mkfifo(pipe, 0o600)
    process = listening(place, box, *(["--fifo", str(pipe)] if way == "a FIFO" else ["--json"]))
    try:
        for text in place.texts.values():
            place.at.send(box, text, "sender")
        source = pipe.open("rb") if way == "a FIFO" else process.stdout
        assert source is not None
        lines = [source.readline() for _ in place.texts]
        if way == "a FIFO":
            source.close()
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)
        pipe.unlink()
    equal([str(find(json.loads(line), "text")) for line in lines], place)


def test_what_a_terminal_gets_does_nothing_to_it(place: Place, box: str) -> None:
    """Whatever shows a peer's text to a person: no escape, no control, nothing hidden gets through."""
    at = place.at
    sent = [str(at.send(box, text, "sender")["id"]) for text in place.texts.values()]
    for id in sent[::7]:
        at.call("POST", f"/v1/messages/{id}/cancel", {}, admin=True)
    title = place.texts["OSC: the clipboard"] + place.texts["bidi: overrides"]
    assert at.call("PUT", f"/v1/agents/{box}", {"title": title, "description": title}, admin=True).status == 200
    said = [
        at.run(*words)
        for words in (
            ("inbox", box), ("inbox", box, "--all"), ("agents",), ("status",), ("dead",), ("threads",),
            ("thread", sent[20]), ("message", sent[21]), ("search", "red"), ("tail", "--last", "200", "--once"),
        )
    ]  # fmt: skip
    done = [each for each in said if each.returncode == 0]
    assert len(done) >= 5, [each.stderr for each in said]
    for each in said:
        for stream in (each.stdout, each.stderr):
            acts = {letter for letter in stream if not letter.isprintable() and letter not in "\n\t"}
            assert not acts & ACTS, (each.args, acts & ACTS)


ACTS = {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), *range(0xE0000, 0xE0080))} | set(
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u2028\u2029\ufeff\u200e\u200f\u061c"
)
