"""One turn at a time into a profile, against real processes: busy means wait, and a dead holder keeps nobody out."""

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.bus.system import SystemClock
from angelia.model.failure import Reason
from angelia.turns.turn_lock import TargetBusy, lock_path, turn_lock
from tests.fakes.clock import FakeClock

# Takes the lock as Hermes does, tells so, and holds it until its input ends.
HOLDER = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
Hold = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "bot_relay" / "locks")


@pytest.fixture
def hold(folder: str) -> Iterator[Hold]:
    """Start another process that holds a profile's lock."""
    started: list[subprocess.Popen[bytes]] = []

    def start(profile: str) -> subprocess.Popen[bytes]:
        os.makedirs(folder, exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, lock_path(folder, profile)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def taken(folder: str, profile: str) -> bool:
    """Whether some process has the lock now, as any other process sees it."""
    descriptor = os.open(lock_path(folder, profile), os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# ---- between processes


async def test_a_second_turn_waits_for_the_first_and_then_runs(folder: str, hold: Hold) -> None:
    """9.3 second_delivery_waits_then_succeeds; relay_deliver_serializes_then_succeeds for the lock's part."""
    holder = hold("ops")
    clock = SystemClock()
    async with asyncio.TaskGroup() as group:
        group.create_task(end_after(holder, 0.3))
        async with turn_lock(folder, "ops", 30, clock) as waited:
            assert waited >= 0.2
            assert taken(folder, "ops")
    assert not taken(folder, "ops")


async def end_after(holder: subprocess.Popen[bytes], seconds: float) -> None:
    await asyncio.sleep(seconds)
    assert holder.stdin is not None
    holder.stdin.close()


async def test_a_holder_that_is_killed_keeps_nobody_out(folder: str, hold: Hold) -> None:
    """9.3 lock_released_when_holder_fd_closes: the kernel lets go, whatever the holder did not do."""
    holder = hold("ops")
    with pytest.raises(TargetBusy):
        async with turn_lock(folder, "ops", 0, SystemClock()):
            pass
    holder.send_signal(signal.SIGKILL)
    async with turn_lock(folder, "ops", 30, SystemClock()):
        assert taken(folder, "ops")


async def test_busy_is_told_with_who_and_how_long(folder: str, hold: Hold) -> None:
    """9.3 timeout_is_structured_target_busy: reason, profile, waited ≥ budget, the word at the head of the text."""
    hold("ops")
    start = time.monotonic()
    with pytest.raises(TargetBusy) as caught:
        async with turn_lock(folder, "ops", 0.3, SystemClock()):
            pass
    busy = caught.value
    assert busy.reason is Reason.TARGET_BUSY
    assert busy.profile == "ops"
    assert 0.3 <= busy.waited_seconds < 0.9
    assert time.monotonic() - start < 0.9
    assert str(busy).startswith("target_busy")
    assert "not delivered" in str(busy)
    assert "0.3 s" in str(busy)


async def test_different_profiles_do_not_wait_for_each_other(folder: str, hold: Hold) -> None:
    """9.3 different_profiles_do_not_contend."""
    hold("ops")
    async with turn_lock(folder, "nightly", 0, SystemClock()) as waited:
        assert waited < 1


async def test_the_agent_that_is_started_under_the_lock_does_not_hold_it(folder: str) -> None:
    """A child that lingers after its turn would keep the profile locked for as long as it lives."""
    async with turn_lock(folder, "ops", 0, SystemClock()):
        child = lingerer()
    try:
        async with turn_lock(folder, "ops", 0, SystemClock()):
            assert child.poll() is None
    finally:
        end(child)


def lingerer() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


async def test_two_turns_of_one_process_exclude_each_other_too(folder: str) -> None:
    async with turn_lock(folder, "ops", 0, SystemClock()):
        with pytest.raises(TargetBusy):
            async with turn_lock(folder, "ops", 0, SystemClock()):
                pass
    async with turn_lock(folder, "ops", 0, SystemClock()):
        """9.3 reentry_after_clean_release."""


async def test_a_turn_that_fails_gives_the_lock_back(folder: str) -> None:
    """9.3 run_delivery_holds_profile_lock_during_turn: during it, and no longer, however it ends."""

    async def failing() -> None:
        async with turn_lock(folder, "ops", 0, SystemClock()):
            assert taken(folder, "ops")
            raise RuntimeError("the turn")

    with pytest.raises(RuntimeError, match="the turn"):
        await failing()
    assert not taken(folder, "ops")


async def test_who_is_cancelled_while_it_waits_holds_nothing(folder: str, hold: Hold) -> None:
    holder = hold("ops")
    files = set(os.listdir("/dev/fd"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), turn_lock(folder, "ops", 30, SystemClock()):
            pass
    assert set(os.listdir("/dev/fd")) == files
    end(holder)
    assert not taken(folder, "ops")


async def test_waiting_leaves_the_loop_to_others(folder: str, hold: Hold) -> None:
    """11.8: one blocked deliver must never hold back another call."""
    hold("ops")
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(others())
        with pytest.raises(TargetBusy):
            async with turn_lock(folder, "ops", 0.3, SystemClock()):
                pass
        task.cancel()
    assert turns > 30


# ---- the budget, on a clock of the test's own


@pytest.mark.parametrize("budget", [0, -5])
async def test_no_budget_is_one_try(folder: str, budget: float) -> None:
    tries: list[int] = []
    with pytest.raises(TargetBusy) as caught:
        async with turn_lock(folder, "ops", budget, FakeClock(), flock=never(tries)):
            pass
    assert len(tries) == 1
    assert caught.value.waited_seconds == 0


async def test_the_wait_ends_with_its_budget_and_is_looked_at_ten_times_a_second(folder: str) -> None:
    """3.8: sleeps of at most 100 ms, at least 5 ms, until the budget ends."""
    clock = FakeClock()
    tries: list[int] = []
    busy: list[TargetBusy] = []

    async def wait() -> None:
        try:
            async with turn_lock(folder, "ops", 120, clock, flock=never(tries)):
                pass
        except TargetBusy as error:
            busy.append(error)

    async with asyncio.TaskGroup() as group:
        group.create_task(wait())
        await clock.advance(119.9)
        assert not busy
        await clock.advance(0.2)
    assert 120 <= busy[0].waited_seconds <= 120.01
    assert 1200 <= len(tries) <= 1203


def never(tries: list[int]) -> Callable[[int, int], None]:
    """A lock that another always has."""

    def flock(descriptor: int, how: int) -> None:
        tries.append(how)
        raise BlockingIOError(errno.EWOULDBLOCK, "taken")

    return flock


# ---- the file


def test_the_name_of_the_lock_is_short_and_safe(tmp_path: Path) -> None:
    """9.3 lock_path_is_short_and_sanitized: at most 70 characters, no slash."""
    assert lock_path("x", "ops") == "x/ops.lock"
    assert lock_path("x", "../../etc/passwd") == "x/______etc_passwd.lock"
    assert lock_path("x", "") == "x/_.lock"
    assert lock_path("x", "ä.b c") == "x/__b_c.lock"
    assert lock_path("x", "p" * 99) == f"x/{'p' * 64}.lock"


@pytest.mark.parametrize("name", ["hermes", "Hermes", "default"])
def test_the_lock_of_hermes_is_that_of_its_profile(name: str) -> None:
    """3.8 both lanes take it under `default`, never `hermes`."""
    assert lock_path("x", name) == "x/default.lock"


@given(st.text(st.characters()))
def test_no_name_leaves_the_folder(name: str) -> None:
    folder, _, file = lock_path("x", name).partition("/")
    assert folder == "x"
    assert 6 <= len(file) <= 69
    assert file.isascii()
    assert "/" not in file
    assert not file.startswith(".")


async def test_file_and_folder_are_private_and_stay(folder: str) -> None:
    """3.8 mode 0600; the file is never removed, since others may wait for it."""
    async with turn_lock(folder, "ops", 0, SystemClock()):
        assert os.stat(folder).st_mode & 0o777 == 0o700
        assert os.stat(lock_path(folder, "ops")).st_mode & 0o777 == 0o600
    assert os.listdir(folder) == ["ops.lock"]


async def test_a_file_that_was_removed_keeps_nobody_out(folder: str, hold: Hold) -> None:
    """Some cleaner removed it while it was held: who comes next makes a new one and is alone on that."""
    hold("ops")
    os.unlink(lock_path(folder, "ops"))
    async with turn_lock(folder, "ops", 0, SystemClock()):
        assert taken(folder, "ops")


async def test_a_file_that_is_removed_while_it_is_locked_is_locked_anew(folder: str) -> None:
    removals = 0

    def removed_first(descriptor: int, how: int) -> None:
        nonlocal removals
        if not removals:
            os.unlink(lock_path(folder, "ops"))
            removals += 1
        fcntl.flock(descriptor, how)

    async with turn_lock(folder, "ops", 0, SystemClock(), flock=removed_first):
        assert taken(folder, "ops")


async def test_trouble_with_the_file_is_not_told_as_busy(folder: str, tmp_path: Path) -> None:
    """9.3 lock_infrastructure_error_is_not_misreported_as_target_busy: EIO surfaces, and leaves no file open."""

    def broken(descriptor: int, how: int) -> None:
        raise OSError(errno.EIO, "the disk")

    files = set(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="the disk"):
        async with turn_lock(folder, "ops", 0, SystemClock(), flock=broken):
            pass
    assert set(os.listdir("/dev/fd")) == files

    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        async with turn_lock(str(tmp_path / "file"), "ops", 0, SystemClock()):
            pass
    os.symlink(tmp_path / "file", lock_path(folder, "linked"))
    with pytest.raises(OSError, match="linked"):
        async with turn_lock(folder, "linked", 0, SystemClock()):
            pass
