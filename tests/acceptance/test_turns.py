"""Turns, on real processes: a message wakes its agent, its answer comes back, a hub that dies leaves one outcome."""

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import MARGIN, Hub, Stream, eventually, hub

GONE_SECONDS = 5

# An agent: it says in a file that it begins and ends, and does what the message says.
AGENT = """
import os, sys, time
text = sys.stdin.read()
log = open({log!r}, "a", buffering=1)
me = os.environ["ANGELIA_AGENT"]
log.write(f"begin {{me}} {{os.environ['ANGELIA_ID']}} {{text!r}}\\n")
words = text.split()
if words[:1] == ["sleep"]:
    time.sleep(float(words[1]))
if words[:1] == ["fail"]:
    print("HTTP 401: no key", file=sys.stderr)
    sys.exit(3)
if words[:1] == ["fork"]:
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
log.write(f"end {{me}} {{os.environ['ANGELIA_ID']}} {{text!r}}\\n")
sys.stdout.write(f"{{me}} heard: {{text}}")
"""

# An agent that hands on what it is asked, and the answer.
ASKS = """
import json, os, sys, urllib.request
body = {{"to": sys.argv[1], "text": sys.stdin.read(), "from": os.environ["ANGELIA_AGENT"], "wait_seconds": 45}}
head = {{"Content-Type": "application/json"}}
asked = urllib.request.Request("{url}/v1/ask", json.dumps(body).encode(), head)
sys.stdout.write(json.load(urllib.request.urlopen(asked))["reply"]["text"])
"""


class Turns:
    """A hub whose agents are small programs, and the log that they write."""

    def __init__(self, at: Hub) -> None:
        self.at = at
        self.log = at.base / "turns.log"
        self.log.touch()
        self.program = at.base / "agent.py"
        self.program.write_text(AGENT.format(log=str(self.log)))

    def join(self, name: str, **options: Any) -> None:
        adapter = {"kind": "command", "argv": [sys.executable, str(self.program)], **options}
        answer = self.at.call("PUT", f"/v1/agents/{name}", {"adapter": adapter}, admin=True)
        assert answer.status in (200, 201), answer.body
        assert answer.json["adapter"] == {"kind": "command"}

    def ask(self, to: str, text: str, sender: str = "ann", wait: float = 20, **more: Any) -> dict[str, Any]:
        body = {"to": to, "text": text, "from": sender, "wait_seconds": wait, **more}
        answer = self.at.post("/v1/ask", body, seconds=wait + 20)
        assert answer.status in (200, 202), answer.body
        return dict(answer.json)

    def lines(self, what: str) -> list[list[str]]:
        return [line.split(" ", 3) for line in self.log.read_text().splitlines() if line.startswith(what + " ")]

    def outcome(self, message_id: str, seconds: float = 30) -> dict[str, Any]:
        """What became of a message, once that is final."""
        done = eventually(
            lambda: (
                (row := self.at.receipt(message_id)["deliveries"][0])["state"] in ("answered", "failed", "dead") and row
            ),
            seconds,
        )
        return dict(done)


@pytest.fixture
def on() -> Iterator[Turns]:
    with hub() as started:
        yield Turns(started)


# ----------------------------------------------------------------------------------------------------- an answer comes


def test_a_message_wakes_its_agent_and_the_answer_comes_back(on: Turns) -> None:
    on.join("scout")
    assert on.ask("scout", "hello")["reply"]["text"] == "scout heard: hello"
    text = "-n \"quoted\" 'x' $(date) `id` \N{ROBOT FACE} ü\n\x1b[31m" + "long " * 40_000
    assert on.ask("scout", text)["reply"]["text"] == f"scout heard: {text}"


def test_who_leaves_and_joins_again_is_woken_again(on: Turns) -> None:
    """A keyed name came back as it had been, and nobody woke it."""
    for _ in range(2):
        on.at.post("/v1/agents/keeper/token", {}, admin=True)
        on.join("keeper")
        assert on.ask("keeper", "hello")["reply"]["text"] == "keeper heard: hello"
        assert on.at.call("DELETE", "/v1/agents/keeper", admin=True).status in (200, 204)


def test_an_answer_wakes_the_agent_that_asked_and_ends_there(on: Turns) -> None:
    on.join("scout")
    on.join("ann")
    sent = on.at.send("scout", "hello", "ann", intent="request")
    assert on.outcome(sent["id"])["state"] == "answered"
    eventually(lambda: len(on.lines("end")) == 2)
    assert [line[1] for line in on.lines("begin")] == ["scout", "ann"]
    assert on.at.inbox("scout")["total"] == 0


def test_a_failure_comes_back_with_its_reason(on: Turns) -> None:
    on.join("scout")
    assert on.ask("scout", "fail")["failure"]["reason"] == "provider_auth_or_access"
    assert len(on.lines("begin")) == 1


def test_nobody_is_woken_by_writing_to_itself_nor_by_an_ack(on: Turns) -> None:
    """And neither holds up the mail of others, however much of it waits."""
    on.join("scout")
    mine = [on.at.send("SCOUT", f"note {n}", "scout", intent=("inform", "request")[n % 2])["id"] for n in range(200)]
    acks = [on.at.send("scout", f"thanks {n}", "ann", intent="ack")["id"] for n in range(200)]
    short = on.at.send("scout", "soon over", "scout", intent="request", ttl_seconds=1)["id"]
    (row,) = on.at.receipt(mine[1])["deliveries"]
    assert (row["state"], row["expected"].partition(";")[0]) == ("queued", "nobody is woken by what it sent to itself")
    assert "queued; is shown with the agent's next turn" in on.at.run("send", "scout", "ok", "--intent", "ack").stdout
    row = on.outcome(short)
    assert (row["state"], row["reason"]) == ("failed", "queued_expired")
    assert on.ask("scout", "hello")["reply"]["text"] == "scout heard: hello"
    on.at.restart()
    assert on.ask("scout", "still there?")["reply"]["text"] == "scout heard: still there?"
    assert [line[3] for line in on.lines("begin")] == ["'hello'", "'still there?'"]
    assert {on.at.state(each) for each in mine} == {"queued"}
    assert {on.at.state(each) for each in acks[:20]} == {"delivered"}  # they were shown with a turn
    with Stream(on.at, "/v1/agents/scout/stream?ack=auto") as stream:
        got = [event.json["message"]["id"] for event in stream.messages(len(acks) + 1 - 2 * 20 + 1 + len(mine))]
    assert got[-len(mine) :] == mine


def test_one_at_a_time_in_order_and_others_side_by_side(on: Turns) -> None:
    on.join("scout")
    on.join("other")
    ids = [on.at.send("scout", f"sleep 0.3 {n}", "ann", intent="request")["id"] for n in range(4)]
    begun = time.monotonic()
    assert "heard" in on.ask("other", "quick", "bob")["reply"]["text"]
    assert time.monotonic() - begun < 0.3 * 4 * MARGIN
    for message_id in ids:
        assert on.outcome(message_id)["state"] == "answered"
    order = [(line[0], line[2]) for line in (*on.lines("begin"), *on.lines("end")) if line[1] == "scout"]
    assert [i for what, i in order if what == "begin"] == ids
    whole = [line.split(" ")[:3] for line in on.log.read_text().splitlines()]
    mine = [(what, i) for what, who, i in whole if who == "scout"]
    assert mine == [(what, i) for i in ids for what in ("begin", "end")]


def test_a_turn_ends_with_its_program_not_with_what_that_left_running(on: Turns) -> None:
    on.join("scout")
    begun = time.monotonic()
    assert on.ask("scout", "fork")["reply"]["text"] == "scout heard: fork"
    assert time.monotonic() - begun < 3 * MARGIN


# -------------------------------------------------------------------------------------------------- who takes before it


def test_a_stream_takes_before_the_adapter_which_takes_over_when_it_is_gone(on: Turns) -> None:
    on.join("scout")
    with Stream(on.at, "/v1/agents/scout/stream") as stream:
        on.at.send("scout", "to the stream", "ann")
        assert stream.next().json["message"]["text"] == "to the stream"
        eventually(lambda: on.at.inbox("scout")["total"] == 0)
    on.at.send("scout", "to the adapter", "ann")
    eventually(lambda: on.lines("end"), 5 * MARGIN)
    assert [line[3] for line in on.lines("begin")] == ["'to the adapter'"]


def test_a_stream_that_opens_while_a_turn_runs_gets_its_first_mail_when_that_has_ended(on: Turns) -> None:
    on.join("scout")
    first = on.at.send("scout", "sleep 1", "ann", intent="request")
    eventually(lambda: on.lines("begin"))
    on.at.send("scout", "next", "ann")
    with Stream(on.at, "/v1/agents/scout/stream") as stream:
        event = stream.next(10 * MARGIN)
        assert event.json["message"]["text"] == "next"
        assert on.at.state(first["id"]) == "answered"


# ---------------------------------------------------------------------------------------------------- looking, stopping


def test_what_runs_is_seen_and_can_be_stopped(on: Turns) -> None:
    on.join("scout")
    sent = on.at.send("scout", "sleep 100", "ann", intent="request")
    eventually(lambda: on.lines("begin"))
    seen = on.at.get("/v1/turns", admin=True).json
    assert (seen["running"], seen["turns"][0]["id"], seen["turns"][0]["state"]) == (1, sent["id"], "running")
    assert on.at.get("/v1/turns").status == 401
    assert on.at.post(f"/v1/turns/{sent['id']}/stop", {}).status == 401
    assert on.at.post(f"/v1/turns/{sent['id']}/stop", {}, admin=True).status == 200
    row = on.outcome(sent["id"])
    assert (row["state"], row["reason"]) == ("failed", "cancelled")
    assert on.at.post(f"/v1/turns/{sent['id']}/stop", {}, admin=True).status == 404
    assert on.ask("scout", "still there?")["reply"]["text"] == "scout heard: still there?"


def test_a_turn_beyond_its_limit_is_ended_and_not_run_again(on: Turns) -> None:
    on.join("scout", timeout_seconds=1.5)  # the program has to have begun by then
    assert on.ask("scout", "sleep 100")["failure"]["reason"] == "delivery_timeout"
    assert len(on.lines("begin")) == 1
    assert not on.lines("end")


@pytest.mark.parametrize(
    "adapter",
    [
        {}, {"kind": "nothing"}, {"kind": "command"}, {"kind": "command", "argv": []},
        {"kind": "command", "argv": ["cat"]},
        {"kind": "command", "argv": ["/bin/cat"], "x": 1}, 7, "cat",
        {"kind": "command", "argv": ["/bin/cat"], "timeout_seconds": 0},
    ],
)  # fmt: skip
def test_an_adapter_that_cannot_be_is_refused_and_nothing_is_changed(on: Turns, adapter: object) -> None:
    answer = on.at.call("PUT", "/v1/agents/scout", {"adapter": adapter}, admin=True)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert on.at.get("/v1/agents/scout").status == 404


def test_only_the_owner_says_how_an_agent_is_woken(on: Turns) -> None:
    assert on.at.call("PUT", "/v1/agents/scout", {"adapter": {"kind": "command", "argv": ["/bin/cat"]}}).status == 401
    token = on.at.call("POST", "/v1/agents/scout/token", {}, admin=True).json["token"]
    mine = on.at.call("PUT", "/v1/agents/scout", {"adapter": {"kind": "command", "argv": ["/bin/cat"]}}, token=token)
    assert mine.status == 403
    assert on.at.call("PUT", "/v1/agents/scout", {"title": "Scout"}, token=token).status == 200


def test_a_program_that_is_gone_is_said_and_mail_does_not_wait_for_it(on: Turns) -> None:
    on.join("scout")
    moved = on.at.base / "python"
    os.symlink(sys.executable, moved)
    on.join("scout", argv=[str(moved), str(on.program)])
    moved.unlink()
    failure = on.ask("scout", "hello")["failure"]
    assert failure["reason"] == "missing_config"


@pytest.mark.parametrize(("replay", "runs"), [("never", 1), ("once", 2)])
def test_a_question_to_a_program_that_dies_ends_with_it(on: Turns, replay: str, runs: int) -> None:
    """F058. Whoever asked waits no longer than until then, although it would have waited on."""
    on.join("scout")
    with ThreadPoolExecutor(1) as asking:
        asked = asking.submit(on.ask, "scout", "sleep 50", wait=30, replay=replay)
        for count in range(1, runs + 1):
            eventually(lambda: len(on.lines("begin")) == count, 20)  # noqa: B023 - looked at before the next
            os.kill(eventually(lambda: group_of(on)), signal.SIGKILL)
        failure = asked.result(GONE_SECONDS * MARGIN)["failure"]
    assert failure["reason"] == "outcome_unknown"
    assert "SIGKILL" in failure["text"]
    assert len(on.lines("begin")) == runs


# --------------------------------------------------------------------------------------------------- the hub ends, dies


def group_of(on: Turns) -> int:
    """The process group of the one child that runs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(on.program).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found[0] if found else 0


def test_a_hub_that_stops_ends_its_turns_and_the_next_runs_them_once_more(on: Turns) -> None:
    on.join("scout")
    sent = on.at.send("scout", "sleep 2", "ann", intent="request")
    eventually(lambda: on.lines("begin"))
    code, seconds = on.at.stop()
    assert (code, group_of(on)) == (0, 0)
    assert seconds < 3 * MARGIN
    on.at.start()
    row = on.outcome(sent["id"])
    assert (row["state"], row["attempt"], len(on.lines("begin")), len(on.lines("end"))) == ("answered", 2, 2, 1)


def test_a_killed_hubs_children_end_before_anything_runs_twice(on: Turns) -> None:
    on.join("scout")
    sent = on.at.send("scout", "sleep 30", "ann", intent="request", replay="never")
    eventually(lambda: on.lines("begin"))
    on.at.kill9()
    assert group_of(on)
    on.at.start()
    row = on.outcome(sent["id"])
    assert (row["state"], row["reason"]) == ("failed", "outcome_unknown")
    assert group_of(on) == 0
    assert (len(on.lines("begin")), len(on.lines("end"))) == (1, 0)


def test_twenty_senders_and_three_kills_leave_every_message_with_one_outcome(on: Turns) -> None:
    """Order kept, and no turn run twice beyond what ``replay`` allows."""
    on.join("scout")
    ids: dict[str, list[str]] = {}
    lock = threading.Lock()

    def sends(sender: str) -> None:
        for number in range(2):
            body = {"to": "scout", "text": f"sleep 0.15 {sender} {number}", "from": sender, "intent": "request"}
            answer = on.at.post("/v1/messages", body)
            assert answer.status == 201
            with lock:
                ids.setdefault(sender, []).append(answer.json["id"])

    threads = [threading.Thread(target=sends, args=(f"s{number}",)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for kills in range(1, 4):
        wanted = len(on.lines("begin")) + kills + 1
        eventually(lambda wanted=wanted: len(on.lines("begin")) >= wanted, 30)  # type: ignore[misc]
        on.at.restart()
    for mine in ids.values():
        for message_id in mine:
            assert on.outcome(message_id, 60)["state"] == "answered"
    runs = Counter(line[2] for line in on.lines("begin"))
    assert set(runs) == {message_id for mine in ids.values() for message_id in mine}
    assert max(runs.values()) <= 2
    assert sum(count - 1 for count in runs.values()) <= 3
    firsts = list(dict.fromkeys(line[2] for line in on.lines("begin")))
    for mine in ids.values():
        assert [each for each in firsts if each in mine] == mine
    replies: Counter[str] = Counter()
    for sender, mine in ids.items():
        for delivery in on.at.inbox(sender, limit=100)["deliveries"]:
            replies[delivery["message"]["in_reply_to"]] += 1
        assert all(replies[message_id] == 1 for message_id in mine)


def test_the_log_and_the_folder_say_nothing_secret(on: Turns) -> None:
    on.join("scout")
    token = on.at.call("POST", "/v1/agents/scout/token", {}, admin=True).json["token"]
    assert on.ask("scout", shlex.quote("hello"), "ann")["reply"]
    assert token not in on.at.output()
    assert json.dumps(token) not in on.at.output()


def test_a_hub_stops_in_time_though_its_programs_do_not_want_to(on: Turns) -> None:
    stubborn = on.at.base / "stubborn.py"
    stubborn.write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen('up', 'w')\ntime.sleep(99)\n"
    )
    on.join("scout", argv=[sys.executable, str(stubborn)], folder=str(on.at.base))
    on.at.send("scout", "hello", "ann")
    eventually((on.at.base / "up").exists)
    code, seconds = on.at.stop()
    assert code == 0
    assert seconds < 3 * MARGIN


def test_a_row_of_agents_that_ask_one_another_blocks_nobody(on: Turns) -> None:
    """More in a row than there are places: each one's is free while it waits for the next."""
    asks = on.at.base / "asks.py"
    asks.write_text(ASKS.format(url=on.at.url))
    for number in range(12):
        on.join(f"c{number}", argv=[sys.executable, str(asks), f"c{number + 1}"])
    on.join("c12")
    assert on.ask("c0", "hello", wait=50)["reply"]["text"] == "c12 heard: hello"


def test_a_program_gets_a_small_environment_and_no_secret_of_ours() -> None:
    """What the list names and the owner adds; whatever passes, not what an adapter takes a secret from."""
    shell = {"HOOK_SECRET": "whsec_" + "QUJD" * 8, "OTHER": "kept", "NODE_EXTRA_CA_CERTS": "/ca", "DATABASE_URL": "x"}
    with Hub(env={**shell, "ANGELIA_PASS_ENVIRONMENT": "OTHER,HOOK_*"}) as at:
        turns = Turns(at)
        hook = {"kind": "webhook", "url": "https://example.com/", "secret_env": "HOOK_SECRET"}
        assert at.call("PUT", "/v1/agents/hook", {"adapter": hook}, admin=True).status == 201
        turns.join("env", argv=["/usr/bin/env"])
        told = turns.ask("env", "?")["reply"]["text"]
        names = {line.partition("=")[0] for line in told.splitlines()}
        assert {name for name in names if not name.startswith("ANGELIA_")} == {
            "HOME", "PATH", "LC_ALL", "OTHER", "NODE_EXTRA_CA_CERTS",
        }  # fmt: skip
        assert "whsec_" not in told


def test_what_a_failed_program_printed_is_there_for_its_owner(on: Turns) -> None:
    on.join("scout")
    assert "HTTP 401" not in json.dumps(on.ask("scout", "fail"))
    (turn,) = on.at.get("/v1/turns", admin=True).json["turns"]
    assert turn["output"] == "HTTP 401: no key"
    assert "HTTP 401: no key" in on.at.output()


def test_the_owner_is_no_agent(on: Turns) -> None:
    assert (on.at.get("/v1/agents/human").status, on.at.get("/v1/agents/human").code) == (404, "unknown_agent")
