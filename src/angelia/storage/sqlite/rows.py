"""Rows of the tables as the frozen types of the model, and back.

What must stay true: the order of columns here is that of ``queries.sql``. ``checksum`` covers every column of a message
but its number, exactly as stored: it is made when the row is written and compared when it is read, so bits that flipped
on disk are found before anybody is served. (The message's own fingerprint cannot do this: it is made over what the
sender left out, too, and that is not in the row.) All other rows have a ``sum`` for the same: smaller, for it guards
against what a disk does, not against people. How values are encoded for both is part of the store's format.
"""

from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec

from angelia.model.agent import Agent, Token
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope, Intent, Kind, Lane, Origin, Replay
from angelia.model.failure import Reason

Row = tuple[Any, ...]

SUM = 24  # columns of a delivery before its sum
DELIVERY_COLUMNS = SUM + 1
CHECKED = 23  # columns of a message before its origin, which is checked where there is one, and its checksum
CHECKSUM = CHECKED + 1
_TEXTS = frozenset((0, 1, 2, 3, 4, 5, 8, 9, 10, 12, 13, 14, 18, 19, 20, CHECKED))  # of the columns of a message
_FLAGS = (0, 1)
_DELIVERY_TEXTS = frozenset((2, 3, 4, 5, 6, 13, 14, 23))
_TEXTS_OF = {  # by how many columns there are: of a delivery, of a message, of both
    DELIVERY_COLUMNS: _DELIVERY_TEXTS,
    CHECKSUM + 2: _TEXTS,
    DELIVERY_COLUMNS + CHECKSUM + 2: _DELIVERY_TEXTS.union(DELIVERY_COLUMNS + n for n in _TEXTS),
}
_pack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode
_hubs = msgspec.json.Decoder(tuple[str, ...]).decode
_origin = msgspec.json.Decoder(Origin).decode
_delivery = msgspec.msgpack.Decoder(Delivery).decode

# Looking a word up is much cheaper than calling the enum.
_INTENT = {str(word): word for word in Intent}
_KIND = {str(word): word for word in Kind}
_LANE = {str(word): word for word in Lane}
_REPLAY = {str(word): word for word in Replay}
_HAND: dict[str | None, Hand | None] = {None: None} | {str(word): word for word in Hand}
_REASON: dict[str | None, Reason | None] = {None: None} | {str(word): word for word in Reason}
_STATE = tuple(State)


def checksum(columns: Row) -> bytes:
    """16 bytes over the columns of a message; an absent value, an empty one and a number all differ."""
    return blake2b(_pack(columns), digest_size=16).digest()


def is_sound(row: Row) -> bool:
    """Whether the columns of part ``message`` are what was written."""
    checked = CHECKED if row[CHECKED] is None else CHECKED + 1
    try:
        return bool(checksum(row[:checked]) == row[CHECKSUM])
    except UnicodeEncodeError:  # of ``as_text``
        return False


def row_sum(*columns: Any) -> int:
    """4 bytes over the columns of any other row, 0.3 µs: every single bit that flips shows, and nearly all else."""
    return crc32(_pack(columns))


def summed(*columns: Any) -> Row:
    """The columns with their sum behind them."""
    return (*columns, crc32(_pack(columns)))


def is_right(row: Row) -> bool:
    """Whether a row that ends with its sum is what was written."""
    return bool(crc32(_pack(row[:-1])) == row[-1])


def as_text(raw: Row) -> Row:
    """A row of ``queries.AS_BYTES`` as its statement gives it. What is no text any more is one that has no sum."""
    texts = _TEXTS_OF[len(raw)]
    return tuple(
        value.decode("utf-8", "surrogateescape") if n in texts and isinstance(value, bytes) else value
        for n, value in enumerate(raw)
    )


def decoded(raw: Row, texts: frozenset[int]) -> Row | None:
    """A row whose texts are bytes, as it was before; None where they are no text any more."""
    try:
        return tuple(bytes.decode(value) if n in texts and value is not None else value for n, value in enumerate(raw))
    except UnicodeDecodeError:
        return None


def whole_delivery(raw: Row) -> Delivery | None:
    """The delivery of a row of part ``raw_delivery`` that is what was written, and has its message; else None."""
    row = decoded(raw, _DELIVERY_TEXTS)
    return None if row is None or row[2] is None else delivery_of(row[:DELIVERY_COLUMNS])


def is_whole_delivery(raw: Row) -> bool:
    """Whether there is one."""
    return whole_delivery(raw) is not None


def delivery_as_read(raw: Row) -> Delivery | None:
    """Such a row whatever its sum says; None where it cannot be a delivery's."""
    row = decoded(raw, _DELIVERY_TEXTS)
    try:
        return None if row is None or row[2] is None else _delivery(_pack(_built(row[:DELIVERY_COLUMNS])))
    except (IndexError, KeyError, TypeError, msgspec.ValidationError):
        return None


def is_whole(raw: Row) -> bool:
    """The same of a row of part ``raw_message``, which may hold bytes that are no text any more."""
    row = decoded(raw, _TEXTS)
    return row is not None and is_sound(row)


def name_of(raw: Row) -> str:
    """The id that such a row has, as far as it is text."""
    return bytes.decode(raw[0], "ascii", "backslashreplace")


def message_row(envelope: Envelope, accepted_at: int) -> Row:
    """The columns of ``add_message``."""
    e = envelope
    columns: Row = (
        e.id,
        e.sender,
        e.to,
        e.intent,
        e.kind,
        e.text,
        e.body,
        int(e.flat),
        None if e.thread == e.id else e.thread,
        e.in_reply_to,
        None if e.chain == e.id and not e.depth else e.chain,  # what has a depth is looked up by its chain
        e.depth,
        _json(e.via).decode() if e.via else None,
        e.lane,
        e.replay,
        e.created_at,
        e.expires_at,
        int(e.verified),
        e.about,
        e.reason,
        e.key,
        e.fingerprint,
        accepted_at,
    )
    if e.origin is None:
        return (*columns, None, checksum(columns))
    columns = (*columns, _json(e.origin).decode())
    return (*columns, checksum(columns))


def message_of(row: Row) -> Envelope | None:
    """The envelope of the columns of part ``message``; None where they are not what was written."""
    if not is_sound(row):
        return None
    (
        id_,
        sender,
        to,
        intent,
        kind,
        text,
        body,
        flat,
        thread,
        in_reply_to,
        chain,
        depth,
        via,
        lane,
        replay,
        created_at,
        expires_at,
        verified,
        about,
        reason,
        key,
        fingerprint,
        _,
        origin,
        _,
        _,
    ) = row
    return Envelope(
        id_,
        sender,
        to,
        _INTENT[intent],
        _KIND[kind],
        text,
        body,
        thread or id_,
        chain or id_,
        created_at,
        expires_at,
        fingerprint,
        flat == 1,
        in_reply_to,
        depth,
        _hubs(via) if via else (),
        _LANE[lane],
        _REPLAY[replay],
        verified == 1,
        about,
        reason,
        key,
        _origin(origin) if origin else None,
    )


def delivery_row(number: int, delivery: Delivery) -> Row:
    """The columns of ``add_delivery``; ``number`` is that of its message."""
    d = delivery
    return (
        number,
        d.key,
        d.seq,
        d.mailbox,
        None if d.to == d.mailbox else d.to,
        d.connection,
        d.sender,
        d.lane,
        d.size,
        d.state,
        d.attempt,
        d.used,
        int(d.deferred),
        d.hand,
        d.reason,
        int(d.late),
        d.accepted_at,
        d.expires_at,
        d.sweep_at,
        d.leased_at,
        d.delivered_at,
        d.answered_at,
        d.ended_at,
        d.owes,
        crc32(_pack(d)),
    )


def delivery_sum(*columns: Any) -> int:
    """The sum of a delivery, from the columns of part ``delivery`` but for that. It is made over the delivery as it is
    known to the bus, which is at hand wherever a row is written or read: a third of the cost of the columns."""
    return crc32(_pack(_built((*columns, 0))))


def delivery_of(row: Row) -> Delivery | None:
    """The delivery of the columns of part ``delivery``; None where they are not what was written."""
    try:
        found = _built(row)
        sum_ = crc32(_pack(found))
    except (IndexError, KeyError, TypeError, UnicodeEncodeError):
        return None
    # What is read as one and the same in two forms is written in one.
    if sum_ != row[SUM] or row[4] == row[3] or row[12] not in _FLAGS or row[15] not in _FLAGS:
        return None
    return found


def _built(row: Row) -> Delivery:
    (
        key,
        seq,
        message_id,
        mailbox,
        to,
        connection,
        sender,
        lane,
        size,
        state,
        attempt,
        used,
        deferred,
        hand,
        reason,
        late,
        accepted_at,
        expires_at,
        sweep_at,
        leased_at,
        delivered_at,
        answered_at,
        ended_at,
        owes,
        _,
    ) = row
    return Delivery(
        key,
        seq,
        message_id,
        mailbox,
        mailbox if to is None else to,
        sender,
        size,
        _STATE[state],
        accepted_at,
        expires_at,
        sweep_at,
        connection,
        lane,
        attempt,
        used,
        deferred == 1,
        _HAND[hand],
        _REASON[reason],
        late == 1,
        leased_at,
        delivered_at,
        answered_at,
        ended_at,
        owes,
    )


def changed_row(new: Delivery, old: Delivery) -> Row:
    """The values of ``change``: what may differ, then what the row must still be."""
    d = new
    return (
        d.state,
        int(d.deferred),
        d.sweep_at,
        d.used,
        d.hand,
        d.reason,
        int(d.late),
        d.accepted_at,
        d.expires_at,
        d.leased_at,
        d.delivered_at,
        d.answered_at,
        d.ended_at,
        d.owes,
        crc32(_pack(d)),
        old.key,
        old.state.value,
        old.attempt,
        old.seq,
        int(old.deferred),
    )


def agent_row(agent: Agent) -> Row:
    """The columns of ``put_agent``."""
    a = agent
    return summed(
        a.mailbox, a.handle, a.title, a.description, int(a.member), int(a.keyed), a.created_at, a.seen_at, a.adapter
    )


def agent_of(row: Row) -> Agent:
    """The agent of a row of ``agents``, which ``is_right``."""
    _, handle, title, description, member, keyed, created_at, seen_at, adapter, _ = row
    return Agent(
        handle=handle,
        title=title,
        description=description,
        member=member == 1,
        keyed=keyed == 1,
        created_at=created_at,
        seen_at=seen_at,
        adapter=adapter,
    )


def token_row(token: Token) -> Row:
    """The columns of ``put_token``."""
    return summed(token.id, token.mailbox, token.digest, token.created_at, token.ends_at)


def token_of(row: Row) -> Token:
    """The token of a row of ``tokens``, which ``is_right``."""
    id_, mailbox, digest, created_at, ends_at, _ = row
    return Token(id=id_, mailbox=mailbox, digest=digest, created_at=created_at, ends_at=ends_at)
