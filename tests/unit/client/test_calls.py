"""Calls over real sockets, by both drivers: the bytes that go out, what is heard of the answer, what is kept open.

What is decided about a call stands in ``core`` and is tested there.
"""

import asyncio
import inspect
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import angelia
from angelia.client.aio.client import AsyncClient
from angelia.client.calls import Calls
from angelia.client.client import Client
from angelia.client.core.verbs import Verbs
from angelia.client.errors import HubError, LostHub, NoHub, NotAHub, TimedOut
from tests.acceptance.hub import free_port
from tests.fakes.fake_hub import FakeHub, answer, drop, hold, problem, raw
from tests.rigs.drivers import DRIVERS, EVERY_LOOP, Driver

SENT = {"id": "0" * 32, "thread": "0" * 32, "deliveries": [{"to": "hermes", "seq": 1, "state": "queued"}]}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as fake:
        yield fake


@pytest.fixture(params=EVERY_LOOP)
def driver(request: pytest.FixtureRequest) -> Any:
    return EVERY_LOOP[request.param]


@pytest.fixture
def calls(hub: FakeHub, driver: Any) -> Iterator[Driver]:
    with driver(hub.url, name="scout", patience_seconds=5, pause=lambda _: None) as made:
        yield made


# ---- what goes out


def test_what_a_request_looks_like(hub: FakeHub, driver: Any) -> None:
    hub.on("POST /v1/messages", answer(SENT, 201))
    with driver(hub.url, name="scout", token="secret") as calls:
        assert calls.send("hermes", "hi", key="deploy-7") == SENT
    request = hub.requests[0]
    assert request.headers["host"] == hub.url.removeprefix("http://")
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["idempotency-key"] == "deploy-7"
    assert request.headers["content-type"] == request.headers["accept"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert int(request.headers["content-length"]) == len(request.body)


def test_a_request_without_a_body(hub: FakeHub, calls: Driver) -> None:
    hub.on("GET /status", answer({})).on("DELETE /v1/agents/x", answer({}))
    calls.status()
    calls.remove_agent("x")
    for request in hub.requests:
        assert not request.body
        assert "content-type" not in request.headers
        assert "content-length" not in request.headers


def test_200_kb_arrive_as_they_were(hub: FakeHub, calls: Driver) -> None:
    hub.on("POST /v1/messages", answer(SENT, 201))
    text = "añ🐝\n\r\0\u2028" * 30_000
    calls.send("hermes", text)
    assert hub.requests[0].json["text"] == text


def test_whatever_is_in_a_name_stays_one_part_of_the_path(hub: FakeHub, calls: Driver) -> None:
    with pytest.raises(HubError):
        calls.agent("../a b/ç?x#y")
    assert hub.requests[0].path == "/v1/agents/..%2Fa%20b%2F%C3%A7%3Fx%23y"


@pytest.mark.parametrize("wrong", ["a\r\nX-Forged: 1", "a\nb", "a\rb", "…"])
def test_what_would_end_a_header_early_is_refused(hub: FakeHub, calls: Driver, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"header|latin-1"):
        calls.send("hermes", "hi", key=wrong)
    assert not hub.requests


def test_over_a_unix_socket(driver: Any) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        FakeHub(Path(folder, "s")).on("GET /status", answer({"a": 1})) as hub,
        driver(hub.url) as calls,
    ):
        assert calls.status() == {"a": 1}
        assert hub.requests[0].headers["host"] == "localhost"


# ---- what comes back


def test_a_refusal_says_why_and_what_helps(hub: FakeHub, calls: Driver) -> None:
    hub.on("POST /v1/messages", problem(404, "unknown_agent", "Nobody is called 'hermse'.", suggestions=["hermes"]))
    with pytest.raises(HubError, match="hermse") as caught:
        calls.send("hermse", "hi")
    assert (caught.value.status, caught.value.code) == (404, "unknown_agent")
    assert caught.value.extra == {"suggestions": ["hermes"]}


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "http://localhost:{port}"])
def test_no_hub_is_said_at_once(driver: Any, url: str) -> None:
    with driver(url.format(port=free_port())) as calls, pytest.raises(NoHub, match=r"refused|failed") as caught:
        calls.send("hermes", "hi")
    assert not isinstance(caught.value, LostHub)


@pytest.mark.parametrize(("url", "says"), [("unix:/nowhere/x.sock", "No such file"), ("http://no..host:1", "label")])
def test_no_way_there(driver: Any, url: str, says: str) -> None:
    with driver(url) as calls, pytest.raises(NoHub, match=says):
        calls.status()


@pytest.mark.parametrize(
    "reply",
    [
        answer(b"<html>", kind="text/html"),
        answer([1, 2]),
        answer({"detail": "other"}, 404),
        answer({"code": 17}, 400),
        answer(b"[" * 100_000),
        answer(b"", 307, Location="http://elsewhere/"),
        raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    ],
)
def test_another_programs_answer_is_not_taken_for_a_hubs(hub: FakeHub, calls: Driver, reply: Any) -> None:
    hub.on("GET /status", reply)
    with pytest.raises(NotAHub):
        calls.status()
    assert len(hub.requests) == 1


def test_health_of_another_program(hub: FakeHub, calls: Driver) -> None:
    hub.on("GET /health", answer({"status": "ok"}))
    with pytest.raises(NotAHub, match="something else"):
        calls.health()


def test_to_a_server_that_knows_no_acks_nothing_is_sent_and_nothing_is_taken(hub: FakeHub, calls: Driver) -> None:
    """F026. The first bus answers what it does not know with a 404 of its own: this is said at once, no call is tried
    by an older path in its place, so that nothing is there twice or handed over without an ack."""
    for route in ("POST /v1/messages", "POST /v1/agents/scout/claim", "GET /v1/agents/scout/stream"):
        hub.on(route, answer({"error": "not found"}, 404))
    hub.on("GET /health", answer({"status": "ok", "port": 18900}))
    for call in (lambda: calls.send("hermes", "hi"), calls.claim, calls.health, lambda: next(calls.messages())):
        before = len(hub.requests)
        with pytest.raises(NotAHub):
            call()
        assert len(hub.requests) == before + 1
    assert not [request for request in hub.requests if request.path.startswith(("/broadcast", "/poll", "/subscribe"))]


def test_a_hub_that_says_nothing(hub: FakeHub, driver: Any) -> None:
    hub.on("POST /v1/messages", hold)
    with driver(hub.url, name="scout", answer_seconds=0.05) as calls, pytest.raises(TimedOut) as caught:
        calls.send("hermes", "hi", id="a" * 32)
    assert caught.value.message_id == "a" * 32


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "bytes_of_it",
    [
        HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}',
        HEAD + b'Transfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n5\r\n": 1}\r\n0\r\n\r\n',
        HEAD + b'Connection: close\r\n\r\n{"a": 1}',
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}',
    ],
)
def test_every_way_to_frame_an_answer(hub: FakeHub, calls: Driver, bytes_of_it: bytes) -> None:
    hub.on("GET /status", raw(bytes_of_it))
    assert calls.status() == {"a": 1}


@pytest.mark.parametrize(
    "bytes_of_it",
    [
        b"HTTP/1.1 200 OK\r\nContent-Le",
        HEAD + b'Content-Length: 50\r\n\r\n{"a": 1}',
        HEAD + b'Transfer-Encoding: chunked\r\n\r\n8\r\n{"a": 1}\r\n',
        HEAD + b"Content-Length: 50\r\n\r\n",
    ],
)
def test_an_answer_that_was_cut_off_is_none(hub: FakeHub, calls: Driver, bytes_of_it: bytes) -> None:
    hub.on("GET /status", raw(bytes_of_it))
    with pytest.raises(LostHub):
        calls.status()


def test_an_early_refusal_is_heard_though_the_hub_did_not_listen_to_the_end(hub: FakeHub, calls: Driver) -> None:
    hub.on("POST /v1/messages", problem(413, "too_large", limit=5))
    with pytest.raises(HubError, match="Because"):
        calls.send("hermes", "x" * 3_000_000)


# ---- kept connections


def test_one_connection_serves_many_calls(hub: FakeHub, calls: Driver) -> None:
    hub.on("GET /status", answer({"a": 1}))
    for _ in range(5):
        calls.status()
    assert len(hub._open) == 1


@pytest.mark.parametrize("ends", [b'Content-Length: 8\r\n\r\n{"a": 1}', b'Connection: close\r\n\r\n{"a": 1}'])
def test_a_kept_connection_that_the_hub_closed_meanwhile(hub: FakeHub, calls: Driver, ends: bytes) -> None:
    hub.on("GET /status", raw(HEAD + ends))
    for _ in range(5):
        assert calls.status() == {"a": 1}
    assert len(hub._open) == 5


def test_a_kept_connection_that_breaks_under_the_request_is_tried_once_more(hub: FakeHub, calls: Driver) -> None:
    hub.on("GET /status", answer({"a": 1})).on("POST /v1/leases/x/ack", drop, answer({"state": "delivered"}))
    calls.status()
    assert calls.ack("x") == {"state": "delivered"}
    assert len(hub.asked("POST /v1/leases/x/ack")) == 2


def test_something_unasked_is_no_answer_to_the_next_request(hub: FakeHub, calls: Driver) -> None:
    def twice(sock: socket.socket) -> bool:
        sock.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}' * 2)
        return True

    hub.on("GET /status", twice).on("GET /v1/agents/x", answer({"b": 2}))
    assert calls.status() == {"a": 1}
    assert calls.agent("x") == {"b": 2}
    if isinstance(calls.client, AsyncClient):  # http.client has read it away and knows nothing of it
        assert len(hub._open) == 2


async def test_a_call_that_was_cancelled_leaves_its_answer_to_nobody(hub: FakeHub) -> None:
    late = threading.Event()

    def answer_late(sock: socket.socket) -> bool:
        late.wait(10)
        return answer({"state": "delivered"})(sock)

    hub.on("POST /v1/leases/x/ack", answer_late).on("GET /status", answer({"a": 1}))
    async with AsyncClient(hub.url) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.ack("x")
        late.set()
        assert await client.status() == {"a": 1}
    assert len(hub._open) == 2


# ---- repeats


@pytest.mark.parametrize(
    "first",
    [
        drop,
        raw(b"HTTP/1.1 201 Created\r\nContent-Le"),
        raw(b'HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{"id"'),
        problem(503, "outcome_unknown"),
        problem(503, "stopping"),
        answer(b"Bad gateway", 502, "text/plain"),
    ],
)
def test_a_send_of_unknown_outcome_is_repeated_under_its_id(hub: FakeHub, calls: Driver, first: Any) -> None:
    hub.on("POST /v1/messages", first, first, answer(SENT, 201))
    assert calls.send("hermes", "hi") == SENT
    assert len({request.json["id"] for request in hub.requests}) == 1
    assert len(hub.requests) == 3
    assert hub.requests[0].body == hub.requests[2].body


def test_a_hub_that_vanishes_after_it_may_have_heard_is_not_called_absent(driver: Any) -> None:
    with FakeHub() as hub:
        hub.on("POST /v1/messages", drop)

        def stop(_: float) -> None:
            hub.__exit__(None, None, None)

        with driver(hub.url, name="scout", patience_seconds=0.3, pause=stop) as calls, pytest.raises(LostHub) as error:
            calls.send("hermes", "hi")
    assert error.value.message_id


def test_an_outbox_is_kept_and_flushed(hub: FakeHub, driver: Any, tmp_path: Path) -> None:
    with driver(f"http://127.0.0.1:{free_port()}", name="scout", outbox=tmp_path / "out") as calls:
        assert calls.send("hermes", "one")["kept"]
        assert calls.reply("a" * 32, "two")["kept"]
    hub.on("POST /v1/messages", answer(SENT, 201)).on(f"POST /v1/messages/{'a' * 32}/reply", answer(SENT, 201))
    with driver(hub.url, name="scout", outbox=tmp_path / "out") as calls:
        assert len(calls.flush()["sent"]) == 2
    assert [request.json["text"] for request in hub.requests] == ["one", "two"]


# ---- the two clients


def public(kind: type) -> dict[str, Any]:
    return {name: found for name, found in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_both_clients_have_the_same_calls_with_the_same_arguments_and_words() -> None:
    blocking, asynchronous = public(Client), public(AsyncClient)
    assert list(blocking) == list(asynchronous)
    for name, call in blocking.items():
        assert inspect.signature(call) == inspect.signature(asynchronous[name]), name
        if name != "close":
            assert call.__doc__ == asynchronous[name].__doc__, name


def test_every_verb_is_a_call() -> None:
    verbs = {name for name in public(Verbs) if name != "me"}
    assert verbs | {"close"} == set(public(Calls))
    assert all(call.__doc__ for call in public(Client).values())


def test_they_take_the_same_to_begin_with() -> None:
    blocking, asynchronous = inspect.signature(Client).parameters, inspect.signature(AsyncClient).parameters
    assert list(blocking) == list(asynchronous)
    assert {name: given.default for name, given in blocking.items() if name != "pause"} == {
        name: given.default for name, given in asynchronous.items() if name != "pause"
    }


def test_they_are_found_at_the_package_root() -> None:
    assert angelia.Client is Client
    assert angelia.AsyncClient is AsyncClient
    with pytest.raises(AttributeError, match="Bus"):
        angelia.Bus  # noqa: B018


def test_tasks_call_side_by_side(hub: FakeHub) -> None:
    """One that waits for its answer keeps nobody else from asking."""
    hub.on("POST /v1/leases/slow/ack", hold).on("GET /status", answer({"a": 1}))
    with DRIVERS["asyncio"](hub.url, answer_seconds=5, patience_seconds=0.5) as calls:

        def wait() -> None:
            with pytest.raises(LostHub):
                calls.ack("slow")

        slow = threading.Thread(target=wait)
        slow.start()
        hub.wait_for("POST /v1/leases/slow/ack")
        assert calls.status() == {"a": 1}
        hub.__exit__(None, None, None)
        slow.join(10)
