"""A certificate for localhost that nobody else has signed."""

import subprocess
from pathlib import Path

import pytest


def certificate_in(folder: Path) -> tuple[Path, Path]:
    """Its file, and that of its key; skips the test where nothing can make one."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
            check=True, capture_output=True,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    key.chmod(0o600)
    return certificate, key
