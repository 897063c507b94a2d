"""What is said of connections leads on: addresses that can be pasted, and a log whose last word is how it stands."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.certificate import certificate_in
from tests.acceptance.hub import MARGIN, READY_SECONDS, Hub, eventually
from tests.acceptance.linked import ENVIRONMENT, connection, hubs, wait_up


def said_of(here: Hub, name: str) -> list[str]:
    """The log's lines about a connection, without their times."""
    lines = (line[20:] for line in here.output().splitlines())
    return [line for line in lines if line.startswith((f"info: {name} is", f"warning: {name}: "))]


def pair(here: Hub, code: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "angelia", "pair", *words],
        env=here.cli_environment(), cwd=here.base, input=f"{code}\n", capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def test_the_log_ends_with_how_a_connection_stands() -> None:
    with hubs("home", "garage") as (here, far):
        (far.folder / "link.key").chmod(0o640)  # as if it were another user's
        code = far.run("pair").stdout.split()[0]
        done = pair(here, code, "garage", f"ws://127.0.0.1:{far.port}")
        assert done.returncode == 0, done.stderr
        wait_up(far, "home")
        eventually(lambda: said_of(far, "home")[-1] == "info: home is connected", 10 * MARGIN, "it says so at last")
        lost = [line for line in said_of(far, "home") if line.startswith("warning")]
        assert not any("by itself" in line for line in lost), lost


@contextmanager
def with_tls(folder: Path) -> Iterator[tuple[Hub, Path]]:
    """A hub on loopback that shows a certificate for localhost, and the file of that."""
    certificate, key = certificate_in(folder)
    around = {
        **ENVIRONMENT, "ANGELIA_HUB_NAME": "garage", "ANGELIA_ALLOWED_HOSTS": "localhost",
        "ANGELIA_TLS_CERTIFICATE": str(certificate), "ANGELIA_TLS_KEY": str(key),
    }  # fmt: skip
    at = Hub(env=around)
    try:
        at.launch()
        eventually(lambda: (at.folder / "hub.sock").exists() and (at.folder / "hub.json").exists(), READY_SECONDS)
        yield at, certificate
    finally:
        at.__exit__()


def test_the_target_that_a_hub_with_tls_shows_is_one_that_pairs(tmp_path: Path) -> None:
    with with_tls(tmp_path) as (far, ca), hubs("home") as (here,):
        shown = eventually(lambda: far.run("pair", **far.env).stdout, READY_SECONDS)
        assert f"  angelia pair garage wss://localhost:{far.port}\n" in shown
        done = here.run("connect", "garage", f"ws://127.0.0.1:{far.port}")
        assert done.returncode == 1
        assert "write wss:// in place of ws://" in done.stderr
        assert here.run("disconnect", "garage").returncode == 0
        code, target = shown.split()[0], f"wss://localhost:{far.port}"
        done = pair(here, code, "garage", target, "--ca", str(ca))
        assert done.returncode == 0, done.stderr
        assert connection(here, "garage")["up"]


@pytest.mark.parametrize("given", ["", " --share scout"])
def test_of_a_connection_that_is_replaced_what_was_set_is_told(given: str) -> None:
    with hubs("home", "garage") as (here, far):
        target = f"ws://127.0.0.1:{far.port}"
        assert here.run("connect", "garage", target, "--share", "scout").returncode == 0
        told = here.run("connect", "GARAGE", target, *given.split()).stderr
        assert ("garage had --share scout until now" in told.lower()) is not bool(given)
        assert "its agents come in a moment" in told
