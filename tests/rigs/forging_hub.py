"""A hub that is none: it dials a real one, proves itself or not, and says whatever a test wants.

What must stay true: it speaks the wire by itself, and uses of ours only the making of a proof and of a fingerprint;
what the other side asks meanwhile is answered with ``ok``, so that the line stays up.
"""

import asyncio
import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from angelia.links.hello import Greeting
from angelia.model.envelope import fingerprint

SECONDS = 20.0


class ForgingHub:
    """One line. ``me``: the id that it says it has; ``hub``: the other side's, once it has said hello; ``got``: mail
    that was handed to it."""

    def __init__(self, socket: ClientConnection, name: str) -> None:
        self.me, self.name, self.hub = uuid.uuid4().hex, name, ""
        self._socket = socket
        self.got: list[dict[str, Any]] = []
        self._serial = 0
        self._answers: dict[object, asyncio.Future[dict[str, Any]]] = {}

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer; empty where the other side ends the line instead."""
        self._serial += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._serial] = answer
        frame = {"jsonrpc": "2.0", "id": self._serial, "method": method, "params": params}
        try:
            await self._socket.send(json.dumps(frame))
            async with asyncio.timeout(SECONDS):
                return await answer
        except ConnectionClosed:
            return {}

    async def hello(self, by: str, key: bytes | None = None, **changes: Any) -> dict[str, Any]:
        """Say hello, and prove it with ``key``: the answer to what was said last."""
        mine = secrets.token_hex(32)
        said = {"version": 1, "hub": self.me, "name": self.name, "nonce": mine, "by": by, **changes}
        answer = await self.call("hub.hello", **said)
        if "result" not in answer:
            return answer
        told = answer["result"]
        self.hub = str(told["hub"])
        greeting = Greeting(self.me, self.name, self.hub, str(told["name"]), f"{mine}|{told['nonce']}", by)
        return await self.call("hub.prove", proof=greeting.proof(key, "dialler") if key is not None else "")

    async def come_by_code(self, code: str) -> dict[str, Any]:
        """Say hello with a code that is on the other hub's screen."""
        mine = secrets.token_hex(32)
        answer = await self.call("hub.hello", version=1, hub=self.me, name=self.name, nonce=mine, by="code")
        if "result" not in answer:
            return answer
        told = answer["result"]
        self.hub = str(told["hub"])
        greeting = Greeting(self.me, self.name, self.hub, str(told["name"]), f"{mine}|{told['nonce']}", "code")
        return await self.call("hub.prove", proof=greeting.proof(greeting.key_of(code), "dialler"))

    def row(self, handle: str) -> dict[str, Any]:
        """An agent of its own, as rosters tell of it."""
        return {"handle": handle, "hub": self.me, "name": self.name, "way": [self.me], "online": True}

    def item(self, to: str, text: str, sender: str = "eve", **changes: Any) -> dict[str, Any]:
        """A message as a hub hands it over; ``changes`` are made before it gets its fingerprint."""
        made: dict[str, Any] = {
            "id": uuid.uuid4().hex, "from": {"handle": sender, "hub": self.me}, "called": self.name,
            "to": {"handle": to, "hub": self.hub}, "intent": "inform", "kind": "message", "expires_in": 60_000,
            "created_at": int(time.time() * 1000), "via": [self.me], "text": text, "verified": True, **changes,
        }  # fmt: skip
        made = {"thread": made["id"], "chain": made["id"], **made}
        origin = [self.me, sender, to, made["intent"], made["kind"], None]
        mark = fingerprint(sender, to, made["intent"], made["kind"], made["text"], None, None, made.get("in_reply_to"))
        return {"origin": origin, "fingerprint": mark.hex(), **made}

    async def hand_over(self, *items: dict[str, Any]) -> list[dict[str, Any]]:
        """What became of each."""
        answer = await self.call("hub.send", messages=list(items))
        assert "result" in answer, answer
        found = answer["result"]
        return list(found if isinstance(found, list) else found["messages"])

    async def _read(self) -> None:
        try:
            async for frame in self._socket:
                found = json.loads(frame)
                if found.get("method") == "hub.send":
                    self.got += found["params"]["messages"]
                    stored = [{"stored": True} for _ in found["params"]["messages"]]
                    await self._socket.send(json.dumps({"jsonrpc": "2.0", "id": found["id"], "result": stored}))
                elif "method" in found and "id" in found:
                    await self._socket.send(json.dumps({"jsonrpc": "2.0", "id": found["id"], "result": {"ok": True}}))
                elif (answer := self._answers.pop(found.get("id"), None)) is not None and not answer.done():
                    answer.set_result(found)
        except ConnectionClosed:
            pass
        for left in self._answers.values():
            if not left.done():
                left.set_result({})


@asynccontextmanager
async def forging_hub(port: int, name: str = "forge", path: str = "/api/hub") -> AsyncIterator[ForgingHub]:
    """One that has dialled the hub at this port, and has said nothing yet."""
    async with (
        connect(f"ws://127.0.0.1:{port}{path}", proxy=None, max_size=None) as socket,
        asyncio.TaskGroup() as tasks,
    ):
        found = ForgingHub(socket, name)
        reading = tasks.create_task(found._read())
        yield found
        reading.cancel()
