"""A stream that is read for ever, as a plan: it resumes where it was, through restarts, sleep and dead lines.

What must stay true:

- After a break the next connection asks for what came after the last event that was handed out.
- What reconnects and what ends it stands in one table, below. The first answer ever is judged more strictly: an address
  at which there never was a hub is a mistake, one at which there was will have one again.
- Waits between tries are jittered and honour the hub's ``retry:``. 45 s without a byte are a dead connection, since a
  hub says something every 15 s.
- No redirect is followed: a token and mail go only where they were told to.

    what happens                                    then
    no connection; a break; silence; an end of 200  again
    408 425 429 500 502 503 504 507                 again
    200 of another type, 204, 3xx, no HTTP          NotAHub; again, once there was a stream
    any other refusal of a hub (401, 403, 404 …)    HubError
    event: bye                                      again, when the hub said
    event: superseded                               over, and nobody may come back by himself
    an event larger than any hub's                  NotAHub

The standard (WHATWG HTML, "Server-sent events") ends a stream on every status but 200. A hub that is being restarted
behind a proxy says 502, so this client goes on; what the standard says of bytes is ``protocol/sse.py``'s part.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from angelia.client.backoff import Backoff, chance
from angelia.client.core.answers import json_object, may_pass, refusal
from angelia.client.core.steps import Head, Open, Out, Pause, Read, Shut
from angelia.client.errors import ClientError, NotAHub
from angelia.protocol.sse import Event, EventTooLarge, Parser

if TYPE_CHECKING:
    from collections.abc import Callable

    from angelia.client.core.steps import Plan

T = TypeVar("T")

QUIET_SECONDS = 45.0
RETRY_SECONDS = 2.0  # until the hub names its own
RETRY_LEAST_SECONDS = 0.1  # whatever a hub says: nobody reconnects in a tight loop
RETRY_MOST_SECONDS = 30.0
_EVENT_STREAM = "text/event-stream"
_PROBLEM_BYTES = 65_536  # a refusal is a few hundred; the rest is not worth reading


class Item(NamedTuple):
    """One event, and the id of its place. ``kind``: ``message``, or the hub's ``superseded reset lagged bye``."""

    kind: str
    data: dict[str, Any]
    id: str


def as_it_is(item: Item) -> Plan[None]:
    """Hand an item over, whatever it is."""
    yield Out(item)


class Following(Generic[T]):
    """The events of one path, each made into a ``T``. ``last_event_id`` is where the next connection goes on."""

    def __init__(
        self,
        where: str,
        path: str,
        *,
        last_event_id: str = "",
        quiet_seconds: float = QUIET_SECONDS,
        notice: Callable[[str], None] = lambda _: None,
        draw: Callable[[], float] = chance,
        hand: Callable[[Item], Plan[None]] = as_it_is,
    ) -> None:
        """In: whom to name in errors; what to GET; where to resume; and whom to tell, once, that the hub is gone or
        back; what each item becomes.
        """
        self.last_event_id = last_event_id
        self.backoff = Backoff(RETRY_SECONDS, RETRY_MOST_SECONDS, draw)
        self._where = where
        self._path = path
        self.quiet_seconds = quiet_seconds
        self._notice = notice
        self._hand = hand
        self._met = False  # whether a hub ever gave us a stream
        self._away = False
        self._bye_seconds = 0.0

    def run(self) -> Plan[None]:
        """Hand out every event as it comes; returns when the stream is over for good."""
        over = False
        while True:
            try:
                over = yield from self._one_connection()
            except ClientError as error:
                if not may_pass(error) or (isinstance(error, NotAHub) and not self._met):
                    raise
                self._trouble(error)
            yield Shut()
            if over:
                return
            # A hub that says goodbye has spread its readers already: each is told another time.
            wait = self._bye_seconds or self.backoff.next_seconds()
            self._bye_seconds = 0.0
            yield Pause(wait)

    def _one_connection(self) -> Plan[bool]:
        """One stream to its end. Out: whether it is over for good."""
        yield from self._opened()
        parser = Parser(last_event_id=self.last_event_id)
        while chunk := (yield Read()):
            self.backoff.reset()
            try:
                events = parser.feed(chunk)
            except EventTooLarge as error:
                self._met = False  # it would be the same next time
                raise NotAHub(self._where, str(error)) from None
            if parser.retry_ms is not None:
                self.backoff.first_seconds = max(RETRY_LEAST_SECONDS, parser.retry_ms / 1000)
            for event in events:
                item = _item(event)
                if event.event == "bye":
                    self._bye_seconds = self.backoff.first_seconds
                if item is not None:
                    yield from self._hand(item)
                self.last_event_id = event.id
                if event.event == "superseded":
                    return True
            self.last_event_id = parser.last_event_id
        return False

    def _opened(self) -> Plan[None]:
        headers = {"Accept": _EVENT_STREAM, "Cache-Control": "no-store"}
        if self.last_event_id:
            # In UTF-8, as the standard has it; both drivers write a header's letters as single bytes.
            headers["Last-Event-ID"] = self.last_event_id.encode("utf-8", "replace").decode("latin-1")
        head: Head = yield Open(self._path, headers, self.quiet_seconds)
        if head.status == 200 and head.kind.partition(";")[0].strip().lower() == _EVENT_STREAM:
            self._met = True
            if self._away:
                self._away = False
                self._notice("the hub is back")
            return
        if 200 <= head.status < 300:
            kind = head.kind[:80] or "no type at all"
            raise NotAHub(self._where, f"what answers there gives no stream, but {head.status} and {kind}")
        content = b""
        while len(content) < _PROBLEM_BYTES and (piece := (yield Read())):
            content += piece
        raise refusal(head.status, json_object(content), self._where, head.location)

    def _trouble(self, error: ClientError) -> None:
        if not self._away:
            self._away = True
            self._notice(f"{error}; trying again")


def _item(event: Event) -> Item | None:
    """An event of ours, or None for one that no hub of this version sends: a later one may."""
    try:
        data = json.loads(event.data)
    except (ValueError, RecursionError):
        return None
    return Item(event.event, data, event.id) if isinstance(data, dict) else None


def message_id(item: Item) -> str:
    """The id of the message in an item; "" where it holds none."""
    message = item.data.get("message")
    found = message.get("id") if item.kind == "message" and isinstance(message, dict) else None
    return found if isinstance(found, str) else ""


def lease_token(item: Item) -> str:
    """The token of the lease in an item; "" where it holds none."""
    lease = item.data.get("lease")
    found = lease.get("token") if isinstance(lease, dict) else lease
    return found if isinstance(found, str) else ""
