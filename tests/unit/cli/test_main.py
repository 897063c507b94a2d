"""The command line as a whole: the table, the options that are the same everywhere, and how things end."""

import json
import os
import pty
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from angelia import __version__
from angelia.cli.main import COMMANDS, split
from tests.fakes.fake_hub import FakeHub, answer
from tests.unit.cli.conftest import Run

HEALTH = {"product": "angelia", "status": "ok", "version": "1", "durability": "full"}


def test_every_command_is_there_and_says_what_it_does(run: Run) -> None:
    for name, (module, _) in COMMANDS.items():
        assert callable(import_module(module).run), name
        code, out, _ = run(name, "--help")
        assert code == 0
        assert f"usage: angelia {name}" in out
        assert "angelia " in out.partition("example")[2], f"{name} shows no example"


def test_help_lists_them(run: Run) -> None:
    for words in (["--help"], ["-h"], ["help"]):
        code, out, err = run(*words)
        assert (code, err) == (0, "")
        assert all(f"  {name} " in out for name in COMMANDS)


def test_no_command_is_wrong_usage_and_says_what_there_is(run: Run) -> None:
    code, out, err = run()
    assert (code, out) == (2, "")
    assert "commands:" in err


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"angelia {__version__}\n", "")


@pytest.mark.parametrize(
    ("typed", "meant"), [("sedn", "send"), ("snd", "send"), ("sendd", "send"), ("stat", "status"), ("joim", "join")]
)
def test_a_misspelt_command(run: Run, typed: str, meant: str) -> None:
    code, _, err = run(typed, "x")
    assert code == 2
    assert f"did you mean {meant}?" in err


def test_no_such_command(run: Run) -> None:
    code, _, err = run("frobnicate")
    assert code == 2
    assert "angelia --help" in err


def test_options_stand_before_or_after_the_command() -> None:
    options = {"agent": "scout", "hub_url": "http://h", "data_dir": "/d"}
    words = ["--as", "scout", "--hub=http://h", "--data-dir", "/d"]
    assert split([*words, "send", "x", "y"]) == ("send", ["x", "y"], options)
    assert split(["send", *words, "x", "y"]) == ("send", ["x", "y"], options)
    assert split(["send", "x", *words, "y"]) == ("send", ["x", "y"], options)
    assert split(["--json", "send", "x"]) == ("send", ["--json", "x"], {})
    assert split(["send", "x", "--json"]) == ("send", ["x", "--json"], {})


def test_what_follows_two_dashes_is_left_alone() -> None:
    assert split(["send", "x", "--", "--as", "--json"]) == ("send", ["x", "--", "--as", "--json"], {})


@pytest.mark.parametrize("words", [["--as"], ["send", "--as", ""], ["--hub=", "send"]])
def test_an_option_without_its_value(run: Run, words: list[str]) -> None:
    code, _, err = run(*words)
    assert code == 2
    assert "needs a value" in err


def test_a_hub_that_is_no_address_is_wrong_usage(run: Run) -> None:
    assert run("status", "--hub", "nonsense")[0] == 2


def test_wrong_settings_end_with_78(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANGELIA_PORT", "many")
    code, _, err = run("status")
    assert code == 78
    assert "ANGELIA_PORT" in err


def test_no_hub_ends_with_4_and_says_how_to_start_one(run: Run) -> None:
    code, out, err = run("send", "hermes", "hi")
    assert (code, out) == (4, "")
    assert "angelia up" in err


def test_errors_in_json(run: Run, hub: FakeHub) -> None:
    code, out, err = run("send", "hermse", "hi", "--json")
    assert (code, out) == (1, "")
    assert json.loads(err)["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("words", "code", "word"),
    [
        (["send", "--ttl", "abc"], 2, "wrong_usage"),
        (["inbox", "--limit", "x"], 2, "wrong_usage"),
        (["message", "zz"], 2, "wrong_usage"),
        (["frobnicate"], 2, "wrong_usage"),
        (["up", "--port", "x"], 78, "wrong_settings"),
        (["down"], 4, "no_hub"),
        (["send", "hermes", "hi"], 4, "no_hub"),
    ],
)
def test_every_error_in_json_is_one_object(run: Run, words: list[str], code: int, word: str) -> None:
    found, out, err = run("--json", *words)
    assert (found, out) == (code, "")
    told = json.loads(err)["error"]
    assert told["code"] == word
    assert told["detail"]


def test_help_with_json_before_it(run: Run) -> None:
    for words in (["--json", "--help"], ["--json", "help"], ["--json", "help", "send"]):
        code, out, err = run(*words)
        assert (code, err) == (0, "")
        assert "usage: angelia" in out


def test_an_option_that_there_is_not(run: Run) -> None:
    code, _, err = run("--bogus", "status")
    assert code == 2
    assert "no option '--bogus'" in err


def test_a_limit_that_there_is_not_is_told_before_a_port_is_looked_at(
    run: Run, far: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANGELIA_PORT", far.url.rpartition(":")[2])  # taken
    monkeypatch.setenv("ANGELIA_LIMITS_BOGUS", "1")
    code, _, err = run("up")
    assert code == 78
    assert "ANGELIA_LIMITS_BOGUS" in err
    assert not far.requests


def test_an_answer_nobody_reads_to_the_end_is_no_error(far: FakeHub) -> None:
    agents = [{"handle": f"a{number}", "title": "x" * 100} for number in range(5000)]
    far.on("GET /v1/agents", answer({"agents": agents}))
    line = f'"{sys.executable}" -m angelia agents --hub {far.url} | head -1'
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def shell(line: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line in which ``angelia`` is the one under test."""
    return subprocess.run(
        ["bash", "-c", line.replace("angelia", f'"{sys.executable}" -m angelia')], capture_output=True, check=False
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk to try it on")
def test_an_answer_that_cannot_be_written_is_told(far: FakeHub) -> None:
    far.on("GET /v1/agents", answer({"agents": []}))
    done = shell(f"angelia agents --hub {far.url} > /dev/full")
    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_closed_streams_are_no_accident(far: FakeHub) -> None:
    far.on("GET /v1/agents", answer({"agents": []}))
    done = shell(f"angelia agents --hub {far.url} >&- 2>&-")
    assert (done.returncode, done.stderr) == (0, b"")
    done = shell(f"angelia send --as scout --hub {far.url} hermes - <&-")
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_what_a_terminal_obeys_does_not_reach_one(far: FakeHub) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202e two\nlines"
    far.on("POST /v1/ask", answer({"id": "0" * 32, "reply": {"id": "1" * 32, "text": evil}}))
    far.on("GET /v1/agents", answer({"agents": [{"handle": "scout", "title": evil}]}))
    for words in (["ask", "--as", "scout", "hermes", "x"], ["agents"]):
        ours, theirs = pty.openpty()
        line = [sys.executable, "-m", "angelia", *words, "--hub", far.url]
        subprocess.run(line, stdout=theirs, stderr=theirs, stdin=theirs, check=True)
        os.close(theirs)
        shown = os.read(ours, 10_000).decode()
        os.close(ours)
        assert "two" in shown
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_a_command_loads_no_other() -> None:
    line = "import sys; from angelia.cli.main import _loaded; _loaded('send'); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-I", "-c", line], capture_output=True, text=True, check=True)
    loaded = set(found.stdout.split())
    assert "angelia.cli.send" in loaded
    assert not {"angelia.cli.listen", "angelia.client.stream", "angelia.client.listener"} & loaded
    heavy = {
        "dataclasses",
        "inspect",
        "uuid",
        "secrets",
        "subprocess",
        "asyncio",
        "msgspec",
        "apsw",
        "logging",
    }
    assert not heavy & loaded


def test_import_angelia_is_cheap() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import angelia, sys; print(*(x in sys.modules for x in ('http.client', 'json')))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.split() == ["False", "False"]


def test_names_with_letters_that_the_locale_has_not(
    far: FakeHub, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.on("GET /v1/agents", answer({"agents": [{"handle": "scout", "title": "Späher 🐝"}]}))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = subprocess.run(
        [sys.executable, "-m", "angelia", "agents", "--hub", far.url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "Sp\\xe4her" in done.stdout
