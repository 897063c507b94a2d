"""``Client``: all calls of a hub, an agent's mail as a stream or by claims, and an outbox. ``angelia.Client`` is this.

    with angelia.Client("http://127.0.0.1:18900", name="scout") as hub:
        hub.send("hermes", "hello")
        for message in hub.messages():
            print(message["text"])

What must stay true: nothing is decided here; what may happen to a stream, a claim or a kept message stands in ``core``.
``AsyncClient`` (``aio/client.py``) has the same names, arguments and results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import wraps
from os import PathLike
from typing import Concatenate, ParamSpec, TypeVar

from angelia.client.calls import Calls
from angelia.client.claims import Claim, Work
from angelia.client.connection import Connection
from angelia.client.core.following import Following
from angelia.client.core.posting import ANSWER_SECONDS, PATIENCE_SECONDS
from angelia.client.core.reading import Claims, Reader
from angelia.client.find import DEFAULT_URL, Address
from angelia.client.outbox import Outbox
from angelia.client.stream import Stream

P = ParamSpec("P")
T = TypeVar("T")


def _stream(plan: Callable[Concatenate[Reader, P], Following[T]]) -> Callable[Concatenate[Client, P], Stream[T]]:
    """A stream out of its plan."""

    @wraps(plan)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Stream[T]:
        return Stream(plan(self._reader, *args, **kwargs), self._connect(), self._carry_out)

    return call


def _claims(
    plan: Callable[Concatenate[Reader, P], Claims],
) -> Callable[Concatenate[Client, P], Generator[Claim, None, None]]:
    """Claims out of their plan."""

    @wraps(plan)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[Claim, None, None]:
        return Work(self._reader, self._carry_out, self._connect).claims(plan(self._reader, *args, **kwargs))

    return call


class Client(Calls):
    """One caller at one hub, who reads, too. Not for several threads at once; each takes its own."""

    def __init__(
        self,
        hub: str | Address = DEFAULT_URL,
        *,
        name: str | None = None,
        token: str | None = None,
        outbox: str | PathLike[str] | None = None,
        answer_seconds: float = ANSWER_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """In: the hub's address (``http://host:port``, ``https://…``, ``unix:/path``); who calls: its handle, and its
        token where the name is keyed; a file to keep messages in while no hub can be reached, one for each hub, which
        several processes may share; how long one answer may take; for how long a send that may have been heard is
        repeated; and what to wait with. Raises ``BadAddress``.
        """
        kept = None if outbox is None else Outbox(outbox)
        super().__init__(
            hub, name=name, token=token, answer_seconds=answer_seconds, patience_seconds=patience_seconds, pause=pause,
            outbox=kept,
        )  # fmt: skip
        self._reader = Reader(self._verbs)

    follow = _stream(Reader.follow)
    stream = _stream(Reader.stream)
    messages = _stream(Reader.messages)
    claims = _claims(Reader.claims)
    events = _stream(Reader.events)

    def _connect(self) -> Connection:
        return Connection(self.connection.address, self.connection.token)
