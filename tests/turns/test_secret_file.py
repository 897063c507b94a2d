"""A secret out of a file: only one that nobody else can use is read, and what is wrong is said without showing it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from angelia.turns.adapters.secret_file import MOST_BYTES, UnfitSecret, secret_in, wrong_with

SECRET = "sekrit-7d1f"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A private file with a secret; its name is one that a shell has to be told in quotes."""
    made = tmp_path / "it's; a 'key' $HOME"
    made.touch(0o600)
    made.write_text(f"  {SECRET}\n")
    return made


def refusal(path: Path) -> str:
    with pytest.raises(UnfitSecret) as told:
        secret_in(str(path))
    assert SECRET not in str(told.value)
    assert wrong_with(str(path)) == str(told.value)
    return str(told.value)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_one_that_is_ours_alone_is_read(path: Path, tmp_path: Path, mode: int) -> None:
    path.chmod(mode)
    assert secret_in(str(path)) == SECRET
    assert wrong_with(str(path)) is None
    (tmp_path / "link").symlink_to(path)
    assert secret_in(str(tmp_path / "link")) == SECRET


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666])
def test_one_that_others_can_use_is_refused_with_the_command_that_mends_it(path: Path, mode: int) -> None:
    path.chmod(mode)
    told = refusal(path)
    assert str(path) in told
    assert f"(mode {mode:o})" in told
    (command,) = re.findall(r"chmod 600 .*(?=; if)", told)
    subprocess.run(["/bin/sh", "-c", command], check=True)
    assert secret_in(str(path)) == SECRET


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_one_of_another_user_is_refused(path: Path) -> None:
    os.chown(path, 12345, -1)
    told = refusal(path)
    assert "uid 12345" in told
    subprocess.run(["/bin/sh", "-c", told[told.index("chown") :]], check=True)
    assert secret_in(str(path)) == SECRET


def test_what_holds_none_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    contents = {"empty": b" \n", "long": SECRET.encode() * MOST_BYTES, "no text": b"\xff" + SECRET.encode()}
    for name, content in contents.items():
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_bytes(content)
    for name in ("nothing", "pipe", "folder", *contents):
        assert str(tmp_path / name) in refusal(tmp_path / name)
    assert "NUL" in refusal(tmp_path / "a\0b")
