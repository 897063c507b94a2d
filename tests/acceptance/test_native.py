"""The native interface, `/v1`, on a real hub: sending, asking, claiming, settling, and names that take a token."""

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.acceptance.hub import MARGIN, Answer, Hub, Stream, eventually, hub

_numbers = count()


@pytest.fixture(scope="module")
def running() -> Iterator[Hub]:
    with hub() as started:
        yield started


@pytest.fixture
def name(running: Hub) -> str:
    """An agent of this test's own, known and with an empty mailbox."""
    found = f"n{next(_numbers)}"
    running.claim(found)
    return found


@pytest.fixture
def other(running: Hub) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def new_id() -> str:
    return uuid.uuid4().hex


def is_waiting(at: Hub, message_id: str) -> bool:
    """Whether the hub knows the message: then whoever asked waits for what becomes of it."""
    return at.get(f"/v1/messages/{message_id}").status == 200


# ---------------------------------------------------------------------------------------------------- send and receipt


def test_a_message_goes_in_and_comes_out_whole(running: Hub, name: str) -> None:
    body = {"deep": [1, None, {"ü": "\u2028\x00"}], "big": 2**53, "float": 0.1}
    answer = running.post("/v1/messages", {"to": name, "text": "Grüße\r\n\x00", "body": body, "from": "Sender"})
    assert answer.status == 201
    sent = answer.json
    assert sent["thread"] == sent["id"]
    assert sent["duplicate"] is False
    assert [(row["to"], row["state"]) for row in sent["deliveries"]] == [(name, "queued")]
    [taken] = running.claim(name)
    message = taken["message"]
    assert (message["text"], message["body"]) == ("Grüße\r\n\x00", body)
    assert (message["from"], message["to"], message["verified"]) == ("Sender", name, False)
    assert (message["intent"], message["kind"], message["lane"]) == ("inform", "message", "normal")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", message["created_at"])
    assert taken["seq"] == sent["deliveries"][0]["seq"]
    assert taken["lease"]["attempt"] == taken["attempt"] == 1


def test_a_receipt_tells_every_step(running: Hub, name: str) -> None:
    sent = running.send(name, "work", "sender")
    assert running.receipt(sent["id"])["deliveries"][0]["state"] == "queued"
    assert running.receipt(sent["id"])["deliveries"][0]["expected"]
    [taken] = running.claim(name, lease_seconds=30)
    [leased] = running.receipt(sent["id"])["deliveries"]
    assert (leased["state"], leased["attempt"]) == ("leased", 1)
    assert leased["holder"]["by"] == "claim"
    assert leased["holder"]["until"] > leased["holder"]["since"] == leased["leased_at"]
    assert running.lease(taken["lease"]["token"], "ack").json == {"state": "delivered"}
    [done] = running.receipt(sent["id"])["deliveries"]
    assert done["state"] == "delivered"
    assert done["accepted_at"] <= done["leased_at"] <= done["delivered_at"]
    assert done["by"] == "claim"
    assert "holder" not in done


def test_a_receipt_waits_until_a_state_changes(running: Hub, name: str) -> None:
    sent = running.send(name, "work", "sender")
    with closing(running.connection(seconds=15 * MARGIN)) as waiting:
        # On a connection that the hub has taken already, it is there before what is asked after it.
        waiting.request("GET", "/health")
        waiting.getresponse().read()
        begun = time.monotonic()
        waiting.request("GET", f"/v1/messages/{sent['id']}?wait=20")
        [taken] = running.claim(name)
        assert json.load(waiting.getresponse())["deliveries"][0]["state"] == "leased"
        waiting.request("GET", f"/v1/messages/{sent['id']}?wait=20")
        running.lease(taken["lease"]["token"], "ack")
        assert json.load(waiting.getresponse())["deliveries"][0]["state"] == "delivered"
    running.receipt(sent["id"], wait=20)  # the outcome is final
    assert time.monotonic() - begun < 2 * MARGIN


def test_a_receipts_wait_has_an_end(running: Hub, name: str) -> None:
    sent = running.send(name, "work", "sender")
    begun = time.monotonic()
    assert running.receipt(sent["id"], wait=0.5)["deliveries"][0]["state"] == "queued"
    assert 0.4 < time.monotonic() - begun < 1.5 * MARGIN


def test_cancel_withdraws_what_is_not_delivered(running: Hub, name: str) -> None:
    waits, held, done = (running.send(name, text, "sender")["id"] for text in ("waits", "held", "done"))
    tokens = {item["message"]["text"]: item["lease"]["token"] for item in running.claim(name, 3)}
    running.lease(tokens["waits"], "nack", delay_seconds=0)
    running.lease(tokens["done"], "ack")
    for message_id, state in ((waits, "failed"), (held, "failed"), (done, "delivered")):
        answer = running.post(f"/v1/messages/{message_id}/cancel")
        assert answer.status == 200
        assert answer.json["deliveries"][0]["state"] == state
    assert running.receipt(waits)["deliveries"][0]["reason"] == "cancelled"
    assert running.lease(tokens["held"], "ack").code == "lease_lost"
    assert running.claim(name, 10) == []


def test_a_thread_and_a_reply_belong_together(running: Hub, name: str) -> None:
    first = running.send(name, "question", "asker", intent="request")
    [taken] = running.claim(name)
    answer = running.post(f"/v1/messages/{first['id']}/reply", {"text": "answer", "from": name})
    assert answer.status == 201
    assert answer.json["thread"] == first["thread"]
    assert running.lease(taken["lease"]["token"], "ack").json == {"state": "answered", "already": True}
    found = running.receipt(first["id"])
    assert found["deliveries"][0]["state"] == "answered"
    assert found["reply"]["text"] == "answer"
    [reply] = running.claim("asker")
    assert reply["message"]["in_reply_to"] == first["id"]
    assert (reply["message"]["kind"], reply["message"]["intent"]) == ("reply", "inform")


def test_a_message_to_everyone_has_a_delivery_for_each(running: Hub) -> None:
    members = {"hermes", "openclaw"} | {f"n{next(_numbers)}" for _ in range(3)}
    for member in members:
        running.claim(member, 100)
    sent = running.post("/v1/messages", {"to": "*", "text": "all", "from": "hermes"}).json
    told = {row["to"] for row in sent["deliveries"]}
    assert members - {"hermes"} <= told
    assert not told & {"hermes", "human", "sender"}
    assert len({row["seq"] for row in sent["deliveries"]}) == len(told)


# --------------------------------------------------------------------------------------------------------- idempotency


def _at_once(other: Callable[[], Answer], times: int = 50) -> list[Answer]:
    with ThreadPoolExecutor(times) as threads:
        return [future.result() for future in [threads.submit(other) for _ in range(times)]]


@pytest.mark.parametrize("how", ["id", "key"])
def test_one_key_at_fifty_connections_is_one_message(running: Hub, name: str, how: str) -> None:
    message: dict[str, Any] = {"to": name, "text": "once", "from": "sender"}
    headers: dict[str, str] = {}
    if how == "id":
        message["id"] = new_id()
    else:
        headers["Idempotency-Key"] = f"key {name} ü"[:-1]
    answers = _at_once(lambda: running.post("/v1/messages", message, headers=headers))
    assert sorted(answer.status for answer in answers) == [200] * 49 + [201]
    assert len({answer.json["id"] for answer in answers}) == 1
    assert [answer.json["duplicate"] for answer in answers].count(False) == 1
    assert len(running.claim(name, 10)) == 1
    changed = running.post("/v1/messages", {**message, "text": "another"}, headers=headers)
    assert (changed.status, changed.code) == (409, "id_reused")
    assert running.claim(name, 10) == []


def test_a_repeat_is_the_same_message_when_nobody_is_called_so_any_more() -> None:
    """Told that nothing was stored, its sender would send it anew, and it would be done twice."""
    with hub() as at:
        at.claim("box")
        asked: dict[str, Any] = {"to": "box", "text": "once", "from": "sender", "id": new_id(), "wait_seconds": 0}
        first = at.post("/v1/ask", asked)
        assert first.status == 202, first.body
        assert at.call("DELETE", "/v1/agents/box", admin=True).status == 200
        again = at.post("/v1/ask", asked)
        assert (again.status, again.json) == (first.status, first.json)
        told = at.post("/v1/ask", {**asked, "id": new_id()})
        assert (told.status, told.code) == (404, "unknown_agent")
        assert at.state(asked["id"]) == "queued"


def test_a_key_holds_after_a_restart_and_after_the_message_is_settled() -> None:
    with hub() as at:
        at.claim("box")
        message = {"to": "box", "text": "once", "from": "sender"}
        first = at.post("/v1/messages", message, headers={"Idempotency-Key": "k"}).json
        mine = at.send("box", "mine", "sender", id=new_id())
        for item in at.claim("box", 2):
            at.lease(item["lease"]["token"], "ack")
        at.restart()
        answers = _at_once(lambda: at.post("/v1/messages", message, headers={"Idempotency-Key": "k"}), 20)
        assert {(answer.status, answer.json["id"], answer.json["duplicate"]) for answer in answers} == {
            (200, first["id"], True)
        }
        again = at.post("/v1/messages", {"to": "box", "text": "mine", "from": "sender", "id": mine["id"]})
        assert (again.status, again.json["duplicate"]) == (200, True)
        assert again.json["deliveries"] == [{**mine["deliveries"][0], "state": "delivered"}]
        assert at.claim("box", 10) == []


def test_a_key_belongs_to_its_sender(running: Hub, name: str) -> None:
    ids = set()
    for sender in ("one", "two"):
        message = {"to": name, "text": "x", "from": sender}
        ids.add(running.post("/v1/messages", message, headers={"Idempotency-Key": "shared"}).json["id"])
    assert len(ids) == 2


# --------------------------------------------------------------------------------------------------------------- batch


def test_a_batch_has_an_outcome_for_each(running: Hub, name: str) -> None:
    twice = new_id()
    items = [
        {"to": name, "text": "first", "from": "sender", "id": twice},
        {"to": "nobody-of-that-name", "text": "x", "from": "sender"},
        {"to": name, "text": "first", "from": "sender", "id": twice},
        {"to": name, "from": "sender"},
        {"to": name, "text": "second", "from": "sender"},
    ]
    answer = running.post("/v1/messages", {"messages": items})
    assert answer.status == 200
    outcomes = answer.json["outcomes"]
    assert [outcome["status"] for outcome in outcomes] == [201, 404, 200, 400, 201]
    assert outcomes[1]["problem"]["code"] == "unknown_agent"
    assert outcomes[0]["sent"]["id"] == outcomes[2]["sent"]["id"] == twice
    assert [item["message"]["text"] for item in running.claim(name, 10)] == ["first", "second"]


def test_a_large_batch_keeps_its_order(running: Hub, name: str) -> None:
    items = [{"to": name, "text": str(number), "from": "sender"} for number in range(1000)]
    outcomes = running.post("/v1/messages", {"messages": items}).json["outcomes"]
    assert {outcome["status"] for outcome in outcomes} == {201}
    seen: list[str] = []
    while taken := running.claim(name, 100):
        seen += [item["message"]["text"] for item in taken]
    assert seen == [str(number) for number in range(1000)]
    too_many = running.post("/v1/messages", {"messages": [*items, items[0]]})
    assert (too_many.status, too_many.code) == (413, "too_large")


# ------------------------------------------------------------------------------------------------------- ask and reply


def _ask(at: Hub, to: str, asker: str, wait: float = 20, **more: Any) -> Answer:
    return at.post("/v1/ask", {"to": to, "text": "?", "from": asker, "wait_seconds": wait, **more})


def _answer_next(at: Hub, name: str, text: str = "!") -> str:
    [taken] = at.claim(name, wait_seconds=20)
    assert taken["message"]["intent"] == "request"
    assert at.post(f"/v1/messages/{taken['message']['id']}/reply", {"text": text, "from": name}).status == 201
    return str(taken["message"]["id"])


def test_ask_waits_for_the_reply(running: Hub, name: str, other: ThreadPoolExecutor) -> None:
    asking = other.submit(_ask, running, name, f"{name}-asker")
    message_id = _answer_next(running, name)
    answer = asking.result(5 * MARGIN)
    assert answer.status == 200
    assert (answer.json["id"], answer.json["reply"]["text"]) == (message_id, "!")
    assert "failure" not in answer.json
    # The reply was taken by the one who waited, and is not in the mailbox as well.
    eventually(lambda: running.inbox(f"{name}-asker")["total"] == 0, 1 * MARGIN)


def test_an_ask_that_ran_out_of_time_is_repeated_under_its_id(running: Hub, name: str) -> None:
    first = _ask(running, name, f"{name}-asker", 0.2)
    assert first.status == 202
    assert first.json["deliveries"][0]["state"] == "queued"
    with ThreadPoolExecutor(1) as other:
        again = other.submit(_ask, running, name, f"{name}-asker", id=first.json["id"])
        assert _answer_next(running, name) == first.json["id"]
        answer = again.result(5 * MARGIN)
    assert (answer.status, answer.json["reply"]["text"]) == (200, "!")
    eventually(lambda: running.inbox(f"{name}-asker")["total"] == 0, 1 * MARGIN)


def test_a_reply_that_nobody_waits_for_stays_in_the_mailbox(running: Hub, name: str) -> None:
    asked = _ask(running, name, f"{name}-asker", 0.1).json
    _answer_next(running, name)
    [reply] = eventually(lambda: running.claim(f"{name}-asker"), 5 * MARGIN + 5)
    assert reply["message"]["in_reply_to"] == asked["id"]
    answer = _ask(running, name, f"{name}-asker", 5, id=asked["id"])  # and is told to whoever asks again
    assert (answer.status, answer.json["reply"]["text"]) == (200, "!")


def test_an_asker_who_went_away_finds_the_reply_in_its_mailbox(running: Hub, name: str) -> None:
    body = json.dumps({"to": name, "text": "?", "from": f"{name}-asker", "wait_seconds": 20}).encode()
    head = f"POST /v1/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with running.raw() as sock:
        sock.sendall(head.encode() + b"\r\n\r\n" + body)
        eventually(lambda: running.inbox(name)["total"] == 1)
    _answer_next(running, name)
    [reply] = eventually(lambda: running.claim(f"{name}-asker"), 5)
    assert reply["message"]["text"] == "!"


def test_an_ask_tells_a_failure(running: Hub, name: str, other: ThreadPoolExecutor) -> None:
    asked = new_id()
    asking = other.submit(_ask, running, name, f"{name}-asker", id=asked)
    eventually(lambda: is_waiting(running, asked))
    running.post(f"/v1/messages/{asked}/cancel")
    answer = asking.result(5 * MARGIN)
    assert answer.status == 200
    assert answer.json["failure"]["reason"] == "cancelled"
    assert answer.json["failure"]["text"]


def test_a_question_whose_time_is_over_fails(running: Hub, name: str) -> None:
    begun = time.monotonic()
    answer = _ask(running, name, f"{name}-asker", 20, ttl_seconds=1)
    assert 0.9 < time.monotonic() - begun < 3 * MARGIN
    assert answer.json["failure"]["reason"] == "queued_expired"


def test_a_request_that_expires_gives_its_sender_a_notice(running: Hub, name: str) -> None:
    sent = running.send(name, "?", f"{name}-asker", intent="request", ttl_seconds=1)
    [notice] = running.claim(f"{name}-asker", wait_seconds=10)
    assert (notice["message"]["kind"], notice["message"]["from"]) == ("notice", "angelia")
    assert (notice["message"]["about"], notice["message"]["reason"]) == (sent["id"], "queued_expired")
    assert running.receipt(sent["id"])["failure"]["reason"] == "queued_expired"


@pytest.mark.parametrize("length", [2, 3, 5])
def test_a_circle_of_asks_is_refused_to_the_one_that_would_close_it(
    running: Hub, other: ThreadPoolExecutor, length: int
) -> None:
    names = [f"n{next(_numbers)}" for _ in range(length)]
    for each in names:
        running.claim(each)
    asking: list[Future[Answer]] = []
    for number in range(length - 1):
        asked = new_id()
        asking.append(other.submit(_ask, running, names[number + 1], names[number], id=asked))
        eventually(partial(is_waiting, running, asked))
    begun = time.monotonic()
    refused = _ask(running, names[0], names[-1])
    assert (refused.status, refused.code) == (409, "ask_cycle")
    assert time.monotonic() - begun < 1 * MARGIN
    for each in names[1:]:  # everybody else is not harmed
        _answer_next(running, each)
    assert [future.result(10).status for future in asking] == [200] * (length - 1)


# ------------------------------------------------------------------------------------------------------ claim, settle


def test_of_many_claimants_each_gets_its_own(running: Hub, name: str) -> None:
    for number in range(100):
        running.send(name, str(number), "sender")

    def work(_: int) -> list[str]:
        mine: list[str] = []
        while taken := running.call("POST", f"/v1/agents/{name}/claim", {"limit": 3}).json["deliveries"]:
            for item in taken:
                mine.append(item["message"]["text"])
                token = item["lease"]["token"]
                assert running.call("POST", f"/v1/leases/{token}/ack").json == {"state": "delivered"}
        return mine

    with ThreadPoolExecutor(20) as threads:
        found = list(threads.map(work, range(20)))
    assert sorted(int(text) for mine in found for text in mine) == list(range(100))
    assert all(mine == sorted(mine, key=int) for mine in found)


def test_a_claim_waits_for_mail(running: Hub, name: str, other: ThreadPoolExecutor) -> None:
    wanted = {"limit": 1, "wait_seconds": 20}
    waiting = other.submit(lambda: running.post(f"/v1/agents/{name}/claim", wanted).json["deliveries"])
    begun = time.monotonic()
    running.send(name, "now", "sender")
    [taken] = waiting.result(5 * MARGIN)
    assert taken["message"]["text"] == "now"
    assert time.monotonic() - begun < 1 * MARGIN


def test_a_claimer_that_goes_away_while_it_waits_takes_nothing(running: Hub, name: str) -> None:
    body = b'{"wait_seconds": 20}'
    for _ in range(5):
        with running.raw() as sock:
            head = f"POST /v1/agents/{name}/claim HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            sock.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    sent = running.send(name, "work", "sender")
    [taken] = running.claim(name, wait_seconds=5)
    assert taken["message"]["id"] == sent["id"]
    assert running.receipt(sent["id"])["deliveries"][0].get("used", 0) == 0


def test_an_ack_twice_is_an_ack_once(running: Hub, name: str) -> None:
    running.send(name, "work", "sender")
    [taken] = running.claim(name)
    token = taken["lease"]["token"]
    assert running.lease(token, "ack").json == {"state": "delivered"}
    assert running.lease(token, "ack").json == {"state": "delivered", "already": True}
    assert running.lease(token, "nack").code == "lease_lost"


def test_a_nack_gives_back_at_once_or_later(running: Hub, name: str) -> None:
    running.send(name, "work", "sender")
    [first] = running.claim(name)
    assert running.lease(first["lease"]["token"], "nack", delay_seconds=0).json["state"] == "queued"
    [second] = running.claim(name)
    assert second["attempt"] == 2
    begun = time.monotonic()
    running.lease(second["lease"]["token"], "nack", delay_seconds=1)
    assert running.claim(name) == []
    [third] = running.claim(name, wait_seconds=20)
    assert 0.8 < time.monotonic() - begun < 1.5 * MARGIN
    assert third["attempt"] == 3


def test_a_lease_that_runs_out_passes_to_the_next(running: Hub, name: str) -> None:
    sent = running.send(name, "work", "sender")
    begun = time.monotonic()
    [first] = running.claim(name, lease_seconds=1)
    [second] = running.claim(name, wait_seconds=20)
    assert 0.8 < time.monotonic() - begun < 1.5 * MARGIN
    assert (second["message"]["id"], second["attempt"]) == (sent["id"], 2)
    lost = running.lease(first["lease"]["token"], "ack")
    assert (lost.status, lost.code) == (409, "lease_lost")
    assert (lost.json["attempt"], lost.json["holder"]) == (2, "claim")
    assert running.lease(first["lease"]["token"], "renew").code == "lease_lost"
    assert running.lease(second["lease"]["token"], "ack").json == {"state": "delivered"}


def test_a_late_ack_is_good_while_nobody_has_claimed_since(running: Hub, name: str) -> None:
    running.send(name, "work", "sender")
    [taken] = running.claim(name, lease_seconds=1)
    eventually(lambda: running.inbox(name)["deliveries"][0]["state"] == "queued", 5)
    assert running.lease(taken["lease"]["token"], "ack").json == {"state": "delivered", "late": True}
    assert running.claim(name) == []


def test_a_renewed_lease_holds(running: Hub, name: str) -> None:
    sent = running.send(name, "work", "sender")
    [taken] = running.claim(name, lease_seconds=3)  # ten times the pause between renewals
    deadlines = [taken["lease"]["deadline"]]
    ends = time.monotonic() + 7
    while time.monotonic() < ends:
        answer = running.lease(taken["lease"]["token"], "renew", lease_seconds=3).json
        assert answer["state"] == "leased"
        deadlines.append(answer["deadline"])
        assert running.claim(name, wait_seconds=0.3) == []
    assert deadlines == sorted(deadlines)
    assert deadlines[-1] > deadlines[0]
    assert running.receipt(sent["id"])["deliveries"][0]["attempt"] == 1


def test_what_comes_back_too_often_becomes_a_dead_letter(running: Hub, name: str) -> None:
    """And a person, over the hub's own socket, sends it on its way again, or drops it."""
    ids = [running.send(name, text, f"{name}-asker", intent="request")["id"] for text in ("again", "drop")]
    for _ in range(10):
        for item in running.claim(name, 2):
            running.lease(item["lease"]["token"], "nack", delay_seconds=0)
    for message_id in ids:
        [row] = running.receipt(message_id)["deliveries"]
        assert (row["state"], row["reason"]) == ("dead", "attempts_used_up")
    assert [item["message"]["reason"] for item in running.claim(f"{name}-asker", 2)] == ["attempts_used_up"] * 2
    refused = running.get("/v1/dead-letters")
    assert (refused.status, refused.code) == (401, "token_required")
    assert running.post(f"/v1/dead-letters/{ids[0]}/requeue").status == 401
    letters = running.get("/v1/dead-letters", admin=True).json["deliveries"]
    assert [letter["message"]["id"] for letter in letters if letter["delivery"]["to"] == name] == ids
    assert running.post(f"/v1/dead-letters/{ids[0]}/requeue", admin=True).json["deliveries"][0]["state"] == "queued"
    assert running.post(f"/v1/dead-letters/{ids[1]}/drop", admin=True).json["deliveries"][0]["state"] == "failed"
    assert running.post(f"/v1/dead-letters/{ids[1]}/drop", admin=True).code == "unknown_message"
    [taken] = running.claim(name, 10)
    assert (taken["message"]["id"], taken["attempt"]) == (ids[0], 11)
    assert running.lease(taken["lease"]["token"], "ack").json == {"state": "delivered"}


# ----------------------------------------------------------------------------------------------------------- the inbox


def test_looking_twice_sees_the_same(running: Hub, name: str) -> None:
    for number in range(5):
        running.send(name, str(number), "sender" if number % 2 else "Other")
    running.claim(name, 2)
    first, second = (running.get(f"/v1/agents/{name}/inbox").body for _ in range(2))
    assert first == second
    found = json.loads(first)
    assert [(row["message"]["text"], row["state"]) for row in found["deliveries"]] == [
        ("0", "leased"), ("1", "leased"), ("2", "queued"), ("3", "queued"), ("4", "queued"),
    ]  # fmt: skip
    assert (found["total"], found["hidden"], found["next"]) == (5, 0, None)
    assert found["oldest_unread_at"]
    one = running.inbox(name, **{"from": "OTHER", "state": "queued"})
    assert [row["message"]["text"] for row in one["deliveries"]] == ["2", "4"]
    assert (one["total"], one["hidden"]) == (5, 3)
    pages = []
    after = 0
    while after is not None:
        page = running.inbox(name, limit=2, after=after)
        pages.append([row["message"]["text"] for row in page["deliveries"]])
        after = page["next"]
    assert pages == [["0", "1"], ["2", "3"], ["4"]]


# -------------------------------------------------------------------------------------------------------------- agents


def test_names_are_put_shown_and_removed_by_an_admin_alone(running: Hub) -> None:
    name = f"N{next(_numbers)}"
    told = {"title": "Scout", "description": "Looks around"}
    refused = running.call("PUT", f"/v1/agents/{name}", told)
    assert (refused.status, refused.code) == (401, "token_required")
    assert running.get(f"/v1/agents/{name}").code == "unknown_agent"
    assert running.call("PUT", f"/v1/agents/{name}", told, admin=True).status == 201
    found = running.get(f"/v1/agents/{name.lower()}").json
    assert found == {**found, **told, "handle": name, "connection": "local", "presence": "away", "keyed": False}
    assert running.call("PUT", f"/v1/agents/{name}", {"title": "New"}, admin=True).status == 200
    assert running.get(f"/v1/agents/{name}").json["description"] == "Looks around"
    assert name in [row["handle"] for row in running.get("/v1/agents").json["agents"]]
    assert running.call("DELETE", f"/v1/agents/{name}").status == 401
    assert running.call("DELETE", f"/v1/agents/{name}", admin=True).status == 200
    assert running.get(f"/v1/agents/{name}").status == 404


def test_presence_shows_while_a_stream_is_open(running: Hub, name: str) -> None:
    assert running.get(f"/v1/agents/{name}").json["presence"] == "away"
    with Stream(running, f"/v1/agents/{name}/stream?ack=auto"):
        eventually(lambda: running.get(f"/v1/agents/{name}").json["presence"] == "online")
    eventually(lambda: running.get(f"/v1/agents/{name}").json["presence"] == "away")


def test_a_keyed_name_belongs_to_its_key(running: Hub, name: str) -> None:
    """Keying keeps the mail; then its own token alone speaks for it, and other names are untouched."""
    running.send(name, "before", "sender")
    assert running.post(f"/v1/agents/{name}/token").status == 401
    made = running.post(f"/v1/agents/{name}/token", admin=True)
    assert made.status == 201
    token = made.json["token"]
    message = {"to": "hermes", "text": "x", "from": name}
    calls: list[tuple[str, str, Any]] = [
        ("POST", "/v1/messages", message),
        ("POST", f"/v1/agents/{name}/claim", {}),
        ("GET", f"/v1/agents/{name}/inbox", None),
        ("GET", f"/poll?agent={name}", None),
        ("POST", f"/broadcast?from={name}", {}),
        ("GET", f"/subscribe?agent={name}", None),
        ("GET", f"/v1/agents/{name}/stream", None),
    ]
    for method, path, body in calls:
        refused = running.call(method, path, body)
        assert (path, refused.status, refused.code) == (path, 401, "token_required")
        assert running.call(method, path, body, token="x" * 43).status == 401
    [taken] = running.call("POST", f"/v1/agents/{name}/claim", {}, token=token).json["deliveries"]
    assert taken["message"]["text"] == "before"
    assert running.call("POST", f"/v1/leases/{taken['lease']['token']}/ack").status == 404
    assert running.call("POST", f"/v1/leases/{taken['lease']['token']}/ack", token=token).status == 200
    sent = running.post("/v1/messages", {"to": name, "text": "to itself"}, token=token).json
    assert running.get(f"/v1/messages/{sent['id']}", token=token).json["message"]["verified"] is True
    assert running.get(f"/v1/messages/{sent['id']}").code == "unknown_message"
    assert running.get("/poll?agent=hermes").status == 200


def test_a_token_speaks_for_its_own_name_only(running: Hub, name: str) -> None:
    token = running.post(f"/v1/agents/{name}/token", admin=True).json["token"]
    other = running.call("POST", "/v1/messages", {"to": "hermes", "text": "x", "from": "openclaw"}, token=token)
    assert (other.status, other.code) == (403, "not_your_name")
    assert running.call("POST", "/v1/agents/openclaw/claim", {}, token=token).code == "not_your_name"
    assert running.call("GET", "/v1/dead-letters", token=token).code == "not_allowed"
    assert running.call("PUT", f"/v1/agents/{name}", {"title": "Mine"}, token=token).status == 200
    assert running.call("PUT", "/v1/agents/openclaw", {"title": "Mine"}, token=token).code == "not_allowed"
    assert running.post("/v1/agents/openclaw/token", token=token).code == "not_allowed"


def test_tokens_overlap_while_one_is_rotated_and_end_when_revoked(running: Hub, name: str) -> None:
    old = running.post(f"/v1/agents/{name}/token", admin=True).json
    new = running.post(f"/v1/agents/{name}/token", token=old["token"]).json
    for token in (old["token"], new["token"]):
        assert running.get(f"/v1/agents/{name}/inbox", token=token).status == 200
    assert running.call("DELETE", f"/v1/agents/{name}/token/{old['id']}", token=new["token"]).status == 200
    assert running.get(f"/v1/agents/{name}/inbox", token=old["token"]).status == 401
    assert running.get(f"/v1/agents/{name}/inbox", token=new["token"]).status == 200
    assert running.call("DELETE", f"/v1/agents/{name}/token/{new['id']}", admin=True).status == 200
    assert running.get(f"/v1/agents/{name}/inbox", token=new["token"]).status == 401
    assert running.get(f"/v1/agents/{name}/inbox").status == 401  # still keyed


def test_keys_and_tokens_outlive_a_restart() -> None:
    with hub() as at:
        token = at.post("/v1/agents/box/token", admin=True).json["token"]
        at.restart()
        assert at.get("/v1/agents/box/inbox").status == 401
        assert at.get("/v1/agents/box/inbox", token=token).status == 200


def test_the_unix_socket_is_admin_and_tcp_is_not(running: Hub) -> None:
    message = {"to": "hermes", "text": "from a person"}
    assert running.post("/v1/messages", message).code == "bad_request"
    assert running.post("/v1/messages", {**message, "from": "human"}).code == "bad_name"
    sent = running.post("/v1/messages", message, admin=True)
    assert sent.status == 201
    found = running.get(f"/v1/messages/{sent.json['id']}", admin=True).json["message"]
    assert (found["from"], found["verified"], found["lane"]) == ("human", True, "person")
    lane = running.post("/v1/messages", {**message, "from": "sender", "lane": "person"})
    assert (lane.status, lane.code) == (401, "token_required")
    for method, path in (("POST", "/v1/down"), ("PUT", "/v1/agents/x"), ("DELETE", "/v1/agents/hermes")):
        assert running.call(method, path, {} if method != "DELETE" else None).status == 401
    assert running.is_ready()


def test_a_persons_mail_goes_first(running: Hub, name: str) -> None:
    for number in range(5):
        running.send(name, str(number), "sender")
    running.post("/v1/messages", {"to": name, "text": "urgent"}, admin=True)
    assert [item["message"]["text"] for item in running.claim(name, 6)] == ["urgent", "0", "1", "2", "3", "4"]
