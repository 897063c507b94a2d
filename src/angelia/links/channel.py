"""JSON-RPC 2.0 both ways over a wire: each side calls, answers and tells, as it likes.

What must stay true:

- Requests of the other side are begun in the order of their frames, at most ``AT_ONCE`` of them at work; beyond that
  nothing is read until one has ended. So a handler may not wait for a call of its own on the same channel.
- Each request has exactly one answer, whatever its handler raises; an answer and an event are never answered.
- A call ends: by its answer, by its time, or by ``LineLost``. An answer that nobody awaits any more is dropped.
- A frame is written whole, one after another, and none is larger than both sides take.

What is called and told does not belong here, nor how the bytes travel (``Wire``).
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from angelia.links.port import LineLost, Wire
from angelia.model.errors import AngeliaError, TooLarge
from angelia.protocol import foreign_json, jsonrpc
from angelia.protocol.gateway import Refusal, refusal_of

log = logging.getLogger("angelia.links")
AT_ONCE = 64  # as many as the gateway's short calls: each waits for no more than the disk

Handle = Callable[[jsonrpc.Request], Awaitable[object]]
Heard = Callable[[str, dict[str, object]], None]


class Refused(Exception):
    """The other side answered a call with an error. ``data``: what a program can act on."""

    def __init__(self, code: int, message: str, data: Mapping[str, object] | None = None) -> None:
        """Takes them as they stand on the wire."""
        super().__init__(message)
        self.code, self.message, self.data = code, message, dict(data or {})


@dataclass(frozen=True, slots=True)
class _Answer:
    id: object
    result: object
    error: object


@dataclass(frozen=True, slots=True)
class _Told:
    type: str
    payload: dict[str, object]


class Channel:
    """One line, from its first frame to its end. While ``run`` runs, any number of tasks may ``call`` and ``tell``."""

    def __init__(self, wire: Wire, *, max_bytes: int, depth: int, handle: Handle, heard: Heard) -> None:
        """Takes the bounds of a frame; ``handle``: answers a request of the other side, or raises ``Refusal`` or an
        ``AngeliaError``; ``heard``: takes an event (type, payload), and raises nothing."""
        self._wire, self._max_bytes, self._depth = wire, max_bytes, depth
        self._handle, self._heard = handle, heard
        self._ids = itertools.count(1)
        self._calls: dict[object, asyncio.Future[_Answer | None]] = {}
        self._writing = asyncio.Lock()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._lost: str | None = None

    async def run(self) -> None:
        """Read until the end of the line, and raise it: ``LineLost``. What is still at work then is cancelled."""
        how = "the link was ended here"
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._read(tasks)
        except* LineLost as lost:
            how = str(lost.exceptions[0])
        finally:
            self._lost = how
            for call in self._calls.values():
                if not call.done():
                    call.set_result(None)
        raise LineLost(how)

    async def call(self, method: str, params: Mapping[str, object], seconds: float) -> Any:
        """Call the other side; its result. Raises ``Refused``, ``LineLost``, or ``TimeoutError`` after ``seconds``.

        A frame that is too large is not sent: ``Refused``, as the other side would.
        """
        id = next(self._ids)
        frame = foreign_json.write({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        if len(frame) > self._max_bytes:
            raise _refused(self._too_large(len(frame)))
        call = self._calls[id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._send(frame)
                answer = await call
        finally:
            del self._calls[id]
        if answer is None:
            raise LineLost(self._lost or "")
        if answer.error is not None:
            raise _refused(answer.error)
        return answer.result

    async def tell(self, type: str, payload: object) -> None:
        """Tell the other side of something. Raises ``LineLost``, or ``Refused`` where it is too large for a frame."""
        frame = jsonrpc.event(type, payload)
        if len(frame) > self._max_bytes:
            raise _refused(self._too_large(len(frame)))
        await self._send(frame)

    async def _send(self, frame: bytes) -> None:
        async with self._writing:
            if self._lost is not None:
                raise LineLost(self._lost)
            await self._wire.send(frame)

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            found = self._parse(await self._wire.receive())
            if isinstance(found, _Answer):
                call = self._calls.get(found.id)
                if call is not None and not call.done():
                    call.set_result(found)
            elif isinstance(found, _Told):
                self._heard(found.type, found.payload)
            elif isinstance(found, jsonrpc.Request):
                await self._room.acquire()
                tasks.create_task(self._serve(found))
            elif found is not None:
                await self._send(found)

    def _parse(self, frame: bytes) -> _Answer | _Told | jsonrpc.Request | bytes | None:
        """What a frame is; where it is no good, the answer that says so."""
        if len(frame) > self._max_bytes:
            raise LineLost(f"a frame of {len(frame)} bytes came, and {self._max_bytes} is the most")
        found: Any
        try:
            found = foreign_json.read(frame, self._depth)
        except foreign_json.Malformed:
            found = None
        match found:
            case {"method": "event", "params": {"type": str(type)} as params} if found.get("id") is None:
                payload = params.get("payload")
                return _Told(type, payload if isinstance(payload, dict) else {})
            case {"method": str(method), "id": str() | int() | float() as id} if method and not isinstance(id, bool):
                params = found.get("params")
                if params is None or isinstance(params, dict):
                    return jsonrpc.Request(id, method, params or {})
            case {"id": id} if "method" not in found:  # also of what could not be read here: nobody awaits that
                is_number = isinstance(id, int) and not isinstance(id, bool)  # True would be found as 1
                return _Answer(id if is_number else None, found.get("result"), found.get("error"))
        return jsonrpc.read_frame(frame, max_bytes=self._max_bytes, depth=self._depth)  # knows all that can be wrong

    async def _serve(self, request: jsonrpc.Request) -> None:
        try:
            frame = await self._answered(request)
            if len(frame) > self._max_bytes:
                frame = _error(request, self._too_large(len(frame)))
            await self._send(frame)
        finally:
            self._room.release()

    async def _answered(self, request: jsonrpc.Request) -> bytes:
        try:
            return jsonrpc.result(request.id, await self._handle(request))
        except Refusal as refusal:
            return _error(request, refusal)
        except AngeliaError as error:
            return _error(request, refusal_of(error, None))
        except Exception:
            log.exception("a call over a link failed: %s", request.method[:80])
            return _error(
                request, Refusal(jsonrpc.HANDLER_CRASHED, "Something broke inside the hub; its log says what.")
            )

    def _too_large(self, size: int) -> Refusal:
        text = f"A frame has {self._max_bytes} bytes at most; this one would have {size}."
        return refusal_of(TooLarge(text, limit=self._max_bytes), None)


def _error(request: jsonrpc.Request, refusal: Refusal) -> bytes:
    return jsonrpc.error(request.id, refusal.code, refusal.message, refusal.data)


def _refused(error: Any) -> Refused:
    """An error as it came, whatever it is."""
    match error:
        case Refusal():
            return Refused(error.code, error.message, error.data)
        case {"code": int(code), "message": str(message)}:
            data = error.get("data")
            return Refused(code, message, data if isinstance(data, dict) else {})
    return Refused(jsonrpc.HANDLER_CRASHED, str(error)[:200])
