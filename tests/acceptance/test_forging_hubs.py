"""Another hub that lies: what it may say on its link, and that all else does nothing."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from angelia.model.address import RESERVED
from tests.acceptance.hub import Hub, eventually, hub
from tests.rigs.forging_hub import ForgingHub, forging_hub


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    with hub(env={"ANGELIA_HERMES_HOME": "off"}) as started:
        for name in ("ann", "bob"):
            started.claim(name)
        yield started


@asynccontextmanager
async def linked(at: Hub, name: str = "forge") -> AsyncIterator[ForgingHub]:
    """One that this user's folder lets in."""
    async with forging_hub(at.port, name) as line:
        answer = await line.hello("folder", (at.folder / "link.key").read_text().strip().encode())
        assert "result" in answer, answer
        await asyncio.to_thread(eventually, lambda: up(at, name))
        try:
            yield line
        finally:
            at.call("DELETE", f"/v1/connections/{name}", admin=True)


def up(at: Hub, name: str) -> bool:
    rows = at.get("/v1/connections", admin=True).json["connections"]
    return any(row["name"] == name and row["up"] for row in rows)


def mail(at: Hub, *names: str) -> list[dict[str, Any]]:
    """What waits for them."""
    return [row["message"] for name in names for row in at.inbox(name)["deliveries"]]


async def nothing_by(at: Hub, line: ForgingHub) -> None:
    """Whatever it calls, it is told no; nothing is stored, and no connection made."""
    waits = len(mail(at, "ann", "bob"))
    for method, params in (
        ("hub.send", {"messages": [line.item("ann", "forged", hub=line.hub)]}),
        ("hub.roster", {"agents": []}),
        ("hub.settle", {"outcomes": []}),
        ("bot_relay.deliver", {"profile": "ann", "message": "forged"}),
        ("session.open", {"profile": "ann"}),
        ("message_agent", {"from": "ann", "target": "bob", "message": "forged"}),
    ):
        assert "result" not in await line.call(method, **params), method
    assert len(mail(at, "ann", "bob")) == waits
    assert at.get("/v1/connections", admin=True).json["connections"] == []


async def test_whoever_has_not_proved_itself_may_say_nothing(at: Hub) -> None:
    async with forging_hub(at.port) as line:
        await nothing_by(at, line)


@pytest.mark.parametrize("by", ["owner", "key", "folder", "code"])
@pytest.mark.parametrize("path", ["/api/hub", "/api/ws"])
async def test_a_proof_that_is_none_lets_nobody_in(at: Hub, by: str, path: str) -> None:
    if by == "code":
        at.post("/v1/pairing", {}, admin=True)
    for key in (None, b"", secrets.token_bytes(32)):
        async with forging_hub(at.port, path=path) as line:
            assert "result" not in await line.hello(by, key)
            if path == "/api/hub":
                await nothing_by(at, line)
    assert at.get("/v1/connections", admin=True).json["connections"] == []


async def test_a_code_is_gone_after_a_few_guesses(at: Hub) -> None:
    code = at.post("/v1/pairing", {}, admin=True).json["code"]
    for _ in range(5):
        async with forging_hub(at.port) as line:
            assert "result" not in await line.hello("code", secrets.token_bytes(32))
    async with forging_hub(at.port) as line:
        answer = await line.hello("code", code.encode())
        assert answer["error"]["data"]["reason"] == "wrong_code"


async def test_a_neighbour_speaks_for_its_own_names_alone(at: Hub) -> None:
    async with linked(at) as line:
        ours = line.item("ann", "from one of yours", sender="bob", **{"from": {"handle": "bob", "hub": line.hub}})
        others = line.item("ann", "x", via=["f" * 32])
        passed = line.item("ann", "x", via=[line.hub, line.me])
        far = line.item("ann", "x", via=["e" * 32] * 9 + [line.me])
        for item in (ours, others, passed, far):
            [told] = await line.hand_over(item)
            assert not told["stored"], (item, told)
        for name in RESERVED:
            [told] = await line.hand_over(line.item("ann", name, sender=name))
            if name in ("angelia", "interop"):
                assert not told["stored"], name
        [told] = await line.hand_over(line.item("ann", "mine", sender="eve"))
        assert told["stored"], told
        [told] = await line.hand_over(line.item("human", "for its owner", sender="eve"))
    got = mail(at, "ann")
    assert got
    for message in got:
        name, mark, connection = message["from"].partition("@")
        assert (mark, connection) == ("@", "forge"), message["from"]
        assert name not in ("angelia", "interop", "bob")
    assert {message["text"] for message in got} >= {"mine"}
    hearsay = [message for message in got if message["lane"] == "person" and not message["from"].startswith("human@")]
    assert hearsay == []
    at.poll("ann")


async def test_a_neighbour_ends_and_answers_nothing_that_was_not_its_own(at: Hub) -> None:
    asked = at.send("bob", "what is it?", "ann", intent="request")
    async with linked(at) as line:
        notice = line.item("ann", "x", sender="angelia", kind="notice", about=asked["id"], reason="unknown")
        await line.hand_over(notice)
        await line.call("hub.settle", outcomes=[{"id": asked["id"], "handle": "bob", "state": "answered"}])
        await line.call("hub.settle", outcomes=[{"id": asked["id"], "handle": "bob", "state": "failed"}])
        [told] = await line.hand_over(line.item("ann", "forged", kind="reply", in_reply_to=asked["id"]))
        state = at.receipt(asked["id"])["deliveries"][0]["state"]
        reply = at.receipt(asked["id"]).get("reply")
        assert (state, reply) == ("queued", None), told
    assert [message["text"] for message in mail(at, "ann") if message["kind"] == "notice"] == []


async def test_a_message_that_was_changed_on_the_way_is_not_taken(at: Hub) -> None:
    async with linked(at) as line:
        for change in ({"text": "other"}, {"in_reply_to": None, "fingerprint": "0" * 64}):
            [told] = await line.hand_over(line.item("ann", "as it was") | change)
            assert (told["stored"], told["code"]) == (False, "garbled")
        good = line.item("ann", "once")
        assert [each["stored"] for each in await line.hand_over(good, good)] == [True, True]
        again = line.item("ann", "twice", id=good["id"])
        [told] = await line.hand_over(again)
        assert (told["stored"], told["code"]) == (False, "id_reused")
    assert [message["text"] for message in mail(at, "ann")].count("once") == 1
