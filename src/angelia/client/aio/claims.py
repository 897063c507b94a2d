"""A message that is worked on while a task renews its lease: the asyncio driver of ``core/keeping.py``.

What must stay true: nothing is decided here. The task ends with the block; whatever the work does, and however long it
takes, it is not interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

from angelia.client.aio.plans import CarryOut, carried_out, handed_out
from angelia.client.core.keeping import Held, ending, renewing
from angelia.client.core.reading import Claims, Reader
from angelia.client.core.steps import Course

END_SECONDS = 2.0  # for giving back what a task that was cancelled had


class Work(NamedTuple):
    """What all claims of one client have in common."""

    reader: Reader
    carry_out: CarryOut

    async def claims(self, given: Claims) -> AsyncGenerator[AsyncClaim, None]:
        """Each delivery that the plan hands out, as a claim."""
        deliveries = handed_out(Course(given.plan), self.carry_out)
        try:
            async for delivery in deliveries:
                yield AsyncClaim(delivery, self, given)
        finally:
            await deliveries.aclose()


class AsyncClaim(Held):
    """One message, ours until the ``async with`` block ends: acked then, or given back where it ends with an error.

    ``async with claim as message``; ``claim.lost`` and ``claim.check()`` tell within the block whether it is still
    ours. Raises ``LeaseLost`` at the end of work that somebody else has been given, too.
    """

    def __init__(self, delivery: dict[str, Any], work: Work, given: Claims) -> None:
        super().__init__(delivery)
        self._work = work
        self._given = given
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> dict[str, Any]:
        await self._group.__aenter__()
        verbs, given = self._work.reader.verbs, self._given
        plan = renewing(verbs, self, lease_seconds=given.lease_seconds, keep_seconds=given.keep_seconds)
        self._task = self._group.create_task(carried_out(plan, self._work.carry_out))
        return self.message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await self._group.__aexit__(None, None, None)  # the work's own error is its caller's, and no part of a group
        reader = self._work.reader
        plan = ending(reader.verbs, self, reader.finished, error)
        if error is None or isinstance(error, Exception):
            await carried_out(plan, self._work.carry_out)
            return
        with suppress(TimeoutError):  # then its lease ends by itself
            async with asyncio.timeout(END_SECONDS):
                await carried_out(plan, self._work.carry_out)
