"""What the hub refuses, and how it says so: a problem with a stable code each, nothing stored, nothing internal."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.hub import Hub, eventually, hub

MIB = 1024 * 1024
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    with hub() as started:
        started.claim("box")
        yield started


def message(**fields: Any) -> dict[str, Any]:
    return {"to": "box", "text": "x", "from": "sender", **fields}


def deep(levels: int) -> Any:
    found: Any = 0
    for _ in range(levels):
        found = [found]
    return found


REFUSED: dict[str, tuple[dict[str, Any] | bytes, int, str]] = {
    "no JSON": (b"{", 400, "bad_json"),
    "nothing": (b"", 400, "bad_json"),
    "an array": (b"[]", 400, "bad_request"),
    "bytes that are no UTF-8": (b'{"to": "box", "text": "\xff"}', 400, "bad_json"),
    "half a surrogate": (b'{"to": "box", "from": "sender", "text": "\\ud800"}', 400, "bad_json"),
    "two documents": (b'{"to": "box", "text": "x", "from": "sender"} {}', 400, "bad_json"),
    "NaN": (b'{"to": "box", "from": "sender", "body": NaN}', 400, "bad_json"),
    "depth 33": (message(body=deep(33)), 400, "bad_json"),
    "a text that is too large": (message(text="x" * (MIB + 1)), 413, "too_large"),
    "a body that is too large": (message(body="x" * MIB), 413, "too_large"),
    "a request that is too large": (message(text="x" * 1000, body="y" * (2 * MIB)), 413, "too_large"),
    "neither text nor body": ({"to": "box", "from": "sender"}, 400, "bad_request"),
    "an empty text": (message(text=""), 400, "bad_request"),
    "no recipient": ({"text": "x", "from": "sender"}, 400, "bad_request"),
    "an empty recipient": (message(to=""), 400, "bad_name"),
    "a path for a recipient": (message(to="../../x"), 400, "bad_name"),
    "a recipient of 65 letters": (message(to="a" * 65), 400, "bad_name"),
    "an unknown recipient": (message(to="bxo"), 404, "unknown_agent"),
    "an unknown connection": (message(to="box@nowhere"), 404, "unknown_agent"),
    "an unknown room": (message(to="#nowhere"), 404, "unknown_agent"),
    "no sender": ({"to": "box", "text": "x"}, 400, "bad_request"),
    "a reserved sender": (message(**{"from": "angelia"}), 400, "bad_name"),
    "a sender with a line break": (message(**{"from": "a\nb"}), 400, "bad_name"),
    "an unknown field": (message(txet="x"), 400, "bad_request"),
    "a wrong type": (message(text=7), 400, "bad_request"),
    "a wrong intent": (message(intent="order"), 400, "bad_request"),
    "a wrong id": (message(id="A" * 32), 400, "bad_request"),
    "a time to live of nothing": (message(ttl_seconds=0), 400, "bad_request"),
    "a time to live of a year": (message(ttl_seconds=366 * 86400), 400, "bad_request"),
    "an answer to nothing": (message(in_reply_to="0" * 32), 404, "unknown_message"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_message_that_is_wrong_is_refused_and_not_stored(at: Hub, name: str) -> None:
    body, status, code = REFUSED[name]
    before = at.get("/status").json["queues"]
    known = at.get("/v1/agents").json
    answer = at.post("/v1/messages", body, headers=JSON)
    assert (answer.status, answer.code) == (status, code)
    assert answer.json["detail"]
    assert "Traceback" not in answer.json["detail"]
    assert at.get("/status").json["queues"] == before
    assert at.get("/v1/agents").json == known  # nobody became known by it


def test_depth_32_and_the_largest_text_pass(at: Hub) -> None:
    assert at.post("/v1/messages", message(body=deep(32))).status == 201
    assert at.post("/v1/messages", message(text="x" * MIB)).status == 201
    assert len(at.claim("box", 2)[1]["message"]["text"]) == MIB


def test_an_unknown_agent_is_told_with_close_names(at: Hub) -> None:
    answer = at.post("/v1/messages", message(to="Hremes"))
    assert answer.json["suggestions"] == ["hermes"]
    assert "hermes" in answer.json["detail"]


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_a_body_that_is_not_declared_as_json_is_refused(at: Hub, kind: str | None) -> None:
    answer = at.post("/v1/messages", json.dumps(message()).encode(), headers={"Content-Type": kind} if kind else {})
    assert (answer.status, answer.code) == (415, "unsupported_type")


def test_where_there_is_nothing_to_say_no_body_is_needed(at: Hub) -> None:
    sent = at.send("box", "x", "sender")
    assert at.post(f"/v1/messages/{sent['id']}/cancel").status == 200


def test_a_wrong_method_says_which_ones_work(at: Hub) -> None:
    answer = at.call("DELETE", "/v1/messages")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["allow"] == answer.json["allow"] == "POST"
    assert at.call("POST", "/v1/agents/box").status == 405
    assert at.get("/v1/mesages").code == "not_found"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/messages/" + "0" * 32, "unknown_message"),
        ("/v1/messages/x", "bad_request"),
        ("/v1/agents/nobody-here", "unknown_agent"),
        ("/v1/agents/nobody-here/inbox", "unknown_agent"),
        ("/poll?agent=nobody-here", "unknown_agent"),
        ("/poll", "bad_request"),
        ("/poll?agent=box&limit=x", "bad_request"),
        ("/poll?agent=box&limit=101", "bad_request"),
        ("/poll?agent=box&wait=61", "bad_request"),
        ("/poll?agent=box&wait=nan", "bad_request"),
        ("/poll?agent=box&ack=perhaps", "bad_request"),
        ("/subscribe", "bad_request"),
        ("/subscribe?agent=..", "bad_name"),
        ("/v1/agents/box/inbox?state=lost", "bad_request"),
        ("/v1/agents/box/stream?ack=perhaps", "bad_request"),
    ],
)
def test_a_look_at_what_is_not_there_is_refused(at: Hub, path: str, code: str) -> None:
    answer = at.get(path)
    assert answer.code == code
    assert answer.status == (404 if code.startswith("unknown") else 400)


@pytest.mark.parametrize(
    "asked", [{"limit": 0}, {"limit": 101}, {"lease_seconds": 0.5}, {"lease_seconds": 1801}, {"wait_seconds": -1}]
)
def test_a_claim_out_of_bounds_is_refused(at: Hub, asked: dict[str, Any]) -> None:
    answer = at.post("/v1/agents/box/claim", asked)
    assert (answer.status, answer.code) == (400, "bad_request")


@pytest.mark.parametrize("verb", ["ack", "nack", "renew"])
@pytest.mark.parametrize("token", ["x", "0" * 64, "..%2f..", "%00", "é".encode().hex()])
def test_a_lease_that_was_never_given_is_unknown(at: Hub, verb: str, token: str) -> None:
    assert at.post(f"/v1/leases/{token}/{verb}").status in (400, 404)


# ------------------------------------------------------------------------------------------------------ the gatehouse

PATHS = ["/health", "/status", "/poll?agent=box", "/subscribe?agent=box", "/v1/agents", "/openapi.json", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host",
    ["evil.test", "evil.test:{port}", "127.0.0.1:1", "127.0.0.1.evil.test", "localhost.", "", "[::1]:1", "0.0.0.0"],
)
def test_another_host_is_refused_on_every_path(at: Hub, path: str, host: str) -> None:
    """A name that was rebound to loopback reaches nothing."""
    answer = at.get(path, headers={"Host": host.format(port=at.port)})
    assert (answer.status, answer.code) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:{port}", "[::1]:{port}", "127.0.0.1:{port}"])
def test_a_host_of_its_own_is_let_in(at: Hub, host: str) -> None:
    assert at.get("/health", headers={"Host": host.format(port=at.port)}).status == 200


@pytest.mark.parametrize("hosts", [[], ["127.0.0.1", "127.0.0.1"], ["127.0.0.1", "evil.test"]])
def test_a_host_stands_there_once(at: Hub, hosts: list[str]) -> None:
    lines = "".join(f"Host: {host}\r\n" for host in hosts)
    answer = at.talk(f"GET /health HTTP/1.1\r\n{lines}\r\n".encode())
    assert answer.status in (400, 421)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.test"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost.evil.test"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=lambda headers: next(iter(headers.values())),
)
def test_a_page_of_another_site_is_refused_on_every_path(at: Hub, path: str, headers: dict[str, str]) -> None:
    answer = at.get(path, headers=headers)
    assert (answer.status, answer.code) == (403, "foreign_origin")
    assert "access-control-allow-origin" not in answer.headers


def test_a_foreign_page_cannot_send(at: Hub) -> None:
    """A form needs no preflight: its content type is one that /broadcast takes."""
    before = at.get("/status").json["queues"]
    form = {"Origin": "https://evil.test", "Content-Type": "text/plain"}
    assert at.post("/broadcast?from=hermes", b"{}", headers=form).code == "foreign_origin"
    assert at.get("/status").json["queues"] == before


def test_its_own_origin_is_let_in(at: Hub) -> None:
    for host in ("127.0.0.1", "localhost", "[::1]"):
        mine = {"Origin": f"http://{host}:{at.port}", "Sec-Fetch-Site": "same-origin"}
        assert at.get("/status", headers=mine).status == 200


def test_the_unix_socket_asks_for_neither(at: Hub) -> None:
    headers = {"Host": "evil.test", "Origin": "https://evil.test"}
    assert at.get("/status", headers=headers, admin=True).status == 200


def test_whoever_is_refused_early_still_sees_the_answer(at: Hub) -> None:
    """The rest of a body that is too large is read and thrown away, and the connection is not just cut."""
    head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {20 * MIB}\r\n"
    answer = at.talk(f"{head}Content-Type: application/json\r\n\r\n".encode() + b"x" * (20 * MIB))
    assert (answer.status, answer.code) == (413, "too_large")


def test_a_body_that_grows_too_large_on_the_way_is_refused(at: Hub) -> None:
    head = b"POST /broadcast?from=sender HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    answer = at.talk(head + chunk * 100 + b"0\r\n\r\n")
    assert (answer.status, answer.code) == (413, "too_large")


# -------------------------------------------------------------------------------------------------------------- bounds


def test_a_full_mailbox_is_told_and_nothing_is_stored() -> None:
    env = {"ANGELIA_LIMITS_MAILBOX_DELIVERIES": "10", "ANGELIA_LIMITS_MAILBOX_DELIVERIES_PER_SENDER": "6"}
    with hub(env=env) as at:
        at.claim("box"), at.claim("other")
        for number in range(6):
            at.send("box", str(number), "flooder")
        refused = at.post("/v1/messages", message(**{"from": "flooder"}))
        assert (refused.status, refused.code, refused.json["limit"]) == (429, "mailbox_full", 6)
        assert refused.json["retry_after_seconds"]
        for number in range(3):  # one flooding sender does not lock the others out
            at.send("box", str(number), "sender")
        refused = at.post("/v1/messages", message())  # the last tenth is for those who prove who they are
        assert (refused.status, refused.code, refused.json["limit"]) == (429, "mailbox_full", 9)
        assert at.post("/v1/messages", {"to": "box", "text": "a person's"}, admin=True).status == 201
        refused = at.post("/v1/messages", {"to": "box", "text": "a person's"}, admin=True)
        assert (refused.status, refused.code, refused.json["limit"]) == (429, "mailbox_full", 10)
        sent = at.post("/broadcast?from=sender", b'{"to": "all who have room"}').json
        assert "other" in sent["to"]
        assert sent["refused"] == [{"to": "box", "code": "mailbox_full"}]
        assert sent["delivered"] is False
        at.poll("box", limit=2)
        eventually(lambda: at.inbox("box")["total"] == 8)
        assert at.send("box", "room again", "sender")


def test_the_65th_stream_of_a_name_is_turned_away_with_a_200(at: Hub) -> None:
    """An EventSource gives up for ever on anything but a 200."""
    env = {"ANGELIA_LIMITS_STREAMS_PER_AGENT": "2"}
    with hub(env=env) as small:
        first, second = (small.connection() for _ in range(2))
        for connection in (first, second):
            connection.request("GET", "/v1/agents/box/stream?mode=observe")
            assert connection.getresponse().read1(100).startswith(b": connected")
        turned_away = small.get("/subscribe?agent=box")
        assert turned_away.status == 200
        assert b"retry: " in turned_away.body
        assert b"event: bye" in turned_away.body
        first.close()
        second.close()


# ------------------------------------------------------------------------------------------------------------ contract


def test_the_contract_is_valid_and_lists_every_route(at: Hub) -> None:
    found = at.get("/openapi.json").json
    assert found["openapi"].startswith("3.1")
    assert {"title", "version"} <= set(found["info"])
    told = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    promised = {
        ("POST", "/broadcast"), ("GET", "/poll"), ("GET", "/subscribe"), ("GET", "/status"), ("GET", "/health"),
        ("POST", "/v1/messages"), ("GET", "/v1/messages/{id}"), ("POST", "/v1/messages/{id}/cancel"),
        ("POST", "/v1/messages/{id}/reply"), ("POST", "/v1/ask"), ("GET", "/v1/agents"),
        ("GET", "/v1/agents/{handle}"), ("PUT", "/v1/agents/{handle}"), ("DELETE", "/v1/agents/{handle}"),
        ("POST", "/v1/agents/{handle}/token"), ("DELETE", "/v1/agents/{handle}/token/{id}"),
        ("GET", "/v1/agents/{handle}/inbox"), ("POST", "/v1/agents/{handle}/claim"),
        ("GET", "/v1/agents/{handle}/stream"), ("POST", "/v1/leases/{token}/ack"),
        ("POST", "/v1/leases/{token}/nack"), ("POST", "/v1/leases/{token}/renew"), ("GET", "/v1/dead-letters"),
        ("POST", "/v1/dead-letters/{id}/requeue"), ("POST", "/v1/dead-letters/{id}/drop"),
    }  # fmt: skip
    assert promised <= told
    for _, path in told:  # each is served: any method but its own is told which one is
        plain = path.replace("{handle}", "box").replace("{id}", "0" * 32).replace("{token}", "x")
        assert at.call("PATCH", plain).status == 405, path
    ids = []
    for path, methods in found["paths"].items():
        for operation in methods.values():
            assert operation["responses"], path
            ids += [operation["operationId"]] if "operationId" in operation else []
            named = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
    assert len(ids) == len(set(ids))
    for reference in _references(found):
        place: Any = found
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert isinstance(place, dict)


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)
