"""A message that is worked on while a thread renews its lease: the blocking driver of ``core/keeping.py``.

What must stay true: nothing is decided here. The thread has a connection of its own and ends with the block; whatever
the work does, and however long it takes, it is not interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, NamedTuple

from angelia.client.calls import carried_out, handed_out
from angelia.client.connection import Connection
from angelia.client.core.keeping import Held, ending, renewing
from angelia.client.core.reading import Claims, Reader
from angelia.client.core.steps import Exchange, Pause, Step

END_SECONDS = 2.0


class _Over(Exception):
    """There is nothing to renew any more."""


class Work(NamedTuple):
    """What all claims of one client have in common."""

    reader: Reader
    carry_out: Callable[[Step], object]
    connect: Callable[[], Connection]

    def claims(self, given: Claims) -> Generator[Claim, None, None]:
        """Each delivery that the plan hands out, as a claim."""
        for delivery in handed_out(given.plan, self.carry_out):
            yield Claim(delivery, self, given)


class Claim(Held):
    """One message, ours until the ``with`` block ends: acked then, or given back where it ends with an error.

    ``with claim as message``; ``claim.lost`` and ``claim.check()`` tell within the block whether it is still ours.
    Raises ``LeaseLost`` at the end of work that somebody else has been given, too.
    """

    def __init__(self, delivery: dict[str, Any], work: Work, given: Claims) -> None:
        super().__init__(delivery)
        self._work = work
        self._given = given
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> dict[str, Any]:
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()
        return self.message

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._thread is not None
        self._over.set()
        self._thread.join(END_SECONDS)
        reader = self._work.reader
        carried_out(ending(reader.verbs, self, reader.finished, error), self._work.carry_out)

    def _renew(self) -> None:
        given, connection = self._given, self._work.connect()
        plan = renewing(
            self._work.reader.verbs, self, lease_seconds=given.lease_seconds, keep_seconds=given.keep_seconds
        )

        def carry(step: Step) -> object:
            if isinstance(step, Exchange):
                return connection.exchange(step)
            assert isinstance(step, Pause), step
            if self._over.wait(step.seconds):
                raise _Over
            return None

        try:
            carried_out(plan, carry)
        except _Over:
            return
        finally:
            connection.close()
