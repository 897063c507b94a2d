"""A client of the gateway: what Hermes' Desktop would be, on a real WebSocket.

What must stay true: answers are told apart by their ids and events by their type, whatever order they come in; every
wait has an end.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed

SECONDS = 20.0


class Desktop:
    """One connection. ``events``: what came by itself, by type, as ``params``."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: dict[str, asyncio.Queue[dict[str, Any]]] = defaultdict(asyncio.Queue)
        self.first: dict[str, Any] = {}
        self._answers: dict[object, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self._out: asyncio.Queue[str | bytes] = asyncio.Queue()

    def send(self, method: str, **params: Any) -> "asyncio.Future[dict[str, Any]]":
        """Call; the future is the whole answer. Nothing is sent before the loop runs again."""
        self._last += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._last] = answer
        frame = json.dumps({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        self._out.put_nowait(frame)
        return answer

    async def call(self, method: str, *, seconds: float = SECONDS, **params: Any) -> dict[str, Any]:
        """Call and wait for the whole answer."""
        async with asyncio.timeout(seconds):
            return await self.send(method, **params)

    async def result(self, method: str, *, seconds: float = SECONDS, **params: Any) -> Any:
        """Call, and fail unless it went well."""
        answer = await self.call(method, seconds=seconds, **params)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, *, seconds: float = SECONDS, **params: Any) -> dict[str, Any]:
        """Call, and fail unless it did not."""
        answer = await self.call(method, seconds=seconds, **params)
        assert "error" in answer, answer
        return dict(answer["error"])

    async def event(self, kind: str, seconds: float = SECONDS) -> dict[str, Any]:
        """The next event of a kind: its payload."""
        async with asyncio.timeout(seconds):
            return dict((await self.events[kind].get())["payload"])

    async def raw(self, frame: str | bytes) -> dict[str, Any]:
        """A frame as it is; the answer with the id null that it gets."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[None] = answer
        self._out.put_nowait(frame)
        async with asyncio.timeout(SECONDS):
            return await answer

    async def drain(self, **params: Any) -> list[dict[str, Any]]:
        """What waits for this desktop."""
        return list((await self.result("bot_relay.outbox.drain", **params))["envelopes"])

    async def _read(self) -> None:
        try:
            async for frame in self.socket:
                found = json.loads(frame)
                self.first = self.first or found
                if found.get("method") == "event":
                    self.events[found["params"]["type"]].put_nowait(found["params"])
                elif (answer := self._answers.pop(found["id"], None)) is not None and not answer.done():
                    answer.set_result(found)
        except ConnectionClosed:
            return

    async def _write(self) -> None:
        try:
            while True:
                await self.socket.send(await self._out.get())
        except ConnectionClosed:
            return


@asynccontextmanager
async def desktop(
    port: int, *, query: str = "", headers: dict[str, str] | None = None, unix: str | None = None, ready: bool = True
) -> AsyncIterator[Desktop]:
    """A connection to the gateway, once it is ready; closed at the end."""
    given = headers or {}
    if unix is not None:
        opening = unix_connect(unix, f"ws://localhost/api/ws{query}", max_size=None, additional_headers=given)
    else:
        opening = connect(f"ws://127.0.0.1:{port}/api/ws{query}", max_size=None, proxy=None, additional_headers=given)
    async with opening as socket, asyncio.TaskGroup() as tasks:
        found = Desktop(socket)
        beside = [tasks.create_task(found._read()), tasks.create_task(found._write())]
        if ready:
            await found.event("gateway.ready")
        yield found
        for task in beside:
            task.cancel()
