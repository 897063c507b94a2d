"""A desktop from elsewhere with a token of its own: it relays under its own name, and can do nothing else."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.acceptance.hub import MARGIN, Hub, hub
from tests.rigs.gateway import desktop

OPS: dict[str, Any] = {"profile": "ops", "connection_id": "vps-1", "title": "Ops Bot"}
DEV: dict[str, Any] = {"profile": "dev", "connection_id": "vps-2", "title": "Dev Bot"}


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    """A hub that is reached from beyond its own machine."""
    with hub(args=("--behind-proxy",)) as found:
        yield found


def token_for(at: Hub, name: str) -> str:
    made = at.run("desktop", name)
    assert made.returncode == 0, made.stderr
    assert "shown this once" in made.stderr
    return made.stdout.strip()


async def test_it_pushes_fetches_and_answers_under_its_own_name(at: Hub) -> None:
    mac, pc = token_for(at, "mac"), token_for(at, "pc")
    async with desktop(at.port, query=f"?token={mac}") as one, desktop(at.port, query=f"?token={pc}") as other:
        assert (await one.result("bot_relay.roster.sync", agents=[OPS], desktop="pc"))["count"] == 1
        assert (await other.result("bot_relay.roster.sync", agents=[DEV]))["count"] == 1
        sent = at.post("/v1/messages", {"to": "ops@vps-1", "text": "green?", "intent": "request"}, admin=True).json[
            "id"
        ]
        await one.event("bot_relay.outbox.pending")
        assert await other.drain(desktop="mac") == []
        assert [row["id"] for row in await one.drain(desktop="pc")] == [sent]
        await other.result("bot_relay.reply", id=sent, reply="forged")
        assert at.get(f"/v1/messages/{sent}", admin=True).json["deliveries"][0]["state"] == "forwarded"
        await one.result("bot_relay.reply", id=sent, reply="yes")
        found = at.get(f"/v1/messages/{sent}", admin=True).json
        assert (found["deliveries"][0]["state"], found["reply"]["text"]) == ("answered", "yes")


async def test_it_is_no_agent_and_no_owner(at: Hub) -> None:
    token = token_for(at, "narrow")
    for method, path, body in (
        ("POST", "/v1/messages", {"to": "hermes", "text": "x", "from": "narrow"}),
        ("POST", "/v1/agents/hermes/claim", {}),
        ("GET", "/v1/agents/hermes/inbox", None),
        ("PUT", "/v1/connections/far", {"target": "ws://127.0.0.1:9"}),
        ("POST", "/v1/desktops/narrow/token", {}),
        ("POST", "/v1/down", None),
    ):
        answer = at.call(method, path, body, token=token)
        assert (answer.status, answer.code) == (403, "not_allowed"), path
    assert at.get("/v1/agents", token=token).status == 200


async def test_its_connections_end_with_its_token(at: Hub) -> None:
    token = token_for(at, "old")
    async with desktop(at.port, query=f"?token={token}") as peer:
        gone = at.run("desktop", "old", "--remove", "--json")
        assert json.loads(gone.stdout) == {"removed": "old"}
        async with asyncio.timeout(1.0 * MARGIN):
            await peer.socket.wait_closed()
    with pytest.raises(InvalidStatus, match="401"):
        async with desktop(at.port, query=f"?token={token}"):
            pass
    assert at.run("desktop", "old", "--remove").returncode == 1


async def test_on_loopback_nobody_is_a_desktop_that_has_a_token(at: Hub) -> None:
    with hub() as here:
        token = token_for(here, "mac")
        async with desktop(here.port) as stranger, desktop(here.port, query=f"?token={token}") as mac:
            for method in ("bot_relay.roster.sync", "bot_relay.outbox.drain"):
                refused = await stranger.error(method, desktop="Mac", agents=[])
                assert refused["data"]["code"] == "token_required", refused
            assert (await mac.result("bot_relay.roster.sync", agents=[OPS]))["count"] == 1
            assert (await stranger.result("bot_relay.roster.sync", agents=[DEV]))["count"] == 1
