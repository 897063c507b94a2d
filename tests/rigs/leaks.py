"""What a hub has more of after it was used hard: tasks, threads, files, leases, places, memory. It should be nothing.

    python -m tests.rigs.leaks --minutes 60
    python -m tests.rigs.leaks --rounds 2 --vanish 10000

Each kind of use runs once, to have what is kept for good; then it is looked into the hub (`inside.py`), the same runs
again and again, and it is looked again, once all has ended. What has no business to be there is a breach. Of whatever
there is only so much (leases, places of turns, of streams, of calls …: ``SLOTS``) no more may be taken than when it was
new; nor may it by a stream, a socket or a link that is still there and has nothing to do. With ``--minutes`` all
kinds run in turn for so long, and the memory at the end is compared with that after the first tenth.
"""

import argparse
import asyncio
import json
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.acceptance.hub import Hub, eventually
from tests.acceptance.linked import connect, wait_knows
from tests.rigs.gateway import desktop
from tests.rigs.outcome import Result
from tests.rigs.talk import Broken, Talk
from tests.rigs.watched import Look, WatchedHub

MIB = 1024 * 1024
SETTLE_SECONDS = 15.0
SPARE_FILES = 4  # the keep-alive connections of whoever looks
SPARE_OBJECTS = 2  # what a thread did last, and holds until it does the next thing
MEMORY_RATIO = 1.10
MEMORY_SPARE, SHORT_SECONDS = 8 * MIB, 1800.0  # what a Python process wavers by in a run that is shorter than that
LOG_BYTES = 128 * MIB
LONG_TEXT = "x" * 900_000  # so that a few seconds bring more than the log may hold
ENOUGH_BYTES = 180_000_000
AT_ONCE = 40
ENVIRONMENT = {"ANGELIA_HERMES_HOME": "off"}
# Threads that a pool begins when they are first needed, and keeps.
POOLED = ("asyncio_", "uvloop_", "guess", "ThreadPoolExecutor")
# Kinds of which there is one for each name that is known, and whose notices lie where; what the ring of events shows;
# these two have bounds of their own. And what a thread of the store did last, until it does the next thing.
KEPT = (
    "bus.directory.Directory.", "bus.presence.",
    "model.agent.", "model.address.", "model.delivery.Delivery", "bus.events.", "bus.glance.", "bus.neighbours.Former",
    "bus.ports.Load", "cli.", "storage.",
)  # fmt: skip
KEPT_OF = {"turns": ("bus.runs.Run", "model.envelope.Envelope", "bus.ports.Parcel")}  # the last runs are shown
SENDER = "boss"
LEASES, STREAMS = "bus.leases.LeaseBook: _by_key", "bus.streams.Streams: count"


@dataclass
class UsedHub(WatchedHub):
    """One that is used. ``new``: what was taken when it was new; ``breaches``: what was found while it was in use."""

    new: dict[str, int] = field(default_factory=dict)
    breaches: list[str] = field(default_factory=list)

    def __enter__(self) -> "UsedHub":
        super().__enter__()
        for number in range(AT_ONCE):
            self.claim(f"leak{number}")
            self.claim(f"idle{number}")
        self.new = self.look().slots
        return self

    def used(self) -> Look:
        """What it has once it has put things away; and taken should be what was when it was new."""
        before, _ = settled(self, replace(self.look(), slots=self.new))
        return replace(before, slots=self.new)

    def rests(self, who: str, streams: int = 0) -> None:
        """Somebody is still there and has nothing to do: then nothing is taken but their places."""
        slots = {**self.new, STREAMS: self.new[STREAMS] + streams}
        self.breaches += [f"{who}: {each}" for each in settled(self, replace(self.look(), slots=slots))[1]]


Use = Callable[[UsedHub], Coroutine[Any, Any, None]]


# ---------------------------------------------------------------------------------------------------- kinds of use


async def streams(hub: UsedHub) -> None:
    """They open, get mail, and end in every way."""

    async def one(number: int) -> None:
        talk, name = Talk(hub.port), f"leak{number}"
        manual = "?ack=manual" if number % 2 else ""
        with suppress(Broken):
            async for event in talk.stream(f"/v1/agents/{name}/stream{manual}"):
                if event.data == "connected":
                    asyncio.get_running_loop().call_soon(lambda: None)
                    await _send(hub, name, 3)
                elif event.kind == "message":
                    break
        talk.close()

    await asyncio.gather(*(one(number) for number in range(AT_ONCE)))
    await _empty(hub)
    await _stay(hub)


async def _stay(hub: UsedHub) -> None:
    """Two stay open: what one gets is acked by being written, the other's by its holder."""
    acks = Talk(hub.port)
    async with AsyncExitStack() as stack:
        for name, query in (("leak0", ""), ("leak1", "?ack=manual")):
            opened, left, text = (
                Talk(hub.port).stream(f"/v1/agents/{name}/stream{query}"),
                3,
                f"stays {time.monotonic_ns()}",
            )
            async for event in await stack.enter_async_context(aclosing(opened)):
                if event.data == "connected":
                    await _send(hub, name, left, text)
                elif event.kind == "message":  # a notice of who is there, or what came back late, may be among them
                    left -= event.json["message"]["text"] == text
                    if query:
                        await acks.call("POST", f"/v1/leases/{event.json['lease']['token']}/ack", {})
                if not left:
                    break
        await asyncio.to_thread(hub.rests, "two streams", 2)
    acks.close()


async def claims(hub: UsedHub) -> None:
    """Some are acked, some given back, some left to run out, some lose their caller."""

    async def one(number: int) -> None:
        talk, name = Talk(hub.port), f"leak{number}"
        await _send(hub, name, 4)
        said = await talk.call("POST", f"/v1/agents/{name}/claim", {"limit": 10, "lease_seconds": 1})
        for each, verb in zip(said.json["deliveries"], SETTLING, strict=False):
            await talk.call("POST", f"/v1/leases/{each['lease']['token']}/{verb}", SETTLING[verb])
        with suppress(Broken):  # one that waits, and goes away
            await talk.call("POST", f"/v1/agents/idle{number}/claim", {"wait_seconds": 20}, seconds=0.2)
        talk.close()

    await asyncio.gather(*(one(number) for number in range(AT_ONCE)))
    await _empty(hub)


async def asks(hub: UsedHub) -> None:
    """Some are answered; of some the asker goes away."""

    async def one(number: int) -> None:
        asker, answerer, name = Talk(hub.port), Talk(hub.port), f"leak{number}"
        body = {"to": name, "text": "?", "from": f"asks{number}", "wait_seconds": 20, "ttl_seconds": 2}

        async def answer() -> None:
            said = await answerer.call("POST", f"/v1/agents/{name}/claim", {"wait_seconds": 10})
            for each in said.json["deliveries"]:
                body = {"text": "!", "from": name}
                await answerer.call("POST", f"/v1/messages/{each['message']['id']}/reply", body)

        if number % 2:
            await asyncio.gather(asker.call("POST", "/v1/ask", body), answer())
        else:
            with suppress(Broken):
                await asker.call("POST", "/v1/ask", body, seconds=0.3)
            # That nobody answered is told when its time is up.
            await answerer.call("GET", f"/poll?agent={body['from']}&wait=10")
        asker.close()
        answerer.close()

    await asyncio.gather(*(one(number) for number in range(AT_ONCE)))
    await _empty(hub)


async def gateway(hub: UsedHub) -> None:
    """Sockets of the gateway with calls at work when they end."""
    async with AsyncExitStack() as stack:
        for number in range(AT_ONCE // 2):
            one = await stack.enter_async_context(desktop(hub.port))
            if number % 2:
                one.send("bot_relay.deliver", profile=f"leak{number}", message="x")
            await one.result("gateway.ping")
            if number % 2:
                one.socket.transport.abort()
        stays, talk, agent = await stack.enter_async_context(desktop(hub.port)), Talk(hub.port), "idle0"
        answer = stays.send("bot_relay.deliver", profile=agent, message="x")
        said = await talk.call("POST", f"/v1/agents/{agent}/claim", {"wait_seconds": 10})
        for each in said.json["deliveries"]:
            await talk.call("POST", f"/v1/messages/{each['message']['id']}/reply", {"text": "!", "from": agent})
        assert (await answer)["result"] == {"reply": "!"}
        await stays.error("bot_relay.deliver", profile="nobody", message="x")
        await stays.drain()
        talk.close()
        await _empty(hub)
        await asyncio.to_thread(hub.rests, "a socket of the gateway")


async def vanish(hub: UsedHub, count: int = 300) -> None:
    """Clients connect and are gone: before they say anything, in a head, in a body, in a stream, by a reset."""
    beginnings = [
        b"", b"GET /hea", b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 99\r\n\r\n{", b"GET /v1/agents/leak1/stream?mode=observe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ]  # fmt: skip
    room = asyncio.Semaphore(100)

    async def one(number: int) -> None:
        async with room:
            _, writer = await asyncio.open_connection("127.0.0.1", hub.port)
            writer.write(beginnings[number % len(beginnings)])
            with suppress(OSError):
                await writer.drain()
            if number % 2:
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    await asyncio.gather(*(one(number) for number in range(count)))


async def turns(hub: UsedHub) -> None:
    """A program is run for each message; one fails, one is slow."""
    for number in range(4):
        adapter = {"kind": "command", "argv": [sys.executable, "-c", TURN]}
        said = await asyncio.to_thread(hub.call, "PUT", f"/v1/agents/turn{number}", {"adapter": adapter}, admin=True)
        assert said.status in (200, 201), said

    async def one(number: int) -> None:
        talk = Talk(hub.port)
        body = {"to": f"turn{number % 4}", "text": "fail" if number % 3 == 0 else "do", "from": "boss"}
        await talk.call("POST", "/v1/ask", {**body, "wait_seconds": 25}, seconds=40)
        talk.close()

    await asyncio.gather(*(one(number) for number in range(8)))
    await _empty(hub)


SETTLING: dict[str, dict[str, float]] = {"ack": {}, "nack": {"delay_seconds": 0.5}, "renew": {"lease_seconds": 1}}
TURN = "import sys; text = sys.stdin.read(); sys.exit(3) if 'fail' in text else print('done')"


class Links:
    """A link to another hub comes up, carries a message, and goes."""

    def __init__(self) -> None:
        self.other: Hub | None = None

    async def __call__(self, hub: UsedHub) -> None:
        assert self.other is not None
        await asyncio.to_thread(self._once, hub, self.other)

    def _once(self, hub: UsedHub, other: Hub) -> None:
        assert other.post("/v1/agents/faraway/claim", {"limit": 1}).status == 200
        connect(hub, "other", f"ws://127.0.0.1:{other.port}")
        wait_knows(hub, "faraway")
        sent = hub.post("/v1/messages", {"to": "faraway", "text": "hello", "from": "leak1"})
        assert sent.status == 201, sent
        eventually(lambda: other.get("/poll?agent=faraway").json["messages"], 20, f"it crosses: {sent.json}")
        hub.rests("a link")
        hub.call("DELETE", "/v1/connections/other", admin=True)
        eventually(lambda: not hub.get("/v1/connections", admin=True).json["connections"])


async def _send(hub: WatchedHub, to: str, count: int, text: str = "x" * 500) -> None:
    talk = Talk(hub.port)
    for _ in range(count):
        said = await talk.call("POST", "/v1/messages", {"to": to, "text": text, "from": SENDER, "ttl_seconds": 60})
        assert said.status in (201, 404), said
    talk.close()


async def _empty(hub: UsedHub) -> None:
    """Take all that is left, by polls, until nothing waits and nobody holds anything."""
    talk = Talk(hub.port)
    ends = time.monotonic() + SETTLE_SECONDS
    while True:
        queues: dict[str, int] = (await talk.call("GET", "/status")).json["queues"]
        left = [name for name, count in queues.items() if count and not name.startswith(("turn", "beside"))]
        late = time.monotonic() > ends
        if not left and (late or not (await asyncio.to_thread(hub.look)).slots[LEASES]):
            break
        assert not late, f"not empty: {left}"
        for name in left:
            await talk.call("GET", f"/poll?agent={name}&limit=100")
        await asyncio.sleep(0.1)
    talk.close()


# ------------------------------------------------------------------------------------------------------------ the looks


def more(before: Look, after: Look, kept: tuple[str, ...] = ()) -> list[str]:
    """What is there now and has no business to be. ``kept``: kinds that are, beside ``KEPT``."""
    found = [f"{now - before.tasks.get(what, 0)} tasks more: {what}" for what, now in after.tasks.items()
             if now > before.tasks.get(what, 0)]  # fmt: skip
    own = [sum(not name.startswith(POOLED) for name in look.threads) for look in (before, after)]
    if own[1] > own[0]:
        found.append(f"{own[1] - own[0]} threads more: {after.threads}")
    found += [f"{now - before.slots.get(what, 0)} more taken: {what}" for what, now in after.slots.items()
              if now > before.slots.get(what, 0) or now < 0]  # fmt: skip
    if after.descriptors > before.descriptors + SPARE_FILES:
        found.append(f"{after.descriptors - before.descriptors} files more")
    for kind, count in after.kinds.items():
        if count > before.kinds.get(kind, 0) + SPARE_OBJECTS and not kind.startswith((*KEPT, *kept)):
            found.append(f"{count - before.kinds.get(kind, 0)} objects more: {kind}")
    return found


def settled(hub: WatchedHub, before: Look, kept: tuple[str, ...] = ()) -> tuple[Look, list[str]]:
    """The hub once it has had time to put things away."""
    ends = time.monotonic() + SETTLE_SECONDS
    while True:
        after = hub.look()
        found = more(before, after, kept)
        if not found or time.monotonic() > ends:
            return after, found
        time.sleep(0.25)


def _kinds(links: Links) -> dict[str, Use]:
    return {
        "streams": streams, "claims": claims, "asks": asks, "gateway": gateway, "vanish": vanish, "turns": turns,
        "links": links,
    }  # fmt: skip


def run(rounds: int, *, only: Sequence[str] = (), many: int = 0, source: Path | None = None) -> Result:
    """Each kind so many times over. ``many``: so many clients that vanish, beside."""
    result, links = Result(), Links()
    with ExitStack() as stack:
        hub = stack.enter_context(UsedHub(source=source, env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "leaky"}))
        links.other = stack.enter_context(Hub(source=source, env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "other"}))
        uses = {name: use for name, use in _kinds(links).items() if not only or name in only}
        for name, use in uses.items():
            asyncio.run(use(hub))
            before = hub.used()
            for _ in range(rounds):
                asyncio.run(use(hub))
            _compare(result, name, hub, before)
        if many:
            before = hub.used()
            asyncio.run(vanish(hub, many))
            _compare(result, f"{many} that vanish", hub, before)
        result.breaches += hub.breaches
        said = hub.output()
        if "Traceback" in said or "never retrieved" in said:
            result.breaches.append("the hub's output holds a traceback:\n" + said[said.index("Traceback") :][:3000])
    return result


def _compare(result: Result, name: str, hub: WatchedHub, before: Look, spare: int = MEMORY_SPARE) -> None:
    after, found = settled(hub, before, KEPT_OF.get(name, ()))
    result.breaches += [f"{name}: {each}" for each in found]
    if after.memory > before.memory * MEMORY_RATIO + spare:
        result.breaches.append(f"{name}: {(after.memory - before.memory) / MIB:.1f} MiB more")
    result.figures[name] = f"{(after.memory - before.memory) / MIB:+.1f} MiB"


def long_run(seconds: float, seed: int, *, source: Path | None = None) -> Result:
    """All kinds in turn, as the dice fall."""
    result, links, dice = Result(), Links(), random.Random(seed)
    with ExitStack() as stack:
        hub = stack.enter_context(UsedHub(source=source, env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "leaky"}))
        links.other = stack.enter_context(Hub(source=source, env={**ENVIRONMENT, "ANGELIA_HUB_NAME": "other"}))
        uses, begun, count = _kinds(links), time.monotonic(), 0
        for use in uses.values():
            asyncio.run(use(hub))
        before: Look | None = None
        while (passed := time.monotonic() - begun) < seconds:
            if before is None and passed > seconds / 10:
                before = hub.used()
            asyncio.run(dice.choice(list(uses.values()))(hub))
            count += 1
        assert before is not None
        _compare(result, "turns", hub, before, MEMORY_SPARE if seconds < SHORT_SECONDS else 0)
        result.breaches += hub.breaches
        result.figures["uses"] = count
        result.figures["MiB"] = [round(look / MIB, 1) for look in (before.memory, hub.memory)]
    return result


# -------------------------------------------------------------------------------------------------- the store's log


def held_picture(seconds: float, *, source: Path | None = None) -> Result:
    """A reader of the hub's own that sits on what it sees, under load: how long the write-ahead log gets at most. On a
    slow machine it lasts until enough was written, or three times as long. No copy is made meanwhile: a copy is one
    picture of the whole store, which nobody takes back, and the log holds what is written until it is made."""
    hub = WatchedHub(source=source)
    hub.hold_reads(0)
    with hub:
        return asyncio.run(_held_picture(hub, seconds))


async def _held_picture(hub: WatchedHub, seconds: float) -> Result:
    log, longest = hub.folder / "angelia.db-wal", 0
    names, sent = [f"busy{number}" for number in range(8)], Counter[int]()
    for name in (*names, "quiet"):
        hub.claim(name)
    for number in range(100):
        hub.send("quiet", f"{number}", "boss")
    begun = time.monotonic()
    hub.hold_reads(3 * seconds)

    def over() -> bool:
        enough = sent[201] * len(LONG_TEXT) >= ENOUGH_BYTES
        return time.monotonic() > begun + (seconds if enough else 3 * seconds)

    async def load(name: str) -> None:
        talk = Talk(hub.port)
        while not over():
            said = await talk.call("POST", "/v1/messages", {"to": name, "text": LONG_TEXT, "from": f"to-{name}"})
            sent[said.status] += 1
            # By a claim: a poll reads first, and would wait for the one that is held.
            taken = await talk.call("POST", f"/v1/agents/{name}/claim", {"limit": 10})
            for each in taken.json["deliveries"]:
                await talk.call("POST", f"/v1/leases/{each['lease']['token']}/ack", {})
        talk.close()

    async def look(path: str) -> None:
        talk = Talk(hub.port)
        while not over():
            await talk.call("GET", path, seconds=3 * seconds + SETTLE_SECONDS)  # it may be one that is held
        talk.close()

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(load(name))
        for path in ("/v1/agents/quiet/inbox?limit=100", "/v1/agents/quiet/inbox?limit=10"):
            tasks.create_task(look(path))
        while not over():
            longest = max(longest, log.stat().st_size)
            await asyncio.sleep(0.05)
        took = time.monotonic() - begun
        hub.hold_reads(0)
    breaches = [] if longest < LOG_BYTES else [f"the log grew to {longest / MIB:.0f} MiB"]
    if hub.held_seconds < took / 2:
        breaches.append(f"the reader was held for {hub.held_seconds:.1f} s alone: nothing was shown")
    return Result(breaches, {
        "longest MiB": round(longest / MIB, 1), "MB sent": sent[201] * len(LONG_TEXT) // 10**6,
        "held seconds": round(hub.held_seconds, 1), "seconds": round(took, 1),
    })  # fmt: skip


def main(words: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0.0, help="of all kinds in turn, after the rounds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vanish", type=int, default=10_000, metavar="CLIENTS")
    parser.add_argument("--picture", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--only", action="append", default=[], help="a kind of use; may be given again")
    parser.add_argument("--source", type=Path, help="another src folder: a hub that was broken on purpose")
    given = parser.parse_args(words)
    parts: dict[str, Callable[[], Result]] = {
        "rounds": lambda: run(given.rounds, only=given.only, many=given.vanish, source=given.source)
    }
    if given.picture:
        parts["picture"] = lambda: held_picture(given.picture, source=given.source)
    if given.minutes:
        parts["long"] = lambda: long_run(given.minutes * 60, given.seed, source=given.source)
    good = True
    for name, part in parts.items():
        result = part()
        good = good and result.good
        for breach in result.breaches:
            print(breach)
        print(json.dumps({"part": name, "breaches": len(result.breaches), **result.figures}), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
