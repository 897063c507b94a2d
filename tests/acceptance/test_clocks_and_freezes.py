"""A hub that dies at each of its commits, stands still, or whose wall clock jumps; holders that stand still.

`tests/rigs/faults.py` does all of that under load and judges; here are the short run of it, and what it cannot see.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.acceptance.hub import MARGIN, Hub, environment, eventually, hub
from tests.acceptance.linked import ENVIRONMENT, connect, live, take, wait_knows, wait_state
from tests.rigs.faults import DAY, HOUR, TEN_YEARS, Plan, run
from tests.rigs.watched import WatchedHub


@pytest.mark.timeout(240)
def test_deaths_at_commits_freezes_and_jumps_break_no_promise() -> None:
    result = run(Plan(seed=1, walk=6, count=8, every=0.6))
    figures = result.verdict.figures
    assert result.good, "\n".join([str(result.verdict), *result.faults])
    assert result.troubles["walk"] == 12
    assert set(result.troubles) == {"walk", "kill", "commit", "freeze", "jump"}
    assert figures["accepted"] > 500, figures
    assert figures["repeats"] > 0, figures


@pytest.mark.soak
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", [1, 2])
def test_minutes_of_deaths_freezes_and_jumps_break_no_promise(seed: int) -> None:
    result = run(Plan(seed=seed, walk=60, seconds=300))
    assert result.good, "\n".join([str(result.verdict), *result.faults])


# ------------------------------------------------------------------------------------------------------- frozen holders

HOLDER = """
import sys
from angelia import Client
from angelia.client.errors import LeaseLost
with Client(sys.argv[1], name="crew") as client:
    for claim in client.claims(lease_seconds=2):
        try:
            with claim as message:
                print("has", message["text"], flush=True)
                sys.stdin.readline()
            print("done", message["text"], flush=True)
        except LeaseLost:
            print("lost", message["text"], flush=True)
"""


@contextmanager
def holder(at: Hub) -> Iterator["subprocess.Popen[str]"]:
    """A program of somebody's that works on one message at a time and renews its lease, as our client does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, at.url], env=environment(at.base), text=True, bufsize=1,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")


def test_a_holder_that_stands_still_past_its_lease_finds_that_somebody_else_has_the_message() -> None:
    with hub() as at, holder(at) as first:
        at.claim("crew")
        message_id = str(at.send("crew", "work", "boss")["id"])
        assert said(first) == "has work"
        time.sleep(3.5)  # longer than its lease: it renews, so that it keeps it
        assert at.claim("crew") == []
        first.send_signal(signal.SIGSTOP)
        with holder(at) as second:
            assert said(second) == "has work"
            first.send_signal(signal.SIGCONT)
            go_on(first)
            assert said(first) == "lost work"
            assert at.state(message_id) == "leased"
            go_on(second)
            assert said(second) == "done work"
        assert at.state(message_id) == "delivered"
        assert at.receipt(message_id)["deliveries"][0]["attempt"] == 2


def test_an_old_lease_is_refused_with_how_it_stands_now() -> None:
    with hub() as at:
        at.claim("crew")
        at.send("crew", "work", "boss")
        [old] = at.claim("crew", lease_seconds=1)
        [new] = eventually(lambda: at.claim("crew", lease_seconds=30), 2 * MARGIN)
        assert new["attempt"] == 2
        refused = at.lease(old["lease"]["token"], "ack")
        assert (refused.status, refused.code) == (409, "lease_lost")
        assert at.lease(old["lease"]["token"], "renew").status == 409
        assert at.lease(new["lease"]["token"], "ack").status == 200


# ----------------------------------------------------------------------------------------------------------- the hub


def test_a_hub_that_stood_still_past_a_lease_gives_it_to_one() -> None:
    """Whoever is first after it wakes: its old holder, by an ack in time, or the next. Never both."""
    with WatchedHub() as at:
        at.claim("crew")
        for number in range(5):
            message_id = str(at.send("crew", f"work {number}", "boss")["id"])
            [held] = at.claim("crew", lease_seconds=1)
            at.freeze()
            time.sleep(1.5)
            at.thaw()
            acked = at.lease(held["lease"]["token"], "ack").status
            next_one = at.claim("crew", lease_seconds=30)
            assert (acked, len(next_one)) in ((200, 0), (409, 1)), (acked, next_one)
            if next_one:
                assert at.lease(next_one[0]["lease"]["token"], "ack").status == 200
            assert at.state(message_id) == "delivered"


# ----------------------------------------------------------------------------------------------------------- its clock


@pytest.mark.parametrize("jump", [HOUR, -HOUR, DAY, -DAY, TEN_YEARS, -TEN_YEARS], ids=lambda s: f"{s / HOUR:+.0f}h")
def test_a_clock_that_jumps_ends_nothing_and_puts_nothing_off(clocked: WatchedHub, jump: float) -> None:
    """While the hub runs: leases, times to live, waits and retries are as if the clock were right."""
    at = clocked
    waits = str(at.send("crew", "waits", "boss", ttl_seconds=600)["id"])
    short = str(at.send("other", "short", "boss", ttl_seconds=2)["id"])
    at.send("held", "held", "boss")
    [held] = at.claim("held", lease_seconds=30)
    [brief] = [at.claim("crew", lease_seconds=1)[0]]
    at.jump(jump)
    try:
        begun = time.monotonic()
        assert at.claim("held") == []  # the long lease holds
        [again] = eventually(lambda: at.claim("crew", lease_seconds=30), 1 * MARGIN + 1)  # the short one ends in time
        assert (again["message"]["id"], again["attempt"]) == (waits, brief["attempt"] + 1)
        eventually(lambda: at.state(short) in ("failed", "dead"), 2 * MARGIN + 1)
        assert time.monotonic() - begun > 0.3
        assert at.state(waits) == "leased"
        assert at.lease(held["lease"]["token"], "ack").status == 200
        assert at.lease(again["lease"]["token"], "ack").status == 200
        assert at.poll("crew", wait=1) == []
        new = str(at.send("crew", "new", "boss", ttl_seconds=600)["id"])
        [taken] = at.claim("crew")
        assert taken["message"]["id"] == new
        assert at.lease(taken["lease"]["token"], "ack").status == 200
    finally:
        at.jump(0)


@pytest.fixture(scope="module")
def clocked() -> Iterator[WatchedHub]:
    with WatchedHub() as at:
        for name in ("crew", "other", "held"):
            at.claim(name)
        yield at
        assert "Traceback" not in at.output()


@pytest.mark.parametrize("jump", [HOUR, -HOUR, DAY, -DAY, -TEN_YEARS], ids=lambda s: f"{s / HOUR:+.0f}h")
def test_mail_survives_a_restart_under_another_clock(jump: float) -> None:
    """What waits for days is still there an hour, or a day, later; and before its time, too. Then the clock is right
    again, and nothing is handed over twice or refused."""
    with WatchedHub() as at:
        at.claim("crew")
        first = at.send("crew", "first", "boss", id="a" * 32)
        at.send("crew", "second", "boss")
        [held] = at.claim("crew", lease_seconds=30)
        for off in (jump, 0.0):
            at.kill9()
            at.jump(off)
            at.start()
            assert at.send("crew", "first", "boss", id="a" * 32)["id"] == first["id"]  # a repeat is still known
            found = _both(at)
            assert at.lease(held["lease"]["token"], "ack").status == 409
            for each in found:  # put off for longer than this test takes; that ends with the hub
                delay = 0 if off == 0 else 600
                assert at.lease(each["lease"]["token"], "nack", delay_seconds=delay).status == 200
            held = found[0]
        for each in _both(at):
            assert at.lease(each["lease"]["token"], "ack").status == 200
        assert at.inbox("crew")["total"] == 0


def _both(at: Hub) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found.extend(at.claim("crew", limit=10))
        return len(found) == 2

    eventually(look, 5 * MARGIN, "both are handed out")
    assert {each["message"]["text"] for each in found} == {"first", "second"}
    return sorted(found, key=lambda each: str(each["message"]["text"]))


def test_after_ten_years_what_waited_has_ended_and_its_sender_is_told() -> None:
    with WatchedHub() as at:
        at.claim("crew"), at.claim("boss")
        asked = str(at.send("crew", "a question", "boss", intent="request")["id"])
        at.kill9()
        at.jump(TEN_YEARS)
        at.start()
        assert eventually(lambda: at.state(asked) in ("failed", "dead"), 10)
        [told] = eventually(lambda: at.poll("boss", wait=1))
        assert told["_meta"]["about"] == asked
        at.send("crew", "new", "boss")
        [taken] = at.claim("crew")
        assert taken["message"]["text"] == "new"


def test_hubs_whose_clocks_differ_by_years_ask_and_answer_as_others_do() -> None:
    """What crosses is how long a question has left, and no moment."""
    near, far = (WatchedHub(env={**ENVIRONMENT, "ANGELIA_HUB_NAME": name}) for name in ("near", "far"))
    near.jump(DAY)
    far.jump(-TEN_YEARS)
    with near, far:
        live(near, "ann")
        live(far, "bob")
        connect(near, "far", f"ws://127.0.0.1:{far.port}")
        wait_knows(near, "bob")
        wait_knows(far, "ann")
        for here, there, asker, answerer in ((near, far, "ann", "bob"), (far, near, "bob", "ann")):
            asked = str(here.send(answerer, "well?", asker, intent="request", ttl_seconds=60)["id"])
            question = take(there, answerer)
            assert question["_meta"]["id"] == asked
            answer = there.kept("POST", f"/v1/messages/{asked}/reply", {"text": "well", "from": answerer})
            assert answer.status == 201, answer
            assert take(here, asker)["text"] == "well"
            wait_state(here, asked, "answered")
        late = str(near.send("bob", "too late", "ann", intent="request", ttl_seconds=2)["id"])
        wait_state(near, late, "failed")
        assert take(near, "ann")["_meta"]["reason"] in ("queued_expired", "delivery_timeout")
