"""A stand-in of Hermes' Desktop: it owns a socket to each gateway, fetches mail at one and delivers it at another.

What must stay true: it does what the Desktop of a generation does and no more. One socket is pinned for each gateway; a
signal of mail is one drain 250 ms after the first; a claim is final, nothing is tried twice, and what it had in hand
dies with it. ``CAREFUL`` alone is a relay that uses what our gateway adds: it says the message's id, and asks again.

Which fault strikes when is the test's: it hears of every step of an envelope and may hold it there, cut a socket, or
let the Desktop die.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

PENDING = "bot_relay.outbox.pending"
READY_SECONDS = 15.0  # for the first frame of a gateway
HEADER = "Message from 🤖 "
STAMP_CHARS = 200  # how far into a text the Desktop looks for a stamp


@dataclass(frozen=True, slots=True)
class Generation:
    """What a release does.

    ``says``: the sender's fields that go along with a delivery; ``says_connection``: and the connection they are of;
    ``stamps``: writes that connection into the text's header. ``titles``: shows an agent under its title's slug.
    ``lanes``: claims at every gateway first, then delivers side by side, in order for each target; else one after
    another. ``clears``: tells the last gateway that is left that there is nobody else. ``careful``: see above.
    """

    name: str
    says: tuple[str, ...] = ()
    says_connection: bool = False
    stamps: bool = False
    titles: bool = False
    lanes: bool = False
    clears: bool = False
    careful: bool = False


G1 = Generation("G1")
G2 = Generation("G2", says=("from_profile", "from_handle"), stamps=True, titles=True)
G3 = Generation("G3", says=("from_profile", "from_handle"), says_connection=True, lanes=True, clears=True)
CAREFUL = replace(G3, name="careful", careful=True)


@dataclass(frozen=True, slots=True)
class Pace:
    """Its times in seconds; where nothing is said, Hermes' own. A socket that was lost is dialled soon."""

    roster: float = 60.0
    backstop: float = 30.0
    debounce: float = 0.25
    call: float = 30.0
    deliver: float = 1500.0
    redial: float = 0.1


class Step(Enum):
    """How far an envelope is."""

    DRAINED = "it was fetched"
    ASKED = "the delivery was sent"
    ANSWERED = "its outcome is here"
    REPLYING = "the outcome was sent back"
    DONE = "and taken"


class Lost(Exception):
    """The socket ended before the answer."""


class Refused(Exception):
    """The gateway answered with an error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.message, self.reason = str(error["message"]), (error.get("data") or {}).get("reason")


class Line:
    """One socket to a gateway."""

    def __init__(self, socket: ClientConnection, heard: Callable[[str], None]) -> None:
        self._socket, self._heard = socket, heard
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0

    async def read(self) -> None:
        """Take what comes until the end; then nobody waits any more."""
        try:
            async for frame in self._socket:
                found = json.loads(frame)
                if found.get("method") == "event":
                    self._heard(found["params"]["type"])
                elif (waiting := self._waiting.pop(found["id"], None)) is not None and not waiting.done():
                    waiting.set_result(found)
        except ConnectionClosed:
            pass
        finally:
            for waiting in self._waiting.values():
                waiting.cancel()

    async def send(self, method: str, params: Mapping[str, Any]) -> "asyncio.Future[dict[str, Any]]":
        """Write a call; the future is its answer, and is cancelled when the socket ends. Raises ``Lost``."""
        self._last += 1
        frame = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        waiting = self._waiting[self._last] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send(json.dumps(frame))
        except ConnectionClosed:
            raise Lost from None
        return waiting

    @staticmethod
    async def answer(waiting: "asyncio.Future[dict[str, Any]]", seconds: float) -> Any:
        """What was answered. Raises ``Lost``, ``Refused`` or ``TimeoutError``."""
        done, _ = await asyncio.wait([waiting], timeout=seconds)
        if not done:
            raise TimeoutError
        if waiting.cancelled():
            raise Lost
        if "error" in (found := waiting.result()):
            raise Refused(found["error"])
        return found["result"]

    async def call(self, method: str, params: Mapping[str, Any], seconds: float) -> Any:
        """Call and wait. Raises as ``send`` and ``answer``."""
        return await self.answer(await self.send(method, params), seconds)

    def cut(self) -> None:
        """As a network does it: nothing more in either direction."""
        self._socket.transport.abort()


Envelope = dict[str, Any]
Watcher = Callable[[Step, str, Envelope], Awaitable[None]]


class Desktop:
    """The relay between ``gateways``: addresses (``ws://…``) by the Desktop's own ids for them, ``local`` for one.

    ``name``: what it says it is called (``desktop``); None, as Hermes' own, says nothing. ``watch`` is awaited at every
    step of an envelope, with the id of the gateway that it came from. ``handed`` and ``told``: what it delivered where,
    and the outcomes it sent back, by the message's id, in order.
    """

    def __init__(
        self,
        gateways: Mapping[str, str],
        generation: Generation = G3,
        *,
        name: str | None = None,
        pace: Pace | None = None,
        watch: Watcher | None = None,
    ) -> None:
        self.gateways, self.generation, self.pace = dict(gateways), generation, pace or Pace()
        self.name, self.watch = name, watch
        self.lines: dict[str, Line] = {}
        self.dials: Counter[str] = Counter()
        self.handed: list[tuple[str, Envelope]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._lanes: dict[str, asyncio.Queue[tuple[str, Envelope]]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._debounce: asyncio.TimerHandle | None = None
        self._draining = self._again = self._cleared = self._over = False
        self._changed, self._pushed = asyncio.Event(), asyncio.Event()
        self.ended = asyncio.Event()  # it died, or was closed
        self._shown: frozenset[str] = frozenset()

    # ---- its life

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Dial, and relay from now on."""
        self._tasks = tasks
        for connection in self.gateways:
            self._begin(self._keep(connection))
        self._begin(self._push_again_and_again())
        self._begin(self._look_again_and_again())

    def die(self) -> None:
        """As a process that is killed: every socket ends, and with it whatever was in hand."""
        for line in self.lines.values():
            line.cut()
        self._end()

    async def stop(self) -> None:
        """As the app is closed: no call more, and the sockets are given up."""
        self._end()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def settled(self, seconds: float = 20.0) -> None:
        """Wait until every gateway was told of all the others."""
        async with asyncio.timeout(seconds):
            while self._shown != frozenset(self.gateways):
                self._pushed.clear()
                await self._pushed.wait()

    def remove(self, connection: str) -> None:
        """A person takes a gateway out."""
        del self.gateways[connection]
        self._rows.pop(connection, None)
        if (line := self.lines.pop(connection, None)) is not None:
            line.cut()
        self._changed.set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _end(self) -> None:
        self._over = True
        self.ended.set()
        if self._debounce is not None:
            self._debounce.cancel()
        for task in self._running:
            task.cancel()

    async def _keep(self, connection: str) -> None:
        """One socket, dialled again when it was lost."""
        while connection in self.gateways:
            self.dials[connection] += 1
            with suppress(OSError, WebSocketException, TimeoutError):
                async with connect(self.gateways[connection], max_size=None, proxy=None) as socket:
                    async with asyncio.timeout(READY_SECONDS):
                        first = json.loads(await socket.recv())
                    assert first["params"]["type"] == "gateway.ready", first
                    line = self.lines[connection] = Line(socket, self._heard)
                    self._changed.set()
                    try:
                        await line.read()
                    finally:
                        if self.lines.get(connection) is line:
                            del self.lines[connection]
            await asyncio.sleep(self.pace.redial)

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(self.pace.backstop)
            self._fetch()

    # ---- rosters

    async def _push_again_and_again(self) -> None:
        while True:
            self._changed.clear()
            await self.push_rosters()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.pace.roster):
                    await self._changed.wait()

    async def push_rosters(self) -> None:
        """Look at every gateway, and tell each of the agents of all the others. Who cannot be asked keeps its rows."""
        up = dict(self.lines)
        if len(self.gateways) < 2:
            if self.generation.clears and not self._cleared:
                self._cleared = all([await self._sync(line, []) for line in up.values()]) and bool(up)
        else:
            self._cleared = False
            await asyncio.gather(*(self._look(connection, line) for connection, line in up.items()))
            unions = {one: [row for other, rows in self._rows.items() if other != one for row in rows] for one in up}
            await asyncio.gather(*(self._sync(line, unions[connection]) for connection, line in up.items()))
        self._shown = frozenset(up) & frozenset(self._rows)
        self._pushed.set()

    async def _look(self, connection: str, line: Line) -> None:
        with suppress(Lost, Refused, TimeoutError):
            listed = await line.call("profiles.list", {"include_sessions": False}, self.pace.call)
            if connection in self.gateways:
                self._rows[connection] = [self._row(connection, profile) for profile in listed["profiles"]]

    def _row(self, connection: str, profile: Mapping[str, Any]) -> dict[str, Any]:
        name, title = profile["name"], profile["ui_meta"].get("hermes-bots", {}).get("title") or profile["display_name"]
        explicit = profile.get("handle")
        handle = explicit if explicit and explicit != name else "hermes" if name == "default" else name
        if self.generation.titles and (slug := re.sub(r"[^a-z0-9_-]+", "-", title.lower()).strip("-")):
            handle = slug
        return {
            "profile": name,
            "handle": handle,
            "connection_id": connection,
            "connection_label": connection,
            "title": title,
            "description": profile["description"],
        }

    async def _sync(self, line: Line, rows: list[dict[str, Any]]) -> bool:
        with suppress(Lost, Refused, TimeoutError):
            await line.call("bot_relay.roster.sync", {"agents": rows, **self._who()}, self.pace.call)
            return True
        return False

    def _who(self) -> dict[str, str]:
        return {} if self.name is None else {"desktop": self.name}

    # ---- mail

    def _heard(self, kind: str) -> None:
        if kind == PENDING and self._debounce is None and not self._over:
            self._debounce = asyncio.get_running_loop().call_later(self.pace.debounce, self._signalled)

    def _signalled(self) -> None:
        self._debounce = None
        self._fetch()

    def _fetch(self) -> None:
        self._again = True
        if not self._draining:
            self._draining = True
            self._begin(self._drain())

    async def _drain(self) -> None:
        try:
            while self._again:
                self._again = False
                if len(self.gateways) > 1:
                    await (self._drain_into_lanes() if self.generation.lanes else self._drain_one_by_one())
        finally:
            self._draining = False

    async def _drain_one_by_one(self) -> None:
        for connection, line in list(self.lines.items()):
            for envelope in await self._claimed(line):
                await self._relay(connection, envelope)

    async def _drain_into_lanes(self) -> None:
        up = dict(self.lines)
        found = await asyncio.gather(*(self._claimed(line) for line in up.values()))
        for connection, envelopes in zip(up, found, strict=True):
            for envelope in envelopes:
                key = f"{envelope['target_connection']}::{envelope['target_profile']}"
                if key not in self._lanes:
                    self._lanes[key] = asyncio.Queue()
                    self._begin(self._work(key))
                self._lanes[key].put_nowait((connection, envelope))

    async def _work(self, key: str) -> None:
        lane = self._lanes[key]
        while not lane.empty():
            await self._relay(*lane.get_nowait())
        del self._lanes[key]

    async def _claimed(self, line: Line) -> list[Envelope]:
        with suppress(Lost, Refused, TimeoutError):
            found = await line.call("bot_relay.outbox.drain", self._who(), self.pace.call)
            return [envelope for envelope in found["envelopes"] if envelope.get("id")]
        return []

    async def _relay(self, source: str, envelope: Envelope) -> None:
        await self._step(Step.DRAINED, source, envelope)
        outcome = await self._deliver(source, envelope)
        await self._step(Step.ANSWERED, source, envelope)
        while True:
            try:
                line = self.lines[source]
                waiting = await line.send("bot_relay.reply", {"id": envelope["id"], **outcome})
                self.told.append((envelope["id"], outcome))
                await self._step(Step.REPLYING, source, envelope)
                await line.answer(waiting, self.pace.call)
            except (KeyError, Lost, Refused, TimeoutError):
                if self.generation.careful and source in self.gateways:
                    await asyncio.sleep(self.pace.redial)
                    continue
            break
        await self._step(Step.DONE, source, envelope)

    async def _deliver(self, source: str, envelope: Envelope) -> dict[str, Any]:
        """Hand it over and wait for the answer: the outcome as ``reply`` takes it."""
        target = envelope["target_connection"]
        while True:
            try:
                line = self.lines[target]
                self.handed.append((target, envelope))
                waiting = await line.send("bot_relay.deliver", self._delivery(source, envelope))
                await self._step(Step.ASKED, source, envelope)
                return {"reply": (await line.answer(waiting, self.pace.deliver))["reply"]}
            except KeyError:
                if not self.generation.careful or target not in self.gateways:
                    return {"error": f"connection '{target}' is not connected to this Desktop right now"}
            except Lost:
                if not self.generation.careful:
                    return {"error": "gateway connection closed"}
            except Refused as refused:
                return {"error": refused.message, **({"reason": refused.reason} if refused.reason else {})}
            except TimeoutError:
                return {"error": f"request timed out after {self.pace.deliver:g}s"}
            await asyncio.sleep(self.pace.redial)

    def _delivery(self, source: str, envelope: Envelope) -> dict[str, Any]:
        generation, handle, text = self.generation, envelope["from_handle"], str(envelope["message"])
        if generation.stamps and text.startswith(HEADER) and 0 <= text.find(f"(@{handle}):") <= STAMP_CHARS:
            text = text.replace(f"(@{handle}):", f"(@{handle}@{source}):", 1)
        params = {"profile": envelope["target_profile"], "message": text}
        params |= {name: envelope[name] for name in generation.says}
        if generation.says_connection:
            params["from_connection"] = source
        if generation.careful:
            params |= {"id": envelope["id"], **self._who()}
        return params

    async def _step(self, step: Step, source: str, envelope: Envelope) -> None:
        if self.watch is not None:
            await self.watch(step, source, envelope)


@asynccontextmanager
async def relaying(gateways: Mapping[str, str], generation: Generation = G3, **how: Any) -> AsyncIterator[Desktop]:
    """A Desktop at work, once every gateway knows the agents of all the others; closed at the end."""
    found = Desktop(gateways, generation, **how)
    async with asyncio.TaskGroup() as tasks:
        found.start(tasks)
        try:
            await found.settled()
            yield found
        finally:
            await found.stop()
