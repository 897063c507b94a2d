"""``angelia gateway --stdio``: the same gateway, a line each on standard input and output."""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.sync.server import ServerConnection, serve

from tests.acceptance.hub import Hub, environment, hub


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


@contextmanager
def bridge_to(meet: Callable[[ServerConnection], None]) -> Iterator["subprocess.Popen[bytes]"]:
    """A bridge to a stand-in for the hub, which says ``gateway.ready`` and then does ``meet``."""

    def at_work(line: ServerConnection) -> None:
        payload = {"product": "angelia", "frame_bytes": 8_000_000}
        line.send(json.dumps({"method": "event", "params": {"type": "gateway.ready", "payload": payload}}))
        meet(line)

    with (
        tempfile.TemporaryDirectory(prefix="ang-", dir="/tmp") as home,
        serve(at_work, "127.0.0.1", 0, max_size=None) as server,
    ):
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        env = environment(Path(home), ANGELIA_URL=f"http://127.0.0.1:{server.socket.getsockname()[1]}")
        command, pipe = [sys.executable, "-m", "angelia", "gateway", "--stdio"], subprocess.PIPE
        try:
            with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as bridge:
                try:
                    assert bridge.stdout is not None
                    assert b"gateway.ready" in bridge.stdout.readline()
                    yield bridge
                finally:
                    bridge.kill()
        finally:
            server.shutdown()
            serving.join()


def test_answers_and_events_on_stdin_wait_for_no_answer() -> None:
    """A hub at the other end calls, too, and is answered; stdin's end waits for its own calls alone."""
    met: list[object] = []

    def meet(line: ServerConnection) -> None:
        line.send(json.dumps({"id": 1, "method": "hub.ping", "params": {"result": 1}}))
        met.extend(json.loads(line.recv()) for _ in range(4))  # as many as the test writes
        line.send(json.dumps({"id": "ours", "result": {"method": "x"}}))
        met.extend(line)

    said: list[object] = [
        {"id": 1, "result": {"method": "ping"}}, {"id": 2, "error": {"code": 1, "message": ""}},
        {"method": "event", "params": {"type": "x", "payload": {}}}, {"id": "ours", "method": "hub.hello"},
    ]  # fmt: skip
    with bridge_to(meet) as bridge:
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        assert json.loads(bridge.stdout.readline())["method"] == "hub.ping"
        bridge.stdin.write("".join(json.dumps(frame) + "\n" for frame in said).encode())
        bridge.stdin.close()
        assert json.loads(bridge.stdout.readline())["id"] == "ours"
        assert bridge.wait(10) == 0
    assert met == said


def test_stdin_that_ends_while_the_hub_waits_for_an_answer_ends_the_bridge() -> None:
    def meet(line: ServerConnection) -> None:
        line.send(json.dumps({"id": 1, "method": "hub.ping"}))
        list(line)

    with bridge_to(meet) as bridge:
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        bridge.stdout.readline()
        bridge.stdin.close()
        assert bridge.wait(10) == 0


def test_frames_of_any_size_cross_whole_both_ways() -> None:
    """Half of a letter that is cut by a read, and bytes that are no text, included."""

    def meet(line: ServerConnection) -> None:
        for frame in line:
            line.send(frame)

    with bridge_to(meet) as bridge:
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        for size in (1, 65_535, 65_536, 1_000_003):
            frame = json.dumps({"id": 1, "method": "m", "params": {"x": "ä" * size}}, ensure_ascii=False).encode()
            bridge.stdin.write(frame + b"\n")
            bridge.stdin.flush()
            assert bridge.stdout.readline() == frame + b"\n"
        bridge.stdin.write(b'{"id": 1, "method": "\xff"}\n')
        bridge.stdin.flush()
        assert bridge.stdout.readline() == '{"id": 1, "method": "\ufffd"}\n'.encode()


def test_a_hub_that_goes_in_mid_call_ends_the_bridge_with_its_own_code() -> None:
    with bridge_to(lambda line: line.socket.close()) as bridge:
        assert bridge.wait(10) == 4
