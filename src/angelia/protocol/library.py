"""The shapes of what one looks back at: conversations, one of them, what a search found, what happened, a copy.

What must stay true: a whole message has the shape that it has everywhere (``native.MessageOut``). A text that is cut,
so that a list can be read, says so. ``next`` is always there; null is the end.
"""

import msgspec

from angelia.model.envelope import Envelope
from angelia.protocol.native import MessageOut, Out, text_of
from angelia.protocol.times import rfc3339

LETTERS = 200  # of the last text in a list of conversations


class LastOut(Out, kw_only=True):
    """The last message of a conversation, in short. ``left_out``: letters of its text that are not shown."""

    id: str
    from_: str = msgspec.field(name="from")
    to: str
    kind: str
    text: str | None
    left_out: int = 0
    created_at: str


class TalkOut(Out, kw_only=True):
    """A conversation in a list. ``more``: it has more messages than are counted."""

    thread: str
    messages: int
    more: bool = False
    people: list[str]
    first_at: str
    last: LastOut


class TalksOut(Out):
    """A page of conversations, the latest first; ``next`` is the next page's ``before``."""

    threads: list[TalkOut]
    next: int | None


class SaidOut(Out):
    """A message of a conversation, and how many of its deliveries are in which state."""

    message: MessageOut
    states: dict[str, int]


class ConversationOut(Out):
    """A page of a conversation, the oldest first; ``next`` is the next page's ``after``."""

    thread: str
    messages: list[SaidOut]
    next: int | None


class FoundOut(Out):
    """A page of what was found, the latest first. ``behind``: messages that could not be looked into yet."""

    messages: list[MessageOut]
    next: int | None
    behind: int


class EventOut(Out, kw_only=True):
    """Something that happened. Of a delivery: whose, and how it stands after it. ``cut``: there is more of the text."""

    at: str
    id: str | None = None
    from_: str | None = msgspec.field(name="from", default=None)
    to: str | None = None
    seq: int | None = None
    state: str | None = None
    attempt: int | None = None
    by: str | None = None
    reason: str | None = None
    late: bool = False
    agent: str | None = None
    text: str | None = None
    cut: bool = False
    detail: str | None = None


class CopyOut(Out, kw_only=True):
    """A verified copy of the store, and the older ones that had to go for it."""

    file: str
    bytes: int
    messages: int
    deliveries: int
    made_at: str
    removed: list[str]


class BackupIn(msgspec.Struct, forbid_unknown_fields=True):
    """``POST /v1/backups``."""

    file: str | None = None


def last_out(envelope: Envelope) -> LastOut:
    """A message in short."""
    text = text_of(envelope)
    return LastOut(
        id=envelope.id,
        from_=envelope.sender,
        to=envelope.to,
        kind=envelope.kind.value,
        text=None if text is None else text[:LETTERS],
        left_out=max(len(text or "") - LETTERS, 0),
        created_at=rfc3339(envelope.created_at),
    )
