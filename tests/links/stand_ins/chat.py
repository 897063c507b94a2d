"""An agent that sits in its chat at a gateway of ours and answers what it is handed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.rigs.gateway import Desktop, desktop

SITTING_SECONDS = 600.0  # longer than any test
Say = Callable[["Agent", dict[str, Any]], Awaitable[str]]


async def answer_to(agent: "Agent", turn: dict[str, Any]) -> str:
    """What an agent says that is given nothing else to say."""
    return f"{agent.name} heard: {turn['text']}"


class Agent:
    """``turns``: the messages it was handed; ``outcomes``: answers to its own, and notices of those that failed;
    ``peer``: its connection, for what it does beside."""

    def __init__(self, name: str, peer: Desktop) -> None:
        self.name, self.peer = name, peer
        self.turns: list[dict[str, Any]] = []
        self.outcomes: list[dict[str, Any]] = []
        self._came = asyncio.Condition()

    async def write(self, target: str, message: str) -> dict[str, Any]:
        """Call the tool ``message_agent``; what it answers."""
        who: dict[str, Any] = {"from": self.name}
        return dict(await self.peer.result("message_agent", target=target, message=message, **who))

    async def heard(self, count: int, seconds: float = 20.0) -> list[str]:
        """Wait for so many messages; the texts of all so far."""
        return await self._until(self.turns, count, seconds)

    async def learned(self, count: int, seconds: float = 20.0) -> list[str]:
        """Wait for so many outcomes; the texts of all so far."""
        return await self._until(self.outcomes, count, seconds)

    async def _until(self, come: list[dict[str, Any]], count: int, seconds: float) -> list[str]:
        async with asyncio.timeout(seconds), self._came:
            await self._came.wait_for(lambda: len(come) >= count)
            return [turn["text"] for turn in come]

    async def _sit(self, say: Say) -> None:
        while True:
            turn = await self.peer.event("session.turn", SITTING_SECONDS)
            is_message = turn["kind"] == "message"
            async with self._came:
                (self.turns if is_message else self.outcomes).append(turn)
                self._came.notify_all()
            text = await say(self, turn) if is_message else ""
            await self.peer.result("session.done", id=turn["id"], lease=turn["lease"], text=text)


@asynccontextmanager
async def awake(port: int, name: str, say: Say = answer_to) -> AsyncIterator[Agent]:
    """Such an agent, from now on; it leaves at the end. ``say`` gives its answer to a turn (``""``: none)."""
    async with desktop(port) as peer, asyncio.TaskGroup() as tasks:
        found = Agent(name, peer)
        await peer.result("session.open", profile=name, title="Bot Chat")
        sitting = tasks.create_task(found._sit(say))
        yield found
        sitting.cancel()
