"""Mail with agents elsewhere is its parties' alone: to a caller without a token of theirs it is not there, and no
outcome of it is that caller's to tell."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.hub import Answer, Hub, eventually, hub
from tests.rigs.forging_hub import ForgingHub, forging_hub
from tests.rigs.gateway import Desktop, desktop

OPS: dict[str, Any] = {"profile": "ops", "connection_id": "vps-1", "title": "Ops Bot"}
WORD = "zanzibar"


@pytest.fixture
def at() -> Iterator[Hub]:
    with hub() as found:
        yield found


def keyed(at: Hub, name: str = "kim") -> str:
    return str(at.post(f"/v1/agents/{name}/token", admin=True).json["token"])


def asks(at: Hub, token: str, to: str = "ops@vps-1") -> str:
    """A question of kim's to somebody elsewhere."""
    sent = at.post("/v1/messages", {"to": to, "text": WORD, "intent": "request"}, token=token)
    assert sent.status == 201, sent
    return str(sent.json["id"])


def looks(at: Hub, id: str, thread: str, token: str | None) -> list[Answer]:
    """All that one may ask about it."""
    return [
        at.get(f"/v1/messages/{id}", token=token),
        at.get(f"/v1/threads/{thread}", token=token),
        at.call("POST", f"/v1/messages/{id}/cancel", {}, token=token),
    ]


def refused(answers: list[Answer]) -> list[tuple[int, str | None]]:
    return [(answer.status, answer.code) for answer in answers]


def state(at: Hub, id: str, token: str) -> str:
    return str(at.get(f"/v1/messages/{id}", token=token).json["deliveries"][0]["state"])


def finds(at: Hub, token: str | None) -> list[str]:
    found = at.get(f"/v1/search?q={WORD}", token=token).json["messages"]
    talks = at.get("/v1/threads", token=token).json["threads"]
    return [each["id"] for each in found] + [each["thread"] for each in talks]


async def test_what_a_keyed_name_and_somebody_elsewhere_write_each_other_is_not_found_by_others(at: Hub) -> None:
    token, other = keyed(at), keyed(at, "eve")
    async with desktop(at.port) as relay:
        await relay.result("bot_relay.roster.sync", agents=[OPS], desktop="mac")
        id = asks(at, token)
        await relay.drain(desktop="mac")
        await relay.result("bot_relay.reply", id=id, reply=f"{WORD} too")
    receipt = at.get(f"/v1/messages/{id}", token=token).json
    thread, answer = receipt["message"]["thread"], receipt["reply"]["id"]
    for who in (None, other):
        for each in (id, answer):
            assert refused(looks(at, each, thread, who)) == [(404, "unknown_message")] * 3, who
        assert finds(at, who) == []
    assert {id, answer} <= set(finds(at, token))


async def test_what_waits_for_somebody_elsewhere_is_withdrawn_by_nobody_else(at: Hub) -> None:
    token = keyed(at)
    async with desktop(at.port) as relay:
        await relay.result("bot_relay.roster.sync", agents=[OPS], desktop="mac")
        id = asks(at, token)
    for other in (None, keyed(at, "eve")):
        assert at.call("POST", f"/v1/messages/{id}/cancel", {}, token=other).status == 404
    assert state(at, id, token) == "queued"


async def told_by(peer: Desktop, id: str, **outcome: Any) -> None:
    """Whoever is not believed hears nothing of it: the id is unknown to it."""
    assert await peer.result("bot_relay.reply", id=id, **outcome) == {"ok": True}


async def test_nobody_without_its_token_answers_for_a_desktop_that_has_one(at: Hub) -> None:
    kim, mac = keyed(at), str(at.post("/v1/desktops/mac/token", admin=True).json["token"])
    async with desktop(at.port) as stranger, desktop(at.port, query=f"?token={mac}") as own:
        await own.result("bot_relay.roster.sync", agents=[OPS])
        id = asks(at, kim)
        assert [each["id"] for each in await own.drain()] == [id]
        await told_by(stranger, id, reply="forged")
        await told_by(stranger, id, error="no", reason="agent_blocked")
        assert state(at, id, kim) == "forwarded"
        await told_by(own, id, reply="yes")
    receipt = at.get(f"/v1/messages/{id}", token=kim).json
    assert (receipt["deliveries"][0]["state"], receipt["reply"]["text"]) == ("answered", "yes")


async def test_who_called_itself_a_desktop_before_that_got_a_token_no_longer_speaks_for_it(at: Hub) -> None:
    async with desktop(at.port) as early:
        await early.result("bot_relay.roster.sync", agents=[OPS], desktop="mac")
        at.post("/v1/desktops/mac/token", admin=True)
        found = await early.error("bot_relay.deliver", profile="hermes", message="x", from_profile="ops",
                                  from_connection="vps-1")  # fmt: skip
        assert found["data"]["code"] == "token_required"
        asks(at, keyed(at))
        with pytest.raises(TimeoutError):
            await early.event("bot_relay.outbox.pending", 1)
    assert at.inbox("hermes")["total"] == 0


async def test_a_desktop_and_a_connection_never_have_one_name(at: Hub) -> None:
    at.post("/v1/desktops/mac/token", admin=True)
    made = at.call("PUT", "/v1/connections/mac", {"target": "ws://127.0.0.1:9"}, admin=True)
    assert (made.status, made.code) == (409, "name_taken")
    assert at.get("/v1/connections", admin=True).json["connections"] == []


async def links(at: Hub, line: ForgingHub, *handles: str) -> None:
    """A hub that has its own link here, and says who is there."""
    answer = await line.hello("folder", (at.folder / "link.key").read_text().strip().encode())
    assert answer["result"]["connection"] == line.name
    await tells(line, *map(line.row, handles))


async def tells(line: ForgingHub, *rows: dict[str, Any]) -> None:
    answer = await line.call("hub.roster", digest=uuid.uuid4().hex, rows=list(rows))
    assert "result" in answer, answer


async def writes_as(at: Hub, relay: Desktop, token: str, connection: str) -> str:
    """Who kim is told that it was: a relay delivers for ann of one of its connections."""
    text = uuid.uuid4().hex
    said = {"from_handle": "ann", "from_profile": "ann", "from_connection": connection}
    relay.send("bot_relay.deliver", profile="kim", message=text, id=uuid.uuid4().hex, **said).add_done_callback(
        lambda done: done.cancelled() or done.exception()
    )

    def found() -> str | None:
        inbox = at.get("/v1/agents/kim/inbox", token=token).json["deliveries"]
        return next((each["message"]["from"] for each in inbox if each["message"]["text"] == text), None)

    return str(await asyncio.to_thread(eventually, found))


def row(connection: str, name: str) -> dict[str, Any]:
    return {"connection_id": connection, "profile": name, "handle": name}


def nobody(at: Hub, token: str, *addresses: str) -> None:
    """Mail to none of these is taken."""
    for to in addresses:
        sent = at.post("/v1/messages", {"to": to, "text": WORD}, token=token)
        assert (sent.status, sent.code) == (404, "unknown_agent"), (to, sent)


async def test_no_relay_writes_as_a_hub_that_is_linked_or_takes_its_mail_by_a_name_made_of_two(at: Hub) -> None:
    kim = keyed(at)
    async with (
        forging_hub(at.port, "office") as office,
        forging_hub(at.port, "home-office") as home,
        desktop(at.port) as relay,
    ):
        await links(at, office, "ann")
        await links(at, home, "ann")
        await relay.result("bot_relay.roster.sync", agents=[], desktop="home")
        assert await writes_as(at, relay, kim, "office") == "ann@home-office-2"
        await relay.result("bot_relay.roster.sync", agents=[row("office", n) for n in ("zed", "ann")], desktop="home")
        nobody(at, kim, "zed@home-office", "zed@office")
        asks(at, kim, "ann@home-office")
        assert await relay.drain(desktop="home") == []
        id = asks(at, kim, "zed@home-office-2")
        assert [each["id"] for each in await relay.drain(desktop="home")] == [id]


async def test_no_relay_without_a_token_writes_as_a_desktop_that_has_one_or_takes_its_mail(at: Hub) -> None:
    kim, studio = keyed(at), str(at.post("/v1/desktops/studio/token", admin=True).json["token"])
    async with desktop(at.port, query=f"?token={studio}") as own, desktop(at.port) as stranger:
        await own.result("bot_relay.roster.sync", agents=[row("vps", "ops")])
        assert await writes_as(at, stranger, kim, "studio") == "ann@desktop-studio"
        rows = [row("studio", "ann"), row("vps", "ann"), row("studio-vps", "ann")]
        await stranger.result("bot_relay.roster.sync", agents=rows)
        nobody(at, kim, "ann@studio", "ann@vps", "ann@studio-vps")
        assert await writes_as(at, stranger, kim, "studio-vps") == "ann@desktop-studio-vps"
        id = asks(at, kim, "ops@vps")
        assert await stranger.drain() == []
        assert [each["id"] for each in await own.drain()] == [id]


async def test_mail_for_a_desktop_whose_token_was_removed_is_not_had_by_the_next_one_of_its_name(at: Hub) -> None:
    kim, mac = keyed(at), str(at.post("/v1/desktops/mac/token", admin=True).json["token"])
    async with desktop(at.port, query=f"?token={mac}") as own:
        await own.result("bot_relay.roster.sync", agents=[OPS])
        fetched = asks(at, kim)
        assert [each["id"] for each in await own.drain()] == [fetched]
        waiting = asks(at, kim)
        assert at.call("DELETE", "/v1/desktops/mac", admin=True).status == 200
    async with desktop(at.port) as stranger:
        nobody(at, kim, "ops@vps-1")
        await stranger.result("bot_relay.roster.sync", agents=[OPS], desktop="mac")
        assert await stranger.drain(desktop="mac") == []
        await told_by(stranger, fetched, reply="forged")
    assert [state(at, id, kim) for id in (fetched, waiting)] == ["failed", "failed"]
    notices = at.get("/v1/agents/kim/inbox", token=kim).json["deliveries"]
    assert [each["message"]["in_reply_to"] for each in notices] == [fetched, waiting]


async def test_a_neighbour_takes_no_mail_for_a_hub_that_is_linked_by_telling_of_agents_there(at: Hub) -> None:
    kim = keyed(at)
    async with forging_hub(at.port, "lab") as lab, forging_hub(at.port, "mallory") as mallory:
        await links(at, lab, "ann")
        await links(at, mallory)
        await tells(mallory, *({**lab.row(name), "way": [lab.me, mallory.me]} for name in ("boss", "ann")))
        nobody(at, kim, "boss@lab")
        asks(at, kim, "ann@lab")
        await tells(lab)
        nobody(at, kim, "ann@lab")
        await asyncio.to_thread(eventually, lambda: lab.got)
        assert mallory.got == []
