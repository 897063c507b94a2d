"""A stream, read by the thread that asks for the next of it: the blocking driver of ``core/following.py``.

What must stay true: nothing is decided here. The stream has a connection of its own, so that the other calls of its
client work while it is read. ``close``, from any thread, ends it; so does letting go of it.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, Self, TypeVar

from angelia.client.calls import handed_out
from angelia.client.connection import Connection, why
from angelia.client.core import steps
from angelia.client.core.following import Following
from angelia.client.errors import ClientError, LostHub, TimedOut

T = TypeVar("T")
_BLOCK = 65_536


class Stream(Generic[T]):
    """What one path has to tell, for ever. Iterate over it, in a ``with`` block where it matters when it ends."""

    def __init__(
        self, following: Following[T], connection: Connection, carry_out: Callable[[steps.Step], object]
    ) -> None:
        """In: the plan; a connection of its own; and what carries out the steps that are not the stream's."""
        self._following = following
        self._connection = connection
        self._closed = threading.Event()
        self._read: Generator[T, None, None] = _read(following, connection, self._closed, carry_out)

    @property
    def last_event_id(self) -> str:
        """The id of the last event that was handed out; it may be set before the first is asked for."""
        return self._following.last_event_id

    @last_event_id.setter
    def last_event_id(self, value: str) -> None:
        self._following.last_event_id = value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return next(self._read)

    def close(self) -> None:
        """End the stream: a reader that waits for the next event sees the end of the iteration."""
        self._closed.set()
        self._connection.shutdown()
        try:
            self._read.close()
        except ValueError:
            return  # another thread is in it, and has just been told


class _Closed(Exception):
    """Nobody wants any more of it."""


def _read(
    following: Following[T], connection: Connection, closed: threading.Event, carry_out: Callable[[steps.Step], object]
) -> Generator[Any, None, None]:
    """What the plan hands out. It knows nothing of its ``Stream``, so that one that is dropped ends at once."""
    answer: list[http.client.HTTPResponse] = []

    def of_the_stream(step: steps.Step) -> object:
        if isinstance(step, steps.Open):
            answer[:] = [connection.open(step.path, step.headers, seconds=step.seconds)]
            return _head(answer[0])
        if isinstance(step, steps.Read):
            return _chunk(answer[0], connection, following.quiet_seconds)
        if isinstance(step, steps.Shut):
            connection.close()
            return None
        return closed.wait(step.seconds) if isinstance(step, steps.Pause) else carry_out(step)

    def carry(step: steps.Step) -> object:
        if not closed.is_set():
            try:
                return of_the_stream(step)
            except ClientError:
                if not closed.is_set():  # else it broke because nobody wants it
                    raise
        raise _Closed

    try:
        yield from handed_out(following.run(), carry)
    except _Closed:
        return
    finally:
        connection.close()


def _head(answer: http.client.HTTPResponse) -> steps.Head:
    return steps.Head(answer.status, answer.getheader("Content-Type") or "", answer.getheader("Location") or "")


def _chunk(answer: http.client.HTTPResponse, connection: Connection, seconds: float) -> bytes:
    try:
        return answer.read1(_BLOCK)
    except TimeoutError:
        raise TimedOut(f"the hub at {connection.address}", seconds) from None
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        # The last two are how http.client and ssl say that the socket was shut under them.
        raise LostHub(str(connection.address), why(error)) from None
