"""How a message gets to a hub: under one id however often it takes, and by way of the outbox where there is one.

What must stay true:

- A message has its id before it is sent, and every repeat goes out under that id, so that a lost connection, a 503 or
  an unknown outcome never makes two messages of one. While nothing has been heard by any hub there is no repeat
  either: "no hub" is said at once.
- With an outbox, nothing overtakes what is kept for the same recipient: what waits goes first, oldest first, by one
  process at a time; while it cannot go, the new message is kept behind it, and its answer says ``kept``.
- A kept message leaves the outbox when the hub has it, or when the hub refuses it for what it is: then it is set aside
  with the reason, and told. What is wrong with the caller (a token) or with the hub leaves everything where it is.
"""

from __future__ import annotations

from angelia.client.backoff import Backoff, chance
from angelia.client.core.answers import answered, json_bytes
from angelia.client.core.steps import Disk, Exchange, Pause
from angelia.client.errors import ClientError, HubError, LostHub, NoHub, NotAHub, TimedOut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from angelia.client.core.steps import Plan
    from angelia.client.outbox import Kept, Outbox, Turn

ANSWER_SECONDS = 30.0  # a hub that has the request answers in milliseconds; this is for one whose disk hangs
PATIENCE_SECONDS = 15.0  # a hub that replaces itself is back within a few seconds
RETRY_SECONDS, RETRY_MOST_SECONDS = 0.2, 2.0
TURN_STEP_SECONDS = 0.05
# What a kept message may be refused for that lies in the message: it would be refused tomorrow, too.
_OF_THE_MESSAGE = frozenset((400, 404, 409, 413, 415, 422))


class Post:
    """One caller's way of making requests. Times are seconds; ``now`` is a clock that only rises, ``wall`` the date."""

    def __init__(
        self,
        where: str,
        name: str | None,
        *,
        answer_seconds: float,
        patience_seconds: float,
        now: Callable[[], float],
        wall: Callable[[], float],
        outbox: Outbox | None = None,
        draw: Callable[[], float] = chance,
    ) -> None:
        self.where = where
        self.name = name
        self.answer_seconds = answer_seconds
        self.patience_seconds = patience_seconds
        self.now = now
        self.wall = wall
        self.outbox = outbox
        self.draw = draw
        self._met = False  # whether a hub answered the last request that had an answer to expect

    def call(
        self, method: str, path: str, body: object = None, *, seconds: float | None = None, key: str | None = None
    ) -> Plan[dict[str, Any]]:
        """Make one request. Out: the JSON object of its answer. A body of None is none."""
        content = None if body is None else json_bytes(body)
        status, answer = yield from self.exchange(method, path, content, seconds=seconds, key=key)
        self._met = True
        return answered(status, answer, self.where)

    def exchange(
        self, method: str, path: str, content: bytes | None, *, seconds: float | None = None, key: str | None = None
    ) -> Plan[tuple[int, bytes]]:
        """Make one request, and once more where a kept connection turned out to be dead: every request that passes
        here may be made again (reads; and writes that carry an id or a lease).
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        step = Exchange(method, path, content, headers, self.answer_seconds if seconds is None else seconds)
        try:
            first: tuple[int, bytes] = yield step
            return first
        except LostHub as error:
            if not error.kept:
                raise
            lost = error
        try:
            second: tuple[int, bytes] = yield step
            return second
        except NoHub as error:
            if isinstance(error, LostHub | NotAHub):
                raise
            raise lost from None  # nobody takes a second call, but the first may have been heard

    def surely(
        self, path: str, message: dict[str, Any], *, waits: float = 0.0, patience: float = 0.0, key: str | None = None
    ) -> Plan[dict[str, Any]]:
        """Post a message, and again under its id while it is not known whether it was heard, or a hub is on its way."""
        ends = self.now() + max(patience, self.patience_seconds)
        backoff = Backoff(RETRY_SECONDS, RETRY_MOST_SECONDS, self.draw)
        trouble: ClientError | None = None
        while True:
            wait = 0.0
            try:
                return (yield from self.call("POST", path, message, seconds=waits + self.answer_seconds, key=key))
            except HubError as error:
                if error.status != 503:
                    raise
                trouble, wait = error, _seconds(error.extra.get("retry_after_seconds"))
            except TimedOut as error:
                error.message_id = message.get("id", "")
                raise
            except LostHub as error:
                trouble = error
            except NoHub as error:
                if trouble is None and (isinstance(error, NotAHub) or not self._met or self.outbox is not None):
                    raise  # with an outbox the message is safe at once; there is nothing to wait for
                trouble = trouble or error
            wait = max(wait, backoff.next_seconds())
            if self.now() + wait > ends:
                self._met = False
                trouble.message_id = message.get("id", "")
                raise trouble
            yield Pause(wait)

    # ---- by way of the outbox

    def deliver(self, path: str, message: dict[str, Any], key: str | None) -> Plan[dict[str, Any]]:
        """Post a message surely; where there is an outbox, after what waits there, and into it if need be."""
        outbox = self.outbox
        if outbox is None:
            return (yield from self.surely(path, message, key=key))
        drain = Drain(self, outbox)
        yield from drain.run()
        if drain.trouble is not None and not _is_away(drain.trouble):
            raise drain.trouble
        answer = None
        if drain.trouble is None and not drain.holds_up(path, message):
            try:
                answer = yield from self.surely(path, message, key=key)
            except ClientError as error:
                if not _is_away(error):
                    raise
        if answer is None:
            yield Disk(lambda: outbox.keep(path, message, key))
            answer = _kept(message)
        if drain.sent or drain.refused:
            answer["flushed"] = {"sent": drain.sent, "refused": drain.refused}
        return answer

    def flush(self) -> Plan[dict[str, Any]]:
        """Send what the outbox keeps. Out: ``{sent, refused, left}``."""
        outbox = self.outbox
        if outbox is None:
            return {"sent": [], "refused": [], "left": 0}
        drain = Drain(self, outbox)
        yield from drain.run()
        if drain.trouble is not None and not _is_away(drain.trouble):
            raise drain.trouble
        left: int = yield Disk(lambda: outbox.count(self.name))
        return {"sent": drain.sent, "refused": drain.refused, "left": left}


class Drain:
    """One emptying of the outbox, as far as it goes. Afterwards: ``sent`` ids; ``refused`` ``{id, code, detail}``; and
    ``trouble``, which kept it from going on.
    """

    def __init__(self, post: Post, outbox: Outbox) -> None:
        self.sent: list[str] = []
        self.refused: list[dict[str, Any]] = []
        self.trouble: ClientError | None = None
        self._full: set[str] = set()  # recipients whose mailbox takes no more: only what is for them stays
        self._post = post
        self._outbox = outbox

    def holds_up(self, path: str, message: dict[str, Any]) -> bool:
        """Whether something is kept that this message must not overtake."""
        return _way(path, message) in self._full

    def run(self) -> Plan[None]:
        """Send until nothing is left, or nothing goes."""
        if not (yield Disk(lambda: self._outbox.count(self._post.name))):
            return
        turn = yield from self._turn()
        if turn is None:
            return
        try:
            while (yield from self._batch()):
                pass
        finally:
            turn.close()

    def _batch(self) -> Plan[bool]:
        """Send what waits now. False when nothing did that could go."""
        kept: list[Kept] = yield Disk(lambda: self._outbox.waiting(self._post.name))
        went = False
        for each in kept:
            if _way(each.path, each.message) not in self._full:
                went = True
                yield from self._send(each)
                if self.trouble is not None:
                    return False
        return went

    def _turn(self) -> Plan[Turn | None]:
        """Become the one who sends what is kept: two at once would mix its order."""
        ends = self._post.now() + self._post.patience_seconds
        while True:
            turn: Turn | None = yield Disk(self._outbox.turn)
            if turn is not None:
                return turn
            if self._post.now() >= ends:
                self.trouble = TimedOut("another process that is sending what the outbox keeps", 0)
                return None
            yield Pause(TURN_STEP_SECONDS)

    def _send(self, kept: Kept) -> Plan[None]:
        message = kept.message
        left = kept.left_seconds()
        if left is not None:
            if left <= 0:
                yield from self._set_aside(kept, "queued_expired", "Its time was over before a hub could be reached.")
                return
            message = {**message, "ttl_seconds": left}
        try:
            yield from self._post.surely(kept.path, message, key=kept.key)
        except HubError as error:
            if error.code == "mailbox_full":
                self._full.add(_way(kept.path, message))
            elif error.status in _OF_THE_MESSAGE:
                yield from self._set_aside(kept, error.code, error.detail)
            else:
                self.trouble = error
        except ClientError as error:
            self.trouble = error
        else:
            yield Disk(lambda: self._outbox.done(kept.id))
            self.sent.append(kept.id)

    def _set_aside(self, kept: Kept, code: str, detail: str) -> Plan[None]:
        yield Disk(lambda: self._outbox.set_aside(kept, code, detail))
        self.refused.append({"id": kept.id, "code": code, "detail": detail})


def _way(path: str, message: dict[str, Any]) -> str:
    """For whom a message is, as far as its sender knows: a reply is for whoever wrote what it answers."""
    to = message.get("to")
    return to.lower() if isinstance(to, str) else path


def _is_away(error: ClientError) -> bool:
    """Whether the hub, as against the message or the caller, is the trouble."""
    return error.status >= 500 if isinstance(error, HubError) else isinstance(error, NoHub | TimedOut)


def _kept(message: dict[str, Any]) -> dict[str, Any]:
    row = {"to": message["to"], "state": "kept"} if "to" in message else {"state": "kept"}
    answer = {"id": message["id"], "kept": True, "deliveries": [row], "duplicate": False}
    thread = message.get("thread") or (None if "in_reply_to" in message or "to" not in message else message["id"])
    return answer if thread is None else {**answer, "thread": thread}


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
