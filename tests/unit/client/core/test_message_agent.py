"""``message_agent`` of the clients: the roster is asked, the message sent as a request, and what is refused told."""

from typing import Any

import pytest

from angelia.client.errors import NoHub, TimedOut
from tests.fakes.script import WALL, Script, absent, no, ok, silent

ME = {"handle": "scout", "connection": "local", "presence": "away", "title": "", "adapter": None}
ANN = {"handle": "ann", "connection": "local", "presence": "away", "title": "Painter", "adapter": None}
OPS = {"handle": "ops", "connection": "vps-1", "title": "Ops Bot", "presence": "unknown"}


def roster(*more: dict[str, Any], me: dict[str, Any] = ME) -> tuple[int, bytes]:
    return ok({"agents": [me, ANN, *more]})


SENT = ok({"id": "a" * 32, "thread": "a" * 32, "deliveries": [{"to": "ann", "seq": 1, "state": "queued"}]}, 201)


def told(script: Script, target: str = "@Painter", message: str = " hello ", name: str | None = "scout") -> Any:
    return script.play(script.verbs(name).message_agent(target, message))


def test_it_is_sent_as_a_request_to_whoever_is_meant() -> None:
    script = Script(roster(), SENT)
    answer = told(script)
    assert [f"{step.method} {step.path}" for step in script.exchanges] == ["GET /v1/agents", "POST /v1/messages"]
    said = script.bodies[0]
    assert len(said.pop("id")) == 32
    assert said == {"to": "ann", "text": "hello", "intent": "request", "from": "scout"}
    assert (answer["status"], answer["delivery_id"], answer["to"]) == ("queued", "a" * 32, "@ann")
    assert answer["queued_at"] == int(WALL)


@pytest.mark.parametrize(
    ("me", "how"),
    [
        (ME, "poll"),
        ({**ME, "presence": "online"}, "notification"),
        ({**ME, "adapter": {"kind": "command"}}, "notification"),
    ],
)
def test_it_says_how_the_answer_comes(me: dict[str, Any], how: str) -> None:
    assert told(Script(roster(me=me), SENT))["reply_delivery"] == how


def test_somebody_elsewhere() -> None:
    script = Script(roster(OPS), SENT)
    assert told(script, "ops")["to"] == "@ops on vps-1"
    assert script.bodies[0]["to"] == "ops@vps-1"


def test_who_is_offline_is_not_written_to() -> None:
    script = Script(roster({**OPS, "presence": "offline"}), SENT)
    assert told(script, "ops")["reason"] == "runtime_offline"
    assert not script.bodies


def test_a_wrong_message_costs_no_request_and_a_wrong_target_one() -> None:
    script = Script(roster(), SENT)
    assert "empty" in told(script, message=" ")["error"]
    assert "16001" in told(script, message="x" * 16_001)["error"]
    assert not script.steps
    assert told(script, "nobody")["teammates"] == ["ann", "human"]
    assert len(script.steps) == 1


def test_16_000_characters_are_sent_whole() -> None:
    script = Script(roster(), SENT)
    told(script, message="é" * 16_000)
    assert script.bodies[0]["text"] == "é" * 16_000


def test_what_the_hub_refuses_is_an_answer() -> None:
    answer = told(Script(roster(), no(429, "mailbox_full")))
    assert answer == {"error": "Because.", "reason": "mailbox_full"}


def test_that_no_hub_answers_is_an_error() -> None:
    with pytest.raises(NoHub):
        told(Script(absent()))
    with pytest.raises(TimedOut) as trouble:
        told(Script(roster(), silent()))
    assert trouble.value.message_id


def test_nobody_cannot_write() -> None:
    with pytest.raises(ValueError, match="name"):
        told(Script(roster()), name=None)
