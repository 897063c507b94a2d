"""A hub that stops while a call waits for something outside of it: it is answered at once, and told how things stand.

Each call here waits for a program that never says anything; the real hub is asked to end by SIGTERM meanwhile.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.hub import MARGIN, Answer, Hub, eventually, hub
from tests.acceptance.linked import ENVIRONMENT, connect, connection, hubs

STOP_SECONDS = 3.0  # promise 16


@pytest.fixture
def here() -> Iterator[Hub]:
    with hub(env=ENVIRONMENT) as found:
        yield found


def program(folder: Path, *, stubborn: bool = False) -> tuple[str, Path]:
    """A program that says nothing for a minute, and the file that it makes when it has begun."""
    file, mark = folder / "silent", folder / "silent.begun"
    trap = "trap '' TERM HUP INT\n" if stubborn else ""
    file.write_text(f'#!/bin/sh\n{trap}: >"{mark}"\nexec sleep 60\n')
    file.chmod(0o700)
    return str(file), mark


class Asked:
    """A call on its way, in a thread of its own."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask, self._answer = ask, list[Answer]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._answer.append(self._ask())

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def answer(self) -> Answer:
        self._thread.join(30)
        assert self._answer, "it was not answered"
        return self._answer[0]


def stopped_well(found: Hub) -> None:
    """Ask it to end: it does in time, and its log shows no fault."""
    code, seconds = found.stop()
    said = found.output()
    assert (code, seconds < STOP_SECONDS * MARGIN) == (0, True), (code, seconds, said)
    assert "the hub has stopped" in said
    for word in ("Traceback", "did not end", "given up", "\\n", "error:"):
        assert word not in said, said


def refused(asked: Asked) -> str:
    """What a call was told that ended because the hub did."""
    answer = asked.answer()
    assert (answer.status, answer.code) == (503, "stopping"), answer.body
    return str(answer.json["detail"])


def test_a_connection_that_is_being_dialled_is_kept_and_that_is_said(here: Hub) -> None:
    file, mark = program(here.base)
    asked = Asked(lambda: here.call("PUT", "/v1/connections/x", {"target": f"exec:{file}"}, admin=True))
    eventually(mark.exists)
    stopped_well(here)
    assert refused(asked) == "The hub is stopping. The connection x is kept, and is dialled when the hub is back."
    mark.unlink()
    here.start()
    assert connection(here, "x")["target"] == f"exec:{file}"
    eventually(mark.exists, 10 * MARGIN, "the next hub dials it")
    stopped_well(here)


def test_the_command_that_waits_for_a_connection_says_what_became_of_it(here: Hub) -> None:
    file, mark = program(here.base)
    command = [sys.executable, "-m", "angelia", "connect", "x", f"exec:{file}"]
    with subprocess.Popen(
        command, env=here.cli_environment(), cwd=here.base, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as waiting:  # fmt: skip
        eventually(mark.exists)
        stopped_well(here)
        _, told = waiting.communicate(timeout=30)
    assert waiting.returncode == 1, told
    assert "The connection x is kept" in told


def test_nothing_is_kept_of_a_pairing_that_was_under_way(here: Hub) -> None:
    file, mark = program(here.base)
    body = {"target": f"exec:{file}", "code": "ABCD-EFGH"}
    asked = Asked(lambda: here.call("PUT", "/v1/connections/x", body, admin=True))
    eventually(mark.exists)
    stopped_well(here)
    assert "Nothing was kept here" in refused(asked)
    here.start()
    assert connection(here, "x") == {}


def test_what_is_removed_while_its_hub_is_frozen_is_removed_and_what_comes_behind_it_is_kept() -> None:
    with hubs("home", "garage") as (here, far):
        connect(here, "garage", f"ws://127.0.0.1:{far.port}")
        assert far.process is not None
        far.process.send_signal(signal.SIGSTOP)
        try:
            asked = Asked(lambda: here.call("DELETE", "/v1/connections/garage", admin=True))
            eventually(lambda: here.get("/health").status == 200)  # it comes behind
            body = {"target": f"ws://127.0.0.1:{far.port}"}
            behind = Asked(lambda: here.call("PUT", "/v1/connections/shed", body, admin=True))
            eventually(lambda: here.get("/health").status == 200)
            stopped_well(here)
            answer = asked.answer()
            assert "The connection shed is kept" in refused(behind)
        finally:
            far.process.send_signal(signal.SIGCONT)
        assert (answer.status, answer.json) == (200, {"removed": "garage"})
        here.start()
        assert connection(here, "garage") == {}
        assert connection(here, "shed")


@pytest.mark.parametrize("stubborn", [False, True], ids=["", "one-that-ends-only-when-it-is-killed"])
def test_a_look_at_an_agent_ends_with_the_hub(here: Hub, stubborn: bool) -> None:
    file, mark = program(here.base, stubborn=stubborn)
    adapter = {"kind": "codex", "program": file}
    made = here.call("PUT", "/v1/agents/codex", {"adapter": adapter}, admin=True)
    assert made.status == 201, made.body
    asked = Asked(lambda: here.call("GET", "/v1/agents/codex/check", admin=True))
    eventually(mark.exists)
    stopped_well(here)
    assert refused(asked) == "The hub is stopping. Whether it can be woken is not known."


def test_a_request_that_is_not_whole_is_told_that_the_hub_stops(here: Hub) -> None:
    with here.raw() as sock:
        head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{here.port}\r\nContent-Type: application/json\r\n"
        sock.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        here.get("/health")  # what came before it has been read
        stopped_well(here)
        told = sock.makefile("rb").read()
    assert told.startswith(b"HTTP/1.1 503 "), told
    assert b'"code": "stopping"' in told
