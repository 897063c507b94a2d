"""The command line day by day, against a real hub: first steps, status, pipes, logs, completion, the manual."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from angelia.cli import manual
from tests.acceptance.hub import ROOT, Hub, Stream, eventually, hub
from tests.rigs.terminal import Terminal


@pytest.fixture
def running() -> Iterator[Hub]:
    with hub() as started:
        yield started


def shown(running: Hub, *words: str) -> list[str]:
    done = running.run(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# ---- who a command is


@pytest.mark.skipif(shutil.which("setsid") is None, reason="there is no setsid here")
@pytest.mark.parametrize("says", ["--as", "ANGELIA_AGENT"])
def test_whatever_shells_a_command_runs_in_it_is_the_same_agents(running: Hub, says: str) -> None:
    """F020. Who it acts as is what was said, whatever its parents, its session and its folder are."""
    assert running.run("join", "scout").returncode == 0
    sent = running.send("scout", "for scout alone", "sender")["id"]
    env = running.cli_environment(**({} if says == "--as" else {says: "scout"}))
    own = "--as scout" if says == "--as" else ""

    def typed(line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line], env=env, cwd=running.base, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout

    look = f"{shlex.quote(sys.executable)} -m angelia inbox {own} --json"
    for line in (
        f"exec {look}",
        f"sh -c {shlex.quote(f'cd / && {look}; true')}",
        f"bash -c {shlex.quote(f'( {look} ) & wait')}",
        f"setsid -w sh -c {shlex.quote(f'{look} | cat')}",
    ):
        rows = json.loads(typed(line))["deliveries"]
        assert [row["message"]["id"] for row in rows] == [sent], line
    answer = f"{shlex.quote(sys.executable)} -m angelia reply {sent} done {own}"
    typed(f"setsid -w sh -c {shlex.quote(f'cd / && {answer}; true')}")
    [found] = running.claim("sender")
    assert (found["message"]["from"], found["message"]["in_reply_to"]) == ("scout", sent)


# ---- the first steps


def test_the_first_steps_of_the_help_work_as_they_stand() -> None:
    lines = [line for line, _ in manual.STEPS]
    with hub() as running:
        running.stop()
        environment = {**running.cli_environment(), "ANGELIA_PORT": str(running.port)}

        def typed(line: str) -> str:
            done = subprocess.run(
                ["bash", "-c", line],
                env=environment,
                cwd=running.base,
                capture_output=True,
                text=True,
                timeout=50,
                check=False,
            )
            assert done.returncode == 0, f"{line}: {done.stderr}"
            return done.stdout

        typed(lines[0])
        try:
            assert typed(lines[1]).strip().endswith("tokens/scout")
            with subprocess.Popen(
                ["bash", "-c", f"exec {lines[2]}"], env=environment, stdout=subprocess.PIPE
            ) as listening:
                assert listening.stdout is not None
                eventually(lambda: '"scout": {"online": true}' in typed("angelia status --json"))
                assert "scout: being handed over" in typed(lines[3])
                assert json.loads(listening.stdout.readline())["text"] == "good morning"
                assert typed(lines[4]).startswith("All is well.")
                listening.terminate()
        finally:
            typed("angelia down")


# ---- status


def test_status_tells_at_a_glance_what_is_wrong(running: Hub) -> None:
    assert shown(running, "status")[0] == "All is well."
    running.send("hermes", "again and again", "scout")
    for _ in range(10):
        (taken,) = eventually(lambda: running.claim("hermes"))
        assert running.lease(taken["lease"]["token"], "nack", delay_seconds=0).status == 200
    running.send("human", "for you", "scout")
    with Stream(running, "/v1/agents/openclaw/stream"), Stream(running, "/v1/agents/openclaw/stream?mode=observe"):
        lines = shown(running, "status")
    assert lines[0] == "1 dead letter: angelia dead lists them"
    assert lines[1] == "openclaw is read by 2 at once"
    assert "1 dead letters, 0 held" in lines[4]
    assert lines[5] == "1 message waits for you: angelia inbox"
    told = json.loads(running.run("status", "--json").stdout)
    assert (told["dead"], told["held"]) == (1, 0)
    assert told["disk_free_bytes"] > 0
    assert told["log_bytes"] >= 0


def test_status_of_many_fits_a_screen(running: Hub) -> None:
    for number in range(60):
        running.claim(f"agent-{number}")
    running.broadcast({"text": "to all"}, "boss")
    lines = shown(running, "status")
    assert len(lines) == 23
    assert max(map(len, lines)) <= 80
    assert re.fullmatch(r"… and \d+ more, \d+ of them with mail: angelia agents", lines[-1])


def test_status_costs_little_however_much_waits(running: Hub) -> None:
    for sender in range(8):
        batch = {"messages": [{"to": "hermes", "text": "x", "from": f"s{sender}"} for _ in range(1000)]}
        assert running.post("/v1/messages", batch).status in (200, 201, 207)
    answer = running.get("/status", seconds=2)
    assert answer.json["queues"]["hermes"] == 8000
    assert any("nearly full" in problem for problem in answer.json["problems"])


# ---- a named pipe


def test_a_pipe_hands_over_everything_whatever_becomes_of_its_readers_and_of_the_hub(running: Hub) -> None:
    path = running.base / "pipe"
    line = [sys.executable, "-m", "angelia", "listen", "--as", "scout", "--fifo", str(path)]
    with subprocess.Popen(line, env=running.cli_environment(), stderr=subprocess.PIPE) as child:
        try:
            assert child.stderr is not None
            assert b"waits for a reader" in child.stderr.readline()
            running.claim("scout")
            sent = [
                running.send("scout", f"no. {number} {'x' * (number * 350)}", "boss")["id"] for number in range(300)
            ]
            found: list[str] = []
            while len(found) < len(sent):
                with path.open("rb") as reader:  # one that takes 50 lines and goes
                    while len(found) < len(sent):
                        found.append(json.loads(reader.readline())["id"])
                        if len(found) % 50 == 0:
                            break
                eventually(lambda: str(path) not in _open_files(child.pid))
                if len(found) == 150:
                    running.restart()
            assert list(dict.fromkeys(found)) == sent
            eventually(lambda: running.inbox("scout")["total"] == 0)
        finally:
            child.terminate()
            child.communicate(timeout=30)
    assert not path.exists()


def _open_files(pid: int) -> list[str]:
    return [os.path.realpath(each) for each in Path(f"/proc/{pid}/fd").iterdir()]


def test_what_lies_in_a_pipe_when_its_listener_is_killed_comes_again(running: Hub) -> None:
    path = running.base / "pipe"
    line = [sys.executable, "-m", "angelia", "listen", "--as", "scout", "--fifo", str(path)]
    running.claim("scout")
    sent = running.send("scout", "not to be lost", "boss")["id"]
    with subprocess.Popen(line, env=running.cli_environment(), stderr=subprocess.DEVNULL) as child:
        reader = os.open(eventually(lambda: path.exists() and path), os.O_RDONLY)
        eventually(lambda: running.state(sent) == "leased")
        child.kill()
    os.close(reader)  # without having read
    eventually(lambda: running.state(sent) == "queued")


# ---- logs


def test_in_json_the_log_is_all_there_is_and_every_line_an_object() -> None:
    with hub(args=("--log-json", "--log-level", "debug")) as running:
        running.run("join", "scout")
        token = (running.folder / "tokens/scout").read_text().strip()
        running.send("scout", "hello\n\x1b[31m", "boss")
        (taken,) = running.call("POST", "/v1/agents/scout/claim", {"limit": 1}, token=token).json["deliveries"]
        running.call("POST", f"/v1/leases/{taken['lease']['token']}/ack", {}, token=token)
        running.call("POST", f"/v1/leases/{taken['lease']['token']}/nonsense", {}, token=token)
        running.talk(b"GET /x\x1b[2J HTTP/1.1\r\nHost: nonsense\r\n\r\n")
        second = running.run("up", "--log-json", "--port", str(running.port))
        assert second.returncode == 3
        (taken_by,) = [json.loads(line) for line in second.stderr.splitlines()]
        assert (taken_by["event"], taken_by["level"], second.stdout) == ("taken", "error", "")
        running.stop()
        said = running.output()
        lines = [json.loads(line) for line in said.splitlines()]
    assert lines[0]["event"] == "the_hub_serves_on"
    assert [line["event"] for line in lines][-2:] == ["the_hub_is_stopping", "the_hub_has_stopped"]
    assert all({"at", "level", "event", "message", "part"} <= line.keys() for line in lines)
    for secret in (token, taken["lease"]["token"], "\x1b"):
        assert secret not in said


def test_the_setting_makes_it_json_as_well() -> None:
    with hub(env={"ANGELIA_LOG_JSON": "yes"}) as running:
        running.stop()
        assert all(json.loads(line) for line in running.output().splitlines())


# ---- the shell and the manual


def test_a_tab_completes_an_agents_name(running: Hub) -> None:
    running.claim("zebra-finch")
    setup = ["bind 'set enable-bracketed-paste off'", "source <(angelia completion bash)"]
    with Terminal(["bash", "--norc", "--noprofile"], running.cli_environment(), *setup) as terminal:
        assert terminal.complete("angelia send zeb") == "angelia send zebra-finch "
        running.stop()
        assert terminal.complete("angelia send zeb") == "angelia send zeb"


def test_the_wheel_brings_the_manual(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        (name,) = [name for name in content.namelist() if name.endswith("/share/man/man1/angelia.1")]
        assert content.read(name) == (ROOT / "docs/man/angelia.1").read_bytes()
