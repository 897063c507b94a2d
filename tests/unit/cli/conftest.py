"""A data folder of the test's own, nothing of the caller's environment, and a hub that is scripted."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from angelia.cli.main import main
from tests.fakes.fake_hub import FakeHub

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def data_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Short, since a socket's path has to fit."""
    for name in [name for name in os.environ if name.startswith("ANGELIA_")]:  # noqa: TID251
        monkeypatch.delenv(name)
    path = tmp_path_factory.mktemp("d")
    monkeypatch.setenv("HOME", str(path / "home"))
    monkeypatch.setenv("ANGELIA_DATA_DIR", str(path))
    monkeypatch.setenv("ANGELIA_PORT", "1")  # nobody listens there
    return path


@pytest.fixture
def hub(data_dir: Path) -> Iterator[FakeHub]:
    """The hub of the data folder, on its socket."""
    with FakeHub(data_dir / "hub.sock") as fake:
        yield fake


@pytest.fixture
def far() -> Iterator[FakeHub]:
    """Another hub, by TCP."""
    with FakeHub() as fake:
        yield fake


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line. Out: its exit code, stdout and stderr."""

    def ran(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            code = main(list(words))
        except SystemExit as end:
            code = int(str(end.code))
        out, err = capfd.readouterr()
        return code, out, err

    return ran
