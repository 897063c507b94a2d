"""One turn from its begin to its outcome: attempts, their limit, and what each end means for the message.

What must stay true:

- The limit is on the turn. One more attempt, of a class that may have passed, and never after a turn that ran into its
  limit; where nobody knows whether it ran, the agent's own history is asked before the message's ``replay`` decides.
- Busy means wait: what an agent could not begin because its conversation is in use goes back into its place.
- What became of it is stored before anything else happens, however long the store cannot take it.
- A turn whose secrets others can use is not begun. Which file that is, its owner hears, and not the sender.
- What else an adapter raises is a fault of ours: it costs that turn, and nothing else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TypeVar

from angelia.bus import turns
from angelia.bus.core import Bus
from angelia.bus.runs import Run
from angelia.model.envelope import Replay
from angelia.model.errors import DiskFull, Unwell
from angelia.model.failure import Reason, Retry, classify_output, retry_after
from angelia.protocol.prompt import answer, inert
from angelia.turns.adapters.port import Accepted, Answered, Failed, Lost, Outcome, Turn
from angelia.turns.adapters.secret_file import UnfitSecret
from angelia.turns.telling import Telling
from angelia.turns.way import Way

T = TypeVar("T")
log = logging.getLogger("angelia.turns")
OUTPUT_CHARS = 2_000  # of what a failed turn printed: the end of a stack trace
FULL_SECONDS = 2.0  # between two tries to store an outcome
MOST_WAIT_SECONDS = 60.0  # where an agent says when to come back; longer is a failure now
BUSY = (Reason.TARGET_BUSY, Reason.TARGET_SESSION_LIVE)
_UNFIT = (
    "A secret that it needs cannot be used as it is kept; whoever runs it has to mend that: angelia doctor says how."
)
_STOPPED = Failed("A person stopped it.", "stopped", reason=Reason.CANCELLED)


class Attempts:
    """Brings begun turns to an end."""

    def __init__(self, bus: Bus, telling: Telling) -> None:
        self._bus, self.telling = bus, telling

    async def run(self, run: Run, way: Way) -> bool:
        """Run it, once more where that is right, and store what became of it. False where no turn began, because
        somebody else is at work in that conversation: then the message is back in its place, to wait on."""
        run.spec = way.spec
        turn = await self.telling.turn(run, way, again=False)
        outcome = await self._once(run, way, turn)
        if isinstance(outcome, Failed) and not outcome.began and outcome.reason in BUSY and not run.stopped:
            run.route = outcome.route
            await self._stored(lambda: turns.given_back(self._bus, run))
            return False
        await self._settle(run, way, turn, outcome)
        return True

    async def resume(self, run: Run, way: Way) -> None:
        """The hub before was in the middle of it: look what became of it, and go on from there."""
        run.kind, run.spec = way.kind, way.spec
        turn = await self.telling.turn(run, way, again=True)
        await self._settle(run, way, turn, Lost("The hub ended while its turn ran.", "none"))

    async def _settle(self, run: Run, way: Way, turn: Turn, outcome: Outcome) -> None:
        """Store it, or run the next attempt and store that."""
        while True:
            if isinstance(outcome, Lost):
                outcome = await self._recalled(run, way, turn, outcome)
            run.route = outcome.route
            if not await self._wants_more(run, turn, outcome):
                break
            turn = await self.telling.turn(run, way, again=True)
            outcome = await self._once(run, way, turn)
        await self._store(run, outcome)

    async def _once(self, run: Run, way: Way, turn: Turn) -> Outcome:
        """One attempt, which a person may stop."""
        if run.stopped:
            return _STOPPED
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._limited(run, way, turn))
            run.stop = lambda: _end(task)
        run.stop = None
        return _STOPPED if task.cancelled() else task.result()

    async def _limited(self, run: Run, way: Way, turn: Turn) -> Outcome:
        limit = asyncio.timeout(turn.seconds)
        try:
            async with limit:
                return await way.adapter.run(self.telling.with_token(run, turn))
        except UnfitSecret as error:
            return Failed(_UNFIT, "none", Reason.MISSING_CONFIG, str(error), began=False)
        except TimeoutError:
            if limit.expired():
                text = f"It did not end within {turn.seconds:g} s and was ended; it is not run again."
                return Failed(text, "ended at its limit", reason=Reason.DELIVERY_TIMEOUT)
            log.exception("the adapter of %s failed", turn.agent)
        except Exception:
            log.exception("the adapter of %s failed", turn.agent)
        return Failed("The hub's own adapter failed; its log says how.", "none", reason=Reason.UNKNOWN)

    async def _recalled(self, run: Run, way: Way, turn: Turn, lost: Lost) -> Outcome:
        """What the agent's own history says of a turn that nobody knows of."""
        try:
            async with asyncio.timeout(turn.seconds):
                return await way.adapter.recall(turn) or lost
        except (TimeoutError, UnfitSecret):
            return lost
        except Exception:
            log.exception("the history of %s could not be looked at", run.agent)
            return lost

    async def _wants_more(self, run: Run, turn: Turn, outcome: Outcome) -> bool:
        """Whether there is one more attempt; if so, it is on disk."""
        if isinstance(outcome, Failed) and not run.stopped:
            reason = self._reason(run, outcome)
            patient = (outcome.wait_seconds or 0) <= MOST_WAIT_SECONDS
            if retry_after(reason) is Retry.NONE or reason is Reason.DELIVERY_TIMEOUT or not patient:
                return False
            if not await self._stored(lambda: turns.again(self._bus, run)):
                return False
            await asyncio.sleep(outcome.wait_seconds or 0)
            return True
        if isinstance(outcome, Lost) and turns.replays(run) is Replay.ONCE and not run.stopped:
            return await self._stored(lambda: turns.again(self._bus, run))
        return False

    async def _store(self, run: Run, outcome: Outcome) -> None:
        bus = self._bus
        if isinstance(outcome, Answered):
            run.usage = {name: value for name, value in asdict(outcome.usage).items() if value is not None}
            if len(outcome.text.encode("utf-8", "replace")) > bus.limits.reply_bytes:
                outcome = Failed("Its answer is too long to be kept whole.", outcome.route, reason=Reason.TOO_LARGE)
        if isinstance(outcome, Answered):
            text = answer(outcome.text)
            await self._stored(lambda: turns.answered(bus, run, text))
        elif isinstance(outcome, Accepted):
            await self._stored(lambda: turns.accepted(bus, run))
        elif isinstance(outcome, Failed):
            reason, said = self._reason(run, outcome), outcome.text
            self._tell_owner(run, reason, outcome)
            await self._stored(lambda: turns.failed(bus, run, reason, said))
        elif turns.replays(run) is Replay.ASK:
            await self._stored(lambda: turns.held(bus, run))
        else:
            said = outcome.text
            await self._stored(lambda: turns.failed(bus, run, Reason.OUTCOME_UNKNOWN, said))

    def _tell_owner(self, run: Run, reason: Reason, outcome: Failed) -> None:
        """What it printed goes to the log and to whoever looks at turns: it may hold what is not for the sender."""
        run.output = inert(outcome.output.strip()[-OUTPUT_CHARS:]) or None
        printed = f"; it printed: {run.output!r}" if run.output else ""
        log.info(
            "the turn of %s for message %s failed (%s): %s%s",
            run.agent, run.parcel.envelope.id, reason.value, outcome.text, printed,
        )  # fmt: skip

    def _reason(self, run: Run, outcome: Failed) -> Reason:
        if outcome.reason is not None:
            return outcome.reason
        envelope = run.parcel.envelope
        return classify_output(outcome.output, (run.agent, envelope.sender, *envelope.via))

    async def _stored(self, do: Callable[[], Awaitable[T]]) -> T:
        """Its outcome, however long the disk is full."""
        while True:
            try:
                return await do()
            except (DiskFull, Unwell) as error:
                log.warning("the outcome of a turn cannot be stored yet: %s", error)
                await asyncio.sleep(FULL_SECONDS)


def _end(task: asyncio.Task[Outcome]) -> None:
    task.cancel()
