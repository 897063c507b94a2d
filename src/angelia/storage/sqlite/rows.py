"""Rows of the tables as the frozen types of the model, and back.

What must stay true: the order of columns here is that of ``queries.sql``. ``checksum`` covers every column of a message
but its number, exactly as stored: it is made when the row is written and compared when it is read, so bits that flipped
on disk are found before anybody is served. (The message's own fingerprint cannot do this: it is made over what the
sender left out, too, and that is not in the row.) How values are encoded for it is part of the store's format.
"""

from hashlib import blake2b
from typing import Any

import apsw
import msgspec

from angelia.model.agent import Agent, Token
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope, Intent, Kind, Lane, Origin, Replay
from angelia.model.failure import Reason

Row = tuple[Any, ...]

DELIVERY_COLUMNS = 24
CHECKED = 23  # columns of a message before its origin, which is checked where there is one, and its checksum
CHECKSUM = CHECKED + 1
_TEXTS = frozenset((0, 1, 2, 3, 4, 5, 8, 9, 10, 12, 13, 14, 18, 19, 20, CHECKED))  # of the columns of a message
_pack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode
_hubs = msgspec.json.Decoder(tuple[str, ...]).decode
_origin = msgspec.json.Decoder(Origin).decode

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
    return bool(checksum(row[:checked]) == row[CHECKSUM])


def is_whole(raw: Row) -> bool:
    """The same of a row of part ``raw_message``, which may hold bytes that are no text any more."""
    try:
        return is_sound(
            tuple(bytes.decode(value) if n in _TEXTS and value is not None else value for n, value in enumerate(raw))
        )
    except UnicodeDecodeError:
        return False


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
    )


def delivery_of(row: Row) -> Delivery:
    """The delivery of the columns of part ``delivery``; ``CorruptError`` where no delivery can be so."""
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
    ) = row
    try:
        return Delivery(
            key,
            seq,
            message_id,
            mailbox,
            to or mailbox,
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
    except (IndexError, KeyError) as error:
        raise apsw.CorruptError(f"a delivery with {error}") from error


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
        old.key,
        old.state.value,
        old.attempt,
        old.seq,
        int(old.deferred),
    )


def agent_row(agent: Agent) -> Row:
    """The columns of ``put_agent``."""
    a = agent
    return (
        a.mailbox, a.handle, a.title, a.description, int(a.member), int(a.keyed), a.created_at, a.seen_at, a.adapter,
    )  # fmt: skip


def agent_of(row: Row) -> Agent:
    """The agent of a row of ``agents``."""
    handle, title, description, member, keyed, created_at, seen_at, adapter = row
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
    return token.id, token.mailbox, token.digest, token.created_at, token.ends_at


def token_of(row: Row) -> Token:
    """The token of a row of ``tokens``."""
    id_, mailbox, digest, created_at, ends_at = row
    return Token(id=id_, mailbox=mailbox, digest=digest, created_at=created_at, ends_at=ends_at)
