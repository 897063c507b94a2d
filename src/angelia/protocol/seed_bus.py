"""The seed's own shapes: payloads with ``_meta``, as its clients read them from poll and stream.

What must stay true: a payload comes out as it went in, with ``_meta`` set by the hub over whatever its sender wrote
there; nothing in a payload is read as a sender. A payload that is no object stands under ``text`` or ``body``.
"""

import msgspec
from msgspec import Struct

from angelia.model.delivery import Delivery
from angelia.model.envelope import Envelope
from angelia.protocol.json import encode, value
from angelia.protocol.times import rfc3339


class Meta(Struct, omit_defaults=True, kw_only=True):
    """What the hub says about a message."""

    from_: str = msgspec.field(name="from")
    id: str
    seq: int
    type: str | None = None
    at: str
    verified: bool
    intent: str
    kind: str
    thread: str
    in_reply_to: str | None = None
    attempt: int
    again: bool = False
    lease: str | None = None
    about: str | None = None
    reason: str | None = None


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
    meta = Meta(
        from_=envelope.sender,
        id=envelope.id,
        seq=delivery.seq,
        type=_type(envelope),
        at=rfc3339(envelope.created_at),
        verified=envelope.verified,
        intent=envelope.intent.value,
        kind=envelope.kind.value,
        thread=envelope.thread,
        in_reply_to=envelope.in_reply_to,
        attempt=delivery.attempt,
        again=again,
        lease=lease,
        about=envelope.about,
        reason=envelope.reason,
    )
    if envelope.flat and envelope.body is not None:
        inner = envelope.body[1:-1]
    else:
        parts = []
        if envelope.text is not None:
            parts.append(b'"text":' + encode(envelope.text))
        if envelope.body is not None:
            parts.append(b'"body":' + envelope.body)
        inner = b",".join(parts)
    return b'{%b%b"_meta":%b}' % (inner, b"," if inner else b"", encode(meta))


class _Typed(Struct):
    type: object = None


_typed = msgspec.json.Decoder(_Typed).decode


def _type(envelope: Envelope) -> str | None:
    if not envelope.flat or envelope.body is None:
        return None
    found = _typed(envelope.body).type
    return found if isinstance(found, str) else None
