"""What ``angelia doctor`` looks at without sending anything: this machine, the data folder, the lock, the port.

What must stay true: each check only looks, takes seconds at most, and says in one sentence what it found, and in a
second one what would mend it.
"""

import os
import stat
import sys
import time
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from shlex import quote
from typing import Any

from angelia import __version__
from angelia.cli import session, stranger
from angelia.client.calls import Calls
from angelia.client.errors import ClientError, TimedOut
from angelia.client.find import Address
from angelia.settings import Settings, SettingsError
from angelia.storage import folder
from angelia.storage.lock import Holder, who_holds

OK, DOUBTFUL, WRONG = "ok", "doubtful", "wrong"
# Below the first the hub soon refuses mail (it keeps space back for acks); below the second it is a matter of days.
_DISK_WRONG, _DISK_DOUBTFUL = 128 * 1024 * 1024, 1024 * 1024 * 1024
_CLOCK_SECONDS = 60
_ANSWER_SECONDS = 3.0
_SQLITE = (3, 35)  # RETURNING


class Finding:
    """One thing that was looked at."""

    __slots__ = ("mend", "name", "state", "text")

    def __init__(self, name: str, state: str, text: str, mend: str = "") -> None:
        """``mend`` says what to do about it."""
        self.name, self.state, self.text, self.mend = name, state, text, mend


def machine(settings: Settings) -> Iterator[Finding]:
    """Python, SQLite, the settings and the clock."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    old = sys.version_info < (3, 11)
    yield Finding(
        "python", WRONG if old else OK, f"{version} at {sys.executable}", "install Python 3.11" if old else ""
    )
    yield _sqlite()
    files = settings.config_file or "no angelia.toml is read"
    chosen = ", ".join(f"{name} by {where}" for name, where in sorted(settings.origins.items()))
    if settings.unknown_variables:
        names = ", ".join(settings.unknown_variables)
        yield Finding(
            "settings", DOUBTFUL, f"{names} is set, and no setting is called so", "look for a slip of the pen"
        )
    else:
        yield Finding("settings", OK, f"{files}; {chosen or 'all as they come'}")
    year = time.gmtime().tm_year
    wrong = not 2026 <= year < 2100
    yield Finding("clock", WRONG if wrong else OK, f"it is {_utc()}", "set the clock of this machine" if wrong else "")


def _utc() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())


def _sqlite() -> Finding:
    try:
        import apsw  # noqa: PLC0415 - that it cannot be loaded is one of the things to find out
    except ImportError as error:
        return Finding("sqlite", WRONG, f"apsw cannot be loaded: {error}", "install angelia again")
    version = apsw.sqlite_lib_version()
    old = tuple(int(part) for part in version.split(".")[:2]) < _SQLITE
    return Finding("sqlite", WRONG if old else OK, version, "install a newer apsw" if old else "")


def data_folder(settings: Settings) -> Iterator[Finding]:
    """The folder, its file system and its disk."""
    path = settings.data_dir
    kind, point = folder.file_system(path)
    try:
        folder.refuse_network(path)
        yield Finding("file system", OK, f"{kind or 'unknown'}, mounted at {point or 'an unknown place'}")
    except folder.UnfitFolder as error:
        yield Finding("file system", WRONG, str(error), "choose a folder on a disk of this machine: --data-dir")
    if not os.path.isdir(path):
        yield _not_there(settings)
        return
    yield _privacy(path)
    found = os.statvfs(path)
    free = found.f_bavail * found.f_frsize
    state = WRONG if free < _DISK_WRONG else DOUBTFUL if free < _DISK_DOUBTFUL else OK
    yield Finding("disk", state, f"{free / 1024**3:.1f} GiB free", "" if state == OK else "make room on this disk")


def _not_there(settings: Settings) -> Finding:
    nearest = settings.data_dir
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    if not os.path.isdir(nearest):
        mend = "move it away, or choose another folder: --data-dir"
        return Finding("data folder", WRONG, f"{nearest} is no folder", mend)
    text = f"{settings.data_dir} is not there yet; {session.command(settings, 'up')} makes it"
    return Finding("data folder", OK, text)


def _privacy(path: str) -> Finding:
    here = os.stat(path)
    if here.st_uid != os.geteuid():
        return Finding(
            "data folder", WRONG, f"{path} belongs to uid {here.st_uid}", f"chown -R {os.geteuid()} {quote(path)}"
        )
    if stat.S_IMODE(here.st_mode) & 0o077:
        return Finding("data folder", WRONG, f"{path} is open to other users", f"chmod 700 {quote(path)}")
    if folder.is_read_only(path):
        text = f"{path} is on a file system that is mounted read-only"
        return Finding("data folder", WRONG, text, "mount it for writing, or choose another folder: --data-dir")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return Finding("data folder", WRONG, f"{path} cannot be written to", f"chmod 700 {quote(path)}")
    return Finding("data folder", OK, f"{path}, private")


def hub(settings: Settings, holder: Holder | None) -> Iterator[Finding]:
    """The lock, who holds it, and what answers on the socket and on the port."""
    if holder is None:
        yield Finding("hub", WRONG, f"none runs on {settings.data_dir}", f"start it: {session.command(settings, 'up')}")
        for host in settings.hosts if settings.port else ():
            yield _free(host, settings.port)
        return
    if not holder.ready:
        yield Finding("hub", DOUBTFUL, f"{holder}; it is starting, or replacing itself", "look again in a moment")
        return
    yield Finding("hub", OK, str(holder))
    same = holder.version == __version__
    replacing = session.command(settings, "up --replace")
    mend = "" if same else f"start the hub again, so that both are the same: {replacing}"
    yield Finding("version", OK if same else DOUBTFUL, f"the hub is {holder.version}, this is {__version__}", mend)
    yield _socket(holder, f"start the hub again: {replacing}")


def _free(host: str, port: int) -> Finding:
    who = stranger.who_answers(host, port)
    if who == stranger.NOBODY:
        return Finding("port", OK, f"nobody is on {host}, port {port}")
    return Finding("port", WRONG, f"{who} is on {host}, port {port}", "end that program, or choose a port: --port")


def _socket(holder: Holder, mend: str) -> Finding:
    path = holder.socket or ""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        return Finding("socket", WRONG, f"{path}: {error.strerror}", mend)
    if not stat.S_ISSOCK(mode) or stat.S_IMODE(mode) & 0o077:
        return Finding("socket", WRONG, f"{path} is not a private socket", mend)
    return Finding("socket", OK, f"{path}, private")


def health(address: Address, holder: Holder, settings: Settings) -> Generator[Finding, None, bool]:
    """Whether it is our hub that answers at an address, whether it is well, and what it takes the time to be. Returns
    False where it took the call and did not answer: it hangs, and whatever else is asked of it would only wait."""
    name = f"health at {address}"
    try:
        with Calls(address, answer_seconds=_ANSWER_SECONDS) as calls:
            found = calls.health()
    except TimedOut as error:
        text = f"{error}; what else is asked of it was not looked at"
        down, up = (session.command(settings, word) for word in ("down", "up"))
        yield Finding(name, WRONG, text, f"look at the hub's log; if it stays so: {down} && {up}")
        return False
    except ClientError as error:
        mend = f"look at the hub's log, and start it again: {session.command(settings, 'up --replace')}"
        if "certificate" in str(error).lower():
            mend = "where a CA of your own signed it, look under SSL_CERT_FILE=FILE, and start the hub so, too"
        yield Finding(name, WRONG, str(error), mend)
        return True
    yield from _answered(name, found, holder, settings)
    return True


def _answered(name: str, found: dict[str, Any], holder: Holder, settings: Settings) -> Iterator[Finding]:
    if found.get("pid") != holder.pid and not holder.elsewhere:
        text = f"another hub answers there: pid {found.get('pid')}, data folder {found.get('data_dir')}"
        yield Finding(name, WRONG, text, "stop one of the two")
        return
    if found.get("status") != "ok":
        yield Finding(name, WRONG, f"the hub is unwell: {found.get('failing')}", "look at its log and at the disk")
        return
    yield Finding(name, OK, f"well; it tests itself in {found.get('self_test', {}).get('milliseconds')} ms")
    drift = _drift(found)
    if abs(drift) > _CLOCK_SECONDS:
        text = f"the hub's time is {drift:+.0f} s off this machine's, whose clock was set while it ran"
        again = session.command(settings, "up --replace")
        yield Finding("clock of the hub", DOUBTFUL, text, f"start the hub again: {again}")


def _drift(found: dict[str, object]) -> float:
    """Seconds between the hub's last self-test, by its clock, and now; the test is some seconds old at most."""
    test = found.get("self_test")
    at = test.get("at") if isinstance(test, dict) else None
    try:
        return datetime.fromisoformat(str(at)).timestamp() - datetime.now(UTC).timestamp()
    except ValueError:
        return 0.0


def holder_of(settings: Settings) -> Holder | None:
    """Who holds the folder; None too where the lock cannot be looked at, which the folder's check then tells."""
    try:
        return who_holds(settings.data_dir, patient=True)
    except (folder.UnfitFolder, SettingsError):
        return None
