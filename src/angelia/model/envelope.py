"""What one message is: immutable once accepted.

What must stay true: the fingerprint covers what the sender said and nothing that a hub stamps, so that it tells a
repeat from a reused id and finds bits that flipped, on every hub that the message passes. Ids are looked up, never
sorted by and never used as paths. Nothing inside ``body`` is ever read as a sender.
"""

import hashlib
import re
from enum import StrEnum
from typing import NamedTuple

from angelia.model.errors import BadRequest

_ID = re.compile(r"[0-9a-f]{32}")


class Intent(StrEnum):
    """What the sender wants: an answer, nothing, or only to have said so (``ack`` never wakes anyone)."""

    REQUEST = "request"
    INFORM = "inform"
    ACK = "ack"


class Kind(StrEnum):
    """A message of a participant, the answer to one, or the hub's own word."""

    MESSAGE = "message"
    REPLY = "reply"
    NOTICE = "notice"


class Lane(StrEnum):
    """A person's mail is handed over before everything else."""

    PERSON = "person"
    NORMAL = "normal"


class Replay(StrEnum):
    """What to do when the outcome of a turn is unknown."""

    ONCE = "once"
    NEVER = "never"
    ASK = "ask"


class Origin(NamedTuple):
    """What the sender said where the message was first accepted, and at which hub (its id): with the text, the body and
    ``in_reply_to``, all that the fingerprint is made over. Kept of messages that cross to another hub."""

    hub: str
    sender: str
    to: str
    intent: str | None
    kind: str
    thread: str | None


class Envelope(NamedTuple):
    """One accepted message. Times are UTC milliseconds; ``body`` is compact JSON, as bytes.

    ``flat``: the body is a seed payload, an object that stands for the whole message (its ``text`` is the text).
    ``via``: the ids of the hubs that it has passed; ``origin``: None where it never leaves this hub.
    """

    id: str
    sender: str
    to: str
    intent: Intent
    kind: Kind
    text: str | None
    body: bytes | None
    thread: str
    chain: str
    created_at: int
    expires_at: int
    fingerprint: bytes
    flat: bool = False
    in_reply_to: str | None = None
    depth: int = 0
    via: tuple[str, ...] = ()
    lane: Lane = Lane.NORMAL
    replay: Replay = Replay.ONCE
    verified: bool = False
    about: str | None = None
    reason: str | None = None
    key: str | None = None
    origin: Origin | None = None

    @property
    def size(self) -> int:
        """Bytes that count against a mailbox: what the sender sent, and 256 for the rest."""
        return size_of(self.text, self.body)


def size_of(text: str | None, body: bytes | None) -> int:
    """Bytes that a message with this content counts for."""
    return 256 + len((text or "").encode()) + len(body or b"")


def check_id(value: object, what: str = "id") -> str:
    """Return ``value`` if it is 32 lowercase hex digits, else raise ``BadRequest``."""
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise BadRequest(f"'{str(value)[:80]}' is not a message {what}: it is 32 lowercase hex digits.")
    return value


def fingerprint(
    sender: str,
    to: str,
    intent: str | None,
    kind: str,
    text: str | None,
    body: bytes | None,
    thread: str | None,
    in_reply_to: str | None,
) -> bytes:
    """SHA-256 over the eight fields as the sender gave them; an absent one differs from an empty one."""
    parts: list[bytes] = []
    for field in (sender, to, intent, kind, text, body, thread, in_reply_to):
        if field is None:
            parts.append(b"-")
        else:
            data = field if isinstance(field, bytes) else field.encode("utf-8", "surrogatepass")
            parts += (b"%d:" % len(data), data)
    return hashlib.sha256(b"".join(parts)).digest()
