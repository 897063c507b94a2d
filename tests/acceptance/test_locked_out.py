"""Nobody is locked out of a mailbox by those who need no proof to write to it: not by one who sends what is large, nor
by a crowd of made-up names. All bounds are those of an ordinary hub."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.acceptance.hub import Answer, Hub, hub

MIB = 1024 * 1024
SHARE_BYTES = 16 * MIB  # of one sender in one mailbox
SHARE = 1_000
OPEN_MOST = 9_000  # of a mailbox's 10,000, for names without proof


@pytest.fixture
def at() -> Iterator[Hub]:
    with hub() as started:
        yield started


def keyed(at: Hub, name: str) -> str:
    """The token of a name that is its token's alone from now on."""
    return str(at.post(f"/v1/agents/{name}/token", admin=True).json["token"])


def message(sender: str, text: str) -> dict[str, str]:
    return {"to": "victim", "from": sender, "text": text}


def by_bytes(at: Hub) -> None:
    """One name, and 83 messages: 63 of a mebibyte, then ever smaller ones, into whatever room is left."""
    told: Counter[tuple[int, int]] = Counter()
    for size in [MIB] * 63 + [MIB >> min(step, 10) for step in range(1, 21)]:
        answer = at.kept("POST", "/v1/messages", message("heavy", "x" * size))
        told[answer.status, answer.json.get("limit", 0)] += 1
    assert set(told) == {(201, 0), (429, SHARE_BYTES)}, told
    assert at.post("/v1/messages", message("passer-by", "may I?")).status == 201


def by_count(at: Hub) -> None:
    """Ten made-up names, each with its whole share."""
    told: Counter[tuple[int, int]] = Counter()
    for number in range(10):
        batch = {"messages": [message(f"made-up-{number}", "x")] * SHARE}
        for outcome in at.kept("POST", "/v1/messages", batch).json["outcomes"]:
            told[outcome["status"], outcome.get("problem", {}).get("limit", 0)] += 1
    assert told == {(201, 0): OPEN_MOST, (429, OPEN_MOST): 10 * SHARE - OPEN_MOST}, told


@pytest.mark.parametrize("attack", [by_bytes, by_count])
def test_whoever_needs_no_proof_locks_nobody_out_of_a_keyed_mailbox(at: Hub, attack: Callable[[Hub], None]) -> None:
    token, colleague = keyed(at, "victim"), keyed(at, "colleague")
    at.claim("helper")  # an open name, which the victim asks
    asked = at.post("/v1/messages", {"to": "helper", "text": "well?", "intent": "request"}, token=token).json
    attack(at)
    reply: dict[str, Any] = {"from": "helper", "text": "y" * (MIB // 2)}
    told: dict[str, Answer] = {
        "the owner": at.post("/v1/messages", {"to": "victim", "text": "stop!", "lane": "person"}, admin=True),
        "a keyed name": at.post("/v1/messages", {"to": "victim", "text": "are you well?"}, token=colleague),
        "the answer": at.post(f"/v1/messages/{asked['id']}/reply", reply),
    }
    assert {who: answer.status for who, answer in told.items()} == dict.fromkeys(told, 201), told
    again = at.post(f"/v1/messages/{asked['id']}/reply", reply)  # one question is one answer past the bounds
    assert again.status == (429 if attack is by_count else 201)
    first = at.post("/v1/agents/victim/claim", {"limit": 1}, token=token).json["deliveries"]
    assert [each["message"]["text"] for each in first] == ["stop!"]
