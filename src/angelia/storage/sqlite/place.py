"""Whether the files of the store are still the ones at their paths.

Whoever removes or replaces one does not stop SQLite: that goes on with a file that has no name, and that is gone with
the process.

What must stay true: a look only asks for the names, since to open a store's file and close it again would end SQLite's
locks on it. What was found lost stays so: nothing is accepted into it any more, nothing is taken away at its paths, and
no new store is made there by the hub that saw it.
"""

import logging
import os
from pathlib import Path
from time import monotonic

from angelia.storage import backups
from angelia.storage.sqlite.connect import in_a_line

LOOK_SECONDS = 1.0  # between two looks of a busy writer: what is accepted meanwhile may be lost with the file
ENDS = ("", "-wal", "-shm")
GONE_DETAIL = (
    "The store's file was removed or replaced while the hub ran. Nothing was stored. The hub ends, and its log says "
    "what to do."
)
_log = logging.getLogger(__name__)


class Place:
    """Where an open store lies. Any thread may look."""

    def __init__(self, path: Path) -> None:
        """``path``: of the store's file, which is open."""
        self._path = path
        there = {name: _file_at(f"{path}{name}") for name in ENDS}
        self._there = {name: found for name, found in there.items() if found is not None or not name}
        self._next = 0.0
        self.lost = False

    def is_ours(self) -> bool:
        """Look now; the first time that it is not, the log tells what to do."""
        if not self.lost and (gone := self._gone()) is not None:
            self.lost = True
            _log.critical(
                "%s was removed or replaced while the hub ran: nothing is accepted any more. What was accepted is in "
                "the file that was taken away: put it back, with what lay beside it, before you start the hub. %s",
                gone,
                backups.remedy(self._path.parent),
            )
        return not self.lost

    def is_ours_lately(self) -> bool:
        """As it was at the last look, ``LOOK_SECONDS`` ago at most. For the writer alone."""
        if self.lost or (now := monotonic()) < self._next:
            return not self.lost
        self._next = now + LOOK_SECONDS
        return self.is_ours()

    @property
    def has_main(self) -> bool:
        """Whether the main file is there, so that what is in the log can be brought into it."""
        return self._is_there("")

    def _gone(self) -> str | None:
        return next((f"{self._path}{name}" for name in self._there if not self._is_there(name)), None)

    def _is_there(self, name: str) -> bool:
        try:
            found = _file_at(f"{self._path}{name}")
            return found is not None and found == self._there[name]
        except OSError as error:  # a disk that does not answer says nothing about who is where
            _log.warning("%s%s could not be looked at: %s", self._path, name, in_a_line(error))
            return True


def _file_at(path: str) -> tuple[int, int] | None:
    """Which file that is; None where there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
