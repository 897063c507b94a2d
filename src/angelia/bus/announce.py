"""Telling those who want to know that an agent is connected: the seed's ``subscriber_connected``.

What must stay true: ``hermes`` and ``openclaw`` tell each other; beyond these two only agents that have exchanged mail
directly are told, so that thousands of strangers that come and go cause nothing. A break shorter than 30 s is a
reconnect, not news. On a live stream the notice is not stored; else it is one row, replaced by the next, gone after an
hour, never answered.
"""

import json
from collections.abc import Callable

from angelia.bus.core import Bus
from angelia.bus.place import place
from angelia.bus.ports import Tx
from angelia.bus.streams import Stream
from angelia.model.address import PERSON, PRESENCE, SEED_AGENTS, parse
from angelia.model.delivery import State
from angelia.model.envelope import Envelope, Intent, Kind, fingerprint

CONNECTED = "subscriber_connected"
MOST_TOLD = 64
MOST_LOOKED_AT = 1000  # unread notices of one mailbox among which an older one is looked for


def connected(bus: Bus, stream: Stream) -> None:
    """An agent that had no stream has one; tell the others when that is news. On the event loop, after the commit."""
    if bus.presence.came_back(stream.mailbox, bus.clock.monotonic(), bus.limits.presence_gap_seconds):
        bus.submit(lambda tx: _tell(bus, tx, stream), essential=False)


def disconnected(bus: Bus, stream: Stream) -> None:
    """An agent's own stream ended and no other took over."""
    bus.presence.left(stream.mailbox, bus.clock.monotonic())


def _tell(bus: Bus, tx: Tx, stream: Stream) -> None:
    others = {name for name in SEED_AGENTS if stream.mailbox in SEED_AGENTS}
    others.update(tx.contacts(stream.mailbox, MOST_TOLD))
    others -= {stream.mailbox, PERSON}
    text = f"{stream.name} is connected: messages reach it in real time now"
    payload = {"type": CONNECTED, "text": text, "agent": stream.name}
    body = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    for other in sorted(others):
        live = bus.streams.attached.get(other)
        if live is not None and live.ended is None:
            tx.then(_show(live, _notice(bus, live.name, body)))
        elif (agent := bus.directory.find(other)) is not None:
            # Only what nobody has been handed is replaced: what has been keeps its place among a resume's copies.
            unread = tx.inbox(other, 0, MOST_LOOKED_AT, frozenset({State.QUEUED}), PRESENCE).parcels
            tx.remove([p.delivery for p in unread if p.envelope.body == body and not p.delivery.attempt])
            place(bus, tx, _notice(bus, agent.handle, body), [parse(agent.handle)])


def _show(live: Stream, notice: Envelope) -> Callable[[], None]:
    def effect() -> None:
        live.transient.append(notice)
        live.wake()

    return effect


def _notice(bus: Bus, to: str, body: bytes) -> Envelope:
    now = bus.clock.now()
    message_id = bus.ids.message_id()
    return Envelope(
        id=message_id,
        sender=PRESENCE,
        to=to,
        intent=Intent.ACK,
        kind=Kind.NOTICE,
        text=None,
        body=body,
        flat=True,
        thread=message_id,
        chain=message_id,
        created_at=now,
        expires_at=now + bus.limits.presence_ttl_seconds * 1000,
        verified=True,
        fingerprint=fingerprint(PRESENCE, to, Intent.ACK, Kind.NOTICE, None, body, None, None),
    )
