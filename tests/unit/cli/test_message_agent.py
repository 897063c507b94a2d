"""message-agent and briefing: a tool's answer in JSON whatever happens, and a text for a model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_hub import FakeHub, answer, problem
from tests.unit.cli.conftest import Run

AGENTS = [
    {"handle": "hermes", "connection": "local", "presence": "away", "title": ""},
    {"handle": "scout", "connection": "local", "presence": "away", "title": "", "adapter": {"kind": "command"}},
]
AWKWARD = "“q” $HOME `rm` \\n\n\r\n\t\x1b[31m \u2028 🐝 -- end"


@pytest.fixture(autouse=True)
def willing(hub: FakeHub) -> None:
    hub.on("GET /v1/agents", answer({"agents": AGENTS}))
    sent = {"id": "a" * 32, "thread": "a" * 32, "deliveries": [{"to": "hermes", "seq": 1, "state": "queued"}]}
    hub.on("POST /v1/messages", answer(sent, 201))


def tell(stdin: object, *words: str) -> tuple[int, Any]:
    """Run it with this on stdin. Out: its exit code, and what it answered."""
    content = stdin if isinstance(stdin, bytes) else (stdin if isinstance(stdin, str) else json.dumps(stdin)).encode()
    line = [sys.executable, "-m", "angelia", "message-agent", "--as", "scout", *words]
    done = subprocess.run(line, input=content, capture_output=True, check=False)
    assert done.stdout.count(b"\n") <= 1, done.stdout
    assert (done.stderr == b"") == bool(done.stdout), done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else None


def test_it_takes_the_tools_own_json(hub: FakeHub) -> None:
    code, told = tell({"target": "@Hermes", "message": f" {AWKWARD} "})
    assert code == 0
    assert (told["status"], told["to"], told["reply_delivery"]) == ("queued", "@hermes", "notification")
    said = hub.asked("POST /v1/messages")[0].json
    assert told["delivery_id"] == "a" * 32
    assert (said["to"], said["from"], said["intent"], said["text"]) == ("hermes", "scout", "request", AWKWARD)


def test_or_a_target_and_the_text_itself(hub: FakeHub) -> None:
    text = '{"target": "x", "message": "this is the text"}'
    assert tell(text, "--target", "hermes")[0] == 0
    assert hub.asked("POST /v1/messages")[0].json["text"] == text


def test_a_text_of_16_000_characters_goes_through_and_a_longer_one_does_not(hub: FakeHub) -> None:
    assert tell("🐝" * 16_000 + "\n", "--target", "hermes")[0] == 0
    assert hub.asked("POST /v1/messages")[0].json["text"] == "🐝" * 16_000
    code, told = tell("x" * 16_001, "--target", "hermes")
    assert (code, told["reason"]) == (1, "too_large")
    assert len(hub.asked("POST /v1/messages")) == 1


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        ("hello", "no JSON"),
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "nothing else"),
        ({"target": "hermes"}, "nothing else"),
        ({"target": "hermes", "message": "x", "to": "y"}, "nothing else"),
        ({"target": "hermes", "message": 7}, "empty"),
        ({"target": None, "message": "x"}, "target is empty"),
        ({"target": "nobody", "message": "x"}, "no teammate"),
        ({"target": "scout", "message": "x"}, "yourself"),
        ('{"target": "hermes", "message": "\\ud83d"}', "surrogate"),
    ],
)
def test_what_is_wrong_is_an_answer_and_nothing_is_sent(hub: FakeHub, stdin: object, said: str) -> None:
    code, told = tell(stdin)
    assert code == 1
    assert said in told["error"]
    assert "Nothing was sent" in told["error"]
    assert told["reason"] == "unknown"
    assert not hub.asked("POST /v1/messages")


def test_what_the_hub_refuses_is_an_answer(hub: FakeHub) -> None:
    hub.on("POST /v1/messages", problem(429, "mailbox_full", "It is full."))
    assert tell("x", "--target", "hermes") == (1, {"error": "It is full.", "reason": "mailbox_full"})
    hub.on("GET /v1/agents", problem(401, "token_required", "A token is needed."))
    assert tell("x", "--target", "hermes") == (1, {"error": "A token is needed.", "reason": "unknown"})


def test_no_hub_is_an_answer_with_its_own_exit_code(data_dir: Path) -> None:
    code, told = tell("x", "--target", "hermes", "--data-dir", str(data_dir / "elsewhere"))
    assert code == 4
    assert "no hub runs" in told["error"]


def test_what_is_no_text_is_wrong_usage(hub: FakeHub) -> None:
    assert tell(b"ab\xff", "--target", "hermes")[0] == 2
    assert not hub.requests


# ---- briefing

BRIEFING = "GET /v1/agents/scout/briefing"
TEXT = "# You are @scout 🐝\n\nBriefing epoch: 0123456789ab\n"


def test_a_briefing_is_printed_as_it_is(run: Run, hub: FakeHub) -> None:
    hub.on(BRIEFING, answer(TEXT.encode(), kind="text/markdown"))
    assert run("briefing", "--as", "scout") == (0, TEXT, "")
    told = json.loads(run("briefing", "--as", "scout", "--json")[1])
    assert told == {"agent": "scout", "epoch": "0123456789ab", "text": TEXT}


def test_the_owners_own(run: Run, hub: FakeHub) -> None:
    hub.on("GET /v1/agents/human/briefing", answer(b"x", kind="text/markdown"))
    assert run("briefing")[0] == 0


def test_a_briefing_that_is_refused(run: Run, hub: FakeHub) -> None:
    hub.on(BRIEFING, problem(404, "unknown_agent", "Nobody here is called so."))
    code, out, err = run("briefing", "--as", "scout")
    assert (code, out) == (1, "")
    assert "Nobody here is called so." in err
