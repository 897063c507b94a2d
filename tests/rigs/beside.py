"""Ordinary traffic beside whatever else happens to a hub: pairs of agents, and how long their messages take.

    python -m tests.rigs.beside PORT

It is a process of its own, so that what a rig does in its process does not show in what is measured. Each line that it
reads ends a window: it answers with a line of JSON, the times until a message is there from the reader's stream, of all
that were to be sent in that window, as soon as these are there. They count from when it was to be sent, not from when
the one before had arrived: a hub that stands still for half a second holds up all that would have been sent in it. It
ends with its input.
"""

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.rigs.talk import Broken, Talk

PAIRS = 4
EACH_SECONDS = 0.05  # a message of each pair
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Window:
    """What happened to those messages: how many came, how many requests failed, and the seconds that they took."""

    count: int
    failed: int
    p50: float
    p99: float
    slowest: float

    def __str__(self) -> str:
        p50, p99, slowest = (f"{seconds * 1000:.1f}" for seconds in (self.p50, self.p99, self.slowest))
        return f"{self.count} messages, {self.failed} failed, p50 {p50} ms, p99 {p99} ms, slowest {slowest} ms"


class Beside:
    """That process. ``window`` says what happened since it was asked last."""

    def __init__(self, port: int, pairs: int = PAIRS) -> None:
        words = [sys.executable, "-m", "tests.rigs.beside", str(port), str(pairs)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True, bufsize=1
        )

    def __enter__(self) -> "Beside":
        self.window()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def window(self) -> Window:
        """End a window."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        return Window(**json.loads(self._process.stdout.readline()))

    def after(self, seconds: float) -> Window:
        """A window of so many seconds from now."""
        self.window()
        time.sleep(seconds)
        return self.window()


class _Traffic:
    def __init__(self, port: int) -> None:
        self._port = port
        self._took: list[tuple[float, float]] = []  # when it was to be sent, and how long that took
        self._failed: list[float] = []
        self._under_way: dict[int, float] = {}  # by pair: when what it sends now was to be sent
        self._arrived = asyncio.Condition()

    async def pair(self, number: int) -> None:
        """A reader with a stream, and a sender that waits for each message to arrive."""
        reader, sender, name = Talk(self._port), Talk(self._port), f"beside{number}"
        arrived: asyncio.Queue[str] = asyncio.Queue()

        async def read() -> None:
            async for event in reader.stream(f"/v1/agents/{name}/stream", seconds=120):
                if event.kind == "message":
                    await arrived.put(event.json["message"]["text"])
                elif event.data == "connected":
                    await arrived.put("")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read())
            await arrived.get()
            count, due = 0, time.perf_counter()
            while True:
                count, due = count + 1, due + EACH_SECONDS
                async with self._arrived:
                    self._under_way[number] = due
                    self._arrived.notify_all()
                begun = due
                if (early := due - time.perf_counter()) > 0:
                    await asyncio.sleep(early)
                    begun = time.perf_counter()
                body = {"to": name, "text": str(count), "from": f"by{number}"}
                try:
                    said = await sender.call("POST", "/v1/messages", body, seconds=60)
                except Broken:
                    said = None
                if said is None or said.status != 201:
                    self._failed.append(due)
                    continue
                while await arrived.get() != str(count):
                    pass
                self._took.append((due, time.perf_counter() - begun))

    async def told(self) -> str:
        end = time.perf_counter()
        async with self._arrived:
            await self._arrived.wait_for(lambda: all(due >= end for due in self._under_way.values()))
        took = sorted(seconds for due, seconds in self._took if due < end) or [0.0]
        failed = sum(due < end for due in self._failed)
        self._took = [each for each in self._took if each[0] >= end]
        self._failed = [due for due in self._failed if due >= end]
        p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
        return json.dumps({"count": len(took), "failed": failed, "p50": p50, "p99": p99, "slowest": took[-1]})

    async def run(self, pairs: int) -> None:
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self.pair(number)) for number in range(pairs)]
            while await lines.readline():
                print(await self.told(), flush=True)
            for each in running:
                each.cancel()


if __name__ == "__main__":
    asyncio.run(_Traffic(int(sys.argv[1])).run(int(sys.argv[2]) if len(sys.argv) > 2 else PAIRS))
