"""Every program in examples/ runs, in seconds, against a real hub that ANGELIA_URL names."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.acceptance.hub import hub
from tests.docs.pages import ROOT

FOLDER = ROOT / "examples"
SECONDS = 40  # on a machine that does other things too; alone they take two
# What each of them prints in the end, among other things: an example that ends with 0 may still have shown nothing.
SHOWS = {
    "conversation.sh": ("keeper keeps 73: it took me 6 questions", "# You are @guesser", "guesser is gone"),
    "ask.sh": ("adder says 42", "ended with 5", "I, but late"),
    "listen_exec.sh": ("attempt 1 fails", "attempt 2 does the work of boss", "worker: delivered"),
    "relay_two_hubs.sh": ("oracle says 8443", "scout says blue", "server  down", "oracle@server: answered"),
    "seed_curl.sh": ('"delivered":true', "data: ", '"text":"arrivato"', '"messages":[]'),
    "two_agents.py": ("the door? Blue", "the roof? Blue", "the thanks are queued"),
}


def examples() -> list[Path]:
    """Every example."""
    return sorted(path for path in FOLDER.iterdir() if path.suffix in (".py", ".sh"))


@pytest.mark.parametrize("path", examples(), ids=lambda path: path.name)
def test_an_example_runs(path: Path) -> None:
    program = [sys.executable, "-W", "error"] if path.suffix == ".py" else ["sh"]
    with hub() as running:
        home = running.base / "home"
        home.mkdir()
        process = subprocess.Popen(
            [*program, str(path)], env=running.cli_environment(HOME=str(home), ANGELIA_URL=running.url), cwd=home,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what an example that hangs has started goes with it
            process.wait()
    assert process.returncode == 0, said
    assert [words for words in SHOWS[path.name] if words not in said] == [], said


def test_every_example_says_how_it_is_run() -> None:
    for path in examples():
        head = path.read_text(encoding="utf-8")[:600]
        assert f"examples/{path.name}" in head, path.name
        assert "ANGELIA_URL" in head, path.name
