"""Each call: what it puts, what it makes of the answer, and how long the answer may take."""

from typing import Any

import pytest

from angelia.client.errors import AskFailed, HubError, NotAHub, TimedOut
from tests.fakes.script import Script, lost, no, ok

SENT = ok({"id": "0" * 32, "thread": "0" * 32, "deliveries": []}, 201)
FINE = ok({"fine": True})

# The call; method and path; its body (None: none).
SAYING: list[tuple[Any, str, Any]] = [
    (lambda v: v.reply("a", "hi", id="5"), "POST /v1/messages/a/reply", {"text": "hi", "from": "scout", "id": "5"}),
    (lambda v: v.claim(limit=3), "POST /v1/agents/scout/claim", {"limit": 3, "wait_seconds": 0.0}),
    (lambda v: v.ack("7-1-ff"), "POST /v1/leases/7-1-ff/ack", {}),
    (lambda v: v.nack("7-1-ff", reason="no"), "POST /v1/leases/7-1-ff/nack", {"reason": "no"}),
    (lambda v: v.nack("7-1-ff", delay_seconds=0), "POST /v1/leases/7-1-ff/nack", {"delay_seconds": 0}),
    (lambda v: v.renew("7-1-ff", lease_seconds=9), "POST /v1/leases/7-1-ff/renew", {"lease_seconds": 9}),
    (lambda v: v.cancel("ab"), "POST /v1/messages/ab/cancel", {}),
    (lambda v: v.put_agent("x", title=""), "PUT /v1/agents/x", {"title": ""}),
    (lambda v: v.put_agent("x", adapter={"kind": "command"}), "PUT /v1/agents/x", {"adapter": {"kind": "command"}}),
    (lambda v: v.put_agent("x", adapter=None), "PUT /v1/agents/x", {"adapter": None}),
    (lambda v: v.check_agent("x"), "GET /v1/agents/x/check", None),
    (lambda v: v.turns(), "GET /v1/turns", None),
    (lambda v: v.stop_turn("ab"), "POST /v1/turns/ab/stop", {}),
    (lambda v: v.new_token("x"), "POST /v1/agents/x/token", {}),
    (lambda v: v.connect("m/c", "ws://mac"), "PUT /v1/connections/m%2Fc", {"target": "ws://mac"}),
    (lambda v: v.connect("mac", code="A", speaks="hub", away="wait", share=("a",), accept=(), token_file="/t",
                         token_variable="T", user="u", password_file="/p", password_variable="P", ca_file="/c",
                         command="x"),
     "PUT /v1/connections/mac",
     {"target": "", "code": "A", "speaks": "hub", "away": "wait", "share": ["a"], "accept": [], "token_file": "/t",
      "token_variable": "T", "user": "u", "password_file": "/p", "password_variable": "P", "ca_file": "/c",
      "command": "x"}),
    (lambda v: v.disconnect("mac"), "DELETE /v1/connections/mac", None),
    (lambda v: v.pairing_code(), "POST /v1/pairing", {}),
    (lambda v: v.requeue("7"), "POST /v1/dead-letters/7/requeue", {}),
    (lambda v: v.drop("7", to="a b"), "POST /v1/dead-letters/7/drop?to=a+b", {}),
    (lambda v: v.down(), "POST /v1/down", {}),
    (lambda v: v.inbox(), "GET /v1/agents/scout/inbox", None),
    (lambda v: v.inbox(after=4, limit=2, state="queued", sender="a b"),
     "GET /v1/agents/scout/inbox?after=4&limit=2&state=queued&from=a+b", None),
    (lambda v: v.message("ab"), "GET /v1/messages/ab", None),
    (lambda v: v.message("ab", wait_seconds=2), "GET /v1/messages/ab?wait=2", None),
    (lambda v: v.threads(), "GET /v1/threads", None),
    (lambda v: v.threads(before=9, limit=2), "GET /v1/threads?before=9&limit=2", None),
    (lambda v: v.thread("a/b"), "GET /v1/threads/a%2Fb", None),
    (lambda v: v.thread("ab", after=3, limit=2), "GET /v1/threads/ab?after=3&limit=2", None),
    (lambda v: v.search('"a b" & c*'), "GET /v1/search?q=%22a+b%22+%26+c%2A", None),
    (lambda v: v.search("x", sender="a", recipient="*", before=3, limit=2),
     "GET /v1/search?q=x&from=a&to=%2A&before=3&limit=2", None),
    (lambda v: v.back_up(), "POST /v1/backups", {}),
    (lambda v: v.back_up("/tmp/x y.db"), "POST /v1/backups", {"file": "/tmp/x y.db"}),
    (lambda v: v.agent("../a b"), "GET /v1/agents/..%2Fa%20b", None),
    (lambda v: v.dead_letters(), "GET /v1/dead-letters", None),
    (lambda v: v.status(), "GET /status", None),
    (lambda v: v.remove_agent("x"), "DELETE /v1/agents/x", None),
]  # fmt: skip


@pytest.mark.parametrize(("call", "asked", "body"), SAYING, ids=[row[1] for row in SAYING])
def test_each_call(call: Any, asked: str, body: Any) -> None:
    script = Script(FINE)
    assert script.play(call(script.verbs())) == {"fine": True}
    step = script.exchanges[0]
    assert f"{step.method} {step.path}" == asked
    assert (script.bodies or [None])[0] == body


@pytest.mark.parametrize(
    ("call", "seconds"),
    [
        (lambda v: v.status(), 30),
        (lambda v: v.claim(wait_seconds=50), 80),
        (lambda v: v.back_up(), 3600),
        (lambda v: v.check_agent("x"), 90),
        (lambda v: v.connect("mac", "ws://mac"), 60),
        (lambda v: v.message("ab", wait_seconds=20), 50),
        (lambda v: v.ask("hermes", "?", wait_seconds=600), 80),
    ],
)
def test_an_answer_may_take_as_long_as_was_asked_for_and_then_some(call: Any, seconds: float) -> None:
    script = Script(ok({"reply": {}}))
    script.play(call(script.verbs()))
    assert script.exchanges[0].seconds == seconds


def test_a_send_says_what_was_given_and_nothing_else() -> None:
    script = Script(SENT)
    text = "“quotes”\n'and'\r\n\ttabs 🐝 \u2028\0end"
    script.play(script.verbs().send("hermes", text, body=None, intent="request", ttl_seconds=90))
    said = script.bodies[0]
    assert len(said.pop("id")) == 32
    assert said == {"to": "hermes", "text": text, "body": None, "intent": "request", "ttl_seconds": 90, "from": "scout"}


def test_two_sends_are_two_messages_and_one_id_is_one() -> None:
    script = Script(SENT)
    for given in (None, None, "a" * 32, "a" * 32):
        script.play(script.verbs().send("hermes", "hi", id=given))
    ids = [body["id"] for body in script.bodies]
    assert len(set(ids)) == 3
    assert ids[2:] == ["a" * 32] * 2


def test_a_key_is_a_header() -> None:
    script = Script(SENT)
    script.play(script.verbs().send("hermes", "hi", key="deploy-7"))
    assert script.exchanges[0].headers == {"Idempotency-Key": "deploy-7"}


def test_a_caller_without_a_name_has_no_mailbox() -> None:
    verbs = Script(FINE).verbs(None)
    for call in (verbs.inbox, verbs.claim):
        with pytest.raises(ValueError, match="name"):
            call()


def test_agents_are_a_list() -> None:
    script = Script(ok({"agents": [{"handle": "hermes"}]}))
    assert script.play(script.verbs().agents()) == [{"handle": "hermes"}]


def test_connections_are_a_list() -> None:
    script = Script(ok({"connections": [{"name": "mac"}]}))
    assert script.play(script.verbs().connections()) == [{"name": "mac"}]


def test_a_briefing_is_a_text_of_oneself_or_of_somebody() -> None:
    for name, path in ((None, "/v1/agents/scout/briefing"), ("a b", "/v1/agents/a%20b/briefing")):
        script = Script((200, "# You are @scout 🐝\n".encode()))
        assert script.play(script.verbs().briefing(name)) == "# You are @scout 🐝\n"
        assert script.exchanges[0].path == path


def test_a_briefing_that_is_refused() -> None:
    script = Script(no(401, "token_required"))
    with pytest.raises(HubError):
        script.play(script.verbs().briefing())


# ---- health


def test_health_of_another_program() -> None:
    script = Script(ok({"status": "ok"}))
    with pytest.raises(NotAHub, match="something else"):
        script.play(script.verbs().health())


def test_an_unwell_hub_tells_its_health() -> None:
    script = Script(ok({"product": "angelia", "status": "unwell"}, 503))
    assert script.play(script.verbs().health())["status"] == "unwell"


def test_a_refusal_of_health() -> None:
    script = Script(no(421, "wrong_host"))
    with pytest.raises(HubError):
        script.play(script.verbs().health())


# ---- ask

REPLY = {"id": "0" * 32, "reply": {"id": "1" * 32, "from": "hermes", "text": "8080"}}
NOT_YET = ok({"id": "0" * 32, "deliveries": []}, 202)


def test_an_ask_asks_on_under_its_id_until_there_is_an_answer() -> None:
    script = Script(NOT_YET, lost(), NOT_YET, ok(REPLY))
    assert script.play(script.verbs().ask("hermes", "which port?", wait_seconds=60)) == REPLY
    assert len({body["id"] for body in script.bodies}) == 1
    waits = [body["wait_seconds"] for body in script.bodies]
    assert waits[0] == 50
    assert all(0 < wait <= 50 for wait in waits)


def test_the_last_step_of_an_ask_is_no_longer_than_what_is_left() -> None:
    script = Script(NOT_YET, ok(REPLY))
    script.now = 100.0
    plan = script.verbs().ask("hermes", "?", wait_seconds=60)
    script.play(plan)
    assert script.bodies[1]["wait_seconds"] == 50
    assert script.pauses == [0.05]


def test_an_ask_that_fails() -> None:
    script = Script(ok({"id": "0" * 32, "failure": {"reason": "queued_expired", "text": "Nobody took it."}}))
    with pytest.raises(AskFailed, match="Nobody took it") as caught:
        script.play(script.verbs().ask("hermes", "?", id="a" * 32))
    assert (caught.value.reason, caught.value.message_id) == ("queued_expired", "a" * 32)


def test_an_ask_without_an_answer_in_time() -> None:
    script = Script(NOT_YET)
    with pytest.raises(TimedOut) as caught:
        script.play(script.verbs().ask("hermes", "?", id="a" * 32, wait_seconds=0.2))
    assert caught.value.message_id == "a" * 32
    assert script.bodies[-1]["wait_seconds"] == 0


def test_an_ask_is_patient_with_a_hub_for_as_long_as_it_waits() -> None:
    script = Script(NOT_YET, *[lost()] * 30, ok(REPLY))
    assert script.play(script.verbs().ask("hermes", "?", wait_seconds=600)) == REPLY
    assert script.now > 15
