"""Wherever a hub listens, whom it wakes and `angelia doctor` reach it by the address that it tells them."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.acceptance.certificate import certificate_in
from tests.acceptance.hub import READY_SECONDS, Hub, eventually

LOOKS = """
import os, urllib.request
url = os.environ["ANGELIA_URL"]
print(url, urllib.request.urlopen(url + "/health").status)
"""


@contextmanager
def listening(at: Hub) -> Iterator[Hub]:
    """A hub that listens elsewhere than tests look for it."""

    def answers() -> bool:
        with suppress(OSError):  # its socket is not there yet
            return at.get("/health", admin=True).status == 200
        return False

    try:
        at.launch()
        eventually(answers, READY_SECONDS)
        yield at
    finally:
        at.__exit__()


def answered_at(at: Hub) -> str:
    """What an agent that is woken says of the address that it was told."""
    program = at.base / "looks.py"
    program.write_text(LOOKS)
    adapter = {"kind": "command", "argv": [sys.executable, str(program)]}
    put = at.call("PUT", "/v1/agents/inner", {"adapter": adapter}, admin=True)
    assert put.status in (200, 201), put
    asked = at.call("POST", "/v1/ask", {"to": "inner", "text": "hello", "wait_seconds": 20}, admin=True)
    assert asked.status == 200, asked
    return str(asked.json["reply"]["text"])


def well(at: Hub, url: str) -> bool:
    """Whether the doctor finds it so there."""
    looked = json.loads(at.run("doctor", "--json", **at.env).stdout)["checks"]
    return [each["state"] for each in looked if each["name"] == f"health at {url}"] == ["ok"]


@pytest.mark.parametrize(
    ("words", "host"),
    [
        ((), "127.0.0.1"),
        (("--host", "0.0.0.0", "--behind-proxy"), "127.0.0.1"),
        (("--host", "::", "--behind-proxy"), "[::1]"),
        (("--host", "127.0.0.2"), "127.0.0.2"),
    ],
)
def test_what_is_woken_reaches_the_hub_where_it_listens(words: tuple[str, ...], host: str) -> None:
    with listening(Hub(args=words)) as at:
        url = f"http://{host}:{at.port}"
        assert answered_at(at) == f"{url} 200"
        assert well(at, url)


def test_with_tls_it_does_by_the_name_of_the_certificate(tmp_path: Path) -> None:
    certificate, private = certificate_in(tmp_path)
    env = {
        "ANGELIA_TLS_CERTIFICATE": str(certificate), "ANGELIA_TLS_KEY": str(private),
        "ANGELIA_ALLOWED_HOSTS": "localhost", "SSL_CERT_FILE": str(certificate),
    }  # fmt: skip
    with listening(Hub(env=env)) as at:
        url = f"https://localhost:{at.port}"
        assert answered_at(at) == f"{url} 200"
        assert well(at, url)
        assert "SSL_CERT_FILE" in at.run("doctor").stdout  # where the certificate is not trusted
