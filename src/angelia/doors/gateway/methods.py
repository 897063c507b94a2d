"""The methods of the gateway: one literal table of their names, and a plain function for each.

What must stay true: a method parses, makes one call of the bus, and tells. ``METHODS`` is the whole truth: what stands
there can be called, and what is ``long`` may take as long as an agent's turn and never holds anything else back. What
was handed out counts as handed out only once it was written.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from angelia.bus import chat
from angelia.bus.ask import finished
from angelia.bus.caller import Rank, may
from angelia.bus.deliver import Incoming, agent_of, attributed
from angelia.bus.deliver import deliver as deliver_and_wait
from angelia.bus.desktops import scope_of, speaks_for
from angelia.bus.draft import Draft
from angelia.bus.forward import drain, handed_out, settle_far, times_of
from angelia.bus.message_agent import message_agent as send_as_tool
from angelia.bus.ports import Tx
from angelia.bus.publish import publish
from angelia.bus.remotes import ANONYMOUS, Pushed
from angelia.doors.gateway.peer import Peer
from angelia.doors.gateway.sessions import Session, open_session
from angelia.model.address import check_handle
from angelia.model.delivery import State
from angelia.model.envelope import Intent
from angelia.model.errors import BadRequest, UnknownAgent
from angelia.model.failure import Reason, classify_output, read_reason
from angelia.protocol import gateway as shapes
from angelia.protocol.bot_relay import fits
from angelia.protocol.gateway import Refusal, invalid, word
from angelia.protocol.jsonrpc import INVALID_PARAMS
from angelia.protocol.prompt import answer as unless_silent

Params = Mapping[str, Any]
_ID = re.compile(r"[0-9a-f]{32,64}")
_TITLE_LETTERS = 120


def nothing(_: bool) -> None:
    """For those to whom it makes no difference."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a call is answered with. ``done`` hears whether it left over a connection that was still open."""

    result: object
    done: Callable[[bool], None] = nothing


class Failed(Exception):
    """A refusal that somebody has to hear of, too: as ``Told.done``."""

    def __init__(self, refusal: Refusal, done: Callable[[bool], None]) -> None:
        super().__init__(refusal.message)
        self.refusal, self.done = refusal, done


@dataclass(frozen=True, slots=True)
class Method:
    """``fails_with``: the code of what goes wrong in the hub; None: one of our own, whose code is the HTTP status."""

    call: Callable[[Peer, Params], Awaitable[Told]]
    fails_with: int | None = None
    long: bool = False


# ------------------------------------------------------------------------------------------------- Hermes' vocabulary


async def roster_sync(peer: Peer, params: Params) -> Told:
    """Take the rows of agents on a desktop's other connections."""
    may(peer.caller, "relay")
    name = _scope(peer, params)
    bus = peer.bus

    def unit(tx: Tx) -> Pushed:
        return bus.remotes.push(tx, bus.limits, name, params.get("agents"), bus.clock.now())

    pushed = await bus.store.write(unit)
    rejected = [{"row": row, "reason": reason} for row, reason in pushed.rejected]
    return Told({"count": pushed.count, "rejected": rejected})


async def outbox_drain(peer: Peer, params: Params) -> Told:
    """Hand out the mail that waits for a desktop."""
    may(peer.caller, "relay")
    scope = _scope(peer, params).lower()
    drained = await drain(peer.bus, scope)

    def done(written: bool) -> None:
        handed_out(peer.bus, drained, written=written)
        if drained.more:
            peer.bus.signals.wake("@" + scope)

    return Told({"envelopes": [envelope.content for envelope in drained.envelopes]}, done)


async def deliver(peer: Peer, params: Params) -> Told:
    """Hand a message from elsewhere to an agent here; the answer is its answer."""
    may(peer.caller, "relay_deliver")
    profile, message = word(params, "profile"), word(params, "message")
    if not profile or not message:
        raise invalid(shapes.NOTHING_TO_DELIVER, "profile and message required")
    if not fits(message):
        raise invalid(shapes.TOO_LONG, "message too long", "agent_blocked")
    bus = peer.bus
    _scope(peer, params)
    try:
        agent = agent_of(bus, profile)
    except UnknownAgent as error:
        raise invalid(shapes.NO_PROFILE, error.detail, "unknown_profile") from None
    sender, proved, text = _sender(peer, params, message)
    mail = Incoming(agent=agent, sender=sender, verified=proved, text=text, id=_delivery_id(params))
    fate = await deliver_and_wait(bus, mail)

    def done(written: bool) -> None:
        if fate.answer is not None:
            finished(bus, fate.answer, written=written)

    if fate.reason is not None:
        raise Failed(shapes.no_delivery(fate.reason, fate.text, times_of(bus.limits).deliver_seconds), done)
    return Told({"reply": fate.text}, done)


async def reply(peer: Peer, params: Params) -> Told:
    """Take the outcome of a message that was handed out."""
    may(peer.caller, "relay")
    if not word(params, "id"):
        raise invalid(shapes.NO_ID, "id required")
    try:
        said = params.get("reply"), params.get("error"), params.get("reason")
        await settle_far(peer.bus, params["id"], *said, partial(speaks_for, peer.bus, peer.caller))
    except ValueError as error:
        raise invalid(shapes.BAD_ID, str(error)) from None
    return Told({"ok": True})


async def profiles_list(peer: Peer, params: Params) -> Told:
    """The agents of this hub, as profiles."""
    may(peer.caller, "look_at_agents")
    return Told(shapes.profiles(agent for agent in peer.bus.directory.agents.values() if agent.member))


async def gateway_ping(peer: Peer, params: Params) -> Told:
    """Say that the hub is there."""
    return Told({"ok": True})


async def prompt_submit(peer: Peer, params: Params) -> Told:
    """Put a text into a live chat of this connection; it runs as a turn of its own, never into one that runs."""
    may(peer.caller, "send")
    session = _session(peer, params)
    text = shapes.whole(params, "text")
    if not text:
        raise invalid(INVALID_PARAMS, "text is missing: say what is to be submitted.")
    sender, proved, text = _sender(peer, params, text)
    draft = Draft(sender=sender, verified=proved, to=session.agent, text=text, intent=Intent.INFORM)
    accepted = await publish(peer.bus, draft)
    waits = accepted.deliveries[0].state is State.QUEUED
    return Told({"status": "queued" if waits else "streaming", "id": accepted.envelope.id})


# -------------------------------------------------------------------------------------------------------------- our own


async def session_open(peer: Peer, params: Params) -> Told:
    """Open a live chat: its agent's mail comes as ``session.turn``, one at a time."""
    may(peer.caller, "read")
    profile = word(params, "profile")
    agent, _ = peer.bus.identify(peer.caller, "hermes" if profile == "default" else check_handle(profile), "profile")
    session = await open_session(peer, agent, word(params, "title")[:_TITLE_LETTERS])

    def done(written: bool) -> None:
        if not session.told.done():
            session.told.set_result(written)

    return Told({"session_id": session.id, "profile": agent, "title": session.title}, done)


async def session_done(peer: Peer, params: Params) -> Told:
    """Answer a turn, or say why there is no answer."""
    may(peer.caller, "settle")
    id, lease = shapes.message_id(params), word(params, "lease")
    text, error = shapes.whole(params, "text"), shapes.whole(params, "error")
    if (text is None) == (error is None):
        raise BadRequest("A turn ends with a text or with an error. Nothing was changed.")
    if text is not None:
        settled = await chat.answered(peer.bus, peer.caller, lease, id, unless_silent(text))
    else:
        reason = read_reason(params["reason"]) if params.get("reason") else _classified(peer, error or "")
        settled = await chat.failed(peer.bus, peer.caller, lease, id, reason, error or "")
    return Told({"state": settled.state.word, "already": settled.already, "late": settled.late})


async def session_close(peer: Peer, params: Params) -> Told:
    """Close a live chat; what it has not finished goes back."""
    session = _session(peer, params)
    session.stream.end("gone")
    return Told({"ok": True})


async def message_agent(peer: Peer, params: Params) -> Told:
    """Hermes' tool: send a request to somebody here or elsewhere; the answer is of Hermes' shape."""
    may(peer.caller, "send")
    name, proved = peer.bus.identify(peer.caller, word(params, "from") or None)
    id = shapes.message_id(params) if params.get("id") is not None else None
    return Told(await send_as_tool(peer.bus, name, params.get("target"), params.get("message"), verified=proved, id=id))


METHODS: dict[str, Method] = {
    "bot_relay.roster.sync": Method(roster_sync, shapes.ROSTER_FAILED),
    "bot_relay.outbox.drain": Method(outbox_drain, shapes.DRAIN_FAILED),
    "bot_relay.deliver": Method(deliver, shapes.DELIVER_FAILED, long=True),
    "bot_relay.reply": Method(reply, shapes.REPLY_FAILED),
    "profiles.list": Method(profiles_list),
    "gateway.ping": Method(gateway_ping),
    "prompt.submit": Method(prompt_submit),
    "session.open": Method(session_open),
    "session.done": Method(session_done),
    "session.close": Method(session_close),
    "message_agent": Method(message_agent),
}


def _scope(peer: Peer, params: Params) -> str:
    """Whose roster and mail it is (``bus/desktops.py``)."""
    name = scope_of(peer.bus, peer.caller, params.get("desktop"))
    if params.get("desktop"):
        peer.follow(name)  # and whose connections its later deliveries speak of
    return name


def _sender(peer: Peer, params: Params, text: str) -> tuple[str, bool, str]:
    """Who writes, whether that is proved, and the text without a header that says so. An agent with a token is itself,
    whatever it claims; a relay speaks for others."""
    if peer.caller.rank is Rank.AGENT and peer.caller.name is not None:
        return peer.caller.name, True, text
    bus = peer.bus
    if peer.scope != ANONYMOUS:  # what it called itself before may be somebody else's now
        scope_of(bus, peer.caller, peer.scope)
    said = (params.get(name) for name in ("from_profile", "from_handle", "from_connection"))
    sender, body = attributed(bus.remotes, bus.limits, bus.clock.now(), peer.scope, text, *said)
    return sender, False, body


def _session(peer: Peer, params: Params) -> Session:
    session = peer.sessions.get(word(params, "session_id"))
    if session is None:
        raise Refusal(shapes.NO_SESSION, "session not found", {"reason": "unknown"})
    return session


def _delivery_id(params: Params) -> str | None:
    """The message's own id: what a relay says it is, made one of ours where it is longer."""
    given = params.get("id")
    if given is None or given == "":
        return None
    if not isinstance(given, str) or _ID.fullmatch(given) is None:
        raise invalid(shapes.NOTHING_TO_DELIVER, "id is 32 to 64 lowercase hex digits")
    return given if len(given) == 32 else hashlib.sha256(given.encode()).hexdigest()[:32]


def _classified(peer: Peer, error: str) -> Reason:
    return classify_output(error, [session.agent for session in peer.sessions.values()])
