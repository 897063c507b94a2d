"""Programs that a turn starts: what goes in and comes out, and that nothing is left of them; on both event loops."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from angelia.turns.child import GRACE_SECONDS, Children, Ended
from angelia.turns.processes import DRAIN_SECONDS, ChildProcesses
from tests.turns.watching import eventually, lives, number_in, runs

LIMIT = 1_000_000
PLAIN = {"PATH": "/usr/bin:/bin"}
QUICK = 5.0  # three times and more of what anything here may take that does not wait on purpose
HARD_TEXT = "-n --help \"quotes\" 'more' $HOME `id` \\ \0 \x01\x1b[31m\x7f \r\n\t 👩‍👩‍👧 é \u202e " + "x" * 200_000
# Says that it is there, ignores SIGTERM, and has a child that does, too.
STUBBORN = """trap '' TERM; (echo $$ > {0}.leader; while :; do sleep 0.05; done) & echo $! > {0}.child; wait; wait; \
while :; do sleep 0.05; done"""


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": uvloop.new_event_loop} if request.param == "uvloop" else {}


@pytest.fixture
def children(tmp_path: Path) -> ChildProcesses:
    return ChildProcesses(str(tmp_path / "running"))


async def sh(children: Children, script: str, **more: Any) -> Ended:
    given: dict[str, Any] = {"environment": PLAIN, "folder": "/", "limit_bytes": LIMIT, **more}
    return await children.run(["/bin/sh", "-c", script], **given)


@asynccontextmanager
async def running(children: Children, script: str) -> "AsyncIterator[asyncio.Task[Ended]]":
    """A run that goes on beside the test, which cancels it."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(sh(children, script, note="the key"))
        yield task
    assert task.cancelled()


async def test_text_goes_in_and_comes_out_unchanged(children: ChildProcesses) -> None:
    ended = await children.run(
        ["/bin/cat"], stdin=HARD_TEXT.encode(), environment={}, folder="/", limit_bytes=LIMIT, note="k"
    )
    assert ended == Ended(0, HARD_TEXT.encode(), b"")


async def test_standard_input_can_be_opened_by_its_name(children: ChildProcesses) -> None:
    assert (await sh(children, "cat /dev/stdin", stdin=b"by name")).stdout == b"by name"


async def test_standard_input_ends_where_there_is_none(children: ChildProcesses) -> None:
    assert (await sh(children, "cat; echo over")).stdout == b"over\n"


async def test_a_child_that_never_reads_does_not_hold_the_turn(children: ChildProcesses) -> None:
    begin = time.monotonic()
    ended = await sh(children, "echo done", stdin=b"x" * 8_000_000)
    assert (ended.code, ended.stdout) == (0, b"done\n")
    assert time.monotonic() - begin < QUICK


async def test_both_streams_are_kept_apart_and_the_exit_code_is_told(children: ChildProcesses) -> None:
    begin = time.monotonic()
    assert await sh(children, "echo out; echo err >&2; exit 3") == Ended(3, b"out\n", b"err\n")
    assert (await sh(children, "kill -KILL $$")).code == -signal.SIGKILL
    assert time.monotonic() - begin < DRAIN_SECONDS  # there is nothing to wait for


async def test_output_as_large_as_the_limit_is_whole(children: ChildProcesses) -> None:
    ended = await sh(children, "head -c 60000 /dev/zero; head -c 40000 /dev/zero >&2", limit_bytes=100_000)
    assert (ended.code, len(ended.stdout), len(ended.stderr), ended.cut) == (0, 60_000, 40_000, False)


@pytest.mark.parametrize("redirect", ["", ">&2"])
async def test_output_beyond_the_limit_ends_the_child(children: ChildProcesses, redirect: str) -> None:
    begin = time.monotonic()
    ended = await sh(children, f"yes {redirect}", limit_bytes=100_000)
    assert ended.cut
    assert len(ended.stdout) + len(ended.stderr) == 100_000
    assert time.monotonic() - begin < QUICK


async def test_a_last_byte_too_many_is_seen_when_the_child_has_ended(children: ChildProcesses) -> None:
    ended = await sh(children, "printf 12345", limit_bytes=4)
    assert (ended.stdout, ended.cut) == (b"1234", True)


async def test_a_child_that_ended_has_ended_though_its_own_child_holds_the_pipes(
    children: ChildProcesses, tmp_path: Path
) -> None:
    begin = time.monotonic()
    ended = await sh(children, f"sleep 1000 & echo $! > {tmp_path}/pid; echo answer")
    assert time.monotonic() - begin < 3 * DRAIN_SECONDS
    assert (ended.code, ended.stdout) == (0, b"answer\n")
    left = await number_in(tmp_path / "pid")
    assert runs(left)  # it ended well: what it left is its own business
    os.kill(left, signal.SIGKILL)


async def test_what_its_own_children_print_a_moment_later_is_kept(children: ChildProcesses) -> None:
    ended = await sh(children, "(sleep 0.1; echo late; echo late >&2) & echo early")
    assert ended == Ended(0, b"early\nlate\n", b"late\n")


async def test_a_child_that_cannot_be_noted_does_not_run(children: ChildProcesses, tmp_path: Path) -> None:
    await sh(children, "true")
    before = _open()
    (tmp_path / "running").rmdir()
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            await sh(children, "sleep 1000", note="k")
        with pytest.raises(FileNotFoundError):
            await children.start(["/bin/cat"], environment=PLAIN, folder="/", line_bytes=LIMIT, note="k")
    assert _our_children() == ""
    await eventually(lambda: all(now <= then for now, then in zip(_open(), before, strict=True)))


async def test_what_has_ended_is_not_waited_for_though_nobody_reaps_it(
    children: ChildProcesses, tmp_path: Path
) -> None:
    """As in a container whose first process does not: here a process outside the group leaves one of it unreaped."""
    script = f"""import os, time
if os.fork():
    time.sleep(1000)
elif os.fork():
    os.setsid()
    open("{tmp_path}/outside", "w").write(f"{{os.getpid()}}\\n")
    time.sleep(1000)
"""
    async with running(children, f"exec {sys.executable} -c '{script}'") as task:
        outside = await number_in(tmp_path / "outside")
        begin = time.monotonic()
        task.cancel()
    assert time.monotonic() - begin < GRACE_SECONDS / 2
    assert runs(outside)
    os.kill(outside, signal.SIGKILL)


async def test_a_child_that_failed_leaves_nothing(children: ChildProcesses, tmp_path: Path) -> None:
    ended = await sh(children, f"sleep 1000 & echo $! > {tmp_path}/pid; exit 1")
    assert ended.code == 1
    left = await number_in(tmp_path / "pid")
    await eventually(lambda: not runs(left))


async def test_cancelling_asks_the_whole_group_first(children: ChildProcesses, tmp_path: Path) -> None:
    script = f"""trap 'echo asked > {tmp_path}/asked; exit 0' TERM
        sleep 1000 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/leader; wait"""
    async with running(children, script) as task:
        leader, child = await number_in(tmp_path / "leader"), await number_in(tmp_path / "child")
        await eventually(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")  # a shell's copy loses signals
        begin = time.monotonic()
        task.cancel()
    assert (tmp_path / "asked").read_text() == "asked\n"
    assert not lives(leader)  # reaped, too
    await eventually(lambda: not runs(child))
    assert time.monotonic() - begin < QUICK


async def test_what_does_not_listen_is_made_to_end(tmp_path: Path) -> None:
    children = ChildProcesses(str(tmp_path / "running"), grace_seconds=0.2)
    async with running(children, STUBBORN.format(tmp_path / "pid")) as task:
        leader, child = await number_in(tmp_path / "pid.leader"), await number_in(tmp_path / "pid.child")
        begin = time.monotonic()
        task.cancel()
    assert 0.2 <= time.monotonic() - begin < QUICK
    assert not lives(leader)
    await eventually(lambda: not runs(child))


async def test_a_stopped_group_ends(tmp_path: Path) -> None:
    children = ChildProcesses(str(tmp_path / "running"), grace_seconds=0.2)
    async with running(children, f"echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done") as task:
        leader = await number_in(tmp_path / "pid")
        os.killpg(leader, signal.SIGSTOP)
        task.cancel()
    assert not lives(leader)


async def test_a_second_cancellation_hurries(tmp_path: Path) -> None:
    children = ChildProcesses(str(tmp_path / "running"), grace_seconds=1000)
    async with running(children, STUBBORN.format(tmp_path / "pid")) as task:
        leader, child = await number_in(tmp_path / "pid.leader"), await number_in(tmp_path / "pid.child")
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
    await eventually(lambda: not lives(leader) and not runs(child))
    assert list((tmp_path / "running").iterdir()) == []


async def test_a_program_is_started_by_its_absolute_path_only(children: ChildProcesses) -> None:
    for argv in (["sh", "-c", "true"], ["./sh"], [""], []):
        with pytest.raises(ValueError, match="absolute"):
            await children.run(argv, environment=PLAIN, folder="/", limit_bytes=LIMIT)


@pytest.mark.parametrize(
    ("argv", "folder", "error"),
    [(["/bin/nobody"], "/", FileNotFoundError), (["/etc/passwd"], "/", PermissionError), (["/bin/sh"], "/no", OSError)],
)
async def test_what_cannot_be_started_says_so(
    children: ChildProcesses, argv: list[str], folder: str, error: type[OSError]
) -> None:
    with pytest.raises(error):
        await children.run(argv, environment=PLAIN, folder=folder, limit_bytes=LIMIT, note="k")
    with pytest.raises(error):
        await children.start(argv, environment=PLAIN, folder=folder, line_bytes=LIMIT, note="k")


async def test_a_child_gets_what_it_was_given_and_nothing_of_ours(children: ChildProcesses, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        said = await sh(
            children, "env; ls -l /proc/self/fd; pwd", environment={**PLAIN, "A": "b"}, folder=str(tmp_path)
        )
    lines = said.stdout.decode().splitlines()
    assert {line for line in lines if "=" in line} <= {"PATH=/usr/bin:/bin", "A=b", f"PWD={tmp_path}", "_=/usr/bin/env"}
    assert not [line for line in lines if "secret" in line]
    assert lines[-1] == str(tmp_path)


async def test_a_child_leads_a_session_and_a_group_of_its_own_under_our_umask(children: ChildProcesses) -> None:
    before = os.umask(0o077)
    try:
        said = await sh(children, "echo $$; cut -d' ' -f5,6 /proc/$$/stat; umask")
    finally:
        os.umask(before)
    pid, ids, mask = said.stdout.decode().splitlines()
    assert ids.split() == [pid, pid]
    assert int(mask, 8) == 0o077


async def test_a_run_is_noted_while_it_runs(children: ChildProcesses, tmp_path: Path) -> None:
    folder = tmp_path / "running"
    async with running(children, f"echo $$ > {tmp_path}/pid; sleep 1000") as task:
        pid = await number_in(tmp_path / "pid")
        (note,) = folder.iterdir()
        assert f'"pid":{pid},' in note.read_text()
        assert '"the key"' in note.read_text()
        assert note.stat().st_mode & 0o777 == 0o600
        task.cancel()
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o700
    await sh(children, f"ls {folder} > {tmp_path}/seen")
    assert (tmp_path / "seen").read_text() == ""  # one without a key is not


async def test_nothing_is_left_of_many(tmp_path: Path) -> None:
    children = ChildProcesses(str(tmp_path / "running"), grace_seconds=0.1)

    async def some(pid: Path) -> None:
        for script in ("cat", "exit 3", "yes", "echo x; kill -TERM $$", "exec 1>&- 2>&-; sleep 0.05"):
            await sh(children, script, stdin=b"x" * 500_000, limit_bytes=600_000)
        async with running(children, f"echo $$ > {pid}; sleep 1000") as task:
            await number_in(pid)
            task.cancel()
        warm = await children.start(["/bin/cat"], environment=PLAIN, folder="/", line_bytes=LIMIT, note="k")
        await warm.end()

    await some(tmp_path / "first")  # what the loop itself opens once
    before = _open()
    await some(tmp_path / "second")
    await eventually(lambda: all(now <= then for now, then in zip(_open(), before, strict=True)))
    assert _our_children() == ""  # no zombie either


def _our_children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def _open() -> tuple[int, int, int]:
    return len(asyncio.all_tasks()), threading.active_count(), len(os.listdir("/proc/self/fd"))


async def test_a_warm_child_is_talked_to(children: ChildProcesses) -> None:
    script = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True); print('hm', file=sys.stderr)"
    argv = [sys.executable, "-c", script]
    warm = await children.start(argv, environment=PLAIN, folder="/", line_bytes=100_000, note="k")
    for text in ("one\n", "two " + "x" * 90_000 + "\n"):
        warm.stdin.write(text.encode())
        await warm.stdin.drain()
        assert await asyncio.wait_for(warm.stdout.readline(), QUICK) == text.upper().encode()
    warm.stdin.close()
    assert await asyncio.wait_for(warm.wait(), QUICK) == 0
    assert await asyncio.wait_for(warm.stdout.read(), QUICK) == b""
    await eventually(lambda: warm.last_words() == "hm\nhm\n")
    await warm.end()
    await warm.end()


async def test_a_line_of_a_warm_child_is_bounded(children: ChildProcesses) -> None:
    warm = await children.start(
        ["/bin/sh", "-c", "yes | tr -d '\\n'"], environment=PLAIN, folder="/", line_bytes=10_000, note="k"
    )
    with pytest.raises(ValueError, match="limit"):
        await asyncio.wait_for(warm.stdout.readline(), QUICK)
    await warm.end()


async def test_a_warm_childs_last_words_are_its_last(children: ChildProcesses) -> None:
    warm = await children.start(
        ["/bin/sh", "-c", "seq 100000 >&2; echo the end >&2; exit 5"],
        environment=PLAIN, folder="/", line_bytes=LIMIT, note="k",
    )  # fmt: skip
    assert await asyncio.wait_for(warm.wait(), QUICK) == 5
    await eventually(lambda: warm.last_words().endswith("99999\n100000\nthe end\n"))
    assert len(warm.last_words()) < 10_000
    await warm.end()


async def test_the_end_of_a_warm_child_is_that_of_its_group(tmp_path: Path) -> None:
    children = ChildProcesses(str(tmp_path / "running"), grace_seconds=0.2)
    argv = ["/bin/sh", "-c", STUBBORN.format(tmp_path / "pid")]
    warm = await children.start(argv, environment=PLAIN, folder="/", line_bytes=LIMIT, note="warm")
    child = await number_in(tmp_path / "pid.child")
    assert '"warm"' in next((tmp_path / "running").iterdir()).read_text()
    await warm.end()
    assert not lives(warm.pid)
    await eventually(lambda: not runs(child))
    assert await warm.wait() == -signal.SIGKILL
    assert list((tmp_path / "running").iterdir()) == []


async def test_what_is_withheld_is_asked_whenever_a_program_starts(tmp_path: Path) -> None:
    withheld = {"A"}
    children = ChildProcesses(str(tmp_path / "running"), withheld=lambda: frozenset(withheld))
    given = {**PLAIN, "A": "first", "B": "second"}
    assert b"first" not in (await sh(children, "env", environment=given)).stdout
    withheld.add("B")
    ended = await sh(children, "env", environment=given)
    assert b"first" not in ended.stdout
    assert b"second" not in ended.stdout
    warm = await children.start(["/usr/bin/env"], environment=given, folder="/", line_bytes=LIMIT, note="k")
    try:
        printed = await warm.stdout.read()
    finally:
        await warm.end()
    assert b"PATH=" in printed
    assert b"first" not in printed
    assert b"second" not in printed
