"""File systems made for a rig: a disk whose power can be cut, and one that is small.

What must stay true: whatever was mounted here is gone afterwards, however the rig ends. A rig runs in a mount namespace
of its own (``apart``), so that nobody else sees its mounts, and the kernel takes them away with its last process, loop
devices too.
"""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D
NOLOGFLUSH = 2  # the journal stays as it is on the disk
COMMAND_SECONDS = 60
# Space that a hub keeps back, twice over, and room for what is sent. The file is sparse.
IMAGE_BYTES = 256 * 1024 * 1024
_APART = "--apart"
# Room for three images that are a third full. In memory a copy costs 30 ms, and nobody else's disk is kept busy.
_MEMORY, _MEMORY_BYTES = Path("/dev/shm"), 512 * 1024 * 1024


def why_not() -> str | None:
    """Why file systems cannot be mounted here; None where they can."""
    if sys.platform != "linux":
        return "takes Linux: its mount namespaces, ext4 and loop devices"
    if os.geteuid() != 0:
        return "mounting takes root"
    for command in ("unshare", "mount", "umount", "mkfs.ext4"):
        if shutil.which(command, path=_paths()) is None:
            return f"mounting takes the command {command}"
    with tempfile.TemporaryDirectory(prefix="ang-try-") as folder:
        image = Path(folder, "image")
        _make(image, 8 * 1024 * 1024)
        tried = _run("unshare", "--mount", "mount", "-o", "loop", str(image), folder, check=False)
    return f"a loop device cannot be mounted here: {tried.stderr.decode().strip()}" if tried.returncode else None


def apart(module: str, words: Sequence[str]) -> list[str]:
    """Run this program anew in a mount namespace of its own, unless it does already; its arguments."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # as an interrupt does: everything is put away
    if _APART in words:
        return [word for word in words if word != _APART]
    command = shutil.which("unshare", path=_paths()) or "unshare"
    os.execv(command, ["unshare", "--mount", sys.executable, "-m", module, *words, _APART])


class Disk:
    """A disk of its own, with ext4 on it, mounted at ``place``. ``cut`` takes its power; ``again`` gives it back."""

    def __init__(self, place: Path, options: str = "") -> None:
        self.place = place
        self._options = ",".join(each for each in ("loop", options) if each)
        roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES
        self._folder = Path(tempfile.mkdtemp(prefix="ang-disk-", dir=_MEMORY if roomy else None))
        self._image, self._count = self._folder / "0", 0
        self._mounted = False
        place.mkdir(exist_ok=True)
        try:
            _make(self._image, IMAGE_BYTES)
            self._mount()
        except BaseException:
            self.close()
            raise

    def cut(self) -> None:
        """The power goes. What is not on the disk by now will never be; whoever writes or syncs is told of an error."""
        top = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(top, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(top)

    def again(self) -> None:
        """What the disk held when the power went, mounted in its place, for which nobody may have a file open."""
        self._count += 1
        copy = self._folder / str(self._count)
        _run("cp", "--sparse=auto", str(self._image), str(copy))
        self._unmount()
        self._image.unlink()
        self._image = copy
        self._mount()

    def keep(self, into: Path) -> None:
        """Leave a copy of the disk as it is in a file, to look at afterwards."""
        os.sync()
        _run("cp", "--sparse=auto", str(self._image), str(into))

    def close(self) -> None:
        """Away with it."""
        if self._mounted:
            self._unmount()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _mount(self) -> None:
        _run("mount", "-t", "ext4", "-o", self._options, str(self._image), str(self.place))
        self._mounted = True

    def _unmount(self) -> None:
        _run("umount", "--lazy", str(self.place))  # a command may have a file open there yet; it is not waited for
        self._mounted = False


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of this size, in memory, while it lasts."""
    place.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(place))
    try:
        yield place
    finally:
        _run("umount", "--lazy", str(place))


def _make(image: Path, size: int) -> None:
    with image.open("wb") as file:
        file.truncate(size)
    _run("mkfs.ext4", "-q", "-F", str(image))


def _run(*words: str, check: bool = True) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS, check=check,
        env={"PATH": _paths(), "LC_ALL": "C"},
    )  # fmt: skip


def _paths() -> str:
    return os.pathsep.join(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"])
