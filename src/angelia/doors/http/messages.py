"""Messages: how a request becomes an envelope, and what is told of it afterwards."""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from angelia.bus.ask import Answer, ask, finished
from angelia.bus.caller import Caller, may
from angelia.bus.cancel import cancel
from angelia.bus.core import Bus
from angelia.bus.draft import Accepted, Draft
from angelia.bus.look import Receipt, expected, held_until, receipt
from angelia.bus.publish import publish, publish_many
from angelia.bus.runs import wakes
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.doors.http.problem import as_dict
from angelia.model.address import EVERYONE
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope, Intent, Kind, Lane, Replay
from angelia.model.errors import BadRequest, CallerError, TooLarge
from angelia.model.failure import Reason, prose
from angelia.protocol import native
from angelia.protocol.answers import BatchOut, BroadcastOut, OutcomeOut, RefusedOut
from angelia.protocol.json import compact, struct
from angelia.protocol.seed_bus import read_payload

_ON_THE_WAY = frozenset({None, Hand.LINK})  # to who takes it: nobody yet, or another hub


async def send(call: Call, bus: Bus, hub: Hub) -> None:
    """Send one message, or a batch of them."""
    may(call.caller, "send")
    data = await call.body(hub.batch_bytes)
    if _is_batch(data):
        await _send_batch(call, bus, data)
        return
    if len(data) > hub.request_bytes:
        raise TooLarge(
            f"One message has at most {hub.request_bytes} bytes. Nothing was stored.", limit=hub.request_bytes
        )
    asked = struct(data, native.SendIn, bus.limits.body_depth)
    accepted = await publish(bus, draft_of(bus, call.caller, asked, key=call.header(b"idempotency-key")))
    await call.answer(sent(bus, accepted), 200 if accepted.duplicate else 201)


class _Peek(msgspec.Struct):
    messages: Raw | UnsetType = UNSET
    to: Raw | UnsetType = UNSET


_peek = msgspec.json.Decoder(_Peek).decode


def _is_batch(data: bytes) -> bool:
    if b'"messages"' not in data:
        return False
    try:
        peek = _peek(data)
    except msgspec.MsgspecError:
        return False
    return peek.messages is not UNSET and peek.to is UNSET


async def _send_batch(call: Call, bus: Bus, data: bytes) -> None:
    """Each message has an outcome of its own; those that are accepted share commits."""
    items = struct(data, native.BatchIn, bus.limits.body_depth).messages
    most = bus.limits.batch_messages
    if len(items) > most:
        raise TooLarge(f"A batch has at most {most} messages. Nothing was stored.", limit=most)
    drafts = [_draft_or_error(bus, call.caller, item) for item in items]
    await call.answer(BatchOut([_outcome(bus, each) for each in await publish_many(bus, drafts)]))


def _draft_or_error(bus: Bus, caller: Caller, item: Raw) -> Draft | CallerError:
    try:
        return draft_of(bus, caller, struct(bytes(item), native.SendIn, bus.limits.body_depth))
    except CallerError as error:
        return error


def _outcome(bus: Bus, outcome: Accepted | CallerError) -> OutcomeOut:
    if isinstance(outcome, CallerError):
        return OutcomeOut(status=outcome.status, problem=as_dict(outcome))
    return OutcomeOut(status=200 if outcome.duplicate else 201, sent=sent(bus, outcome))


def draft_of(bus: Bus, caller: Caller, asked: native.SendIn, *, key: str | None = None) -> Draft:
    """A request as a draft, under the name that the caller may act as."""
    name, proved = bus.identify(caller, asked.from_)
    if asked.lane == "person":
        may(caller, "person_lane")
    return Draft(
        sender=name,
        verified=proved,
        to=asked.to,
        text=asked.text,
        body=body_of(bus, asked.body),
        intent=asked.intent,
        thread=asked.thread,
        in_reply_to=asked.in_reply_to,
        ttl_seconds=asked.ttl_seconds,
        id=asked.id,
        key=key,
        lane=lane_of(name, asked.lane),
        replay=Replay(asked.replay or "once"),
    )


def lane_of(sender: str, lane: Literal["person", "normal"] | None) -> Lane:
    """A person's mail goes first, unless it says otherwise."""
    if lane is not None:
        return Lane(lane)
    return Lane.PERSON if sender == "human" else Lane.NORMAL


def body_of(bus: Bus, raw: Raw | UnsetType) -> bytes | None:
    """A JSON body, compact; None where there is none."""
    return None if isinstance(raw, UnsetType) else compact(bytes(raw), bus.limits.body_depth)


def sent(bus: Bus, accepted: Accepted) -> native.SentOut:
    """The answer to a send."""
    return native.SentOut(
        id=accepted.envelope.id,
        thread=accepted.envelope.thread,
        deliveries=_rows(bus, accepted.envelope, accepted.deliveries),
        duplicate=accepted.duplicate,
        refused=[native.Refused(to=to, code=error.code, detail=error.detail) for to, error in accepted.refused] or None,
    )


def _rows(bus: Bus, envelope: Envelope, deliveries: Iterable[Delivery]) -> list[native.DeliveryOut]:
    """Where each stands; of one that waits for another machine, or wakes nobody, what for. Of all others that is not
    looked up."""
    intent = envelope.intent
    return [
        native.sent_row(d, expected(bus, d, intent) if d.state is State.QUEUED and _is_told(d, intent) else None)
        for d in deliveries
    ]


def _is_told(delivery: Delivery, intent: Intent) -> bool:
    return delivery.connection is not None or not wakes(delivery, intent)


async def broadcast(call: Call, bus: Bus, hub: Hub) -> None:
    """The seed's send: any JSON to ``to``, or to everyone where that is left out."""
    may(call.caller, "send")
    name, proved = bus.identify(call.caller, call.query("from"))
    to = call.query("to")
    data = await call.body(hub.request_bytes)
    text, body, flat = read_payload(data, bus.limits.body_depth)
    draft = Draft(
        sender=name,
        verified=proved,
        to=EVERYONE if to is None else to,
        text=text,
        body=body,
        flat=flat,
        key=call.header(b"idempotency-key"),
        lane=lane_of(name, None),
    )
    accepted = await publish(bus, draft)
    rows = accepted.deliveries
    answer = BroadcastOut(
        delivered=not accepted.refused and all(row.hand not in _ON_THE_WAY and row.attempt == 1 for row in rows),
        stored=True,
        id=accepted.envelope.id,
        to=[row.to for row in rows],
        seq=max(row.seq for row in rows),
        duplicate=True if accepted.duplicate else UNSET,
        refused=[RefusedOut(to, error.code) for to, error in accepted.refused] or UNSET,
    )
    await call.answer(answer)


async def get(call: Call, bus: Bus, hub: Hub) -> None:
    """A message and its receipt; with ``wait``, once something changed."""
    may(call.caller, "look_at_message")
    found = await receipt(bus, call.caller, call.param("id"), call.number("wait", float, 0.0))
    await call.answer(_receipt_out(bus, found))


def _receipt_out(bus: Bus, found: Receipt) -> native.ReceiptOut:
    intent = found.envelope.intent
    reasons = [
        d.reason for d in found.deliveries if d.reason is not None and d.state.word in ("failed", "dead", "delivered")
    ]
    return native.ReceiptOut(
        message=native.message_out(found.envelope),
        deliveries=[
            native.delivery_out(d, until=held_until(bus, d), expected=expected(bus, d, intent))
            for d in found.deliveries
        ],
        reply=native.message_out(found.reply) if found.reply else None,
        failure=_failure(reasons[0]) if reasons and found.reply is None and found.final else None,
    )


def _failure(reason: Reason) -> native.FailureOut:
    return native.FailureOut(reason.value, prose(reason))


async def withdraw(call: Call, bus: Bus, hub: Hub) -> None:
    """Withdraw what is not delivered yet."""
    may(call.caller, "cancel")
    await call.read(native.Nothing, hub.request_bytes, 2)
    deliveries = await cancel(bus, call.caller, call.param("id"))
    await call.answer(native.DeliveriesOut([native.delivery_out(d) for d in deliveries]))


async def reply(call: Call, bus: Bus, hub: Hub) -> None:
    """Answer a message."""
    may(call.caller, "send")
    asked = await call.read(native.ReplyIn, hub.request_bytes, bus.limits.body_depth)
    name, proved = bus.identify(call.caller, asked.from_)
    if asked.text is None and isinstance(asked.body, UnsetType):
        raise BadRequest("There is neither text nor body in it; one of them is needed. Nothing was stored.")
    draft = Draft(
        sender=name,
        verified=proved,
        text=asked.text,
        body=body_of(bus, asked.body),
        in_reply_to=call.param("id"),
        id=asked.id,
        key=call.header(b"idempotency-key"),
        lane=lane_of(name, None),
        kind=Kind.REPLY,
    )
    accepted = await publish(bus, draft)
    await call.answer(sent(bus, accepted), 200 if accepted.duplicate else 201)


async def ask_and_wait(call: Call, bus: Bus, hub: Hub) -> None:
    """Send a question and wait for its outcome: 200 with it, or 202 when there is none yet."""
    may(call.caller, "send")
    asked = await call.read(native.AskIn, hub.request_bytes, bus.limits.body_depth)
    draft = draft_of(bus, call.caller, asked, key=None)
    answer = await call.while_there(ask(bus, draft, asked.wait_seconds))
    written = False
    try:
        there = answer.reply is not None or answer.failure is not None
        await call.answer(_ask_out(bus, answer), 200 if there else 202)
        written = await call.handed_over()
    finally:
        finished(bus, answer, written=written)


def _ask_out(bus: Bus, answer: Answer) -> native.AskOut:
    pending = answer.reply is None and answer.failure is None
    return native.AskOut(
        id=answer.question.id,
        thread=answer.question.thread,
        reply=native.message_out(answer.reply) if answer.reply else None,
        failure=native.FailureOut(answer.failure[0].value, answer.failure[1]) if answer.failure else None,
        deliveries=_rows(bus, answer.question, answer.deliveries) if pending else None,
    )
