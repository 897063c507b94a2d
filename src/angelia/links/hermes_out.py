"""What goes to a gateway of Hermes': messages for its agents, and the outcomes of what they sent.

What must stay true:

- Messages to one agent go one after another, in their order; those to others go beside them, ``DELIVERS`` at a time: a
  slow turn holds up nobody else. Outcomes need no turn there and wait for none.
- Nothing is handed over twice because a line broke: what was on its way then stays forwarded (``bus/to_hermes.py``).
  An outcome may be told again, since there the first one counts.
- Whatever was taken here and has not left is back in its place when this ends, whichever way it ends.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from angelia.bus.carry import delivered, given_back, refused, take
from angelia.bus.core import AGAIN_SECONDS, Bus
from angelia.bus.forward import times_of
from angelia.bus.ports import Parcel
from angelia.bus.to_hermes import Begun, answer_to_envelope, answered, begin, failed
from angelia.links.channel import Refused
from angelia.model.connection import Connection
from angelia.model.envelope import Kind
from angelia.model.errors import HubError
from angelia.model.failure import Reason
from angelia.protocol.bot_relay_answers import SENDER_REFUSED, reply_text, why
from angelia.protocol.bot_relay_stamp import is_safe_to_stamp
from angelia.protocol.gateway import BAD_ID, NO_ID

log = logging.getLogger("angelia.links")
DELIVERS = 6  # a gateway has 8 workers for all slow calls, and drain, reply and look need one, too
HELD = 1_000  # taken and not begun yet: as many as one sender may have waiting in a mailbox
SHORT_SECONDS = 30.0  # for a call that waits for no turn; Hermes' own relay waits as long
AGAIN_THERE_SECONDS = 5.0  # until an outcome is told again that was not taken

T = TypeVar("T")
Call = Callable[[str, Mapping[str, object], float], Awaitable[Any]]
_OUTCOMES = ""  # the lane of those; a mailbox has a name


class Outgoing:
    """Takes what waits for one connection there. ``here``: this hub's name as the gateway knows it."""

    def __init__(
        self, bus: Bus, connection: Connection, call: Call, here: str, again_seconds: float = AGAIN_THERE_SECONDS
    ) -> None:
        self._bus, self._connection, self._call, self._here = bus, connection, call, here
        self._again_seconds = again_seconds
        self._lanes: dict[str, deque[Parcel]] = {}
        self._slots = asyncio.Semaphore(DELIVERS)
        self._room = asyncio.Event()
        self._names_senders = True
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until the line is lost (``LineLost``), or it is cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                while True:
                    for parcel in await self._take():
                        self._queue(
                            parcel, parcel.delivery.mailbox if parcel.envelope.kind is Kind.MESSAGE else _OUTCOMES
                        )
        finally:
            given_back(self._bus, [parcel for lane in self._lanes.values() for parcel in lane])
            self._lanes.clear()

    async def _take(self) -> list[Parcel]:
        while (room := HELD - sum(map(len, self._lanes.values()))) <= 0:
            self._room.clear()
            await self._room.wait()
        limits = self._bus.limits
        return await self._stored(
            lambda: take(self._bus, self._connection.id, min(room, limits.claim_deliveries), limits.wait_seconds)
        )

    def _queue(self, parcel: Parcel, key: str) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            assert self._tasks is not None
            lane = self._lanes[key] = deque()
            self._tasks.create_task(self._walk(key, lane))
        lane.append(parcel)

    async def _walk(self, key: str, lane: deque[Parcel]) -> None:
        """Everything in a lane, one after another; what it takes out it also answers for."""
        while lane:
            if key == _OUTCOMES:
                await self._bring(lane.popleft())
            else:
                async with self._slots:
                    await self._deliver(lane.popleft())
            self._room.set()
        del self._lanes[key]

    # ---------------------------------------------------------------------------------------------------- messages

    async def _deliver(self, parcel: Parcel) -> None:
        """Hand one over and wait for its turn's end, as long as that may take there."""
        begun = await self._begin(parcel)
        if begun is None:
            return
        try:
            answer = await self._ask(begun)
        except Refused as no:
            reason, words = why(no.code, no.data), no.message
        except TimeoutError:
            seconds = times_of(self._bus.limits).deliver_seconds
            reason, words = Reason.DELIVERY_TIMEOUT, f"no answer within {seconds:g} s"
        else:
            await self._stored(lambda: answered(self._bus, begun, reply_text(answer)))
            return
        await self._stored(lambda: failed(self._bus, begun, words, reason))

    async def _begin(self, parcel: Parcel) -> Begun | None:
        try:
            return await self._stored(lambda: begin(self._bus, self._connection.id, parcel, self._here))
        except asyncio.CancelledError:
            given_back(self._bus, [parcel])  # nothing where ``begin`` has seen to it
            raise

    async def _ask(self, begun: Begun) -> Any:
        envelope = begun.envelope
        sender = {"from_profile": envelope.from_profile, "from_handle": envelope.from_handle}
        if is_safe_to_stamp(envelope.message):  # else without: then the gateway does not stamp it, and the text stays
            sender["from_connection"] = begun.connection
        params = {"profile": envelope.target_profile, "message": envelope.message, "id": envelope.id}
        seconds = times_of(self._bus.limits).deliver_seconds
        named = sender if self._names_senders else {}
        try:
            return await self._call("bot_relay.deliver", {**params, **named}, seconds)
        except Refused as no:
            if no.code != SENDER_REFUSED or not named:
                raise
        self._names_senders = False  # this gateway lets nobody who has logged in say for whom it speaks
        return await self._call("bot_relay.deliver", params, seconds)

    # ---------------------------------------------------------------------------------------------------- outcomes

    async def _bring(self, parcel: Parcel) -> None:
        """Tell the outcome of an envelope; one of anything else that was said there is a message like any other."""
        delay: float | None = None
        settled = False
        try:
            answer = await self._stored(lambda: answer_to_envelope(self._bus, self._connection.name, parcel))
            if answer is None:
                self._not_asked(parcel)
                settled = True
            elif answer.wait:
                delay = answer.wait
            else:
                await self._call("bot_relay.reply", answer.params(), SHORT_SECONDS)
                delivered(self._bus, [parcel])
                settled = True
        except Refused as no:
            delay = self._again_seconds
            if no.code in (NO_ID, BAD_ID):
                refused(self._bus, parcel, Reason.UNKNOWN, "")
                settled = True
            log.warning("%s does not take the outcome of %s: %s", self._connection.name, parcel.envelope.id, no.message)
        except TimeoutError:
            delay = self._again_seconds
        finally:
            if not settled:
                given_back(self._bus, [parcel], delay=delay)

    def _not_asked(self, parcel: Parcel) -> None:
        """A reply to what was no envelope of theirs goes as a message; nobody there reads a notice of anything else."""
        if parcel.envelope.kind is Kind.NOTICE:
            refused(self._bus, parcel, Reason.UNKNOWN, "")
        else:
            self._queue(parcel, parcel.delivery.mailbox)

    async def _stored(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what the store must take, as often as it takes."""
        while True:
            try:
                return await work()
            except HubError as error:
                log.warning("mail for %s waits: %s", self._connection.name, error)
                await asyncio.sleep(AGAIN_SECONDS)
