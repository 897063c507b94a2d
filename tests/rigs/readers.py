"""Twenty readers, by every hand, that die now and then: what they were handed, and what their acks were answered.

What must stay true: a hand-over is in the history as soon as its bytes are here and before anything is done with it. A
reader that is killed forgets all it had; one whose connection only broke goes on from there. Each connection of a
stream is a client of its own in the history.
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import quote

from tests.rigs.history import Acked, Answered, Broke, Handed, Sent
from tests.rigs.scene import ANSWERING, AUTO, CLAIMED, COMMANDED, MANUAL, MIXED, POLLED, SEED, Scene, now
from tests.rigs.talk import Broken, Talk

# Short, so that what a killed reader held comes back while the run lasts.
LEASE_SECONDS = 2
RETRY_SECONDS = 0.1
# How often a reader dies, gives back, and leaves a lease to run out or to the end of its stream.
KILLED, NACKED, LEFT = 0.02, 0.03, 0.02


class Reader:
    """One reader of one mailbox."""

    def __init__(self, scene: Scene, name: str, mailbox: str) -> None:
        self.scene, self.name, self.mailbox = scene, name, mailbox
        self.talk = scene.talk
        self.left = LEFT
        self._lives = 0

    async def run(self) -> None:
        while not self.scene.over.is_set():
            await self.live()
        self.talk.close()

    async def live(self) -> None:
        raise NotImplementedError

    def born(self) -> str:
        """A client of the history that has not been before."""
        self._lives += 1
        return f"{self.name}#{self._lives}"

    def dies(self, chance: float = KILLED) -> bool:
        return not self.scene.over.is_set() and self.scene.dice.random() < chance

    def handed(self, item: Mapping[str, Any], client: str, hand: str, asked_at: float | None = None) -> Handed | None:
        """Note a hand-over, of either shape; None for a notice of the hub."""
        told = item.get("_meta") or {**item["message"], "seq": item["seq"], "attempt": item["attempt"]}
        if told["kind"] == "notice":
            return None
        found = Handed(
            at=now(),
            client=client,
            mailbox=self.mailbox,
            hand=hand,
            mark=str(item["text"] if "_meta" in item else told["text"]),
            id=told["id"],
            sender=told["from"],
            seq=told["seq"],
            attempt=told["attempt"],
            again=bool(told.get("again") or item.get("again")),
            asked_at=asked_at,
        )
        self.scene.history.add(found)
        return found

    def broke(self, client: str, hand: str, since: float) -> None:
        self.scene.history.add(Broke(at=now(), since=since, client=client, mailbox=self.mailbox, hand=hand))

    # ---- settling

    async def work(self, handed: Handed, token: str, *, asked: bool) -> None:
        """Do what is to be done with one message under a lease: answer, ack, give back, or leave it."""
        dice = self.scene.dice.random()
        if self.scene.closing.is_set() and self.left == LEFT:
            dice = 1.0
        if dice < self.left:
            return
        if dice < self.left + NACKED:
            await self._lease(token, "nack", {"delay_seconds": 0.1})
            return
        if asked and self.mailbox in ANSWERING and not await self.answer(handed):
            return  # whoever gets it next answers
        status, already = await self._lease(token, "ack", {}, handed)
        if status not in (200, 409, None):
            self.scene.fault(f"the ack of {handed.mark} was answered with {status}")
        if status == 200 and not already and self.dies(0.01):
            await self._lease(token, "ack", {}, handed)  # once more: nothing may change

    async def _lease(
        self, token: str, verb: str, body: dict[str, Any], handed: Handed | None = None
    ) -> tuple[int | None, bool]:
        """Settle, and again while nobody knows whether it was heard."""
        for _ in range(50):
            status: int | None = None
            already = False
            try:
                said = await self.talk.call("POST", f"/v1/leases/{quote(token, safe='')}/{verb}", body)
                status, already = said.status, said.status == 200 and bool(said.json.get("already"))
            except Broken:
                pass
            finally:  # cancelled, too: it may have been heard
                if handed is not None:
                    self.scene.history.add(
                        Acked(
                            at=now(), client=handed.client, mailbox=self.mailbox, id=handed.id,
                            attempt=handed.attempt, status=status, already=already,
                        )
                    )  # fmt: skip
            if status is not None and status != 503:
                return status, already
            await asyncio.sleep(RETRY_SECONDS)
        return None, False

    async def answer(self, handed: Handed) -> bool:
        """Reply; a second try, by this reader or the next, is the same message. False where no hub heard it."""
        reply_id = hashlib.sha256(handed.id.encode()).hexdigest()[:32]
        mark = f"re:{handed.mark}"
        body = {"text": mark, "from": self.mailbox, "id": reply_id}
        history = self.scene.history
        for _ in range(50):
            history.add(Sent(at=now(), mark=mark, sender=self.mailbox, to=handed.sender, id=reply_id))
            try:
                said = await self.talk.call("POST", f"/v1/messages/{handed.id}/reply", body)
            except Broken:
                history.add(Answered(at=now(), mark=mark))
            else:
                good = said.status in (200, 201)
                history.add(Answered(at=now(), mark=mark, status=said.status, id=reply_id if good else None))
                if said.status != 503:
                    if not good:
                        self.scene.fault(f"the reply {mark} was answered with {said.status}: {said.body[:200]!r}")
                    return True
            await asyncio.sleep(RETRY_SECONDS)
        return False


class Poller(Reader):
    """`GET /poll`."""

    def __init__(self, scene: Scene, name: str, mailbox: str, *, wait: float = 0.0, manual: bool = False) -> None:
        super().__init__(scene, name, mailbox)
        self._query = f"agent={mailbox}&limit=20&wait={wait}" + ("&ack=manual" if manual else "")
        self._pause = 0.0 if wait else 0.1
        self._hand = "claim" if manual else "poll"

    async def live(self) -> None:
        client = self.born()
        while not self.scene.over.is_set():
            asked_at = now()
            deadly = self.dies()
            try:
                # One that dies is killed somewhere between asking and having all.
                seconds = self.scene.dice.uniform(0, 0.02) if deadly else 30.0
                said = await self.talk.call("GET", f"/poll?{self._query}", seconds=seconds)
            except Broken:
                self.broke(client, self._hand, asked_at)
                if deadly:
                    return
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self._take(said.status, said.body, client, asked_at)
            await self.scene.pause(self._pause)

    async def _take(self, status: int, body: bytes, client: str, asked_at: float) -> None:
        if status != 200:
            if status != 503:
                self.scene.fault(f"{self.name}: poll was answered with {status}: {body[:200]!r}")
            await asyncio.sleep(RETRY_SECONDS)
            return
        taken = []
        for item in json.loads(body)["messages"]:
            found = self.handed(item, client, self._hand, asked_at)
            if found is not None:
                taken.append((found, item["_meta"]))
        for found, meta in taken:
            if "lease" in meta:
                await self.work(found, meta["lease"], asked=meta["intent"] == "request")


class Claimer(Reader):
    """`POST …/claim`, then an ack for each."""

    async def live(self) -> None:
        client = self.born()
        while not self.scene.over.is_set():
            asked_at = now()
            deadly = self.dies()
            wanted = {"limit": self.scene.dice.choice((1, 3, 10)), "lease_seconds": LEASE_SECONDS, "wait_seconds": 0.5}
            try:
                seconds = self.scene.dice.uniform(0, 0.02) if deadly else 30.0
                said = await self.talk.call("POST", f"/v1/agents/{self.mailbox}/claim", wanted, seconds=seconds)
            except Broken:
                self.broke(client, "claim", asked_at)
                if deadly:
                    return
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if said.status != 200:
                if said.status != 503:
                    self.scene.fault(f"{self.name}: claim was answered with {said.status}: {said.body[:200]!r}")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            items = said.json["deliveries"]
            taken = [(self.handed(item, client, "claim", asked_at), item) for item in items]
            if self.dies():
                self.broke(client, "claim", asked_at)
                return  # with leases in its hands
            for found, item in taken:
                if found is not None:
                    await self.work(found, item["lease"]["token"], asked=item["message"]["intent"] == "request")


class Streamer(Reader):
    """An event stream: the seed's (``/subscribe``), or a native one with auto or manual acks.

    One that ``leaves`` does half of its work, and goes away with the other half in its hands before all is drained.
    """

    def __init__(self, scene: Scene, name: str, mailbox: str, hand: str, *, leaves: bool = False) -> None:
        super().__init__(scene, name, mailbox)
        self._hand = "manual" if hand == "manual" else "auto"
        path = f"/subscribe?agent={mailbox}" if hand == "seed" else f"/v1/agents/{mailbox}/stream?ack={hand}"
        self._path, self._last_id, self._leaves = path, "", leaves
        self.left = 0.5 if leaves else LEFT
        self._fresh_at = now()  # when the last one came that was no copy

    async def run(self) -> None:
        while not self.scene.over.is_set() and not (self._leaves and self.scene.closing.is_set()):
            await self.live()
        self.talk.close()

    async def live(self) -> None:
        client = self.born()
        reading = Talk(self.scene.hub.port)
        killed = False
        try:
            async with asyncio.timeout(self._lifetime()), aclosing(reading.stream(self._path, self._last_id)) as events:
                async for event in events:
                    if event.kind == "message":
                        self._last_id = event.id or self._last_id
                        await self._take(event.json, client)
                        # With more unread; mostly only the connection is lost. One that leaves lives out its time.
                        if not self._leaves and self.dies(2 * KILLED):
                            killed = self.dies(0.05)
                            break
                    elif event.kind == "reset":
                        self.scene.resets.append(event.data)
                    elif event.kind == "superseded":
                        await self.scene.pause(1.0)
        except (Broken, TimeoutError):
            pass
        reading.cut()
        if killed or self._leaves:
            self._last_id = ""
        if not self._last_id:  # else it resumes, and sees what had been on its way
            self.broke(client, self._hand, self._fresh_at)
        await self.scene.pause(RETRY_SECONDS)

    def _lifetime(self) -> float:
        """How long until it is cut off, whatever happens."""
        return self.scene.dice.uniform(0.5, 4.0 if self._leaves else 8.0)

    async def _take(self, item: dict[str, Any], client: str) -> None:
        found = self.handed(item, client, self._hand)
        if found is None or found.again:
            return
        self._fresh_at = found.at
        if self._hand == "manual":
            await self.work(found, item["lease"]["token"], asked=item["message"]["intent"] == "request")


class Listener(Reader):
    """`angelia listen`, a process of its own."""

    async def live(self) -> None:
        hub = self.scene.hub
        client, since = self.born(), now()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "angelia", "listen", "--as", self.mailbox, env=hub.cli_environment(), cwd=hub.base,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        lifetime = self.scene.dice.uniform(4.0, 12.0)
        try:
            async with asyncio.timeout(lifetime), asyncio.TaskGroup() as tasks:
                ending = tasks.create_task(self.scene.over.wait())
                reading = tasks.create_task(self._read(process.stdout, client))
                await asyncio.wait((ending, reading), return_when=asyncio.FIRST_COMPLETED)
                ending.cancel()
                reading.cancel()
        except TimeoutError:
            pass
        ended = process.stdout.at_eof()
        with suppress(ProcessLookupError):
            process.kill()
        await self._read(process.stdout, client)  # what it had written
        await process.wait()
        if ended:
            trouble = (await process.stderr.read()).decode()
            self.scene.fault(f"angelia listen ended by itself: {trouble[-400:]}")
        self.broke(client, "manual", since)

    async def _read(self, lines: asyncio.StreamReader, client: str) -> None:
        while line := await lines.readline():
            if not line.endswith(b"\n"):
                break
            message = json.loads(line)
            if message["kind"] == "notice":
                continue
            item = {"message": message, "seq": message["seq"], "attempt": message["attempt"]}
            found = self.handed(item, client, "manual")
            if found is not None:  # it acks by itself, and tells nobody what was answered
                self.scene.history.add(
                    Acked(at=now(), client=client, mailbox=self.mailbox, id=found.id, attempt=found.attempt)
                )


def make_readers(scene: Scene, count: int) -> list[Reader]:
    """The first twenty cover every hand; more of them follow in the same order."""
    makers = (
        lambda name: Poller(scene, name, POLLED),
        lambda name: Claimer(scene, name, CLAIMED),
        lambda name: Streamer(scene, name, AUTO, "auto"),
        lambda name: Streamer(scene, name, MANUAL, "manual"),
        lambda name: Listener(scene, name, COMMANDED),
        lambda name: Streamer(scene, name, SEED, "seed"),
        lambda name: Poller(scene, name, MIXED),
        lambda name: Claimer(scene, name, MIXED),
        lambda name: Streamer(scene, name, MIXED, "manual"),
        lambda name: Streamer(scene, name, MIXED, "auto"),
        lambda name: Poller(scene, name, POLLED, wait=1.0),
        lambda name: Poller(scene, name, POLLED, wait=0.5),
        lambda name: Poller(scene, name, CLAIMED, wait=0.5, manual=True),
        lambda name: Claimer(scene, name, CLAIMED),
        lambda name: Claimer(scene, name, CLAIMED),
        lambda name: Streamer(scene, name, CLAIMED, "manual", leaves=True),
        lambda name: Streamer(scene, name, SEED, "seed"),
        lambda name: Poller(scene, name, AUTO, wait=0.2),
        lambda name: Poller(scene, name, SEED),
        lambda name: Claimer(scene, name, MANUAL),
    )
    return [makers[number % len(makers)](f"r{number}") for number in range(count)]
