"""Help and the manual: everything that there is stands in them, made of the tables, and they need nothing to run."""

import re
import shutil
import subprocess

import pytest

from angelia.cli import described, exits, manual
from angelia.cli.main import COMMANDS
from angelia.settings import FIELDS, called
from docs.tables import MAN_PAGE
from tests.unit.cli.conftest import Run


def test_every_command_stands_in_one_group() -> None:
    grouped = [name for names in manual.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(COMMANDS), "a new command has its place in manual.GROUPS"


def test_the_first_screen_is_as_wide_as_a_terminal_and_shows_how_to_begin(run: Run) -> None:
    out = run("help")[1]
    assert max(map(len, out.splitlines())) <= 80
    assert len(manual.STEPS) == 5
    for line, _ in manual.STEPS:
        assert f"  {line} " in out
        assert line.split()[1] in COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_in_full(run: Run, command: str) -> None:
    code, out, err = run("help", command)
    assert (code, err) == (0, "")
    assert out.startswith(run(command, "--help")[1])
    for number, meaning in exits.MEANING.items():
        assert re.search(rf"^  {number} +{re.escape(meaning)}$", out, re.MULTILINE)
    names = FIELDS if command in ("up", "service") else ("hub_url", "agent", "token", "data_dir")
    assert [called(name)[1] for name in names if called(name)[1] not in out] == []


def test_help_about_nothing(run: Run) -> None:
    code, out, err = run("help", "snd")
    assert (code, out) == (2, "")
    assert "did you mean send?" in err
    assert run("help", "help")[1] == run("help")[1]


def test_help_needs_no_valid_setting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANGELIA_PORT", "many")
    for words in (["help"], ["help", "send"], ["help", "--man"]):
        assert run(*words)[0] == 0


def test_the_man_page_is_the_one_that_is_installed(run: Run) -> None:
    code, out, _ = run("help", "--man")
    assert code == 0
    assert MAN_PAGE.read_text("ascii") == out, "it is behind the code: python docs/tables.py"


def test_the_man_page_holds_everything(run: Run) -> None:
    page = run("help", "--man")[1].replace("\\-", "-")
    assert page.isascii()
    for command in described.commands():
        assert f".SS {command.usage}" in page
        assert [option for option in command.options if f"\\fB{option.flags[0]}\\fR" not in page] == []
    names = [called(name)[1] for name in FIELDS] + [str(code) for code in exits.MEANING]
    assert [name for name in names if f"\\fB{name}\\fR" not in page] == []


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff here")
def test_the_man_page_is_proper_roff(run: Run) -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii"], input=run("help", "--man")[1], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    plain = re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)
    assert "git diff | angelia send --as scout reviewer - --intent request --ttl 2h" in plain
    assert """angelia send '*' --body '{"type": "deploy", "version": 7}'""" in plain
