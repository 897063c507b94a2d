"""One envelope of a Hermes home on its way through the bus, and its answer on the way back.

What must stay true: an envelope is one message, by its own id, however often it is looked at. The first letter of an
id is that message: a later one, whatever it says, is taken away and never answered, so that the first one's answer is.
Its sender is proved where it is a profile of that install and nobody but the install's owner can have written it; any
other is an open caller, who is not let use a keyed or reserved name. What came of it is a file before the bus counts it
as handed over; where the hub ends before that, the next one finds it unanswered and goes on. Whoever wrote what is no
envelope is told so.
"""

import asyncio
import logging
import time

from angelia.bus.ask import Answer, ask, finished
from angelia.bus.caller import OPEN, Caller, Rank, may
from angelia.bus.core import Bus
from angelia.bus.draft import Draft
from angelia.bus.rosters import afar
from angelia.doors.hermes_home.files import Letter, RelayFiles
from angelia.model.address import RESERVED
from angelia.model.envelope import Intent
from angelia.model.errors import AskCycle, CallerError, HubError, IdReused, MailboxFull
from angelia.model.failure import Reason, on_hermes_wire
from angelia.protocol.bot_relay import Times, handle_of, profile_of
from angelia.protocol.bot_relay_fates import Fate, end_text, of_queued
from angelia.protocol.bot_relay_mail import BadEnvelope, RelayEnvelope, RelayReply
from angelia.protocol.native import text_of
from angelia.protocol.prompt import read_attribution

log = logging.getLogger("angelia.hermes_home")
AGAIN_SECONDS = 5.0  # until the next try of a store that is unwell
_REASONS = {AskCycle: Reason.LOOP, MailboxFull: Reason.MAILBOX_FULL}


class Post:
    """Carries envelopes of one home. ``ttl``: seconds that one may lie in the outbox; None: for ever."""

    def __init__(self, bus: Bus, files: RelayFiles, times: Times, ttl: float | None) -> None:
        self._bus, self._files, self._times, self._ttl = bus, files, times, ttl

    async def take(self, letter: Letter) -> Letter | None:
        """Claim a queued letter; None where it is somebody else's by now, too old (which its sender is told), or not
        the first of its id."""
        now, envelope = time.time(), letter.envelope
        if await asyncio.to_thread(self._files.is_known, letter.id):
            await self._repeated(letter)
            return None
        if isinstance(envelope, BadEnvelope) or of_queued(envelope, letter.modified, now, self._ttl) is Fate.HAND_OUT:
            return await asyncio.to_thread(self._files.claim, letter, now)
        await self._end(letter.id, Reason.QUEUED_EXPIRED, end_text(Fate.EXPIRED, envelope, self._ttl))
        await asyncio.to_thread(self._files.drop, letter)
        return None

    async def carry(self, letter: Letter) -> None:
        """Bring a claimed letter to its outcome."""
        envelope = letter.envelope
        if isinstance(envelope, BadEnvelope):
            log.warning("the sender of %s is told that it was not delivered. %s", letter.id, envelope.why)
            await self._end(letter.id, Reason.UNKNOWN, f"Not delivered: {envelope.why}")
            return
        ends = (envelope.created_at or letter.modified) + self._times.waiter_seconds
        try:
            await self._deliver(envelope, ends, _caller(letter, envelope.sender))
        except IdReused:
            await self._repeated(letter)
        except CallerError as error:
            await self._end(letter.id, _REASONS.get(type(error), Reason.UNKNOWN), error.detail)

    async def _repeated(self, letter: Letter) -> None:
        """It says an id that is known: the answer under it belongs to the first."""
        log.warning("another letter of %s was taken away and not delivered: an id is one message", letter.id)
        await asyncio.to_thread(self._files.drop, letter)

    async def _deliver(self, envelope: RelayEnvelope, ends: float, caller: Caller) -> None:
        draft = self._draft(envelope, caller)
        while True:
            left = ends - time.time()
            try:
                answer = await ask(self._bus, draft, max(0.0, min(left, self._bus.limits.wait_seconds)))
            except HubError as error:
                log.warning("an envelope of %s waits: %s", envelope.from_handle or "hermes", error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if not answer.pending:
                await self._bring_back(envelope, answer)
                return
            finished(self._bus, answer, written=False)
            if left <= 0:
                await self._end(envelope.id, Reason.DELIVERY_TIMEOUT, end_text(Fate.TIMED_OUT, envelope, self._ttl))
                return

    def _draft(self, envelope: RelayEnvelope, caller: Caller) -> Draft:
        """The message that an envelope is; raises ``CallerError`` where nobody here is meant, or the name is not the
        caller's."""
        may(caller, "send")
        name, proved = self._bus.identify(caller, envelope.sender)
        stamp = read_attribution(envelope.message)
        own = stamp is not None and stamp.handle.lower() in (envelope.sender.lower(), envelope.from_handle.lower())
        return Draft(
            sender=name,
            verified=proved,
            to=self._target(handle_of(profile_of(envelope.target_profile))),
            text=stamp.body if stamp is not None and own else envelope.message,
            intent=Intent.REQUEST.value,
            id=envelope.id,
        )

    def _target(self, name: str) -> str:
        """Who is meant: somebody here, or elsewhere by the name that the roster has for them."""
        if self._bus.directory.find(name.lower()) is None and (remote := afar(self._bus).get(name.lower())) is not None:
            return f"{remote.shown.handle}@{remote.shown.connection_id}"
        return self._bus.directory.require(name)

    async def _bring_back(self, envelope: RelayEnvelope, answer: Answer) -> None:
        """The file first, then the bus: an answer is handed over once it can be read."""
        written = False
        try:
            if answer.reply is not None:
                said = text_of(answer.reply)
                text = said if said is not None else (answer.reply.body or b"").decode()
                await self._write(RelayReply(envelope.id, int(time.time()), reply=text))
            elif answer.failure is not None:
                await self._end(envelope.id, *answer.failure)
            written = True
        finally:
            finished(self._bus, answer, written=written)

    async def _end(self, id: str, reason: Reason, text: str) -> None:
        await self._write(RelayReply(id, int(time.time()), error=text, reason=on_hermes_wire(reason)))

    async def _write(self, reply: RelayReply) -> None:
        if not await asyncio.to_thread(self._files.answer, reply):
            log.info("envelope %s was answered by somebody else before", reply.id)


def _caller(letter: Letter, sender: str) -> Caller:
    """Whose letter it is, for the table of who may do what."""
    return Caller(Rank.AGENT, sender) if letter.own and sender.lower() not in RESERVED else OPEN
