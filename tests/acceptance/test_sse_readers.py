"""Our streams, read by clients that we did not write: httpx-sse, sseclient-py and a real browser's EventSource.

The table of `tests/unit/protocol` runs the other way here, too: a browser reads it, so that it says what browsers do.
Where no browser can be had its tests are skipped, and say so; `.ci/run` installs one.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import httpx
import pytest
from httpx_sse import EventSource
from sseclient import SSEClient

from tests.acceptance.hub import MARGIN, Hub, eventually, hub
from tests.fakes.fake_hub import FakeHub, answer, raw
from tests.rigs import browser as rig
from tests.rigs.browser import Browser, Page
from tests.unit.protocol.sse_cases import CASES

KEEPALIVE_SECONDS = 0.2
MIB = 1024 * 1024
needs_browser = pytest.mark.skipif(rig.found() is None, reason="there is no browser: apt-get install -y chromium")

TEXTS = {
    "plain": "messaggio",
    "line feed": "a\nb\n",
    "carriage return": "a\rb\r",
    "both": "a\r\nb\r\n\r\nc",
    "line separator": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "emoji": "ü€😀 👩\u200d💻",
    "nul": "a\0b",
    "byte order mark": "\ufeffa\ufeff",
    "forged": "a\n\ndata: forged\n\nid: 9\nevent: bye\nretry: 1\n\n",
    "fields": "data: id: event: retry: : \n:comment",
    "quotes": "\"'\\ </script><!-- \x1b[31m",
    "spaces": "  a \t ",
    "a mebibyte": "ü\n" * (MIB // 8) + "x" * (MIB * 5 // 8),
}


class Read(NamedTuple):
    """One event, as a reader saw it."""

    kind: str
    data: str
    id: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Reader:
    """Reads one path of a hub; ``next`` is the next event, whatever it is."""

    def __init__(self, next_event: Callable[[], Read]) -> None:
        self.next = next_event

    def take(self, count: int) -> list[Read]:
        return [self.next() for _ in range(count)]


@contextmanager
def by_httpx_sse(at: Hub, path: str, last_event_id: str) -> Iterator[Reader]:
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    with httpx.stream("GET", at.url + path, headers=headers, timeout=20 * MARGIN) as response:
        events = EventSource(response).iter_sse()

        def next_event() -> Read:
            event = next(events)
            return Read(event.event, event.data, event.id)

        yield Reader(next_event)


@contextmanager
def by_sseclient(at: Hub, path: str, last_event_id: str) -> Iterator[Reader]:
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    with httpx.stream("GET", at.url + path, headers=headers, timeout=20 * MARGIN) as response:
        events = SSEClient(response.iter_bytes()).events()

        def next_event() -> Read:
            event = next(events)
            return Read(event.event, event.data, event.id or "")

        yield Reader(next_event)


OPEN = """(() => {{
  window.got = []; window.ends = 0;
  window.source = new EventSource({path});
  const take = (e) => got.push([e.type, e.data, e.lastEventId]);
  for (const kind of {kinds}) source.addEventListener(kind, take);
  source.onerror = () => {{ ends += 1 }};
}})()"""
OURS = ["message", "reset", "superseded", "lagged", "bye"]


def follow(page: Page, path: str, kinds: list[str] | None = None) -> None:
    """Open an EventSource, which notes its events of these types."""
    page.run(OPEN.format(path=json.dumps(path), kinds=json.dumps(kinds or OURS)))


@contextmanager
def by_browser(at: Hub, path: str, last_event_id: str, page: Page) -> Iterator[Reader]:
    if last_event_id:  # no script may set the header; the browser itself does, when it reconnects
        path += ("&" if "?" in path else "?") + f"last_event_id={last_event_id}"
    follow(page, path)
    page.until("source.readyState === 1")
    yield Reader(lambda: Read(*page.until("got.shift()")))
    page.run("source.close()")


READERS = ["httpx-sse", "sseclient-py", pytest.param("browser", marks=needs_browser)]
Opened = Callable[..., Reader]


@pytest.fixture(scope="module")
def running() -> Iterator[Hub]:
    with hub(env={"ANGELIA_KEEPALIVE_SECONDS": str(KEEPALIVE_SECONDS)}) as started:
        yield started


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture
def agent(running: Hub, request: pytest.FixtureRequest) -> str:
    """A name that only this test uses, known and with an empty mailbox."""
    name = f"r{abs(hash(request.node.nodeid)) % 10**9}"
    running.claim(name)
    return name


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Iterator[Opened]:
    """What opens a path of a hub, with a ``Last-Event-ID`` where one is given, and reads it."""
    with ExitStack() as stack:

        def opened(at: Hub, path: str, last_event_id: str = "") -> Reader:
            if request.param == "httpx-sse":
                return stack.enter_context(by_httpx_sse(at, path, last_event_id))
            if request.param == "sseclient-py":
                return stack.enter_context(by_sseclient(at, path, last_event_id))
            page = request.getfixturevalue("chromium").open(f"{at.url}/health")
            return stack.enter_context(by_browser(at, path, last_event_id, page))

        yield opened


def own(name: str, ack: str = "auto") -> str:
    return f"/v1/agents/{name}/stream?ack={ack}"


def is_online(at: Hub, name: str) -> bool:
    return bool(at.get(f"/v1/agents/{name}").json["presence"] == "online")


# ------------------------------------------------------------------------------------------------- three other readers


def test_every_text_arrives_as_it_was_sent(running: Hub, agent: str, reader: Opened) -> None:
    stream = reader(running, own(agent))
    sent = [running.send(agent, text, "sender") for text in TEXTS.values()]
    found = stream.take(len(TEXTS))
    assert [event.kind for event in found] == ["message"] * len(TEXTS)
    for name, event in zip(TEXTS, found, strict=True):
        assert event.json["message"]["text"] == TEXTS[name], name
        assert "again" not in event.json, name
    assert [event.json["message"]["id"] for event in found] == [each["id"] for each in sent]
    epoch = found[0].id.partition("-")[0]
    assert [event.id for event in found] == [f"{epoch}-{each['deliveries'][0]['seq']}" for each in sent]


def test_every_text_arrives_by_the_seeds_stream_too(running: Hub, agent: str, reader: Opened) -> None:
    texts = [text for text in TEXTS.values() if len(text) < MIB // 4]  # a seed's message is a body, with its escapes
    stream = reader(running, f"/subscribe?agent={agent}")
    for text in texts:
        running.broadcast({"type": "test", "text": text}, "sender", agent)
    assert [event.json["text"] for event in stream.take(len(texts))] == texts


def test_keepalives_are_nothing_to_them(running: Hub, agent: str, reader: Opened) -> None:
    """Several go by before, between and after messages; neither is an event, nor do they spoil one."""
    stream = reader(running, own(agent))
    for text in ("one", "two"):
        time.sleep(KEEPALIVE_SECONDS * 6)
        running.send(agent, text, "sender")
        event = stream.next()
        assert (event.kind, event.json["message"]["text"]) == ("message", text)


def test_a_reset_then_everything(running: Hub, agent: str, reader: Opened) -> None:
    running.send(agent, "hi", "sender")
    reset, message = reader(running, own(agent), "00000000-7").take(2)
    assert (reset.kind, reset.json["asked"]) == ("reset", "00000000-7")
    assert (message.kind, message.json["message"]["text"]) == ("message", "hi")


def test_copies_of_what_was_settled_say_again(running: Hub, agent: str, reader: Opened) -> None:
    running.send(agent, "hi", "sender")
    first = reader(running, own(agent)).next()
    ids = [running.send(agent, text, "sender")["id"] for text in ("one", "two")]
    eventually(lambda: all(running.state(each) == "delivered" for each in ids))
    copies = reader(running, own(agent, "manual"), first.id).take(2)
    assert [copy.json["message"]["text"] for copy in copies] == ["one", "two"]
    assert all(copy.json["again"] and "lease" not in copy.json for copy in copies)


def test_a_takeover_is_told(running: Hub, agent: str, reader: Opened) -> None:
    first = reader(running, own(agent))
    reader(running, own(agent))
    assert first.next().kind == "superseded"


def test_goodbye_is_told(reader: Opened) -> None:
    with hub() as at:
        at.claim("scout")
        stream = reader(at, own("scout"))
        eventually(lambda: is_online(at, "scout"))
        at.stop()
        bye = stream.next()
        assert bye.kind == "bye"
        assert 2_000 <= bye.json["retry_ms"] <= 8_000


# ------------------------------------------------------------------------------------------------------ only a browser


@needs_browser
def test_a_browser_comes_back_by_itself_and_goes_on_where_it_was(chromium: Browser) -> None:
    """Its EventSource sends the id to the next hub, which shows nothing twice and leaves nothing out."""
    with hub() as at:
        at.claim("scout")
        page = chromium.open(f"{at.url}/health")
        follow(page, own("scout"))
        page.until("source.readyState === 1")
        at.send("scout", "one", "sender")
        page.until("got.length === 1")
        at.kill9()
        page.until("source.readyState === 0")
        at.start()
        at.send("scout", "two", "sender")
        page.until("got.length === 2", 20 * MARGIN)
        at.send("scout", "three", "sender")
        page.until("got.length === 3")
        shown = page.run("got.map(([kind, data]) => JSON.parse(data).message.text)")
        assert shown == ["one", "two", "three"]
        page.run("source.close()")


TELL = """Promise.race([
  new Promise((done) => setTimeout(() => done("too late"), 20000)),
  (async () => {{ try {{ const r = await fetch({url}, {how}); return [r.type, r.status, await r.text()] }}
                  catch (e) {{ return "refused" }} }})(),
])"""
LOAD = """new Promise((done) => {{ const s = document.createElement("script"); s.src = {url};
  s.onload = () => done("loaded"); s.onerror = () => done("refused"); document.head.append(s) }})"""


@needs_browser
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_reads_and_does_nothing(
    running: Hub, agent: str, chromium: Browser, host: str
) -> None:
    """Another port of this machine, which is the nearest that a stranger comes: the same site, another origin."""
    message_id = running.send(agent, "secret", "sender")["id"]
    before = running.get("/status").json["queues"]
    with FakeHub().on("GET /page", answer(b"<html><head></head></html>", kind="text/html")) as other:
        page = chromium.open(other.url.replace("127.0.0.1", host) + "/page")
        for path in (own(agent), f"/subscribe?agent={agent}"):
            follow(page, running.url + path)
            page.until("source.readyState === 2")  # closed for good, not trying again
            assert page.run("got") == []
        for path in ("/status", "/health", f"/poll?agent={agent}", f"/v1/agents/{agent}/inbox"):
            assert page.run(TELL.format(url=json.dumps(running.url + path), how="{}")) == "refused"
            opaque = page.run(TELL.format(url=json.dumps(running.url + path), how='{mode: "no-cors"}'))
            assert opaque == ["opaque", 0, ""]
            assert page.run(LOAD.format(url=json.dumps(running.url + path))) == "refused"
        written = '{mode: "no-cors", method: "POST", body: JSON.stringify({text: "forged"})}'
        page.run(TELL.format(url=json.dumps(f"{running.url}/broadcast?from=openclaw&to={agent}"), how=written))
    assert running.state(message_id) == "queued"
    assert not is_online(running, agent)
    assert running.get("/status").json["queues"] == before
    assert [each["message"]["text"] for each in running.claim(agent, 10)] == ["secret"]


TYPES = sorted({kind for case in CASES for _, kind, _ in case.expected})
# Chromium 150 does not look at the byte behind a byte order mark, so that a line end there is none.
CHROMIUM_DIFFERS = {"bom before a blank line"}


@needs_browser
def test_a_browser_agrees_with_the_table(chromium: Browser) -> None:
    """Every stream of the table that our own parser is held to."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    with FakeHub().on("GET /page", answer(b"<html></html>", kind="text/html")) as server:
        for number, case in enumerate(CASES):
            server.on(f"GET /{number}", raw(head + case.stream))
        page = chromium.open(f"{server.url}/page")
        differing = {}
        for number, case in enumerate(CASES):
            follow(page, f"/{number}", TYPES)
            page.until("ends > 0 && (source.close(), true)")
            found = [(data, kind, last_id) for kind, data, last_id in page.run("got")]
            if found != case.expected:
                differing[case.name] = found
        assert {name: found for name, found in differing.items() if name not in CHROMIUM_DIFFERS} == {}
