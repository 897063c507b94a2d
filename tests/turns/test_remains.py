"""What a killed hub left running is found again and ended, and nothing else is ever signalled. Real processes."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from angelia.turns.groups import Group, led_by, started
from angelia.turns.remains import Remains
from tests.turns.watching import eventually, lives, number_in, runs

QUICK = 5.0
HUB = """
    import asyncio, sys
    from angelia.turns.processes import ChildProcesses
    folder, script = sys.argv[1:]
    run = ChildProcesses(folder).run(
        ["/bin/sh", "-c", script], environment={"PATH": "/bin:/usr/bin"}, folder="/", limit_bytes=1000, note="a turn"
    )
    asyncio.run(run)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "running"


def begin(*argv: str, leads: bool = True) -> "subprocess.Popen[bytes]":
    """Start a program; unless told otherwise it leads a group of its own."""
    return subprocess.Popen(argv, start_new_session=leads)


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return os.listdir(folder)


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that leads a group of its own, and that nobody may touch."""
    process = begin("/bin/sleep", "1000")
    yield process
    process.kill()
    process.wait()


async def killed_hub(folder: Path, script: str, pid: Path) -> int:
    """Run ``script`` under a hub that is killed in the middle of it. Out: what the script wrote to ``pid``."""
    hub = begin(sys.executable, "-c", textwrap.dedent(HUB), str(folder), script)
    try:
        number = await number_in(pid)
        await eventually(lambda: names(folder))
    finally:
        hub.kill()
        hub.wait()
    return number


def note(folder: Path, pid: int, /, **changed: Any) -> Path:
    """The note of a process as it would be written; ``changed`` makes it speak of another."""
    Remains(str(folder)).remember(led_by(pid), "a turn")
    path = folder / f"{pid}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    return path


async def test_what_a_killed_hub_left_running_is_ended(folder: Path, tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/pid; wait"
    leader = await killed_hub(folder, script, tmp_path / "pid")
    child = await number_in(tmp_path / "child")
    assert runs(leader)
    assert runs(child)
    assert await Remains(str(folder)).end_remains() == ["a turn"]
    await eventually(lambda: not runs(leader) and not runs(child))
    assert names(folder) == []
    assert await Remains(str(folder)).end_remains() == []


async def test_what_does_not_listen_is_made_to_end(folder: Path, tmp_path: Path) -> None:
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done"
    leader = await killed_hub(folder, script, tmp_path / "pid")
    since = time.monotonic()
    assert await Remains(str(folder)).end_remains(grace_seconds=0.2) == ["a turn"]
    assert time.monotonic() - since >= 0.2
    await eventually(lambda: not runs(leader))


async def test_a_child_of_a_process_that_replaced_its_program_is_reaped(folder: Path) -> None:
    """The hub replaces itself by ``os.execv``: then what it left is its own child, and nobody waits for it."""
    process = begin("/bin/sleep", "1000")
    note(folder, process.pid)
    since = time.monotonic()
    assert await Remains(str(folder)).end_remains() == ["a turn"]
    await eventually(lambda: not lives(process.pid))
    assert time.monotonic() - since < QUICK
    process.returncode = -signal.SIGTERM  # it was waited for behind its back


@pytest.mark.parametrize(
    "changed",
    [
        {"started": "1"},
        {"boot": "00000000-0000-0000-0000-000000000000"},
        {"group": 1},
        {"group": os.getpgid(0)},
        {"pid": 1, "group": 1},
        {"pid": -1, "group": -1},
        {"pid": 0, "group": 0},
        {"pid": os.getpid(), "group": os.getpid()},
    ],
)
async def test_what_is_not_the_process_of_the_note_is_left_alone(
    folder: Path, stranger: "subprocess.Popen[bytes]", changed: dict[str, Any]
) -> None:
    note(folder, stranger.pid, **changed)
    assert await Remains(str(folder)).end_remains() == []
    assert stranger.poll() is None
    assert names(folder) == []


@pytest.mark.parametrize("changed", [{}, {"group": os.getpgid(0)}])
async def test_a_process_that_leads_no_group_is_left_alone(folder: Path, changed: dict[str, Any]) -> None:
    process = begin("/bin/sleep", "1000", leads=False)  # in the group of this very test
    note(folder, process.pid, **changed)
    assert await Remains(str(folder)).end_remains() == []
    assert process.poll() is None
    process.kill()
    process.wait()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "1"}', b"\xff" * 100, b" " * 100_000])
async def test_a_broken_note_is_thrown_away(folder: Path, content: bytes) -> None:
    remains = Remains(str(folder))
    (folder / "7.json").write_bytes(content)
    assert await remains.end_remains() == []
    assert names(folder) == []


async def test_a_note_that_is_a_link_is_not_followed(
    folder: Path, tmp_path: Path, stranger: "subprocess.Popen[bytes]"
) -> None:
    aside = tmp_path / "note"
    note(folder, stranger.pid).rename(aside)
    (folder / "7.json").symlink_to(aside)
    assert await Remains(str(folder)).end_remains() == []
    assert stranger.poll() is None
    assert aside.exists()
    assert names(folder) == []


async def test_a_number_that_another_process_has_by_now_is_not_signalled(stranger: "subprocess.Popen[bytes]") -> None:
    gone = Group(stranger.pid, "1")
    assert not gone.send(signal.SIGKILL)
    await gone.end(0)
    assert stranger.poll() is None
    assert led_by(stranger.pid).send(signal.SIGKILL)
    assert stranger.wait() == -signal.SIGKILL


async def test_a_group_outlives_its_leader(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/child"
    process = begin("/bin/sh", "-c", script)
    group = led_by(process.pid)
    child = await number_in(tmp_path / "child")
    process.wait()
    assert runs(child)
    await group.end(QUICK)
    await eventually(lambda: not runs(child))


def test_a_process_is_told_by_its_start_whatever_its_name() -> None:
    assert started(os.getpid()) == started(os.getpid())
    assert started(1) != started(os.getpid())
    assert started(2**22 + 1) is None
    odd = "a) R 1 2 3 (b"
    process = subprocess.Popen([sys.executable, "-c", f"open('/proc/self/comm','w').write({odd!r}); input()"], stdin=-1)
    assert process.stdin is not None
    before = started(process.pid)
    while odd[:5] not in Path(f"/proc/{process.pid}/comm").read_text():
        pass
    assert started(process.pid) == before
    process.communicate(b"\n")


def test_notes_are_shut_to_others(folder: Path, stranger: "subprocess.Popen[bytes]") -> None:
    folder.mkdir(mode=0o755)
    path = note(folder, stranger.pid)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    Remains(str(folder)).forget(led_by(stranger.pid))
    assert not path.exists()


def test_a_folder_is_made_with_the_one_above_it(tmp_path: Path) -> None:
    Remains(str(tmp_path / "turns" / "running"))
    assert (tmp_path / "turns").stat().st_mode & 0o777 == 0o700
