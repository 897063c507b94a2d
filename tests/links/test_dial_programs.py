"""Opening a line to a command, or to the hub behind it; and every way in which a program can be of no use."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from angelia.links.channel import Channel
from angelia.links.dial import DialTools, dial
from angelia.links.port import Kind, LineLost
from angelia.links.process import ProcessWire
from angelia.model.connection import Connection, Speaks
from tests.acceptance.hub import MARGIN, Hub, environment, hub
from tests.links.dialling import SILENCE, dialled, kind_of, lent, trouble
from tests.links.lines import LOOPS, SECONDS, at_work


@pytest.fixture(scope="module", params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(scope="module")
def at() -> Iterator[Hub]:
    with hub() as started:
        yield started


def bridge(at: Hub) -> Connection:
    """To a hub through its own command."""
    words = [sys.executable, "-m", "angelia", "gateway", "--stdio", "--data-dir", str(at.folder)]
    return Connection(name="box", target=f"exec:{shlex.join(words)}")


def shell(script: str, **more: Any) -> Connection:
    return Connection(name="box", target=f"exec:sh -c {shlex.quote(script)}", **more)


def tools(home: Path, seconds: float = SECONDS, **variables: str) -> DialTools:
    return lent(environment(home, **variables), str(home), seconds)


def saying(payload: object) -> str:
    """A script whose first line is ``gateway.ready``, and that then waits for the end of its input."""
    frame = {"jsonrpc": "2.0", "method": "event", "params": {"type": "gateway.ready", "payload": payload}}
    return f"echo {shlex.quote(json.dumps(frame))}; cat"


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No test leaves a process behind, dead or alive."""

    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    before = children()
    yield
    assert children() <= before


# ------------------------------------------------------------------------------------------------------- a real hub


async def test_a_hub_is_reached_by_its_own_command_and_calls_are_answered(at: Hub, tmp_path: Path) -> None:
    async with dialled(bridge(at), tools(tmp_path)) as found:
        assert (found.speaks, found.by_owner, found.key_file) == (Speaks.HUB, True, None)
        assert found.ready["product"] == "angelia"
        assert found.ready["frame_bytes"] == 8388608
        assert isinstance(found.wire, ProcessWire)
        channel = Channel(found.wire, max_bytes=8388608, depth=32, handle=_nobody, heard=lambda type, payload: None)
        async with at_work(channel):
            assert await channel.call("gateway.ping", {}, SECONDS) == {"ok": True}
            large = {"target": "nobody", "message": "ä" * 1_000_000}
            asked = [channel.call("gateway.ping", {"x": large}, SECONDS) for _ in range(20)]
            assert await asyncio.gather(*asked) == [{"ok": True}] * 20


async def _nobody(request: object) -> object:
    raise AssertionError


async def test_a_hub_of_this_machine_is_reached_by_its_port_and_names_its_key(at: Hub, tmp_path: Path) -> None:
    async with dialled(Connection(name="box", target=f"ws://localhost:{at.port}"), tools(tmp_path)) as found:
        assert (found.speaks, found.by_owner, found.key_file) == (Speaks.HUB, False, str(at.folder / "link.key"))
        assert found.ready["frame_bytes"] == 8388608


async def test_a_hub_that_is_killed_ends_the_line(tmp_path: Path) -> None:
    with hub() as own:
        async with dialled(bridge(own), tools(tmp_path)) as found, asyncio.timeout(SECONDS):
            own.kill9()
            with pytest.raises(LineLost, match="the program ended with 4: angelia: "):
                await found.wire.receive()


async def test_a_bridge_that_is_killed_ends_the_line(at: Hub, tmp_path: Path) -> None:
    async with dialled(bridge(at), tools(tmp_path)) as found, asyncio.timeout(SECONDS):
        assert isinstance(found.wire, ProcessWire)
        os.kill(found.wire.child.pid, 9)
        with pytest.raises(LineLost, match="the program ended with -9"):
            await found.wire.receive()


async def test_no_hub_behind_the_command(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "angelia", "gateway", "--stdio", "--data-dir", str(tmp_path / "none")]
    found = await trouble(Connection(name="box", target=f"exec:{shlex.join(words)}"), tools(tmp_path))
    assert kind_of(found) == (Kind.UNREACHABLE, False)
    assert "angelia: no hub runs on" in found.problem
    assert found.advice == "Start the hub there, with 'angelia up'."


async def test_an_angelia_without_a_gateway(tmp_path: Path) -> None:
    """As an old one answers: the table of its commands does not have it."""
    script = f"exec {shlex.quote(sys.executable)} -c " + shlex.quote(
        "import sys; from angelia.cli import main; main.COMMANDS.pop('gateway'); sys.exit(main.main(['gateway']))"
    )
    found = await trouble(shell(script), tools(tmp_path))
    assert kind_of(found) == (Kind.WRONG_VERSION, True)
    assert "there is no command 'gateway'" in found.problem


# ------------------------------------------------------------------------------------------------- who else answers


async def test_a_gateway_of_hermes_on_standard_output(tmp_path: Path) -> None:
    async with dialled(shell(saying({"skin": {}})), tools(tmp_path)) as found:
        assert (found.speaks, found.by_owner, found.ready) == (Speaks.HERMES, True, {"skin": {}})
        await found.wire.send(b'{"id":1}')
        assert await found.wire.receive() == b'{"id":1}'


async def test_another_product(tmp_path: Path) -> None:
    found = await trouble(shell(saying({"product": "iris"})), tools(tmp_path))
    assert kind_of(found) == (Kind.WRONG_VERSION, True)
    assert "'iris'" in found.problem


async def test_what_is_not_what_was_said(tmp_path: Path) -> None:
    for payload, speaks in (({}, Speaks.HUB), ({"product": "angelia"}, Speaks.HERMES)):
        found = await trouble(shell(saying(payload), speaks=speaks), tools(tmp_path))
        assert kind_of(found) == (Kind.WRONG_VERSION, True)


@pytest.mark.parametrize(
    "first", ["Welcome to box", '{"jsonrpc":"2.0","id":1,"result":{}}', "[1]", '{"method":"event","params":{}}']
)
async def test_what_prints_something_else_first(first: str, tmp_path: Path) -> None:
    script = f"echo {shlex.quote(first)}; {saying({'product': 'angelia'})}"
    found = await trouble(shell(script), tools(tmp_path))
    assert kind_of(found) == (Kind.WRONG_VERSION, True)
    assert f"'{first}'" in found.problem
    assert "Nothing may be printed before" in found.advice


async def test_a_first_line_without_end(tmp_path: Path) -> None:
    found = await trouble(shell("exec cat /dev/zero"), tools(tmp_path))
    assert kind_of(found) == (Kind.WRONG_VERSION, True)
    assert "longer than any frame" in found.problem


# ------------------------------------------------------------------------------------------------------------- nobody


@pytest.mark.parametrize("target", ["exec:nobody-has-this x", "exec:/nobody/has/this", "exec:./this", "docker://box"])
async def test_a_program_that_is_not_there(target: str, tmp_path: Path) -> None:
    (tmp_path / "this").write_text("#!/bin/sh\n")
    with_tools = lent({"PATH": str(tmp_path)}, str(tmp_path))
    found = await trouble(Connection(name="box", target=target), with_tools)
    assert kind_of(found) == (Kind.UNREACHABLE, True)
    assert "There is no program '" in found.problem


@pytest.mark.parametrize(
    ("script", "kind", "says"),
    [
        ("exit 3", (Kind.UNREACHABLE, False), "'sh' ended with 3, without a word."),
        (r"printf 'one\ntwo \033[31m\n' >&2; exit 1", (Kind.UNREACHABLE, False), "ended with 1: 'one / two [31m'."),
        ("kill -9 $$", (Kind.UNREACHABLE, False), "ended with -9"),
        ("angelia-is-not-here gateway", (Kind.UNREACHABLE, True), "not found"),
        ("echo 'x@y: Permission denied (publickey).' >&2; exit 255", (Kind.REFUSED, True), "Permission denied"),
        ("exec 1>&-; exec sleep 60", (Kind.UNREACHABLE, False), "closed its output"),
    ],
)
async def test_a_program_that_ends_says_why(script: str, kind: tuple[Kind, bool], says: str, tmp_path: Path) -> None:
    found = await trouble(shell(script), tools(tmp_path))
    assert kind_of(found) == kind
    assert says in found.problem


async def test_a_program_that_says_nothing_is_given_up_in_time(tmp_path: Path) -> None:
    begun = asyncio.get_running_loop().time()
    found = await trouble(shell("echo 'waiting for the vpn' >&2; exec sleep 60"), tools(tmp_path, SILENCE))
    took = asyncio.get_running_loop().time() - begun
    assert SILENCE * 0.9 <= took < SILENCE * MARGIN
    assert kind_of(found) == (Kind.UNREACHABLE, False)
    assert "did not answer within 0.3 s; it said: waiting for the vpn." in found.problem


async def test_whoever_stops_waiting_leaves_no_program(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(dial(shell("exec sleep 60"), tools(tmp_path)), SILENCE)


async def test_a_container_is_reached_by_docker(tmp_path: Path) -> None:
    """By its own command, which here is a stand-in that says what it was started with."""
    program = tmp_path / "docker"
    ready = {"method": "event", "params": {"type": "gateway.ready", "payload": {"product": "angelia"}}}
    program.write_text(f"#!/bin/sh\necho '{json.dumps(ready)}'\necho \"$*\"\ncat\n")
    program.chmod(0o700)
    with_tools = lent({"PATH": f"{tmp_path}:{os.defpath}"}, str(tmp_path))
    async with dialled(Connection(name="box", target="docker://box-1"), with_tools) as found:
        assert await found.wire.receive() == b"exec -i box-1 angelia gateway --stdio"
        assert found.speaks is Speaks.HUB


# ---------------------------------------------------------------------------------------------- what a program gets

SAYS_ITS_ENVIRONMENT = "#!/bin/sh\nenv > {}\nexit 1\n"


async def test_what_a_program_gets_is_asked_when_it_starts_and_is_not_the_hubs_own(tmp_path: Path) -> None:
    seen, withheld = tmp_path / "seen", {"OLD"}
    hubs = {**environment(tmp_path), "OLD": "s3cr3t-1", "NEW": "s3cr3t-2", "SSH_AUTH_SOCK": "/agent"}

    def around() -> dict[str, str]:
        return {name: value for name, value in hubs.items() if name not in withheld}

    with_tools = DialTools(hubs, around, str(tmp_path))
    await trouble(shell(f"env > {seen}"), with_tools)
    assert "s3cr3t-1" not in seen.read_text()
    assert {"SSH_AUTH_SOCK=/agent", "NEW=s3cr3t-2", f"PATH={hubs['PATH']}"} <= set(seen.read_text().splitlines())
    withheld.add("NEW")
    await trouble(shell(f"env > {seen}"), with_tools)
    assert "s3cr3t" not in seen.read_text()


async def test_the_program_of_a_tunnel_does_not_get_what_its_own_connection_signs_in_with(tmp_path: Path) -> None:
    """Even when the connection is tried before it is kept: to pair, say."""
    seen, program = tmp_path / "seen", tmp_path / "ssh"
    program.write_text(SAYS_ITS_ENVIRONMENT.format(seen))
    program.chmod(0o700)
    with_tools = lent({"PATH": f"{tmp_path}:{os.defpath}", "BOX": "s3cr3t", "SSH_AUTH_SOCK": "/agent"}, str(tmp_path))
    way = Connection(name="box", target="ssh://box?forward=9119", token_variable="BOX")
    await trouble(way, with_tools)
    assert "SSH_AUTH_SOCK=/agent" in seen.read_text().splitlines()
    assert "s3cr3t" not in seen.read_text()
