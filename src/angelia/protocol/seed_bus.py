"""The seed's own shapes: payloads with ``_meta``, as its clients read them from poll and stream.

What must stay true: a payload comes out as it went in, with ``_meta`` set by the hub over whatever its sender wrote
there; nothing in a payload is read as a sender. A payload that is no object stands under ``text`` or ``body``.
"""

import msgspec
from msgspec import Struct

from angelia.model.delivery import Delivery
from angelia.model.envelope import Envelope
from angelia.protocol.json import encode, value
from angelia.protocol.newest import Newest
from angelia.protocol.times import rfc3339


class Meta(Struct, omit_defaults=True, kw_only=True):
    """What the hub says about a message, whoever is handed it; ``Handed`` follows."""

    from_: str = msgspec.field(name="from")
    id: str
    type: str | None = None
    at: str
    verified: bool
    intent: str
    kind: str
    thread: str
    in_reply_to: str | None = None
    about: str | None = None
    reason: str | None = None


class Handed(Struct, omit_defaults=True, kw_only=True):
    """What the hub says about one hand-over of it."""

    seq: int
    attempt: int
    again: bool = False
    lease: str | None = None


def read_payload(data: bytes, depth: int) -> tuple[str | None, bytes | None, bool]:
    """``(text, body, flat)`` of a broadcast's body: an object is kept whole (flat), less any ``_meta`` in it."""
    payload = value(data, depth)
    if isinstance(payload, dict):
        payload.pop("_meta", None)
        return None, encode(payload), True
    if isinstance(payload, str):
        return payload, None, False
    return None, encode(payload), False


def show(envelope: Envelope, delivery: Delivery, *, lease: str | None = None, again: bool = False) -> bytes:
    """One message as the seed's clients see it: a JSON object on one line."""
    handed = encode(Handed(seq=delivery.seq, attempt=delivery.attempt, again=again, lease=lease))
    return b"%b,%b}" % (_newest(envelope), handed[1:])


def show_transient(envelope: Envelope) -> bytes:
    """A notice that is not stored, and so has neither id nor number."""
    meta = {"from": envelope.sender, "type": _type(envelope), "kind": envelope.kind.value}
    return _opened(envelope) + encode(meta) + b"}"


def _head(envelope: Envelope) -> bytes:
    """The message up to where its hand-overs differ: inside ``_meta``."""
    meta = Meta(
        from_=envelope.sender,
        id=envelope.id,
        type=_type(envelope),
        at=rfc3339(envelope.created_at),
        verified=envelope.verified,
        intent=envelope.intent.value,
        kind=envelope.kind.value,
        thread=envelope.thread,
        in_reply_to=envelope.in_reply_to,
        about=envelope.about,
        reason=envelope.reason,
    )
    return _opened(envelope) + encode(meta)[:-1]


_newest = Newest(_head)


def _opened(envelope: Envelope) -> bytes:
    """The payload as an object that is still open, up to the value of ``_meta``."""
    if envelope.flat and envelope.body is not None:
        inner = envelope.body[1:-1]
    else:
        parts = []
        if envelope.text is not None:
            parts.append(b'"text":' + encode(envelope.text))
        if envelope.body is not None:
            parts.append(b'"body":' + envelope.body)
        inner = b",".join(parts)
    return b'{%b%b"_meta":' % (inner, b"," if inner else b"")


class _Typed(Struct):
    type: object = None


_typed = msgspec.json.Decoder(_Typed).decode


def _type(envelope: Envelope) -> str | None:
    if not envelope.flat or envelope.body is None:
        return None
    found = _typed(envelope.body).type
    return found if isinstance(found, str) else None
