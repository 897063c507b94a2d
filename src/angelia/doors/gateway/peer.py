"""One connection of the gateway as its methods see it: who calls, what is open on it, and how to tell it something.

What must stay true: whether a frame really left over a connection that was still open is known, because some hands
settle by it. A peer that takes no byte for as long as a stream may is cut off; so is one for which more waits than any
reader has a use for. That there is mail to fetch is told to the connection of the desktop that it is for.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from angelia.bus.caller import MAY, Caller, Rank
from angelia.bus.core import Bus
from angelia.bus.desktops import speaks_for
from angelia.bus.forward import waits
from angelia.bus.remotes import ANONYMOUS
from angelia.model.errors import AngeliaError
from angelia.protocol import jsonrpc

if TYPE_CHECKING:
    from angelia.doors.gateway.sessions import Session

WAITING_FRAMES = 8  # of the largest, that may wait for a peer to read; beyond that it does not read at all
TELL_SECONDS = 0.1  # between two signals of new mail: a burst of it is one drain
LOOK_SECONDS = 0.005  # between two looks whether what was written has left; a transport has no event for it
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Line(Protocol):
    """What the gateway knows of the socket under a connection; a bus's ``Connection``, too.

    ``lost``: it is no more; ``lost_unwritten``: it ended before all had left. ``on_lost`` is called once, at its end.
    ``let_in``: who is on it may be here, and what comes is no longer bounded as a stranger's.
    """

    let_in: bool
    lost: bool
    lost_unwritten: bool
    on_lost: Callable[[], None] | None

    @property
    def socket(self) -> socket.socket | None: ...
    def unsent(self) -> int: ...
    def abort(self) -> None: ...


class Peer:
    """One connection. ``scope``: the name of the desktop that it says it is; ``sessions``: its live chats, by id."""

    def __init__(self, bus: Bus, caller: Caller, line: Line, send: Send, tasks: asyncio.TaskGroup) -> None:
        self.bus, self.caller, self.line, self.tasks = bus, caller, line, tasks
        self.scope = (caller.name or "") if caller.rank is Rank.LINK else ANONYMOUS
        self.sessions: dict[str, Session] = {}
        self._send = send
        self._waiting = 0
        is_relay = caller.rank in MAY["relay"]
        self._teller = tasks.create_task(self._tell_of_mail()) if is_relay else None

    def follow(self, name: str) -> None:
        """It is the desktop of this name: tell it of that one's mail from now on."""
        if self._teller is not None and name.lower() != self.scope.lower():
            self._teller.cancel()
            self.scope = name
            self._teller = self.tasks.create_task(self._tell_of_mail())

    async def tell(self, frame: bytes) -> bool:
        """Write a frame; False where the connection is no more. Waits while the peer takes nothing."""
        if self._waiting > WAITING_FRAMES * self.bus.limits.frame_bytes:
            self.line.abort()
        if self.line.lost:
            return False
        self._waiting += len(frame)
        try:
            while True:
                before = self.line.unsent()
                try:
                    async with asyncio.timeout(self.bus.limits.stream_stall_seconds):
                        await self._send({"type": "websocket.send", "text": frame.decode()})
                        return not self.line.lost
                except TimeoutError:
                    if self.line.unsent() >= before:
                        self.line.abort()
                        return False
                except (OSError, RuntimeError):  # what the server raises once the connection is closed, or is closing
                    return False
        finally:
            self._waiting -= len(frame)

    async def has_left(self) -> bool:
        """Whether all that was told has left this process over a connection that was still open."""
        while self.line.unsent():  # noqa: ASYNC110 - a transport has no event for it
            await asyncio.sleep(LOOK_SECONDS)
        return not self.line.lost_unwritten and not self.line.lost

    async def _tell_of_mail(self) -> None:
        """Say that there is mail to fetch: when it comes, and once where some waits already."""
        bus, scope = self.bus, self.scope.lower()
        with bus.signals.watch("@" + scope) as watch:
            ticket = watch.ticket()
            try:
                news = await waits(bus, scope)
            except AngeliaError:
                news = False
            while not bus.stopping:
                if not news:
                    await bus.clock.wait(watch.changed(ticket), None)
                    ticket = watch.ticket()
                if not self._is_desktop():
                    return
                await self.tell(jsonrpc.event("bot_relay.outbox.pending", {}))
                news = False
                await asyncio.sleep(TELL_SECONDS)

    def _is_desktop(self) -> bool:
        """Whether it may still call itself what it did: a name that got a token meanwhile is somebody else's."""
        return self.scope == ANONYMOUS or speaks_for(self.bus, self.caller, self.scope.lower())
