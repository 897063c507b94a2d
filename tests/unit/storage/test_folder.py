"""The data folder: private, ours, on a disk of this machine."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from angelia.storage.folder import UnfitFolder, file_system, is_read_only, prepare, private, secret

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /home rw - btrfs /dev/vdb rw
24 23 0:30 / /home/me/my\\040share rw - nfs4 server:/x rw
25 22 0:31 / /mnt/ssh rw shared:9 - fuse.sshfs me@there:/ rw
26 22 0:32 / /mnt/disk rw - fuse.ext4 /dev/vdc rw
27 22 0:33 / /mnt/twice rw - nfs server:/y rw
28 22 0:34 / /mnt/twice rw - tmpfs tmpfs rw
29 22 0:35 / /c rw - 9p drvfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/x", "ext4"),
        ("/home/you", "btrfs"),
        ("/home/me/my share/data", "nfs4"),
        ("/home/me/my share2", "btrfs"),
        ("/mnt/ssh", "fuse.sshfs"),
        ("/mnt/twice/x", "tmpfs"),
        ("/c/Users", "9p"),
    ],
)
def test_the_mount_that_a_path_is_on(path: str, kind: str) -> None:
    assert file_system(path, MOUNTS)[0] == kind


@pytest.mark.parametrize("path", ["/home/me/my share/data", "/mnt/ssh/data", "/c/data"])
def test_a_network_file_system_is_refused_in_words(path: str) -> None:
    with pytest.raises(UnfitFolder, match="network file system"):
        prepare(path, MOUNTS)


def test_a_folder_of_this_machine_is_made_and_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    prepare(str(path))
    assert path.stat().st_mode & 0o777 == 0o700
    prepare(str(path))


def test_an_open_folder_is_closed_while_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty").chmod(0o755)
    private(str(tmp_path / "empty"))
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701, 0o770, 0o777])
def test_a_hubs_folder_that_is_open_is_refused_with_the_command_that_closes_it(tmp_path: Path, mode: int) -> None:
    ours = tmp_path / "a hub's"
    ours.mkdir()
    (ours / "hub.lock").touch()
    ours.chmod(mode)
    with pytest.raises(UnfitFolder) as refused:
        private(str(ours))
    assert ours.stat().st_mode & 0o777 == mode
    mend(refused.value)
    private(str(ours))


def mend(refused: UnfitFolder) -> None:
    """Do what it says, as a person would paste it."""
    command = str(refused).partition(": chmod ")[2]
    words = shlex.split("chmod " + command.split(". If ")[0])
    subprocess.run(words, check=True)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o755)
    (tmp_path / "home" / "letters").touch()
    with pytest.raises(UnfitFolder, match="chmod 700"):
        private(str(tmp_path / "home"))
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o755


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link", "file/below"):
        with pytest.raises(UnfitFolder):
            private(str(tmp_path / name))


def test_a_secret_is_made_once_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    made = secret(str(path))
    assert len(made) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret(str(path)) == made
    path.write_text("short")
    with pytest.raises(UnfitFolder, match="no secret"):
        secret(str(path))
    assert os.listdir(tmp_path) == ["admin.token"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o666])
def test_a_secret_that_others_can_read_is_refused_with_the_command_that_closes_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "admin token"
    made = secret(str(path))
    path.chmod(mode)
    with pytest.raises(UnfitFolder) as refused:
        secret(str(path))
    assert made not in str(refused.value)
    assert path.stat().st_mode & 0o777 == mode
    mend(refused.value)
    assert secret(str(path)) == made


def test_a_secret_behind_a_link_or_in_a_pipe_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("x" * 64)
    (tmp_path / "elsewhere").chmod(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "pipe"):
        with pytest.raises(UnfitFolder):
            secret(str(tmp_path / name))


def test_a_file_system_that_is_mounted_read_only_is_known_as_such(tmp_path: Path) -> None:
    assert not is_read_only(str(tmp_path))
    mounts = Path("/proc/mounts").read_text() if Path("/proc/mounts").exists() else ""
    fixed = [fields[1] for fields in map(str.split, mounts.splitlines()) if "ro" in fields[3].split(",")]
    fixed = [point for point in fixed if os.path.isdir(point) and os.access(point, os.X_OK)]
    if not fixed:
        pytest.skip("nothing here is mounted read-only")
    assert is_read_only(fixed[0])
