"""Moving rows that are not what was written out of the way, into the table ``damaged``.

What must stay true: a row is looked at again where it lies before it is moved, so that one that was only misread, or
reached through a damaged index, stays. Nothing is thrown away: what was read of a row stands in ``damaged``, for a
person. Whatever indexes say, the row can be moved: they are made anew where they are in the way.

What is still known of mail that is moved so is left for the bus as a note (``model/loss.py``), in the same unit: its
sender is told by it.

A mailbox whose row in ``removed`` is damaged counts as emptied up to now: its readers are told of a
gap rather than not.
A name that was keyed, or that a token is for, stays keyed: it is never anybody's because a bit flipped.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw
import msgspec

from angelia.model.agent import Agent
from angelia.model.delivery import Delivery
from angelia.model.loss import LOSS, Loss
from angelia.storage.sqlite.bad_rows import DELIVERY, MESSAGE, SMALL, Stray, small_rows
from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.renewing import copy_table, replace_table
from angelia.storage.sqlite.rows import (
    DELIVERY_COLUMNS,
    Row,
    agent_row,
    decoded,
    delivery_as_read,
    is_whole,
    row_sum,
    summed,
    whole_delivery,
)

NUMBER_BITS = 40  # of the number of a message: more than any store has
WIDTHS = (8, 16, 24, 32, 48)  # of numbers in SQLite's rows, in bits

_KEEP, _IS_INDEXED = SQL["keep_damaged"], SQL["is_indexed"]
_RAW_MESSAGE, _RAW_DELIVERY, _RAW_DELIVERIES_OF = (
    SQL["raw_message_at"], SQL["raw_delivery_at"], SQL["raw_deliveries_of"],
)  # fmt: skip
_REMOVE_DAMAGED, _IS_ALONE, _SEARCH_AGAIN = SQL["remove_damaged"], SQL["is_alone"], SQL["index_again"]
_LOST = {MESSAGE: SQL["messages_lost"], DELIVERY: SQL["deliveries_lost"]}
REINDEX = {MESSAGE: SQL["reindex_messages"], DELIVERY: SQL["reindex_deliveries"]}

_NAMES = {
    MESSAGE: "id sender recipient intent kind text body flat thread in_reply_to chain depth via lane replay created_at "
    "expires_at verified about reason key fingerprint accepted_at origin checksum number",
    DELIVERY: "key seq message_id mailbox recipient connection sender lane size state attempt used deferred hand "
    "reason late accepted_at expires_at sweep_at leased_at delivered_at answered_at ended_at owes sum message",
    "removed": "mailbox seq sum",
    "agent": "mailbox handle title description member keyed created_at seen_at adapter sum",
    "token": "id mailbox digest created_at ends_at sum",
    "contact": "one other at sum",
    "note": "name value at sum",
}
_BYTES = frozenset(("body", "fingerprint", "checksum", "digest", "value", "adapter"))
_PUT_NOTE, _NOTES = SQL["put_note"], SQL["notes"]
_json = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_loss = msgspec.msgpack.Decoder(Loss).decode
_log = logging.getLogger(__name__)


# ---- moving


def is_there(desk: Desk, number: int) -> bool:
    """Whether there is a message of this number."""
    return bool(desk.run(_RAW_MESSAGE, (number,)))


def is_damaged(desk: Desk, number: int) -> bool:
    """Whether there is, and it is not what was written."""
    return not all(is_whole(row) for row in desk.run(_RAW_MESSAGE, (number,)))


def keep_message(desk: Desk, number: int) -> list[Row]:
    """Copy a message into ``damaged`` with its deliveries, which are returned. What is left is the caller's to remove,
    and can be."""
    [message] = desk.run(_RAW_MESSAGE, (number,))
    if not desk.run(_IS_INDEXED, (number,))[0][0]:
        desk.run(REINDEX[MESSAGE])
    deliveries = desk.run(_RAW_DELIVERIES_OF, (number,))
    name = _text(message[0])
    desk.run(_KEEP, (MESSAGE, name, _shown(MESSAGE, message), _all_shown(deliveries)))
    _log.error("message %s is damaged: set aside, with %d deliveries (table damaged)", name, len(deliveries))
    _leave(desk, _loss_of(message, deliveries))
    return deliveries


def delivery_at(desk: Desk, key: int) -> Row | None:
    """The delivery of this key as it lies there."""
    found = desk.run(_RAW_DELIVERY, (key,))
    return found[0] if found else None


def keep_delivery(desk: Desk, raw: Row) -> None:
    """Copy it into ``damaged``, with its message, which is right or not there. What is left of it is for the caller to
    remove; the message stays until the bus has seen to it."""
    message, delivery = _message_of(desk, raw)
    name = "unknown" if message is None else _text(message[0])
    shown = "{}" if message is None else _shown(MESSAGE, message)
    desk.run(_KEEP, (DELIVERY, name, shown, _all_shown([raw])))
    _log.error("a delivery of message %s to %s is damaged: set aside (table damaged)", name, _text(raw[3]))
    if message is not None:
        _leave(desk, Loss(name, () if delivery is None else (delivery,), whole=True))


def _message_of(desk: Desk, raw: Row) -> tuple[Row | None, Delivery | None]:
    """The message of a damaged delivery, and the delivery as far as it can be read. Where a bit flipped in the number
    that leads from one to the other, the sum of the delivery says which message it was."""
    number = raw[DELIVERY_COLUMNS]
    for was in _numbers_one_bit_off(number) if isinstance(number, int) else ():
        for message in desk.run(_RAW_MESSAGE, (was,)):
            if found := _whole([raw], message[0]):
                return message, found[0]
    named = desk.run(_RAW_MESSAGE, (number,))
    return (named[0], delivery_as_read(raw)) if named else (None, None)


def _loss_of(message: Row, deliveries: list[Row]) -> Loss:
    """What is still known of a message that is damaged."""
    whole = _whole(deliveries)
    if not whole and isinstance(message[0], bytes):
        was = next((name for name in _one_bit_off(message[0]) if _whole(deliveries[:1], name)), None)
        whole = _whole(deliveries, was)
    name = whole[0].message_id if whole else _text(message[0])
    sender, intent, kind = (_text(message[column]) for column in (1, 3, 4))
    answers, key = (None if message[column] is None else _text(message[column]) for column in (9, 20))
    mark = message[21] if isinstance(message[21], bytes) else b""
    return Loss(name, whole, False, sender, intent, kind, answers, key, mark)


def _whole(deliveries: list[Row], name: bytes | None = None) -> tuple[Delivery, ...]:
    """Those that are what was written; ``name``: where their message had this id."""
    rows = deliveries if name is None else [(*raw[:2], name, *raw[3:]) for raw in deliveries]
    return tuple(delivery for raw in rows if (delivery := whole_delivery(raw)) is not None)


def _one_bit_off(name: bytes) -> Iterator[bytes]:
    """What the id of a message may have been before one bit of it flipped. The sum of a delivery says which it was."""
    for place, byte in enumerate(name):
        for bit in range(8):
            yield name[:place] + bytes((byte ^ 1 << bit,)) + name[place + 1 :]


def _numbers_one_bit_off(number: int) -> Iterator[int]:
    """The same for its number. The first bit of one is its sign."""
    yield from (number ^ 1 << bit for bit in range(NUMBER_BITS))
    if number < 0:
        yield from (number + (1 << width - 1) for width in WIDTHS)


def keep_alone(desk: Desk, number: int) -> bool:
    """Leave for the bus a message that has lost its delivery: that was set aside, and did not say whose it was. False
    where it has one, is not what was written, or was left already."""
    rows = desk.run(_RAW_MESSAGE, (number,))
    if not rows or not is_whole(rows[0]) or not desk.run(_IS_ALONE, (number,))[0][0]:
        return False
    name = _text(rows[0][0])
    left = desk.run(_NOTES, (LOSS, LOSS + "\U0010ffff"))
    if any(_loss(value).message_id == name for _, value, *_ in left):
        return False
    _log.error("message %s has no delivery any more: it is taken for lost", name)
    desk.run(_PUT_NOTE, summed(f"{LOSS}message {number}", _pack(Loss(name, (), whole=True)), 0))
    return True


def put_in_order(desk: Desk, table: str, strays: Sequence[Stray]) -> None:
    """Write a large table anew, each row under the key that it was written under. What that is not known of is set
    aside: of it stands there what could be read, and what an index says. No page is changed that lies as it should not:
    SQLite would take what lies beside such a row for a part of it. Inside a transaction."""
    copy_table(desk, table, {(stray.before, stray.key): stray.right for stray in strays})
    left = [stray for stray in strays if stray.right is None]
    lost = desk.run(_LOST[table]) if left else []
    replace_table(desk, table)
    for stray in strays:
        if stray.right is not None:
            _log.error("a row of table %s lay at a wrong place: back under its key, %d", table, stray.right)
    (_lose_messages if table == MESSAGE else _lose_deliveries)(desk, left, lost)


def _paired(strays: list[Stray], lost: Iterable[int]) -> Iterator[tuple[Stray, int | None]]:
    """Each with the key that it had, of those that are lost: whatever keys they have now, they lie in that order."""
    lost = set(lost)
    others = iter(sorted(lost.difference(stray.key for stray in strays)))
    for stray in strays:
        yield stray, stray.key if stray.key in lost else next(others, None)


def _lose_messages(desk: Desk, strays: list[Stray], lost: list[Row]) -> None:
    """``lost``: by an index, their numbers and ids."""
    names: dict[int, str] = dict(lost)
    for stray, number in _paired(strays, names):
        name = "unknown" if number is None else names[number]
        deliveries = desk.run(_RAW_DELIVERIES_OF, (number,))
        shown = _json({"number": number}).decode() if stray.raw is None else _shown(MESSAGE, stray.raw)
        desk.run(_KEEP, (MESSAGE, name, shown, _all_shown(deliveries)))
        _log.error("message %s cannot be read: set aside, with %d deliveries (table damaged)", name, len(deliveries))
        _leave(desk, Loss(name, _whole(deliveries, name.encode()), whole=False))
        remove_stubborn(desk, [row[0] for row in deliveries])
        if number is not None:
            desk.run(_SEARCH_AGAIN, (number,))


def _lose_deliveries(desk: Desk, strays: list[Stray], lost: list[Row]) -> None:
    """``lost``: by an index, their keys and the numbers of their messages."""
    numbers: dict[int, int] = dict(lost)
    for stray, key in _paired(strays, numbers):
        messages = [] if key is None else desk.run(_RAW_MESSAGE, (numbers[key],))
        message = messages[0] if messages and is_whole(messages[0]) else None
        name = "unknown" if message is None else _text(message[0])
        shown = "{}" if message is None else _shown(MESSAGE, message)
        row = _json([{"key": stray.key}]).decode() if stray.raw is None else _all_shown([stray.raw])
        desk.run(_KEEP, (DELIVERY, name, shown, row))
        _log.error("a delivery of message %s cannot be read: set aside, without what it said (table damaged)", name)
        if message is not None:
            _leave(desk, Loss(name, (), whole=True))


def _leave(desk: Desk, loss: Loss) -> None:
    """For the bus, unless nobody is known who could be told. No clock is at hand: a note has no time."""
    if loss.deliveries or loss.whole:
        desk.run(_PUT_NOTE, summed(f"{LOSS}{desk.db.last_insert_rowid()}", _pack(loss), 0))


def write_anew(desk: Desk, table: str, last: int, *, always: bool = False) -> bool:
    """Write a small table anew from its good rows, where one is not, or ``always``; the others are set aside. Whether
    there were any. ``last``: the highest seq that was given."""
    rows = small_rows(desk, table)
    bad = [raw for row, raw in rows if row is None]
    if not bad and not always:
        return False
    small = SMALL[table]
    good = [row for row, _ in rows if row is not None]
    desk.run(small.clear)
    desk.change_many(small.put, good)
    for raw in bad:
        name = f"{_text(raw[0])} of {_text(raw[1])}" if table == "token" else _text(raw[0])
        _log.error("a row of table %s is damaged (%s): set aside (table damaged)", table, name)
        desk.run(_KEEP, (table, _text(raw[0]), _shown(table, raw), "[]"))
        if table == "removed":
            desk.run(small.put, summed(_text(raw[0]), last))
    if bad and table == "agent":
        _keep_keyed(desk, {row[0] for row in good}, bad)
    return bool(bad)


def _keep_keyed(desk: Desk, known: set[Any], bad: list[Row]) -> None:
    holders = {row[1] for row, _ in small_rows(desk, "token") if row is not None}
    names = {name for name in holders if not str(name).startswith("@")}  # a desktop's: it is no agent
    for raw in bad:
        row = decoded(raw, SMALL["agent"].texts)
        if row is not None and (row[5] or row_sum(*row[:5], 1, *row[6:-1]) == row[-1]):
            names.add(row[0])
    for name in sorted(names - known):
        desk.run(SMALL["agent"].put, agent_row(Agent(handle=name, keyed=True, created_at=0, seen_at=0)))


def remove_stubborn(desk: Desk, keys: Sequence[int]) -> None:
    """Remove deliveries; an index that does not know them as they are now is made anew first."""
    names = _json(keys).decode()
    desk.control("SAVEPOINT removal")
    try:
        desk.run(_REMOVE_DAMAGED, (names,))
    except apsw.CorruptError:
        desk.control("ROLLBACK TO removal")
        desk.run(REINDEX[DELIVERY])
        desk.run(_REMOVE_DAMAGED, (names,))
    finally:
        desk.control("RELEASE removal")


# ---- showing


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _all_shown(deliveries: list[Row]) -> str:
    return "[" + ",".join(_shown(DELIVERY, row) for row in deliveries) + "]"


def _shown(table: str, raw: Row) -> str:
    """A row as JSON."""
    pairs = zip(_NAMES[table].split(), raw, strict=True)
    shown = {
        name: value.hex().upper() if name in _BYTES and isinstance(value, bytes)
        else _text(value) if isinstance(value, bytes) else value
        for name, value in pairs
    }  # fmt: skip
    return _json(shown).decode()
