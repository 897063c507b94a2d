"""Where the hub is."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

from angelia.client.find import BadAddress, choose, read


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:18900", "http://127.0.0.1:18900"),
        ("http://127.0.0.1:18900/", "http://127.0.0.1:18900"),
        ("http://[::1]:18900", "http://[::1]:18900"),
        ("http://hub.lan", "http://hub.lan:80"),
        ("https://hub.lan", "https://hub.lan:443"),
        ("unix:/run/angelia/hub.sock", "unix:/run/angelia/hub.sock"),
        ("unix:///run/angelia/hub.sock", "unix:/run/angelia/hub.sock"),
    ],
)
def test_addresses(url: str, shown: str) -> None:
    assert str(read(url)) == shown


@pytest.mark.parametrize(
    "url",
    [
        "", "hub", "127.0.0.1:18900", "ftp://hub", "http://", "http://hub:port", "http://hub:99999", "http://hub/v1",
        "http://hub?x=1", "http://hub#x", "http://me:secret@hub", "http://[::1", "unix:", "unix:hub.sock", "unix:/a\0b",
    ],
)  # fmt: skip
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(BadAddress, match=r"hub|socket"):
        read(url)


@pytest.fixture
def socket_path() -> object:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"{folder}/hub.sock")
        yield f"{folder}/hub.sock"


def test_a_url_comes_first(socket_path: str) -> None:
    assert str(choose("http://hub.lan:1", socket_path)) == "http://hub.lan:1"


def test_then_the_socket(socket_path: str) -> None:
    assert choose(None, socket_path).path == socket_path
    assert choose("", socket_path).path == socket_path


def test_then_the_usual_port(tmp_path: Path) -> None:
    assert str(choose(None, str(tmp_path / "hub.sock"))) == "http://127.0.0.1:18900"
    assert str(choose(None, None)) == "http://127.0.0.1:18900"
    assert str(choose(None, None, "http://127.0.0.1:7")) == "http://127.0.0.1:7"


def test_a_plain_file_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "hub.sock").touch()
    assert not choose(None, str(tmp_path / "hub.sock")).path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_somebody_elses_socket_is_not_used(socket_path: str) -> None:
    os.chown(socket_path, 12345, -1)
    assert not choose(None, socket_path).path
