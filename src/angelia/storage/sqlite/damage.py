"""Looking for the messages that are damaged, once a statement has met one that it could not even read.

What must stay true: it only reads, on a thread and a connection of its own, and what it finds is for the writer to set
aside. It runs once at a time, and not again for a while: what it cannot find, it will not find the next time.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import apsw

from angelia.storage.sqlite.connect import open_reader
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import is_whole, name_of

UNKNOWN = 0  # in place of a message's number, which begins with 1
ROWS = 500  # some ms of looking; then others get a turn
REST_SECONDS = 0.002
AGAIN_SECONDS = 60.0

_RAW_MESSAGES = SQL["raw_messages"]
_log = logging.getLogger(__name__)


class DamageSearch:
    """Belongs to the loop. ``damaged`` is told, in the search's thread, the number and id of each that it finds."""

    def __init__(self, path: Path, vfs: str | None, damaged: Callable[[int, str], None]) -> None:
        self._path, self._vfs, self._damaged = path, vfs, damaged
        self._stopped = Event()
        self._thread: Thread | None = None
        self._next = 0.0

    def begin(self) -> None:
        """Search, unless that is being done or was done a moment ago."""
        if monotonic() < self._next or self._stopped.is_set():
            return
        self._next = float("inf")
        _log.error("the store is damaged: something in it cannot be read; looking for the messages that it is in")
        self._thread = Thread(target=self._search, name="angelia-damage", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give it up."""
        self._stopped.set()

    async def ended(self) -> None:
        """Wait until it has let go of the file: some ms, once it was given up."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _search(self) -> None:
        try:
            found = self._look()
            _log.error("looked at all messages: %d are damaged", found)
        except apsw.Error as error:
            _log.error("the store is damaged where messages lie (%s): stop the hub, and put a copy back", error)
        except RuntimeError:
            _log.debug("the loop is gone; nobody is left to tell")
        finally:
            self._next = monotonic() + AGAIN_SECONDS

    def _look(self) -> int:
        desk = open_reader(self._path, self._vfs)
        found = number = 0
        try:
            while rows := desk.run(_RAW_MESSAGES, (number, ROWS)):
                for row in rows:
                    if not is_whole(row):
                        found += 1
                        self._damaged(row[-1], name_of(row))
                number = rows[-1][-1]
                if self._stopped.wait(REST_SECONDS):
                    break
        finally:
            desk.close()
        return found
