"""The gateway on a real hub and a real WebSocket, as Hermes' Desktop and a live chat use it.

Names in the docstrings are those of Hermes' own tests and reports (#number) that a test here answers to.
"""

import asyncio
import json
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from angelia.doors.gateway.methods import METHODS
from angelia.doors.http.protocol import Patience
from tests.acceptance.hub import MARGIN, Hub, eventually, hub
from tests.rigs.gateway import Desktop, desktop

OPS = {"profile": "ops", "handle": "ops", "connection_id": "vps-1", "connection_label": "Rack 3", "title": "Ops Bot"}
FAR_HERMES = {"profile": "default", "connection_id": "local", "title": "Maia"}
HEADER = "Message from 🤖 "


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    """One hub for the tests that leave nothing behind which another would meet."""
    with hub() as started:
        yield started


@pytest.fixture
def fresh() -> Iterator[Hub]:
    """A hub of its own, at which a busy agent is waited for 1 s."""
    with hub(env={"ANGELIA_LIMITS_LOCK_WAIT_SECONDS": "1"}) as started:
        yield started


def new_id() -> str:
    return uuid.uuid4().hex


def name() -> str:
    """A name that no other test uses."""
    return f"a{new_id()[:10]}"


def send(at: Hub, to: str, text: str, sender: str = "hermes", **more: Any) -> str:
    return str(at.send(to, text, sender, **more)["id"])


async def until(look: Callable[[], bool], seconds: float = 10) -> None:
    await asyncio.to_thread(eventually, look, seconds)


async def chat(peer: Desktop, profile: str) -> str:
    """A live chat; its session's id."""
    return str((await peer.result("session.open", profile=profile, title="Bot Chat"))["session_id"])


async def answer(peer: Desktop, text: str | None = None, **more: Any) -> dict[str, Any]:
    """Answer the next turn; the turn."""
    turn = await peer.event("session.turn")
    said: dict[str, Any] = {} if text is None else {"text": text}
    await peer.result("session.done", id=turn["id"], lease=turn["lease"], **said, **more)
    return turn


# ------------------------------------------------------------------------------------------------------------- framing


async def test_it_says_first_that_it_is_ready(at: Hub) -> None:
    async with desktop(at.port) as peer:
        assert peer.first["jsonrpc"] == "2.0"
        assert peer.first["method"] == "event"
        assert peer.first["params"]["type"] == "gateway.ready"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", -32700),
        ("[]", -32600),
        ('[{"jsonrpc":"2.0","id":null,"method":"gateway.ping"}]', -32600),
        ('{"jsonrpc":"2.0"}', -32600),
        ('{"jsonrpc":"2.0","method":""}', -32600),
        ('{"jsonrpc":"2.0","method":"gateway.ping","params":[1]}', -32602),
        ('{"jsonrpc":"2.0","method":"no.such"}', -32601),
        ('{"jsonrpc":"2.0","method":"__class__"}', -32601),
    ],
)
async def test_whatever_a_frame_holds_it_has_an_answer(at: Hub, frame: str, code: int) -> None:
    async with desktop(at.port) as peer:
        answered = await peer.raw(frame)
        assert answered["id"] is None
        assert answered["error"]["code"] == code
        assert answered["error"]["data"]["reason"] in ("unknown", "invalid_params")
        assert await peer.result("gateway.ping") == {"ok": True}


async def test_what_clients_add_is_left_alone_and_a_call_without_an_id_is_answered(at: Hub) -> None:
    """The Desktop's route wrapper may add ``profile`` to any call."""
    async with desktop(at.port) as peer:
        for blank in ("", "  ", b"", b"\n"):
            peer._out.put_nowait(blank)
        assert (await peer.raw('{"jsonrpc":"2.0","method":"gateway.ping","params":null}'))["result"] == {"ok": True}
        assert await peer.result("gateway.ping", profile="ops", more={"x": [1]}) == {"ok": True}
        listed = await peer.result("profiles.list", profile="ops", include_sessions=False)
        assert listed["bot_mode_protocol"] is True
        assert [(row["name"], row["is_default"]) for row in listed["profiles"]][:1] == [("default", True)]


JUNK: tuple[Any, ...] = (
    None,
    True,
    7,
    -1.5,
    10**30,
    "",
    "x",
    "../../x",
    "\u0000",
    "🙂" * 50,
    [],
    [[]],
    {},
    {"x": {"y": [1]}},
)
PARAMS = (
    "agents", "desktop", "profile", "message", "from_profile", "from_handle", "from_connection", "id", "reply",
    "error", "reason", "session_id", "text", "title", "lease", "target", "from",
)  # fmt: skip


async def test_whatever_the_parameters_are_a_call_is_answered_and_nothing_breaks(fresh: Hub) -> None:
    """``created_at`` of a wrong JSON type makes every drain fail: no type of any field may."""
    async with desktop(fresh.port) as peer:
        await peer.result("bot_relay.roster.sync", agents=[OPS])
        id = send(fresh, "ops@vps-1", "x")
        for method in sorted(METHODS):
            sound: dict[str, Any] = {"profile": "openclaw", "message": "x"}
            waiting = [peer.send(method, **{**sound, name: value}) for name in PARAMS for value in JUNK]
            async with asyncio.timeout(30):
                answers = await asyncio.gather(*waiting)
            errors = [answer["error"] for answer in answers if "error" in answer]
            assert -32000 not in {error["code"] for error in errors}, method
            assert all(error["data"]["reason"] for error in errors), method
            told = "\n".join(error["message"] for error in errors)
            assert [word for word in ("None", "True", "{'x'", "[[]]") if word in told] == [], method
        assert fresh.state(id) in ("queued", "forwarded", "failed", "answered")
        assert await peer.result("gateway.ping") == {"ok": True}


async def test_a_connection_that_is_silent_for_longer_than_a_head_may_take_lives_on(at: Hub) -> None:
    """The patience with a request's head, 10 s, ran on in the WebSocket that the request had become."""
    async with desktop(at.port) as quiet, desktop(at.port) as owner, desktop(at.port) as relay:
        await chat(owner, agent := name())
        sent = relay.send("bot_relay.deliver", profile=agent, message="take your time")
        turn = await owner.event("session.turn")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(Patience().head_seconds + 1):
                await quiet.socket.wait_closed()
        await owner.result("session.done", id=turn["id"], lease=turn["lease"], text="done")
        assert (await sent)["result"] == {"reply": "done"}
        assert await quiet.result("gateway.ping") == {"ok": True}


async def test_a_frame_that_is_too_large_ends_the_connection_and_no_other() -> None:
    with hub(env={"ANGELIA_LIMITS_FRAME_BYTES": "2000"}) as at:
        async with desktop(at.port) as one, desktop(at.port) as other:
            with suppress(ConnectionClosed):
                await one.socket.send("x" * 3000)
            async with asyncio.timeout(10):
                await one.socket.wait_closed()
            assert one.socket.close_code == 1009
            assert await other.result("gateway.ping") == {"ok": True}


# ------------------------------------------------------------------------------------------------------------- who may


async def test_who_may_open_it(at: Hub) -> None:
    token = (at.folder / "admin.token").read_text().strip()
    bearer = {"Authorization": f"Bearer {token}"}
    good: list[tuple[str, dict[str, str]]] = [
        ("", {}),
        ("", {"Origin": at.url}),
        (f"?token={token}", {}),
        (f"?token={token}", {"Origin": "app://hermes"}),
        ("", {**bearer, "Origin": "file://"}),
    ]
    bad: list[tuple[str, dict[str, str], int]] = [
        ("", {"Origin": "https://example.org"}, 403),
        ("", {"Origin": "null"}, 403),
        ("", {"Origin": "app://hermes"}, 403),
        ("?token=wrong", {"Origin": "app://hermes"}, 401),
        (f"?token={token}", {"Origin": "https://example.org"}, 403),
        (f"?token={token}", {"Origin": "null"}, 403),
        ("?token=wrong", {}, 401),
        ("", {"Sec-Fetch-Site": "cross-site"}, 403),
    ]
    for query, headers in good:
        async with desktop(at.port, query=query, headers=headers) as peer:
            assert await peer.result("gateway.ping") == {"ok": True}
    for query, headers, status in bad:
        with pytest.raises(InvalidStatus) as refused:
            async with desktop(at.port, query=query, headers=headers):
                pass
        assert refused.value.response.status_code == status, (query, headers)
    assert token not in at.output()
    assert "error" not in at.output()


KEY = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


async def test_another_host_and_another_path_are_refused(at: Hub) -> None:
    for url, status in ((f"ws://localhost:{at.port}/api/wss", 404), (f"ws://127.0.0.2:{at.port}/api/ws", None)):
        with pytest.raises((InvalidStatus, OSError)) as refused:
            async with connect(url, proxy=None):
                pass
        if status is not None:
            assert isinstance(refused.value, InvalidStatus)
            assert refused.value.response.status_code == status
    rebound = at.talk(
        b"GET /api/ws HTTP/1.1\r\nHost: evil.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\n" + KEY + b"\r\n"
    )
    assert (rebound.status, rebound.code) == (421, "wrong_host")
    assert at.get("/api/ws").status == 400


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (b"", "missing Sec-WebSocket-Key header"),
        (b'Sec-WebSocket-Key: "\\\xc3\xa4\r\n', "invalid Sec-WebSocket-Key header"),
        (KEY + b"Origin: http://127.0.0.1\r\nOrigin: null\r\n", "invalid Origin header: multiple values"),
    ],
)
def test_a_handshake_that_is_none_is_refused_as_any_request_is(at: Hub, lines: bytes, says: str) -> None:
    head = b"GET /api/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    refused = at.talk(head + b"Sec-WebSocket-Version: 13\r\n" + lines + b"\r\n")
    assert (refused.status, refused.code, refused.headers["connection"]) == (400, "bad_request", "close")
    assert says in refused.json["detail"]


def test_a_client_learns_first_how_one_signs_in(at: Hub) -> None:
    found = at.get("/api/status").json
    assert found["auth_required"] is False
    assert found["auth_providers"] == []
    assert found["version"]


async def test_a_keyed_agent_has_no_chat_without_its_token(fresh: Hub) -> None:
    token = fresh.call("POST", "/v1/agents/scout/token", {}, admin=True).json["token"]
    async with desktop(fresh.port) as peer:
        refused = await peer.error("session.open", profile="scout", title="Bot Chat")
        assert (refused["code"], refused["data"]["code"]) == (401, "token_required")
    async with desktop(fresh.port, query=f"?token={token}") as peer:
        assert await chat(peer, "scout")
        refused = await peer.error("bot_relay.outbox.drain")
        assert (refused["code"], refused["data"]["code"]) == (5091, "not_allowed")


# -------------------------------------------------------------------------------------------------------- roster, drain


async def test_a_roster_is_kept_row_by_row_and_outlives_the_hub(fresh: Hub) -> None:
    """roster_sync_persists_and_counts."""
    async with desktop(fresh.port) as peer:
        found = await peer.result("bot_relay.roster.sync", agents=[OPS, {"profile": "", "handle": "x"}, FAR_HERMES])
        assert found["count"] == 2
        assert [row["row"] for row in found["rejected"]] == [1]
        assert (await peer.result("bot_relay.roster.sync", agents="nonsense", desktop="other"))["count"] == 0
    fresh.restart()
    assert send(fresh, "OPS@VPS-1", "one")
    assert send(fresh, "ops", "two")
    assert send(fresh, "default@desktop", "three")
    async with desktop(fresh.port) as peer:
        await peer.event("bot_relay.outbox.pending")  # what came before the connection is told, too
        targets = [(row["target_connection"], row["target_profile"]) for row in await peer.drain()]
        assert targets == [("vps-1", "ops"), ("vps-1", "ops"), ("local", "default")]


async def test_a_drain_hands_out_each_message_once_in_hermes_own_shape(fresh: Hub) -> None:
    """outbox_drain_returns_each_envelope_once; the_outbox_is_claimed_oldest_first."""
    async with desktop(fresh.port) as one, desktop(fresh.port) as other:
        await one.result("bot_relay.roster.sync", agents=[OPS])
        ids = [send(fresh, "ops@vps-1", f"text {n}", "hermes") for n in range(20)]
        before = time.time()
        found = await asyncio.gather(*(peer.drain() for peer in (one, other) for _ in range(5)))
        drained = [row for rows in found for row in rows]
        assert sorted(row["id"] for row in drained) == sorted(ids)
        assert [row["id"] for rows in found for row in rows if rows] == ids
        first = drained[0]
        assert first["created_at"] == pytest.approx(before, abs=60)
        del first["created_at"]
        assert first == {
            "id": ids[0], "from_profile": "default", "from_handle": "hermes", "target_connection": "vps-1",
            "target_profile": "ops", "target_handle": "ops", "message": f"{HEADER}hermes (@hermes): text 0",
        }  # fmt: skip


async def test_what_did_not_reach_the_relay_whole_is_handed_out_again(fresh: Hub) -> None:
    """#111021: a claim is lost when the Desktop drops before it has read it."""
    async with desktop(fresh.port) as peer:
        await peer.result("bot_relay.roster.sync", agents=[OPS])
    ids = [send(fresh, "ops@vps-1", "🙂" * 16_000, f"a{n}") for n in range(100)]
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.connect(("127.0.0.1", fresh.port))
    async with connect(f"ws://127.0.0.1:{fresh.port}/api/ws", sock=small, proxy=None, max_queue=1) as broken:
        await broken.recv()
        broken.transport.pause_reading()
        # The answer, of 6.4 MB, is more than the kernel keeps for a peer that does not read.
        await broken.send(json.dumps({"id": 1, "method": "bot_relay.outbox.drain"}))
        await until(lambda: fresh.state(ids[-1]) == "leased")
        broken.transport.abort()
    async with desktop(fresh.port) as peer:
        await until(lambda: fresh.state(ids[-1]) == "queued")
        assert [row["id"] for row in await peer.drain()] == ids


async def test_who_cannot_be_reached_is_told_at_once_and_nothing_is_queued(fresh: Hub) -> None:
    """enqueue_fails_fast_when_row_explicitly_offline, …_target_absent_from_fresh_roster; relay_route_ambiguous."""
    async with desktop(fresh.port) as peer:
        there = [OPS, {**OPS, "connection_id": "vps-2"}, {**OPS, "profile": "off", "handle": "off", "online": False}]
        await peer.result("bot_relay.roster.sync", agents=[*there, {**OPS, "profile": "gone", "handle": "gone"}])
        await peer.result("bot_relay.roster.sync", agents=there)

        def refused(to: str, text: str = "x") -> Any:
            answered = fresh.post("/v1/messages", {"from": "hermes", "to": to, "text": text})
            return answered.status, answered.code, answered.json.get("suggestions")

        assert refused("ops") == (409, "ambiguous_name", ["ops@vps-1", "ops@vps-2"])
        assert refused("off@vps-1")[:2] == (409, "runtime_offline")
        assert refused("gone@vps-1")[:2] == (409, "runtime_offline")
        assert refused("nobody@vps-1")[:2] == (404, "unknown_agent")
        assert refused("ops@vps-1", "x" * 16_001)[:2] == (413, "too_large")
        assert await peer.drain() == []
        assert send(fresh, "ops@vps-1", "x" * 16_000)
        (drained,) = await peer.drain()
        assert drained["message"].endswith("x" * 16_000)
        assert len(drained["message"]) <= 16_200


async def test_two_desktops_do_not_take_each_others_agents_or_mail(fresh: Hub) -> None:
    """#115161: ids are per Desktop; one roster and one outbox for all let two of them erase each other's."""
    async with desktop(fresh.port) as one, desktop(fresh.port) as other, desktop(fresh.port) as old:
        await one.result("bot_relay.roster.sync", desktop="mac", agents=[FAR_HERMES, OPS])
        await other.result("bot_relay.roster.sync", desktop="pc", agents=[FAR_HERMES, OPS])
        await old.result("bot_relay.roster.sync", agents=[FAR_HERMES])
        for to in ("hermes@mac", "hermes@pc", "hermes@desktop", "ops@mac-vps-1", "ops@pc-vps-1"):
            send(fresh, to, to)
        assert fresh.post("/v1/messages", {"from": "hermes", "to": "ops@vps-1", "text": "x"}).json["suggestions"] == [
            "ops@mac-vps-1",
            "ops@pc-vps-1",
        ]

        def shown(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
            return [(row["message"].rpartition(" ")[2], row["target_connection"]) for row in rows]

        assert shown(await old.drain()) == [("hermes@desktop", "local")]
        assert shown(await other.drain(desktop="pc")) == [("hermes@pc", "local"), ("ops@pc-vps-1", "vps-1")]
        assert shown(await one.drain(desktop="MAC")) == [("hermes@mac", "local"), ("ops@mac-vps-1", "vps-1")]


async def test_a_roster_with_nobody_in_it_forgets_its_own_agents_alone(fresh: Hub) -> None:
    """#111262: a machine that was removed stays in the rosters."""
    async with desktop(fresh.port) as peer:
        await peer.result("bot_relay.roster.sync", agents=[OPS])
        await peer.result("bot_relay.roster.sync", desktop="pc", agents=[{**OPS, "connection_id": "vps-9"}])
        await peer.result("bot_relay.roster.sync", agents=[])
        assert fresh.post("/v1/messages", {"from": "hermes", "to": "ops@vps-1", "text": "x"}).status == 404
        assert send(fresh, "ops@vps-9", "x")


async def test_new_mail_is_told_at_once_and_only_to_whom_it_is_for(fresh: Hub) -> None:
    """enqueued_envelope_broadcasts_outbox_pending, drained_outbox_does_not_rebroadcast_pending,
    new_envelope_after_drain_fires_pending_again."""
    async with desktop(fresh.port) as one, desktop(fresh.port) as other:
        await one.result("bot_relay.roster.sync", agents=[OPS])
        await other.result("bot_relay.roster.sync", desktop="pc", agents=[{**OPS, "connection_id": "vps-9"}])
        for number in range(2):
            await asyncio.to_thread(send, fresh, "ops@vps-1", f"{number}")
            begun = time.monotonic()
            await one.event("bot_relay.outbox.pending")
            assert time.monotonic() - begun < 0.25 * MARGIN
            assert len(await one.drain()) == 1
        await asyncio.to_thread(send, fresh, "ops@vps-9", "x")
        await other.event("bot_relay.outbox.pending")
        for peer in (one, other):
            await peer.result("gateway.ping")  # whatever was told before it has come
        assert one.events["bot_relay.outbox.pending"].empty()
        assert other.events["bot_relay.outbox.pending"].empty()


# ------------------------------------------------------------------------------------------------------------- outcomes


async def test_what_a_relay_brings_back_reaches_the_sender_and_the_first_outcome_counts(fresh: Hub) -> None:
    """reply_roundtrip_and_id_validation; write_reply_keeps_the_first_settled_reply_for_an_envelope."""
    async with desktop(fresh.port) as peer:
        await peer.result("bot_relay.roster.sync", agents=[OPS])
        asking = asyncio.create_task(  # noqa: TID251 - it ends with this test
            asyncio.to_thread(
                fresh.post, "/v1/ask", {"from": "ann", "to": "ops@vps-1", "text": "green?", "wait_seconds": 20}
            )
        )
        await peer.event("bot_relay.outbox.pending")
        (asked,) = await peer.drain()
        assert await peer.result("bot_relay.reply", id=asked["id"], reply="since 04:10") == {"ok": True}
        assert (await asking).json["reply"]["text"] == "since 04:10"
        assert (await asking).json["reply"]["from"] == "ops@vps-1"
        more: list[dict[str, Any]] = [{"error": "boom"}, {"reply": "no, red"}]
        for late in more:
            assert await peer.result("bot_relay.reply", id=asked["id"], **late) == {"ok": True}
        assert fresh.state(asked["id"]) == "answered"
        assert fresh.poll("ann") == []

        assert (await peer.error("bot_relay.reply"))["code"] == 4093
        for bad in ("../../etc/passwd", asked["id"].upper() + "F", "x", 5):
            assert (await peer.error("bot_relay.reply", id=bad))["code"] == 4094
        assert await peer.result("bot_relay.reply", id=new_id(), reply="for nobody") == {"ok": True}


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"error": "delivery turn failed: HTTP 429", "reason": "provider_rate_limit"}, "provider_rate_limit"),
        ({"error": "HTTP 429: slow down"}, "provider_rate_limit"),
        ({"error": "connection 'vps-1' is not connected to this Desktop right now"}, "runtime_offline"),
        ({"error": "@quota-bot on balance-1 hung up"}, "unknown"),
        ({"error": "x", "reason": "never heard of"}, "unknown"),
        ({"reason": "target_busy"}, "target_busy"),
    ],
)
async def test_a_far_failure_reaches_the_sender_with_its_reason(at: Hub, told: dict[str, Any], reason: str) -> None:
    """write_reply_reason_passthrough_and_classification; a target's name is no reason."""
    sender = name()
    async with desktop(at.port) as peer:
        quota = {"profile": "quota-bot", "connection_id": "balance-1"}
        await peer.result("bot_relay.roster.sync", agents=[OPS, quota])
        id = send(at, "quota-bot@balance-1", "x", sender, intent="request")
        assert [row["id"] for row in await peer.drain()] == [id]
        await peer.result("bot_relay.reply", id=id, **told)
        (notice,) = at.poll(sender)
        assert notice["_meta"]["kind"] == "notice"
        assert (notice["_meta"]["about"], notice["_meta"]["reason"]) == (id, reason)
        assert at.state(id) == "failed"


async def test_an_outcome_is_taken_after_a_restart(fresh: Hub) -> None:
    """#111021: a reply is lost when something ends between drain and reply."""
    async with desktop(fresh.port) as peer:
        await peer.result("bot_relay.roster.sync", agents=[OPS])
        id = send(fresh, "ops@vps-1", "x", "ann", intent="request")
        await peer.drain()
        await until(lambda: fresh.state(id) == "forwarded")  # that it was fetched is stored, too
    fresh.restart()
    async with desktop(fresh.port) as peer:
        assert await peer.drain() == []
        await peer.result("bot_relay.reply", id=id, reply="done")
        assert [message["text"] for message in fresh.poll("ann")] == ["done"]


# -------------------------------------------------------------------------------------------------------------- deliver


async def test_what_cannot_be_delivered_is_refused_and_nothing_is_stored(at: Hub) -> None:
    """deliver_requires_params; deliver_validates_profile_and_runs_transport (an unknown one names itself)."""
    async with desktop(at.port) as peer:
        useless: list[dict[str, Any]] = [{}, {"profile": "hermes"}, {"message": "x"}, {"profile": " ", "message": " "}]
        for params in useless:
            found = await peer.error("bot_relay.deliver", **params)
            assert (found["code"], found["data"]["reason"]) == (4090, "invalid_params")
        assert (await peer.error("bot_relay.deliver", profile="hermes", message="x" * 16_201))["code"] == 4091
        unknown = await peer.error("bot_relay.deliver", profile="no-such-bot", message="x")
        assert unknown["code"] == 4092
        assert "no-such-bot" in unknown["message"]
        assert unknown["data"]["reason"] == "unknown_profile"
        assert (await peer.error("bot_relay.deliver", profile="hermes", message="x", id="../x"))["code"] == 4090
    assert at.inbox("hermes")["total"] == 0


@pytest.mark.parametrize("profile", ["default", "hermes", "HERMES"])
async def test_it_lands_in_the_open_chat_and_brings_the_owners_answer(at: Hub, profile: str) -> None:
    """deliver_lands_in_live_bot_chat_instead_of_subprocess; deliver_into_an_open_bot_chat_returns_the_owners_answer;
    #100523, #115316. ``hermes`` and ``default`` are one agent."""
    async with desktop(at.port) as owner, desktop(at.port) as relay:
        session = await chat(owner, "hermes")
        sent = relay.send(
            "bot_relay.deliver",
            profile=profile,
            message=f"{HEADER}Maia (@hermes): green?",
            from_profile="default",
            from_handle="hermes",
            from_connection="local",
        )
        turn = await answer(owner, "since 04:10")
        assert turn["session_id"] == session
        assert (turn["from"], turn["text"], turn["verified"]) == ("hermes@desktop", "green?", False)
        assert (await sent)["result"] == {"reply": "since 04:10"}


@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        ({"error": "HTTP 401: no key"}, 5092, "provider_auth_or_access"),
        ({"error": "x", "reason": "provider_rate_limit"}, 5092, "provider_rate_limit"),
        ({"error": "nobody can say"}, 5092, "unknown"),
        ({"error": "slow", "reason": "delivery_timeout"}, 5093, "delivery_timeout"),
        ({"error": "busy", "reason": "target_busy"}, 5096, "target_busy"),
        ({"error": "late", "reason": "queued_expired"}, 5094, "queued_expired"),
    ],
)
async def test_every_failure_says_its_reason(at: Hub, said: dict[str, Any], code: int, reason: str) -> None:
    """#113532: busy and time-outs reach the sender as ``unknown``; PR #114955, six rows."""
    async with desktop(at.port) as owner, desktop(at.port) as relay:
        await chat(owner, "hermes")
        sent = relay.send("bot_relay.deliver", profile="hermes", message="x")
        await answer(owner, **said)
        found = (await sent)["error"]
        assert found["code"] == code
        assert found["data"]["reason"] == reason
        assert found["data"]["deadline_seconds"] == 1500


AGENT = """
import sys, time
text = sys.stdin.read()
if "401" in text:
    sys.exit("HTTP 401: no key")
if "sleep" in text:
    time.sleep(60)
print("heard:", text, end="")
"""


async def test_an_agent_that_is_woken_runs_its_turn_and_the_call_brings_its_answer(fresh: Hub) -> None:
    """deliver_validates_profile_and_runs_transport; #113753: the answer and not a receipt."""
    adapter = {"kind": "command", "argv": [sys.executable, "-c", AGENT], "timeout_seconds": 2}
    assert fresh.call("PUT", "/v1/agents/ops", {"adapter": adapter}, admin=True).status == 201
    async with desktop(fresh.port) as relay:
        assert "ops" in [row["name"] for row in (await relay.result("profiles.list"))["profiles"]]
        assert await relay.result("bot_relay.deliver", profile="ops", message="green?") == {"reply": "heard: green?"}
        refused = await relay.error("bot_relay.deliver", profile="ops", message="401")
        assert (refused["code"], refused["data"]["reason"]) == (5092, "provider_auth_or_access")
        begun = time.monotonic()
        slow = await relay.error("bot_relay.deliver", profile="ops", message="sleep")
        assert (slow["code"], slow["data"]["reason"]) == (5093, "delivery_timeout")
        assert time.monotonic() - begun < 2 * MARGIN + 5


async def test_an_agent_with_a_token_is_itself_whatever_it_claims(fresh: Hub) -> None:
    """deliver_from_a_logged_in_client_is_attributed_to_its_principal_never_to_the_claimed_sender; #107598."""
    token = fresh.call("POST", "/v1/agents/scout/token", {}, admin=True).json["token"]
    async with desktop(fresh.port) as owner, desktop(fresh.port, query=f"?token={token}") as scout:
        await chat(owner, "hermes")
        claims: list[dict[str, Any]] = [
            {},
            {"from_profile": "default"},
            {"from_profile": "ops", "from_handle": "ops", "from_connection": "local"},
        ]
        for claimed in claims:
            sent = scout.send("bot_relay.deliver", profile="hermes", message="hi", **claimed)
            turn = await answer(owner, "yes")
            assert (turn["from"], turn["verified"]) == ("scout", True)
            assert (await sent)["result"] == {"reply": "yes"}


async def test_a_busy_agent_is_waited_for_and_then_nothing_is_left_behind(fresh: Hub) -> None:
    """relay_deliver_returns_target_busy_error; relay_deliver_serializes_then_succeeds; #93091."""
    async with desktop(fresh.port) as owner, desktop(fresh.port) as relay:
        await chat(owner, "hermes")
        first = relay.send("bot_relay.deliver", profile="hermes", message="first")
        turn = await owner.event("session.turn")
        begun = time.monotonic()
        found = await relay.error("bot_relay.deliver", profile="hermes", message="second")
        assert time.monotonic() - begun >= 1
        assert (found["code"], found["data"]["reason"]) == (5096, "target_busy")
        assert found["message"].startswith("target_busy")
        assert found["data"]["deadline_seconds"] == 1 + 2 * 600 + 180  # #113107: computed from what is set
        assert fresh.inbox("hermes")["total"] == 1
        third = relay.send("bot_relay.deliver", profile="hermes", message="third")
        await owner.result("session.done", id=turn["id"], lease=turn["lease"], text="one")
        assert (await first)["result"] == {"reply": "one"}
        assert (await answer(owner, "three"))["text"] == "third"
        assert (await third)["result"] == {"reply": "three"}
        assert owner.events["session.turn"].empty()


async def test_the_same_id_brings_the_same_outcome_and_never_a_second_turn(fresh: Hub) -> None:
    """#111021; envelope-id dedupe at the target. An id of 64 digits is one, too."""
    async with desktop(fresh.port) as owner, desktop(fresh.port) as relay:
        await chat(owner, "hermes")
        for id in (new_id(), new_id() + new_id()):
            call: dict[str, Any] = {"profile": "hermes", "message": "once", "id": id}
            both = [relay.send("bot_relay.deliver", **call) for _ in range(2)]
            await answer(owner, "done")
            assert [(await each)["result"] for each in both] == [{"reply": "done"}] * 2
            assert await relay.result("bot_relay.deliver", **call) == {"reply": "done"}
        failing: dict[str, Any] = {"profile": "hermes", "message": "fails", "id": new_id()}
        sent = relay.send("bot_relay.deliver", **failing)
        await answer(owner, error="HTTP 429")
        assert (await sent)["error"]["data"]["reason"] == "provider_rate_limit"
        again = await relay.error("bot_relay.deliver", **failing)
        assert (again["code"], again["data"]["reason"]) == (5092, "provider_rate_limit")
        assert owner.events["session.turn"].empty()


async def test_a_caller_that_goes_away_loses_nothing_under_its_id(fresh: Hub) -> None:
    """#111021: the answer is lost when the Desktop drops while a turn runs. Restarting the hub changes nothing."""
    call: dict[str, Any] = {"profile": "hermes", "message": "slow", "id": new_id()}
    async with desktop(fresh.port) as owner:
        await chat(owner, "hermes")
        async with desktop(fresh.port) as relay:
            relay.send("bot_relay.deliver", **call)
            turn = await owner.event("session.turn")
        await owner.result("session.done", id=turn["id"], lease=turn["lease"], text="done")
    fresh.restart()
    async with desktop(fresh.port) as relay:
        assert await relay.result("bot_relay.deliver", **call) == {"reply": "done"}
        assert await relay.drain() == []  # the answer goes back this way and no other (#95074)


async def test_without_an_id_a_caller_that_goes_away_takes_what_has_not_begun_with_it(fresh: Hub) -> None:
    async with desktop(fresh.port) as owner:
        async with desktop(fresh.port) as relay:
            relay.send("bot_relay.deliver", profile="hermes", message="never begun")
            await until(lambda: fresh.inbox("hermes")["total"] == 1)
        await until(lambda: fresh.inbox("hermes")["total"] == 0)
        await chat(owner, "hermes")
        send(fresh, "hermes", "next", "ann")
        assert (await owner.event("session.turn"))["text"] == "next"


async def test_eight_hundred_calls_that_block_hold_up_nobody(fresh: Hub) -> None:
    """Eight concurrent delivers fill Hermes' pool, and ``reply``, ``drain`` and ``profiles.list`` wait for 1,320 s."""
    async with desktop(fresh.port) as peer:
        await peer.result("bot_relay.roster.sync", agents=[OPS])
        id = send(fresh, "ops@vps-1", "x", "ann", intent="request")
        blocked = [
            peer.send("bot_relay.deliver", profile="hermes", message=f"{n}", id=new_id(), from_handle=f"a{n % 7}")
            for n in range(800)
        ]
        await until(lambda: fresh.inbox("hermes", limit=1)["total"] == 800, 30)
        took: dict[str, float] = {}
        for method, params in (
            ("bot_relay.outbox.drain", {}),
            ("bot_relay.reply", {"id": id, "reply": "green"}),
            ("profiles.list", {}),
            ("gateway.ping", {}),
            ("bot_relay.roster.sync", {"agents": [OPS]}),
        ):
            begun = time.monotonic()
            assert "error" not in await peer.call(method, **params)
            took[method] = time.monotonic() - begun
        assert max(took.values()) < 0.2 * MARGIN, took
        assert not any(each.done() for each in blocked)
        assert [message["text"] for message in fresh.poll("ann")] == ["green"]


async def test_beyond_the_bound_a_long_call_is_refused_and_short_ones_go_on() -> None:
    with hub(env={"ANGELIA_LIMITS_GATEWAY_CALLS": "3"}) as at:
        async with desktop(at.port) as peer, desktop(at.port) as other:
            for number in range(3):
                peer.send("bot_relay.deliver", profile="hermes", message=f"{number}", id=new_id())
            found = await peer.error("bot_relay.deliver", profile="hermes", message="one too many")
            assert (found["code"], found["data"]["reason"], found["data"]["limit"]) == (5096, "target_busy", 3)
            assert "profiles" in await peer.result("profiles.list")
            other.send("bot_relay.deliver", profile="hermes", message="of another", id=new_id())
            await until(lambda: at.inbox("hermes")["total"] == 4)


# ------------------------------------------------------------------------------------------------------------ live chat


async def test_a_chat_gets_one_message_at_a_time_in_order_and_each_its_own_answer(at: Hub) -> None:
    agent = name()
    async with desktop(at.port) as owner:
        await chat(owner, agent)
        ids = [send(at, agent, f"{n}", "ann", intent="request") for n in range(3)]
        for number in range(3):
            turn = await owner.event("session.turn")
            assert (turn["id"], turn["text"], turn["from"]) == (ids[number], f"{number}", "ann")
            assert at.state(ids[number]) == "leased"
            assert owner.events["session.turn"].empty()
            done = {"id": turn["id"], "lease": turn["lease"], "text": f"answer {number}"}
            assert (await owner.result("session.done", **done))["state"] == "answered"
            assert (await owner.result("session.done", **done))["already"] is True
    answers = [(m["text"], m["_meta"]["in_reply_to"]) for m in at.poll("ann") if m["_meta"]["from"] == agent]
    assert answers == [(f"answer {n}", ids[n]) for n in range(3)]


async def test_a_chat_that_ends_gives_back_what_it_had_and_its_old_lease_is_refused(at: Hub) -> None:
    agent = name()
    async with desktop(at.port) as owner:
        await chat(owner, agent)
        id = send(at, agent, "hi", "ann", intent="request")
        old = await owner.event("session.turn")
    async with desktop(at.port) as owner:
        await chat(owner, agent)
        turn = await owner.event("session.turn")
        assert (turn["id"], turn["text"]) == (id, "hi")
        lost = await owner.error("session.done", id=id, lease=old["lease"], text="too late")
        assert (lost["code"], lost["data"]["code"]) == (409, "lease_lost")
        assert (await owner.error("session.done", id=new_id(), lease=turn["lease"], text="x"))["code"] == 409
        assert (await owner.error("session.done", id=id, lease=turn["lease"]))["code"] == 400
        await owner.result("session.done", id=id, lease=turn["lease"], text="ok")


async def test_a_second_chat_of_an_agent_takes_over_and_the_first_is_told(at: Hub) -> None:
    agent = name()
    async with desktop(at.port) as one, desktop(at.port) as other:
        first = await chat(one, agent)
        await chat(other, agent)
        assert await one.event("session.ended") == {"session_id": first, "reason": "superseded"}
        send(at, agent, "hi", "ann")
        assert (await answer(other, ""))["text"] == "hi"
        assert (await one.error("session.close", session_id=first))["code"] == 4001


async def test_a_submitted_prompt_is_a_turn_of_its_own(at: Hub) -> None:
    """``queued: true`` runs as the next turn; nothing is ever steered into a running one."""
    agent = name()
    async with desktop(at.port) as owner:
        session = await chat(owner, agent)
        first = await owner.result("prompt.submit", session_id=session, text="one", queued=True)
        assert first["status"] == "streaming"
        assert (await owner.result("prompt.submit", session_id=session, text="two", queued=True))["status"] == "queued"
        assert [(await answer(owner, ""))["text"] for _ in range(2)] == ["one", "two"]
        assert (await owner.error("prompt.submit", session_id="nope", text="x"))["code"] == 4001
        assert (await owner.error("prompt.submit", session_id=session, text=7))["code"] == -32602


async def test_a_hub_that_stops_says_goodbye_to_its_chats_and_is_gone_soon() -> None:
    with hub() as at:
        async with desktop(at.port) as owner:
            session = await chat(owner, "hermes")
            owner.send("bot_relay.deliver", profile="openclaw", message="x", id=new_id())
            await owner.result("gateway.ping")
            code, seconds = await asyncio.to_thread(at.stop)
            assert (code, seconds < 3 * MARGIN) == (0, True)
            assert await owner.event("session.ended") == {"session_id": session, "reason": "bye"}
            assert owner.socket.close_code in (1012, 1006)


async def test_a_peer_that_does_not_read_is_cut_off() -> None:
    with hub(env={"ANGELIA_LIMITS_STREAM_STALL_SECONDS": "1"}) as at:
        for number in range(50):
            described = {"description": f"{number}" + "x" * 1_900}
            assert at.call("PUT", f"/v1/agents/a{number}", described, admin=True).status == 201
        before = at.memory
        async with connect(f"ws://127.0.0.1:{at.port}/api/ws", proxy=None, max_queue=1, max_size=None) as socket:
            await socket.send(json.dumps({"id": 1, "method": "session.open", "params": {"profile": "hermes"}}))
            await until(lambda: at.get("/status").json["subscribers"]["hermes"])
            socket.transport.pause_reading()
            with suppress(ConnectionClosed, TimeoutError):
                async with asyncio.timeout(10):  # some of it fits into the sockets; then nothing is read any more
                    for number in range(1_000):
                        await socket.send(json.dumps({"id": number, "method": "profiles.list"}))
            await until(lambda: not at.get("/status").json["subscribers"]["hermes"], 10)
            assert at.memory - before < 64 * 1024 * 1024
        async with desktop(at.port) as peer:
            assert await peer.result("gateway.ping") == {"ok": True}
