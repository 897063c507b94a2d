"""What comes from a gateway of Hermes': the mail in its outbox, drained when it says so, and looked for behind that.

What must stay true:

- What was drained is committed before anything else is done, and again and again until it is: the gateway has let go
  of it. A stop waits for a drain that is under way (``settled``).
- The gateway never repeats a signal: one that comes during a drain is followed by another drain.
- A drain has no deadline of its own: an answer that comes late holds mail like any other. That the line is alive is
  watched elsewhere.
- What cannot be taken is told to its sender at once, with a reason.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from angelia.bus.arrive_hermes import Refusal, Shown, arrive_from_hermes, arrive_unwatched
from angelia.bus.core import AGAIN_SECONDS, Bus
from angelia.bus.forward import times_of
from angelia.links.channel import Refused
from angelia.links.hermes_out import SHORT_SECONDS, Call
from angelia.model.connection import Connection
from angelia.model.errors import HubError
from angelia.model.failure import on_hermes_wire
from angelia.protocol.bot_relay_answers import envelopes
from angelia.protocol.bot_relay_mail import BadEnvelope, RelayEnvelope
from angelia.protocol.gateway import BAD_ID, NO_ID

log = logging.getLogger("angelia.links")
GATHER_SECONDS = 0.2  # after the first signal: a burst is one drain; Hermes' own relay waits 250 ms
POLL_SECONDS = 30.0  # behind the signals: what lay there before the gateway's start is never signalled
UNTOLD = 1_000  # refusals that could not be told yet; beyond that the oldest go, and their senders' time runs out

ANOTHER_RELAY = (
    "Another relay is at work there (a Desktop, say): mail for its connections is in the same outbox, and one of the "
    "two refuses what was meant for the other. Let one of them relay."
)


class Incoming:
    """Drains one gateway. ``shown``: what it was shown last; ``warn`` hears what is wrong (None: nothing any more)."""

    def __init__(
        self,
        bus: Bus,
        connection: Connection,
        call: Call,
        here: str,
        shown: Callable[[], Shown],
        warn: Callable[[str | None], None],
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._bus, self._connection, self._call, self._here = bus, connection, call, here
        self._shown, self._warn, self._poll_seconds = shown, warn, poll_seconds
        self._wanted = asyncio.Event()
        self._draining = asyncio.Lock()
        self._untold: list[Refusal] = []
        self._two_relays = False

    def signal(self) -> None:
        """There is mail."""
        self._wanted.set()

    async def run(self) -> None:
        """Drain at once, and from then on whenever there may be something. Until ``LineLost``, or cancelled."""
        while True:
            self._wanted.clear()
            await self._drain()
            await self._tell()
            try:
                async with asyncio.timeout(self._poll_seconds):
                    await self._wanted.wait()
                    await asyncio.sleep(GATHER_SECONDS)
            except TimeoutError:
                continue

    async def settled(self, seconds: float) -> None:
        """Wait for the drain that is under way, at most so long."""
        try:
            async with asyncio.timeout(seconds), self._draining:
                return
        except TimeoutError:
            log.warning("%s did not answer a drain in time; it offers that mail again", self._connection.name)

    async def _drain(self) -> None:
        async with self._draining:
            params: Mapping[str, object] = {"desktop": self._here}
            seconds = times_of(self._bus.limits).deliver_seconds
            try:
                answer: Any = await self._call("bot_relay.outbox.drain", params, seconds)
            except Refused as no:
                self._warn(f"Its outbox cannot be drained: {no.message[:200]}")
                return
            except TimeoutError:
                return
            found = envelopes(answer)
            refused = await self._commit(found) if found else []
        self._two_relays |= any(each.stranger for each in refused)
        self._untold = [*self._untold, *refused][-UNTOLD:]
        self._warn(ANOTHER_RELAY if self._two_relays else None)

    async def _commit(self, found: Sequence[RelayEnvelope | BadEnvelope]) -> list[Refusal]:
        try:
            while True:
                try:
                    return await arrive_from_hermes(self._bus, self._connection, self._shown(), found)
                except HubError as error:
                    log.warning("mail from %s waits in memory: %s", self._connection.name, error)
                await asyncio.sleep(AGAIN_SECONDS)
        except asyncio.CancelledError:
            arrive_unwatched(self._bus, self._connection, self._shown(), found)
            raise

    async def _tell(self) -> None:
        """Tell the senders of what was not taken; what the gateway does not take now is told after the next drain."""
        while self._untold:
            each = self._untold[0]
            told = {"id": each.id, "error": each.text, "reason": on_hermes_wire(each.reason)}
            try:
                await self._call("bot_relay.reply", told, SHORT_SECONDS)
            except Refused as no:
                if no.code not in (NO_ID, BAD_ID):
                    return
            except TimeoutError:
                return
            self._untold.remove(each)
