"""Secrets of agents that are woken: a file that others can use is refused with the command that mends it.

When the adapter is put, when somebody looks, when a turn would need it, and by a hub that found it so when it started.
The sender is told no path. Once the command was run the next turn begins.
"""

import base64
import json
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import LOOK_SECONDS, MARGIN, Hub, eventually, hub

SECONDS = 10.0 * MARGIN
SECRET = "whsec_" + base64.b64encode(b"nobody else is to know of this..").decode()
OPTIONS = {  # of a kind: which names its file, and how the rest is set up; PORT: where it is reached
    "webhook": ("secret_file", {"url": "http://127.0.0.1:PORT/", "allow_private": True}),
    "hermes": ("api_key_file", {"api_url": "http://127.0.0.1:PORT"}),
    "openclaw": ("token_file", {"url": "ws://127.0.0.1:PORT"}),
    "opencode": ("password_file", {"url": "http://127.0.0.1:PORT"}),
}
KINDS = tuple(OPTIONS)
REFUSAL = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    with hub() as started:
        yield started


class There:
    """Where an agent would be reached: whoever connects is seen, and refused."""

    def __init__(self, at: Hub, kind: str, listener: socket.socket) -> None:
        self.at, self.name, self.kind, self.listener = at, f"{kind}-{listener.getsockname()[1]}", kind, listener
        self.file = at.base / f"{self.name}'s $ecret"
        self.file.touch(0o600)
        self.file.write_text(SECRET)

    @property
    def spec(self) -> dict[str, Any]:
        option, rest = OPTIONS[self.kind]
        rest = json.loads(json.dumps(rest).replace("PORT", str(self.listener.getsockname()[1])))
        return {"kind": self.kind, option: str(self.file), **rest}

    def put(self) -> tuple[int, str]:
        answer = self.at.call("PUT", f"/v1/agents/{self.name}", {"adapter": self.spec}, admin=True)
        return answer.status, answer.json.get("detail", "")

    def problem(self) -> str:
        """What a look finds wrong."""
        return str(self.at.get(f"/v1/agents/{self.name}/check", admin=True).json["problem"])

    def refused(self) -> None:
        """Its next turn is not begun: nobody connects, the sender hears no path, and the owner the command."""
        asked = self.at.send(self.name, "hello", "ann", intent="request")["id"]
        row = eventually(lambda: (row := self.at.receipt(asked)["deliveries"][0])["state"] == "failed" and row, SECONDS)
        assert row["reason"] == "missing_config"
        (told,) = [
            item["message"]["text"]
            for item in self.at.inbox("ann")["deliveries"]
            if item["message"]["in_reply_to"] == asked
        ]
        assert "angelia doctor" in told
        assert str(self.at.base) not in told
        turn = next(turn for turn in self.at.get("/v1/turns", admin=True).json["turns"] if turn["id"] == asked)
        assert command(turn["output"]) == self.mend
        self.listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.listener.accept()

    def begins(self) -> None:
        """Its next turn is begun: somebody connects. Waits for its end."""
        asked = self.at.send(self.name, "hello again", "ann", intent="request")["id"]
        self.listener.settimeout(LOOK_SECONDS)
        came = 0

        def over() -> bool:
            nonlocal came
            with suppress(TimeoutError):
                one, _ = self.listener.accept()
                with one:
                    one.settimeout(SECONDS)
                    one.recv(65536)
                    one.sendall(REFUSAL)
                came += 1
            return self.at.state(asked) == "failed"

        eventually(over, SECONDS)
        assert came

    @property
    def mend(self) -> str:
        return f"chmod 600 {shlex.quote(str(self.file))}"


@pytest.fixture
def there(at: Hub, request: pytest.FixtureRequest) -> Iterator[There]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield There(at, request.param, listener)


def command(told: str) -> str:
    """The command in what was told."""
    (found,) = re.findall(r"chmod 600 .*?(?=; if|$)", told)
    return str(found)


def run(line: str) -> None:
    subprocess.run(["/bin/sh", "-c", line], check=True)


@pytest.mark.parametrize("there", KINDS, indirect=True)
def test_an_adapter_with_a_wide_file_is_refused_and_not_kept(at: Hub, there: There) -> None:
    there.file.chmod(0o640)
    status, told = there.put()
    assert (status, command(told)) == (400, there.mend)
    assert SECRET not in told
    assert at.get(f"/v1/agents/{there.name}", admin=True).status == 404
    run(command(told))
    assert there.put()[0] == 201


@pytest.mark.parametrize("there", KINDS, indirect=True)
def test_one_that_is_opened_later_is_refused_by_the_next_look_and_turn(at: Hub, there: There) -> None:
    assert there.put()[0] == 201
    there.begins()
    there.file.chmod(0o604)
    there.refused()
    assert command(there.problem()) == there.mend
    run(command(there.problem()))
    there.begins()


def test_a_hub_that_finds_them_open_says_so_until_they_are_closed() -> None:
    with hub() as at:
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in KINDS]
        all_there = [There(at, kind, listener) for kind, listener in zip(KINDS, listeners, strict=True)]
        for there in all_there:
            assert there.put()[0] == 201
        at.stop()
        for there in all_there:
            there.file.chmod(0o644)
        at.start()
        for there in all_there:
            there.refused()
        checks = json.loads(at.run("doctor", "--json").stdout)["checks"]
        for there in all_there:
            (found,) = [check for check in checks if check["name"] == f"agent {there.name}"]
            assert (found["state"], command(found["text"])) == ("wrong", there.mend)
            run(command(found["text"]))
            there.begins()
            there.listener.close()
        assert SECRET not in at.output()


# ---------------------------------------------------------------------------------------------------- an agent's token


def test_a_token_that_others_can_use_is_not_handed_to_its_agent(at: Hub) -> None:
    program = at.base / "says-its-token.sh"
    program.write_text(f'#!/bin/sh\necho run >> "{at.base}/runs"\nprintf %s "$ANGELIA_TOKEN"\n')
    program.chmod(0o700)
    assert at.run("join", "Worker", "--command", str(program)).returncode == 0
    file: Path = at.folder / "tokens" / "Worker"
    token = file.read_text().strip()
    assert at.run("ask", "worker", "which?").stdout.strip() == token
    file.chmod(0o644)
    done = at.run("ask", "worker", "and now?")
    assert done.returncode
    assert "angelia doctor" in done.stdout + done.stderr
    assert str(at.base) not in done.stdout + done.stderr
    assert (at.base / "runs").read_text() == "run\n"
    turn = next(turn for turn in at.get("/v1/turns", admin=True).json["turns"] if turn["agent"] == "Worker")
    assert (turn["reason"], command(turn["output"])) == ("missing_config", f"chmod 600 {file}")
    assert f"chmod 600 {file}" in at.run("doctor").stdout
    assert f"chmod 600 {file}" in at.output()
    assert token not in at.output()
    run(command(turn["output"]))
    assert at.run("ask", "worker", "again").stdout.strip() == token
