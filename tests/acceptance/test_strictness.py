"""What no request may be on a real hub: arguments that nobody reads, numbers that are none, bodies that are packed."""

import gzip
import json
from collections.abc import Iterator

import pytest

from tests.acceptance.hub import Hub, hub


@pytest.fixture(scope="module")
def running() -> Iterator[Hub]:
    with hub() as started:
        started.claim("box")
        yield started


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/agents/box/inbox?limitt=3", "'limit'"),
        ("/v1/agents/box/inbox?stat=queued", "'state'"),
        ("/v1/agents/box/inbox?limit=3&limit=4", "twice"),
        ("/v1/agents?limit=3", "takes none"),
        ("/v1/dead-letters?qqq=3", "after, limit"),
    ],
)
def test_an_argument_that_nobody_reads_is_refused(running: Hub, path: str, says: str) -> None:
    answer = running.get(path, admin=True)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert says in answer.json["detail"]


def test_every_argument_that_a_route_has_is_taken(running: Hub) -> None:
    assert running.get("/v1/agents/box/inbox?after=0&limit=3&state=queued&from=x").status == 200
    assert running.get("/v1/dead-letters?after=0&limit=3", admin=True).status == 200


def test_the_seeds_own_paths_pass_over_what_they_do_not_know(running: Hub) -> None:
    for path in ("/poll?agent=box&x=1", "/status?x=1", "/health?x=1"):
        assert running.get(path).status == 200
    assert running.post("/broadcast?from=sender&to=box&x=1", {"a": 1}).status == 200
    assert running.poll("box")


@pytest.mark.parametrize(
    "number", ["99999999999999999999999", str(2**63), "1" * 5000, "1_0", "%D9%A3", "-1", "+1", "%201", "1.0", "", "x"]
)
@pytest.mark.parametrize("path", ["/v1/agents/box/inbox?after=", "/poll?agent=box&limit="])
def test_a_whole_number_is_digits_alone(running: Hub, path: str, number: str) -> None:
    answer = running.get(path + number)
    assert (answer.status, answer.code) == (400, "bad_request")


@pytest.mark.parametrize("number", ["1_0", "%D9%A3", "nan", "inf", "1e999", "0x1", ""])
def test_a_number_is_plain(running: Hub, number: str) -> None:
    assert running.get(f"/poll?agent=box&wait={number}").code == "bad_request"


def test_the_largest_number_is_taken(running: Hub) -> None:
    assert running.get(f"/v1/agents/box/inbox?after={2**63 - 1}").status == 200
    assert running.get("/poll?agent=box&wait=0.01").status == 200


@pytest.mark.parametrize("path", ["/v1/messages", "/broadcast?from=sender&to=box"])
def test_a_packed_body_is_refused(running: Hub, path: str) -> None:
    body = gzip.compress(json.dumps({"to": "box", "text": "x", "from": "sender"}).encode())
    kind = {"Content-Type": "application/json"}
    answer = running.post(path, body, headers={**kind, "Content-Encoding": "gzip"})
    assert (answer.status, answer.code) == (415, "unsupported_type")
    assert "gzip" in answer.json["detail"]
    plain = json.dumps({"to": "box", "text": "x", "from": "sender"}).encode()
    assert running.post(path, plain, headers={**kind, "Content-Encoding": "identity"}).status in (200, 201)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (rb'{"text": "\ud800"}', "surrogate"),
        (rb'{"text": "x\\\ud83d."}', "\\ud83d"),
        (rb'{"text": "\ud83d\ude00 \udc00"}', "\\udc00"),
        (rb'{"text": "\\ud800", ', "truncated"),
        (rb'{"text": "\ud83d\ude00", ', "truncated"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/broadcast?from=sender&to=box"])
def test_what_is_no_json_is_told_why(running: Hub, path: str, text: bytes, says: str) -> None:
    answer = running.post(path, text, headers={"Content-Type": "application/json"})
    assert (answer.status, answer.code) == (400, "bad_json")
    assert says in answer.json["detail"]
