"""Many hubs that are linked to one, as far as that one can tell: each a WebSocket, and all of them one thread of ours.

What must stay true: each does on its line what an idle hub does, no less: it says hello and proves itself, tells its
roster of one agent and hears the other one, answers every call, pings where it hears nothing. What is measured is the
hub that they dialled.
"""

import asyncio
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from angelia.links.hello import FOLDER, Greeting, nonce
from angelia.links.port import FRAME_BYTES, LineLost
from angelia.links.websocket import WebSocketWire, connect
from angelia.protocol.hub import VERSION
from bench.peers.angelia import Angelia
from bench.peers.peer import BadAnswer

OPEN_SECONDS = 60.0
CALM_SECONDS = 3.0  # until the news of the last one has reached all others


@contextmanager
def far_ends(hub: Angelia, count: int) -> Iterator[None]:
    """So many links that are up, while this lasts."""
    ready, over = threading.Event(), threading.Event()
    troubles: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(_all(hub, count, ready, over))
        except (OSError, BadAnswer, LineLost, TimeoutError, ExceptionGroup) as error:
            troubles.append(error)
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        if not ready.wait(OPEN_SECONDS) or troubles:
            raise BadAnswer(f"{count} links were not open after {OPEN_SECONDS} s: {troubles}")
        yield
        if troubles:
            raise BadAnswer(f"a link broke: {troubles}")
    finally:
        over.set()
        thread.join()


async def _all(hub: Angelia, count: int, ready: threading.Event, over: threading.Event) -> None:
    key = (hub.data_dir / "link.key").read_bytes().strip()
    ends = []
    for number in range(count):
        ends.append(FarEnd(await connect(f"ws://127.0.0.1:{hub.port}/api/hub", max_bytes=FRAME_BYTES)))
        await ends[-1].greet(f"end{number}", key)
    async with asyncio.TaskGroup() as tasks:
        works = [tasks.create_task(work) for end in ends for work in (end.serve(), end.tell())]
        await asyncio.sleep(CALM_SECONDS)
        ready.set()
        await asyncio.to_thread(over.wait)
        for work in works:
            work.cancel()
    for end in ends:
        await end.line.close()


class FarEnd:
    """One of them."""

    def __init__(self, line: WebSocketWire) -> None:
        self.line = line
        self._last = 0
        self._rows: list[dict[str, object]] = []

    async def greet(self, name: str, key: bytes) -> None:
        """Say hello, and prove to know the secret of the hub's own folder."""
        await self.line.receive()  # gateway.ready
        me, mine = secrets.token_hex(16), nonce()
        said = {"version": VERSION, "hub": me, "name": name, "nonce": mine, "by": FOLDER}
        answer = await self._ask("hub.hello", said)
        greeting = Greeting(me, name, answer["hub"], answer["name"], f"{mine}|{answer['nonce']}", FOLDER)
        await self._ask("hub.prove", {"proof": greeting.proof(key, "dialler")})
        self._rows = [{"handle": f"agent-of-{name}", "hub": me, "name": name, "way": [me]}]

    async def _ask(self, method: str, params: dict[str, object]) -> dict[str, str]:
        """A call while nothing else is said."""
        await self._call(method, params)
        answer = json.loads(await self.line.receive())
        if "result" not in answer:
            raise BadAnswer(str(answer))
        found: dict[str, str] = answer["result"]
        return found

    async def _call(self, method: str, params: dict[str, object]) -> None:
        self._last += 1
        await self._send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})

    async def _send(self, frame: dict[str, object]) -> None:
        await self.line.send(json.dumps(frame).encode())

    async def serve(self) -> None:
        """Answer whatever the hub calls; answers of its own are as they should be."""
        while True:
            call = json.loads(await self.line.receive())
            if "method" in call and "id" in call:
                await self._send({"jsonrpc": "2.0", "id": call["id"], "result": {"known": True, "ok": True}})

    async def tell(self) -> None:
        """Tell of one's agent."""
        await self._call("hub.roster", {"digest": secrets.token_hex(16), "rows": self._rows})
