"""A hundred senders, by every door, that repeat under the same id or key until they know what became of it.

What must stay true: a sender has one message under way at a time, and goes on only when that was answered for good; so
the next one is later, in the sense of the promise of order. Each try and each answer is in the history.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tests.rigs.history import Answered, Sent
from tests.rigs.scene import ANSWERING, AUTO, MAILBOXES, Scene, now
from tests.rigs.talk import Broken, Said

RETRY_SECONDS = 0.1
GIVE_UP_SECONDS = 120.0
# A question that nobody answers is concluded after this.
SHORT_SECONDS = 4
LONG_SECONDS = 600
BATCH = 5


class Sender:
    """One sender. A kind of sender is a method ``by_…`` that makes and sends one message."""

    def __init__(self, scene: Scene, name: str, kind: str, pause: float) -> None:
        self.scene, self.name, self._pause = scene, name, pause
        self._send: Callable[[], Awaitable[None]] = getattr(self, f"by_{kind}")
        self._talk = scene.talk
        self._count = 0

    async def run(self) -> None:
        while not self.scene.closing.is_set():
            await self.scene.pause(self._pause)
            await self._send()
        self._talk.close()

    # ---- the kinds

    async def by_id(self) -> None:
        sent = self._new(with_id=True)
        body = {"to": sent.to, "text": sent.mark, "from": self.name, "id": sent.id}
        await self._surely([sent], lambda: self._talk.call("POST", "/v1/messages", body))

    async def by_key(self) -> None:
        sent = self._new(key=True)
        body = {"to": sent.to, "text": sent.mark, "from": self.name}
        await self._surely([sent], lambda: self._talk.call("POST", "/v1/messages", body, Idempotency_Key=str(sent.key)))

    async def by_broadcast(self) -> None:
        sent = self._new(key=True)
        path = f"/broadcast?from={self.name}&to={sent.to}"
        await self._surely(
            [sent], lambda: self._talk.call("POST", path, {"text": sent.mark}, Idempotency_Key=str(sent.key))
        )

    async def by_question(self) -> None:
        """A question: to one who answers, or to one who never does, so that time concludes it."""
        answering = self.scene.dice.random() < 0.7
        sent = self._new(with_id=True, to=self.scene.dice.choice(ANSWERING) if answering else AUTO, request=True)
        body = {
            "to": sent.to, "text": sent.mark, "from": self.name, "id": sent.id, "intent": "request",
            "ttl_seconds": LONG_SECONDS if answering else SHORT_SECONDS,
        }  # fmt: skip
        await self._surely([sent], lambda: self._talk.call("POST", "/v1/messages", body))

    async def by_batch(self) -> None:
        batch = [self._new(with_id=True) for _ in range(BATCH)]
        items = [{"to": sent.to, "text": sent.mark, "from": self.name, "id": sent.id} for sent in batch]
        await self._surely(batch, lambda: self._talk.call("POST", "/v1/messages", {"messages": items}))

    async def by_command(self) -> None:
        """`angelia send`, which repeats by itself for a while; run again under the same id when that ends badly."""
        sent = self._new(with_id=True)
        words = ("send", "--as", self.name, "--json", "--id", str(sent.id), sent.to, sent.mark)
        await self._surely([sent], lambda: self._run(*words))

    async def _run(self, *words: str) -> Said:
        hub = self.scene.hub
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "angelia", *words, env=hub.cli_environment(), cwd=hub.base,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, trouble = await process.communicate()
        if process.returncode == 0:
            return Said(201, {}, said)
        if process.returncode == 1 and b'"mailbox_full"' in trouble + said:
            return Said(429, {}, b"")
        if process.returncode in (1, 2, 3, 78):
            self.scene.fault(f"angelia {words[0]} ended with {process.returncode}: {trouble.decode()[:300]}")
        raise Broken(f"exit {process.returncode}", begun=True)

    # ---- what all of them do

    def _new(self, *, with_id: bool = False, key: bool = False, to: str = "", request: bool = False) -> Sent:
        self._count += 1
        mark = f"{self.name}.{self._count}"
        dice = self.scene.dice
        return Sent(
            at=now(),
            mark=mark,
            sender=self.name,
            to=to or dice.choice(MAILBOXES),
            id=f"{dice.getrandbits(128):032x}" if with_id else None,
            key=f"key-{mark}" if key else None,
            request=request,
        )

    async def _surely(self, batch: list[Sent], send: Callable[[], Awaitable[Said]]) -> None:
        """Send until it is answered for good."""
        ends = now() + GIVE_UP_SECONDS
        history = self.scene.history
        while True:
            at = now()
            history.add(*(replace(sent, at=at) for sent in batch))
            try:
                answers = _answers(await send(), batch)
            except Broken:
                history.add(*(Answered(at=now(), mark=sent.mark) for sent in batch))
            else:
                at = now()
                history.add(*(Answered(at=at, mark=mark, status=status, id=id_) for mark, status, id_ in answers))
                bad = [(mark, status) for mark, status, _ in answers if status >= 400 and status not in (429, 503)]
                for mark, status in bad:
                    self.scene.fault(f"{mark} was answered with {status}")
                if all(status < 500 and status != 429 for _, status, _ in answers):
                    return
            if now() > ends:
                self.scene.fault(f"{batch[0].mark} was not accepted in {GIVE_UP_SECONDS} s")
                return
            await asyncio.sleep(self.scene.dice.uniform(0, 2 * RETRY_SECONDS))


def _answers(said: Said, batch: list[Sent]) -> list[tuple[str, int, str | None]]:
    """The mark, status and id of each message in the answer."""
    if said.status >= 300:
        return [(sent.mark, said.status, None) for sent in batch]
    found = json.loads(said.body)
    if len(batch) == 1:
        return [(batch[0].mark, said.status, found["id"])]
    outcomes = found["outcomes"]
    return [
        (sent.mark, outcome["status"], outcome["sent"]["id"] if "sent" in outcome else None)
        for sent, outcome in zip(batch, outcomes, strict=True)
    ]


def make_senders(scene: Scene, count: int, pause: float) -> list[Sender]:
    """Of every hundred: 35 by id, 20 by key, 20 by the seed's broadcast, 15 that ask, 8 in batches, 2 by the CLI."""
    kinds = ["id"] * 35 + ["key"] * 20 + ["broadcast"] * 20 + ["question"] * 15 + ["batch"] * 8 + ["command"] * 2
    chosen = [kinds[(number * 37) % 100] for number in range(count)]
    return [Sender(scene, f"s{number}-{kind}", kind, pause) for number, kind in enumerate(chosen)]
