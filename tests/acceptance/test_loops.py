"""Agents that answer each other in a circle stop by themselves, whatever limit there is for pairs (promise 10, F053).

Three programs on a real hub, each of which hands on what it is sent to the next, for ever if it is let.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import MARGIN, Hub, eventually, hub

DEPTH = 12  # in place of 64, so that this takes a second; that the default is 64 is seen in tests/unit/bus
# How a program says what its message belongs to.
WAYS = {
    "it answers that message": {"in_reply_to": "ANGELIA_ID"},
    "it names the conversation": {"thread": "ANGELIA_THREAD"},
    "it writes anew": {},
}
# It writes to the next one, and notes what it was told.
PROGRAM = """
import http.client, json, os, sys
next, port, log, ways = sys.argv[1:]
body = {"to": next, "text": sys.stdin.read(), "from": os.environ["ANGELIA_AGENT"]}
body |= {name: os.environ[told] for name, told in json.loads(ways).items()}
line = http.client.HTTPConnection("127.0.0.1", int(port))
line.request("POST", "/v1/messages", json.dumps(body), {"Content-Type": "application/json"})
with open(log, "a") as notes:
    notes.write(line.getresponse().read().decode() + "\\n")
"""


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    with hub(env={"ANGELIA_LIMITS_CHAIN_DEPTH": str(DEPTH)}) as started:
        yield started


def ring(at: Hub, names: list[str], log: Path, way: dict[str, str]) -> None:
    """Agents of whom each hands on to the next, the last to the first."""
    for name, following in zip(names, [*names[1:], names[0]], strict=True):
        argv = [sys.executable, "-S", "-c", PROGRAM, following, str(at.port), str(log), json.dumps(way)]
        answer = at.call("PUT", f"/v1/agents/{name}", {"adapter": {"kind": "command", "argv": argv}}, admin=True)
        assert answer.status == 201, answer.body


@pytest.mark.parametrize("way", WAYS)
def test_three_agents_in_a_circle_end_by_themselves_and_each_message_has_an_outcome(at: Hub, way: str) -> None:
    number = list(WAYS).index(way)
    names, log = [f"{name}{number}" for name in ("ann", "bob", "cat")], at.base / f"log{number}"
    ring(at, names, log, WAYS[way])
    held = at.get("/status").json["held"]
    first = at.send(names[0], "and round", f"dan{number}")

    def sent() -> list[dict[str, Any]]:
        """What they were told of what they sent, once all of that has come to its end."""
        told = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return told if told and told[-1]["deliveries"][0]["state"] == "held" else []

    told = eventually(sent, 10 * MARGIN)
    assert len(told) == DEPTH + 1
    for message in [first, *told[:-1]]:
        eventually(lambda message=message: at.state(message["id"]) in ("delivered", "answered"))  # type: ignore[misc]
    receipt = at.receipt(told[-1]["id"])["deliveries"][0]
    assert (receipt["state"], receipt["reason"], receipt["attempt"]) == ("held", "chain_budget", 0)
    assert at.get("/status").json["held"] == held + 1  # a person is told
    assert at.get("/v1/turns", admin=True).json["running"] == 0
    assert [at.inbox(name)["total"] for name in names].count(0) == 2  # the third has the held one
    assert len(log.read_text().splitlines()) == DEPTH + 1
