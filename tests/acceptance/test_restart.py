"""What is left after SIGKILL: everything that was accepted, in order, under numbers that are never used again."""

import os
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import MARGIN, Hub, Stream, eventually, hub

READY_SECONDS = 2
WAITING = 100_000
BATCH = 1000
# A mailbox takes ten thousand by itself, of which the last tenth is not for senders who prove nothing.
ROOM = {"ANGELIA_LIMITS_MAILBOX_DELIVERIES": "12000"}
POLL_SECONDS = 0.020
POLLED = 100  # messages by a poll, at most
MEASURED = 20  # sends


@pytest.fixture
def at() -> Iterator[Hub]:
    with hub(env=ROOM) as started:
        yield started


def batch(at: Hub, to: str, sender: str, texts: list[str]) -> list[dict[str, Any]]:
    items = [{"to": to, "text": text, "from": sender} for text in texts]
    outcomes = at.kept("POST", "/v1/messages", {"messages": items}).json["outcomes"]
    assert {outcome["status"] for outcome in outcomes} == {201}
    return [outcome["sent"] for outcome in outcomes]


def take_all(at: Hub, name: str) -> list[dict[str, Any]]:
    """Everything that is due in a mailbox, settled, as it came."""
    found: list[dict[str, Any]] = []
    while page := at.poll(name):
        found += page
    return found


def written_by_a_send(at: Hub) -> int:
    """How many bytes the hub writes for one, into files and sockets: the least of some, since beside them it does other
    things too (the search index follows what was sent)."""

    def written() -> int:
        return int(Path(f"/proc/{at.pid}/io").read_text().split("wchar: ")[1].split()[0])

    at.claim("measured")
    took: list[int] = []
    for number in range(MEASURED):
        before = written()
        at.send("measured", str(number), "measuring")
        took.append(written() - before)
    return min(took)


def worked_seconds(at: Hub) -> float:
    """For how long the hub was at work since it was started, whatever else the machine did meanwhile."""
    words = Path(f"/proc/{at.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def polled_empty(at: Hub, name: str) -> tuple[list[dict[str, Any]], list[float]]:
    """All that is in one of the boxes, and for how long the hub worked for each quarter of it, from full to empty."""
    found: list[dict[str, Any]] = []
    quarters: list[float] = []
    for _ in range(4):
        begun = worked_seconds(at) if sys.platform == "linux" else 0.0
        for _ in range(WAITING // 10 // POLLED // 4):
            found += at.poll(name)
        quarters.append(worked_seconds(at) - begun if sys.platform == "linux" else 0.0)
    return found, quarters


@pytest.mark.timeout(180)
def test_a_hundred_thousand_that_wait_outlive_a_kill_and_delay_no_start(at: Hub) -> None:
    """Ready within 2 s, and all are there, in order. Among so many a poll costs 20 ms at most (F097), and a send
    writes no more than in an empty store (F098)."""
    boxes = [f"box{number}" for number in range(10)]
    for box in boxes:
        at.claim(box)
    on_linux = sys.platform == "linux"
    empty = written_by_a_send(at) if on_linux else 0
    seqs = []
    for part in range(WAITING // BATCH // len(boxes)):
        for box in boxes:
            sent = batch(at, box, f"sender{part}", [str(part * BATCH + number) for number in range(BATCH)])
            seqs += [row["deliveries"][0]["seq"] for row in sent]
    assert len(set(seqs)) == WAITING
    if on_linux:
        eventually(lambda: written_by_a_send(at) < 1.5 * empty, what=f"a send writes about {empty} bytes")
    took = at.restart()
    assert took < READY_SECONDS * MARGIN, f"ready after {took:.1f} s"
    status = at.get("/status").json["queues"]
    assert [status[box] for box in boxes] == [WAITING // len(boxes)] * len(boxes)
    worked = []
    for box in boxes[:2]:  # the rest is counted
        found, quarters = polled_empty(at, box)
        assert [int(item["text"]) for item in found] == list(range(WAITING // len(boxes)))
        worked.append(quarters)
    if on_linux:
        polls = WAITING // len(boxes) // POLLED
        assert min(sum(quarters) for quarters in worked) / polls < POLL_SECONDS * MARGIN, worked
        assert any(first < 2 * last for first, *_, last in worked), f"polls of a full box cost more: {worked}"
    assert at.poll("box0") == at.poll("box1") == []
    took = at.restart()
    assert took < READY_SECONDS * MARGIN, f"ready after {took:.1f} s"
    assert at.get("/status").json["queues"]["box0"] == 0
    assert at.send("box0", "next", "sender")["deliveries"][0]["seq"] > max(seqs)


def test_a_fresh_hub_is_ready_at_once(at: Hub) -> None:
    assert at.restart() < READY_SECONDS * MARGIN


def test_nothing_that_was_accepted_is_lost_by_a_kill_in_the_middle(at: Hub) -> None:
    """Senders write while the hub is killed; what they were told is there, in each one's order, and once."""
    at.claim("box")
    accepted: dict[str, list[str]] = {f"s{number}": [] for number in range(16)}

    def send(sender: str) -> None:
        with suppress(OSError), closing(at.connection()) as talk:
            for number in range(10_000):
                body = f'{{"to": "box", "text": "{sender} {number}", "from": "{sender}"}}'
                talk.request("POST", "/v1/messages", body, {"Content-Type": "application/json"})
                answer = talk.getresponse()
                if answer.status == 201:
                    accepted[sender].append(f"{sender} {number}")
                answer.read()

    for _ in range(3):
        with ThreadPoolExecutor(16) as threads:
            for sender in accepted:
                threads.submit(send, sender)
            eventually(lambda: sum(map(len, accepted.values())) > 200, 20)
            at.kill9()
        at.start()
        found = [item["text"] for item in take_all(at, "box")]
        assert len(found) == len(set(found))
        for sender, texts in accepted.items():
            mine = [text for text in found if text.startswith(f"{sender} ")]
            assert [text for text in mine if text in texts] == texts
            assert len(mine) <= len(texts) + 1  # one whose answer was lost
            texts.clear()


def test_numbers_are_never_used_again(at: Hub) -> None:
    """Whatever was under way when the hub was killed, and whatever was settled and is gone."""
    at.claim("box")
    seqs: list[int] = []
    ids: set[str] = set()
    epochs = set()
    for round_ in range(5):
        sent = [at.send("box", f"{round_} {number}", "sender") for number in range(20)]
        with ThreadPoolExecutor(4) as threads:
            for _ in range(4):
                threads.submit(_send_until_it_breaks, at)
            eventually(lambda: at.inbox("box")["total"] > 40)  # so that the kill comes in the middle of writes
            at.kill9()
        at.start()
        epochs.add(at.get("/health").json["epoch"])
        found = take_all(at, "box")
        for item in found:
            assert item["_meta"]["id"] not in ids
            ids.add(item["_meta"]["id"])
            seqs.append(item["_meta"]["seq"])
        assert {each["id"] for each in sent} <= ids
    assert all(one < two for one, two in pairwise(seqs))
    assert len(epochs) == 1


def _send_until_it_breaks(at: Hub) -> None:
    with suppress(OSError), closing(at.connection()) as talk:
        while True:
            body = '{"to": "box", "text": "busy", "from": "busy"}'
            talk.request("POST", "/v1/messages", body, {"Content-Type": "application/json"})
            talk.getresponse().read()


def test_leases_end_with_the_hub(at: Hub) -> None:
    """What was held is due again at once, whatever its lease said, in its place, and with a higher attempt."""
    at.claim("box")
    for number in range(4):
        at.send("box", str(number), "sender")
    held = at.claim("box", 2, lease_seconds=1800)
    at.restart()
    again = at.claim("box", 4)
    assert [item["message"]["text"] for item in again] == ["0", "1", "2", "3"]
    assert [item["attempt"] for item in again] == [2, 2, 1, 1]
    for item in held:
        lost = at.lease(item["lease"]["token"], "ack")
        assert (lost.status, lost.code) == (409, "lease_lost")
    for item in again:
        assert at.lease(item["lease"]["token"], "ack").json == {"state": "delivered"}
    # A hub's end is no fault of the message: it uses up no attempt.
    assert [at.receipt(item["message"]["id"])["deliveries"][0].get("used", 0) for item in again] == [0] * 4


def test_a_late_ack_is_good_after_a_restart(at: Hub) -> None:
    """An agent that finished while the hub was away must not do its work again."""
    at.claim("box")
    sent = at.send("box", "work", "sender")
    [held] = at.claim("box")
    at.restart()
    assert at.lease(held["lease"]["token"], "ack").json == {"state": "delivered", "late": True}
    assert at.claim("box") == []
    assert at.state(sent["id"]) == "delivered"
    at.restart()
    assert at.lease(held["lease"]["token"], "ack").json["already"] is True
    assert at.state(sent["id"]) == "delivered"


def test_what_a_stream_held_comes_again_or_is_settled_by_its_resume(at: Hub) -> None:
    at.claim("box")
    stream = Stream(at, "/v1/agents/box/stream?ack=manual")
    sent = at.send("box", "manual", "sender")
    first = stream.next().json
    at.restart()
    assert stream.rest() == []
    [again] = at.claim("box")
    assert (again["message"]["id"], again["attempt"]) == (sent["id"], first["attempt"] + 1)
    at.lease(again["lease"]["token"], "ack")
    with Stream(at, "/v1/agents/box/stream?ack=auto") as stream:
        seen = at.send("box", "auto", "sender")
        last_id = stream.next().id
        at.restart()
    with Stream(at, "/v1/agents/box/stream?ack=auto", last_event_id=last_id) as stream:
        assert [event for event in stream.quiet(0.3) if event.kind != "message"] == []
        assert at.state(seen["id"]) == "delivered"
        at.send("box", "next", "sender")
        assert stream.next().json["message"]["text"] == "next"


def test_an_ask_goes_on_after_a_restart(at: Hub) -> None:
    at.claim("box")
    question = {"to": "box", "text": "?", "from": "asker", "id": uuid.uuid4().hex, "wait_seconds": 20}
    with ThreadPoolExecutor(1) as other:
        asking = other.submit(at.post, "/v1/ask", question)
        [taken] = at.claim("box", wait_seconds=10)
        at.restart()
        assert isinstance(asking.exception(10), OSError)
        asking = other.submit(at.post, "/v1/ask", question)
        answer = at.post(f"/v1/messages/{taken['message']['id']}/reply", {"text": "!", "from": "box"})
        assert answer.status == 201
        assert asking.result(10).json["reply"]["text"] == "!"
    assert at.claim("box") == []


def test_a_hub_that_was_asked_to_end_leaves_a_folder_that_starts(at: Hub) -> None:
    at.claim("box")
    at.send("box", "work", "sender")
    code, took = at.stop()
    assert code == 0
    assert took < 3 * MARGIN
    assert not (at.folder / "hub.sock").exists()
    at.start()
    assert [item["message"]["text"] for item in at.claim("box")] == ["work"]
