"""When the write-ahead log goes back into the main file, so that it stays short and nobody waits for it.

What must stay true: only the writer's thread checkpoints, between two groups. The log is reset by being written over
from its start, which takes that no reader still looks at it: so where one holds an old picture and the log has no room
left, the picture is taken back (the read is then run again). Only another program that reads can make the log grow.
"""

import logging
from collections.abc import Callable

import apsw

from angelia.storage.sqlite.connect import Desk, in_a_line
from angelia.storage.sqlite.full import PAGE_BYTES

IDLE_SECONDS = 0.2  # no unit for so long: work that would otherwise fall into a busy moment is done now
IDLE_BYTES = 4 * 1024 * 1024
BUSY_BYTES = 16 * 1024 * 1024  # 4 to 8 ms of work, once in some 600 commits of one small message each
AGAIN_BYTES = 4 * 1024 * 1024  # a reader was in the way: how much further the log grows until the next try
REVOKE_BYTES = 64 * 1024 * 1024  # at full load a read has nearly a second until its picture is taken back
_log = logging.getLogger(__name__)


class Checkpoints:
    """How long the log is, and what is done about it. ``revoke`` ends every reader's picture."""

    def __init__(self, desk: Desk, revoke: Callable[[], None]) -> None:
        self._desk, self._revoke = desk, revoke
        self._pages = 0
        self._next = BUSY_BYTES
        self._folded = True
        self._warned = False
        desk.db.set_wal_hook(self._committed)

    @property
    def used(self) -> int:
        """Bytes of the log that the next commit may not write over."""
        return 0 if self._folded else self._pages * PAGE_BYTES

    @property
    def pending(self) -> bool:
        """True where an idle moment would be used."""
        return self.used >= IDLE_BYTES

    def after_commit(self) -> None:
        """Keep the log short, as far as readers let it."""
        if self.used >= self._next:
            self.fold()

    def when_idle(self) -> None:
        """Nothing is waiting: tidy up early."""
        if self.pending:
            self.fold()

    def now(self) -> None:
        """The log may not grow any more: no reader of this program may stand in the way."""
        self._revoke()
        self.fold()
        if not self._folded and not self._warned:
            self._warned = True
            _log.warning(
                "a copy in the making, or another program, keeps the log (%d MB) from being reset", self.used >> 20
            )

    def fold(self) -> None:
        """Bring the log into the main file; the next commit starts it over, unless a reader still looks at it."""
        self._next = self.used + AGAIN_BYTES
        try:
            pages, done = self._desk.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            return  # another program is at it; the log grows meanwhile
        self._folded = done == pages

    def at_end(self) -> None:
        """Leave one file, as far as other programs allow."""
        try:
            self._desk.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            _log.warning("the log was not folded into the store (%s); the next start will do it", in_a_line(error))
        else:
            self._desk.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)  # lets SQLite take the empty log away

    def save(self) -> None:
        """Bring what can be into the main file, at the end, where the log is not at its path: nothing is taken away."""
        try:
            self.fold()
        except apsw.Error as error:
            _log.error("the log was not folded into the store (%s), and nobody finds it any more", in_a_line(error))

    def _committed(self, db: apsw.Connection, name: str, pages: int) -> int:
        """SQLite tells how many pages the log has; fewer than before means that it was started over."""
        if pages < self._pages:
            self._next = BUSY_BYTES
            self._warned = False
        self._pages = pages
        self._folded = False
        return apsw.SQLITE_OK
