"""Tokens: kept for one name, read for that name alone, and nobody else's to see."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from angelia.cli import tokens
from angelia.cli.exits import Refused, UsageError


def test_saved_is_read(data_dir: Path) -> None:
    path = tokens.save(str(data_dir), "scout", "secret-1")
    assert path == str(data_dir / "tokens" / "scout")
    assert tokens.read(str(data_dir), "scout") == "secret-1"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(data_dir / "tokens").st_mode) == 0o700
    assert os.listdir(data_dir / "tokens") == ["scout"]


def test_names_are_compared_without_regard_to_case(data_dir: Path) -> None:
    tokens.save(str(data_dir), "Scout", "secret-1")
    assert tokens.read(str(data_dir), "scout") == "secret-1"
    tokens.save(str(data_dir), "SCOUT", "secret-2")
    assert os.listdir(data_dir / "tokens") == ["SCOUT"]
    assert tokens.read(str(data_dir), "Scout") == "secret-2"
    tokens.forget(str(data_dir), "scout")
    assert tokens.find(str(data_dir), "Scout") is None


def test_one_that_others_can_read_is_refused_with_the_command_that_closes_it(data_dir: Path) -> None:
    path = tokens.save(str(data_dir), "scout", "secret-1")
    os.chmod(path, 0o640)
    with pytest.raises(Refused, match="chmod 600") as refused:
        tokens.read(str(data_dir), "scout")
    assert "secret-1" not in str(refused.value)
    os.chmod(path, 0o600)
    assert tokens.read(str(data_dir), "scout") == "secret-1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_one_that_somebody_else_put_there_is_refused(data_dir: Path) -> None:
    """Whoever gave it would read what its name is told."""
    os.chown(tokens.save(str(data_dir), "scout", "secret-1"), 12345, -1)
    with pytest.raises(Refused, match="uid 12345") as refused:
        tokens.read(str(data_dir), "scout")
    assert "secret-1" not in str(refused.value)


def test_nobody_gets_anothers(data_dir: Path) -> None:
    tokens.save(str(data_dir), "scout", "secret-1")
    assert tokens.read(str(data_dir), "scou") is None
    assert tokens.read(str(data_dir), "scout2") is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", "-x", "_x", "a b", "ä", "a\0b", "x" * 65, "a.b"]
)
def test_what_is_no_name_never_becomes_a_path(data_dir: Path, name: str) -> None:
    (data_dir / "tokens").mkdir()
    (data_dir / "tokens" / "x").touch()
    with pytest.raises(UsageError):
        tokens.check_name(name)
    with pytest.raises(UsageError):
        tokens.save(str(data_dir), name, "secret")


def test_a_name_may_hold_dashes_and_underscores() -> None:
    for name in ("a", "A-1_b", "9", "x" * 64):
        assert tokens.check_name(name) == name


def test_a_file_that_holds_no_token(data_dir: Path) -> None:
    for content in (b"", b"\n", b"two words", b"\xff\xfe", b"a\nb"):
        tokens.save(str(data_dir), "scout", "x")
        (data_dir / "tokens" / "scout").write_bytes(content)
        with pytest.raises(Refused):
            tokens.read(str(data_dir), "scout")


def test_many_at_once_leave_one_whole_token_and_nothing_else(data_dir: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(lambda number: tokens.save(str(data_dir), "scout", f"secret-{number}"), range(64)))
    assert set(kept) == {str(data_dir / "tokens" / "scout")}
    assert os.listdir(data_dir / "tokens") == ["scout"]
    assert str(tokens.read(str(data_dir), "scout")).startswith("secret-")
