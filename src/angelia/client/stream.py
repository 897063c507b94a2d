"""A stream of one agent's mail that is read for ever: it resumes where it was, through restarts, sleep and dead lines.

What must stay true: after a break the next connection asks for what came after the last event that was handed out.
45 s without a byte are a dead connection, since a hub says something every 15 s. Waits between tries are jittered and
honour the hub's ``retry:``. ``superseded`` ends the stream for good, or two readers would throw each other out for
ever. A refusal that would be the same next time (a wrong token, say) is raised; everything else is tried again.

Whether a message was dealt with is its reader's business, not this file's.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from angelia.client.backoff import Backoff, chance
from angelia.client.connection import Connection, json_object, refusal, why
from angelia.client.errors import ClientError, HubError, LostHub, NotAHub, TimedOut
from angelia.protocol.sse import Event, EventTooLarge, Parser

QUIET_SECONDS = 45.0
RETRY_SECONDS = 2.0  # until the hub names its own
RETRY_LEAST_SECONDS = 0.1  # whatever a hub says: nobody reconnects in a tight loop
RETRY_MOST_SECONDS = 30.0
_BLOCK = 65_536
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504, 507)


class Item(NamedTuple):
    """One event, and the id of its place. ``kind``: ``message``, or the hub's ``superseded reset lagged bye``."""

    kind: str
    data: dict[str, Any]
    id: str


class Stream:
    """The events of one path. Iterate over it; ``close``, from any thread, ends that."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        *,
        last_event_id: str = "",
        quiet_seconds: float = QUIET_SECONDS,
        notice: Callable[[str], None] = lambda _: None,
        draw: Callable[[], float] = chance,
    ) -> None:
        """In: a connection of its own; what to GET; where to resume; and whom to tell, once, that the hub is gone or
        back.
        """
        self.last_event_id = last_event_id
        self._connection = connection
        self._path = path
        self._quiet_seconds = quiet_seconds
        self._notice = notice
        self._backoff = Backoff(RETRY_SECONDS, RETRY_MOST_SECONDS, draw)
        self._closed = threading.Event()
        self._away = False
        self._bye_seconds = 0.0

    def close(self) -> None:
        """End the stream: a reader that waits for the next event sees the end of the iteration."""
        self._closed.set()
        self._connection.shutdown()

    def __iter__(self) -> Iterator[Item]:
        """Every event as it comes; ends on ``superseded`` (which is handed out) and on ``close``."""
        try:
            while not self._closed.is_set():
                try:
                    for item in self._one_connection():
                        yield item
                        if item.kind == "superseded":
                            return
                except ClientError as error:
                    if not may_pass(error):
                        raise
                    self._trouble(error)
                self._connection.close()
                # A hub that says goodbye has spread its readers already: each is told another time.
                wait = self._bye_seconds or self._backoff.next_seconds()
                self._bye_seconds = 0.0
                self._closed.wait(wait)
        finally:
            self._connection.close()

    def _one_connection(self) -> Iterator[Item]:
        answer = self._opened()
        if self._away:
            self._away = False
            self._notice("the hub is back")
        parser = Parser(last_event_id=self.last_event_id)
        while not self._closed.is_set():
            chunk = self._read(answer)
            if not chunk:
                return
            self._backoff.reset()
            try:
                events = parser.feed(chunk)
            except EventTooLarge as error:
                raise NotAHub(str(self._connection.address), str(error)) from None
            if parser.retry_ms is not None:
                self._backoff.first_seconds = max(RETRY_LEAST_SECONDS, parser.retry_ms / 1000)
            for event in events:
                item = _item(event)
                if event.event == "bye":
                    self._bye_seconds = self._backoff.first_seconds
                if item is not None:
                    yield item
                self.last_event_id = event.id
            self.last_event_id = parser.last_event_id

    def _opened(self) -> http.client.HTTPResponse:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.last_event_id:
            headers["Last-Event-ID"] = self.last_event_id
        answer = self._connection.open(self._path, headers, seconds=self._quiet_seconds)
        where = str(self._connection.address)
        if answer.status == 200 and (answer.getheader("Content-Type") or "").startswith("text/event-stream"):
            return answer
        content = self._read(answer)
        self._connection.close()
        if answer.status < 300:
            raise NotAHub(where, "what answers there gives no stream")
        raise refusal(answer.status, json_object(content), where)

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            return answer.read1(_BLOCK)
        except TimeoutError:
            raise TimedOut(f"the hub at {self._connection.address}", self._quiet_seconds) from None
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            # The last two are how http.client and ssl say that the socket was shut under them.
            raise LostHub(str(self._connection.address), why(error)) from None

    def _trouble(self, error: ClientError) -> None:
        if not self._away and not self._closed.is_set():
            self._away = True
            self._notice(f"{error}; trying again")


def may_pass(error: ClientError) -> bool:
    """Whether trying again later may help: no hub, no answer, and what a hub says of its own state."""
    return error.status in _TRY_AGAIN if isinstance(error, HubError) else True


def _item(event: Event) -> Item | None:
    """An event of ours, or None for one that no hub of this version sends: a later one may."""
    try:
        data = json.loads(event.data)
    except (ValueError, RecursionError):
        return None
    return Item(event.event, data, event.id) if isinstance(data, dict) else None
