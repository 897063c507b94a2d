"""The calls about connections: who may, what is handed to the links, what a caller is told. Links are a stand-in."""

import json
from dataclasses import replace
from typing import Any, NamedTuple

import httpx
import pytest

from angelia.bus.carry import Ended
from angelia.bus.directory import digest_of
from angelia.doors.http.hub import Hub
from angelia.doors.http.routes import make_app
from angelia.model.connection import Condition, Connection, Speaks
from angelia.model.errors import BadRequest, NotAllowed, NotFound
from tests.fakes.small_hub import SmallHub

ADMIN = {"authorization": "Bearer owner"}
CODE = "ABCD-EFGH-JKLM"


class StandIn:
    """Links that dial nobody: ``answers`` is how a connection stands once it is made."""

    def __init__(self) -> None:
        self.kept: dict[str, Condition] = {}
        self.dialled: list[tuple[Connection, str | None]] = []
        self.answers: dict[str, Any] = {"up": True}
        self.ends = Ended()

    async def connect(self, connection: Connection, code: str | None) -> Condition:
        self.dialled.append((connection, code))
        if code is not None and code != CODE:
            raise NotAllowed("The code is wrong, or was used already. Nothing was kept.")
        made = Condition(connection=connection, speaks=Speaks.HUB, **{"up": True, "since": 0, **self.answers})
        self.kept[connection.id] = made
        return made

    async def disconnect(self, name: str) -> Ended:
        found = self.kept.get(name.lower())
        if found is None:
            raise NotFound(f"No connection here is called '{name}'.")
        if found.connection.fixed:
            raise BadRequest(f"{name} stands in the settings.")
        del self.kept[name.lower()]
        return self.ends

    async def conditions(self) -> list[Condition]:
        return [self.kept[name] for name in sorted(self.kept)]

    def offer(self) -> tuple[str, float]:
        return CODE, 300.0


class Door(NamedTuple):
    client: httpx.AsyncClient
    links: StandIn

    async def call(self, method: str, path: str, body: object = None, *, admin: bool = True) -> tuple[int, Any]:
        headers = ADMIN if admin else {}
        found = await self.client.request(method, path, json=body, headers=headers)
        return found.status_code, found.json()

    async def put(self, name: str, **fields: object) -> tuple[int, Any]:
        return await self.call("PUT", f"/v1/connections/{name}", fields)


async def opened(*, alone: bool = False) -> Door:
    small = await SmallHub.open()
    hub = Hub(
        version="0", pid=1, port=80, since=0, data_dir="/d", durability="full", keepalive_seconds=15,
        request_bytes=100_000, batch_bytes=100_000, admin_digest=digest_of("owner"),
    )  # fmt: skip
    stand_in = StandIn()
    if not alone:
        hub.links = stand_in
    transport = httpx.ASGITransport(app=make_app(small.bus, hub))
    return Door(httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1"), stand_in)


@pytest.fixture
async def door() -> Door:
    return await opened()


async def test_a_connection_is_made_as_it_was_asked_for_and_told_in_full(door: Door) -> None:
    status, told = await door.put("Mac", target="wss://mac", share=["Scout"], token_file="/t", away="refuse", code=CODE)
    assert (status, told["up"], told["target"], told["share"]) == (200, True, "wss://mac", ["scout"])
    ((connection, code),) = door.links.dialled
    assert (connection.name, connection.id, connection.token_file, code) == ("Mac", "mac", "/t", CODE)
    assert not connection.fixed


async def test_one_that_is_down_is_kept_and_says_why(door: Door) -> None:
    door.links.answers = {"up": False, "kind": "unreachable", "problem": "Nobody is there.", "advice": "Start it."}
    status, told = await door.put("mac", target="ssh://mac")
    assert (status, told["up"], told["kind"]) == (200, False, "unreachable")
    assert (told["problem"], told["advice"]) == ("Nobody is there.", "Start it.")


@pytest.mark.parametrize(
    ("name", "fields", "code", "words"),
    [
        ("local", {"target": "ws://x"}, "bad_name", "reserved"),
        ("a b", {"target": "ws://x"}, "bad_name", "no name"),
        ("mac", {"target": "wss://a:hush@x"}, "bad_request", "a file"),
        ("mac", {"target": "x"}, "bad_request", "ssh://USER@HOST"),
        ("mac", {"target": "ws://x", "token": "hush"}, "bad_request", "token"),
        ("mac", {"target": "ws://x", "speaks": "mcp"}, "bad_request", "speaks"),
        ("mac", {"target": "ws://x", "hub": "7f"}, "bad_request", "hub"),
        ("mac", {"target": "ws://x", "key": "7f"}, "bad_request", "key"),
        ("mac", {"target": "ws://x", "fixed": True}, "bad_request", "fixed"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_anybody_dials(
    door: Door, name: str, fields: dict[str, object], code: str, words: str
) -> None:
    status, told = await door.put(name, **fields)
    assert (status, told["code"]) == (400, code)
    assert words in told["detail"]
    assert "hush" not in json.dumps(told)
    assert door.links.dialled == []


async def test_a_wrong_code_keeps_nothing(door: Door) -> None:
    status, told = await door.put("mac", target="ws://mac", code="AAAA-AAAA-AAAA")
    assert (status, told["code"]) == (403, "not_allowed")
    assert await door.call("GET", "/v1/connections") == (200, {"connections": []})


async def test_the_list_shows_targets_to_admin_alone(door: Door) -> None:
    await door.put("mac", target="wss://mac", token_file="/t")
    (told,) = (await door.call("GET", "/v1/connections"))[1]["connections"]
    assert (told["target"], told["token_file"]) == ("wss://mac", "/t")
    (told,) = (await door.call("GET", "/v1/connections", admin=False))[1]["connections"]
    assert set(told) == {"name", "up", "since", "speaks", "agents", "waiting"}


async def test_removing(door: Door) -> None:
    await door.put("mac", target="ws://mac")
    door.links.kept["fix"] = replace(door.links.kept["mac"], connection=Connection(name="fix", fixed=True))
    assert await door.call("DELETE", "/v1/connections/Mac") == (200, {"removed": "Mac"})
    assert [await _code(door, name) for name in ("mac", "fix")] == [(404, "not_found"), (400, "bad_request")]


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (Ended(2, 0), {"removed": "mac", "ended": 2}),
        (Ended(0, 1), {"removed": "mac", "handed_over": 1}),
        (Ended(3, 4), {"removed": "mac", "ended": 3, "handed_over": 4}),
    ],
)
async def test_removing_tells_what_mail_ended_with_it(door: Door, ends: Ended, told: dict[str, Any]) -> None:
    await door.put("mac", target="ws://mac")
    door.links.ends = ends
    assert await door.call("DELETE", "/v1/connections/mac") == (200, told)


async def _code(door: Door, name: str) -> tuple[int, str]:
    status, told = await door.call("DELETE", f"/v1/connections/{name}")
    return status, told["code"]


async def test_a_pairing_code_is_not_to_be_kept_by_anybody_on_the_way(door: Door) -> None:
    found = await door.client.post("/v1/pairing", headers=ADMIN)
    assert (found.status_code, found.json()) == (201, {"code": CODE, "expires_in_seconds": 300.0})
    assert found.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "connections/mac"), ("DELETE", "connections/mac"), ("POST", "pairing")]
)
async def test_only_admin_connects(door: Door, method: str, path: str) -> None:
    body: object = None if method == "DELETE" else {}
    status, told = await door.call(method, f"/v1/{path}", body, admin=False)
    assert (status, told["code"]) == (401, "token_required")
    assert door.links.dialled == []


async def test_status_tells_of_a_connection_that_is_down(door: Door) -> None:
    door.links.answers = {"up": False, "kind": "unreachable", "waiting": 2, "oldest_at": 0}
    await door.put("mac", target="ws://mac")
    told = (await door.call("GET", "/status", admin=False))[1]
    (problem,) = [problem for problem in told["problems"] if problem.startswith("mac ")]
    assert "(unreachable): 2 wait, the oldest for " in problem


async def test_a_hub_that_stands_alone() -> None:
    links = await opened(alone=True)
    assert await links.call("GET", "/v1/connections") == (200, {"connections": []})
    assert (await links.put("mac", target="ws://mac"))[0] == 404
    assert (await links.call("DELETE", "/v1/connections/mac"))[0] == 404
    assert (await links.call("POST", "/v1/pairing", {}))[0] == 404
