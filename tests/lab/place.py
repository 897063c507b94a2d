"""What a test of the lab is handed: where the agents are, homes for them, the model that they ask, servers to start.

What must stay true: each agent gets a home without a past, and only what was started here is ever signalled.
"""

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.install import environment, write_homes
from tests.lab.model import Model

SERVE_SECONDS = 180  # OpenClaw needs 10 with a warm disk and a machine of its own, and more than 60 without either


@dataclass(frozen=True)
class Lab:
    """``root``: where the agents are. ``environment``: for an agent with the session's own home. ``model``: what it
    was asked, so far."""

    root: Path
    scratch: Path
    environment: Mapping[str, str]
    model: Model

    def folder(self, name: str) -> Path:
        """A new home for an agent, configured and without a past."""
        home = self.scratch / name
        write_homes(home)
        return home

    def environment_of(self, home: Path) -> dict[str, str]:
        """As ``environment``, for an agent that lives in ``home``."""
        return environment(self.root, home)

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """``argv`` as it runs inside the namespace. This process is in there, so only its program is looked up."""
        return [self.program(argv[0]), *argv[1:]]

    def program(self, name: str) -> str:
        """The absolute path of an agent's program. Skips the test where the lab has none."""
        found = shutil.which(name, path=self.environment["PATH"])
        if found is None:
            pytest.skip(f"this lab has no {name}")
        return found

    def serve(self, argv: Sequence[str], home: Path, *, url: str, seconds: float = SERVE_SECONDS) -> "Served":
        """Start a program that serves, and wait until ``url`` answers."""
        log = home / f"{Path(argv[0]).name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                self.wrap(argv),
                cwd=home,
                env=self.environment_of(home),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        served = Served(process, log)
        ends = time.monotonic() + seconds
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > ends:
                served.end()
                pytest.fail(f"{argv[0]} does not serve {url}:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        return served


@dataclass(frozen=True)
class Served:
    """A server that a test started."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def kill(self) -> None:
        """As a crash would: it and all that it started, without a word."""
        _signal_group(self.process, 9)
        self.process.wait()

    def end(self) -> None:
        """Asked first, then made to."""
        _signal_group(self.process, 15)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.kill()


def _signal_group(process: "subprocess.Popen[bytes]", number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
