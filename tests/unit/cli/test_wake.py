"""wake: a real question with a word that is new each time, and the truth about what became of it."""

import json
import re
import socket
from typing import Any

import pytest

from tests.fakes.fake_hub import FakeHub, answer, problem
from tests.unit.cli.conftest import Run

ID = "0197f0c2a4b17c3e8d21f6a09b5e4c77"
ASK = "POST /v1/ask"
TURN = {"agent": "scout", "from": "human", "kind": "claude_code", "attempt": 1, "state": "answered",
        "route": "command line", "usage": {"input_tokens": 1200, "output_tokens": 7, "cost_usd": 0.01}}  # fmt: skip


def agent(**more: object) -> Any:
    return answer({"handle": "scout", "presence": "away", "adapter": {"kind": "claude_code"}, **more})


HUBS: list[FakeHub] = []  # of the test that runs: its agent has to read what it was asked


@pytest.fixture(autouse=True)
def there(hub: FakeHub) -> None:
    HUBS[:] = [hub]
    hub.on("GET /v1/agents/scout", agent())
    hub.on("GET /v1/turns", turns({**TURN, "id": "0" * 32, "route": "other"}, TURN))
    hub.on(ASK, replies("{}"))


def replies(text: str) -> Any:
    """An agent that answers with this; ``{}`` stands for the word that it was asked for."""

    def answered(sock: socket.socket) -> bool:
        said = text.replace("{}", word(asked()["text"]))
        return answer({"id": asked()["id"], "thread": ID, "reply": {"id": "1" * 32, "from": "scout", "text": said}})(
            sock
        )

    return answered


def turns(*rows: dict[str, Any]) -> Any:
    """Turns, which are those of the last question unless they say otherwise."""

    def answered(sock: socket.socket) -> bool:
        shown = [{"id": asked()["id"], **row} for row in rows]
        return answer({"turns": shown, "running": 0})(sock)

    return answered


def asked() -> Any:
    return HUBS[0].asked(ASK)[-1].json


def word(question: str) -> str:
    (found,) = re.findall(r"the word ([0-9a-f]{8}) ", question)
    return str(found)


def fails(reason: str = "provider_rate_limit") -> Any:
    return answer({"id": ID, "failure": {"reason": reason, "text": "Too many requests."}})


def test_a_turn_that_worked_says_by_which_route_how_fast_and_what_was_answered(run: Run, hub: FakeHub) -> None:
    code, out, err = run("wake", "scout")
    assert code == 0
    wanted = word(asked()["text"])
    lines = out.splitlines()
    assert re.fullmatch(
        r"scout answered after \d+\.\d s, by its command line \(claude_code\); 1200 tokens in, 7 tokens out, 0\.01 USD",
        lines[0],
    )
    assert lines[1:] == [f"its answer holds the word that it was asked for, {wanted}:", wanted]
    assert "waking scout" in err
    assert asked()["from"] == "human"


def test_the_word_is_new_each_time(run: Run, hub: FakeHub) -> None:
    for _ in range(3):
        run("wake", "scout")
    assert len({word(request.json["text"]) for request in hub.asked(ASK)}) == 3


def test_an_answer_without_the_word_is_said_to_be_one(run: Run, hub: FakeHub) -> None:
    hub.on(ASK, replies("I am well\x1b[2J"))
    code, out, _ = run("wake", "scout")
    assert code == 0
    assert "does not hold the word" in out
    assert "I am well\\x1b[2J" in out
    hub.on(ASK, replies(""))
    assert "(an empty answer)" in run("wake", "scout")[1]


def test_a_second_attempt_and_a_stream_are_told(run: Run, hub: FakeHub) -> None:
    hub.on("GET /v1/turns", turns({**TURN, "attempt": 2, "usage": None}))
    assert "by its command line (claude_code), at attempt 2\n" in run("wake", "scout")[1]
    hub.on("GET /v1/turns", turns())
    assert "by reading its mailbox itself" in run("wake", "scout")[1]


def test_a_turn_that_failed_says_why_in_the_words_of_the_notice(run: Run, hub: FakeHub) -> None:
    def failed(sock: socket.socket) -> bool:
        notice = {
            "about": asked()["id"],
            "reason": "provider_rate_limit",
            "text": "Your message to scout was not answered. It waits\x07.",
        }
        rows = [{"message": {"text": "the question"}}, {"message": notice}]
        hub.on(f"GET /v1/threads/{asked()['id']}", answer({"messages": rows, "next": None}))
        return bool(fails()(sock))

    hub.on(ASK, failed)
    code, out, _ = run("wake", "scout")
    assert code == 1
    assert out.startswith("scout did not answer (provider_rate_limit), after 0.")
    assert "by its command line (claude_code)" in out
    assert out.endswith("Your message to scout was not answered. It waits\\x07.\n")


def test_without_the_notice_the_reason_is_put_in_words(run: Run, hub: FakeHub) -> None:
    hub.on(ASK, fails())
    assert run("wake", "scout")[1].endswith("Too many requests.\n")


def test_in_json(run: Run, hub: FakeHub) -> None:
    code, out, err = run("wake", "scout", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["seconds"] < 10
    assert {key: told[key] for key in ("agent", "id", "answered", "word_came_back", "kind", "route", "attempt")} == {
        "agent": "scout", "id": asked()["id"], "answered": True, "word_came_back": True, "kind": "claude_code",
        "route": "command line", "attempt": 1,
    }  # fmt: skip
    assert told["answer"] == told["word"]
    hub.on(ASK, fails("missing_config"))
    code, out, _ = run("wake", "scout", "--json")
    assert code == 1
    assert {key: json.loads(out)[key] for key in ("answered", "reason")} == {
        "answered": False,
        "reason": "missing_config",
    }


def test_nobody_is_asked_whom_nothing_would_wake(run: Run, hub: FakeHub) -> None:
    hub.on("GET /v1/agents/scout", agent(adapter=None))
    code, out, err = run("wake", "scout")
    assert (code, out) == (1, "")
    assert "angelia join scout --command" in err
    assert not hub.asked(ASK)
    hub.on("GET /v1/agents/scout", agent(adapter=None, presence="online"))
    assert run("wake", "scout")[0] == 0


def test_nobody_of_that_name(run: Run, hub: FakeHub) -> None:
    hub.on("GET /v1/agents/scout", problem(404, "unknown_agent"))
    assert run("wake", "scout")[0] == 1
    assert run("wake", "../x")[0] == 2
    assert not hub.asked(ASK)


def test_no_answer_in_time_ends_with_5_and_says_what_to_look_at(run: Run, hub: FakeHub) -> None:
    hub.on(ASK, answer({"id": ID, "deliveries": [{"to": "scout", "seq": 1, "state": "leased"}]}, 202))
    code, _, err = run("wake", "scout", "--wait", "0")
    assert code == 5
    assert "angelia message " in err


def test_no_route_is_told_where_there_was_none(run: Run, hub: FakeHub) -> None:
    hub.on(ASK, fails("missing_config")).on("GET /v1/turns", turns({**TURN, "route": "none", "usage": None}))
    first = run("wake", "scout")[1].splitlines()[0]
    assert re.fullmatch(r"scout did not answer \(missing_config\), after \d+\.\d s \(claude_code\)", first)
    assert "route" not in json.loads(run("wake", "scout", "--json")[1])
