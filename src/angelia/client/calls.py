"""The calls of a hub's native interface, one method each; answers are the JSON objects that ``/v1`` gives.

What must stay true: a message has its id before it is sent, and every repeat goes out under that id, so that a lost
connection, a 503 or an unknown outcome never makes two messages of one. While nothing has been heard by any hub there
is no repeat either: "no hub" is said at once. The stream stands in ``client.py``; ``send`` must not have to load it.
"""

from __future__ import annotations

import time
from urllib.parse import quote, urlencode

from angelia.client.backoff import Backoff
from angelia.client.connection import Connection, json_object, refusal
from angelia.client.errors import AskFailed, ClientError, HubError, LostHub, NoHub, NotAHub, TimedOut
from angelia.client.find import DEFAULT_URL, Address, read
from angelia.client.ids import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

ANSWER_SECONDS = 30.0  # a hub that has the request answers in milliseconds; this is for one whose disk hangs
PATIENCE_SECONDS = 15.0  # a hub that replaces itself is back within a few seconds
ASK_STEP_SECONDS = 50.0  # one POST's wait: below the hub's 60 s, and below the idle limit of common proxies
RETRY_SECONDS, RETRY_MOST_SECONDS = 0.2, 2.0

ABSENT: object = object()  # no body at all, as against the JSON value null


class Calls:
    """One caller at one hub. Not for several threads at once; each takes its own."""

    def __init__(
        self,
        hub: str | Address = DEFAULT_URL,
        *,
        name: str | None = None,
        token: str | None = None,
        answer_seconds: float = ANSWER_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """In: the hub's address; who calls (its handle, and its token where the name is keyed); how long one answer
        may take; for how long a send goes on repeating itself; and what to wait with.
        """
        self.name = name
        self.connection = Connection(read(hub) if isinstance(hub, str) else hub, token or "")
        self._answer_seconds = answer_seconds
        self._patience_seconds = patience_seconds
        self._pause = pause

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self.connection.close()

    # ---- sending

    def send(
        self,
        to: str,
        text: str | None = None,
        *,
        body: object = ABSENT,
        intent: str | None = None,
        thread: str | None = None,
        in_reply_to: str | None = None,
        ttl_seconds: float | None = None,
        id: str | None = None,
    ) -> dict[str, Any]:
        """Send a message; it is on the hub's disk when this returns. Out: ``{id, thread, deliveries, duplicate}``."""
        given = {"to": to, "text": text, "intent": intent, "thread": thread, "in_reply_to": in_reply_to,
                 "ttl_seconds": ttl_seconds}  # fmt: skip
        return self._surely("/v1/messages", self._message(given, body, id or new_id()))

    def reply(
        self, message_id: str, text: str | None = None, *, body: object = ABSENT, id: str | None = None
    ) -> dict[str, Any]:
        """Answer a message. Out: as ``send``."""
        path = f"/v1/messages/{_part(message_id)}/reply"
        return self._surely(path, self._message({"text": text}, body, id or new_id()))

    def ask(
        self,
        to: str,
        text: str | None = None,
        *,
        body: object = ABSENT,
        thread: str | None = None,
        in_reply_to: str | None = None,
        ttl_seconds: float | None = None,
        id: str | None = None,
        wait_seconds: float = 600.0,
    ) -> dict[str, Any]:
        """Send a request and wait for its reply. Out: ``{id, reply}``.

        Raises ``AskFailed`` when its outcome is a failure and ``TimedOut`` when there is none in time; the message then
        stays on its way, and the same call with that ``id`` waits on.
        """
        given = {"to": to, "text": text, "thread": thread, "in_reply_to": in_reply_to, "ttl_seconds": ttl_seconds}
        message = self._message(given, body, id or new_id())
        ends = time.monotonic() + wait_seconds
        while True:
            left = max(0.0, ends - time.monotonic())
            wait = min(ASK_STEP_SECONDS, left)
            answer = self._surely("/v1/ask", {**message, "wait_seconds": wait}, waits=wait, patience=left)
            if answer.get("reply") is not None:
                return answer
            failure = answer.get("failure")
            if isinstance(failure, dict):
                raise AskFailed(message["id"], str(failure.get("reason", "unknown")), str(failure.get("text", "")))
            if time.monotonic() >= ends:
                raise TimedOut(to, wait_seconds, message["id"])

    # ---- reading

    def inbox(
        self, *, after: int | str | None = None, limit: int | None = None, state: str | None = None,
        sender: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Look at one's own mailbox and change nothing."""
        query = {"after": after, "limit": limit, "state": state, "from": sender}
        return self._get(f"/v1/agents/{self._me()}/inbox", query)

    def claim(self, *, limit: int = 1, lease_seconds: float | None = None, wait_seconds: float = 0.0) -> dict[str, Any]:
        """Take messages under a lease. Out: ``{deliveries: [{message, lease}], remaining}``."""
        wanted = {"limit": limit, "lease_seconds": lease_seconds, "wait_seconds": wait_seconds}
        return self._post(f"/v1/agents/{self._me()}/claim", wanted, waits=wait_seconds)

    def ack(self, lease: str) -> dict[str, Any]:
        """Say that a message is done with."""
        return self._post(f"/v1/leases/{_part(lease)}/ack", {})

    def nack(self, lease: str, *, delay_seconds: float | None = None, reason: str | None = None) -> dict[str, Any]:
        """Give a message back, to be handed over again."""
        return self._post(f"/v1/leases/{_part(lease)}/nack", {"delay_seconds": delay_seconds, "reason": reason})

    def renew(self, lease: str, *, lease_seconds: float | None = None) -> dict[str, Any]:
        """Keep a message for longer."""
        return self._post(f"/v1/leases/{_part(lease)}/renew", {"lease_seconds": lease_seconds})

    def message(self, message_id: str, *, wait_seconds: float = 0.0) -> dict[str, Any]:
        """A message and its receipt; with a wait, once a state has changed or the time is over."""
        query = {"wait": wait_seconds or None}
        return self._get(f"/v1/messages/{_part(message_id)}", query, waits=wait_seconds)

    def cancel(self, message_id: str) -> dict[str, Any]:
        """Withdraw what has not been delivered yet."""
        return self._post(f"/v1/messages/{_part(message_id)}/cancel", {})

    # ---- looking around, and what an owner may

    def agents(self) -> list[dict[str, Any]]:
        """Everyone who can be reached, with presence."""
        found = self._get("/v1/agents", {})["agents"]
        return list(found)

    def agent(self, handle: str) -> dict[str, Any]:
        """One of them."""
        return self._get(f"/v1/agents/{_part(handle)}", {})

    def put_agent(self, handle: str, *, title: str | None = None, description: str | None = None) -> dict[str, Any]:
        """Make a name known, or change what is said of it; admin."""
        given = {"title": title, "description": description}
        return self.connection.call("PUT", f"/v1/agents/{_part(handle)}", _told(given), seconds=self._answer_seconds)

    def remove_agent(self, handle: str) -> dict[str, Any]:
        """Forget a name and its tokens; admin."""
        return self.connection.call("DELETE", f"/v1/agents/{_part(handle)}", seconds=self._answer_seconds)

    def new_token(self, handle: str) -> dict[str, Any]:
        """Key a name, or rotate its token. Out: ``{token, …}``, shown this once."""
        return self._post(f"/v1/agents/{_part(handle)}/token", {})

    def dead_letters(self, *, after: int | None = None, limit: int | None = None) -> dict[str, Any]:
        """What could not be delivered, and what is held; admin."""
        return self._get("/v1/dead-letters", {"after": after, "limit": limit})

    def requeue(self, message_id: str, *, to: str | None = None) -> dict[str, Any]:
        """Send a dead or held message on its way again, to all or to one; admin."""
        return self._post(f"/v1/dead-letters/{_part(message_id)}/requeue{_query({'to': to})}", {})

    def drop(self, message_id: str, *, to: str | None = None) -> dict[str, Any]:
        """Give a dead or held message up, for all or for one; admin."""
        return self._post(f"/v1/dead-letters/{_part(message_id)}/drop{_query({'to': to})}", {})

    def status(self) -> dict[str, Any]:
        """Who is here, and what waits."""
        return self._get("/status", {})

    def health(self) -> dict[str, Any]:
        """The hub's own test of itself; an unwell hub answers too, and says what fails."""
        status, content = self.connection.request("GET", "/health", seconds=self._answer_seconds)
        found = json_object(content)
        if found is not None and found.get("product") == "angelia":
            return found
        if status == 200:
            raise NotAHub(str(self.connection.address), "something else answers there")
        raise refusal(status, found, str(self.connection.address))

    def down(self) -> dict[str, Any]:
        """Stop the hub; admin."""
        return self._post("/v1/down", {})

    # ---- how it is done

    def _me(self) -> str:
        if not self.name:
            raise ValueError("this client has no name, so it has no mailbox: Client(…, name='NAME')")
        return _part(self.name)

    def _message(self, given: dict[str, Any], body: object, message_id: str) -> dict[str, Any]:
        message = _told({**given, "from": self.name, "id": message_id})
        if body is not ABSENT:
            message["body"] = body
        return message

    def _get(self, path: str, query: dict[str, Any], *, waits: float = 0.0) -> dict[str, Any]:
        return self.connection.call("GET", path + _query(query), seconds=waits + self._answer_seconds)

    def _post(self, path: str, body: dict[str, Any], *, waits: float = 0.0) -> dict[str, Any]:
        return self.connection.call("POST", path, _told(body), seconds=waits + self._answer_seconds)

    def _surely(
        self, path: str, message: dict[str, Any], *, waits: float = 0.0, patience: float = 0.0
    ) -> dict[str, Any]:
        """Post a message, and again under its id while it is not known whether it was heard, or a hub is on its way."""
        ends = time.monotonic() + max(patience, self._patience_seconds)
        backoff = Backoff(RETRY_SECONDS, RETRY_MOST_SECONDS)
        trouble: ClientError | None = None
        while True:
            wait = 0.0
            try:
                return self.connection.call("POST", path, message, seconds=waits + self._answer_seconds)
            except HubError as error:
                if error.status != 503:
                    raise
                trouble, wait = error, _seconds(error.extra.get("retry_after_seconds"))
            except TimedOut as error:
                error.message_id = message["id"]
                raise
            except LostHub as error:
                trouble = error
            except NoHub:
                if trouble is None:
                    raise
            wait = max(wait, backoff.next_seconds())
            if time.monotonic() + wait > ends:
                trouble.message_id = message["id"]
                raise trouble
            self._pause(wait)


def _told(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value is not None}


def _query(given: dict[str, Any]) -> str:
    asked = urlencode(_told(given))
    return f"?{asked}" if asked else ""


def _part(value: str) -> str:
    """A value as one segment of a path, whatever is in it."""
    return quote(value, safe="")


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
