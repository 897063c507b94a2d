"""Calls: what goes out, what comes back, and what is repeated under which id."""

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from angelia.client.calls import Calls
from angelia.client.errors import AskFailed, HubError, LostHub, NoHub, NotAHub, TimedOut
from tests.fakes.fake_hub import FakeHub, answer, drop, hold, problem, raw

SENT = {"id": "0" * 32, "thread": "0" * 32, "deliveries": [{"to": "hermes", "seq": 1, "state": "queued"}]}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as fake:
        yield fake


@pytest.fixture
def calls(hub: FakeHub) -> Iterator[Calls]:
    with Calls(hub.url, name="scout", patience_seconds=5, pause=lambda _: None) as made:
        yield made


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# ---- what goes out


def test_a_send_says_what_was_given_and_nothing_else(hub: FakeHub, calls: Calls) -> None:
    hub.on("POST /v1/messages", answer(SENT, 201))
    text = "“quotes”\n'and'\r\n\ttabs 🐝 \u2028\0end"
    assert calls.send("hermes", text, body=None, intent="request", ttl_seconds=90) == SENT
    said = hub.requests[0].json
    assert len(said.pop("id")) == 32
    assert said == {"to": "hermes", "text": text, "body": None, "intent": "request", "ttl_seconds": 90, "from": "scout"}


def test_200_kb_arrive_as_they_were(hub: FakeHub, calls: Calls) -> None:
    hub.on("POST /v1/messages", answer(SENT, 201))
    text = "añ🐝\n" * 30_000
    calls.send("hermes", text)
    assert hub.requests[0].json["text"] == text


def test_a_token_goes_along(hub: FakeHub) -> None:
    hub.on("GET /status", answer({}))
    with Calls(hub.url, name="scout", token="secret") as calls:
        calls.status()
    assert hub.requests[0].headers["authorization"] == "Bearer secret"


def test_whatever_is_in_a_name_stays_one_part_of_the_path(hub: FakeHub, calls: Calls) -> None:
    with pytest.raises(HubError):
        calls.agent("../a b/ç?x#y")
    assert hub.requests[0].path == "/v1/agents/..%2Fa%20b%2F%C3%A7%3Fx%23y"


@pytest.mark.parametrize(
    ("call", "route", "body"),
    [
        (lambda c: c.reply("a", "hi", id="5"), "POST /v1/messages/a/reply", {"text": "hi", "from": "scout", "id": "5"}),
        (lambda c: c.claim(limit=3), "POST /v1/agents/scout/claim", {"limit": 3, "wait_seconds": 0.0}),
        (lambda c: c.ack("7-1-ff"), "POST /v1/leases/7-1-ff/ack", {}),
        (lambda c: c.nack("7-1-ff", reason="no"), "POST /v1/leases/7-1-ff/nack", {"reason": "no"}),
        (lambda c: c.renew("7-1-ff", lease_seconds=9), "POST /v1/leases/7-1-ff/renew", {"lease_seconds": 9}),
        (lambda c: c.cancel("ab"), "POST /v1/messages/ab/cancel", {}),
        (lambda c: c.put_agent("x", title=""), "PUT /v1/agents/x", {"title": ""}),
        (lambda c: c.new_token("x"), "POST /v1/agents/x/token", {}),
        (lambda c: c.requeue("7"), "POST /v1/dead-letters/7/requeue", {}),
        (lambda c: c.drop("7"), "POST /v1/dead-letters/7/drop", {}),
        (lambda c: c.down(), "POST /v1/down", {}),
    ],
)
def test_each_call_that_says_something(hub: FakeHub, calls: Calls, call: Any, route: str, body: object) -> None:
    hub.on(route, answer({"fine": True}))
    assert call(calls) == {"fine": True}
    assert hub.requests[0].json == body


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (lambda c: c.inbox(after=4, limit=2, state="queued", sender="a b"),
         "GET /v1/agents/scout/inbox?after=4&limit=2&state=queued&from=a+b"),
        (lambda c: c.inbox(), "GET /v1/agents/scout/inbox"),
        (lambda c: c.message("ab", wait_seconds=2), "GET /v1/messages/ab?wait=2"),
        (lambda c: c.dead_letters(), "GET /v1/dead-letters"),
        (lambda c: c.status(), "GET /status"),
        (lambda c: c.remove_agent("x"), "DELETE /v1/agents/x"),
    ],
)  # fmt: skip
def test_each_call_that_only_asks(hub: FakeHub, calls: Calls, call: Any, asked: str) -> None:
    hub.on(asked.partition("?")[0], answer({"fine": True}))
    call(calls)
    assert f"{hub.requests[0].method} {hub.requests[0].path}" == asked
    assert not hub.requests[0].body


def test_a_caller_without_a_name_has_no_mailbox(hub: FakeHub) -> None:
    with Calls(hub.url) as calls, pytest.raises(ValueError, match="name"):
        calls.inbox()


def test_over_a_unix_socket() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        FakeHub(Path(folder, "s")).on("GET /status", answer({"a": 1})) as hub,
        Calls(hub.url) as calls,
    ):
        assert calls.status() == {"a": 1}


# ---- what comes back


def test_a_refusal_says_why_and_what_helps(hub: FakeHub, calls: Calls) -> None:
    hub.on("POST /v1/messages", problem(404, "unknown_agent", "Nobody is called 'hermse'.", suggestions=["hermes"]))
    with pytest.raises(HubError, match="hermse") as caught:
        calls.send("hermse", "hi")
    assert (caught.value.status, caught.value.code) == (404, "unknown_agent")
    assert caught.value.extra == {"suggestions": ["hermes"]}
    assert len(hub.requests) == 1


def test_no_hub_is_said_at_once() -> None:
    with Calls(f"http://127.0.0.1:{free_port()}") as calls, pytest.raises(NoHub, match="refused") as caught:
        calls.send("hermes", "hi")
    assert not isinstance(caught.value, LostHub)


@pytest.mark.parametrize(
    "reply",
    [
        answer(b"<html>", kind="text/html"),
        answer([1, 2]),
        answer({"detail": "other"}, 404),
        answer({"code": 17}, 400),
        answer(b"[" * 100_000),
        raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    ],
)
def test_another_programs_answer_is_not_taken_for_a_hubs(hub: FakeHub, calls: Calls, reply: Any) -> None:
    hub.on("GET /status", reply)
    with pytest.raises(NotAHub):
        calls.status()


def test_health_of_another_program(hub: FakeHub, calls: Calls) -> None:
    hub.on("GET /health", answer({"status": "ok"}))
    with pytest.raises(NotAHub, match="something else"):
        calls.health()


def test_an_unwell_hub_tells_its_health(hub: FakeHub, calls: Calls) -> None:
    hub.on("GET /health", answer({"product": "angelia", "status": "unwell"}, 503))
    assert calls.health()["status"] == "unwell"


def test_a_hub_that_says_nothing(hub: FakeHub) -> None:
    hub.on("POST /v1/messages", hold)
    with Calls(hub.url, name="scout", answer_seconds=0.05) as calls, pytest.raises(TimedOut) as caught:
        calls.send("hermes", "hi", id="a" * 32)
    assert caught.value.message_id == "a" * 32


def test_an_answer_that_was_cut_off_is_none(hub: FakeHub, calls: Calls) -> None:
    hub.on("GET /status", raw(b'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"a": 1}'))
    with pytest.raises(LostHub, match="cut off"):
        calls.status()


def test_an_early_refusal_is_heard_though_the_hub_did_not_listen_to_the_end(hub: FakeHub, calls: Calls) -> None:
    hub.on("POST /v1/messages", problem(413, "too_large", limit=5))
    with pytest.raises(HubError, match="Because"):
        calls.send("hermes", "x" * 3_000_000)


# ---- kept connections


def test_one_connection_serves_many_calls(hub: FakeHub, calls: Calls) -> None:
    hub.on("GET /status", answer({"a": 1}))
    for _ in range(5):
        calls.status()
    assert len(hub._open) == 1


def test_a_kept_connection_that_the_hub_closed_meanwhile(hub: FakeHub, calls: Calls) -> None:
    hub.on("GET /status", raw(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'))
    for _ in range(5):
        assert calls.status() == {"a": 1}
    assert len(hub._open) == 5


def test_a_kept_connection_that_breaks_under_the_request_is_tried_once_more(hub: FakeHub, calls: Calls) -> None:
    hub.on("GET /status", answer({"a": 1})).on("POST /v1/leases/x/ack", drop, answer({"state": "delivered"}))
    calls.status()
    assert calls.ack("x") == {"state": "delivered"}
    assert len(hub.asked("POST /v1/leases/x/ack")) == 2


# ---- repeats


def ids(hub: FakeHub, route: str = "POST /v1/messages") -> list[str]:
    return [request.json["id"] for request in hub.asked(route)]


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
def test_a_send_of_unknown_outcome_is_repeated_under_its_id(hub: FakeHub, calls: Calls, first: Any) -> None:
    hub.on("POST /v1/messages", first, first, answer(SENT, 201))
    assert calls.send("hermes", "hi") == SENT
    assert len(ids(hub)) == 3
    assert len(set(ids(hub))) == 1
    assert hub.requests[0].body == hub.requests[2].body


def test_a_given_id_is_kept(hub: FakeHub, calls: Calls) -> None:
    hub.on("POST /v1/messages", drop, answer(SENT, 201))
    calls.send("hermes", "hi", id="a" * 32)
    assert ids(hub) == ["a" * 32, "a" * 32]


def test_a_reply_is_repeated_under_its_id_too(hub: FakeHub, calls: Calls) -> None:
    hub.on("POST /v1/messages/ab/reply", drop, answer(SENT, 201))
    calls.reply("ab", "hi")
    assert len(set(ids(hub, "POST /v1/messages/ab/reply"))) == 1


def test_what_a_hub_refuses_for_good_is_not_repeated(hub: FakeHub, calls: Calls) -> None:
    hub.on("POST /v1/messages", problem(429, "mailbox_full"))
    with pytest.raises(HubError):
        calls.send("hermes", "hi")
    assert len(hub.requests) == 1


def test_patience_ends_and_the_id_is_told(hub: FakeHub) -> None:
    hub.on("POST /v1/messages", drop)
    calls = Calls(hub.url, name="scout", patience_seconds=0.2, pause=lambda _: None)
    with calls, pytest.raises(LostHub) as error:
        calls.send("hermes", "hi")
    assert error.value.message_id == ids(hub)[0]
    assert len(set(ids(hub))) == 1


def test_a_hub_that_vanishes_after_it_may_have_heard_is_not_called_absent() -> None:
    with FakeHub() as hub:
        hub.on("POST /v1/messages", drop)
        url = hub.url

        def stop(_: float) -> None:
            hub.__exit__(None, None, None)

        with Calls(url, name="scout", patience_seconds=0.3, pause=stop) as calls, pytest.raises(LostHub) as error:
            calls.send("hermes", "hi")
    assert error.value.message_id


def test_a_hub_may_say_when_to_come_back(hub: FakeHub) -> None:
    waits: list[float] = []
    hub.on("POST /v1/messages", problem(503, "outcome_unknown", retry_after_seconds=3), answer(SENT, 201))
    with Calls(hub.url, name="scout", patience_seconds=5, pause=waits.append) as calls:
        calls.send("hermes", "hi")
    assert waits == [3]


# ---- ask


REPLY = {"id": "0" * 32, "reply": {"id": "1" * 32, "from": "hermes", "text": "8080"}}
NOT_YET = {"id": "0" * 32, "deliveries": [{"to": "hermes", "seq": 1, "state": "leased"}]}


def test_an_ask_asks_on_under_its_id_until_there_is_an_answer(hub: FakeHub, calls: Calls) -> None:
    hub.on("POST /v1/ask", answer(NOT_YET, 202), drop, answer(NOT_YET, 202), answer(REPLY))
    assert calls.ask("hermes", "which port?", wait_seconds=60) == REPLY
    asked = [request.json for request in hub.asked("POST /v1/ask")]
    assert len({each["id"] for each in asked}) == 1
    assert all(0 < each["wait_seconds"] <= 60 for each in asked)


def test_an_ask_that_fails(hub: FakeHub, calls: Calls) -> None:
    hub.on("POST /v1/ask", answer({"id": "0" * 32, "failure": {"reason": "queued_expired", "text": "Nobody took it."}}))
    with pytest.raises(AskFailed, match="Nobody took it") as caught:
        calls.ask("hermes", "which port?", id="a" * 32)
    assert (caught.value.reason, caught.value.message_id) == ("queued_expired", "a" * 32)


def test_an_ask_without_an_answer_in_time(hub: FakeHub, calls: Calls) -> None:
    hub.on("POST /v1/ask", answer(NOT_YET, 202))
    with pytest.raises(TimedOut) as caught:
        calls.ask("hermes", "which port?", id="a" * 32, wait_seconds=0)
    assert caught.value.message_id == "a" * 32
    assert len(hub.requests) == 1
