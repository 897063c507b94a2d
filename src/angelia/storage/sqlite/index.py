"""The full-text index: how it keeps up with what is written, while nobody waits for it.

What must stay true:

- The writer's thread alone changes it, between two groups, in steps of about a millisecond: when nothing is queued,
  when a search waits for it, or between small groups once some ten thousand messages are missing. A message costs
  nothing when it is added.
- A step is a transaction that also says how far the index has come: messages up to ``indexed`` are in it, but for those
  of ``search_again``. The same transaction sums what it changed of the index.
  It costs no sync: what a power cut takes of it, it takes together with the mark.
- An index that is damaged costs searches and never mail. It is made anew from the messages, whatever of it cannot be
  read: what was there is taken out of the schema, unread (``renewing.py``), in one step. ``trouble`` says so meanwhile.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, perf_counter

import apsw
import msgspec

from angelia.storage.sqlite import renewing
from angelia.storage.sqlite.connect import Desk, in_a_line
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import Row, row_sum
from angelia.storage.sqlite.words import PARTS, Unread, entries

STEP_ROWS = 64  # with a step's own cost below a tenth of the whole
STEP_LETTERS = 65_536
MERGE_PAGES = 8  # 32 KiB of the index in one step of merging
MOST_UNMERGED = 8  # where a search waits, it merges so much later; SQLite by itself merges 16 at once

HELD_SECONDS = 0.05  # while it is looked at after a start: some ms, but of a store with a million messages
QUIET_SECONDS = 0.02  # no unit for so long: the moment is used
WORK_SECONDS = 0.005  # then it works for so long, and rests as long
BUSY_SECONDS = 0.002  # between two groups, where a search waits
BUSY_CHANGES = 30_000  # of rows since it was complete, some 10,000 messages: it works between small groups too
SMALL_GROUP = 16

RENEW_SECONDS = 60.0  # from one time that it is made anew to the next: a million messages take half a minute of work
MOST_TRIES = 3  # without ever being whole between: then something else is wrong, and only the next look tries again
LEFT_ROWS = 64  # of what an index left behind, freed in one step: as many pages, some 3 ms
BEING_MADE = "the search index was damaged and is being made anew: searches find less until then; mail is not concerned"

_TO_INDEX, _INDEX, _UNINDEX = SQL["to_index"], SQL["index"], SQL["unindex"]
_AGAIN, _DONE_AGAIN, _MESSAGE_TO_INDEX = SQL["search_again"], SQL["done_again"], SQL["message_to_index"]
_MERGE = SQL["merge_index"]
_BLOCKS, _PUT_SUM, _DROP_SUMS = SQL["index_blocks"], SQL["put_index_sum"], SQL["drop_index_sums"]
_LAST_SIGNS, _NEWEST = SQL["last_signs"], SQL["newest_number"]
_VALUE, _PUT_VALUE = SQL["value"], SQL["put_value"]
_SEGMENT_BITS = 37  # of a block's id, from there on, are its segment; a page of that is below
_pack = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


class SearchIndex:
    """Belongs to the writer's thread. ``tell`` calls something on the loop; ``complete``, ``trouble`` and ``off`` may
    be read from there. ``trouble``: what is wrong with it, for people; None when nothing is. ``off``: nothing is put
    into it for now."""

    def __init__(self, desk: Desk, tell: Callable[[Callable[[bool], None], bool], None]) -> None:
        self._desk, self._tell = desk, tell
        self._sync: int = desk.db.pragma("synchronous")
        self.complete = False
        self._changes = 0
        self._unmerged = 0  # steps of filling since all was merged
        self._merges = 0  # steps of merging since the last of filling
        self._rest: list[tuple[int, str, str]] = []  # parts of a message that is not in it whole
        self._begun = 0  # that message's number
        self._waiting: list[Callable[[bool], None]] = []
        self._committing = self.off = False
        self.trouble: str | None = None
        self.look: Callable[[bool], None] = _nobody  # called on the loop where the store should be looked through
        self._doubt: str | None = None
        self._tries, self._next_try = 0, 0.0
        self.renewals = 0  # how many times it was made anew; any thread may read it
        self._left: bool | None = None  # to do away with what is left of an old one; whether its pages are sound
        # Nothing is merged before it was seen to be right: what is wrong would be summed anew. Any thread may set it.
        self.held = False

    def ask(self, answer: Callable[[bool], None]) -> None:
        """Call ``answer(True)`` on the loop once all is in it that is committed by now; False: it will not be, for now.
        Inside a unit."""
        self._waiting.append(answer)

    def distrust(self, why: str, seen: int | None = None, *, renewed: bool = False) -> None:
        """Make it anew soon: it is damaged. ``seen``: what ``renewals`` was before that was seen; it may have been made
        anew since. ``renewed``: it was, and has only to be filled. Inside a unit, or in the writer's thread."""
        if seen not in (None, self.renewals):
            return
        if self.off:
            self._tries = 0
        self._doubt, self.complete, self.off = None if renewed else why, False, False
        if self.trouble is None:
            _log.error(
                "the search index is damaged (%s): it is made anew from the messages; mail is not concerned", why
            )
        self.trouble = BEING_MADE

    def release(self) -> None:
        """It was looked at: go on, or try again. Any thread may call it."""
        self.held = self.off = False

    def do_away(self, *, sound: bool) -> None:
        """With what is left of one that was given up: its pages are freed, where they are ``sound``. Inside a unit."""
        self._left = sound

    def committed(self, changes: int) -> None:
        """A group that changed so many rows is on disk, and nobody was told yet."""
        self.complete = False
        self._changes += changes

    @property
    def patience(self) -> float | None:
        """Seconds until it wants to work, if nothing is queued meanwhile; None: never."""
        if self.held:
            return HELD_SECONDS
        if self._waiting:
            return 0.0
        if not self.complete and self._doubt is not None:
            return max(self._next_try - monotonic(), QUIET_SECONDS)
        if self.complete or self.off:
            return None if self._left is None else QUIET_SECONDS
        return WORK_SECONDS if self._begun or self._unmerged else QUIET_SECONDS

    def wants(self, units: int) -> float | None:
        """For how long it wants to work behind a group of so many units; None: not at all, 0: one step."""
        if self.held:
            return None
        if self._waiting:
            return BUSY_SECONDS
        return 0.0 if self._changes >= BUSY_CHANGES and units <= SMALL_GROUP and not self.off else None

    def work(self, seconds: float, go_on: Callable[[], bool]) -> None:
        """Work for so long, while ``go_on``; at least one step."""
        ends = perf_counter() + seconds
        while self._has_work():
            try:
                if self._doubt is not None:
                    self._renew(self._doubt)
                else:
                    self._step()
            except apsw.BusyError:
                return  # another program keeps the store busy; later
            except Unread as error:
                if self._stop("messages cannot be read: searches find no newer ones until that is mended"):
                    _log.error("messages cannot be read (%s): searches find no newer ones until that is mended", error)
                self._tell(self.look, True)
            except Exception as error:
                if self._committing or isinstance(error, apsw.FullError):
                    raise  # the disk, not the index
                self.distrust(in_a_line(error))
            if perf_counter() >= ends or not go_on():
                break
        if self.complete or self.off or self._rests():
            self.answer(whole=self.complete)

    def _has_work(self) -> bool:
        if self.held or self._rests():
            return False
        return not (self.complete or self.off) or self._left is not None

    def _rests(self) -> bool:
        """It was made anew only just, and is damaged again."""
        return self._doubt is not None and monotonic() < self._next_try

    def answer(self, *, whole: bool) -> None:
        """Let nobody wait any longer."""
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            self._tell(answer, whole)

    def _step(self) -> None:
        if self.complete or self.off:
            return self._do_away()
        if self._waiting and self._merges >= MOST_UNMERGED:
            self._unmerged = 0  # the rest of it has time
        if self._unmerged >= (MOST_UNMERGED if self._waiting else 1):
            self._commit(self._merge)
        else:
            self._merges = 0
            self._commit(self._fill)

    def _commit(self, work: Callable[[], None]) -> None:
        """One transaction that is not synced: the next that is takes it along."""
        desk = self._desk
        desk.control("PRAGMA synchronous = normal")
        try:
            desk.control("BEGIN IMMEDIATE")
            changed: set[int] = set()
            with self._noting(changed):
                work()
                desk.control("SAVEPOINT written")  # makes FTS5 write what it holds: what fails after this is the disk
            self._sum(changed)
            self._committing = True
            desk.control("COMMIT")
            self._committing = False
        except BaseException:
            self._rest, self._begun = [], 0  # begun anew, part for part the same
            if desk.db.in_transaction:
                desk.control("ROLLBACK")
            raise
        finally:
            desk.control(f"PRAGMA synchronous = {self._sync}")

    @contextmanager
    def _noting(self, changed: set[int]) -> Iterator[None]:
        """Note which blocks change."""

        def note(_: int, __: str, table: str, row: int) -> None:
            if table == "search_data":
                changed.add(row)

        self._desk.db.set_update_hook(note)
        try:
            yield
        finally:
            self._desk.db.set_update_hook(None)

    def _sum(self, changed: set[int]) -> None:
        names = (_pack(list(changed)).decode(),)
        sums = {id_: row_sum(block) for id_, block in self._desk.run(_BLOCKS, names)}
        gone = changed - sums.keys()
        living = {id_ >> _SEGMENT_BITS for id_ in sums}
        gone |= {-id_ for id_ in gone if id_ >> _SEGMENT_BITS not in living}
        for segment in living - {0}:
            sums |= self._new_signs(segment, changed)
        self._desk.change_many(_PUT_SUM, sums.items())
        if gone:
            self._desk.run(_DROP_SUMS, (_pack(list(gone)).decode(),))

    def _new_signs(self, segment: int, changed: set[int]) -> dict[int, int]:
        """The sums of what leads to blocks that were added, under their ids below zero. SQLite tells of no change in
        that table. But FTS5 adds to the end of a segment alone, a block and its sign together."""
        most = sum(id_ >> _SEGMENT_BITS == segment for id_ in changed)
        signs = self._desk.run(_LAST_SIGNS, (segment, most))
        blocks = [segment << _SEGMENT_BITS | sign[2] >> 1 for sign in signs]
        return {-block: row_sum(*sign) for block, sign in zip(blocks, signs, strict=True) if block in changed}

    def _merge(self) -> None:
        self._merges += 1
        before = self._desk.db.total_changes()
        self._desk.run(_MERGE, (MERGE_PAGES,))
        if self._desk.db.total_changes() - before < 2:  # as SQLite says that there was nothing to do
            self._unmerged = 0

    def _fill(self) -> None:
        mark: int = self._desk.run(_VALUE, ("indexed",))[0][0]
        if mark > self._desk.run(_NEWEST)[0][0]:
            raise ValueError("it says to hold more than there is")
        if again := self._desk.run(_AGAIN, (STEP_ROWS,)):
            for (number,) in again:
                self._do_again(number, mark)
            return
        letters = self._go_on(0)
        reached = mark if self._rest else max(mark, self._begun)
        rows = self._next(reached, letters) if not self._rest else []
        for row in rows:
            number = row[0]
            self._rest = list(entries(self._desk, row))
            self._begun = number
            letters = self._go_on(letters)
            if self._rest:
                break  # the step is full, and this message goes on in the next
            reached = number
        if reached > mark:
            self._desk.run(_PUT_VALUE, ("indexed", reached))
        if not rows and not letters:
            self._begun, self._changes, self.complete = 0, 0, True
            self._be_whole()
        else:
            self._unmerged += 1

    def _go_on(self, letters: int) -> int:
        """Put parts of the message that was begun into it, as far as one step goes; how many letters that makes."""
        while self._rest and letters < STEP_LETTERS:
            part = self._rest.pop(0)
            self._desk.run(_INDEX, part)
            letters += len(part[1]) or 1
        return letters

    def _next(self, after: int, letters: int) -> list[Row]:
        """The messages that one step is enough for."""
        rows: list[Row] = []

        def visit(row: Row) -> bool:
            nonlocal letters
            rows.append(row)
            letters += len(row[3] or "") + len(row[4] or b"")
            return letters < STEP_LETTERS and len(rows) < STEP_ROWS

        if letters < STEP_LETTERS:
            with _reading_messages():
                self._desk.walk(_TO_INDEX, (after,), visit)
        return rows

    def _do_again(self, number: int, mark: int) -> None:
        """Take a message out of the index; and put it in again, where it is still there and belongs there."""
        if number == self._begun:
            self._rest, self._begun = [], 0
        self._desk.run(_UNINDEX, (number * PARTS, (number + 1) * PARTS - 1))
        if number <= mark:
            with _reading_messages():
                messages = self._desk.run(_MESSAGE_TO_INDEX, (number,))
            for row in messages:
                for part in entries(self._desk, row):
                    self._desk.run(_INDEX, part)
        self._desk.run(_DONE_AGAIN, (number,))
        self._unmerged += 1

    def _renew(self, why: str) -> None:
        """Another, empty, in the place of one that is damaged; where that cannot be, go on without it."""
        self._tries += 1
        self._next_try = monotonic() + RENEW_SECONDS
        if self._tries > MOST_TRIES:
            return self._give_up(why)
        self._rest, self._begun, self._unmerged, self._left = [], 0, 0, None
        self._changes = BUSY_CHANGES
        try:
            self._commit(lambda: renewing.renew_search(self._desk))
        except apsw.BusyError:
            raise
        except apsw.Error as error:
            if self._committing or isinstance(error, apsw.FullError):
                raise
            renewing.schema_again(self._desk)
            return self._give_up(in_a_line(error))
        self._doubt = None
        self.renewals += 1
        self._tell(self.look, True)

    def _give_up(self, why: str) -> None:
        self._doubt = None
        if self._stop("the search index is damaged and cannot be made anew: searches find nothing; hub.log says why"):
            _log.error(
                "the search index is damaged and cannot be made anew (%s): tried again each day and at each start; "
                "mail is not concerned", why,
            )  # fmt: skip

    def _stop(self, trouble: str) -> bool:
        """Put nothing into it for now; whether that is news."""
        news = self.trouble != trouble
        self.trouble, self.off = trouble, True
        return news

    def _be_whole(self) -> None:
        self._tries = 0
        if self.trouble is not None:
            self.trouble = None
            _log.warning("the search index is whole again: searches find all messages")

    def _do_away(self) -> None:
        """One step of it."""
        try:
            if self._left and not self._free_some():
                return
            if not self._left:
                self._commit(lambda: renewing.forget_left(self._desk))
            self._left = None
        except apsw.CorruptError:
            if self._committing:
                raise
            renewing.schema_again(self._desk)
            self._left = None if not self._left else False

    def _free_some(self) -> bool:
        """Whether all is free."""
        more: list[bool] = []
        self._commit(lambda: more.append(renewing.free_left(self._desk, LEFT_ROWS)))
        return not more[0]


@contextmanager
def _reading_messages() -> Iterator[None]:
    try:
        yield
    except apsw.CorruptError as error:
        raise Unread(in_a_line(error)) from error


def _nobody(_: bool) -> None:
    """Nobody is told."""
