"""Real Hermes and real OpenClaw talk over the bus, begun by a person's ``angelia send``: what the first bus was for."""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.hub import ROOT, Hub, eventually
from tests.lab.place import Lab

WAIT = 120
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def at(lab: Lab) -> Iterator[Hub]:
    home = lab.folder("exchange")
    with ExitStack() as stack:
        hub = stack.enter_context(Hub(env={**lab.environment_of(home), "ANGELIA_HERMES_HOME": "off"}))
        for argv, url in (
            (["openclaw", "gateway", "run"], "http://127.0.0.1:18789/healthz"),
            (["hermes", "gateway", "run"], "http://127.0.0.1:8642/health"),
        ):
            stack.callback(lab.serve(argv, home, url=url).end)
        for name, adapter in (
            ("openclaw", {"kind": "openclaw"}),
            ("hermes", {"kind": "hermes", "home": str(home / ".hermes")}),
        ):
            answer = hub.call("PUT", f"/v1/agents/{name}", {"adapter": adapter}, admin=True, seconds=60)
            assert answer.status == 200, answer.body
        yield hub


def script(at: Hub, me: str, other: str, question: str) -> Path:
    """What an agent's own tool runs: our command, with the question on its standard input."""
    command = [sys.executable, "-m", "angelia", "message-agent", "--as", me, "--target", other]
    told = {"ANGELIA_DATA_DIR": str(at.folder), "ANGELIA_URL": at.url, "PYTHONPATH": str(ROOT / "src")}
    path = at.base / f"{me}-asks"
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in told.items())
    path.write_text(f"#!/bin/sh\nprintf %s {shlex.quote(question)} | env {variables} {shlex.join(command)}\n")
    path.chmod(0o700)
    return path


@pytest.mark.parametrize(("me", "other", "tool"), [("openclaw", "hermes", "exec"), ("hermes", "openclaw", "terminal")])
def test_an_agent_that_a_person_writes_to_asks_the_other_and_hears_its_answer(
    at: Hub, lab: Lab, me: str, other: str, tool: str
) -> None:
    question = f"which port does staging use, {other}?"
    call = f"TOOLCALL {tool} {json.dumps({'command': str(script(at, me, other, question))})}"
    sent = at.run("send", me, call, seconds=60)
    assert sent.returncode == 0, sent.stderr
    asked = eventually(lambda: [c for c in lab.model.calls if question in c.last and "TOOLCALL" not in c.last], WAIT)
    assert f"@{me}" in asked[0].last
    # The other's answer comes back to whoever asked, as a turn of its own.
    heard = eventually(
        lambda: [c for c in lab.model.calls if "REPLY[" in c.last and f"@{other}" in c.last and c is not asked[0]], WAIT
    )
    assert "REPLY[1]" in heard[-1].last
    eventually(lambda: not at.inbox(me)["total"] and not at.inbox(other)["total"], WAIT)
