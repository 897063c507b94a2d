"""Completion: what real shells make of a Tab. Names come from the hub, and are never more than names."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from angelia.cli import described
from angelia.cli.completion import ANSWER_SECONDS
from angelia.cli.main import COMMANDS
from tests.acceptance.hub import environment
from tests.fakes.fake_hub import FakeHub, answer, hold
from tests.rigs.terminal import Terminal
from tests.unit.cli.conftest import Run

PEERS = [
    {"handle": "hermes", "connection": "local"},
    {"handle": "herald", "connection": "@laptop"},
    {"handle": "$(touch pwned)"},
    {"handle": "her\x1b[2J"},
    {"handle": "her;ls", "connection": "x y"},
]
SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile"],
        ["bind 'set enable-bracketed-paste off'", "source <(angelia completion bash)"],
    ),
    "zsh": (["zsh", "-f"], ["autoload -U compinit; compinit -D -u; source <(angelia completion zsh)"]),
}
# What is typed, and the line after a Tab.
LINES = {
    "angelia sta": "angelia status ",
    "angelia help joi": "angelia help join ",
    "angelia send herm": "angelia send hermes ",
    "angelia send --as herm": "angelia send --as hermes ",
    "angelia send --as=herm": "angelia send --as=hermes ",
    "angelia send hermes herm": "angelia send hermes herm",
    "angelia send -- herm": "angelia send -- hermes ",
    "angelia --as hermes send --intent req": "angelia --as hermes send --intent request ",
    "angelia inbox --state que": "angelia inbox --state queued ",
    "angelia dead req": "angelia dead requeue ",
    "angelia dead --to herm": "angelia dead --to hermes ",
    "angelia listen --exec 'ls -l' --on": "angelia listen --exec 'ls -l' --once ",
    "angelia turns st": "angelia turns stop ",
    "angelia connect mac wss://mac --aw": "angelia connect mac wss://mac --away ",
    "angelia pair mac wss://mac --speaks=her": "angelia pair mac wss://mac --speaks=hermes ",
    "angelia message-agent --target herm": "angelia message-agent --target hermes ",
    "angelia join scout --adapter claude": "angelia join scout --adapter claude_code ",
    "angelia up --log-level=deb": "angelia up --log-level=debug ",
    "angelia --hub http://127.0.0.1:9 send herm": "angelia --hub http://127.0.0.1:9 send herm",
    "angelia send --hub http://127.0.0.1:9 --as herm": "angelia send --hub http://127.0.0.1:9 --as herm",
    "angelia send --file hun": "angelia send --file hundred ",
    "angelia send her": "angelia send her",
}


@pytest.fixture
def peers(hub: FakeHub) -> FakeHub:
    return hub.on("GET /v1/agents", answer({"agents": PEERS}))


@pytest.fixture(params=SHELLS)
def terminal(request: pytest.FixtureRequest, peers: FakeHub, data_dir: Path) -> Iterator[Terminal]:
    command, setup = SHELLS[request.param]
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    (data_dir / "hundred").touch()
    told = environment(data_dir, ANGELIA_DATA_DIR=str(data_dir))
    with Terminal(command, told, f"cd '{data_dir}'", *setup) as opened:
        yield opened


def test_a_tab_completes_commands_options_values_and_names(terminal: Terminal, data_dir: Path) -> None:
    for typed, line in LINES.items():
        assert terminal.complete(typed).rstrip("= ") == line.rstrip(), typed
    assert not (data_dir / "pwned").exists()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_a_name_at_a_connection_goes_on_behind_its_sign(peers: FakeHub, data_dir: Path) -> None:
    command, setup = SHELLS["bash"]
    with Terminal(command, environment(data_dir, ANGELIA_DATA_DIR=str(data_dir)), *setup) as terminal:
        assert terminal.complete("angelia send herald@l") == "angelia send herald@laptop "
        assert terminal.complete("angelia send herald@") == "angelia send herald@laptop "
        assert terminal.complete("angelia send heral") == "angelia send herald@laptop "
        assert terminal.complete("angelia send herald@laptop --in") == "angelia send herald@laptop --intent "


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("angelia sta", ["status"]),
        ("angelia help joi", ["join"]),
        ("angelia send herm", ["hermes"]),
        ("angelia send herald@", ["herald@laptop"]),
        ("angelia send --as herm", ["hermes"]),
        ("angelia send --intent req", ["request"]),
        ("angelia send hermes herm", []),
        ("angelia dead re", ["requeue"]),
        ("angelia listen --onc", ["--once"]),
        ("angelia status --onc", []),
        ("angelia --hub http://127.0.0.1:9 send her", []),
    ],
)
def test_what_fish_offers(peers: FakeHub, data_dir: Path, typed: str, offered: list[str]) -> None:
    line = f"source (angelia completion fish | psub); complete -C '{typed}'"
    told = environment(data_dir, ANGELIA_DATA_DIR=str(data_dir))
    done = subprocess.run(["fish", "--no-config", "-c", line], env=told, capture_output=True, text=True, check=True)
    assert [word.partition("\t")[0] for word in done.stdout.splitlines()] == offered
    assert done.stderr == ""


def test_names_are_names_and_nothing_else(run: Run, peers: FakeHub) -> None:
    assert run("completion", "names") == (0, "human\nhermes\nherald@laptop\n", "")


def test_without_a_hub_there_is_silence(run: Run) -> None:
    assert run("completion", "names") == (0, "", "")
    assert run("completion", "names", "--hub", "nonsense")[2].count("\n") <= 1


def test_a_hub_that_does_not_answer_keeps_nobody_waiting(run: Run, hub: FakeHub) -> None:
    hub.on("GET /v1/agents", hold)
    begun = time.monotonic()
    assert run("completion", "names") == (0, "", "")
    assert time.monotonic() - begun < 3 * ANSWER_SECONDS


def test_the_scripts_hold_every_command_and_every_option(run: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = run("completion", shell)[1]
        for command in described.commands():
            assert command.name in script
            for option in command.options:
                flag = option.flags[0] if shell != "fish" else f"-l {option.flags[0][2:]}"
                assert flag in script, f"{shell} does not know {command.name} {flag}"


def test_an_option_takes_a_value_in_every_command_or_in_none() -> None:
    """The scripts for bash and fish know options by name alone."""
    slots = [slot for name in COMMANDS for slot in described.command(name).options]
    valued = set(described.valued(slots))
    bare = {flag for slot in slots if not slot.value and not slot.choices for flag in slot.flags}
    assert not valued & bare


def test_it_says_for_which_shells(run: Run) -> None:
    code, _, err = run("completion", "tcsh")
    assert code == 2
    assert "bash" in err
