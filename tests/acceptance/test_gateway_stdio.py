"""``angelia gateway --stdio``: the same gateway, a line each on standard input and output."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.acceptance.hub import Hub, hub


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    """One hub for the tests that leave nothing behind which another would meet."""
    with hub() as started:
        yield started


def test_the_same_over_standard_input_and_output(at: Hub) -> None:
    calls = [
        {"jsonrpc": "2.0", "id": 1, "method": "gateway.ping"},
        {"jsonrpc": "2.0", "id": "two", "method": "profiles.list"},
        {"jsonrpc": "2.0", "id": 3, "method": "message_agent", "params": {"target": "nobody", "message": "hi"}},
    ]
    lines = "\n\n".join(json.dumps(call) for call in calls) + "\n{\n"
    ran = subprocess.run(
        [sys.executable, "-m", "angelia", "gateway", "--stdio"],
        env=at.cli_environment(), input=lines, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert found[0]["params"]["type"] == "gateway.ready"
    answers = {row["id"]: row for row in found if "id" in row}
    assert answers[1]["result"] == {"ok": True}
    assert answers["two"]["result"]["bot_mode_protocol"] is True
    assert "teammates" in answers[3]["result"]
    assert answers[None]["error"]["code"] == -32700


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_that_is_too_long_is_answered_and_ends_the_bridge(end: str) -> None:
    """Its end, or so much of it that no end can help any more."""
    with hub(env={"ANGELIA_LIMITS_FRAME_BYTES": "2000"}) as at:
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "gateway.ping"})
        fits, too_long = ping.ljust(2000), ping.ljust(2001)
        bridge = subprocess.Popen(
            [sys.executable, "-m", "angelia", "gateway", "--stdio"],
            env=at.cli_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        assert json.loads(bridge.stdout.readline())["params"]["payload"]["frame_bytes"] == 2000
        bridge.stdin.write(fits + "\r\n")
        bridge.stdin.flush()
        assert json.loads(bridge.stdout.readline())["result"] == {"ok": True}
        bridge.stdin.write(too_long + (end or "x" * 10))  # stdin stays open
        bridge.stdin.flush()
        assert bridge.wait(30) == 4
        told = json.loads(bridge.stdout.readline())
        assert (told["id"], told["error"]["code"]) == (None, -32600)
        assert "2000 bytes" in told["error"]["message"]
        assert told["error"]["data"]["reason"] == "invalid_params"
        out, said = bridge.communicate()
        assert out == ""
        assert said.startswith("angelia: a line on stdin has more than 2000 bytes")


def test_a_hub_that_goes_ends_the_bridge_with_its_own_code() -> None:
    with hub() as at:
        bridge = subprocess.Popen(
            [sys.executable, "-m", "angelia", "gateway", "--stdio"],
            env=at.cli_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert bridge.stdout is not None
        assert "gateway.ready" in bridge.stdout.readline()
        at.kill9()
        assert bridge.wait(30) == 4  # with stdin open
        _, said = bridge.communicate()
        assert said.startswith("angelia: ")
