"""join, where it says how an agent is woken: what the hub is told, and what is refused before any hub is asked."""

import json
import os
from pathlib import Path

import pytest

from tests.fakes.fake_hub import FakeHub, answer, problem
from tests.unit.cli.conftest import Run

AGENT = "PUT /v1/agents/scout"
CHECK = "GET /v1/agents/scout/check"


@pytest.fixture(autouse=True)
def willing(hub: FakeHub) -> None:
    hub.on(AGENT, answer({"handle": "scout", "keyed": False, "adapter": {"kind": "command"}}, 201))
    hub.on("POST /v1/agents/scout/token", answer({"handle": "scout", "id": "1", "token": "secret-1"}, 201))
    page = {"deliveries": [], "total": 0, "hidden": 0, "oldest_unread_at": None, "next": None}
    hub.on("GET /v1/agents/scout/inbox", answer(page))  # its token works when it is joined again
    hub.on(CHECK, answer({"kind": "command", "problem": None, "ways": ["program"], "notes": []}))


def told(run: Run, hub: FakeHub, *words: str) -> object:
    """The adapter that the hub was told."""
    code, _, err = run("join", "scout", *words)
    assert code == 0, err
    return hub.asked(AGENT)[-1].json["adapter"]


def program(folder: Path, name: str = "my agent") -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


# ---- a program


def test_a_command_is_split_and_its_program_is_found_by_its_whole_path(
    run: Run, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(tmp_path, "agent")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir("/tmp")
    assert told(run, hub, "--command", "agent --name 'a b' \"$HOME; rm -rf *\" '' \\x") == {
        "kind": "command",
        "argv": [str(path), "--name", "a b", "$HOME; rm -rf *", "", "x"],
        "folder": os.path.realpath("/tmp"),
    }


@pytest.mark.parametrize("word", ["./'my agent'", "'{}/my agent'", "~/'my agent'"])
def test_a_program_may_be_a_path(
    run: Run, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    path = program(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    adapter = told(run, hub, "--command", word.format(tmp_path))
    assert isinstance(adapter, dict)
    assert adapter["argv"] == [str(path)]


def test_everything_that_can_be_said_of_a_command(run: Run, hub: FakeHub, tmp_path: Path) -> None:
    words = (
        "--prompt",
        "--field",
        "result.text",
        "--folder",
        str(tmp_path),
        "--conversation",
        "thread",
        "--timeout",
        "15m",
    )
    assert told(run, hub, "--command", "/bin/cat", *words) == {
        "kind": "command", "argv": ["/bin/cat"], "folder": str(tmp_path), "reads": "prompt", "field": "result.text",
        "conversation": "thread", "timeout_seconds": 900.0,
    }  # fmt: skip


# ---- a webhook, and the other kinds


def test_a_webhook(run: Run, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").write_text("whsec_x\n")
    monkeypatch.chdir(tmp_path)
    words = ("--webhook", "https://example.org/hook", "--secret-file", "s")
    plain = {"kind": "webhook", "url": "https://example.org/hook", "secret_file": str(tmp_path / "s")}
    assert told(run, hub, *words) == plain
    assert told(run, hub, *words, "--allow-private") == {**plain, "allow_private": True}


def test_an_option_is_json_or_else_a_text(run: Run, hub: FakeHub) -> None:
    options = [
        "profile=ops",
        "port=8642",
        'arguments=["--x", "a=b"]',
        "model=gpt-5.1",
        "fast=true",
        "home=/x y",
        "empty=",
    ]
    words = [word for option in options for word in ("--option", option)]
    assert told(run, hub, "--adapter", "hermes", *words) == {
        "kind": "hermes", "profile": "ops", "port": 8642, "arguments": ["--x", "a=b"], "model": "gpt-5.1", "fast": True,
        "home": "/x y", "empty": "",
    }  # fmt: skip


def test_an_adapter_is_taken_away(run: Run, hub: FakeHub) -> None:
    assert told(run, hub, "--no-adapter") is None
    assert not hub.asked(CHECK)


def test_what_is_not_said_stays_as_it_was(run: Run, hub: FakeHub) -> None:
    assert run("join", "scout")[0] == 0
    assert hub.asked(AGENT)[0].json == {}


# ---- what is said of it


def test_it_says_how_to_try_it_and_what_is_missing(run: Run, hub: FakeHub) -> None:
    _, _, err = run("join", "scout", "--command", "/bin/cat")
    assert "angelia wake scout" in err
    assert "listen" not in err
    hub.on(CHECK, answer({"kind": "hermes", "problem": "It has no \x1b[31mkey.", "ways": [], "notes": []}))
    code, _, err = run("join", "scout", "--adapter", "hermes")
    assert code == 0
    assert "it cannot be woken yet: It has no \\x1b[31mkey." in err
    hub.on(CHECK, problem(503, "unwell"))
    assert "cannot be woken yet: Because." in run("join", "scout", "--adapter", "hermes")[2]


def test_in_json(run: Run) -> None:
    told = json.loads(run("join", "scout", "--command", "/bin/cat", "--json")[1])
    assert (told["adapter"], told["problem"]) == ({"kind": "command"}, None)


def test_what_the_hub_refuses_keys_nothing(run: Run, hub: FakeHub) -> None:
    hub.on(AGENT, problem(400, "bad_request", "There is no kind of agent 'acp' here."))
    code, out, err = run("join", "scout", "--adapter", "acp")
    assert (code, out) == (1, "")
    assert "There is no kind" in err
    assert len(hub.requests) == 1


# ---- wrong usage


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--command", "no-such-program-anywhere"], "there is no program 'no-such-program-anywhere'"),
        (["--command", "/etc/passwd"], "may not be run"),
        (["--command", "/tmp"], "may not be run"),
        (["--command", "cat 'open"], "cannot be split"),
        (["--command", ""], "is empty"),
        (["--command", "cat", "--folder", "/nowhere/at/all"], "there is no folder"),
        (["--command", "cat", "--no-adapter"], "give one of --command and --no-adapter"),
        (["--command", "cat", "--adapter", "hermes"], "give one of"),
        (["--command", "cat", "--option", "a=b"], "--option goes with --adapter"),
        (["--adapter", "hermes", "--prompt"], "--prompt goes with --command"),
        (["--adapter", "hermes", "--option", "x"], "NAME=VALUE"),
        (["--adapter", "hermes", "--option", "a=1", "--option", "a=2"], "a is there twice"),
        (["--adapter", "hermes", "--option", "kind=acp"], "NAME=VALUE"),
        (["--adapter", "gpt"], "invalid choice"),
        (["--webhook", "https://x"], "--secret-file"),
        (["--webhook", "https://x", "--secret-file", "/nowhere"], "there is no file"),
        (["--secret-file", "/etc/passwd"], "--secret-file goes with --webhook"),
        (["--conversation", "thread"], "--conversation goes with"),
        (["--no-adapter", "--timeout", "9"], "--timeout goes with"),
        (["--command", "cat", "--timeout", "soon"], "no time"),
        (["--command", "cat", "--timeout", "0"], "--timeout has to be more than 0"),
        (["--timeout", "0"], "--timeout goes with"),
        (["--command", "cat", "--field", ""], "--field: it is empty"),
        (["--command", "cat", "--folder", ""], "--folder: it is empty"),
        (["--webhook", "", "--secret-file", "/etc/passwd"], "--webhook: it is empty"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_done(
    run: Run, hub: FakeHub, words: list[str], said: str
) -> None:
    code, out, err = run("join", "scout", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert not hub.requests
