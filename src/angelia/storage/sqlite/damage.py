"""Looking through a store that serves for what is damaged: after each start, each day, and once something was met.

What must stay true: it only reads, on a thread and a connection of its own, in small steps between which others work;
what it finds is for the writer to set aside, or to make anew. It holds no picture while the log has to be folded. One
search at a time, and after one that something called for none for a while: what it cannot find, it will not find the
next time.

It reads the search index, which rests until then, and the rows, each against its sum, and then has SQLite compare
indexes and rows. Last it looks for messages that have no delivery: theirs was set aside, and did not say whose it was.
A small store was compared before it served, so the first search leaves that out.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

import apsw

from angelia.storage import backups
from angelia.storage.sqlite import bad_rows
from angelia.storage.sqlite.bad_rows import DELIVERY, MESSAGE
from angelia.storage.sqlite.connect import Desk, in_a_line, open_reader
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.renewing import has_left
from angelia.storage.sqlite.rows import Row, row_sum
from angelia.storage.sqlite.soundness import faults_of, hides_rows, is_soon_written, look_at, places_of
from angelia.storage.sqlite.view import UNKNOWN as _UNKNOWN

if TYPE_CHECKING:
    from angelia.storage.sqlite.store import SqliteStore

UNKNOWN = _UNKNOWN[0]
ROWS = 100  # a millisecond of looking; then others get a turn
REST_SECONDS = 0.002
LONG_REST_SECONDS = 0.02  # where nobody waits for what it finds: a tenth of the time at most, whatever else is done
COMPARING_STEPS = 20_000  # of SQLite's machine, a millisecond or two
LOG_BYTES = 32 * 1024 * 1024  # of the log in use: then it has to be folded, and no picture may be held
AGAIN_SECONDS = 60.0
EVERY_SECONDS = 24 * 3600.0
PATIENCE_SECONDS = 60.0
TROUBLE = "the store's file is damaged, and that could not be put right: hub.log says what to do"

_BLOCKS, _SIGNS, _LENGTHS = SQL["summed_blocks"], SQL["summed_signs"], SQL["text_lengths"]
_MARKS, _OPENS = SQL["marks"], SQL["index_opens"]
_log = logging.getLogger(__name__)


def damage_of(desk: Desk, rows_at_once: int) -> Iterator[bool]:
    """Whether pieces of the index are not what was written, some at a time: its blocks, and the signs that lead to them
    (FTS5's own check lets one pass that names a smaller word, and words before it are found no more). The rest is
    compared with these by SQLite's own check, but for the lengths of texts, which nothing here is found by. Each page
    is read: raises ``apsw.CorruptError`` or ``SQLError`` where that cannot be."""
    desk.run(_OPENS)
    last = -1
    while rows := desk.run(_BLOCKS, (last, rows_at_once)):
        yield not all(row_sum(block) == sum_ for _, block, sum_ in rows)
        last = rows[-1][0]
    sign: Row = (-1 << 63, b"")
    while rows := desk.run(_SIGNS, (*sign, rows_at_once)):
        yield not all(row_sum(*row[:-1]) == row[-1] for row in rows)
        sign = rows[-1][:2]
    for sql in (_LENGTHS, _MARKS):
        last = -1
        while rows := desk.run(sql, (last, rows_at_once)):
            last = rows[-1][0]
            yield False


class DamageSearch:
    """Belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path, vfs: str | None, store: "SqliteStore") -> None:
        self._loop, self._path, self._vfs, self._store = loop, path, vfs, store
        self._stopped = Event()
        self._thread: Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0
        self._running: asyncio.Future[None] | None = None
        self._called = self._on_call = False  # one was asked for that has not begun; the one that runs was
        self._seen = 0  # how many times the search index had been made anew, when this looked at it
        self._told = False  # of pages that belong to nothing
        self.trouble: str | None = None  # what is damaged and could not be put right; None where all was seen to be
        self._followed = False  # the one that runs began right behind another
        self._sound = False  # the one that runs found indexes and rows to be right

    def begin_later(self, *, checked: bool) -> None:
        """The first search, now; then one each day."""
        self._start(not checked)

    def begin(self) -> None:
        """Something was met: search, soon."""
        if self._call():
            _log.error("the store is damaged: something in it cannot be read; looking for what it is")

    def suspect(self) -> None:
        """The same where what was read was right after all, or is out of the way: an index may be damaged."""
        if self._call():
            _log.warning("an index of the store may be damaged: comparing it with the rows")

    def look_again(self, _: bool = True) -> None:
        """Something was made anew: look at what is left of the old."""
        self._call()

    def _call(self) -> bool:
        """Have one that begins from now on; False where that is so already."""
        if self._called or self._stopped.is_set():
            return False
        self._called = True
        if self._running is None:
            self._start_in(max(self._next - monotonic(), 0.0))
        return True

    def _start_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if seconds:
            self._timer = self._loop.call_later(seconds, self._start, True)
        else:
            self._start(True)

    def stop(self) -> None:
        """Give it up."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    async def ended(self) -> None:
        """Wait until it has let go of the file: some ms, once it was given up."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    async def over(self) -> None:
        """Wait until none runs."""
        while self._running is not None:
            await asyncio.shield(self._running)

    def _start(self, comparing: bool) -> None:
        if self._stopped.is_set():
            return
        self._on_call, self._called = self._called, False
        self._running = self._loop.create_future()
        self._thread = Thread(target=self._search, args=(comparing,), name="angelia-damage", daemon=True)
        self._thread.start()

    def _done(self, *, whole: bool) -> None:
        """On the loop: the search is over; ``whole``: it saw all that it was to see."""
        running, self._running = self._running, None
        if self._called and not self._followed:
            self._followed = True
            self._start(True)
        elif not self._stopped.is_set():
            if self._on_call:
                self._next = monotonic() + AGAIN_SECONDS
            self._followed = False
            self._start_in(EVERY_SECONDS if whole and not self._called else AGAIN_SECONDS)
        if running is not None and not running.done():
            running.set_result(None)

    # ---- on its thread

    def _search(self, comparing: bool) -> None:
        whole = False
        self._sound = not comparing
        try:
            found = self._order()  # first, before something is written beside what does not lie where it should
            found += self._rows() if self._on_call else 0  # somebody waits for it
            try:
                self._search_index()
            finally:
                self._store.release_search()
            if not self._on_call:
                found += self._rows()
            if found:
                self._settle()
                _log.error("looked at all rows: %d are damaged", found)
            whole = True
            if comparing or found:
                self._sound = False
                whole = self._compare()
                self._store.release_search()  # what kept it from reading messages may be right again
                self._settle()
            if self._sound:
                self._look_for_lone()
                self.trouble = self.trouble if found else None
        except apsw.Error as error:
            # Where there is no file to look at, that is what is wrong, and is told there.
            if not self._stopped.is_set() and self._store.is_at_its_place():
                self._tell_of_rows(in_a_line(error))
        except RuntimeError:
            _log.debug("the loop is gone; nobody is left to tell")
        try:
            self._loop.call_soon_threadsafe(lambda: self._done(whole=whole))
        except RuntimeError:
            _log.debug("the loop is gone; nobody waits for it")

    def _order(self) -> int:
        """The keys of the large tables, since all else goes by them; how many of the two are in no order. Where that
        stays, ``_compare`` tells."""
        desk = open_reader(self._path, self._vfs)
        desk.db.set_progress_handler(self._stopped.is_set, COMPARING_STEPS)
        number = 0
        try:
            for table in (MESSAGE, DELIVERY):
                if (found := bad_rows.out_of_order(desk, table)) is not None:
                    number += 1
                    if table == DELIVERY or is_soon_written(desk):
                        self._put_in_order(table, found)
        finally:
            desk.close()
        return number

    def _rest(self) -> bool:
        """Let others have a turn; whether to give up."""
        return self._stopped.wait(REST_SECONDS if self._on_call else LONG_REST_SECONDS)

    def _rows(self) -> int:
        """Each row against its sum; how many are not what was written."""
        desk = open_reader(self._path, self._vfs)
        number = 0
        strays: list[bad_rows.Stray] = []
        try:
            for each in bad_rows.damaged_rows(desk, ROWS):
                if each is None:
                    if self._rest():
                        break
                    continue
                number += 1
                if isinstance(each, bad_rows.Stray):
                    strays.append(each)
                else:
                    self._tell(lambda each=each: self._store.set_aside(*each))  # type: ignore[misc]
            for table in (MESSAGE, DELIVERY):
                if some := [stray for stray in strays if stray.table == table]:
                    if table == MESSAGE and not is_soon_written(desk):
                        raise apsw.CorruptError(f"message {some[0].key} cannot be read")
                    self._put_in_order(table, some)
        finally:
            desk.close()
        return number

    def _put_in_order(self, table: str, strays: list[bad_rows.Stray]) -> None:
        self._wait_for(lambda: self._store.put_in_order(table, strays))

    def _look_for_lone(self) -> None:
        """Messages whose delivery was set aside, and did not say whose it was."""
        desk = open_reader(self._path, self._vfs)
        try:
            for number in bad_rows.left_alone(desk, ROWS):
                if number is not None:
                    self._tell(lambda number=number: self._store.keep_alone(number))  # type: ignore[misc]
                elif self._rest():
                    break
        finally:
            desk.close()

    def _search_index(self) -> None:
        """Each piece of it against its sum."""
        self._seen = self._store.renewals
        desk = open_reader(self._path, self._vfs)
        try:
            for damaged in damage_of(desk, ROWS):
                if damaged:
                    return self._remake_search("a piece of it is not what was written")
                if self._rest():
                    break
        except (apsw.SQLError, apsw.CorruptError) as error:
            self._remake_search(in_a_line(error))
        finally:
            desk.close()

    def _remake_search(self, why: str) -> None:
        self._wait_for(lambda: self._store.remake_search(why, self._seen))

    def _compare(self) -> bool:
        """Indexes against rows, and pages against one another; False where it had to be given up for now."""
        desk = open_reader(self._path, self._vfs)

        def between() -> bool:
            """Whether to give up."""
            return self._rest() or self._store.log_bytes > LOG_BYTES

        desk.db.set_progress_handler(between, COMPARING_STEPS)
        try:
            return self._compared(desk)
        except apsw.InterruptError:
            return False
        finally:
            desk.close()

    def _compared(self, desk: Desk) -> bool:
        worst = ""
        for again in (False, True):
            self._seen = self._store.renewals
            faults, unused = faults_of(desk.db)
            if not faults:
                self._sound = True
                self._do_away(desk, sound=True)
                self._tell_of_unused(unused)
                return True
            worst = faults[0]
            places = places_of(desk.db, faults)
            looked = look_at(desk.db, thorough=True) if places is None else None
            if looked is not None and looked.mail is None:
                if looked.search is None:
                    self._do_away(desk, sound=False)
                    return False  # once more, without that
                if self._store.search_trouble is None:
                    self._remake_search(looked.search)
                return True
            if places is None or again or hides_rows(desk) or (MESSAGE in places and not is_soon_written(desk)):
                break
            what = "tables" if places & {MESSAGE, DELIVERY} else "indexes"
            _log.error("%s of the store are damaged (%s): made anew from the rows", what, ", ".join(sorted(places)))
            self._wait_for(lambda names=places: self._store.remake(names))  # type: ignore[misc]
        self._tell_of_rows(worst)
        return True

    def _tell_of_rows(self, what: str) -> None:
        self.trouble = TROUBLE
        remedy = backups.remedy(self._path.parent)
        _log.error("the store is damaged where rows lie (%s): stop the hub. %s", what, remedy)

    def _tell_of_unused(self, pages: int) -> None:
        if pages and not self._told:
            self._told = True
            _log.warning("%d pages of the store's file belong to nothing: no mail is in them, only room is lost", pages)

    def _do_away(self, desk: Desk, *, sound: bool) -> None:
        """With what is left of a search index that was given up."""
        if has_left(desk):
            self._wait_for(lambda: self._store.do_away(sound=sound))

    def _settle(self) -> None:
        """Wait until what was told by now is done."""
        self._wait_for(lambda: self._store.write(lambda tx: None, essential=True))

    def _wait_for(self, what: "Callable[[], asyncio.Future[None]]") -> None:
        done = Event()

        def ask() -> None:
            what().add_done_callback(over)

        def over(future: "asyncio.Future[None]") -> None:
            done.set()
            if not future.cancelled() and (error := future.exception()) is not None:
                self.trouble = TROUBLE
                _log.error("what is damaged could not be made anew: %s", error)

        self._tell(ask)
        ends = monotonic() + PATIENCE_SECONDS
        while not done.wait(REST_SECONDS * 10) and not self._stopped.is_set() and monotonic() < ends:
            pass

    def _tell(self, call: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(call)
