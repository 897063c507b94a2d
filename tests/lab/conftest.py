"""The lab as a fixture: real agents, a stand-in model, and a network that has only loopback.

``pytest tests/lab --lab FOLDER`` runs against what ``python -m tests.lab.install FOLDER`` installed; without the option
no test here runs, and one line says why.

What must stay true: no agent of the lab can reach anything but this machine. The test process itself moves into a
network namespace of its own for the session, and so does whatever it starts; two sessions do not meet, and a port that
is taken elsewhere is free in there. Each agent gets a home without a past.
"""

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.install import environment, write_homes
from tests.lab.model import Model
from tests.lab.place import Lab

CLONE_NEWNET = 0x40000000  # Linux, include/uapi/linux/sched.h; os.unshare and os.setns came with Python 3.12
HOW = "give an installed lab: pytest tests/lab --lab FOLDER (python -m tests.lab.install FOLDER makes one)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lab", metavar="FOLDER", help="where the real agents are installed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a lab one test stands for all of them, and says so in one line."""
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    if config.getoption("--lab", default=None) is None and ours:
        ours[0].add_marker(pytest.mark.skip(reason=f"and {len(ours) - 1} more; {HOW}"))
        config.hook.pytest_deselected(items=ours[1:])
        items[:] = [item for item in items if item is ours[0] or here not in item.path.parents]


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    given = request.config.getoption("--lab", default=None)
    if given is None:
        pytest.skip(HOW)
    root = Path(given).resolve()
    if not (root / "node24").is_dir():
        pytest.fail(f"{root} holds no lab; {HOW}")
    scratch = tmp_path_factory.mktemp("lab")
    write_homes(scratch / "home")
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    _move_to_a_namespace_of_our_own()
    model = Model().start()
    try:
        yield Lab(root, scratch, environment(root, scratch / "home"), model)
    finally:
        model.stop()
        ctypes.CDLL(None).setns(before, CLONE_NEWNET)
        os.close(before)


def _move_to_a_namespace_of_our_own() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        pytest.skip(f"a network namespace needs root: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
