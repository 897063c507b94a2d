"""Every call of a hub's interface as a plan: what goes out, under which path, and how long its answer may take.

What must stay true: a call stands here once; ``Client`` and ``AsyncClient`` have it from here, with these arguments and
these words. Answers are the JSON objects that the hub gives (``docs/protocol/native.md``); times are seconds. Every
call may raise any ``ClientError``; what is said below is what one raises beside that.
"""

from __future__ import annotations

from angelia.client.core.answers import json_object, part, query, refusal, told
from angelia.client.core.steps import Pause
from angelia.client.errors import AskFailed, NotAHub, TimedOut
from angelia.client.ids import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from angelia.client.core.posting import Post
    from angelia.client.core.steps import Plan

ASK_STEP_SECONDS = 50.0  # one POST's wait: below the hub's 60 s, and below the idle limit of common proxies
ASK_AGAIN_SECONDS = 0.05  # a hub that answers before its time is asked again, and not in a tight loop

BACK_UP_SECONDS = 3600.0  # some hundred million messages
DIAL_SECONDS = 30.0  # the hub gives up on a line after 15 s, and then says how it stands
CHECK_SECONDS = 60.0  # a program that is asked for its version may have to be read from a cold disk first

ABSENT: object = object()  # no body at all, as against the JSON value null


class Verbs:
    """One caller's calls."""

    def __init__(self, post: Post) -> None:
        self.post = post

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
        key: str | None = None,
    ) -> Plan[dict[str, Any]]:
        """Send a message; it is on the hub's disk when this returns. Out: ``{id, thread, deliveries, duplicate}``.

        The same ``id`` (32 hex digits), or the same ``key`` (1 to 255 characters, this sender's own), is the same
        message however often it is sent; with other content it is ``HubError`` 409 ``id_reused``. With an outbox and no
        hub the answer says ``kept: true`` instead, and ``state: kept``: it is on this machine's disk and will be sent
        before anything later is. ``flushed: {sent, refused}`` tells what was sent on this occasion. Raises
        ``OutboxFull`` and ``OutboxError``: then it is neither sent nor kept.
        """
        given = {"to": to, "text": text, "intent": intent, "thread": thread, "in_reply_to": in_reply_to,
                 "ttl_seconds": ttl_seconds}  # fmt: skip
        return self.post.deliver("/v1/messages", self._message(given, body, id or new_id()), key)

    def reply(
        self,
        message_id: str,
        text: str | None = None,
        *,
        body: object = ABSENT,
        id: str | None = None,
        key: str | None = None,
    ) -> Plan[dict[str, Any]]:
        """Answer a message. Out: as ``send``."""
        path = f"/v1/messages/{part(message_id)}/reply"
        return self.post.deliver(path, self._message({"text": text}, body, id or new_id()), key)

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
    ) -> Plan[dict[str, Any]]:
        """Send a request and wait for its reply. Out: ``{id, thread, reply}``.

        Raises ``AskFailed`` when its outcome is a failure and ``TimedOut`` when there is none in time; the message then
        stays on its way, and the same call with that ``id`` waits on.
        """
        given = {"to": to, "text": text, "thread": thread, "in_reply_to": in_reply_to, "ttl_seconds": ttl_seconds}
        message = self._message(given, body, id or new_id())
        ends = self.post.now() + wait_seconds
        while True:
            left = max(0.0, ends - self.post.now())
            wait = min(ASK_STEP_SECONDS, left)
            asked = {**message, "wait_seconds": wait}
            answer = yield from self.post.surely("/v1/ask", asked, waits=wait, patience=left)
            if answer.get("reply") is not None:
                return answer
            failure = answer.get("failure")
            if isinstance(failure, dict):
                raise AskFailed(message["id"], str(failure.get("reason", "unknown")), str(failure.get("text", "")))
            if self.post.now() >= ends:
                raise TimedOut(to, wait_seconds, message["id"])
            yield Pause(ASK_AGAIN_SECONDS)

    def message_agent(self, target: str, message: str) -> Plan[dict[str, Any]]:
        """Send a request as Hermes' tool does. Out: ``{status: queued, delivery_id, to, …}``, or ``{error, reason}``.

        ``target``: a handle, a title or ``name@connection``; ``message``: at most 16,000 characters. Nobody waits: the
        answer comes as a message (``reply_delivery``: ``notification``) or lies in the mailbox (``poll``). An ``error``
        says that nothing was sent, and names ``teammates`` where that helps; what the hub refuses is one, too.
        """
        from angelia.client.core.message_agent import plan  # noqa: PLC0415 - no other call needs what it loads

        self.me()
        return plan(self, target, message)

    def flush(self) -> Plan[dict[str, Any]]:
        """Send what the outbox keeps, oldest first. Out: ``{sent: [id], refused: [{id, code, detail}], left}``.

        ``left`` counts what is still kept, because no hub could be reached or a mailbox is full. What the hub refuses
        for what it is stands, with its text, in the file beside the outbox that ends with ``.refused``. Without an
        outbox nothing is done.
        """
        return self.post.flush()

    # ---- reading

    def inbox(
        self, *, after: int | str | None = None, limit: int | None = None, state: str | None = None,
        sender: str | None = None,
    ) -> Plan[dict[str, Any]]:  # fmt: skip
        """Look at one's own mailbox and change nothing. Out: ``{deliveries, total, hidden, oldest_unread_at, next}``.

        ``after`` is a ``next`` of the page before; ``state`` one or more states with commas; ``sender`` one name.
        """
        asked = {"after": after, "limit": limit, "state": state, "from": sender}
        return self.post.call("GET", f"/v1/agents/{self.me()}/inbox{query(asked)}")

    def claim(
        self, *, limit: int = 1, lease_seconds: float | None = None, wait_seconds: float = 0.0
    ) -> Plan[dict[str, Any]]:
        """Take messages under a lease. Out: ``{deliveries: [{message, seq, attempt, lease}], remaining}``.

        Up to ``limit`` (1 to 100), waiting for the first up to ``wait_seconds`` (0 to 60). ``lease_seconds``: 1 to
        1,800, and 60 where nothing is said; nobody renews it. ``claims`` does.
        """
        wanted = {"limit": limit, "lease_seconds": lease_seconds, "wait_seconds": wait_seconds}
        return self._post(f"/v1/agents/{self.me()}/claim", wanted, waits=wait_seconds)

    def ack(self, lease: str) -> Plan[dict[str, Any]]:
        """Say that a message is done with. Out: ``{state}``. Raises ``LeaseLost`` when somebody else took it since."""
        return self.post.surely(f"/v1/leases/{part(lease)}/ack", {})

    def nack(
        self, lease: str, *, delay_seconds: float | None = None, reason: str | None = None
    ) -> Plan[dict[str, Any]]:
        """Give a message back, to be handed over again: after 1, 2, 4 … 60 s, or ``delay_seconds`` (0 to 3,600)."""
        given = told({"delay_seconds": delay_seconds, "reason": reason})
        return self.post.surely(f"/v1/leases/{part(lease)}/nack", given)

    def renew(self, lease: str, *, lease_seconds: float | None = None) -> Plan[dict[str, Any]]:
        """Keep a message for longer, up to two hours in all. Out: ``{state, deadline}``. Raises ``LeaseLost``."""
        return self.post.surely(f"/v1/leases/{part(lease)}/renew", told({"lease_seconds": lease_seconds}))

    def message(self, message_id: str, *, wait_seconds: float = 0.0) -> Plan[dict[str, Any]]:
        """A message and its receipt; with a wait, once a state has changed or the time is over.

        Out: ``{message, deliveries: [{to, state, attempt, …}], reply?, failure?}``.
        """
        path = f"/v1/messages/{part(message_id)}{query({'wait': wait_seconds or None})}"
        return self.post.call("GET", path, seconds=wait_seconds + self.post.answer_seconds)

    def cancel(self, message_id: str) -> Plan[dict[str, Any]]:
        """Withdraw what has not been delivered yet. Out: ``{deliveries}``, as they stand now."""
        return self._post(f"/v1/messages/{part(message_id)}/cancel", {})

    def threads(self, *, before: int | None = None, limit: int | None = None) -> Plan[dict[str, Any]]:
        """The conversations that one has a part in, the latest first. Out: ``{threads: [{thread, messages, people,
        first_at, last}], next}``; a ``next`` that is not null is the ``before`` of the page that follows.
        """
        return self.post.call("GET", f"/v1/threads{query({'before': before, 'limit': limit})}")

    def thread(self, message_id: str, *, after: int | None = None, limit: int | None = None) -> Plan[dict[str, Any]]:
        """A conversation from its beginning, by the id of any message of it.

        Out: ``{thread, messages: [{message, states}], next}``; ``next`` is the ``after`` of the page that follows.
        """
        return self.post.call("GET", f"/v1/threads/{part(message_id)}{query({'after': after, 'limit': limit})}")

    def search(
        self, words: str = "", *, sender: str | None = None, recipient: str | None = None, before: int | None = None,
        limit: int | None = None,
    ) -> Plan[dict[str, Any]]:  # fmt: skip
        """Messages with all these words, the latest first. Out: ``{messages, next, behind}``.

        ``"in quotes"`` they stand together, and ``beginn*`` is the beginning of one; nothing else in them is special.
        ``behind`` counts messages that the hub could not look into yet.
        """
        asked = {"q": words, "from": sender, "to": recipient, "before": before, "limit": limit}
        return self.post.call("GET", f"/v1/search{query(asked)}")

    # ---- looking around, and what an owner may

    def agents(self) -> Plan[list[dict[str, Any]]]:
        """Everyone who can be reached, with presence. Out: ``[{handle, title, presence, keyed, queued, …}]``."""
        found = yield from self.post.call("GET", "/v1/agents")
        agents: list[dict[str, Any]] = found.get("agents") or []
        return agents

    def agent(self, handle: str) -> Plan[dict[str, Any]]:
        """One of them."""
        return self.post.call("GET", f"/v1/agents/{part(handle)}")

    def briefing(self, handle: str | None = None) -> Plan[str]:
        """What an agent (oneself, where nobody is named) should be told: who it is, whom it can reach, and how.

        Out: Markdown, whose last line is ``Briefing epoch:`` and 12 hex digits that change whenever the text does.
        """
        name = self.me() if handle is None else part(handle)
        status, content = yield from self.post.exchange("GET", f"/v1/agents/{name}/briefing", None)
        if status != 200:
            raise refusal(status, json_object(content), self.post.where)
        return content.decode("utf-8", "replace")

    def put_agent(
        self, handle: str, *, title: str | None = None, description: str | None = None, adapter: object = ABSENT
    ) -> Plan[dict[str, Any]]:
        """Make a name known, or change what is said of it; admin.

        ``adapter``: how the hub wakes it, ``{kind, …}``; None: not any more.
        """
        wanted = told({"title": title, "description": description})
        if adapter is not ABSENT:
            wanted["adapter"] = adapter
        return self.post.call("PUT", f"/v1/agents/{part(handle)}", wanted)

    def check_agent(self, handle: str) -> Plan[dict[str, Any]]:
        """Whether the hub can wake an agent as things stand; admin. Out: ``{kind, program, version, ways, problem,
        notes}``; ``problem`` is null where it can.
        """
        path = f"/v1/agents/{part(handle)}/check"
        return self.post.call("GET", path, seconds=CHECK_SECONDS + self.post.answer_seconds)

    def turns(self) -> Plan[dict[str, Any]]:
        """The turns that run, then those that ended, the latest first; admin. Out: ``{turns: [{id, agent, from, kind,
        state, since, …}], running}``.
        """
        return self.post.call("GET", "/v1/turns")

    def stop_turn(self, turn_id: str) -> Plan[dict[str, Any]]:
        """End a turn that runs; its sender is told that it was cancelled; admin. Out: ``{stopping: id}``."""
        return self._post(f"/v1/turns/{part(turn_id)}/stop", {})

    def remove_agent(self, handle: str) -> Plan[dict[str, Any]]:
        """Forget a name and its tokens; admin."""
        return self.post.call("DELETE", f"/v1/agents/{part(handle)}")

    def new_token(self, handle: str) -> Plan[dict[str, Any]]:
        """Key a name, or rotate its token. Out: ``{handle, id, token}``, shown this once."""
        return self._post(f"/v1/agents/{part(handle)}/token", {})

    def dead_letters(self, *, after: int | None = None, limit: int | None = None) -> Plan[dict[str, Any]]:
        """What could not be delivered, and what is held; admin. Out: ``{deliveries: [{message, delivery}], next}``."""
        return self.post.call("GET", f"/v1/dead-letters{query({'after': after, 'limit': limit})}")

    def requeue(self, message_id: str, *, to: str | None = None) -> Plan[dict[str, Any]]:
        """Send a dead or held message on its way again, to all or to one; admin."""
        return self._post(f"/v1/dead-letters/{part(message_id)}/requeue{query({'to': to})}", {})

    def drop(self, message_id: str, *, to: str | None = None) -> Plan[dict[str, Any]]:
        """Give a dead or held message up, for all or for one; admin."""
        return self._post(f"/v1/dead-letters/{part(message_id)}/drop{query({'to': to})}", {})

    def connections(self) -> Plan[list[dict[str, Any]]]:
        """The connections to other hubs and gateways. Out: ``[{name, up, since, speaks, agents, waiting, …}]``; to
        admin also ``target``, and ``problem`` and ``advice`` where one is down.
        """
        found = yield from self.post.call("GET", "/v1/connections")
        connections: list[dict[str, Any]] = found.get("connections") or []
        return connections

    def connect(
        self, name: str, target: str = "", *, code: str | None = None, speaks: str | None = None,
        away: str | None = None, share: Sequence[str] | None = None, accept: Sequence[str] | None = None,
        token_file: str | None = None, token_variable: str | None = None, user: str | None = None,
        password_file: str | None = None, password_variable: str | None = None, ca_file: str | None = None,
        command: str | None = None,
    ) -> Plan[dict[str, Any]]:  # fmt: skip
        """Make a connection to another hub or gateway, or put another in its place; admin. Out: as ``connections``.

        It is dialled once and kept even where that failed: ``up`` says. ``code``: the pairing code that the other hub
        shows; a wrong one is ``HubError`` 403, and nothing is kept. Files are whole paths on the hub's machine and hold
        the secrets, which are never said here. Without ``target`` only the other side dials.
        """
        wanted = {
            "target": target, "code": code, "speaks": speaks, "away": away,
            "share": None if share is None else list(share), "accept": None if accept is None else list(accept),
            "token_file": token_file, "token_variable": token_variable, "user": user, "password_file": password_file,
            "password_variable": password_variable, "ca_file": ca_file, "command": command,
        }  # fmt: skip
        path = f"/v1/connections/{part(name)}"
        return self.post.call("PUT", path, told(wanted), seconds=DIAL_SECONDS + self.post.answer_seconds)

    def disconnect(self, name: str) -> Plan[dict[str, Any]]:
        """Give a connection up; who waits for an answer from there is told; admin. Out: ``{removed: name, ended?,
        handed_over?}``: how many messages ended that waited for it, and that had gone there and have no outcome yet.

        The hub there is not let in until it is connected, or paired, again.
        """
        return self.post.call("DELETE", f"/v1/connections/{part(name)}")

    def new_desktop_token(self, name: str) -> Plan[dict[str, Any]]:
        """Give a desktop that relays a token, or rotate it; admin. Out: ``{desktop, id, token}``, shown this once."""
        return self._post(f"/v1/desktops/{part(name)}/token", {})

    def remove_desktop(self, name: str) -> Plan[dict[str, Any]]:
        """Make a desktop's tokens worthless at once; admin. Out: ``{removed: name}``."""
        return self.post.call("DELETE", f"/v1/desktops/{part(name)}")

    def pairing_code(self) -> Plan[dict[str, Any]]:
        """A code for the other hub's owner to type, once; admin. Out: ``{code, expires_in_seconds}``."""
        return self._post("/v1/pairing", {})

    def status(self) -> Plan[dict[str, Any]]:
        """Who is here, and what waits. Out: ``{agents, queues, subscribers, …}``, each by name."""
        return self.post.call("GET", "/status")

    def health(self) -> Plan[dict[str, Any]]:
        """The hub's own test of itself; an unwell hub answers too, and says what fails."""
        status, content = yield from self.post.exchange("GET", "/health", None)
        found = json_object(content)
        if found is not None and found.get("product") == "angelia":
            return found
        if status == 200:
            raise NotAHub(self.post.where, "something else answers there")
        raise refusal(status, found, self.post.where)

    def back_up(self, file: str | None = None) -> Plan[dict[str, Any]]:
        """Make a verified copy of the hub's store; admin. Out: ``{file, bytes, messages, deliveries, removed}``.

        Without ``file`` (a path on the hub's machine, over its socket alone) the data folder keeps the newest three.
        """
        return self.post.call("POST", "/v1/backups", told({"file": file}), seconds=BACK_UP_SECONDS)

    def down(self) -> Plan[dict[str, Any]]:
        """Stop the hub; admin."""
        return self._post("/v1/down", {})

    # ---- how it is done

    def me(self) -> str:
        """One's own name as a part of a path; ``ValueError`` where there is none."""
        if not self.post.name:
            raise ValueError("this client has no name, so it has no mailbox: Client(…, name='NAME')")
        return part(self.post.name)

    def _message(self, given: dict[str, Any], body: object, message_id: str) -> dict[str, Any]:
        message = told({**given, "from": self.post.name, "id": message_id})
        if body is not ABSENT:
            message["body"] = body
        return message

    def _post(self, path: str, body: dict[str, Any], *, waits: float = 0.0) -> Plan[dict[str, Any]]:
        return self.post.call("POST", path, told(body), seconds=waits + self.post.answer_seconds)
