"""The shapes of the native interface (``/v1``): what comes in and what goes out, as ``docs/protocol`` tells it.

What must stay true: a shape stands here once, and the OpenAPI document is made from it. An unknown field is an error,
so that a misspelt one is not silently dropped. Fields may be added, never renamed. Absent fields are left out.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from angelia.model.delivery import Delivery, State
from angelia.model.envelope import Envelope
from angelia.protocol.json import encode
from angelia.protocol.newest import Newest
from angelia.protocol.times import rfc3339


class In(Struct, forbid_unknown_fields=True):
    """What a caller sends."""


class Out(Struct, omit_defaults=True):
    """What the hub answers."""


class SendIn(In, kw_only=True):
    """``POST /v1/messages``."""

    to: str
    text: str | None = None
    body: Raw | UnsetType = UNSET
    from_: str | None = msgspec.field(name="from", default=None)
    intent: Literal["request", "inform", "ack"] | None = None
    thread: str | None = None
    in_reply_to: str | None = None
    ttl_seconds: float | None = None
    id: str | None = None
    lane: Literal["person", "normal"] | None = None
    replay: Literal["once", "never", "ask"] | None = None


class AskIn(SendIn, kw_only=True):
    """``POST /v1/ask``: a send, and how long to wait for its outcome."""

    wait_seconds: float = 60


class ReplyIn(In, kw_only=True):
    """``POST /v1/messages/{id}/reply``."""

    text: str | None = None
    body: Raw | UnsetType = UNSET
    from_: str | None = msgspec.field(name="from", default=None)
    id: str | None = None


class BatchIn(In):
    """``POST /v1/messages`` with many: each is a ``SendIn`` with an outcome of its own."""

    messages: list[Raw]


class ClaimIn(In, kw_only=True):
    """``POST /v1/agents/{handle}/claim``."""

    limit: int | None = None
    lease_seconds: float | None = None
    wait_seconds: float = 0


class NackIn(In, kw_only=True):
    """``POST /v1/leases/{token}/nack``."""

    delay_seconds: float | None = None
    reason: str | None = None


class RenewIn(In, kw_only=True):
    """``POST /v1/leases/{token}/renew``."""

    lease_seconds: float | None = None


class AgentIn(In, kw_only=True):
    """``PUT /v1/agents/{handle}``."""

    title: str | None = None
    description: str | None = None
    adapter: Raw | UnsetType = UNSET  # null: nothing wakes it


class Nothing(In):
    """A call with nothing to say: ``{}`` or no body."""


class MessageOut(Out, kw_only=True):
    """A message as agents see it."""

    id: str
    from_: str = msgspec.field(name="from")
    to: str
    intent: str
    kind: str
    verified: bool
    text: str | None = None
    body: Raw | UnsetType = UNSET
    thread: str
    in_reply_to: str | None = None
    chain: str
    depth: int
    lane: str
    replay: str
    about: str | None = None
    reason: str | None = None
    created_at: str
    expires_at: str


class HolderOut(Out, kw_only=True):
    """Who has a leased delivery: by which hand, since when, and until when where that is set."""

    by: str
    since: str | None = None
    until: str | None = None


class DeliveryOut(Out, kw_only=True):
    """Where one delivery stands."""

    to: str
    seq: int
    state: str
    attempt: int | None = None
    used: int | None = None
    reason: str | None = None
    late: bool = False
    by: str | None = None  # the hand that delivered it
    holder: HolderOut | None = None
    expected: str | None = None
    accepted_at: str | None = None
    expires_at: str | None = None
    leased_at: str | None = None
    delivered_at: str | None = None
    answered_at: str | None = None
    ended_at: str | None = None


class Refused(Out, kw_only=True):
    """A recipient that had no room."""

    to: str
    code: str
    detail: str


class SentOut(Out, kw_only=True):
    """The answer to a send."""

    id: str
    thread: str
    deliveries: list[DeliveryOut]
    duplicate: bool
    refused: list[Refused] | None = None


class LeaseOut(Out, kw_only=True):
    """A lease: what settles it, and until when it holds (absent: as long as the stream)."""

    token: str
    attempt: int
    deadline: str | None = None


class TakenOut(Out, kw_only=True):
    """A delivery under a lease, or a copy of one: what claims and streams hand over."""

    message: Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/MessageOut"})]
    seq: int
    attempt: int
    lease: LeaseOut | None = None
    again: bool = False


class NoticeOut(Out, kw_only=True):
    """A notice on a live stream that is stored nowhere: it has no id to come back to."""

    message: MessageOut
    transient: bool


class ClaimOut(Out, kw_only=True):
    """The answer to a claim."""

    deliveries: list[TakenOut]
    remaining: int


class SettledOut(Out, kw_only=True):
    """The answer to ack, nack and renew."""

    state: str
    already: bool = False
    late: bool = False
    deadline: str | None = None


class FailureOut(Out):
    """Why there is no answer."""

    reason: str
    text: str


class ReceiptOut(Out, kw_only=True):
    """A message and all that became of it."""

    message: MessageOut
    deliveries: list[DeliveryOut]
    reply: MessageOut | None = None
    failure: FailureOut | None = None


class AskOut(Out, kw_only=True):
    """The outcome of a question, or where it stands."""

    id: str
    thread: str
    reply: MessageOut | None = None
    failure: FailureOut | None = None
    deliveries: list[DeliveryOut] | None = None


class DeliveriesOut(Out):
    """The deliveries of a message."""

    deliveries: list[DeliveryOut]


class InboxRow(Out, kw_only=True):
    """One row of an inbox."""

    message: MessageOut
    seq: int
    state: str
    attempt: int
    accepted_at: str


class InboxOut(Out, kw_only=True):
    """A page of an inbox, and what it does not show."""

    deliveries: list[InboxRow]
    total: int
    hidden: int
    oldest_unread_at: str | None
    next: int | None


class DeadRow(Out, kw_only=True):
    """A dead letter, or a held message."""

    message: MessageOut
    delivery: DeliveryOut


class DeadOut(Out, kw_only=True):
    """A page of dead letters."""

    deliveries: list[DeadRow]
    next: int | None


class AdapterOut(Out):
    """How the hub wakes an agent."""

    kind: str


class AgentOut(Out, kw_only=True, omit_defaults=False):
    """An agent and how it stands. ``presence``: ``online`` with a live stream or an adapter that works, as far as is
    known, else ``away``. ``adapter``: what kind of agent its turns are run as, where the hub wakes it.

    Of one on another connection: ``presence`` is ``online``, ``offline`` or ``unknown``; ``profile`` is its name at
    Hermes, ``connection_label`` its connection's for people.
    """

    handle: str
    connection: str
    title: str
    description: str
    presence: str
    keyed: bool
    queued: int
    oldest_unread_at: str | None = None
    adapter: AdapterOut | None = None
    profile: str | UnsetType = UNSET
    connection_label: str | UnsetType = UNSET


class AgentsOut(Out):
    """The roster."""

    agents: list[AgentOut]


class TokenOut(Out, kw_only=True):
    """A new token, shown this once."""

    handle: str
    id: str
    token: str


def text_of(envelope: Envelope) -> str | None:
    """What the agent reads: the text, or the ``text`` of a seed payload."""
    if not envelope.flat or envelope.body is None:
        return envelope.text
    found = msgspec.json.decode(envelope.body).get("text")
    return found if isinstance(found, str) else None


def message_out(envelope: Envelope) -> MessageOut:
    """A message in its wire shape."""
    return MessageOut(
        id=envelope.id,
        from_=envelope.sender,
        to=envelope.to,
        intent=envelope.intent.value,
        kind=envelope.kind.value,
        verified=envelope.verified,
        text=text_of(envelope),
        body=UNSET if envelope.body is None else Raw(envelope.body),
        thread=envelope.thread,
        in_reply_to=envelope.in_reply_to,
        chain=envelope.chain,
        depth=envelope.depth,
        lane=envelope.lane.value,
        replay=envelope.replay.value,
        about=envelope.about,
        reason=envelope.reason,
        created_at=rfc3339(envelope.created_at),
        expires_at=rfc3339(envelope.expires_at),
    )


shown = Newest(lambda envelope: encode(message_out(envelope)))
"""``message_out`` as JSON, made once for all who are handed the message."""


def sent_row(delivery: Delivery, expected: str | None = None) -> DeliveryOut:
    """A delivery in the answer to a send: whom, which number, which state; of some what is expected."""
    return DeliveryOut(to=delivery.to, seq=delivery.seq, state=delivery.state.word, expected=expected)


def delivery_out(delivery: Delivery, *, until: int | None = None, expected: str | None = None) -> DeliveryOut:
    """A delivery in a receipt. ``until``: when its lease ends, in UTC ms, where one has an end."""
    return DeliveryOut(
        to=delivery.to,
        seq=delivery.seq,
        state=delivery.state.word,
        attempt=delivery.attempt,
        used=delivery.used,
        reason=delivery.reason.value if delivery.reason else None,
        late=delivery.late,
        by=delivery.hand.value if delivery.hand and delivery.delivered_at is not None else None,
        holder=_holder(delivery, until),
        expected=expected,
        accepted_at=rfc3339(delivery.accepted_at),
        expires_at=rfc3339(delivery.expires_at),
        leased_at=_maybe(delivery.leased_at),
        delivered_at=_maybe(delivery.delivered_at),
        answered_at=_maybe(delivery.answered_at),
        ended_at=_maybe(delivery.ended_at),
    )


def _holder(delivery: Delivery, until: int | None) -> HolderOut | None:
    if delivery.state is not State.LEASED or delivery.hand is None:
        return None
    return HolderOut(by=delivery.hand.value, since=_maybe(delivery.leased_at), until=_maybe(until))


def _maybe(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else rfc3339(milliseconds)
