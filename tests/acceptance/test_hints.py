"""A command that is shown as the way on does what it says where it is typed: it means the hub that it was said of.

Each is seen from a shell that knows nothing of the folder: it was named by ``--data-dir`` alone.
"""

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from angelia.storage.lock import who_holds
from tests.acceptance.hub import Hub, environment, eventually

HINT = re.compile(r"angelia (?:up|down|doctor|restore|backup)\b[^.;&\n]*")


class Elsewhere:
    """A hub in a folder that only a flag names, and whose path a shell would take apart."""

    def __init__(self) -> None:
        self.hub = Hub()  # for its port and its place
        self.folder = self.hub.base / "the other's hub"

    def run(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        """A command line, as typed in a terminal of its own."""
        return subprocess.run(
            [sys.executable, "-m", "angelia", *words],
            env=environment(self.hub.base, **env), cwd=self.hub.base, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip

    def up(self) -> "subprocess.CompletedProcess[str]":
        return self.run("up", "--detach", "--data-dir", str(self.folder), "--port", str(self.hub.port))

    def obey(self, hint: str) -> "subprocess.CompletedProcess[str]":
        """What a hint says, from ``angelia`` on."""
        angelia, *words = shlex.split(hint)
        assert angelia == "angelia"
        return self.run(*words)

    @property
    def named(self) -> str:
        """How a hint names the folder."""
        return f"--data-dir {shlex.quote(str(self.folder))}"


@pytest.fixture
def other() -> Iterator[Elsewhere]:
    made = Elsewhere()
    try:
        yield made
    finally:
        made.run("down", "--data-dir", str(made.folder))
        made.hub.__exit__()


def test_what_a_detached_hub_says_ends_it_ends_it(other: Elsewhere) -> None:
    begun = other.up()
    assert begun.returncode == 0, begun.stderr
    ended = other.obey(begun.stdout.partition("It ends with: ")[2])
    assert ended.returncode == 0, ended.stderr
    assert who_holds(str(other.folder)) is None


def test_every_hint_names_the_folder_that_it_is_about(other: Elsewhere) -> None:
    where = ("--data-dir", str(other.folder))
    said = [other.run("doctor", *where), other.run("status", *where), other.up(), other.up()]
    said.append(other.run("restore", sys.executable, *where))
    for each in said:
        hints = HINT.findall(each.stdout + each.stderr)
        assert hints, each
        assert [hint for hint in hints if other.named not in hint] == []


def test_where_the_folder_is_the_usual_one_none_is_named(other: Elsewhere) -> None:
    looked = other.run("doctor", ANGELIA_PORT="0")
    assert "start it: angelia up\n" in looked.stdout
    assert "--data-dir" not in looked.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="which of these keep a port is the system's choice")
@pytest.mark.parametrize("ended", [False, True])
def test_a_port_that_only_a_connection_has_is_told_as_that(other: Elsewhere, ended: bool) -> None:
    """Its near end keeps the port while it stands, and for a minute after it was closed (TIME_WAIT)."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        port = near.getsockname()[1]
        far, _ = server.accept()
        with far:
            if ended:
                near.close()
                assert far.recv(1) == b""
                far.close()
                eventually(lambda: _waits(port))
            refused = other.run("up", "--data-dir", str(other.folder), "--port", str(port))
    assert refused.returncode == 3
    assert "nobody listens there" in refused.stderr
    assert "try again in a minute, or choose another port" in refused.stderr
    assert "by nobody" not in refused.stderr


def _waits(port: int) -> bool:
    """Whether the kernel keeps a connection's near end at this port, closed (state 06 of /proc/net/tcp)."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(line[1].endswith(f":{port:04X}") and line[3] == "06" for line in lines)
