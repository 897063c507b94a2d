"""Runs the blocks of a page as a reader would, and compares what comes out with what the page shows.

What must stay true: one page has one hub and one shell, so a later block may use what an earlier one made; nothing of
the developer's own environment is seen; port 18900 on a page is the hub's. White space does not count in what is
compared, ``…`` stands for anything, and a command that shows no output is only held to its exit code.
"""

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.hub import Hub
from tests.docs.pages import ROOT, Block

PORT = re.compile(r"\b18900\b")
BESIDE_SECONDS = 10.0  # for all that a command beside the others shall print
FIRST_WORD_SECONDS = 1.5  # until a command beside the others has got as far as to say something, if it says anything
LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and the output that the page shows for it; "" where it shows none."""

    command: str
    shown: str


def steps(content: str) -> list[Step]:
    """A session as it stands on a page: ``$ `` begins a command; it goes on after a ``\\`` and on lines with ``> ``."""
    found: list[tuple[list[str], list[str]]] = []
    for line in content.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
            continue
        assert found, f"output before the first command: {line}"
        command, shown = found[-1]
        if not shown and line.startswith("> "):
            command.append(line[2:])
        elif not shown and command[-1].endswith("\\"):
            command.append(line)
        else:
            shown.append(line)
    return [Step("\n".join(command), "\n".join(shown).strip()) for command, shown in found]


def matches(shown: str, came: str) -> bool:
    """Whether output is what a page shows."""
    parts = [re.escape("".join(part.split())) for part in shown.split("…")]
    return re.fullmatch(".*?".join(parts), "".join(came.split()), re.DOTALL) is not None


class Reader:
    """Somebody who types in what a page says, at a hub."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        home = hub.base / "reader"
        home.mkdir()
        (home / "examples").symlink_to(ROOT / "examples")  # pages are read in the checkout
        (home / ".curlrc").write_text("silent\nshow-error\n")  # as it looks on a terminal, less the meter
        self.home = home
        self.environment = hub.cli_environment(HOME=str(home))
        self._shell = self._start(["bash", "--noprofile", "--norc"], subprocess.PIPE)
        self._beside: list[tuple[Step, subprocess.Popen[bytes], Path]] = []

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        for process in [self._shell, *(process for _, process, _ in self._beside)]:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def follow(self, blocks: list[Block]) -> None:
        """Do what the blocks say, one after another; fails where something else comes out."""
        said = ""
        for block in blocks:
            if "output" in block.words:
                assert matches(block.content, said), _difference(block, "the program above", block.content, said)
            elif "beside" in block.words:
                self._begin_beside(block)
            elif block.language == "python":
                said = self._python(block)
            elif block.language == "sh":
                code, said = self.type(block.content.rstrip("\n"))
                assert code == 0, f"line {block.line} ended with {code}:\n{said}"
            else:
                self._session(block)
        for step, process, path in self._beside:
            self._end_beside(step, process, path)

    def _session(self, block: Block) -> None:
        listed = steps(block.content)
        for place, step in enumerate(listed):
            code, said = self.type(step.command)
            asks_for_code = place + 1 < len(listed) and listed[place + 1].command == "echo $?"
            assert code == 0 or asks_for_code, f"line {block.line}: {step.command} ended with {code}:\n{said}"
            assert not step.shown or matches(step.shown, said), _difference(block, step.command, step.shown, said)

    def type(self, command: str) -> tuple[int, str]:
        """One command in the page's shell: its exit code, and what it printed."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        mark = secrets.token_hex(8)
        wrapped = f"{{\n{self._here(command)}\n}} </dev/null\n__=$?; printf '\\n%s %s\\n' {mark} $__; (exit $__)\n"
        self._shell.stdin.write(wrapped.encode())
        self._shell.stdin.flush()
        said = b""
        while not (line := self._shell.stdout.readline()).startswith(mark.encode()):
            assert line, f"the shell ended: {said.decode()}"
            said += line
        return int(line.split()[1]), self._there(said)

    def _python(self, block: Block) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", self._here(block.content)],
            env=self.environment, cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"line {block.line} failed:\n{done.stderr.decode()}"
        return self._there(done.stdout)

    def _begin_beside(self, block: Block) -> None:
        (step,) = steps(block.content)
        path = self.home / f"beside-{len(self._beside)}"
        with path.open("wb") as output:
            process = self._start(["bash", "--noprofile", "--norc", "-c", self._here(step.command)], output.fileno())
        self._beside.append((step, process, path))
        ends = time.monotonic() + FIRST_WORD_SECONDS
        while not path.stat().st_size and time.monotonic() < ends:
            time.sleep(LOOK_SECONDS)

    def _end_beside(self, step: Step, process: "subprocess.Popen[bytes]", path: Path) -> None:
        ends = time.monotonic() + BESIDE_SECONDS
        while not matches(step.shown, self._there(path.read_bytes())):
            if time.monotonic() > ends:
                raise AssertionError(_difference(None, step.command, step.shown, self._there(path.read_bytes())))
            time.sleep(LOOK_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)

    def _start(self, command: list[str], output: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            command, env=self.environment, cwd=self.home, stdin=subprocess.PIPE if output == subprocess.PIPE else None,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def _here(self, text: str) -> str:
        return PORT.sub(str(self.hub.port), text)

    def _there(self, said: bytes) -> str:
        return re.sub(rf"\b{self.hub.port}\b", "18900", said.decode("utf-8", "replace"))


def _difference(block: Block | None, command: str, shown: str, came: str) -> str:
    where = f"line {block.line}: " if block else ""
    return f"{where}{command}\n--- the page shows\n{shown}\n--- what came\n{came}"
