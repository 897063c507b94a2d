"""A program's standard input and output as a wire: frames come and go whole, and its end leaves nothing."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from angelia.links.port import LineLost
from angelia.links.process import GRACE_SECONDS, Ended, ProcessWire
from tests.acceptance.hub import MARGIN, environment, eventually
from tests.links.lines import LOOPS, SECONDS, until

MOST = 1_000_000
ECHO = "import sys\nfor line in sys.stdin: sys.stdout.write(line); sys.stdout.flush()"


@pytest.fixture(scope="module", params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


async def start(code: str, *words: str, home: Path = Path("/tmp")) -> ProcessWire:
    """A Python program as a wire."""
    return await ProcessWire.start([sys.executable, "-c", code, *words], environment(home), max_bytes=MOST)


async def shell(script: str) -> ProcessWire:
    return await ProcessWire.start(["/bin/sh", "-c", script], environment(Path("/tmp")), max_bytes=MOST)


def is_there(pid: int) -> bool:
    """Whether a process is there, dead and not reaped, or alive."""
    return Path(f"/proc/{pid}").exists()


def runs(pid: int) -> bool:
    """Whether a process is there and alive."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def descriptors() -> set[str]:
    return {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}


async def ended(wire: ProcessWire) -> Ended:
    """The end that reading meets."""
    async with asyncio.timeout(SECONDS):
        with pytest.raises(Ended) as found:
            await wire.receive()
    return found.value


async def test_frames_come_and_go_whole_whatever_their_size() -> None:
    frames = [b'{"n":1}', b"x" * (MOST - 1), '{"ä":"\\u2028 "}'.encode(), b"y"]
    wire = await start(ECHO)
    try:
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            for frame in frames:
                tasks.create_task(wire.send(frame))
            assert [await wire.receive() for _ in frames] == frames
    finally:
        await wire.close()


async def test_blank_lines_are_no_frames_and_what_is_not_whole_is_none() -> None:
    wire = await shell(r"printf '\n  \r\n{}\r\n{\"cut\":'")
    try:
        assert (await wire.receive()).strip() == b"{}"
        assert (await ended(wire)).code == 0
    finally:
        await wire.close()


async def test_a_line_without_end_ends_the_wire() -> None:
    wire = await start("import sys\nwhile True: sys.stdout.write('x' * 65536)")
    try:
        async with asyncio.timeout(SECONDS):
            with pytest.raises(LineLost, match="longer than any frame"):
                await wire.receive()
    finally:
        await wire.close()
    assert not is_there(wire.child.pid)


async def test_the_end_of_a_program_says_its_code_and_its_last_words() -> None:
    wire = await start("import sys; print('a' * 9000, 'first', file=sys.stderr); sys.exit('no way in')")
    try:
        found = await ended(wire)
        assert found.code == 1
        assert str(found) == "the program ended with 1: no way in"
        assert found.words.endswith("first\nno way in\n")
        assert len(found.words) == 4096
        with pytest.raises(LineLost):
            await wire.send(b"{}" * 100_000)
    finally:
        await wire.close()


async def test_a_program_that_is_killed_ends_every_wait() -> None:
    wire = await start("import time; time.sleep(60)")
    try:
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(ended(wire))
            writing = tasks.create_task(_lost(wire.send(b"x" * 10_000_000)))  # it never reads
            await asyncio.sleep(0)
            os.kill(wire.child.pid, signal.SIGKILL)
            assert (await reading).code == -signal.SIGKILL
            await writing
    finally:
        await wire.close()


async def _lost(waits: object) -> None:
    with pytest.raises(LineLost):
        await waits  # type: ignore[misc]  # a coroutine


async def test_closing_leaves_no_process_no_zombie_and_no_descriptor(tmp_path: Path) -> None:
    await (await start(ECHO)).close()  # whatever a loop opens once is open now
    before = descriptors()
    wire = await shell("sleep 60 & echo $!; wait")
    grandchild = int(await wire.receive())
    assert os.getpgid(grandchild) == os.getsid(grandchild) == wire.child.pid != os.getpgid(0)
    begun = asyncio.get_running_loop().time()
    await wire.close()
    assert asyncio.get_running_loop().time() - begun < GRACE_SECONDS  # asked, it went at once
    assert not is_there(wire.child.pid)
    await until(lambda: not runs(grandchild))
    await until(lambda: not descriptors() - before)  # a loop closes files in its next round
    await wire.close()  # harmless


async def test_what_has_left_the_group_keeps_nothing_of_ours_open() -> None:
    await (await start(ECHO)).close()
    before = descriptors()
    wire = await shell("setsid sleep 60 & echo $!; wait")  # it holds standard output and error
    escaped = int(await wire.receive())
    try:
        await until(lambda: os.getsid(escaped) == escaped)
        await wire.close()
        assert runs(escaped)
        await until(lambda: not descriptors() - before)
    finally:
        os.kill(escaped, signal.SIGKILL)


async def test_what_does_not_end_when_it_is_asked_is_made_to() -> None:
    wire = await shell("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    assert await wire.receive() == b"ready"
    begun = asyncio.get_running_loop().time()
    await wire.close()
    took = asyncio.get_running_loop().time() - begun
    assert GRACE_SECONDS * 0.9 <= took < GRACE_SECONDS * MARGIN
    assert not is_there(wire.child.pid)


async def test_whoever_is_cancelled_while_closing_still_leaves_nothing() -> None:
    wire = await shell("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    await wire.receive()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await wire.close()
    await until(lambda: not is_there(wire.child.pid))


@pytest.mark.parametrize("way", ["ProcessWire", "Tunnel"])
def test_a_hub_that_is_killed_takes_its_children_along(way: str) -> None:
    """Whatever reads its input comes to the end of it."""
    code = f"""
import asyncio, os, signal
from angelia.links.process import ProcessWire, Tunnel
async def main():
    found = Tunnel.start(["/bin/cat"], {{}}) if {way!r} == "Tunnel" else await ProcessWire.start(
        ["/bin/cat"], {{}}, max_bytes=100)
    print(found.child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(Path("/tmp")), capture_output=True, timeout=30, check=False
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    eventually(lambda: not runs(int(ran.stdout)))


async def test_a_child_has_the_given_environment_and_three_descriptors(tmp_path: Path) -> None:
    code = "import os; print(sorted(os.environ), os.listdir('/proc/self/fd'), os.getcwd())"
    wire = await ProcessWire.start(
        [sys.executable, "-c", code], {"HOME": str(tmp_path), "ONE": "1", "LC_ALL": "C"}, max_bytes=MOST
    )
    try:
        line = (await wire.receive()).decode()
    finally:
        await wire.close()
    assert line == f"['HOME', 'LC_ALL', 'ONE'] ['0', '1', '2', '3'] {tmp_path}"  # 3: of the look itself


async def test_what_cannot_be_started_leaves_no_descriptor(tmp_path: Path) -> None:
    before = descriptors()
    with pytest.raises(OSError, match="nothing-here"):
        await ProcessWire.start([str(tmp_path / "nothing-here")], {}, max_bytes=MOST)
    assert descriptors() == before
