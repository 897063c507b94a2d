"""The session with one gateway of Hermes': what Hermes' own Desktop does there as the relay, over one line.

What must stay true:

- Only what keeps nothing warm there is called: look, show, drain, deliver, reply, ping.
- The line is up from the first answer on: a ping comes before all else. It is alive as long as a ping is answered;
  whoever is busy with turns answers it all the same.
- It ends with the line (``LineLost``) or when it is cancelled; either way nothing that was drained or taken is lost.

Who dials, and when again, is the keeper's.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NoReturn

from angelia.bus.beat import to_beat
from angelia.bus.core import Bus
from angelia.links.channel import Channel, Refused
from angelia.links.hermes_in import Incoming
from angelia.links.hermes_out import Outgoing
from angelia.links.hermes_rosters import Pace, Rosters
from angelia.links.port import FRAME_BYTES, Kind, LineLost, Trouble, Wire
from angelia.model.connection import Connection
from angelia.protocol.bot_relay_rows import Row
from angelia.protocol.foreign_json import DEPTH
from angelia.protocol.gateway import Refusal
from angelia.protocol.jsonrpc import UNKNOWN_METHOD, Request

log = logging.getLogger("angelia.links")
SETTLE_SECONDS = 5.0  # for a drain that is under way when this is to end

_PENDING = "bot_relay.outbox.pending"


class HermesLink:
    """One line to a gateway."""

    def __init__(
        self,
        bus: Bus,
        connection: Connection,
        wire: Wire,
        *,
        here: str,
        rows_for: Callable[[], Iterable[Row]],
        on_change: Callable[[], None],
        on_answer: Callable[[], None] | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Takes an open line, after its ``gateway.ready``; whoever dialled it closes it.

        ``here``: this hub's name, under which its agents stand in ``rows_for()``: everyone whom the gateway shall see.
        ``on_change`` hears that ``agents`` or ``warning`` are other ones now, ``on_answer`` of the first answer; they
        raise nothing.
        """
        self._connection, self._on_change, self._on_answer = connection, on_change, on_answer
        self._pace = pace or Pace()
        self._channel = Channel(wire, max_bytes=FRAME_BYTES, depth=DEPTH, handle=_refuse, heard=self._heard)
        call = self._channel.call
        self._rosters = Rosters(bus, connection, call, here, rows_for, on_change, self._pace)
        self._outgoing = Outgoing(bus, connection, call, here, self._pace.again)
        self._incoming = Incoming(bus, connection, call, here, self._rosters.shown, self._warn, self._pace.poll)
        self._of_mail: str | None = None

    @property
    def agents(self) -> int:
        """How many are known there."""
        return self._rosters.count

    @property
    def warning(self) -> str | None:
        """What a person should know, in a sentence or two."""
        return self._of_mail or self._rosters.warning

    def rows_changed(self) -> None:
        """What ``rows_for`` says may be something else now: it is shown within a second."""
        self._rosters.changed()

    async def say_farewell(self) -> None:
        """The connection is to be forgotten, and our agents there. Call it while ``run`` runs, before its end."""
        await self._rosters.say_farewell()

    async def run(self) -> NoReturn:
        """Serve the line to its end, and raise it: ``LineLost``; ``Trouble`` (in a group) where it never answers.
        Cancelled, it first commits what it is draining."""
        how = ""
        try:
            async with asyncio.TaskGroup() as line:
                line.create_task(self._channel.run())
                await self._await_answer()
                line.create_task(self._incoming.run())
                try:
                    await self._work()
                finally:
                    await self._incoming.settled(SETTLE_SECONDS)
        except* LineLost as lost:
            how = _words(lost)
        raise LineLost(how)

    async def _await_answer(self) -> None:
        seconds = self._pace.answer
        try:
            await self._channel.call("gateway.ping", {}, seconds)
        except Refused:
            pass  # an older one does not know it, and has answered
        except TimeoutError:
            problem = f"The gateway there did not answer within {seconds:g} s."
            raise Trouble(Kind.UNREACHABLE, problem, "Look at how it is doing.") from None
        if self._on_answer is not None:
            self._on_answer()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._outgoing.run())
            tasks.create_task(self._rosters.look_on())
            tasks.create_task(self._rosters.show_on())
            tasks.create_task(self._ping_on())

    async def _ping_on(self) -> NoReturn:
        while True:
            await asyncio.sleep(to_beat(asyncio.get_running_loop().time(), self._pace.ping))
            try:
                await self._channel.call("gateway.ping", {}, self._pace.ping)
            except Refused:
                continue  # an older one does not know it, and is alive
            except TimeoutError:
                raise LineLost(f"a ping was not answered within {self._pace.ping:g} s") from None

    def _heard(self, type: str, payload: dict[str, object]) -> None:
        if type == _PENDING:
            self._incoming.signal()

    def _warn(self, warning: str | None) -> None:
        if warning == self._of_mail:
            return
        self._of_mail = warning
        said = (self._connection.name, warning or "its outbox is drained again")
        log.warning("%s: %s", *said, extra={"subject": f"mail of {self._connection.id}"})
        self._on_change()


async def _refuse(request: Request) -> object:
    """A gateway of Hermes' calls nobody."""
    raise Refusal(UNKNOWN_METHOD, f"There is no method '{request.method[:80]}' here.")


def _words(lost: BaseExceptionGroup[LineLost]) -> str:
    """How the line ended."""
    first: BaseException = lost
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return str(first)
