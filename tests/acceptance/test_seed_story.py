"""The seed's own commands, as they stand there, and every trouble that it tells of.

The commands run with the real curl, by a shell; only the port differs.
"""

import json
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.hub import MARGIN, Hub, Stream, environment, eventually, hub

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")

STATUS = "curl http://127.0.0.1:18900/status"
BROADCAST = """curl -X POST "http://127.0.0.1:18900/broadcast?from=openclaw" \\
  -H "Content-Type: application/json" \\
  -d '{"type": "test", "text": "messaggio"}'"""
POLL = 'curl "http://127.0.0.1:18900/poll?agent=hermes"'
SUBSCRIBE = 'curl -N "http://127.0.0.1:18900/subscribe?agent=openclaw"'
SEND = """curl -X POST "http://127.0.0.1:18900/broadcast?from=hermes" -d '{"type": "test", "text": "ciao"}'"""

HEALTH_SECONDS = 0.05  # while streams are open (the design's F062)


@pytest.fixture(scope="module")
def running() -> Iterator[Hub]:
    with hub() as started:
        yield started


@pytest.fixture
def seed(running: Hub) -> Hub:
    """The hub, with the mailboxes of the seed's two agents empty."""
    for name in ("hermes", "openclaw"):
        while running.poll(name):
            pass
    return running


def shell(at: Hub, command: str, **how: Any) -> "subprocess.CompletedProcess[str]":
    """A command of the seed's text in a shell, the port apart, and quietly."""
    words = command.replace("18900", str(at.port)).replace("curl", "curl -sS", 1)
    return subprocess.run(
        words, shell=True, env=environment(at.base), capture_output=True, text=True, timeout=30, check=False, **how
    )


def curl(at: Hub, command: str) -> Any:
    done = shell(at, command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Listening:
    """`curl -N` on a stream, in the background."""

    def __init__(self, at: Hub, command: str) -> None:
        words = command.replace("18900", str(at.port)).replace("curl", "exec curl -sS", 1)
        self.process = subprocess.Popen(
            words, shell=True, env=environment(at.base), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> "Listening":
        assert self.line() == ": connected"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def line(self) -> str:
        assert self.process.stdout is not None
        with ThreadPoolExecutor(1) as reading:
            return reading.submit(self.process.stdout.readline).result(20).rstrip("\n")

    def data(self) -> Any:
        """What the next message holds."""
        while not (line := self.line()).startswith("data: "):
            pass
        return json.loads(line.removeprefix("data: "))


# ----------------------------------------------------------------------------------------------------------- Verifiche


def test_status_as_the_seed_asks_for_it(seed: Hub) -> None:
    found = curl(seed, STATUS)
    assert found["agents"]["hermes"]["online"] is False
    assert found["queues"] == {**found["queues"], "hermes": 0, "openclaw": 0}
    assert found["subscribers"]["openclaw"] is False


def test_broadcast_and_poll_as_the_seed_has_them(seed: Hub) -> None:
    sent = curl(seed, BROADCAST)
    assert sent["stored"] is True
    assert sent["delivered"] is False
    assert "hermes" in sent["to"]
    assert "openclaw" not in sent["to"]
    assert re.fullmatch("[0-9a-f]{32}", sent["id"])
    assert curl(seed, STATUS)["queues"]["hermes"] == 1
    found = curl(seed, POLL)
    [message] = found["messages"]
    assert (found["agent"], found["remaining"]) == ("hermes", 0)
    assert (message["type"], message["text"]) == ("test", "messaggio")
    meta = message["_meta"]
    assert (meta["from"], meta["type"], meta["id"], meta["seq"]) == ("openclaw", "test", sent["id"], sent["seq"])
    assert curl(seed, POLL)["messages"] == []
    eventually(lambda: seed.state(sent["id"]) == "delivered", 1 * MARGIN)


# ------------------------------------------------------------------------------------------------------ Flusso di test


def test_the_seeds_test_flow(seed: Hub) -> None:
    with Listening(seed, SUBSCRIBE) as stream:
        eventually(lambda: curl(seed, STATUS)["subscribers"]["openclaw"])
        begun = time.monotonic()
        sent = curl(seed, SEND)
        message = stream.data()
        took = time.monotonic() - begun
        eventually(lambda: seed.state(sent["id"]) == "delivered")  # written, and still open at the next commit
    assert sent["to"].count("openclaw") == 1
    assert (message["text"], message["_meta"]["from"], message["_meta"]["id"]) == ("ciao", "hermes", sent["id"])
    assert took < 1 * MARGIN  # at once: most of it is the start of curl
    assert curl(seed, POLL.replace("hermes", "openclaw"))["messages"] == []


def test_a_stream_has_the_headers_that_keep_proxies_from_holding_it_back(seed: Hub) -> None:
    with Stream(seed, "/subscribe?agent=openclaw") as stream:
        assert stream.incoming.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "no-store" in stream.incoming.headers["cache-control"]
        assert stream.incoming.headers["x-accel-buffering"] == "no"
        assert stream.events.retry is not None
        seed.broadcast({"type": "test"}, "hermes", "openclaw")
        event = stream.next()
        assert re.fullmatch(r"[0-9a-f]{8}-\d+", event.id)
        assert event.kind == "message"


# ------------------------------------------------------------------------------------------------------- what a -d says


@pytest.mark.parametrize(
    "content",
    ["", "-H 'Content-Type: text/plain'", "-H 'Content-Type:'", "-H 'Content-Type: application/json; charset=utf-8'"],
    ids=["curl's own", "text", "none", "with a charset"],
)
def test_a_body_is_taken_whatever_its_content_type(seed: Hub, content: str) -> None:
    sent = curl(seed, f"curl -X POST 'http://127.0.0.1:18900/broadcast?from=hermes&to=openclaw' {content} -d '{{}}'")
    assert sent["stored"] is True
    [message] = seed.poll("openclaw")
    assert list(message) == ["_meta"]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ('"a word"', {"text": "a word"}),
        ("[1, 2]", {"body": [1, 2]}),
        ("null", {"body": None}),
        ("3.5", {"body": 3.5}),
        ('{"text": 7, "_meta": {"from": "human"}}', {"text": 7}),
    ],
)
def test_any_json_goes_through_as_it_is(seed: Hub, body: str, shown: dict[str, Any]) -> None:
    sent = seed.post("/broadcast?from=hermes&to=openclaw", body.encode())
    assert sent.status == 200
    [message] = seed.poll("openclaw")
    assert message.pop("_meta")["from"] == "hermes"
    assert message == shown


@pytest.mark.parametrize(
    ("query", "body", "status", "code"),
    [
        ("", b"{}", 400, "bad_request"),
        ("?from=", b"{}", 400, ""),
        ("?from=no+such+name", b"{}", 400, "bad_name"),
        ("?from=../x", b"{}", 400, "bad_name"),
        ("?from=human", b"{}", 400, "bad_name"),
        ("?from=interop", b"{}", 400, "bad_name"),
        ("?from=hermes&to=", b"{}", 400, "bad_name"),
        ("?from=hermes&to=hremes", b"{}", 404, "unknown_agent"),
        ("?from=hermes", b"{", 400, "bad_json"),
        ("?from=hermes", b"", 400, "bad_json"),
        ("?from=hermes", b'{"a": "' + b"a" * (2 * 1024 * 1024) + b'"}', 413, "too_large"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_stored(
    seed: Hub, query: str, body: bytes, status: int, code: str
) -> None:
    answer = seed.post(f"/broadcast{query}", body)
    assert answer.status == status
    assert answer.code == (code or answer.code)
    assert seed.get("/status").json["queues"] == {**seed.get("/status").json["queues"], "hermes": 0, "openclaw": 0}


# ------------------------------------------------------------------------------------------------------- its troubles


def test_streams_never_delay_health(seed: Hub) -> None:
    """ThreadingMixIn — CRITICAL: with a client on the stream, everything else hung."""
    with Stream(seed, "/subscribe?agent=openclaw") as stream, Stream(seed, "/subscribe?agent=hermes"):
        took = []
        for number in range(100):
            seed.broadcast({"n": number}, "hermes", "openclaw")
            begun = time.monotonic()
            assert seed.kept("GET", "/health").json["status"] == "ok"
            took.append(time.monotonic() - begun)
            assert seed.kept("GET", "/status").json["subscribers"]["openclaw"] is True
        stream.messages(100)
    assert statistics.median(took) < HEALTH_SECONDS
    assert max(took) < 1 * MARGIN


def test_a_second_server_does_not_start(seed: Hub) -> None:
    """CRITICAL BUG, multiple server processes: here the second says who serves, changes nothing and ends with 3."""
    same_folder = seed.run("up", "--port", "0", "--data-dir", str(seed.folder))
    assert same_folder.returncode == 3
    assert str(seed.pid) in same_folder.stderr
    assert str(seed.port) in same_folder.stderr
    same_port = seed.run("up", "--port", str(seed.port), "--data-dir", str(seed.base / "other"))
    assert same_port.returncode == 3
    assert str(seed.port) in same_port.stderr
    with Stream(seed, "/subscribe?agent=openclaw") as stream:
        seed.broadcast({"still": "here"}, "hermes", "openclaw")
        assert stream.next().json["still"] == "here"


def test_poll_and_stream_read_the_same_mailbox(seed: Hub) -> None:
    """CRITICAL BUG, double queue: nothing is stranded in one while the other is read, and nothing comes twice."""
    for number in range(3):
        seed.broadcast({"n": number}, "hermes", "openclaw")
    [first] = seed.poll("openclaw", limit=1)
    seen = [first["n"]]
    with Stream(seed, "/subscribe?agent=openclaw") as stream:
        seen += [event.json["n"] for event in stream.messages(2)]
        seed.broadcast({"n": 3}, "hermes", "openclaw")
        seen.append(stream.next().json["n"])
        assert seed.poll("openclaw") == []
    eventually(lambda: not seed.get("/status").json["subscribers"]["openclaw"])
    seed.broadcast({"n": 4}, "hermes", "openclaw")
    seen += [message["n"] for message in seed.poll("openclaw")]
    assert seen == [0, 1, 2, 3, 4]


def test_a_stream_that_comes_back_gets_what_waited(seed: Hub) -> None:
    """Reconnect flush."""
    with Stream(seed, "/subscribe?agent=openclaw") as stream:
        seed.broadcast({"n": 0}, "hermes", "openclaw")
        assert stream.next().json["n"] == 0
        last_id = stream.last_id
    eventually(lambda: not seed.get("/status").json["subscribers"]["openclaw"])
    for number in (1, 2, 3):
        assert seed.broadcast({"n": number}, "hermes", "openclaw")["delivered"] is False
    with Stream(seed, "/subscribe?agent=openclaw", last_event_id=last_id) as stream:
        assert [event.json["n"] for event in stream.messages(3)] == [1, 2, 3]
        assert seed.broadcast({"n": 4}, "hermes", "openclaw")["delivered"] is True
        assert stream.next().json["n"] == 4


def test_polling_leaves_nothing_stranded(seed: Hub) -> None:
    for number in range(250):
        seed.broadcast({"n": number}, "hermes", "openclaw")
    seen: list[int] = []
    while True:
        answer = seed.kept("GET", "/poll?agent=openclaw&limit=40").json
        seen += [message["n"] for message in answer["messages"]]
        assert answer["remaining"] == 250 - len(seen)
        if not answer["messages"]:
            break
    assert seen == list(range(250))
    assert seed.inbox("openclaw")["total"] == 0


def test_a_poll_may_wait(seed: Hub) -> None:
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(lambda: seed.get("/poll?agent=openclaw&wait=20").json["messages"])
        begun = time.monotonic()
        seed.broadcast({"n": 1}, "hermes", "openclaw")
        assert [message["n"] for message in waiting.result(20)] == [1]
    assert time.monotonic() - begun < 1 * MARGIN


def test_what_a_poll_took_and_did_not_get_comes_back(seed: Hub) -> None:
    """A client that hangs up while its answer is on the way has not received it."""
    for number in range(18):
        seed.broadcast({"n": number, "fill": "x" * 900_000}, "hermes", "openclaw")
    with seed.raw() as sock:
        sock.sendall(b"GET /poll?agent=openclaw HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert sock.recv(1000)  # begun, and far more than the kernel holds is to come
    seen: list[int] = []
    eventually(lambda: _poll_more(seed, seen) >= 18, 20)
    assert sorted(seen) == list(range(18))


def _poll_more(at: Hub, seen: list[int]) -> int:
    found = at.poll("openclaw")
    assert all(message["_meta"]["attempt"] > 1 for message in found if message["n"] < 5)
    seen += [message["n"] for message in found]
    return len(seen)


@pytest.mark.parametrize("who", ["openclaw", "hermes"])
def test_who_connects_is_told_to_the_other(who: str) -> None:
    """Notifica automatica al connect: on the stream at once where there is one, else in the mailbox."""
    other = {"openclaw": "hermes", "hermes": "openclaw"}[who]
    with hub() as fresh:
        with Stream(fresh, f"/subscribe?agent={who}"):
            [notice] = eventually(lambda: fresh.poll(other), 5)
        assert notice["type"] == "subscriber_connected"
        assert notice["agent"] == who
        assert who in notice["text"]
        assert notice["_meta"]["from"] == "interop"
        assert notice["_meta"]["type"] == "subscriber_connected"
        assert notice["_meta"]["kind"] == "notice"


def test_the_notice_comes_live_where_the_other_listens() -> None:
    with hub() as fresh, Stream(fresh, "/subscribe?agent=hermes") as hermes:
        with Stream(fresh, "/subscribe?agent=openclaw") as openclaw:
            event = hermes.next()
            assert (event.id, event.json["type"], event.json["agent"]) == ("", "subscriber_connected", "openclaw")
            # It was told of hermes, who had connected before, and is not told of itself.
            assert [each.json["agent"] for each in openclaw.quiet(0.3)] == ["hermes"]
        with Stream(fresh, "/subscribe?agent=openclaw"):  # a break shorter than 30 s is no news
            assert hermes.quiet(0.5) == []
        fresh.broadcast({"n": 1}, "openclaw", "hermes")
        assert hermes.next().json["n"] == 1
        [stored] = eventually(lambda: fresh.inbox("hermes", state="delivered")["deliveries"])
        assert stored["message"]["body"] == {"n": 1}


def test_notices_that_nobody_reads_do_not_pile_up() -> None:
    with hub(env={"ANGELIA_LIMITS_PRESENCE_GAP_SECONDS": "1"}) as fresh:
        for _ in range(3):
            with Stream(fresh, "/subscribe?agent=openclaw"):
                eventually(lambda: fresh.get("/status").json["subscribers"]["openclaw"])
            eventually(lambda: not fresh.get("/status").json["subscribers"]["openclaw"])
            time.sleep(1.1)  # longer than the gap
        assert fresh.get("/status").json["queues"]["hermes"] == 1
        assert len(fresh.poll("hermes")) == 1


def test_a_stream_that_breaks_while_it_is_written_to_harms_nobody(seed: Hub) -> None:
    """BrokenPipeError fix: the sender gets its answer, and what was not received comes back."""
    for _ in range(10):
        sent = []
        for number in range(6):  # ten breaks of one message would make it a dead letter
            stream = Stream(seed, "/subscribe?agent=openclaw")
            if number % 2:
                stream.abort()
            sent.append(seed.broadcast({"n": number}, "hermes", "openclaw")["id"])
            stream.abort()
        eventually(lambda: not seed.get("/status").json["subscribers"]["openclaw"])
        # Each is where it belongs: it went out to a stream that was still open, or it waits.
        waiting = [message["_meta"]["id"] for message in seed.poll("openclaw")]
        assert waiting == [message_id for message_id in sent if message_id in waiting]
        for message_id in set(sent) - set(waiting):
            assert seed.state(message_id) == "delivered"


def test_the_hub_is_found_on_either_loopback_and_by_name(seed: Hub) -> None:
    for number, host in enumerate(("127.0.0.1", "[::1]", "localhost")):
        sent = curl(seed, SEND.replace("127.0.0.1", host).replace("from=hermes", "from=hermes&to=openclaw"))
        assert sent["stored"] is True, number
    assert len(curl(seed, POLL.replace("127.0.0.1", "[::1]").replace("hermes", "openclaw"))["messages"]) == 3
    with Listening(seed, SUBSCRIBE.replace("127.0.0.1", "[::1]")) as stream:
        curl(seed, SEND.replace("127.0.0.1", "localhost"))
        assert stream.data()["text"] == "ciao"
