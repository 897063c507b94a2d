"""``angelia up``: serve a data folder.

What must stay true:

- The order: private folder, lock, sockets, and only then what is slow to load. Of any number of starts at once one
  serves; the others name it, change nothing, and end with 3. A port that is taken is told before the store is opened.
- "It runs" is said only when it does: sockets bound, store checked, doors open.
- The hub's end leaves no socket, no note and no lock behind; a store that failed is no end (``restart.py``).
"""

import argparse
import errno
import os
import sys
import time
from collections.abc import Callable

from angelia import __version__
from angelia.cli import exits, parse, restart, say, session, stdio
from angelia.doors.http import listen
from angelia.settings import Settings, SettingsError
from angelia.storage import folder
from angelia.storage.lock import FolderLock, FolderTaken, Holder, who_holds

EXAMPLE = """
angelia up
angelia up --detach --port 18901 --data-dir ~/other-hub"""
# A reader that stalls is cut by the hub (after limits.stream_stall_seconds), and not before by the kernel: what lies
# in the kernel then counts as read.
UNACKNOWLEDGED_SECONDS = 15.0


class _NotReplaced(Exception):
    """The hub that was to be replaced does not end; the text says how to end it."""


def run(argv: list[str], settings: Settings) -> int:
    """The command."""
    started = time.monotonic()
    stdio.keep_open()
    given = parse.parse(_parser(), argv)
    session.owners_only(settings)
    flags = {name: getattr(given, name) for name in ("port", "data_dir", "durability", "hosts", "log_level")}
    switches = {name: getattr(given, name) or None for name in ("behind_proxy", "log_json")}
    try:
        settings = settings.changed({**flags, **switches})
        refuse_exposure(settings)
        _refuse_open_key(settings)
        folder.prepare(settings.data_dir)
        if given.detach:
            return _detach(settings, given)
        return _serve(settings, given, started)
    except (SettingsError, folder.UnfitFolder, listen.AddressUnusable) as error:
        _tell(settings, given, "wrong_settings", str(error))
        return exits.WRONG_SETTINGS
    except FolderTaken as error:
        replacing = session.command(settings, "up --replace")
        _tell(settings, given, "taken", f"{error} Nothing was changed; to stop it and take over: {replacing}")
        return exits.TAKEN
    except _NotReplaced as error:
        _tell(settings, given, "not_stopped", str(error))
        return exits.TAKEN
    except OSError as error:
        # Such as a log, on a full disk, that could not take the words: now there is the room that the store had.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        from angelia import app

        _tell(settings, given, "store_unfit", str(app.no_room(settings.data_dir, error)))
        return exits.NO
    finally:
        stdio.settle()


def _parser() -> argparse.ArgumentParser:
    made = parse.parser("up", "Serve a data folder until it is stopped (Ctrl-C, or angelia down).", EXAMPLE)
    made.add_argument("--detach", action="store_true", help="run on without this terminal; returns when it serves")
    made.add_argument("--replace", action="store_true", help="stop the hub that serves the folder, and take over")
    made.add_argument("--port", metavar="N", help="the TCP port (18900)")
    made.add_argument("--host", metavar="ADDRESS", action="append", dest="hosts", help="an address to listen on")
    made.add_argument("--behind-proxy", action="store_true", help="a proxy in front does TLS: allow other addresses")
    made.add_argument("--data-dir", metavar="DIR", help="the data folder")
    made.add_argument("--durability", metavar="HOW", help="full (default): each commit is on disk first; or normal")
    made.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    made.add_argument("--log-json", action="store_true", help="the log is JSON, an object a line, and all there is")
    made.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    made.add_argument("--handover", type=restart.Handover.read, help=argparse.SUPPRESS)
    return made


def refuse_exposure(settings: Settings) -> None:
    """Raise ``SettingsError`` where others could reach the hub, and read along on the way."""
    if settings.beyond_loopback and not settings.behind_proxy and settings.tls_certificate is None:
        hosts = ", ".join(settings.beyond_loopback)
        allowed = "127.0.0.1 and ::1; or tls_certificate and tls_key; or --behind-proxy, where a proxy does TLS"
        raise SettingsError(settings.where("hosts"), f"other machines reach {hosts}, and there is no TLS", allowed)


def _refuse_open_key(settings: Settings) -> None:
    if settings.tls_certificate is None:
        return
    from angelia.cli import tls_key

    if (wrong := tls_key.wrong_with(settings)) is not None:
        problem, mend = wrong
        where = settings.where(tls_key.setting(settings))
        raise SettingsError(where, f"{problem}. To close it: {mend}; if somebody may have read it, have a new one made")


def log_path(settings: Settings) -> str:
    """Where a hub without a terminal writes."""
    return os.path.join(settings.data_dir, "hub.log")


def _detach(settings: Settings, given: argparse.Namespace) -> int:
    from angelia.cli import detach

    holder = who_holds(settings.data_dir, patient=True)
    if holder is not None:
        if not given.replace:
            raise FolderTaken(holder)
        _stop(settings, given, holder)
    _check_limits(settings)
    return detach.start(log_path(settings), session.command(settings, "down"), as_json=given.json)


def _serve(settings: Settings, given: argparse.Namespace, started: float) -> int:
    lock = _own(settings, given)
    mask = os.umask(0o077)  # whatever is made from here on is ours alone, by whichever library
    try:
        wanted = given.handover.port if given.handover else settings.port
        lock.publish(port=wanted, socket=settings.socket_path, version=__version__, ready=False)
        _check_limits(settings)
        try:
            tcp = listen.listen_tcp(settings.hosts, wanted, max(settings.keepalive_seconds, UNACKNOWLEDGED_SECONDS))
        except listen.AddressTaken as error:
            return _taken(settings, given, error)
        port = tcp[0].getsockname()[1]
        folder.private(os.path.dirname(settings.socket_path))
        unix = listen.listen_unix(settings.socket_path)
        # The lock and the port are ours: now what takes long.
        from angelia.cli import serving

        try:
            code = serving.serve(settings, lock, tcp, unix, _announcer(settings, given, port))
        except serving.StoreUnfit as error:
            _tell(settings, given, "store_unfit", str(error))
            # After a failed commit the disk may need a moment; a store that was never opened here needs a person.
            code = None if given.handover and not error.asked else exits.NO
        finally:
            listen.remove_unix(settings.socket_path)
        return _restart(settings, given, lock, port, started) if code is None else code
    finally:
        os.umask(mask)
        lock.release()


def _own(settings: Settings, given: argparse.Namespace) -> FolderLock:
    if given.handover:
        return FolderLock.adopt(settings.data_dir, given.handover.descriptor)
    try:
        return FolderLock.acquire(settings.data_dir)
    except FolderTaken as taken:
        if not given.replace:
            raise
        _stop(settings, given, taken.holder)
        return FolderLock.acquire(settings.data_dir)


def _check_limits(settings: Settings) -> None:
    """Raise ``SettingsError`` for a limit that there is not, before a port is looked at. What knows them is slow."""
    if settings.limits:
        from angelia.app import limits_of

        limits_of(settings)


def _tell(settings: Settings, given: argparse.Namespace, event: str, words: str) -> None:
    """Say what there is to say while there is no log yet, or no more."""
    if not settings.log_json:
        say.fault(event, words, as_json=given.json)
        return
    from angelia.cli import log_line

    print(
        log_line.as_json(log_line.Line(time.time(), "error", "angelia.up", event, log_line.safe(words))),
        file=sys.stderr,
    )


def _stop(settings: Settings, given: argparse.Namespace, holder: Holder) -> None:
    from angelia.cli import down

    try:
        down.stop(holder)
    except down.NotStopped as error:
        raise _NotReplaced(str(error)) from None
    if not settings.log_json:
        stdio.tell(f"Stopped the hub that served {holder.data_dir}: {holder}.")


def _taken(settings: Settings, given: argparse.Namespace, error: listen.AddressTaken) -> int:
    from angelia.cli import stranger

    who = stranger.who_answers(error.host, error.port)
    other = error.port % 65535 + 1
    words = f"{error} by {who}. Nothing was changed; choose another port, such as --port {other}"
    if who == stranger.NOBODY:
        # SO_REUSEADDR binds over what is left of a listener's connections, not over a near end that did not ask for it.
        words = (
            f"{error}, though nobody listens there: it is the near end of a connection, or was within the last minute, "
            "or a program keeps it without listening. Nothing was changed; try again in a minute, or choose another "
            f"port, such as --port {other}"
        )
    _tell(settings, given, "taken", words)
    return exits.TAKEN


def _restart(settings: Settings, given: argparse.Namespace, lock: FolderLock, port: int, started: float) -> int:
    """The store failed. Comes back only when a restart cannot help."""
    try:
        quick = restart.may_restart(given.handover, time.monotonic() - started, time.sleep)
        restart.replace_self(lock, port, quick)
    except restart.GivingUp as error:
        words = f"{error} Look at the disk, then: {session.command(settings, 'doctor')}"
        _tell(settings, given, "giving_up", words)
    except OSError as error:
        words = f"the hub cannot start itself again ({error.strerror}); start it: {session.command(settings, 'up')}"
        _tell(settings, given, "giving_up", words)
    return exits.NO


def _announcer(settings: Settings, given: argparse.Namespace, port: int) -> Callable[[list[str]], None]:
    """What to do when the hub serves on these addresses."""

    def announce(urls: list[str]) -> None:
        if given.handover:
            return
        words = _banner(settings, urls)
        if given.ready_fd is None and settings.log_json:
            return  # the log says it
        if given.ready_fd is None:
            stdio.tell(words + "\nCtrl-C ends it; nothing accepted is lost.")
            return
        from angelia.cli import detach

        detach.announce(given.ready_fd, words)

    return announce


def _banner(settings: Settings, urls: list[str]) -> str:
    return f"""\
Angelia {__version__} serves (pid {os.getpid()}).
  address      {" and ".join(urls)}
  data folder  {settings.data_dir} (durability: {settings.durability})
  socket       {settings.socket_path} (yours alone)
To listen, in a second terminal:
  curl -N '{urls[0]}/subscribe?agent=openclaw'
To send, in a third:
  curl '{urls[0]}/broadcast?from=hermes&to=openclaw' -d '{{"text": "hello"}}'"""
