"""The service under a real systemd of a user, in a corner of its own: crash, wrong settings, a taken folder, removal.

Runs where there is a systemd and somebody may start one (root, in a mount namespace); elsewhere it is left out.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.hub import environment, eventually, free_port

SYSTEMD = "/lib/systemd/systemd"
START = 'mount -t tmpfs none /run/systemd && mkdir /run/systemd/system && exec "$0" --user --log-target=null'


class User:
    """Somebody with a systemd, who types."""

    def __init__(self, base: Path) -> None:
        self.base, self.port, self.folder = base, free_port(), base / "d"
        (base / "run").mkdir(mode=0o700)
        told = {"ANGELIA_DATA_DIR": str(self.folder), "ANGELIA_PORT": str(self.port)}
        self.environment = {**environment(base), **told, "XDG_RUNTIME_DIR": str(base / "run")}
        line = ["unshare", "--mount", "--propagation", "private", "sh", "-c", START, SYSTEMD]
        self.systemd = subprocess.Popen(
            line, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def ready(self) -> bool:
        """Whether its systemd can be asked; fails when it has ended."""
        assert self.systemd.poll() is None, "no systemd can be started here"
        return self.run("systemctl", "--user", "daemon-reload").returncode == 0

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=50, check=False)

    def angelia(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.run(sys.executable, "-m", "angelia", *words)

    def shown(self, what: str) -> str:
        return self.run("systemctl", "--user", "show", "angelia.service", "--value", "-p", what).stdout.strip()

    def serves(self) -> int:
        """The pid of the unit's process, once the hub says that it is the one that serves; else 0."""
        pid = self.shown("MainPID")
        return int(pid) if pid != "0" and f'"pid": {pid}' in self.angelia("status", "--json").stdout else 0


@pytest.fixture
def user() -> Iterator[User]:
    if not os.path.exists(SYSTEMD) or shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("no systemd can be started here")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespace can be made here")
    base = Path(tempfile.mkdtemp(prefix="ang-", dir="/tmp"))
    made = User(base)
    try:
        eventually(lambda: made.systemd.poll() is not None or made.ready(), 20, "a systemd of its own")
        if made.systemd.poll() is not None:
            pytest.skip("no systemd runs here")
        yield made
    finally:
        made.run("systemctl", "--user", "stop", "angelia.service")
        made.systemd.send_signal(signal.SIGRTMIN + 4)  # to systemd: end everything
        made.systemd.terminate()
        try:
            made.systemd.wait(20)
        except subprocess.TimeoutExpired:
            made.systemd.kill()
            made.systemd.wait()
        shutil.rmtree(base, ignore_errors=True)


def test_the_system_runs_it_and_starts_it_again_after_a_crash_only(user: User) -> None:
    done = user.angelia("service", "install")
    assert (done.returncode, "it serves: pid" in done.stdout) == (0, True), done.stderr
    first = eventually(user.serves)
    assert user.shown("Environment") == f"ANGELIA_PORT={user.port}"

    os.kill(first, signal.SIGKILL)
    second = eventually(user.serves, 30, "back after a crash")
    assert second != first
    assert user.shown("NRestarts") == "1"

    (user.base / ".config/angelia").mkdir(parents=True)
    (user.base / ".config/angelia/angelia.toml").write_text("prot = 1\n")
    os.kill(second, signal.SIGKILL)
    eventually(lambda: user.shown("ActiveState") == "failed", 30, "given up")
    assert (user.shown("ExecMainStatus"), user.shown("NRestarts")) == ("78", "2")
    (user.base / ".config/angelia/angelia.toml").unlink()

    assert user.angelia("up", "--detach").returncode == 0
    try:
        again = user.angelia("service", "install")
        assert again.stdout.startswith("unchanged: ")
        assert "Hand it over: angelia down" in again.stderr
        assert "&& systemctl --user start angelia.service" in again.stderr
        user.run("systemctl", "--user", "start", "angelia.service")
        eventually(lambda: user.shown("ExecMainStatus") == "3", 30, "the folder is taken")
        assert (user.shown("ActiveState"), user.shown("NRestarts")) == ("failed", "0")
    finally:
        assert user.angelia("down").returncode == 0

    user.run("systemctl", "--user", "start", "angelia.service")
    eventually(user.serves)
    assert user.angelia("down").returncode == 0  # asked to end, it stays so
    eventually(lambda: user.shown("ActiveState") == "inactive")

    user.run("systemctl", "--user", "start", "angelia.service")
    eventually(user.serves)
    assert user.angelia("service", "uninstall").returncode == 0
    assert user.shown("LoadState") == "not-found"
    assert [path for path in (user.base / ".config/systemd").rglob("*") if not path.is_dir()] == []
    assert user.angelia("service", "uninstall").returncode == 0
