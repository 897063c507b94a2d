"""``ports.Tx``: one unit of writing on the writer's connection.

What must stay true: whatever a unit changed in the tables and in the sums can be taken back until the commit, and a
statement that failed fails the unit, even when the unit went on. A seq that was given is never given again.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import apsw
import msgspec

from angelia.bus.ports import Load
from angelia.model.agent import Agent, Token
from angelia.model.delivery import Delivery
from angelia.model.envelope import Envelope
from angelia.storage.calls import run_undos
from angelia.storage.load import Change, Loads, added, moved, weigh
from angelia.storage.sqlite import aside, bad_rows
from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.identity import put_known
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.renewing import renew_index
from angelia.storage.sqlite.rows import (
    Row,
    agent_row,
    changed_row,
    delivery_row,
    is_whole_delivery,
    message_row,
    summed,
    token_row,
)
from angelia.storage.sqlite.view import SqliteView

_ADD_MESSAGE, _ADD_DELIVERY, _MESSAGE_NUMBER = SQL["add_message"], SQL["add_delivery"], SQL["message_number"]
_CHANGE, _HAND_OVER, _SUMS = SQL["change"], SQL["hand_over"], SQL["sums"]
_REMOVAL_MARKS, _PUT_REMOVED, _REMOVE_DELIVERIES = SQL["removal_marks"], SQL["put_removed"], SQL["remove_deliveries"]
_REMOVE_MESSAGES, _INDEX_AGAIN = SQL["remove_messages"], SQL["index_again"]
_PUT_AGENT, _REMOVE_AGENT = SQL["put_agent"], SQL["remove_agent"]
_PUT_NOTE, _REMOVE_NOTE = SQL["put_note"], SQL["remove_note"]
_PUT_TOKEN, _REMOVE_TOKEN, _REMOVE_TOKENS_OF = SQL["put_token"], SQL["remove_token"], SQL["remove_tokens_of"]
_ADD_CONTACT, _PUT_VALUE = SQL["add_contact"], SQL["put_value"]

T = TypeVar("T")
Added = tuple[Envelope, Sequence[Delivery]]

_SEQ_STEP = 1024  # numbers kept in advance: a commit in a thousand writes the counter, and a crash skips at most these
_json = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


class Seqs:
    """The one counter. Every number up to ``kept`` may have been given, says the disk."""

    __slots__ = ("_kept", "_next_kept", "last")

    def __init__(self, kept: int) -> None:
        self.last = self._kept = self._next_kept = kept

    def save(self, desk: Desk) -> None:
        """Keep further numbers where those kept are used up; belongs in the commit that used them."""
        if self.last > self._kept:
            self._next_kept = self.last + _SEQ_STEP
            put_known(desk.run, "seq", self._next_kept)

    def saved(self) -> None:
        """The commit is done."""
        self._kept = self._next_kept

    def settle(self, desk: Desk) -> None:
        """Write the counter as it stands, so that a start after an orderly end skips nothing."""
        if self._kept != self.last:
            put_known(desk.run, "seq", self.last)
            self._kept = self.last


def _write_added(desk: Desk, new: Sequence[Added]) -> None:
    """Messages and their deliveries, kind by kind: that takes half the time of one after the other."""
    rows = [message_row(envelope, _accepted_at(envelope, deliveries)) for envelope, deliveries in new]
    numbers = [_add_message(desk, row) for row in rows]
    if len(new) == 1 == len(new[0][1]):
        desk.change(_ADD_DELIVERY, delivery_row(numbers[0], new[0][1][0]))
    else:
        whole = zip(numbers, new, strict=True)
        desk.change_many(_ADD_DELIVERY, (delivery_row(number, one) for number, (_, all_) in whole for one in all_))


def _accepted_at(envelope: Envelope, deliveries: Sequence[Delivery]) -> int:
    return max([delivery.accepted_at for delivery in deliveries], default=envelope.created_at)


def _add_message(desk: Desk, row: Row) -> int:
    """The number of the message in its table."""
    if desk.change(_ADD_MESSAGE, row):
        return desk.db.last_insert_rowid()
    number: int = desk.run(_MESSAGE_NUMBER, (row[0],))[0][0]
    desk.change(_INDEX_AGAIN, (number,))  # it names the recipients, too
    return number


def _change_all(desk: Desk, rows: Sequence[Row]) -> bool:
    """All of them, or none where one is not found any more."""
    desk.control("SAVEPOINT several")
    whole = desk.change_many(_CHANGE, rows) == len(rows)
    if not whole:
        desk.control("ROLLBACK TO several")
    desk.control("RELEASE several")
    return whole


def sums_of(desk: Desk) -> list[Change]:
    """What is open, by mailbox and sender. What a name of which is no text counts for nobody: it is set aside soon."""
    found: list[Change] = []
    for mailbox, sender, opened, ready, queued, size in desk.run(_SUMS):
        with suppress(UnicodeDecodeError):
            found.append((mailbox.decode(), sender.decode().lower(), opened, ready, queued, size))
    return found


def _alone() -> bool:
    """Nothing was done before."""
    return False


class SqliteTx(SqliteView):
    """A unit under way. ``added``: what it adds, until something else is asked of the connection.

    ``before`` writes what earlier units of the transaction added, and says whether anything is changed in it by now:
    then this unit is undone alone, by a savepoint, and else with the transaction.
    """

    __slots__ = (
        "_before", "_loads", "_savepoint", "_seqs", "added", "changes", "dirty", "effects", "error", "undos",
    )  # fmt: skip

    def __init__(self, desk: Desk, loads: Loads, seqs: Seqs, before: Callable[[], bool] = _alone) -> None:
        super().__init__(desk)
        self._loads, self._seqs, self._before = loads, seqs, before
        self._savepoint = False
        self.added: list[Added] = []
        self.dirty = False
        self.changes: list[Change] = []
        self.effects: list[Callable[[], None]] = []
        self.undos: list[Callable[[], None]] = []
        self.error: apsw.Error | None = None

    def finish(self) -> None:
        """Keep what was done, for the commit; raise what failed on the way. A unit that did nothing but add leaves it
        to whoever commits to write that."""
        if self.dirty:
            self.write_added()
        if self.error is not None:
            raise self.error
        if self._savepoint:
            self._own.control("RELEASE unit")

    def rollback(self) -> None:
        """Leave no trace."""
        self.added = []
        self._loads.undo(self.changes)
        run_undos(reversed(self.undos))
        if not self.dirty or not self._own.db.in_transaction:
            return
        if self._savepoint:
            self._own.control("ROLLBACK TO unit")
            self._own.control("RELEASE unit")
        else:
            self._own.control("ROLLBACK")
            self._own.control("BEGIN IMMEDIATE")

    def then(self, effect: Callable[[], None]) -> None:
        self.effects.append(effect)

    def otherwise(self, undo: Callable[[], None]) -> None:
        self.undos.append(undo)

    def next_seq(self) -> int:
        self._seqs.last += 1
        return self._seqs.last

    def load(self, mailbox: str) -> Load:
        return self._loads.of(mailbox)

    def add(self, envelope: Envelope, deliveries: Sequence[Delivery]) -> None:
        self.added.append((envelope, deliveries))
        self._sum(map(added, deliveries))

    def write_added(self) -> None:
        """Write what was added so far."""
        if self.added:
            self._touch()
            new, self.added = self.added, []
            self._try(_write_added, self._own, new)

    @property
    def _desk(self) -> Desk:
        """The connection, once all that was added so far is written to it."""
        self.write_added()
        if not self.dirty:
            self._try(self._before)
        return self._own

    def move(self, old: Delivery, new: Delivery) -> bool:
        change = moved(old, new)
        if new.attempt == old.attempt and new.seq == old.seq:
            found = self._write(_CHANGE, changed_row(new, old))
        else:
            found = self._write(_HAND_OVER, (new.attempt, new.seq, *changed_row(new, old)))
        if found:
            self._sum((change,))
            return True
        here = self.delivery(old.key)
        if here is None or here.state is not old.state or here.attempt != old.attempt:
            return False
        return self.move(here, new)  # ``old`` was right about what decides, and stale beside it

    def move_all(self, pairs: Sequence[tuple[Delivery, Delivery]]) -> Sequence[tuple[Delivery, Delivery]]:
        if len(pairs) > 1:
            sums = [moved(old, new) for old, new in pairs]
            self._touch()
            if self._try(_change_all, self._desk, [changed_row(new, old) for old, new in pairs]):
                self._sum(sums)
                return pairs
        return [pair for pair in pairs if self.move(*pair)]

    def remove(self, deliveries: Sequence[Delivery]) -> None:
        self._remove([delivery.key for delivery in deliveries])

    def put_agent(self, agent: Agent) -> None:
        self._write(_PUT_AGENT, agent_row(agent))

    def remove_agent(self, mailbox: str) -> None:
        self._write(_REMOVE_AGENT, (mailbox,))
        self._write(_REMOVE_TOKENS_OF, (mailbox,))

    def put_token(self, token: Token) -> None:
        self._write(_PUT_TOKEN, token_row(token))

    def remove_token(self, token_id: str) -> None:
        self._write(_REMOVE_TOKEN, (token_id,))

    def add_contact(self, one: str, other: str, now: int) -> None:
        self._write(_ADD_CONTACT, summed(one, other, now))
        self._write(_ADD_CONTACT, summed(other, one, now))

    def put_note(self, name: str, value: bytes | None, now: int) -> None:
        if value is None:
            self._write(_REMOVE_NOTE, (name,))
        else:
            self._write(_PUT_NOTE, summed(name, value, now))

    def put_self_test(self, value: int) -> None:
        self._write(_PUT_VALUE, ("self_test", value))

    def set_aside(self, number: int, table: str) -> bool:
        """Move a row that is not what was written out of the way: a message with its deliveries, a delivery with its
        message where that is not right either. Of a small table, which has no numbers, all that are not right.

        False where it is what was written, so that whatever led there is wrong."""
        if table == bad_rows.MESSAGE:
            return self._set_aside_message(number)
        if table != bad_rows.DELIVERY:
            return self._mend(aside.write_anew, table, self._seqs.last)
        raw = self._mend(aside.delivery_at, number)
        if raw is None:
            return True
        if is_whole_delivery(raw):
            return False
        if not self._mend(aside.is_damaged, raw[-1]):
            self._mend(aside.keep_delivery, raw)
            self._take_out([], [raw])
            return True
        return self._set_aside_message(raw[-1])

    def put_in_order(self, table: str, strays: Sequence[bad_rows.Stray] = ()) -> None:
        """Write a large table anew, without what lies in it as it should not, as that was found outside of any
        transaction."""
        self._mend(aside.put_in_order, table, strays)
        self._recount()
        self._told()

    def keep_alone(self, number: int) -> None:
        """Have the bus see to a message that has no delivery any more, where that is so."""
        if self._mend(aside.keep_alone, number):
            self.then(self._own.bereft)

    def _told(self) -> None:
        self.then(self._own.suspect)  # an index may still name what the row was
        self.then(self._own.bereft)

    def _set_aside_message(self, number: int) -> bool:
        if not self._mend(aside.is_damaged, number):
            return not self._mend(aside.is_there, number)
        self._take_out([number], self._mend(aside.keep_message, number))
        return True

    def _damaged(self, number: int, table: str) -> None:
        if not table or not self.set_aside(number, table):
            self._own.suspect()

    def remake(self, names: Iterable[str]) -> None:
        """Make indexes and large tables anew from the rows, and the sums of mailboxes with them."""
        for name in sorted(names, key=(bad_rows.DELIVERY, bad_rows.MESSAGE).count, reverse=True):
            if name in (bad_rows.DELIVERY, bad_rows.MESSAGE):
                self._mend(aside.put_in_order, name, ())
            else:
                self._mend(renew_index, name)
        self._recount()

    def _mend(self, call: Callable[..., T], *values: Any) -> T:
        self._touch()
        return self._try(call, self._desk, *values)

    def _take_out(self, numbers: list[int], deliveries: Sequence[Row]) -> None:
        """Remove what was copied into ``damaged``. What it weighed cannot be told from it: all is counted again."""
        self._mend(aside.remove_stubborn, [row[0] for row in deliveries])
        self._write(_REMOVE_MESSAGES, (_json(numbers).decode(),))
        self._recount()
        self._told()

    def _recount(self) -> None:
        real = Loads()
        real.apply(self._try(sums_of, self._desk))
        self._sum(self._loads.towards(real))

    def _remove(self, keys: list[int]) -> None:
        names = _json(keys).decode()
        for mark in self._try(self._desk.run, _REMOVAL_MARKS, (names,)):
            self._write(_PUT_REMOVED, summed(*mark))
        self._touch()
        rows = self._try(self._desk.run, _REMOVE_DELIVERIES, (names,))
        numbers = set()
        for number, mailbox, sender, state, deferred, size in rows:
            numbers.add(number)
            self._sum((weigh(mailbox, sender, state, deferred == 1, size, -1),))
        self._write(_REMOVE_MESSAGES, (_json(sorted(numbers)).decode(),))

    def _sum(self, changes: Iterable[Change | None]) -> None:
        real = [change for change in changes if change is not None]
        self.changes += real
        self._loads.apply(real)

    def _write(self, sql: str, values: Row) -> int:
        if not self.dirty:
            self._touch()
        return self._try(self._desk.change, sql, values)

    def _touch(self) -> None:
        """Before the first change: a unit that only looks needs no way back."""
        if not self.dirty:
            self._savepoint = self._try(self._before)
            if self._savepoint:
                self._own.control("SAVEPOINT unit")
            self.dirty = True

    def _try(self, call: Callable[..., T], *values: Any) -> T:
        """What fails is remembered: it fails the unit, even when the unit goes on."""
        try:
            return call(*values)
        except apsw.Error as error:
            self.error = error
            raise
