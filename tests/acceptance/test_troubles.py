"""A start where something is wrong: a disk that is too small or full, a damaged store, hardly any files to open."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.acceptance.hub import Hub, environment, eventually, free_port, hub

_MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && cd "$2" && shift 2 && exec "$@"'
_FILL = """
import os, subprocess, sys, time
up = [sys.executable, "-m", "angelia", "up", "--port", sys.argv[1], "--data-dir", os.path.abspath("d")]
def note():
    try:
        return open("d/hub.json").read()
    except FileNotFoundError:
        return ""
def until(true):
    ends = time.monotonic() + 15
    while not true():
        assert time.monotonic() < ends, (note(), open("out").read())
        time.sleep(0.05)
def begin():
    return subprocess.Popen(up, stdout=open("out", "ab"), stderr=subprocess.STDOUT)
first = begin()
until(lambda: '"ready": true' in note())
with open("fill", "wb", buffering=0) as fill:
    for size in (1 << 20, 4096):
        try:
            while fill.write(bytes(size)):
                pass
        except OSError:
            pass
first.kill()
first.wait()
second = begin()
until(lambda: open("out").read().count("serves (pid") == 2)
assert f'"pid": {first.pid}' in note()  # the case: the disk did not take the new one
os.unlink("fill")
until(lambda: f'"pid": {second.pid}' in note() and '"ready": true' in note())
second.terminate()
assert second.wait(10) == 0
assert note() == ""
"""


def in_tmpfs(size: str, base: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """A command in a file system of this size, which nobody else sees."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        pytest.skip("no mount namespaces here")
    own = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if subprocess.run([*own, "sh", "-c", _MOUNT, "sh", "1m", str(base), "true"], check=False).returncode:
        pytest.skip("a file system of its own cannot be mounted here")
    return subprocess.run(
        [*own, "sh", "-c", _MOUNT, "sh", size, str(base), *command],
        env=environment(base), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["here", "detached"])
@pytest.mark.parametrize("size", ["60m", "64k", "32k"])
def test_a_disk_that_is_too_small_is_told_with_what_it_takes(tmp_path: Path, size: str, detach: list[str]) -> None:
    up = [sys.executable, "-m", "angelia", "up", "--port", str(free_port()), "--data-dir", str(tmp_path / "d")]
    ended = in_tmpfs(size, tmp_path, *up, *detach)
    assert ended.returncode == 1, ended.stderr
    assert f"{tmp_path}/d has {59 if size == '60m' else 0} MiB free; a hub needs 72 MiB to start" in ended.stderr
    for untrue in ("goes on by itself", "Errno", "Traceback"):
        assert untrue not in ended.stderr


def test_a_note_that_a_full_disk_did_not_take_is_written_when_there_is_room(tmp_path: Path) -> None:
    ended = in_tmpfs("120m", tmp_path, sys.executable, "-c", _FILL, str(free_port()))
    assert ended.returncode == 0, ended.stderr


def _head(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * 4000)


def _all(path: Path) -> None:
    path.write_bytes(b"\xa5" * path.stat().st_size)


@pytest.mark.parametrize("damage", [_head, _all])
def test_a_damaged_store_is_named_with_the_remedy_and_left_as_it_is(damage: Callable[[Path], None]) -> None:
    with Hub() as at:
        assert at.stop()[0] == 0
        store = at.folder / "angelia.db"
        damage(store)
        before = store.read_bytes()
        refused = at.run("up", "--port", str(at.port))
        assert refused.returncode == 1
        assert f"{store} is damaged" in refused.stderr
        assert "angelia restore" in refused.stderr
        assert "It was left as it is" in refused.stderr
        assert store.read_bytes() == before


@pytest.mark.skipif(sys.platform != "linux", reason="sets the limits of another process")
def test_with_few_files_the_log_tells_that_connections_are_closed_and_the_owner_gets_in(tmp_path: Path) -> None:
    with hub() as at:
        assert at.stop()[0] == 0
        with (at.base / "output").open("ab") as output:
            at.process = subprocess.Popen(
                ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", *at.command],
                env=environment(at.base), cwd=at.base, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        at.wait_ready()
        held: list[socket.socket] = []
        try:
            for _ in range(120):
                with suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", at.port), 5))
            eventually(lambda: "connections are open" in at.output())
            for _ in range(3):
                assert at.get("/health", admin=True).status == 200
        finally:
            for each in held:
                each.close()
        assert at.output().count("connections are open") == 1
        eventually(lambda: at.is_ready())
