"""Agents of `hubs.py`: each lives at one hub, writes to those at the others, answers what it is asked, and notes all.

What must stay true: an agent has one message under way at a time, under one id until it is answered for good. What it
is handed is in the history before anything is done with it; what it has finished it acks and does not do again. It
knows the hub by our own client alone, over the hub's socket.

Whoever is meant stands in the history as ``handle@HUB``, by the hub's own name, wherever it was seen.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from angelia import AsyncClient
from angelia.client.core.following import Item, lease_token
from angelia.client.errors import ClientError, HubError, LeaseLost
from tests.rigs.history import Acked, Answered, Concluded, Handed, Sent
from tests.rigs.neighbourhood import Neighbourhood, Place
from tests.rigs.scene import now

PATIENCE_SECONDS = 1.0
RETRY_SECONDS = 0.2
# Longer than any run: whatever fails, fails for another reason than time.
TTL_SECONDS = 3600
QUESTIONS = 0.5  # of what is written; the rest is only told
NACKED = 0.02


@dataclass(frozen=True, slots=True)
class Person:
    """An agent: its handle, and the number of its hub."""

    handle: str
    home: int


class Correspondent:
    """One agent."""

    def __init__(self, near: Neighbourhood, me: Person, others: list[Person], pause: float) -> None:
        self.near, self.me, self._others, self._pause = near, me, others, pause
        self.place: Place = near.places[me.home]
        self.name = near.called(me.handle, self.place.name)
        self._count = self._lives = 0
        self._finished: set[str] = set()
        self._writer, self._reader, self._answerer = (self.client(each) for each in (0.3, 30.0, PATIENCE_SECONDS))
        self._open: set[str] = set()

    def client(self, patience: float) -> AsyncClient:
        """A client of its own."""
        url = f"unix:{self.place.hub.socket_path}"
        return AsyncClient(url, name=self.me.handle, patience_seconds=patience, answer_seconds=10.0)

    # ---- writing

    async def write(self) -> None:
        """Write to the others until it is time to close."""
        while not self.near.closing.is_set():
            await self.near.pause(self._pause)
            await self.write_one()
        await self._writer.close()

    async def write_one(self) -> None:
        """One message, to anyone, until it is accepted."""
        dice = self.near.dice
        other = dice.choice(self._others)
        self._count += 1
        sent = Sent(
            at=now(), mark=f"{self.name}.{self._count}", sender=self.name, request=dice.random() < QUESTIONS,
            to=self.near.called(other.handle, self.near.places[other.home].name), id=f"{dice.getrandbits(128):032x}",
        )  # fmt: skip
        intent = "request" if sent.request else "inform"
        form = self.near.form(self.me.home, other)
        while not self.near.over.is_set():
            try:
                said = await self._try(sent, lambda: self._writer.send(
                    form, sent.mark, id=sent.id, intent=intent, ttl_seconds=TTL_SECONDS))  # fmt: skip
            except HubError as error:
                if error.status not in (429, 503):
                    self.near.fault(f"{sent.mark} to {form} was answered with {error.status} {error.code}: {error}")
                    return
            else:
                if said:
                    return
            await asyncio.sleep(dice.uniform(0, 2 * RETRY_SECONDS))

    async def _try(self, sent: Sent, send: Any) -> bool:
        """One try, noted; whether it was accepted. Raises what the hub refused it with."""
        history = self.near.history
        history.add(replace(sent, at=now()))
        try:
            said = await send()
        except HubError as error:
            history.add(Answered(at=now(), mark=sent.mark, status=error.status))
            raise
        except ClientError:
            history.add(Answered(at=now(), mark=sent.mark))
            return False
        history.add(Answered(at=now(), mark=sent.mark, status=201, id=said["id"]))
        return True

    # ---- reading

    async def read(self) -> None:
        """Read one's mail until all is over; a stream that ends by itself is opened anew."""
        while not self.near.over.is_set():
            self._lives += 1
            client = f"{self.name}#{self._lives}"
            try:
                async with self._reader.follow(window=8) as stream, asyncio.TaskGroup() as tasks:
                    ending = tasks.create_task(self._end(stream))
                    async for item in stream:
                        if item.kind == "message":
                            await self._take(item, client)
                    ending.cancel()
            except* ClientError as trouble:
                self.near.fault(f"{self.name}: the stream ended: {trouble.exceptions[0]!r}")
                await asyncio.sleep(RETRY_SECONDS)
        await self._reader.close()
        await self._answerer.close()

    async def _end(self, stream: Any) -> None:
        await self.near.over.wait()
        await stream.close()

    async def _take(self, item: Item, client: str) -> None:
        message = item.data.get("message", item.data)
        if message.get("kind") == "notice":
            await self._noticed(message, lease_token(item))
            return
        handed = Handed(
            at=now(), client=client, mailbox=self.name, hand="manual", mark=str(message["text"]), id=message["id"],
            sender=self.near.known(message["from"], self.place), seq=item.data["seq"], attempt=item.data["attempt"],
            again=bool(item.data.get("again")), hub=self.place.name,
        )  # fmt: skip
        self.near.history.add(handed)
        if handed.again:
            return
        if self.near.dice.random() < NACKED and not self.near.closing.is_set():
            await self._settle(lease_token(item), "nack")
            return
        if handed.id not in self._finished:
            if message["kind"] == "reply":
                about = message["in_reply_to"]
                late = bool(message.get("late"))
                self.near.history.add(Concluded(at=now(), id=about, how="reply", late=late, by=handed.id))
            elif message["intent"] == "request" and not await self._answer(handed):
                return
            self._finished.add(handed.id)
        await self._settle(lease_token(item), "ack", handed)

    async def _noticed(self, message: Mapping[str, Any], lease: str) -> None:
        if message.get("about"):
            self.near.history.add(Concluded(at=now(), id=message["about"], how="failure", by=message["id"]))
            self.near.failures[str(message.get("reason"))] += 1
        if lease:
            await self._settle(lease, "ack")

    async def _answer(self, handed: Handed) -> bool:
        """Reply, under an id that follows from the question's; whether it was accepted."""
        reply_id = hashlib.sha256(handed.id.encode()).hexdigest()[:32]
        sent = Sent(at=now(), mark=f"re:{handed.mark}", sender=self.name, to=handed.sender, id=reply_id)
        for _ in range(100):
            try:
                if await self._try(sent, lambda: self._answerer.reply(handed.id, sent.mark, id=reply_id)):
                    return True
            except HubError as error:
                if error.status not in (429, 503):
                    self.near.fault(f"the reply {sent.mark} was answered with {error.status} {error.code}: {error}")
                    return True
            await asyncio.sleep(RETRY_SECONDS)
        return False

    async def _settle(self, lease: str, verb: str, handed: Handed | None = None) -> None:
        """Ack or give back, and again while nobody knows whether it was heard."""
        for _ in range(50):
            status: int | None = None
            already = False
            try:
                done = self._answerer.ack(lease) if verb == "ack" else self._answerer.nack(lease, delay_seconds=0.1)
                already, status = bool((await done).get("already")), 200
            except LeaseLost:
                status = 409
            except HubError as error:
                status = error.status
                if status not in (404, 503):
                    self.near.fault(f"{verb} was answered with {status} {error.code}: {error}")
            except ClientError:
                pass
            if handed is not None:
                self.near.history.add(Acked(
                    at=now(), client=handed.client, mailbox=self.name, id=handed.id, attempt=handed.attempt,
                    status=status, already=already,
                ))  # fmt: skip
            if status is not None and status != 503:
                return
            await asyncio.sleep(RETRY_SECONDS)
