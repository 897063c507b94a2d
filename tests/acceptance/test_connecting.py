"""connect, connections, disconnect and pair between real hubs: what a person sees, and with what each command ends."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.acceptance.hub import MARGIN, Hub, eventually, free_port, hub
from tests.acceptance.linked import ENVIRONMENT, connection, hubs, live, wait_knows, wait_up


@pytest.fixture
def two() -> Iterator[tuple[Hub, Hub]]:
    with hubs("home", "garage") as (here, far):
        yield here, far


def target(far: Hub) -> str:
    return f"ws://127.0.0.1:{far.port}"


def pair(here: Hub, name: str, where: str, code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "angelia", "pair", name, where],
        env=here.cli_environment(), cwd=here.base, input=f"{code}\n", capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def lock_the_door(far: Hub) -> None:
    """As if it were another user's: the key that lets in hubs of the same user is not for others to take."""
    (far.folder / "link.key").chmod(0o640)


def test_two_hubs_of_one_user(two: tuple[Hub, Hub]) -> None:
    here, far = two
    live(far, "oracle")
    done = here.run("connect", "garage", target(far))
    assert (done.returncode, done.stdout[:30]) == (0, "garage is up: a hub, version 0")
    wait_knows(here, "oracle")
    rows = [line.split() for line in here.run("connections").stdout.splitlines()]
    assert rows[0] == ["NAME", "STATE", "AGENTS", "WAITING", "TARGET"]
    assert (rows[1][:2], rows[1][-1]) == (["garage", "up"], target(far))
    assert "home" in far.run("connections").stdout
    assert "oracle@garage" in here.run("agents").stdout
    assert "connections up" not in here.run("status").stdout
    assert "1 of 1 connection up" in here.run("status").stdout
    done = here.run("disconnect", "garage")
    assert (done.returncode, done.stdout) == (0, "garage is no longer connected\n")
    assert here.run("connections").stdout.startswith("no connections")
    assert here.run("disconnect", "garage").returncode == 1


def test_one_that_cannot_be_reached_is_kept_and_told_wherever_one_looks(two: tuple[Hub, Hub]) -> None:
    here, far = two
    live(far, "oracle")
    assert here.run("connect", "garage", target(far)).returncode == 0
    wait_knows(here, "oracle")
    far.kill9()
    eventually(lambda: not connection(here, "garage")["up"], 10 * MARGIN, "it is down")
    here.run("send", "oracle", "are you there?")
    assert connection(here, "garage")["waiting"] == 1
    status = here.run("status").stdout
    assert "garage has been down for" in status
    assert "(unreachable): 1 wait, the oldest for" in status
    shown = here.run("connections").stdout
    assert "garage: it cannot be reached: " in shown
    assert "\n→ " in shown
    doctor = here.run("doctor").stdout
    assert "doubtful  connection garage: down" in doctor
    done = here.run("connect", "shed", f"ws://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert done.stdout.startswith("shed is kept, but it cannot be reached: ")
    assert "it is tried again by itself" in done.stderr
    far.start()
    wait_up(here, "garage")
    eventually(lambda: connection(here, "garage")["waiting"] == 0, 10 * MARGIN, "the mail has gone")


def test_something_else_is_there(two: tuple[Hub, Hub]) -> None:
    here, _ = two
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        done = here.run("connect", "printer", f"ws://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
        serving.join()
    assert done.returncode == 1
    assert done.stdout.startswith("printer is kept, but it does not speak as this hub does: ")
    assert "WRONG     connection printer" in here.run("doctor").stdout


def test_hubs_that_do_not_know_each_other_pair_by_a_code(two: tuple[Hub, Hub]) -> None:
    here, far = two
    lock_the_door(far)
    done = here.run("connect", "garage", target(far))
    assert done.returncode == 1
    assert done.stdout.startswith("garage is kept, but it does not let this hub in: ")
    assert "angelia pair" in done.stderr
    assert here.run("disconnect", "garage").returncode == 0
    shown = far.run("pair").stdout
    code = shown.split()[0]
    assert f"angelia pair garage {target(far)}" in far.run("pair", ANGELIA_HUB_NAME="garage").stdout
    wrong = pair(here, "garage", target(far), code)  # the second one took its place
    assert wrong.returncode == 1
    assert "The code is wrong, or is no longer good." in wrong.stderr
    assert "Nothing was kept" in wrong.stderr
    assert here.run("connections").stdout.startswith("no connections")
    code = far.run("pair").stdout.split()[0]
    done = pair(here, "garage", target(far), code.lower())
    assert (done.returncode, done.stdout[:30]) == (0, "garage is up: a hub, version 0"), done.stderr
    assert pair(here, "again", target(far), code).returncode == 1  # it is good once
    (far.folder / "link.key").chmod(0o600)  # no hub starts with one that others may read
    for each in (here, far):
        each.restart()
    wait_up(here, "garage")
    wait_up(far, "home")


def test_a_connection_of_the_settings_is_there_from_the_start_and_no_command_removes_it(tmp_path: Path) -> None:
    with hub(env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "garage"}) as far:
        (tmp_path / "angelia.toml").write_text(f"[connections.garage]\ntarget = '{target(far)}'\nshare = ['scout']\n")
        with hub(env={**ENVIRONMENT, "ANGELIA_CONFIG": str(tmp_path / "angelia.toml")}) as here:
            wait_up(here, "garage")
            assert connection(here, "garage")["share"] == ["scout"]
            done = here.run("disconnect", "garage")
            assert (done.returncode, "settings" in done.stderr) == (1, True)
            done = here.run("connect", "garage", target(far))
            assert (done.returncode, "settings" in done.stderr) == (1, True)
            assert connection(here, "garage")["up"]


def test_a_table_that_cannot_be_meant_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "angelia.toml").write_text("[connections.garage]\ntarget = 'garage'\n")
    none = Hub()
    done = none.run("up", "--port", "0", ANGELIA_CONFIG=str(tmp_path / "angelia.toml"))
    none.__exit__()
    assert done.returncode == 78
    assert f"{tmp_path}/angelia.toml, connections.garage.target: 'garage' is no target" in done.stderr
