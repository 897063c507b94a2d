"""Opening a line through ssh: a real sshd on this machine, with the keys of this test, and the system's own ssh."""

import getpass
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from angelia.links.channel import Channel
from angelia.links.dial import DialTools
from angelia.links.port import Kind, LineLost
from angelia.links.process import ProcessWire
from angelia.model.connection import Connection, Speaks
from tests.acceptance.hub import ROOT, Hub, eventually, free_port, hub
from tests.links.dialling import SECRET, dialled, kind_of, lent, secret_in, tools, trouble
from tests.links.lines import LOOPS, SECONDS, at_work
from tests.links.stand_ins.server import hermes, served

SSHD, SSH = shutil.which("sshd", path=f"{os.defpath}:/usr/sbin:/usr/local/sbin"), shutil.which("ssh")
pytestmark = pytest.mark.skipif(SSHD is None or SSH is None, reason="there is no sshd (openssh-server) or no ssh")


@pytest.fixture(scope="module", params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@dataclass(frozen=True)
class Machine:
    """An sshd at work. ``bin`` holds an ``ssh`` that has the configuration of these tests, and no one else's."""

    port: int
    bin: Path

    @property
    def tools(self) -> DialTools:
        return lent({**tools().environment, "PATH": f"{self.bin}:{os.defpath}"})

    def to(self, host: str = "", query: str = "", **more: str) -> Connection:
        target = f"ssh://{host or f'{getpass.getuser()}@127.0.0.1:{self.port}'}{query}"
        return Connection(name="box", target=target, **more)  # type: ignore[arg-type]  # texts all


def key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, timeout=30)
    return path.with_suffix(".pub").read_text()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder, port = tmp_path_factory.mktemp("ssh"), free_port()
    host, ours = key(folder / "host"), key(folder / "ours")
    key(folder / "strange")
    (folder / "authorized").write_text(ours)
    (folder / "known").write_text(f"[127.0.0.1]:{port} {host}")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\n"
    )
    here = f"HostName 127.0.0.1\nPort {port}\n"
    (folder / "config").write_text(
        f"Host MyBox\n{here}Host stranger\n{here}IdentityFile {folder}/strange\n"
        f"Host unknown\n{here}UserKnownHostsFile /dev/null\n"
        f"Host * !stranger\nIdentityFile {folder}/ours\nHost *\nIdentitiesOnly yes\nUserKnownHostsFile {folder}/known\n"
        "GlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\nRemoteCommand echo never\n"
    )
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {SSH} -F {folder}/config "$@"\n')
    (folder / "bin" / "ssh").chmod(0o700)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where an sshd of root's shuts itself in
    with (folder / "log").open("wb") as log:
        sshd = subprocess.Popen(
            [str(SSHD), "-D", "-e", "-f", folder / "sshd_config"], stdin=subprocess.DEVNULL, stderr=log
        )
    try:
        eventually(lambda: b"listening" in (folder / "log").read_bytes(), what=f"{folder}/log")
        yield Machine(port, folder / "bin")
    finally:
        sshd.terminate()
        sshd.wait(10)


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    with hub() as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_is_left(machine: Machine) -> Iterator[None]:
    """No test leaves a process behind, dead or alive."""
    before = set(children())
    yield
    assert set(children()) <= before


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def command_lines() -> list[list[str]]:
    """Of everything that was started here."""
    return [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in children()]


def command(at: Hub) -> str:
    """What reaches a hub on the other side."""
    words = [sys.executable, "-m", "angelia", "gateway", "--stdio", "--data-dir", str(at.folder)]
    return f"env PYTHONPATH={shlex.quote(str(ROOT / 'src'))} {shlex.join(words)}"


@pytest.mark.parametrize("host", ["", "MyBox"])
async def test_a_far_hub_is_reached_as_its_owner(host: str, machine: Machine, at: Hub) -> None:
    async with dialled(machine.to(host, command=command(at)), machine.tools) as found:
        assert (found.speaks, found.by_owner, found.key_file) == (Speaks.HUB, True, None)
        channel = Channel(found.wire, max_bytes=8388608, depth=32, handle=_nobody, heard=lambda type, payload: None)
        async with at_work(channel):
            assert await channel.call("gateway.ping", {"x": "ä" * 1_000_000}, SECONDS) == {"ok": True}
        ssh = next(words for words in command_lines() if words[0] == SSH)
        options = set(ssh)
        assert {
            "-T",
            "BatchMode=yes",
            "ServerAliveInterval=15",
            "ServerAliveCountMax=3",
            "ConnectTimeout=10",
        } <= options


async def _nobody(request: object) -> object:
    raise AssertionError


async def test_an_ssh_that_is_killed_ends_the_line(machine: Machine, at: Hub) -> None:
    async with dialled(machine.to(command=command(at)), machine.tools) as found:
        assert isinstance(found.wire, ProcessWire)
        os.kill(found.wire.child.pid, 9)
        with pytest.raises(LineLost, match="the program ended with -9"):
            await found.wire.receive()


async def test_whoever_is_not_let_in(machine: Machine) -> None:
    found = await trouble(machine.to("stranger"), machine.tools)
    assert kind_of(found) == (Kind.REFUSED, True)
    assert "Permission denied" in found.problem
    assert "BatchMode" in found.advice


async def test_a_machine_whose_key_nobody_has_seen(machine: Machine) -> None:
    found = await trouble(machine.to("unknown"), machine.tools)
    assert kind_of(found) == (Kind.REFUSED, True)
    assert "Host key verification failed" in found.problem


async def test_a_machine_without_ssh(machine: Machine) -> None:
    found = await trouble(machine.to(f"127.0.0.1:{free_port()}"), machine.tools)
    assert kind_of(found) == (Kind.UNREACHABLE, False)
    assert "ssh to box ended with 255: 'ssh: connect to host 127.0.0.1" in found.problem


async def test_a_name_that_nobody_has(machine: Machine) -> None:
    found = await trouble(machine.to("nobody.invalid"), machine.tools)
    assert kind_of(found) == (Kind.UNREACHABLE, False)
    assert "Could not resolve hostname" in found.problem


async def test_a_machine_without_angelia(machine: Machine) -> None:
    found = await trouble(machine.to(command="angelia-is-not-here gateway --stdio"), machine.tools)
    assert kind_of(found) == (Kind.UNREACHABLE, True)
    assert "--command" in found.advice


async def test_a_shell_that_greets(machine: Machine, at: Hub) -> None:
    found = await trouble(machine.to(command=f"echo Welcome; {command(at)}"), machine.tools)
    assert kind_of(found) == (Kind.WRONG_VERSION, True)
    assert "'Welcome'" in found.problem


async def test_a_port_there_is_reached_through_it(machine: Machine, tmp_path: Path) -> None:
    """A gateway of Hermes' that listens on its own machine alone; the token is seen by nobody else."""
    async with served(hermes(token=SECRET)) as server:
        way = machine.to(query=f"?forward={server.port}", token_file=secret_in(tmp_path))
        async with dialled(way, machine.tools) as found:
            assert (found.speaks, found.by_owner) == (Speaks.HERMES, False)
            await found.wire.send(b"x" * 1_000_000)
            assert await found.wire.receive() == b"x" * 1_000_000
            lines = command_lines()
            assert any(words[0] == SSH and "-W" in words for words in lines)
            assert "s3cr3t" not in str(lines)
            assert {asked.head["host"] for asked in server.asked} == {f"127.0.0.1:{server.port}"}
        assert kind_of(await trouble(machine.to(query=f"?forward={server.port}"), machine.tools)) == (
            Kind.REFUSED,
            True,
        )


async def test_a_tunnel_that_is_killed_ends_the_line(machine: Machine) -> None:
    async with served(hermes()) as server:
        before = set(children())
        async with dialled(machine.to(query=f"?forward={server.port}"), machine.tools) as found:
            (ssh,) = set(children()) - before
            os.kill(int(ssh), 9)
            with pytest.raises(LineLost):
                await found.wire.receive()


async def test_a_tunnel_that_does_not_end_by_itself_is_ended(machine: Machine, tmp_path: Path) -> None:
    script = tmp_path / "ssh"
    script.write_text(f'#!/bin/sh\n{machine.bin}/ssh "$@"\nexec sleep 60\n')
    script.chmod(0o700)
    async with served(hermes()) as server:
        way = machine.to(query=f"?forward={server.port}")
        async with dialled(way, lent({"PATH": f"{tmp_path}:{os.defpath}"})) as found:
            assert found.speaks is Speaks.HERMES


async def test_a_port_there_where_nobody_listens(machine: Machine) -> None:
    found = await trouble(machine.to(query=f"?forward={free_port()}"), machine.tools)
    assert kind_of(found) == (Kind.UNREACHABLE, False)
    assert "open failed" in found.problem
    assert "forward=" in found.advice


async def test_whoever_is_not_let_in_has_no_tunnel_either(machine: Machine) -> None:
    found = await trouble(machine.to("stranger", query="?forward=1"), machine.tools)
    assert kind_of(found) == (Kind.REFUSED, True)
    assert "Permission denied" in found.problem
