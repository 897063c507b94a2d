"""``angelia down``: stop the hub of a data folder.

What must stay true: only a process that holds the folder's lock at that moment is ever signalled, and only asked to end
(SIGTERM), never killed. A pid in a file counts for nothing. It says when the lock is free, not when it has asked.
"""

import os
import signal
import time

from angelia.cli import exits, parse, say, session, stdio
from angelia.client.connection import Connection
from angelia.client.errors import ClientError
from angelia.client.find import Address
from angelia.settings import Settings
from angelia.storage.lock import Holder, who_holds

ASK_SECONDS = 2.0
END_SECONDS = 10.0
_POLL_SECONDS = 0.02


class NotStopped(Exception):
    """The hub still runs; the text says why."""

    def __init__(self, text: str, code: int) -> None:
        """Takes the exit code that goes with it."""
        super().__init__(text)
        self.code = code


def run(argv: list[str], settings: Settings) -> int:
    """The command."""
    made = parse.parser("down", "Stop the hub of a data folder. Nothing that it has accepted is lost.", "angelia down")
    given = parse.parse(made, argv)
    session.owners_only(settings)
    holder = who_holds(settings.data_dir)
    if holder is None:
        raise session.NoHubHere(settings, advised=False)
    try:
        seconds = stop(holder)
    except NotStopped as error:
        say.fault(exits.WORDS[error.code], str(error), as_json=given.json)
        return error.code
    if given.json:
        say.data({"stopped": True, "pid": holder.pid, "seconds": round(seconds, 2)})
    else:
        stdio.tell(f"Stopped: {holder}.")
    return exits.DONE


def stop(holder: Holder) -> float:
    """Ask the holder to end and wait until it has; how many seconds that took. Raises ``NotStopped``."""
    begun = time.monotonic()
    if not _ask(holder):
        _signal(holder)
    while time.monotonic() < begun + END_SECONDS:
        now = who_holds(holder.data_dir)
        if now is None or now.pid != holder.pid:
            return time.monotonic() - begun
        time.sleep(_POLL_SECONDS)
    raise NotStopped(
        f"the hub was asked to end and still holds {holder.data_dir} after {END_SECONDS:g} s: {holder}. "
        f"It does not end by itself; what it has accepted is on disk, and this ends it and loses nothing: "
        f"kill -9 {holder.pid}",
        exits.TIMED_OUT,
    )


def _ask(holder: Holder) -> bool:
    """Ask over the hub's own socket; True when it said yes."""
    if holder.socket is None:
        return False
    connection = Connection(Address(path=holder.socket))
    try:
        status, _ = connection.request("POST", "/v1/down", seconds=ASK_SECONDS)
    except ClientError:
        return False
    finally:
        connection.close()
    return 200 <= status < 300


def _signal(holder: Holder) -> None:
    """SIGTERM to the process that has the lock, and to no other that may have got its number meanwhile."""
    if holder.elsewhere:
        raise NotStopped(f"the hub that holds {holder.data_dir} runs where it cannot be reached: {holder}", exits.NO)
    handle = None
    try:
        if hasattr(os, "pidfd_open"):
            handle = os.pidfd_open(holder.pid)
        # Looked at again with the process in hand: if it still has the lock now, it is the one.
        now = who_holds(holder.data_dir)
        if now is None or now.pid != holder.pid:
            return
        if handle is not None:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
        else:
            os.kill(holder.pid, signal.SIGTERM)
    except ProcessLookupError:
        return  # it has just ended
    except PermissionError:
        raise NotStopped(f"the hub belongs to another user: {holder}", exits.NO) from None
    finally:
        if handle is not None:
            os.close(handle)
