"""Another hub that lies: what it may say on its link, and that all else does nothing."""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from angelia.model.address import RESERVED
from tests.acceptance.hub import Hub, eventually, hub
from tests.rigs.forging_hub import ForgingHub, forging_hub
from tests.rigs.gateway import desktop

NUMBERS = count(1)  # a name that was given up is no other's


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    with hub(env={"ANGELIA_HERMES_HOME": "off"}) as started:
        for name in ("ann", "bob"):
            started.claim(name)
        yield started


@asynccontextmanager
async def linked(at: Hub) -> AsyncIterator[ForgingHub]:
    """One that this user's folder lets in."""
    name = f"forge{next(NUMBERS)}"
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
        assert (mark, connection[:5]) == ("@", "forge"), message["from"]
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


# ------------------------------------------------------------------------------------------------ mail of others, names


async def come(at: Hub, line: ForgingHub, *handles: str) -> None:
    """Let in by the folder's key, with agents of its own."""
    answer = await line.hello("folder", (at.folder / "link.key").read_text().strip().encode())
    assert "result" in answer, answer
    await line.call("hub.roster", digest=secrets.token_hex(16), rows=[line.row(handle) for handle in handles])


def keyed(at: Hub, name: str = "kim") -> str:
    return str(at.post(f"/v1/agents/{name}/token", admin=True).json["token"])


def texts(line: ForgingHub) -> list[str]:
    return [message["text"] for message in line.got]


async def test_a_code_makes_nobody_another_hub_that_is_connected() -> None:
    """An id is what a hub says that it is; codes are for new ones."""
    with hub() as at:
        kim = keyed(at)
        async with forging_hub(at.port, "lab") as lab, forging_hub(at.port, "mallory") as mallory:
            await come(at, lab, "ann")
            code = at.post("/v1/pairing", {}, admin=True).json["code"]
            mallory.me = lab.me
            answer = await mallory.come_by_code(code)
            assert answer["error"]["data"]["reason"] == "paired_already", answer
            assert at.post("/v1/messages", {"to": "ann@lab", "text": "for lab"}, token=kim).status == 201
            await asyncio.to_thread(eventually, lambda: texts(lab) == ["for lab"])
            assert mallory.got == []


async def an_answer_is_due(at: Hub, kim: str) -> tuple[str, str]:
    """eve@lab has asked, and lab was removed; the id of the question, and of lab."""
    async with forging_hub(at.port, "lab") as lab:
        await come(at, lab, "eve")
        question = lab.item("kim", "what is the word?", intent="request")
        [told] = await lab.hand_over(question)
        assert told["stored"], told
    assert at.call("DELETE", "/v1/connections/lab", admin=True).status == 200
    return question["id"], lab.me


def answers(at: Hub, kim: str, question: str) -> Any:
    return at.post(f"/v1/messages/{question}/reply", {"text": "zanzibar"}, token=kim)


async def test_an_answer_for_a_hub_that_was_removed_is_fetched_by_no_program_of_its_name() -> None:
    with hub() as at:
        kim = keyed(at)
        question, _ = await an_answer_is_due(at, kim)
        answer = answers(at, kim, question)
        async with desktop(at.port) as stranger:
            for method in ("bot_relay.roster.sync", "bot_relay.outbox.drain"):
                refused = await stranger.error(method, desktop="lab", agents=[])
                assert refused["data"]["code"] == "bad_request", refused
        assert at.get(f"/v1/messages/{answer.json['id']}", token=kim).json["deliveries"][0]["state"] == "queued"


@pytest.mark.parametrize("late", [False, True])
async def test_an_answer_for_a_hub_that_was_removed_goes_to_no_other_that_calls_itself_so(late: bool) -> None:
    """Also where it is given once the other one is there; and the hub that was meant gets it when it comes back."""
    with hub() as at:
        kim = keyed(at)
        question, me = await an_answer_is_due(at, kim)
        if not late:
            assert answers(at, kim, question).status == 201
        async with forging_hub(at.port, "lab") as other, forging_hub(at.port, "lab") as lab:
            await come(at, other, "eve")
            if late:
                assert answers(at, kim, question).status == 201
            at.call("PUT", "/v1/connections/lab", {}, admin=True)  # it is wanted again
            lab.me = me
            await come(at, lab, "eve")
            await asyncio.to_thread(eventually, lambda: texts(lab) == ["zanzibar"], 20)
            assert other.got == []


async def test_an_answer_for_a_hub_that_was_removed_is_not_for_one_that_the_owner_calls_so_since() -> None:
    with hub() as at, hub(env={"ANGELIA_HUB_NAME": "elsewhere"}) as far:
        kim = keyed(at)
        question, _ = await an_answer_is_due(at, kim)
        waits = answers(at, kim, question).json["id"]
        far.claim("eve")
        made = at.call("PUT", "/v1/connections/lab", {"target": f"ws://127.0.0.1:{far.port}"}, admin=True)
        assert made.json["up"], made.body

        def state() -> str:
            return str(at.get(f"/v1/messages/{waits}", token=kim).json["deliveries"][0]["state"])

        await asyncio.to_thread(eventually, lambda: state() == "dead", 10, f"it is {state()}")
        assert far.inbox("eve")["total"] == 0
        again = at.post(f"/v1/messages/{question}/reply", {"text": "more"}, token=kim)
        assert (again.status, again.code) == (409, "runtime_offline"), again.body


async def test_what_was_called_something_before_speaks_in_no_chat_for_the_hub_that_is_called_so_now() -> None:
    with hub() as at:
        async with desktop(at.port) as early, forging_hub(at.port, "lab") as lab:
            await early.drain(desktop="lab")
            session = await early.result("session.open", profile="bob")
            await come(at, lab, "ann")
            refused = await early.error(
                "prompt.submit", session_id=session["session_id"], text="x", from_handle="ann", from_profile="ann"
            )
            assert refused["data"]["code"] == "bad_request", refused
        assert at.inbox("bob")["total"] == 0


async def test_the_answer_of_one_to_a_question_for_all_is_between_those_two() -> None:
    with hub() as at:
        asker, one, other = (keyed(at, name) for name in ("aa", "bb", "cc"))
        question = at.post("/v1/messages", {"to": "*", "text": "vote?", "intent": "request"}, token=asker).json["id"]
        assert at.post(f"/v1/messages/{question}/reply", {"text": "my vote"}, token=one).status == 201
        seen = [at.get(f"/v1/messages/{question}", token=who).json.get("reply") for who in (asker, one, other)]
        assert [reply and reply["text"] for reply in seen] == ["my vote", "my vote", None]


async def test_a_neighbours_answers_to_what_nobody_knows_leave_room_for_others() -> None:
    limits = {"ANGELIA_LIMITS_MAILBOX_DELIVERIES": "200"}
    with hub(env=limits) as at:
        kim = keyed(at)
        async with forging_hub(at.port, "lab") as lab, forging_hub(at.port, "mallory") as mallory:
            await come(at, lab, "ann")
            await come(at, mallory)
            me = lab.me
            await lab._socket.close()
            await asyncio.to_thread(eventually, lambda: not up(at, "lab"))
            forged = [
                mallory.item("ann", "x", kind="reply", in_reply_to=secrets.token_hex(16))
                | {"to": {"handle": "ann", "hub": me}}
                for _ in range(250)
            ]
            stored = [told["stored"] for told in await mallory.hand_over(*forged)]
            assert 0 < sum(stored) < 200
            for who in ({"token": kim}, {"admin": True}):
                assert at.post("/v1/messages", {"to": "ann@lab", "text": "x"}, **who).status == 201, who


async def test_who_may_not_write_here_answers_what_it_was_asked_once() -> None:
    with hub() as at:
        kim = keyed(at)
        async with forging_hub(at.port, "lab") as lab:
            await come(at, lab, "eve")
            asked = at.post("/v1/messages", {"to": "eve@lab", "text": "2 + 2?", "intent": "request"}, token=kim).json
            await asyncio.to_thread(eventually, lambda: texts(lab))
            me = lab.me
        assert at.call("PUT", "/v1/connections/lab", {"accept": ["oracle"]}, admin=True).status in (200, 201)
        async with forging_hub(at.port, "lab") as lab:
            lab.me = me
            await come(at, lab, "eve")
            told = [
                await lab.hand_over(lab.item("kim", f"{number}", kind="reply", in_reply_to=asked["id"]))
                for number in range(3)
            ]
            assert [each["stored"] for [each] in told] == [True, False, False]


async def test_whom_a_connection_does_not_share_is_not_reached_by_another_name() -> None:
    with hub() as at:
        async with forging_hub(at.port, "lab") as lab:
            await come(at, lab)
            me = lab.me
        at.call("PUT", "/v1/connections/lab", {"share": ["ann"]}, admin=True)
        async with forging_hub(at.port, "lab") as lab, desktop(at.port) as mac:
            lab.me = me
            await mac.result(
                "bot_relay.roster.sync",
                desktop="mac",
                agents=[{"connection_id": "vps", "profile": "ann", "handle": "boss"}],
            )
            await come(at, lab)
            home = hashlib.sha256(f"{lab.hub}:vps".encode()).hexdigest()[:32]
            for name in ("boss", "ann"):
                [told] = await lab.hand_over(lab.item(name, "let me in") | {"to": {"handle": name, "hub": home}})
                assert not told["stored"], name
            assert await mac.drain(desktop="mac") == []
