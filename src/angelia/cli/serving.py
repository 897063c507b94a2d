"""Between ``angelia up`` and the hub itself: loop, log, limits of the process, and what its end means.

What must stay true: nothing here knows what a hub is made of; that is ``app.py``. This is loaded once the lock is held.
"""

import gc
import logging
import os
import resource
import socket
import sys
from collections.abc import Callable

import uvloop

from angelia import app
from angelia.cli import exits, hub_log, session, stdio
from angelia.ending import End, Ending
from angelia.model.errors import AngeliaError, OutcomeUnknown
from angelia.settings import Settings, SettingsError
from angelia.storage.folder import UnfitFolder
from angelia.storage.lock import FolderLock

log = logging.getLogger("angelia.hub")
# A stream takes one, and there may be 12,000; the kernel's own bound for a process is lower on macOS.
FILES_WANTED = 16_384
FILES_MACOS = 10_240
# Messages are freed by their counts; the collector finds nothing in them, and would look at each some times: a tenth of
# the time. What the program itself is made of is never looked at again.
COLLECT_AFTER = 50_000
FAILED_AT_START = (
    "The store could not be used: it failed while the hub started, and the log says how. What was accepted before is "
    "there. Look at the disk, and start the hub again."
)


class StoreUnfit(Exception):
    """The store could not be opened; the text says why. ``asked``: somebody had asked for the end."""

    def __init__(self, words: str, *, asked: bool) -> None:
        super().__init__(words)
        self.asked = asked


def serve(
    settings: Settings,
    lock: FolderLock,
    tcp: list[socket.socket],
    unix: socket.socket,
    announce: Callable[[list[str]], None],
) -> int | None:
    """Serve until the end; the exit code, or None where the hub has to replace itself."""
    path = f"{settings.data_dir}/hub.log"
    handler = hub_log.start(settings.log_level, path, in_json=settings.log_json)
    on_terminal = any(os.isatty(number) for number in (0, 1, 2))

    def hang_up() -> None:
        if not on_terminal:
            log.info("SIGHUP means nothing to a hub without a terminal; it goes on")
            return
        stdio.leave_terminal(path)
        log.info("the terminal is gone; the hub goes on, and logs here; end it: %s", session.command(settings, "down"))

    ending = Ending()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)
    try:
        uvloop.run(app.serve(settings, lock, tcp, unix, announce, hang_up, _allow_files(), ending))
    except (SettingsError, UnfitFolder):
        raise
    except Exception as error:
        asked = ending.reason is End.ASKED
        if (words := app.no_room(settings.data_dir, error)) is not None:
            raise StoreUnfit(words, asked=asked) from error
        if isinstance(error, OutcomeUnknown):
            raise StoreUnfit(FAILED_AT_START, asked=asked) from error
        if isinstance(error, AngeliaError):
            raise StoreUnfit(error.detail, asked=asked) from error
        log.exception("the hub ends by a fault of its own; what was accepted is on disk")
        return exits.NO
    finally:
        ending.obey_at_once()
        handler.finish()
    assert ending.reason is not None
    return _CODES[ending.reason]


# What a supervisor would start after the store was taken away would begin with an empty one.
_CODES = {
    End.ASKED: exits.DONE, End.LOCK_LOST: exits.NO, End.STORE_GONE: exits.TAKEN,
    End.STORE_FAILED: None,
}  # fmt: skip


def _allow_files() -> int:
    """Raise the number of files that this process may have open, as far as it may; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MACOS if sys.platform == "darwin" else FILES_WANTED
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        log.warning("only %d files may be open at once: more streams than that cannot be", soft)
        return soft
    return wanted
