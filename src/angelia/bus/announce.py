"""Telling those who want to know that an agent is connected: the seed's ``subscriber_connected``.

What must stay true: ``hermes`` and ``openclaw`` tell each other; beyond these two only agents that have exchanged mail
directly are told, so that thousands of strangers that come and go cause nothing. A break shorter than 30 s is a
reconnect, not news. On a live stream the notice is not stored; else it is one row, replaced by the next, gone after an
hour, never answered. However many come at once, one short unit of this waits in the store's queue: others' mail goes
between.
"""

import asyncio
import json
from collections.abc import Callable

from angelia.bus.core import Bus, log
from angelia.bus.place import place
from angelia.bus.ports import Tx
from angelia.bus.presence import News
from angelia.bus.streams import Stream
from angelia.model.address import PERSON, PRESENCE, SEED_AGENTS, parse
from angelia.model.delivery import State
from angelia.model.envelope import Envelope, Intent, Kind, fingerprint

CONNECTED = "subscriber_connected"
MOST_TOLD = 64
MOST_LOOKED_AT = 1000  # unread notices of one mailbox, read once, among which an older one is looked for
AT_ONCE = 8  # are told in one unit: 1 to 2 ms where each has an older notice that is replaced


def connected(bus: Bus, stream: Stream) -> None:
    """An agent that had no stream has one; tell the others when that is news. On the event loop, after the commit."""
    if bus.presence.came_back(stream.mailbox, bus.clock.monotonic(), bus.limits.presence_gap_seconds):
        text = f"{stream.name} is connected: messages reach it in real time now"
        payload = {"type": CONNECTED, "text": text, "agent": stream.name}
        body = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
        bus.presence.news.append(News(stream.mailbox, body))
        if len(bus.presence.news) == 1:
            _tell_next(bus)


def disconnected(bus: Bus, stream: Stream) -> None:
    """An agent's own stream ended and no other took over."""
    bus.presence.left(stream.mailbox, bus.clock.monotonic())


def _tell_next(bus: Bus) -> None:
    """Tell some of the oldest news; it stands first until all have been told, or it could not be stored."""
    news = bus.presence.news[0]

    def done(future: "asyncio.Future[tuple[str, ...]]") -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            log.warning("that somebody is connected could not be told: %s", error)
        others = () if future.cancelled() or error is not None else future.result()
        if others:
            bus.presence.news[0] = news._replace(others=others)
        else:
            bus.presence.news.popleft()
        if bus.stopping:
            bus.presence.news.clear()
        if bus.presence.news:
            _tell_next(bus)

    bus.store.write(lambda tx: _tell_some(bus, tx, news)).add_done_callback(done)


def _tell_some(bus: Bus, tx: Tx, news: News) -> tuple[str, ...]:
    """Tell the first few; who is left."""
    others = _who(tx, news.mailbox) if news.others is None else news.others
    for other in others[:AT_ONCE]:
        live = bus.streams.attached.get(other)
        if live is not None and live.ended is None:
            tx.then(_show(live, _notice(bus, live.name, news.body)))
        elif (agent := bus.directory.find(other)) is not None:
            _leave(bus, tx, agent.handle, news.body)
    return others[AT_ONCE:]


def _who(tx: Tx, mailbox: str) -> tuple[str, ...]:
    others = {name for name in SEED_AGENTS if mailbox in SEED_AGENTS}
    others.update(tx.contacts(mailbox, MOST_TOLD))
    return tuple(sorted(others - {mailbox, PERSON}))


def _leave(bus: Bus, tx: Tx, handle: str, body: bytes) -> None:
    """Put a notice into a mailbox, in the place of the unread one that says the same. Only what nobody has been handed
    is replaced: what has been keeps its place among a resume's copies."""
    mailbox, unread = handle.lower(), bus.presence.unread
    tx.otherwise(lambda: unread.forget(mailbox))
    if not unread.knows(mailbox):
        found = tx.inbox(mailbox, 0, MOST_LOOKED_AT, frozenset({State.QUEUED}), PRESENCE).parcels
        unread.know(mailbox, {p.envelope.body or b"": p.delivery.key for p in found if not p.delivery.attempt})
    key = unread.find(mailbox, body)
    old = None if key is None else tx.delivery(key)
    if old is not None and old.state is State.QUEUED and not old.attempt:
        tx.remove([old])
    (row,) = place(bus, tx, _notice(bus, handle, body), [parse(handle)])
    unread.put(mailbox, body, row.key)


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
