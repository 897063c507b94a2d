"""What a plan may ask of whoever carries it out: the few things that a pure core cannot do for itself.

A plan is a generator. It yields a step, is sent what the step came to, or has the step's error thrown into it, and
returns its result. What must stay true: a plan itself does no I/O and never waits, so that the blocking and the
asynchronous client are one set of rules, and a test can play any hub against it without a socket.

    Exchange   one request and its whole answer              → (status, content)
    Open       begin to read something that goes on          → Head
    Read       what came next of it, b"" at its end          → bytes
    Shut       it is not read any further                    → None
    Pause      let some time pass                            → None
    Disk       a piece of work that touches a file           → what it returns
    Out        hand something to whoever reads the stream    → None, once the next one is asked for

Errors that a step may end with are those of ``errors.py``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, TypeVar

    from angelia.client.errors import ClientError

    T = TypeVar("T")
    Plan = Generator["Step", Any, T]


class Step:
    """The root; two steps are equal that ask for the same."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._fields() == [getattr(other, name) for name in self.__slots__]

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}{tuple(self._fields())}"

    def _fields(self) -> list[object]:
        return [getattr(self, name) for name in self.__slots__]


class Exchange(Step):
    """One request. ``path`` is encoded, with its query; ``seconds`` bounds each wait for bytes of the answer."""

    __slots__ = ("content", "headers", "method", "path", "seconds")

    def __init__(self, method: str, path: str, content: bytes | None, headers: dict[str, str], seconds: float) -> None:
        self.method = method
        self.path = path
        self.content = content
        self.headers = headers
        self.seconds = seconds


class Open(Step):
    """GET something that goes on, on a connection of its own; ``seconds`` bounds this and every later ``Read``."""

    __slots__ = ("headers", "path", "seconds")

    def __init__(self, path: str, headers: dict[str, str], seconds: float) -> None:
        self.path = path
        self.headers = headers
        self.seconds = seconds


class Head(Step):
    """What an ``Open`` was answered with; ``kind`` is the content type, ``location`` where a redirect points."""

    __slots__ = ("kind", "location", "status")

    def __init__(self, status: int, kind: str = "", location: str = "") -> None:
        self.status = status
        self.kind = kind
        self.location = location


class Read(Step):
    """The next bytes."""

    __slots__ = ()


class Shut(Step):
    """Let go of what was opened; no harm where nothing is."""

    __slots__ = ()


class Pause(Step):
    """Wait so many seconds, or until there is no need to any more."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Disk(Step):
    """Call something that may wait for a disk, or for another process that has the file."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work


class Out(Step):
    """Hand ``value`` to the reader."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Course:
    """A plan that is under way. ``result`` is what it returned, once it is over."""

    def __init__(self, plan: Plan[object]) -> None:
        self.result: object = None
        self._plan = plan

    def next(self, outcome: object = None, trouble: ClientError | None = None) -> Step | None:
        """What to do now that the last step came to ``outcome``, or ended with ``trouble``; None: it is over.

        Raises whatever the plan ends with.
        """
        try:
            return self._plan.send(outcome) if trouble is None else self._plan.throw(trouble)
        except StopIteration as end:
            self.result = end.value
            return None

    def close(self) -> None:
        """Nobody wants it any more."""
        self._plan.close()
