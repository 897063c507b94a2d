"""Live chats: an agent that sits in an open conversation and is handed one message at a time.

What must stay true: a chat is its agent's own stream, with manual acks and a window of one, so whoever else could take
its mail waits or is superseded, as with any stream. It ends with its connection, and then what it had goes back.
"""

import asyncio
from dataclasses import dataclass

from angelia.bus.claim import lease_token
from angelia.bus.core import Bus
from angelia.bus.forward import said
from angelia.bus.ports import Parcel
from angelia.bus.streams import Stream
from angelia.bus.subscribe import End, Mail, attach, detach, next_items, wrote
from angelia.doors.gateway.peer import Peer
from angelia.model.delivery import Hand
from angelia.protocol import jsonrpc


@dataclass(slots=True, eq=False)
class Session:
    """One live chat. ``agent``: its handle; ``title``: what the chat is called where it is open. ``told``: whether its
    peer heard of it, once that is known."""

    id: str
    agent: str
    title: str
    stream: Stream
    told: asyncio.Future[bool]


async def open_session(peer: Peer, agent: str, title: str) -> Session:
    """Open a chat of ``agent``. Its first turn comes after ``told`` was set."""
    stream = await attach(peer.bus, agent, Hand.MANUAL, peer.line, None, window=1)
    told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    session = Session(peer.bus.ids.message_id(), agent, title, stream, told)
    peer.sessions[session.id] = session
    peer.tasks.create_task(_run(peer, session))
    return session


async def _run(peer: Peer, session: Session) -> None:
    """Hand over what comes until the chat is over."""
    bus, stream = peer.bus, session.stream
    try:
        while await session.told:
            for item in await next_items(bus, stream):
                if isinstance(item, Mail):
                    frame = _turn(bus, session, item.parcel)
                    if await peer.tell(frame):
                        wrote(bus, stream, [item.parcel], len(frame))
                elif isinstance(item, End):
                    if item.why != "gone":
                        told = {"session_id": session.id, "reason": item.why}
                        await peer.tell(jsonrpc.event("session.ended", told, session_id=session.id))
                    return
    finally:
        peer.sessions.pop(session.id, None)
        await detach(bus, stream)


def _turn(bus: Bus, session: Session, parcel: Parcel) -> bytes:
    envelope = parcel.envelope
    turn: dict[str, object] = {
        "session_id": session.id,
        "id": envelope.id,
        "lease": lease_token(bus, parcel),
        "from": envelope.sender,
        "verified": envelope.verified,
        "intent": envelope.intent.value,
        "kind": envelope.kind.value,
        "thread": envelope.thread,
        "text": said(envelope),
    }
    if envelope.in_reply_to is not None:
        turn["in_reply_to"] = envelope.in_reply_to
    return jsonrpc.event("session.turn", turn, session_id=session.id)
