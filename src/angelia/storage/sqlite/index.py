"""The full-text index: how it keeps up with what is written, while nobody waits for it.

What must stay true:

- The writer's thread alone changes it, between two groups, in steps of about a millisecond: when nothing is queued,
  when a search waits for it, or between small groups once some ten thousand messages are missing. A message costs
  nothing when it is added.
- A step is a transaction that also says how far the index has come: messages up to ``indexed`` are in it, but for those
  of ``search_again``. The same transaction sums what it changed of the index.
  It costs no sync: what a power cut takes of it, it takes together with the mark.
- An index that is damaged costs searches and never mail: it is made anew, once; after that there is none.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import apsw
import msgspec

from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import Row, row_sum

PARTS = 512  # rowids that a message has in the index: for 8 million letters, more than any message holds by default
PART_LETTERS = 16_384  # a millisecond of work
OVERLAP_LETTERS = 1_024  # words that stand so near to one another are found together, wherever the text is cut
STEP_ROWS = 64  # with a step's own cost below a tenth of the whole
STEP_LETTERS = 65_536
MERGE_PAGES = 8  # 32 KiB of the index in one step of merging
MOST_UNMERGED = 8  # where a search waits, it merges so much later; SQLite by itself merges 16 at once
NAMED = 100  # recipients that the index knows one by one; a message to more is looked at itself

HELD_SECONDS = 0.05  # while it is looked at after a start: some ms, but of a store with a million messages
QUIET_SECONDS = 0.02  # no unit for so long: the moment is used
WORK_SECONDS = 0.005  # then it works for so long, and rests as long
BUSY_SECONDS = 0.002  # between two groups, where a search waits
BUSY_CHANGES = 30_000  # of rows since it was complete, some 10,000 messages: it works between small groups too
SMALL_GROUP = 16

# Signs of scripts without spaces between words, and pictures: each is a word.
_ALONE = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2190-\u2bff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U0001f000-\U0001faff\U00020000-\U0003ffff])"
)
_TO_INDEX, _MAILBOXES, _INDEX, _UNINDEX = SQL["to_index"], SQL["mailboxes_of"], SQL["index"], SQL["unindex"]
_AGAIN, _DONE_AGAIN, _MESSAGE_TO_INDEX = SQL["search_again"], SQL["done_again"], SQL["message_to_index"]
_MERGE, _EMPTY_INDEX, _EMPTY_AGAIN = SQL["merge_index"], SQL["empty_index"], SQL["empty_again"]
_BLOCKS, _PUT_SUM, _DROP_SUMS = SQL["index_blocks"], SQL["put_index_sum"], SQL["drop_index_sums"]
_EMPTY_SUMS, _SUMMED_BLOCKS = SQL["empty_index_sums"], SQL["summed_blocks"]
_LAST_SIGNS, _SUMMED_SIGNS, _NEWEST = SQL["last_signs"], SQL["summed_signs"], SQL["newest_number"]
_VALUE, _PUT_VALUE = SQL["value"], SQL["put_value"]
_SEGMENT_BITS = 37  # of a block's id, from there on, are its segment; a page of that is below
_json = msgspec.json.Decoder().decode
_pack = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


def spread(text: str) -> str:
    """The text as it is given to the index, or looked for in it."""
    return text if text.isascii() else _ALONE.sub(r" \1 ", text)


def sender_word(name: str) -> str:
    """The word that stands for a sender."""
    return "xf" + name.encode().hex()


def recipient_word(name: str) -> str:
    """The word that stands for a recipient."""
    return "xt" + name.encode().hex()


MANY_WORD = "xmany"  # a message with more recipients than are named


def damage_of(desk: Desk, rows_at_once: int) -> Iterator[bool]:
    """Whether pieces of the index are not what was written, some at a time: its blocks, and the signs that lead to them
    (FTS5's own check lets one pass that names a smaller word, and words before it are found no more). The rest is
    compared with these by SQLite's own check, but for the lengths of texts, which nothing here is found by."""
    last = -1
    while rows := desk.run(_SUMMED_BLOCKS, (last, rows_at_once)):
        yield not all(row_sum(block) == sum_ for _, block, sum_ in rows)
        last = rows[-1][0]
    sign: Row = (-1 << 63, b"")
    while rows := desk.run(_SUMMED_SIGNS, (*sign, rows_at_once)):
        yield not all(row_sum(*row[:-1]) == row[-1] for row in rows)
        sign = rows[-1][:2]


class SearchIndex:
    """Belongs to the writer's thread. ``tell`` calls something on the loop; ``complete`` may be read from there."""

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
        self._committing = self._remade = self._off = False
        self._doubt: Exception | None = None
        # Nothing is merged before it was seen to be right: what is wrong would be summed anew. Any thread may set it.
        self.held = False

    def ask(self, answer: Callable[[bool], None]) -> None:
        """Call ``answer(True)`` on the loop once all is in it that is committed by now; False: it will not be, for now.
        Inside a unit."""
        self._waiting.append(answer)

    def distrust(self, why: str) -> None:
        """Make it anew soon: it is damaged. Inside a unit."""
        self._doubt, self.complete = ValueError(why), False

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
        if self.complete or self._off:
            return None
        return WORK_SECONDS if self._begun or self._unmerged else QUIET_SECONDS

    def wants(self, units: int) -> float | None:
        """For how long it wants to work behind a group of so many units; None: not at all, 0: one step."""
        if self.held:
            return None
        if self._waiting:
            return BUSY_SECONDS
        return 0.0 if self._changes >= BUSY_CHANGES and units <= SMALL_GROUP and not self._off else None

    def work(self, seconds: float, go_on: Callable[[], bool]) -> None:
        """Work for so long, while ``go_on``; at least one step."""
        ends = perf_counter() + seconds
        while not (self.complete or self._off or self.held):
            try:
                if (doubt := self._doubt) is not None:
                    self._doubt, self._rest, self._begun = None, [], 0
                    self._remake(doubt)
                self._step()
            except apsw.BusyError:
                return  # another program keeps the store busy; later
            except Exception as error:
                if self._committing or isinstance(error, apsw.FullError):
                    raise  # the disk, not the index
                self._remake(error)
            if perf_counter() >= ends or not go_on():
                break
        if self.complete or self._off:
            self.answer(whole=self.complete)

    def answer(self, *, whole: bool) -> None:
        """Let nobody wait any longer."""
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            self._tell(answer, whole)

    def _step(self) -> None:
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
            self._rest = list(self._parts(row))
            self._begun = number
            letters = self._go_on(letters)
            if self._rest:
                break  # the step is full, and this message goes on in the next
            reached = number
        if reached > mark:
            self._desk.run(_PUT_VALUE, ("indexed", reached))
        if not rows and not letters:
            self._begun, self._changes, self.complete = 0, 0, True
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
            self._desk.walk(_TO_INDEX, (after,), visit)
        return rows

    def _do_again(self, number: int, mark: int) -> None:
        """Take a message out of the index; and put it in again, where it is still there and belongs there."""
        if number == self._begun:
            self._rest, self._begun = [], 0
        self._desk.run(_UNINDEX, (number * PARTS, (number + 1) * PARTS - 1))
        if number <= mark:
            for row in self._desk.run(_MESSAGE_TO_INDEX, (number,)):
                for part in self._parts(row):
                    self._desk.run(_INDEX, part)
        self._desk.run(_DONE_AGAIN, (number,))
        self._unmerged += 1

    def _parts(self, row: Row) -> Iterator[tuple[int, str, str]]:
        """The rows of the index for one message."""
        number, sender, recipient, text, body = row
        boxes = [box for (box,) in self._desk.run(_MAILBOXES, (number, NAMED + 1))]
        names = {recipient_word(box) for box in boxes} if len(boxes) <= NAMED else {MANY_WORD}
        names.add(recipient_word(_lower(recipient)))
        who = " ".join([sender_word(_lower(sender)), *sorted(names)])
        whole = spread("\n".join([(text or b"").decode("utf-8", "replace"), *_strings_of(body)]))
        starts = range(0, max(len(whole) - OVERLAP_LETTERS, 1), PART_LETTERS - OVERLAP_LETTERS)
        for part, start in enumerate(starts[:PARTS]):
            yield number * PARTS + part, whole[start : start + PART_LETTERS], who

    def _remake(self, error: Exception) -> None:
        """It is damaged: begin again from nothing; where that does not help, go on without it."""
        if self._remade:
            self._off = True
            _log.error("the search index is damaged (%s): searches find nothing new until the next start", error)
            return
        self._remade = True
        _log.error("the search index is damaged (%s): it is made anew; mail is not concerned", error)
        try:
            self._commit(self._empty)
        except apsw.Error as again:
            if self._committing or isinstance(again, apsw.FullError):
                raise
            self._remake(again)

    def _empty(self) -> None:
        self._desk.run(_EMPTY_INDEX)
        self._desk.run(_EMPTY_AGAIN)
        self._desk.run(_EMPTY_SUMS)
        self._desk.run(_PUT_VALUE, ("indexed", 0))


def _lower(name: bytes) -> str:
    """A name, of which bits may have flipped on the disk."""
    return name.decode("utf-8", "replace").lower()


def _strings_of(body: bytes | None) -> Iterator[str]:
    """The strings of a body; none where it is no JSON any more."""
    try:
        return _strings(_json(body)) if body else iter(())
    except msgspec.MsgspecError:
        return iter(())


def _strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, but the names of members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
