"""The data folder before anybody serves it: private, on a disk of this machine, and ours to use.

What must stay true: folders that this makes are 0700 and secrets 0600. One that others can enter or read is refused
with the command that mends it, never mended in silence: what it holds may have been read, and its owner should know.
And a network file system is refused before a lock is tried on it, where the lock may hang, or hold on one machine
only, and SQLite's write-ahead log does not work at all. Standard library alone: this runs before anything heavy.
"""

import contextlib
import os
import shlex
import stat
import sys

# As the kernel names them. Their locks, or shared memory between machines, are not to be relied on.
NETWORK_FILE_SYSTEMS = {
    "9p", "afs", "afpfs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "gpfs", "glusterfs", "lustre", "ncpfs",
    "nfs", "nfs4", "ocfs2", "orangefs", "smb2", "smb3", "smbfs", "sshfs", "webdav",
}  # fmt: skip
_NETWORK_FUSE = {
    "ceph", "davfs2", "gcsfuse", "glusterfs", "goofys", "gvfsd-fuse", "juicefs", "rclone", "s3fs", "sshfs",
}  # fmt: skip
# What lies in it: the secrets by which the hub knows its owner and is known to its like, its mail, and what turns need.
ADMIN_TOKEN, LINK_KEY = SECRETS = ("admin.token", "link.key")
STORE, TURNS = "angelia.db", "turns"
# What tells an Angelia folder from any other; a new one is empty, and on macOS the configuration file may be there.
_OURS = {"hub.lock", "angelia.toml"}


class UnfitFolder(Exception):
    """The data folder cannot be used; the text says why, and what would mend it."""


def prepare(data_dir: str, mounts: str | None = None) -> None:
    """Make the data folder, or take the one that is there; raise ``UnfitFolder`` where it cannot be used."""
    refuse_network(data_dir, mounts)
    private(data_dir)


def private(path: str) -> None:
    """Make sure that ``path`` is a folder of ours that nobody else can enter."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise UnfitFolder(f"{path} is no folder.")
        if found.st_uid != os.geteuid():
            raise UnfitFolder(f"{path} belongs to another user (uid {found.st_uid}), this is uid {os.geteuid()}.")
        if stat.S_IMODE(found.st_mode) & 0o077:
            _close(path, os.listdir(path))
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            if is_read_only(path):
                raise UnfitFolder(f"{path} is on a file system that is mounted read-only.")
            raise UnfitFolder(f"{path} cannot be written to: chmod 700 {path}")
    except OSError as error:
        raise UnfitFolder(f"{error.filename or path} cannot be used: {error.strerror}.") from None


def is_read_only(path: str) -> bool:
    """Whether nothing can be written on the file system under ``path``, whatever its permissions say."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _close(path: str, names: list[str]) -> None:
    """Shut others out of a folder that holds nothing; any other is for its owner to change."""
    mend = f"chmod 700 {shlex.quote(path)}"
    if names and not _OURS.intersection(names):
        raise UnfitFolder(
            f"{path} is open to others and holds other things than a hub's. Choose another folder, or: {mend}"
        )
    if names:
        raise UnfitFolder(f"{path} is open to others, who may have read what it holds. To close it: {mend}")
    os.chmod(path, 0o700)


def refuse_network(data_dir: str, mounts: str | None = None) -> None:
    """Raise ``UnfitFolder`` where the folder, or the nearest one above that exists, is on a network file system."""
    kind, mount_point = file_system(data_dir, mounts)
    if kind in NETWORK_FILE_SYSTEMS or kind.removeprefix("fuse.") in _NETWORK_FUSE:
        raise UnfitFolder(
            f"{data_dir} is on a network file system ({kind}, mounted at {mount_point}): its locks do not keep a "
            "second hub out, and SQLite cannot work on it. Choose a folder on a disk of this machine: --data-dir"
        )


def file_system(path: str, mounts: str | None = None) -> tuple[str, str]:
    """The kind of file system under ``path``, and where it is mounted; ("", "") when that cannot be found out.

    ``mounts`` stands in for /proc/self/mountinfo. On macOS the kind is "network" unless ``mount`` says local.
    """
    if sys.platform == "darwin" and mounts is None:
        return _of_macos(path)
    if mounts is None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                mounts = file.read()
        except OSError:
            return "", ""
    best = ("", "")
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = _plain(fields[4])
        # A later mount at the same place covers the earlier one.
        if _is_under(path, point) and len(point) >= len(best[1]):
            best = (right.split(" ")[0], point)
    return best


def _of_macos(path: str) -> tuple[str, str]:
    best = ("", "")
    with os.popen("/sbin/mount") as listing:
        for line in listing:
            _, _, rest = line.rstrip("\n").partition(" on ")
            point, _, words = rest.rpartition(" (")
            options = words.rstrip(")").split(", ")
            if _is_under(path, point) and len(point) >= len(best[1]):
                best = (options[0] if "local" in options else "smbfs", point)
    return best


def _is_under(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")


def _plain(field: str) -> str:
    r"""A path as mountinfo writes it, where space, tab, newline and backslash stand as \040 and so on."""
    for escape, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(escape, sign)
    return field


def secret(path: str) -> str:
    """The secret that a private file holds; made, with 256 random bits, where there is none. It appears whole, so that
    no power cut leaves an empty one."""
    if not os.path.lexists(path):
        try:
            _make_secret(path)
        except OSError as error:
            raise UnfitFolder(f"{path} cannot be written: {error.strerror}.") from None
    return kept_secret(path)


def kept_secret(path: str) -> str:
    """The secret that a private file holds; raises ``UnfitFolder`` where there is none that can be used."""
    found = _read_secret(path)
    if len(found) < 32:
        raise UnfitFolder(f"{path} holds no secret; remove it, and a new one is made.")
    return found


def _make_secret(path: str) -> None:
    part = f"{path}.{os.getpid()}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(os.urandom(32).hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # somebody was quicker: theirs stands
            os.link(part, path)
    finally:
        os.unlink(part)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_secret(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe never opens
    except OSError as error:
        raise UnfitFolder(f"{path} cannot be read: {error.strerror}.") from None
    with open(descriptor, encoding="ascii", errors="replace") as file:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o077:
            raise UnfitFolder(
                f"{path} is a secret, and others can read it (mode {mode:o}). To close it: chmod 600 "
                f"{shlex.quote(path)}. If somebody may have read it, remove it instead, and a new one is made."
            )
        return file.read(1024).strip()
