"""The gateway's sockets: frames in, calls beside each other, answers as they come.

What must stay true:

- The first frame is ``gateway.ready``. Each request has exactly one answer; they come in any order.
- A long call never holds back a short one, however many there are: short ones have places of their own, and beyond the
  bound on long ones of a connection the next is refused at once, and nothing of it was stored.
- A peer that has gone ends its calls and chats; nothing that was accepted is lost with them.
- Another hub says hello in its first frame; from then on the connection is a link, and none of this.
- What goes wrong inside is logged once, and answered without its insides.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from angelia.bus.caller import Caller, Rank
from angelia.bus.core import Bus
from angelia.bus.forward import times_of
from angelia.doors.gateway.handover import Handover, Links
from angelia.doors.gateway.methods import METHODS, Failed, Method, Told, nothing
from angelia.doors.gateway.peer import Line, Peer, Send
from angelia.model.errors import AngeliaError
from angelia.model.failure import Reason
from angelia.protocol import gateway as shapes
from angelia.protocol import jsonrpc
from angelia.protocol.gateway import Refusal

log = logging.getLogger("angelia.gateway")
SHORT_AT_ONCE = 64  # of one connection; each waits for no more than the disk, and reading goes on when one has ended
HELLO = "hub.hello"
HELLO_SECONDS = 10.0  # for a hub's first frame, as for the head of a request: whoever dials here may be a stranger
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_NO_RELAY = Caller(Rank.AGENT)  # a hub hears nothing of mail for a relay of Hermes', a stranger least of all


class _Gone(Exception):
    """The peer went away: the end of everything on its connection."""


class Gateway:
    """Serves connections that were let in. ``version``: the hub's; ``links``: who keeps the links to other hubs."""

    def __init__(self, bus: Bus, version: str, links: Links) -> None:
        self._bus, self._version, self._links = bus, version, links

    async def serve(self, caller: Caller, line: Line, receive: Receive, send: Send) -> None:
        """One WebSocket, from its handshake to its end."""
        await self._serve(caller, line, receive, send, hubs_only=False)

    async def serve_hub(self, caller: Caller, line: Line, receive: Receive, send: Send) -> None:
        """The same, for other hubs alone: who has not proved itself may do nothing else."""
        await self._serve(caller, line, receive, send, hubs_only=True)

    async def _serve(self, caller: Caller, line: Line, receive: Receive, send: Send, *, hubs_only: bool) -> None:
        await receive()
        line.let_in = not hubs_only
        await send({"type": "websocket.accept"})
        try:
            async with asyncio.TaskGroup() as tasks:
                peer = Peer(self._bus, _NO_RELAY if hubs_only else caller, line, send, tasks)
                ready = {"product": "angelia", "version": self._version, "skin": {}}
                await peer.tell(jsonrpc.event("gateway.ready", {**ready, "frame_bytes": self._bus.limits.frame_bytes}))
                frames = _Frames(receive)
                try:
                    async with asyncio.timeout(HELLO_SECONDS if hubs_only else None):
                        hello = await _Calls(peer).read(frames, hubs_only=hubs_only)
                except TimeoutError:
                    raise _Gone from None
                await self._links.serve(caller, Handover(peer, hello, frames.next))
                raise _Gone
        except* _Gone:
            pass


class _Frames:
    """What comes on one connection."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    async def next(self) -> bytes | None:
        """The next frame; None at the end."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            return None
        text = message.get("text")
        return text.encode("utf-8", "surrogatepass") if text is not None else bytes(message["bytes"])


class _Calls:
    """The calls of one connection."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._short = asyncio.Semaphore(SHORT_AT_ONCE)
        self._long = 0

    async def read(self, frames: "_Frames", *, hubs_only: bool) -> bytes:
        """Begin what is called for until the peer goes; then raise ``_Gone``. The frame in which another hub says
        hello, where it does, before anything else."""
        limits, peer = self._peer.bus.limits, self._peer
        first = True
        while True:
            frame = await frames.next()
            if frame is None:
                raise _Gone
            found = jsonrpc.read_frame(frame, max_bytes=limits.frame_bytes, depth=limits.body_depth)
            if isinstance(found, bytes):
                await peer.tell(found)
            elif found is not None and first and found.method == HELLO:
                return frame
            elif found is not None and hubs_only:
                await peer.tell(jsonrpc.error(found.id, jsonrpc.UNKNOWN_METHOD, f"Here hubs say {HELLO} first."))
                raise _Gone
            elif found is not None:
                first = False
                await self._begin(found)

    async def _begin(self, request: jsonrpc.Request) -> None:
        method = METHODS.get(request.method)
        if method is None:
            text = f"There is no method '{request.method[:80]}'."
            await self._peer.tell(jsonrpc.error(request.id, jsonrpc.UNKNOWN_METHOD, text))
        elif not method.long:
            await self._short.acquire()
            self._peer.tasks.create_task(self._run_short(method, request))
        elif self._long >= self._peer.bus.limits.gateway_calls:
            await self._peer.tell(_error(request, self._too_many()))
        else:
            self._long += 1
            self._peer.tasks.create_task(self._run_long(method, request))

    def _too_many(self) -> Refusal:
        limit = self._peer.bus.limits.gateway_calls
        data = {
            "reason": Reason.TARGET_BUSY.value,
            "limit": limit,
            "deadline_seconds": times_of(self._peer.bus.limits).deliver_seconds,
        }
        return Refusal(shapes.TARGET_BUSY, f"target_busy: {limit} calls of this connection are at work", data)

    async def _run_short(self, method: Method, request: jsonrpc.Request) -> None:
        try:
            await self._run(method, request)
        finally:
            self._short.release()

    async def _run_long(self, method: Method, request: jsonrpc.Request) -> None:
        try:
            await self._run(method, request)
        finally:
            self._long -= 1

    async def _run(self, method: Method, request: jsonrpc.Request) -> None:
        """Call it, answer, and say whether the answer left."""
        told, frame = await self._outcome(method, request)
        left = False
        try:
            left = await self._peer.tell(frame) and (told is None or await self._peer.has_left())
        finally:
            if told is not None:
                told.done(left)

    async def _outcome(self, method: Method, request: jsonrpc.Request) -> tuple["Told | Failed | None", bytes]:
        """Who hears of the answer's end, and the answer."""
        try:
            told = await method.call(self._peer, request.params)
            return (told if told.done is not nothing else None), jsonrpc.result(request.id, told.result)
        except Failed as failed:
            return failed, _error(request, failed.refusal)
        except Refusal as refusal:
            return None, _error(request, refusal)
        except AngeliaError as error:
            return None, _error(request, shapes.refusal_of(error, method.fails_with))
        except Exception:
            log.exception("a call of the gateway failed: %s", request.method)
            code = method.fails_with or jsonrpc.HANDLER_CRASHED
            broken = Refusal(code, "Something broke inside the hub; its log says what.", {"reason": "unknown"})
            return None, _error(request, broken)


def _error(request: jsonrpc.Request, refusal: Refusal) -> bytes:
    return jsonrpc.error(request.id, refusal.code, refusal.message, refusal.data)
