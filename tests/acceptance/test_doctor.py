"""What a hub stands on is broken, one thing at a time: ``angelia doctor`` names that thing and what mends it (F125).

What it says of the agents that are woken, of connections and of a damaged store is seen where these are broken.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.acceptance.hub import ROOT, Hub, hub

Broken = AbstractContextManager[dict[str, str]]
SOMEBODY = 12345  # no user of this machine
SMALL = "size=64m"  # less than a hub keeps back


@pytest.fixture(scope="module")
def running() -> Iterator[Hub]:
    with hub() as started:
        yield started


def findings(output: str) -> dict[str, tuple[str, str, str]]:
    """What was looked at and is not as it should be: how bad, what is said, and what mends it, by name."""
    checks = json.loads(output)["checks"]
    return {each["name"]: (each["state"], each["text"], each["mend"]) for each in checks if each["state"] != "ok"}


@contextmanager
def open_to_others(at: Hub) -> Iterator[dict[str, str]]:
    at.folder.chmod(0o755)
    yield {}
    at.folder.chmod(0o700)


@contextmanager
def anothers_folder(at: Hub) -> Iterator[dict[str, str]]:
    if os.geteuid() != 0:
        pytest.skip("giving a folder away takes root")
    os.chown(at.folder, SOMEBODY, -1)
    yield {}
    os.chown(at.folder, os.geteuid(), -1)


@contextmanager
def no_socket(at: Hub) -> Iterator[dict[str, str]]:
    away = at.base / "away"
    Path(at.socket_path).rename(away)
    yield {}
    away.rename(at.socket_path)


@contextmanager
def another_file(at: Hub) -> Iterator[dict[str, str]]:
    with no_socket(at):
        Path(at.socket_path).touch(0o600)
        yield {}
        Path(at.socket_path).unlink()


@contextmanager
def no_library(at: Hub) -> Iterator[dict[str, str]]:
    folder = at.base / "libraries"
    folder.mkdir()
    (folder / "apsw.py").write_text("raise ImportError('libsqlite3.so.0: cannot open shared object file')\n")
    yield {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])}


@contextmanager
def slip_of_the_pen(at: Hub) -> Iterator[dict[str, str]]:
    yield {"ANGELIA_PROT": "1"}


@pytest.mark.parametrize(
    ("broken", "name", "how_bad", "says", "mends"),
    [
        (open_to_others, "data folder", "wrong", "is open to other users", "chmod 700 "),
        (anothers_folder, "data folder", "wrong", f"belongs to uid {SOMEBODY}", "chown -R "),
        (no_socket, "socket", "wrong", "No such file", "angelia up --replace"),
        (another_file, "socket", "wrong", "is not a private socket", "angelia up --replace"),
        (no_library, "sqlite", "wrong", "libsqlite3.so.0", "install angelia again"),
        (slip_of_the_pen, "settings", "doubtful", "ANGELIA_PROT", "slip of the pen"),
    ],
)
def test_what_is_broken_under_a_hub_that_runs_is_named(
    running: Hub, broken: Callable[[Hub], Broken], name: str, how_bad: str, says: str, mends: str
) -> None:
    with broken(running) as env:
        looked = running.run("doctor", "--json", seconds=50, **env)
    assert looked.returncode == (1 if how_bad == "wrong" else 0), looked.stderr
    found = findings(looked.stdout)
    assert found[name][0] == how_bad
    assert says in found[name][1]
    assert mends in found[name][2]
    if name == "socket":  # all that goes over it says so too
        assert all("hub.sock" in text for _, text, _ in found.values()), found
    else:
        assert list(found) == [name]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounting takes Linux and root")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare here")
@pytest.mark.parametrize(
    ("options", "name", "says", "mends"),
    [
        (SMALL, "disk", "0.1 GiB free", "make room on this disk"),
        ("ro", "data folder", "mounted read-only", "choose another folder: --data-dir"),
    ],
)
def test_what_is_wrong_with_its_disk_is_named(running: Hub, options: str, name: str, says: str, mends: str) -> None:
    place = running.base / f"disk-{name.partition(' ')[0]}"
    place.mkdir(0o700)
    doctor = [sys.executable, "-m", "angelia", "doctor", "--json", "--data-dir", str(place)]
    line = f"mount -t tmpfs -o mode=700,{options} tmpfs {shlex.quote(str(place))} && exec {shlex.join(doctor)}"
    looked = subprocess.run(
        ["unshare", "--mount", "sh", "-c", line],
        env=running.cli_environment(ANGELIA_PORT="0"), cwd=running.base, capture_output=True, text=True, timeout=50,
        check=False,
    )  # fmt: skip
    if "mount" in looked.stderr or "unshare" in looked.stderr:
        pytest.skip(f"no file system can be mounted here: {looked.stderr}")
    assert looked.returncode == 1, looked.stderr
    state, text, mend = findings(looked.stdout)[name]
    assert (state, says in text, mends in mend) == ("wrong", True, True), (state, text, mend)


@contextmanager
def closed_again(*paths: Path, mode: int = 0o644) -> Iterator[None]:
    """So wide for others, and as it was before."""
    before = {path: path.stat().st_mode & 0o777 for path in paths}
    for path in paths:
        path.chmod(mode)
    try:
        yield
    finally:
        for path, was in before.items():
            path.chmod(was)


def wide(looked: "subprocess.CompletedProcess[str]", name: str) -> list[tuple[str, str, str]]:
    checks = json.loads(looked.stdout)["checks"]
    return [(each["state"], each["text"], each["mend"]) for each in checks if each["name"] == name]


@pytest.mark.parametrize("runs", [True, False])
def test_secrets_that_are_open_to_others_are_named_each_with_what_closes_it(runs: bool) -> None:
    with hub() as found:
        assert found.run("join", "scout").returncode == 0
        secrets = [found.folder / name for name in ("admin.token", "link.key", "tokens/scout")]
        if not runs:
            found.stop()
        assert wide(found.run("doctor", "--json"), "files") == [("ok", "none in the folder is open to other users", "")]
        with closed_again(*secrets):
            looked = found.run("doctor", "--json")
            assert looked.returncode == 1
            named = wide(looked, "secret")
            assert [(state, text.split()[0]) for state, text, _ in named] == [("wrong", str(path)) for path in secrets]
            for _, text, mend in named:
                assert "mode 644" in text
                subprocess.run(shlex.split(mend.partition(";")[0]), check=True)
            assert not wide(found.run("doctor", "--json"), "secret")


@pytest.mark.parametrize("name", ["turns", "turns/running", "turns/private", "turns/locks"])
def test_a_folder_of_turns_that_is_open_to_others_is_wrong_since_no_hub_starts_on_it(name: str) -> None:
    with hub() as found:
        found.stop()
        place = found.folder / name
        (place / "note").touch(mode=0o600)  # an empty one is closed by the start
        with closed_again(place, mode=0o755):
            assert found.run("up", "--port", str(found.port)).returncode == 78
            ((state, text, mend),) = wide(found.run("doctor", "--json"), "folder")
            assert (state, mend) == ("wrong", f"chmod 700 {place}")
            assert "mode 755" in text


@pytest.mark.parametrize(
    ("apart", "mode", "owner", "mend"),
    [
        (True, 0o644, None, "chmod 600 "),
        (False, 0o644, None, "chmod 600 "),  # it is in the certificate's file
        (True, 0o620, None, "chmod 600 "),
        (True, 0o600, SOMEBODY, f"chown {os.geteuid()} "),
        (True, 0o640, None, None),  # systems let a group read root's keys
    ],
)
def test_no_hub_starts_with_a_key_to_tls_that_others_can_use(
    running: Hub, mode: int, owner: int | None, mend: str | None, *, apart: bool
) -> None:
    if owner is not None and os.geteuid() != 0:
        pytest.skip("giving a file away takes root")
    certificate, key = running.base / "its cert.pem", running.base / "its key.pem"
    for path in (certificate, key):
        path.touch()
    private = key if apart else certificate
    private.chmod(mode)
    env = {"ANGELIA_TLS_CERTIFICATE": str(certificate), **({"ANGELIA_TLS_KEY": str(key)} if apart else {})}
    try:
        if owner is not None:
            os.chown(private, owner, -1)
        started = running.run("up", "--port", "0", "--data-dir", str(running.base / "other"), **env)
        ((state, text, told),) = wide(running.run("doctor", "--json", **env), "tls key")
    finally:
        certificate.unlink()
        key.unlink()
    assert started.returncode == 78
    if mend is None:
        assert "cannot be used" in started.stderr  # since there is nothing in it
        assert (state, told) == ("ok", "")
    else:
        assert started.stderr.startswith(f"angelia: ANGELIA_TLS_{'KEY' if apart else 'CERTIFICATE'}: {private} holds")
        assert f"{mend}{shlex.quote(str(private))}" in started.stderr
        assert (state, told) == ("wrong", f"{mend}{shlex.quote(str(private))}")
        assert text.startswith(f"{private} holds the key to TLS")


def test_a_store_that_is_open_to_others_is_doubtful_since_a_start_closes_it() -> None:
    with hub() as found:
        found.stop()
        (found.folder / "angelia.db").chmod(0o644)
        ((state, text, mend),) = wide(found.run("doctor", "--json"), "files")
        assert (state, "angelia.db" in text, mend) == ("doubtful", True, f"chmod -R go= {found.folder}")
        found.start()
        ((state, _, _),) = wide(found.run("doctor", "--json"), "files")
        assert state == "ok"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.write_bytes(bytes(range(256)) * 16), "is damaged"),
        (lambda path: (path.unlink(), path.mkdir()), "is no file"),
    ],
)
def test_a_store_that_is_none_is_told_before_a_hub_is_started(spoil: Callable[[Path], None], says: str) -> None:
    with hub() as found:
        assert found.run("backup").returncode == 0
        found.stop()
        (copy,) = (found.folder / "backups").iterdir()
        spoil(found.folder / "angelia.db")
        state, text, mend = findings(found.run("doctor", "--json").stdout)["store"]
        assert (state, says in text) == ("wrong", True)
        assert mend.endswith(f"Put the newest copy back: angelia restore {copy} --data-dir {found.folder}")


def test_a_file_in_the_place_of_the_folder_is_told(running: Hub) -> None:
    file = running.base / "a-file"
    file.write_text("x")
    for given in (file, file / "inner"):
        looked = running.run("doctor", "--json", "--data-dir", str(given))
        assert looked.returncode == 1
        state, text, mend = findings(looked.stdout)["data folder"]
        assert (state, text) == ("wrong", f"{file} is no folder")
        assert "--data-dir" in mend
        assert "Traceback" not in looked.stderr
