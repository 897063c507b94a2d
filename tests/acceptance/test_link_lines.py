"""Links over a real sshd, and over a command: the line is killed again and again while mail crosses; none is lost."""

import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.acceptance.hub import Hub, environment, eventually, free_port, hub
from tests.acceptance.linked import ENVIRONMENT, connect, connection, live, wait_knows, wait_up

pytestmark = pytest.mark.timeout(240)

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
WAVES, EACH = 10, 25  # so that 500 cross: as many back as there
TEXT = "x" * 20_000  # long enough that a line is often cut inside of one
ALL_SECONDS = 120.0


def gateway_of(far: Hub) -> str:
    """The command that speaks with a hub on its standard input and output, wherever it is run from."""
    settings = [f"{name}={value}" for name, value in far.cli_environment().items()]
    return shlex.join(["env", *settings, sys.executable, "-m", "angelia", "gateway", "--stdio"])


@contextmanager
def two_hubs(**env: str) -> Iterator[tuple[Hub, Hub]]:
    with (
        hub(env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "alpha", **env}) as alpha,
        hub(env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "beta"}) as beta,
    ):
        live(alpha, "ann")
        live(beta, "bob")
        yield alpha, beta


def children(pid: int) -> list[int]:
    """The processes that a process of ours has started and that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(path.parent.name))
    return found


def kill_line(dialler: Hub) -> bool:
    """Kill what carries the link, as a crash would; whether there was anything."""
    carriers = children(dialler.pid)
    for pid in carriers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(carriers)


class Crossing:
    """Mail from an agent of one hub to one of another: what was sent, and what has come, in the order of coming."""

    def __init__(self, here: Hub, sender: str, there: Hub, reader: str) -> None:
        self._here, self._sender, self._there, self._reader = here, sender, there, reader
        self.sent: list[str] = []
        self.came: list[str] = []

    def send(self, count: int) -> None:
        items = [
            {"to": self._reader, "from": self._sender, "text": f"{len(self.sent) + n} {TEXT}"} for n in range(count)
        ]
        outcomes = self._here.kept("POST", "/v1/messages", {"messages": items}).json["outcomes"]
        self.sent += [outcome["sent"]["id"] for outcome in outcomes]

    def look(self) -> int:
        """Take what is there; how many have come in all."""
        self.came += [message["_meta"]["id"] for message in self._there.poll(self._reader)]
        return len(self.came)


def cross_while_the_line_is_killed(alpha: Hub, beta: Hub) -> None:
    there, back = Crossing(alpha, "ann", beta, "bob"), Crossing(beta, "bob", alpha, "ann")
    kills = 0
    for _ in range(WAVES):
        wait_up(alpha, "beta", 30)
        before = there.look() + back.look()
        there.send(EACH)
        back.send(EACH)
        # In the middle of it: some have come, and others are on their way.
        eventually(lambda: there.look() + back.look() > before, 20, "some of it crosses")  # noqa: B023 - before the next
        kills += kill_line(alpha)
    whole = WAVES * EACH
    eventually(
        lambda: (there.look(), back.look()) >= (whole, whole), ALL_SECONDS,
        f"all crosses: {len(there.came)} and {len(back.came)} of {whole}; {connection(alpha, 'beta')}",
    )  # fmt: skip
    assert kills == WAVES
    # Nothing lost, nothing twice, and in the order of sending.
    assert there.came == there.sent
    assert back.came == back.sent
    eventually(lambda: {alpha.state(each) for each in there.sent} == {"delivered"}, 30, "its sender's hub knows")


def test_a_command_carries_a_link_and_loses_nothing_when_it_is_killed() -> None:
    with two_hubs() as (alpha, beta):
        found = connect(alpha, "beta", f"exec:{gateway_of(beta)}")
        assert found["speaks"] == "hub"
        wait_knows(alpha, "bob")
        wait_knows(beta, "ann")
        cross_while_the_line_is_killed(alpha, beta)
        carriers = children(alpha.pid)
        assert len(carriers) == 1  # of all that were killed nothing is left
        alpha.stop()
        eventually(lambda: not Path(f"/proc/{carriers[0]}").exists(), 10, "the command ends with its hub")


@pytest.mark.skipif(SSHD is None, reason="there is no sshd here (Debian: openssh-server)")
@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here (Debian: openssh-client)")
def test_a_real_sshd_carries_a_link_and_loses_nothing_when_it_is_killed(tmp_path: Path) -> None:
    with sshd(tmp_path) as (port, programs):
        path = os.pathsep.join([str(programs), environment(tmp_path)["PATH"]])
        with two_hubs(PATH=path) as (alpha, beta):
            user = pwd.getpwuid(os.geteuid()).pw_name
            found = connect(alpha, "beta", f"ssh://{user}@127.0.0.1:{port}", command=gateway_of(beta))
            assert found["speaks"] == "hub"
            wait_knows(alpha, "bob")
            wait_knows(beta, "ann")
            cross_while_the_line_is_killed(alpha, beta)


@contextmanager
def sshd(folder: Path) -> Iterator[tuple[int, Path]]:
    """A server of ours on loopback: its port, and a folder with an `ssh` that has keys and settings of its own."""
    assert SSHD is not None
    port = free_port()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it shuts itself in; Debian makes it at boot
    settings = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host", "PidFile": "none", "UsePAM": "no",
        "AuthorizedKeysFile": folder / "user.pub", "StrictModes": "no", "PermitRootLogin": "yes",
        "PasswordAuthentication": "no", "MaxStartups": "100",
    }  # fmt: skip
    (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    known = (folder / "host.pub").read_text().rsplit(" ", 1)[0]
    (folder / "known").write_text(f"[127.0.0.1]:{port} {known}\n")
    (folder / "ssh_config").write_text(
        f"IdentityFile {folder / 'user'}\nIdentitiesOnly yes\nUserKnownHostsFile {folder / 'known'}\n"
    )
    programs = folder / "bin"
    programs.mkdir()
    # ssh finds a user's settings by the password file, not by HOME: ours are named.
    (programs / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder / "ssh_config"} "$@"\n')
    (programs / "ssh").chmod(0o755)
    with (folder / "sshd.log").open("wb") as log:
        server = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", folder / "sshd_config"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        eventually(lambda: answers(port), 10, (folder / "sshd.log").read_text())
        yield port, programs
    finally:
        server.terminate()
        server.wait(10)
        print((folder / "sshd.log").read_text())


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as found:
            return found.recv(4) == b"SSH-"
    except OSError:
        return False
