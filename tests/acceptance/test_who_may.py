"""The table of who may do what, walked over HTTP and the gateway: each cell is what the table says, on a real hub.

The callers: open, with an agent's token and with a desktop's by TCP, the owner by the Unix socket and by the admin
token. (Another hub is no caller here: what it may say on its link is four methods, and asks nobody. The third door, the
files of a Hermes on this machine, has one verb: `test_hermes_home.py`.) A cell that is allowed must get past the table,
whatever it is told then; one that is not must be refused as the table refuses, and do nothing.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from angelia.bus.caller import MAY, Rank
from angelia.doors.gateway.methods import METHODS
from angelia.doors.http.routes import ROUTES
from angelia.model.address import RESERVED
from tests.acceptance.hub import Answer, Hub, eventually, hub
from tests.rigs.gateway import desktop

NOBODYS = "0" * 32

# Which row of the table a route or a method stands under; None: it asks nobody who they are.
VERB: dict[tuple[str, str], str | None] = {
    ("POST", "/broadcast"): "send",
    ("GET", "/poll"): "read",
    ("GET", "/subscribe"): "read",
    ("GET", "/status"): None,
    ("GET", "/health"): None,
    ("POST", "/v1/messages"): "send",
    ("GET", "/v1/messages/{id}"): "look_at_message",
    ("POST", "/v1/messages/{id}/cancel"): "cancel",
    ("POST", "/v1/messages/{id}/reply"): "send",
    ("POST", "/v1/ask"): "send",
    ("GET", "/v1/agents"): "look_at_agents",
    ("GET", "/v1/agents/{handle}"): "look_at_agents",
    ("PUT", "/v1/agents/{handle}"): "edit_own",
    ("DELETE", "/v1/agents/{handle}"): "remove_agent",
    ("POST", "/v1/agents/{handle}/token"): "rotate_token",
    ("DELETE", "/v1/agents/{handle}/token/{id}"): "rotate_token",
    ("GET", "/v1/agents/{handle}/inbox"): "read",
    ("POST", "/v1/agents/{handle}/claim"): "read",
    ("GET", "/v1/agents/{handle}/stream"): "read",
    ("POST", "/v1/leases/{token}/ack"): "settle",
    ("POST", "/v1/leases/{token}/nack"): "settle",
    ("POST", "/v1/leases/{token}/renew"): "settle",
    ("GET", "/v1/dead-letters"): "dead_letters",
    ("POST", "/v1/dead-letters/{id}/requeue"): "dead_letters",
    ("POST", "/v1/dead-letters/{id}/drop"): "dead_letters",
    ("GET", "/v1/threads"): "look_at_message",
    ("GET", "/v1/threads/{id}"): "look_at_message",
    ("GET", "/v1/search"): "look_at_message",
    ("GET", "/v1/events"): "look_at_events",
    ("GET", "/v1/agents/{handle}/briefing"): "read",
    ("GET", "/v1/agents/{handle}/check"): "look_at_turns",
    ("GET", "/v1/turns"): "look_at_turns",
    ("POST", "/v1/turns/{id}/stop"): "stop_turn",
    ("GET", "/v1/connections"): "look_at_connections",
    ("PUT", "/v1/connections/{name}"): "connect",
    ("DELETE", "/v1/connections/{name}"): "connect",
    ("POST", "/v1/pairing"): "connect",
    ("POST", "/v1/desktops/{name}/token"): "connect",
    ("DELETE", "/v1/desktops/{name}"): "connect",
    ("GET", "/api/status"): None,
    ("GET", "/api/ws"): None,
    ("GET", "/api/hub"): None,
    ("POST", "/v1/backups"): "back_up",
    ("POST", "/v1/down"): "stop_hub",
}
METHOD_VERB: dict[str, str | None] = {
    "bot_relay.roster.sync": "relay",
    "bot_relay.outbox.drain": "relay",
    "bot_relay.deliver": "relay_deliver",
    "bot_relay.reply": "relay",
    "profiles.list": "look_at_agents",
    "gateway.ping": None,
    "prompt.submit": "send",
    "session.open": "read",
    "session.done": "settle",
    "session.close": None,  # of a chat of this very connection
    "message_agent": "send",
}
# Rows that a part of a request asks for, beside its route's own.
PARTS = {"key_name", "put_agent", "person_lane", "put_adapter"}

OWN = "keyed"  # the agent whose token is shown
OPEN_NAME = "loose"
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/messages"): {"to": "box", "text": "x"},
    ("POST", "/v1/ask"): {"to": "box", "text": "x", "wait_seconds": 0.01},
    ("POST", "/v1/messages/{id}/reply"): {"text": "x"},
    ("PUT", "/v1/agents/{handle}"): {"title": "x"},
    ("PUT", "/v1/connections/{name}"): {"target": "ws://127.0.0.1:9"},
}
FROM_BOB: dict[str, Any] = {"from": "bob"}
STREAMS = {"/subscribe", "/v1/agents/{handle}/stream", "/v1/events"}


class By(NamedTuple):
    """One kind of caller, and how it comes."""

    name: str
    rank: Rank
    socket: bool = False

    @property
    def acts_as(self) -> str:
        return {Rank.AGENT: OWN, Rank.OPEN: OPEN_NAME, Rank.LINK: OPEN_NAME, Rank.ADMIN: "human"}[self.rank]


CALLERS = (
    By("open, TCP", Rank.OPEN),
    By("an agent's token, TCP", Rank.AGENT),
    By("an agent's token, Unix socket", Rank.AGENT, socket=True),
    By("a desktop's token, TCP", Rank.LINK),
    By("the admin token, TCP", Rank.ADMIN),
    By("the owner, Unix socket", Rank.ADMIN, socket=True),
)


class Town:
    """A hub with a keyed agent, an open one, and mail of theirs."""

    def __init__(self, at: Hub) -> None:
        self.at = at
        self.admin = (at.folder / "admin.token").read_text().strip()
        self.token = str(at.post(f"/v1/agents/{OWN}/token", {}, admin=True).json["token"])
        self.desktop = str(at.post("/v1/desktops/mac/token", {}, admin=True).json["token"])
        at.claim("box")
        at.claim(OPEN_NAME)

    def token_of(self, by: By) -> str | None:
        if by.rank in (Rank.AGENT, Rank.LINK):
            return self.token if by.rank is Rank.AGENT else self.desktop
        return self.admin if by.rank is Rank.ADMIN and not by.socket else None

    def ask(self, by: By, method: str, path: str, body: object = None) -> Answer:
        return self.at.call(method, path, body, admin=by.socket, token=self.token_of(by))

    def mail(self, by: By) -> dict[str, str]:
        """A message that this caller may see and withdraw, and a lease that is its own; a desktop has neither."""
        if by.rank is Rank.LINK:
            by = CALLERS[0]
        name = by.acts_as
        sent = self.ask(by, "POST", "/v1/messages", {"to": "box", "text": "x", **self.said(by)}).json["id"]
        self.at.call("POST", "/v1/messages", {"to": name, "text": "y", "from": "sender"})
        # the owner's mailbox is not claimed from by TCP: a person reads it, so an open name's will do
        box = OPEN_NAME if by.rank is Rank.ADMIN else name
        if by.rank is Rank.ADMIN:
            self.at.send(box, "y", "sender")
        taken = self.ask(by, "POST", f"/v1/agents/{box}/claim", {"limit": 1}).json["deliveries"]
        return {"id": str(sent), "token": str(taken[0]["lease"]["token"]), "handle": box, "name": "far"}

    @staticmethod
    def said(by: By) -> dict[str, str]:
        return {"from": OPEN_NAME} if by.rank is Rank.OPEN else {}


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    with hub(env={"ANGELIA_LIMITS_WAIT_SECONDS": "60"}) as at:
        yield Town(at)


def test_the_lists_here_leave_no_route_no_method_and_no_row_out() -> None:
    assert set(VERB) == {(route.method, route.path) for route in ROUTES}
    assert set(METHOD_VERB) == set(METHODS)
    assert set(MAY) == {verb for verb in (*VERB.values(), *METHOD_VERB.values()) if verb} | PARTS


def is_refused_by_the_table(by: By, answer: Answer) -> bool:
    if answer.headers.get("content-type") != "application/problem+json":
        return False
    if by.rank is Rank.OPEN:
        return (answer.status, answer.code) == (401, "token_required")
    return (answer.status, answer.code) == (403, "not_allowed")


@pytest.mark.parametrize("by", CALLERS, ids=lambda by: by.name)
@pytest.mark.parametrize("route", [r for r in ROUTES if r.path != "/v1/down"], ids=lambda r: f"{r.method} {r.path}")
def test_every_cell_over_http(town: Town, route: Any, by: By) -> None:
    verb = VERB[route.method, route.path]
    allowed = verb is None or by.rank in MAY[verb]
    places = town.mail(by)
    if route.path.startswith("/v1/dead-letters/") or "turns" in route.path or "threads" in route.path:
        places["id"] = NOBODYS
    if verb in ("remove_agent", "rotate_token", "edit_own") and by.rank is Rank.ADMIN:
        places["handle"] = "spare"
        town.at.post("/v1/agents/spare/claim", {})  # known by now; keyed, after some of these tests
    if "/token/" in route.path:
        places["id"] = NOBODYS
    body = BODIES.get((route.method, route.path), {} if route.method in ("POST", "PUT") else None)
    if route.path in ("/v1/messages", "/v1/ask", "/v1/messages/{id}/reply"):
        body = {**(body or {}), **town.said(by)}
    query = {
        "/broadcast": f"?to=box&from={by.acts_as}", "/poll": f"?agent={places['handle']}",
        "/subscribe": f"?agent={places['handle']}", "/v1/search": "?q=x",
    }.get(route.path, "")  # fmt: skip
    path = route.path.format(**places) + query
    if route.path in STREAMS and allowed:
        with town.at.raw(admin=by.socket) as sock:
            shown = f"Authorization: Bearer {town.token_of(by)}\r\n" if town.token_of(by) else ""
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{shown}\r\n".encode())
            assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
        return
    answer = town.ask(by, route.method, path, body)
    assert is_refused_by_the_table(by, answer) is not allowed, (path, answer)
    if allowed:
        assert answer.status not in (401, 403), (path, answer)


@pytest.mark.parametrize("by", CALLERS, ids=lambda by: by.name)
def test_the_rows_that_a_part_of_a_request_asks_for(town: Town, by: By) -> None:
    at = town.at
    lane = town.ask(by, "POST", "/v1/messages", {"to": "box", "text": "x", "lane": "person", **town.said(by)})
    assert is_refused_by_the_table(by, lane) is (by.rank not in MAY["person_lane"])
    adapter = {"adapter": {"kind": "command", "command": ["/bin/cat"]}}
    put = town.ask(by, "PUT", f"/v1/agents/{OWN}", adapter)
    assert is_refused_by_the_table(by, put) is (by.rank not in MAY["put_adapter"])
    key = town.ask(by, "POST", "/v1/agents/unkeyed/token", {})
    assert is_refused_by_the_table(by, key) is (by.rank not in MAY["key_name"])
    new = town.ask(by, "PUT", "/v1/agents/unknown", {"title": "x"})
    assert is_refused_by_the_table(by, new) is (by.rank not in MAY["put_agent"])
    for name in ("unkeyed", "unknown"):
        assert (at.get(f"/v1/agents/{name}").status == 200) is (by.rank is Rank.ADMIN)
        at.call("DELETE", f"/v1/agents/{name}", admin=True)
    at.call("PUT", f"/v1/agents/{OWN}", {"adapter": None}, admin=True)


def test_only_the_owner_stops_the_hub() -> None:
    for by in CALLERS:
        with hub() as at:
            answer = Town(at).ask(by, "POST", "/v1/down", {})
            assert is_refused_by_the_table(by, answer) is (by.rank not in MAY["stop_hub"]), by
            if by.rank in MAY["stop_hub"]:
                assert answer.status == 202
                assert at.process is not None
                at.process.wait(30)
            else:
                assert at.is_ready()


PARAMS: dict[str, dict[str, Any]] = {
    "bot_relay.roster.sync": {"agents": []},
    "bot_relay.deliver": {"profile": "nobody", "message": "x"},
    "bot_relay.reply": {"id": "x"},
    "prompt.submit": {"session_id": "x", "text": "x"},
    "session.open": {},
    "session.done": {"id": NOBODYS, "lease": "x", "text": "x"},
    "session.close": {"session_id": "x"},
    "message_agent": {"target": "box", "message": "x"},
}


@pytest.mark.parametrize("by", CALLERS, ids=lambda by: by.name)
async def test_every_cell_over_the_gateway(town: Town, by: By) -> None:
    token = town.token_of(by)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    where = town.at.socket_path if by.socket else None
    async with desktop(town.at.port, headers=headers, unix=where) as peer:
        for name, verb in METHOD_VERB.items():
            params = dict(PARAMS.get(name, {}))
            if name == "session.open":
                params["profile"] = OWN if by.rank is Rank.AGENT else OPEN_NAME
            if name == "message_agent" and by.rank in (Rank.OPEN, Rank.LINK):
                params["from"] = OPEN_NAME
            answer = await peer.call(name, **params)
            data = answer.get("error", {}).get("data", {})
            refused = data.get("code") in ("token_required", "not_allowed")
            assert refused is not (verb is None or by.rank in MAY[verb]), (name, answer)


# ------------------------------------------------------------------------------------------------------ others' things


class Pair(NamedTuple):
    """A hub where two agents have tokens, and mail between them that is nobody else's."""

    at: Hub
    tokens: dict[str, str]
    sent: str
    lease: str


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with hub() as at:
        names = ("ann", "bob", "eve")
        tokens = {name: str(at.post(f"/v1/agents/{name}/token", {}, admin=True).json["token"]) for name in names}
        sent = at.post("/v1/messages", {"to": "bob", "text": "a secret word"}, token=tokens["ann"]).json["id"]
        at.post("/v1/messages", {"to": "bob", "text": "waits"}, token=tokens["ann"])
        [taken] = at.post("/v1/agents/bob/claim", {"lease_seconds": 600, "limit": 1}, token=tokens["bob"]).json[
            "deliveries"
        ]
        yield Pair(at, tokens, str(sent), str(taken["lease"]["token"]))


@pytest.mark.parametrize("who", ["eve", None], ids=["another's token", "open"])
def test_another_agents_message_is_as_one_that_is_not_there(pair: Pair, who: str | None) -> None:
    at, token = pair.at, pair.tokens[who] if who else None
    said = {} if who else {"from": "loose"}
    for method, path, body in (
        ("GET", "/v1/messages/{id}", None),
        ("GET", "/v1/messages/{id}?wait=0.01", None),
        ("POST", "/v1/messages/{id}/cancel", {}),
        ("GET", "/v1/threads/{id}", None),
        ("POST", "/v1/messages/{id}/reply", {"text": "x", **said}),
        ("POST", "/v1/messages", {"to": "eve", "text": "x", "in_reply_to": "{id}", **said}),
    ):
        real, made_up = (
            at.call(
                method,
                path.format(id=id),
                json.loads(json.dumps(body).replace("{id}", id)) if body else body,
                token=token,
            )
            for id in (pair.sent, "f" * 32)
        )
        assert (real.status, real.code) == (404, "unknown_message"), (path, real)
        assert real.json["detail"].replace(pair.sent, "ID") == made_up.json["detail"].replace("f" * 32, "ID"), path
        assert (made_up.status, made_up.code) == (404, "unknown_message"), path
    assert at.get("/v1/search?q=secret", token=token).json["messages"] == []
    assert at.get("/v1/threads", token=token).json["threads"] == []
    assert at.get(f"/v1/messages/{pair.sent}", token=pair.tokens["ann"]).json["deliveries"][0]["state"] == "leased"


@pytest.mark.parametrize("who", ["eve", "ann", None, "admin"], ids=["another's", "the sender's", "open", "the owner's"])
def test_another_agents_lease_is_as_one_that_was_never_given(pair: Pair, who: str | None) -> None:
    at, admin = pair.at, who == "admin"
    token = pair.tokens.get(who or "")
    key, attempt, mac = pair.lease.split("-")
    for verb in ("ack", "nack", "renew"):
        for lease in (pair.lease, f"{key}-{int(attempt) + 1}-{mac}", f"{key}-{attempt}-{mac[:-1]}x", f"{key}-0-{mac}"):
            answer = at.call("POST", f"/v1/leases/{lease}/{verb}", {}, token=token, admin=admin)
            assert (answer.status, answer.code) == (404, "unknown_message"), (verb, lease)
    state = at.get(f"/v1/messages/{pair.sent}", token=pair.tokens["bob"]).json["deliveries"][0]["state"]
    assert state == "leased"


async def test_another_agents_lease_and_mailbox_are_closed_at_the_gateway_too(pair: Pair) -> None:
    for query in ("", f"?token={pair.tokens['eve']}"):
        async with desktop(pair.at.port, query=query) as peer:
            done = await peer.error("session.done", id=pair.sent, lease=pair.lease, text="forged")
            assert done["data"]["code"] == "unknown_message"
            opened = await peer.error("session.open", profile="bob", title="x")
            assert opened["data"]["code"] in ("token_required", "not_your_name")
            named = await peer.call("message_agent", target="hermes", message="x", **FROM_BOB)
            assert named["error"]["data"]["code"] in ("token_required", "not_your_name"), named
    state = pair.at.get(f"/v1/messages/{pair.sent}", token=pair.tokens["bob"]).json["deliveries"][0]["state"]
    assert state == "leased"


# ------------------------------------------------------------------------------------------------------- reserved names


@pytest.mark.parametrize("name", [*sorted(RESERVED), "Angelia", "HUMAN"])
async def test_no_door_lets_anybody_be_one_of_the_reserved_names(town: Town, name: str) -> None:
    at = town.at
    known = at.get("/v1/agents", admin=True).json
    calls = [
        ("POST", "/v1/messages", {"to": "box", "text": "x", "from": name}),
        ("POST", "/v1/ask", {"to": "box", "text": "x", "from": name, "wait_seconds": 0.01}),
        ("POST", f"/broadcast?to=box&from={name}", {"text": "x"}),
        ("GET", f"/poll?agent={name}", None),
        ("GET", f"/subscribe?agent={name}", None),
        ("GET", f"/v1/agents/{name}/stream", None),
        ("POST", f"/v1/agents/{name}/claim", {}),
        ("GET", f"/v1/agents/{name}/inbox", None),
    ]
    for method, path, body in calls:
        for token in (None, town.token):
            answer = at.call(method, path, body, token=token)
            assert (answer.status, answer.code) in (
                (400, "bad_name"), (403, "not_your_name"), (404, "unknown_agent"),
            ), (method, path, answer)  # fmt: skip
    for method, path, body in (
        ("PUT", f"/v1/agents/{name}", {"title": "x"}),
        ("POST", f"/v1/agents/{name}/token", {}),
        ("PUT", f"/v1/connections/{name}", {"target": "ws://127.0.0.1:9"}),
    ):
        answer = at.call(method, path, body, admin=True)
        assert answer.status == 400, (method, path, answer)
    batch = {"messages": [{"to": "box", "text": "x", "from": name}]}
    outcome = at.call("POST", "/v1/messages", batch).json["outcomes"][0]
    assert outcome["problem"]["code"] == "bad_name"
    async with desktop(at.port) as peer:
        said: dict[str, Any] = {"from": name}
        opened = await peer.call("session.open", profile=name, title="x")
        if name != "default":  # which is what Hermes calls its first profile
            assert opened["error"]["data"]["code"] == "bad_name", opened
        sent = await peer.error("message_agent", target="box", message="x", **said)
        assert sent["data"]["code"] == "bad_name"
        at.call("DELETE", "/v1/agents/hearer", admin=True)
        at.claim("hearer")
        claim: dict[str, Any] = {"from_handle": name, "from_profile": name, "from_connection": "local"}
        peer.send("bot_relay.deliver", profile="hearer", message="x", id=f"{abs(hash(name)):032x}"[-32:], **claim)
        [taken] = await asyncio.to_thread(eventually, lambda: at.claim("hearer"))
        sender = taken["message"]["from"]
        assert "@" in sender, sender  # a claim of somebody elsewhere, and never one of ours
        assert not sender.endswith("@local"), sender
        assert taken["message"]["verified"] is False
        at.lease(taken["lease"]["token"], "ack")
    at.call("DELETE", "/v1/agents/hearer", admin=True)
    assert at.get("/v1/agents", admin=True).json["agents"] != []
    assert {a["handle"] for a in at.get("/v1/agents", admin=True).json["agents"]} <= {
        a["handle"] for a in known["agents"]
    } | {"hermes"}
