"""The calls of a hub, made and waited for: the blocking driver of ``core/verbs.py``.

What must stay true: nothing is decided here. A plan says what to do next; this carries it out, over one connection, on
the caller's thread. Streams stand in ``client.py``; ``angelia send`` must not have to load them.
"""

from __future__ import annotations

import time
from functools import wraps

from angelia.client.connection import Connection
from angelia.client.core.posting import ANSWER_SECONDS, PATIENCE_SECONDS, Post
from angelia.client.core.steps import Course, Disk, Exchange, Out, Pause
from angelia.client.core.verbs import ABSENT as ABSENT
from angelia.client.core.verbs import Verbs
from angelia.client.errors import ClientError
from angelia.client.find import DEFAULT_URL, Address, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Concatenate, ParamSpec, Self, TypeVar

    from angelia.client.core.steps import Plan, Step
    from angelia.client.outbox import Outbox

    P = ParamSpec("P")
    T = TypeVar("T")


def handed_out(plan: Plan[object], carry_out: Callable[[Step], object]) -> Generator[Any, None, object]:
    """Carry a plan out, each step by ``carry_out``. Yields what it hands out; returns or raises what it ended with."""
    course = Course(plan)
    try:
        step = course.next()
        while step is not None:
            outcome, trouble = None, None
            if isinstance(step, Out):
                yield step.value
            else:
                try:
                    outcome = carry_out(step)
                except ClientError as error:
                    trouble = error
            step = course.next(outcome, trouble)
        return course.result
    finally:
        course.close()


def carried_out(plan: Plan[T], carry_out: Callable[[Step], object]) -> T:
    """Carry out a plan that hands nothing out; what it returned, or the error that it ended with."""
    try:
        next(handed_out(plan, carry_out))
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("this plan hands something out")


def _call(plan: Callable[Concatenate[Verbs, P], Plan[T]]) -> Callable[Concatenate[Calls, P], T]:
    """A call out of its plan."""

    @wraps(plan)
    def call(self: Calls, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return carried_out(plan(self._verbs, *args, **kwargs), self._carry_out)

    return call


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
        outbox: Outbox | None = None,
    ) -> None:
        """In: the hub's address; who calls (its handle, and its token where the name is keyed); how long one answer
        may take; for how long a send goes on repeating itself; what to wait with; and where to keep what cannot be
        sent.
        """
        self.connection = Connection(read(hub) if isinstance(hub, str) else hub, token or "")
        self._pause = pause
        self._verbs = Verbs(
            Post(
                str(self.connection.address),
                name,
                answer_seconds=answer_seconds,
                patience_seconds=patience_seconds,
                now=time.monotonic,
                wall=time.time,
                outbox=outbox,
            )
        )

    @property
    def name(self) -> str | None:
        """Who calls."""
        return self._verbs.post.name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self.connection.close()

    send = _call(Verbs.send)
    reply = _call(Verbs.reply)
    ask = _call(Verbs.ask)
    message_agent = _call(Verbs.message_agent)
    flush = _call(Verbs.flush)
    inbox = _call(Verbs.inbox)
    claim = _call(Verbs.claim)
    ack = _call(Verbs.ack)
    nack = _call(Verbs.nack)
    renew = _call(Verbs.renew)
    message = _call(Verbs.message)
    cancel = _call(Verbs.cancel)
    threads = _call(Verbs.threads)
    thread = _call(Verbs.thread)
    search = _call(Verbs.search)
    agents = _call(Verbs.agents)
    agent = _call(Verbs.agent)
    briefing = _call(Verbs.briefing)
    put_agent = _call(Verbs.put_agent)
    check_agent = _call(Verbs.check_agent)
    turns = _call(Verbs.turns)
    stop_turn = _call(Verbs.stop_turn)
    remove_agent = _call(Verbs.remove_agent)
    new_token = _call(Verbs.new_token)
    dead_letters = _call(Verbs.dead_letters)
    requeue = _call(Verbs.requeue)
    drop = _call(Verbs.drop)
    connections = _call(Verbs.connections)
    connect = _call(Verbs.connect)
    disconnect = _call(Verbs.disconnect)
    new_desktop_token = _call(Verbs.new_desktop_token)
    remove_desktop = _call(Verbs.remove_desktop)
    pairing_code = _call(Verbs.pairing_code)
    status = _call(Verbs.status)
    health = _call(Verbs.health)
    back_up = _call(Verbs.back_up)
    down = _call(Verbs.down)

    def _carry_out(self, step: Step) -> Any:
        if isinstance(step, Exchange):
            return self.connection.exchange(step)
        if isinstance(step, Disk):
            return step.work()
        assert isinstance(step, Pause), step
        return self._pause(step.seconds)
