"""How a message gets to a hub: what is repeated, what is kept, what is flushed, and what is said of it."""

from pathlib import Path
from typing import Any

import pytest

from angelia.client.core.posting import Post
from angelia.client.errors import ClientError, HubError, LostHub, NoHub, OutboxFull, TimedOut
from angelia.client.outbox import Outbox
from tests.fakes.script import Script, absent, another, lost, no, ok, silent

SENT = ok({"id": "0" * 32, "deliveries": []}, 201)
MESSAGE = {"to": "hermes", "text": "hi", "from": "scout", "id": "a" * 32}
PATH = "/v1/messages"

# What the requests come to; what comes of it (an error or None); how many requests; how long it waited between them.
REPEATS: list[tuple[str, list[Any], type[ClientError] | None, int, list[float]]] = [
    ("at once", [SENT], None, 1, []),
    ("no hub: nothing was heard", [absent()], NoHub, 1, []),
    ("refused", [no(404, "unknown_agent")], HubError, 1, []),
    ("full", [no(429, "mailbox_full")], HubError, 1, []),
    ("another program", [another()], NoHub, 1, []),
    ("silent: it may have been heard, and again would take as long", [silent()], TimedOut, 1, []),
    ("cut off, then fine", [lost(), SENT], None, 2, [0.2]),
    ("stopping, then fine", [no(503, "stopping"), SENT], None, 2, [0.2]),
    ("cut off, then refused", [lost(), no(404, "unknown_agent")], HubError, 2, [0.2]),
    ("cut off, away, back", [lost(), absent(), absent(), SENT], None, 4, [0.2, 0.4, 0.8]),
    ("cut off, then away for good", [lost(), absent()], LostHub, 11, [0.2, 0.4, 0.8, 1.6, 2, 2, 2, 2, 2, 2]),
    ("the hub says when", [no(503, "outcome_unknown", retry_after_seconds=3), SENT], None, 2, [3]),
    ("the hub says never mind when", [no(503, "unwell", retry_after_seconds=True), SENT], None, 2, [0.2]),
    ("a kept connection was dead", [lost(kept=True), SENT], None, 2, []),
    ("a kept one was dead, and so is the hub", [lost(kept=True), absent(), SENT], None, 3, [0.2]),
]


@pytest.mark.parametrize(("what", "outcomes", "error", "requests", "pauses"), REPEATS, ids=[row[0] for row in REPEATS])
def test_repeats(
    what: str, outcomes: list[Any], error: type[ClientError] | None, requests: int, pauses: list[float]
) -> None:
    script = Script(*outcomes)
    plan = script.post().surely(PATH, dict(MESSAGE))
    if error is None:
        assert script.play(plan) == {"id": "0" * 32, "deliveries": []}
    else:
        with pytest.raises(error) as caught:
            script.play(plan)
        if error in (LostHub, TimedOut):
            assert caught.value.message_id == "a" * 32
    assert script.bodies == [MESSAGE] * requests
    assert script.pauses == pytest.approx(pauses)


def test_a_hub_that_answered_before_and_is_gone_is_waited_for_once() -> None:
    script = Script(SENT, absent(), absent(), SENT, absent())
    post = script.post()
    for _ in range(2):
        assert script.play(post.surely(PATH, dict(MESSAGE))) == {"id": "0" * 32, "deliveries": []}
    assert script.pauses == pytest.approx([0.2, 0.4])
    waited = len(script.exchanges)
    with pytest.raises(NoHub) as caught:
        script.play(post.surely(PATH, dict(MESSAGE)))  # for as long as it has patience
    assert (caught.value.message_id, len(script.exchanges)) == ("a" * 32, waited + 11)
    with pytest.raises(NoHub):
        script.play(post.surely(PATH, dict(MESSAGE)))  # and from then on not at all
    assert len(script.exchanges) == waited + 12


def test_another_program_in_its_place_is_not_waited_for() -> None:
    script = Script(SENT, another())
    post = script.post()
    script.play(post.surely(PATH, dict(MESSAGE)))
    with pytest.raises(NoHub):
        script.play(post.surely(PATH, dict(MESSAGE)))
    assert script.pauses == []


def test_a_kept_connection_is_tried_once_more_and_not_twice() -> None:
    script = Script(lost(kept=True))
    with pytest.raises(LostHub):
        script.play(script.post().call("GET", "/status"))
    assert len(script.exchanges) == 2


def test_a_fresh_connection_that_breaks_is_not_tried_again_by_a_mere_call() -> None:
    script = Script(lost())
    with pytest.raises(LostHub):
        script.play(script.post().call("GET", "/status"))
    assert len(script.exchanges) == 1


def test_a_key_goes_along_each_time() -> None:
    script = Script(lost(), SENT)
    script.play(script.post().surely(PATH, MESSAGE, key="deploy-7"))
    assert [step.headers for step in script.exchanges] == [{"Idempotency-Key": "deploy-7"}] * 2


# ---- with an outbox


def test_what_an_outbox_keeps_waits_for_no_hub(tmp_path: Path) -> None:
    script = Script(SENT, absent())
    post = script.post(outbox=Outbox(tmp_path / "out"))
    script.play(post.deliver(PATH, dict(MESSAGE), None))
    assert script.play(post.deliver(PATH, dict(MESSAGE), None))["kept"]
    assert script.pauses == []


def message(number: int, to: str = "hermes", **more: Any) -> dict[str, Any]:
    return {"to": to, "text": f"no. {number}", "from": "scout", "id": f"{number:032x}", **more}


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "out")


def deliver(outbox: Outbox, given: dict[str, Any], *outcomes: Any, path: str = PATH) -> tuple[Any, Script]:
    script = Script(*outcomes)
    return script.play(script.post(outbox=outbox).deliver(path, given, None)), script


def flush(outbox: Outbox, *outcomes: Any, name: str = "scout") -> tuple[Any, Script]:
    script = Script(*outcomes)
    return script.play(script.post(name, outbox=outbox).flush()), script


@pytest.mark.parametrize("away", [absent, another, lost, silent, lambda: no(503, "stopping"), lambda: no(507, "full")])
def test_what_no_hub_takes_is_kept_and_said_to_be(outbox: Outbox, away: Any) -> None:
    answer, _ = deliver(outbox, message(1), away())
    assert answer == {
        "id": f"{1:032x}", "thread": f"{1:032x}", "kept": True, "duplicate": False,
        "deliveries": [{"to": "hermes", "state": "kept"}],
    }  # fmt: skip
    assert [kept.message for kept in outbox.waiting("scout")] == [message(1)]


@pytest.mark.parametrize("refusal", [no(404, "unknown_agent"), no(429, "mailbox_full"), no(401, "token_required")])
def test_what_a_hub_refuses_is_refused_and_not_kept(outbox: Outbox, refusal: Any) -> None:
    with pytest.raises(HubError):
        deliver(outbox, message(1), refusal)
    assert outbox.waiting("scout") == []


def test_what_a_hub_takes_leaves_no_file(outbox: Outbox) -> None:
    answer, _ = deliver(outbox, message(1), SENT)
    assert answer == {"id": "0" * 32, "deliveries": []}
    assert not Path(outbox.path).exists()


def test_what_is_kept_goes_first_and_in_order(outbox: Outbox) -> None:
    for number in (1, 2, 3):
        deliver(outbox, message(number), absent())
    answer, script = deliver(outbox, message(4), SENT)
    assert [body["id"] for body in script.bodies] == [f"{number:032x}" for number in (1, 2, 3, 4)]
    assert answer["flushed"] == {"sent": [f"{number:032x}" for number in (1, 2, 3)], "refused": []}
    assert not Path(outbox.path).exists()


def test_while_the_first_cannot_go_none_is_tried(outbox: Outbox) -> None:
    deliver(outbox, message(1), absent())
    answer, script = deliver(outbox, message(2), absent())
    assert answer["kept"]
    assert [body["id"] for body in script.bodies] == [f"{1:032x}"]
    assert [kept.id for kept in outbox.waiting("scout")] == [f"{1:032x}", f"{2:032x}"]


def test_a_flush_that_breaks_off_goes_on_where_it_was(outbox: Outbox) -> None:
    for number in (1, 2, 3):
        deliver(outbox, message(number), absent())
    told, _ = flush(outbox, SENT, absent())
    assert told == {"sent": [f"{1:032x}"], "refused": [], "left": 2}
    told, script = flush(outbox, SENT)
    assert [body["id"] for body in script.bodies] == [f"{2:032x}", f"{3:032x}"]
    assert told["left"] == 0


def test_what_may_have_been_heard_is_flushed_under_its_id(outbox: Outbox) -> None:
    deliver(outbox, message(1), lost())
    _, script = flush(outbox, SENT)
    assert script.bodies == [message(1)]


def test_what_is_refused_for_what_it_is_is_set_aside_and_told(outbox: Outbox) -> None:
    for number in (1, 2, 3):
        deliver(outbox, message(number), absent())
    told, _ = flush(outbox, SENT, no(404, "unknown_agent"), SENT)
    assert told == {
        "sent": [f"{1:032x}", f"{3:032x}"],
        "refused": [{"id": f"{2:032x}", "code": "unknown_agent", "detail": "Because."}],
        "left": 0,
    }
    aside = Path(outbox.path + ".refused").read_text()
    assert '"unknown_agent"' in aside
    assert '"no. 2"' in aside


@pytest.mark.parametrize("refusal", [no(401, "token_required"), no(403, "not_your_name"), no(421, "wrong_host")])
def test_what_is_wrong_with_the_caller_leaves_everything_kept(outbox: Outbox, refusal: Any) -> None:
    deliver(outbox, message(1), absent())
    with pytest.raises(HubError):
        flush(outbox, refusal)
    with pytest.raises(HubError):
        deliver(outbox, message(2), refusal)
    assert [kept.id for kept in outbox.waiting("scout")] == [f"{1:032x}"]


def test_a_full_mailbox_holds_up_only_what_is_for_it(outbox: Outbox) -> None:
    deliver(outbox, message(1, "Full"), absent())
    deliver(outbox, message(2, "hermes"), absent())
    deliver(outbox, message(3, "full"), absent())
    told, script = flush(outbox, no(429, "mailbox_full"), SENT)
    assert [body["id"] for body in script.bodies] == [f"{1:032x}", f"{2:032x}"]
    assert (told["sent"], told["left"]) == ([f"{2:032x}"], 2)
    answer, script = deliver(outbox, message(4, "FULL"), no(429, "mailbox_full"))
    assert answer["kept"]  # it must not overtake
    answer, _ = deliver(outbox, message(5, "hermes"), no(429, "mailbox_full"), SENT)
    assert "kept" not in answer
    assert [kept.id for kept in outbox.waiting("scout")] == [f"{number:032x}" for number in (1, 3, 4)]


def test_only_ones_own_is_flushed(outbox: Outbox) -> None:
    deliver(outbox, message(1), absent())
    told, script = flush(outbox, SENT, name="other")
    assert (told, script.exchanges) == ({"sent": [], "refused": [], "left": 0}, [])
    assert outbox.count("SCOUT") == 1


def test_while_another_process_sends_what_is_kept_a_message_is_kept_behind_it(outbox: Outbox) -> None:
    deliver(outbox, message(1), absent())
    turn = Outbox(outbox.path).turn()
    assert turn is not None
    answer, script = deliver(outbox, message(2), SENT)
    assert answer["kept"]
    assert not script.exchanges
    assert sum(script.pauses) >= 15
    turn.close()
    told, _ = flush(outbox, SENT)
    assert told["sent"] == [f"{1:032x}", f"{2:032x}"]


def test_a_reply_is_kept_too(outbox: Outbox) -> None:
    given = {"text": "yes", "from": "scout", "id": "b" * 32}
    answer, _ = deliver(outbox, given, absent(), path="/v1/messages/ab/reply")
    assert answer == {"id": "b" * 32, "kept": True, "deliveries": [{"state": "kept"}], "duplicate": False}
    _, script = flush(outbox, SENT)
    assert script.exchanges[0].path == "/v1/messages/ab/reply"


def test_a_full_outbox_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "out", most_messages=1)
    deliver(outbox, message(1), absent())
    with pytest.raises(OutboxFull) as caught:
        deliver(outbox, message(2), absent())
    assert caught.value.message_id == f"{2:032x}"
    assert outbox.count("scout") == 1


def test_time_to_live_runs_while_it_is_kept(tmp_path: Path) -> None:
    now = [1_800_000_000_000]
    outbox = Outbox(tmp_path / "out", now=lambda: now[0])
    for number, seconds in ((1, 60.0), (2, 600.0), (3, 100.5)):
        deliver(outbox, message(number, ttl_seconds=seconds), absent())
    now[0] += 100_000
    told, script = flush(outbox, SENT)
    assert [(each["id"], each["code"]) for each in told["refused"]] == [(f"{1:032x}", "queued_expired")]
    assert [body["ttl_seconds"] for body in script.bodies] == [500.0, 1.0]


def test_a_clock_that_was_set_back_takes_no_time_away_and_gives_none(tmp_path: Path) -> None:
    now = [1_800_000_000_000]
    outbox = Outbox(tmp_path / "out", now=lambda: now[0])
    deliver(outbox, message(1, ttl_seconds=60.0), absent())
    now[0] -= 10_000_000
    _, script = flush(outbox, SENT)
    assert script.bodies[0]["ttl_seconds"] == 60.0


def test_without_an_outbox_there_is_nothing_to_flush() -> None:
    script = Script(SENT)
    post: Post = script.post()
    assert script.play(post.flush()) == {"sent": [], "refused": [], "left": 0}
    assert not script.steps
