"""Hostile texts through every route of ``/openapi.json``, and to a program and an endpoint that a hub wakes: each comes
out as it went in, and makes nothing happen.

A text that would run something would make a file of one name; at the end of every test here that file is not there, no
file but the hub's own has appeared, and the hub has no child left. The other doors and hands stand in files beside this
one, and all of them in the tables of ``test_hostile_text_tables.py``.
"""

import asyncio
import http.client
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.acceptance.hub import Hub, Stream, eventually
from tests.rigs.hostile_place import SECONDS, Place, adapter, answering, children, claimed, find, own_box, quiet
from tests.turns.endpoint import endpoint

ECHO = "import sys; sys.stdout.buffer.write(b'[' + sys.stdin.buffer.read() + b']')"
SECRET = "whsec_" + "QUJD" * 11
WORD = "heliotrope"  # stands in no text


@pytest.fixture(scope="module")
def town() -> Iterator[Place]:
    at = Hub(env={"ANGELIA_HERMES_HOME": "off", "ANGELIA_LIMITS_READER_ATTEMPTS": "1"})
    with quiet(at) as place:
        yield place


@pytest.fixture
def place(town: Place) -> Iterator[Place]:
    yield town
    town.nothing_happened()


@pytest.fixture
def box(town: Place) -> str:
    """A name that this test alone uses."""
    return own_box(town.at)


# ------------------------------------------------------------------------------------------------ routes that take one


def test_by_v1(place: Place, box: str) -> None:
    for text in place.all:
        place.at.send(box, text, "sender")
    place.equal(claimed(place.at, box, len(place.texts)))


def test_by_a_batch(place: Place, box: str) -> None:
    place.send_all(box)
    place.equal(claimed(place.at, box, len(place.texts)))


def test_by_the_seeds_way_as_a_text_and_as_any_json(place: Place, box: str) -> None:
    payloads = [{"text": text, text or "x": [text, {text: None}]} for text in place.all if text != "text"]
    for payload in payloads:
        place.at.broadcast(payload, "sender", box)
    got: list[dict[str, Any]] = []
    while len(got) < len(payloads):
        got += place.at.poll(box, wait=1)
    for payload, shown in zip(payloads, got, strict=True):
        meta = shown.pop("_meta")
        assert shown == payload
        assert meta["from"] == "sender"


def test_by_the_seeds_way_as_it_stands_with_nothing_around_it(place: Place, box: str) -> None:
    """What is no JSON is refused; what happens to be some comes out as that."""
    for name, text in place.texts.items():
        answer = place.at.kept("POST", f"/broadcast?from=sender&to={box}", text.encode())
        try:
            wrote = json.loads(text)
        except ValueError:
            assert answer.status == 400, (name, answer.body)
            continue
        [shown] = place.at.poll(box)
        meta = shown.pop("_meta")
        assert shown == (without_meta(wrote) if isinstance(wrote, dict) else {"text": wrote}), name
        assert meta["from"] == "sender", name


def without_meta(payload: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key != "_meta"}


def test_by_a_question_and_to_whoever_waits_for_its_answer(place: Place, box: str) -> None:
    with answering(place.at, box) as heard, ThreadPoolExecutor(4) as askers:

        def ask(text: str) -> Any:
            asked = {"to": box, "text": text, "from": "asker", "wait_seconds": SECONDS}
            return place.at.post("/v1/ask", asked, seconds=SECONDS + 5).json["reply"]["text"]

        found = list(askers.map(ask, place.all))
    place.equal(found)
    assert sorted(heard) == sorted(place.all)


def test_by_a_reply(place: Place, box: str) -> None:
    replies = []
    for id, text in zip(place.send_all(box, intent="request"), place.all, strict=True):
        assert place.at.kept("POST", f"/v1/messages/{id}/reply", {"from": box, "text": text}).status == 201
        replies.append(place.at.receipt(id)["reply"]["text"])
    place.equal(replies)


def test_as_a_body_whose_names_are_texts_too(place: Place, box: str) -> None:
    bodies = [{"text": text, "more": [text], text: text} for text in place.all]
    for body in bodies:
        answer = place.at.kept("POST", "/v1/messages", {"to": box, "from": "sender", "body": body})
        assert answer.status == 201
    assert [json.loads(body) for body in claimed(place.at, box, len(bodies))] == bodies


def test_as_what_an_agent_is_called_and_does(place: Place, box: str) -> None:
    for name, text in place.texts.items():
        given = {"title": text[:100], "description": text}
        put = place.at.call("PUT", f"/v1/agents/{box}", given, admin=True)
        assert put.status == 200, (name, put.body)
        rows = [put.json, place.at.get(f"/v1/agents/{box}").json]
        rows += [row for row in place.at.get("/v1/agents").json["agents"] if row["handle"] == box]
        assert [{key: row[key] for key in given} for row in rows] == [given] * 3, name
        said = place.at.get(f"/v1/agents/{box}/briefing").body.decode()
        assert not {letter for letter in said if ord(letter) < 32 and letter != "\n"}, name


# What may be any text. Everywhere else a text of ours is no word that is known, and is refused. A backup's ``file`` is
# the owner's own word, and means the path that it says.
ANY_TEXT = {"text", "body", "title", "description", "q", "reason"}
LEFT_OUT = {("POST /v1/backups", "file")}
# A list is asked for what concerns somebody, and nobody is called so; a stream's last id that is none is passed over.
FINDS_NOTHING = {("GET /v1/agents/{handle}/inbox", "from"), ("GET /v1/search", "from"), ("GET /v1/search", "to")}
PASSED_OVER = {("GET /v1/events", "agent"), *((f"GET {path}", "last_event_id") for path in (
    "/subscribe", "/v1/events", "/v1/agents/{handle}/stream"))}  # fmt: skip
VALUES: dict[str, Any] = {"from": "sender", "text": "x", "wait_seconds": 0, "ack": "manual", "q": WORD}
NEEDED = {
    "POST /v1/messages": ("to", "from", "text"), "POST /v1/ask": ("to", "from", "text", "wait_seconds"),
    "POST /v1/messages/{id}/reply": ("from", "text"), "GET /poll": ("agent",), "GET /subscribe": ("agent",),
    "GET /v1/search": ("q",), "GET /v1/agents/{handle}/stream": ("ack",),
}  # fmt: skip


@pytest.mark.timeout(300)
@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_as_a_body_and_as_every_word_that_a_caller_may_choose(place: Place, box: str, share: int) -> None:
    """Each parameter and each field that ``/openapi.json`` names: where a text is no such word it is refused, with an
    answer that is in the document, and stored nowhere. Of the texts each gets one of four, in turn."""
    at = place.at
    document = at.get("/openapi.json").json
    codes = set(document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"])
    known = {"handle": box, "to": box, "agent": box, "id": at.send(box, "x", "sender")["id"], "token": "none"}
    at.claim("sender")
    before = at.get("/v1/agents").json["agents"]
    tried = 0
    with closing(at.connection(admin=True)) as line:
        for number, (route, where, word) in enumerate(places(document)):
            for name, text in list(place.texts.items())[number % share :: share]:
                status, said = ask_with(line, route, where, word, text, VALUES | known | {"name": "conn"})
                tried += 1
                told = (route, word, name, status, said)
                assert status < 500, told
                assert status < 400 or said.get("code") in codes, told
                if (route, word) in FINDS_NOTHING:
                    assert said.get("deliveries", said.get("messages")) == [], told
                elif word not in ANY_TEXT and (route, word) not in PASSED_OVER:
                    assert status >= 400, told
    assert tried > 100 * (len(place.texts) // share)
    assert [row["handle"] for row in at.get("/v1/agents").json["agents"]] == [row["handle"] for row in before]
    assert at.get("/v1/connections", admin=True).json["connections"] == []


def places(document: Any) -> Iterator[tuple[str, str, str]]:
    """Every place for a text: the route, which part of a request it is in, and what it is called."""
    shapes = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            route = f"{method.upper()} {path}"
            found = [(each["in"], each["name"]) for each in operation["parameters"]]
            for content in operation.get("requestBody", {}).get("content", {}).values():
                found += [("body", name) for name in fields(content["schema"], shapes)]
            yield from ((route, where, word) for where, word in found if (route, word) not in LEFT_OUT)


def fields(schema: Any, shapes: Any) -> Iterator[str]:
    """The names of a shape's own fields."""
    if "$ref" in schema:
        schema = shapes[schema["$ref"].rpartition("/")[2]]
    for each in schema.get("anyOf", []):
        yield from fields(each, shapes)
    yield from schema.get("properties", {})


def ask_with(
    line: http.client.HTTPConnection, route: str, where: str, word: str, text: str, values: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """One request with a text in one place, and what is right in all others; the status, and what JSON it answered."""
    method, _, path = route.partition(" ")
    for name, value in {**values, **({word: text} if where == "path" else {})}.items():
        path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
    rest = {name: values[name] for name in NEEDED.get(route, ()) if word != "messages"}
    given: dict[str, Any] = rest if where == "path" else {**rest, word: text}
    if method in ("POST", "PUT") and where != "query":
        line.request(method, path, json.dumps(given).encode(), {"Content-Type": "application/json"})
    else:
        line.request(method, f"{path}?{urlencode(given)}" if given else path)
    answer = line.getresponse()
    kind = answer.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        line.close()  # it has begun, and does not end
        return answer.status, {}
    said = answer.read()
    return answer.status, json.loads(said) if kind.endswith("json") else {}


def test_as_the_key_of_a_repeat(place: Place, box: str) -> None:
    for text in place.all:
        key = {"Idempotency-Key": f"{box}-{quote(text)[:200]}"}
        sent = place.at.post("/v1/messages", {"to": box, "from": "sender", "text": text}, headers=key)
        assert sent.status == 201
    place.equal(claimed(place.at, box, len(place.texts)))


# ------------------------------------------------------------------------------------------------ routes that show one


def by_a_receipt(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    return (at.receipt(id)["message"]["text"] for id in ids)


def by_an_inbox(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    return (row["message"]["text"] for row in at.inbox(box, limit=100)["deliveries"])


def by_a_claim(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    return claimed(at, box, len(ids))


def by_a_poll(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    return (each["text"] for each in at.poll(box))


def by_dead_letters(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    for taken in at.claim(box, 100):
        gone = at.lease(taken["lease"]["token"], "nack", reason=taken["message"]["text"])
        assert gone.json["state"] == "dead"
    rows, after = list[Any](), 0
    while after is not None:
        page = at.get(f"/v1/dead-letters?after={after}", admin=True).json
        rows, after = rows + page["deliveries"], page["next"]
    return [row["message"]["text"] for row in rows if row["message"]["to"] == box]


def by_threads(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    rows = at.get("/v1/threads?limit=100", admin=True).json["threads"]
    texts = {row["last"]["id"]: row["last"]["text"] for row in rows}
    return [texts.get(id) for id in ids]


def by_a_thread(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    rows = [at.get(f"/v1/threads/{id}", admin=True).json["messages"] for id in ids]
    return [row[0]["message"]["text"] for row in rows]


def by_a_search(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    def found() -> Any:
        page = at.get(f"/v1/search?q={WORD}&to={box}&limit=100", admin=True).json["messages"]
        return page if len(page) == len(ids) else None

    return reversed([row["text"] for row in eventually(found, SECONDS)])


def by_a_manual_stream(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    with Stream(at, f"/v1/agents/{box}/stream?ack=manual&window=16") as stream:
        for _ in ids:
            [event] = stream.messages(1, SECONDS)
            assert at.lease(event.json["lease"]["token"], "ack").status == 200
            yield event.json["message"]["text"]


def by_the_seeds_stream(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    with Stream(at, f"/subscribe?agent={box}") as stream:
        return [event.json["text"] for event in stream.messages(len(ids), SECONDS)]


def by_events(at: Hub, box: str, ids: Sequence[str]) -> Iterable[Any]:
    with Stream(at, f"/v1/events?last=500&agent={box}", admin=True) as stream:
        found: dict[str, str] = {}
        while len(found) < len(ids):
            event = stream.next(SECONDS).json
            found.setdefault(event.get("id"), event.get("text"))
    return [found[id] for id in ids]


# ``POST /v1/ask`` is in ``test_by_a_question_and_to_whoever_waits_for_its_answer``.
SHOWN: dict[str, Callable[[Hub, str, Sequence[str]], Iterable[Any]]] = {
    "GET /v1/messages/{id}": by_a_receipt,
    "GET /v1/agents/{handle}/inbox": by_an_inbox,
    "POST /v1/agents/{handle}/claim": by_a_claim,
    "GET /v1/agents/{handle}/stream": by_a_manual_stream,
    "GET /subscribe": by_the_seeds_stream,
    "GET /poll": by_a_poll,
    "GET /v1/dead-letters": by_dead_letters,
    "GET /v1/threads": by_threads,
    "GET /v1/threads/{id}": by_a_thread,
    "GET /v1/search": by_a_search,
    "GET /v1/events": by_events,
}


@pytest.mark.parametrize("route", SHOWN)
def test_by_each_route_that_shows_messages(place: Place, box: str, route: str) -> None:
    ids = place.send_all(box, **({"body": WORD} if "search" in route else {}))
    place.equal(list(SHOWN[route](place.at, box, ids)))


@pytest.mark.parametrize("mode", ["own", "observe"])
def test_by_a_stream_to_whoever_reads_and_to_whoever_looks_on(place: Place, box: str, mode: str) -> None:
    """As they are sent, and not out of a mailbox."""
    with Stream(place.at, f"/v1/agents/{box}/stream?mode={mode}", admin=True) as stream:
        place.send_all(box)
        found = [event.json["message"]["text"] for event in stream.messages(len(place.texts), SECONDS)]
    place.equal(found)


# ------------------------------------------------------------------------------------ what a hub wakes: the plain ones


def test_by_a_turn_of_a_program_and_back(place: Place, box: str) -> None:
    """In by its standard input, out by its standard output; and no part of it in the argv of any process."""
    argv = [sys.executable, "-S", "-c", ECHO]
    adapter(place.at, box, {"kind": "command", "argv": argv})
    sent = place.send_all(box, intent="request")
    lines: set[str] = set()
    not_yet = " ".join(Path(f"/proc/{place.at.pid}/cmdline").read_text().split("\0")).strip()  # between fork and exec

    def all_answered() -> bool:
        lines.update(children(place.at.pid))
        return all(place.at.receipt(id).get("reply") for id in sent[-1:])

    eventually(all_answered, 120)
    replies = [eventually(lambda: place.at.receipt(id).get("reply"), SECONDS)["text"] for id in sent]  # noqa: B023
    place.equal([reply[1:-1] for reply in replies])
    assert {line.strip() for line in lines} <= {" ".join(argv), not_yet, ""}


async def test_by_a_webhook(place: Place, box: str) -> None:
    async with endpoint() as there:
        there.answer(200, "text/plain", b"heard")
        spec = {"kind": "webhook", "url": there.url(), "secret": SECRET, "allow_private": True}
        await asyncio.to_thread(adapter, place.at, box, spec)
        await asyncio.to_thread(place.send_all, box, intent="request")
        async with asyncio.timeout(SECONDS * 2):
            while len(there.bodies) < len(place.texts):  # noqa: ASYNC110 - it looks from outside
                await asyncio.sleep(0.02)
        posted = [json.loads(body) for body in there.bodies]
        place.equal([find(each, "text") for each in posted])
        assert {line.split(" ")[1] for line in there.requests} == {"/hook?a=b"}
        assert not [headers for headers in there.headers if "x-evil" in headers]
        await asyncio.to_thread(adapter, place.at, box, None)
