"""Where should a commit run? The measurement behind docs/adr/0002-sqlite-writer-thread.md.

Clients on one loop (uvloop) each work for a while, as parsing a request does, and then wait for a small write. Three
places for the write are compared: everything on a ``thread`` of its own, everything on the ``loop``, or the statements
on the loop and only COMMIT on the thread (``split``). ``sync`` adds to each commit what a slower disk takes.

What must stay true: the three do the same SQL, share commits in the same way, and are measured one after the other.

    python -m bench.commit_place
"""

import asyncio
import itertools
import queue
import secrets
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

import apsw
import uvloop

from angelia.storage.sqlite.queries import HERE

SECONDS = 2.0
GROUP = 256
WORK_SECONDS = 100e-6  # what a request costs beside the store
PRAGMAS = ("journal_mode = wal", "synchronous = full", "wal_autocheckpoint = 0", "temp_store = memory")
MESSAGE = "INSERT INTO message VALUES (" + ", ".join("?" * 25) + ")"
DELIVERY = "INSERT INTO delivery VALUES (" + ", ".join("?" * 23) + ")"


class Store:
    """The SQL, and what a slow disk would add."""

    def __init__(self, path: Path, sync_seconds: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.db = apsw.Connection(str(path))
        self.run = self.db.cursor().execute
        for pragma in PRAGMAS:
            self.run("PRAGMA " + pragma).fetchall()
        self.run((HERE / "migrations" / "0001_start.sql").read_text("utf-8"))
        self.sync_seconds = sync_seconds
        self.commits = 0
        self.numbers = itertools.count(1)
        self.waiting: deque[asyncio.Future[None]] = deque()
        for _ in range(20):  # the log has grown before it is measured
            self.begin(GROUP)
            self.commit()
        self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        self.commits = 0

    def begin(self, units: int) -> None:
        self.run("BEGIN IMMEDIATE")
        for n in itertools.islice(self.numbers, units):
            at, box = 1_800_000_000_000 + n, f"agent-{n % 50}"
            said = ("hermes", box, "inform", "message", "x" * 100, None, 0, None, None, None, 0, None, "normal", "once")
            place = (n, n, n, box, None, None, "hermes", 1, 300, 0, 0, 0, 0, None, None, 0)
            self.run("SAVEPOINT unit")
            self.run(MESSAGE, (n, secrets.token_hex(16), *said, at, at, 0, None, None, None, b"", at, b""))
            self.run(DELIVERY, (*place, at, at, at, None, None, None, None))
            self.run("RELEASE unit")

    def commit(self) -> None:
        self.run("COMMIT")
        if self.sync_seconds:
            time.sleep(self.sync_seconds)
        self.commits += 1

    def take(self) -> list[asyncio.Future[None]]:
        return [self.waiting.popleft() for _ in range(min(GROUP, len(self.waiting)))]

    def answer(self, group: list[asyncio.Future[None]]) -> None:
        for future in group:
            future.set_result(None)

    def write(self) -> asyncio.Future[None]:
        raise NotImplementedError

    def stop(self) -> None:
        """End what was started."""


class OnThread(Store):
    """All of it on a thread that takes what queued while the last commit ran."""

    def __init__(self, path: Path, sync_seconds: float) -> None:
        super().__init__(path, sync_seconds)
        self.bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def write(self) -> asyncio.Future[None]:
        future = self.loop.create_future()
        self.waiting.append(future)
        self.bell.put(True)
        return future

    def serve(self) -> None:
        while self.bell.get():
            if group := self.take():
                self.begin(len(group))
                self.commit()
                self.loop.call_soon_threadsafe(self.answer, group)

    def stop(self) -> None:
        self.bell.put(False)
        self.thread.join()


class OnLoop(Store):
    """All of it on the loop, once for everything that was asked for in one turn."""

    def write(self) -> asyncio.Future[None]:
        future = self.loop.create_future()
        if not self.waiting:
            self.loop.call_soon(self.serve)
        self.waiting.append(future)
        return future

    def serve(self) -> None:
        group = self.take()
        self.begin(len(group))
        self.commit()
        self.answer(group)
        if self.waiting:
            self.loop.call_soon(self.serve)


class Split(Store):
    """The statements on the loop, COMMIT on a thread."""

    def __init__(self, path: Path, sync_seconds: float) -> None:
        super().__init__(path, sync_seconds)
        self.busy = False
        self.jobs: queue.SimpleQueue[list[asyncio.Future[None]] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def write(self) -> asyncio.Future[None]:
        future = self.loop.create_future()
        if not self.waiting and not self.busy:
            self.loop.call_soon(self.next)
        self.waiting.append(future)
        return future

    def next(self) -> None:
        if not self.busy and (group := self.take()):
            self.busy = True
            self.begin(len(group))
            self.jobs.put(group)

    def serve(self) -> None:
        while (group := self.jobs.get()) is not None:
            self.commit()
            self.loop.call_soon_threadsafe(self.done, group)

    def done(self, group: list[asyncio.Future[None]]) -> None:
        self.busy = False
        self.answer(group)
        self.next()

    def stop(self) -> None:
        self.jobs.put(None)
        self.thread.join()


async def measure(name: str, kind: type[Store], clients: int, sync_seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="angelia-bench-") as folder:
        store = kind(Path(folder, "store"), sync_seconds)
        latencies: list[float] = []
        lags: list[float] = []
        ends = time.perf_counter() + SECONDS

        async def client() -> None:
            while (start := time.perf_counter()) < ends:
                await asyncio.sleep(0)
                works = time.perf_counter() + WORK_SECONDS
                while time.perf_counter() < works:
                    pass
                await store.write()
                latencies.append(time.perf_counter() - start)

        async def heart() -> None:
            while (start := time.perf_counter()) < ends:
                await asyncio.sleep(0.002)
                lags.append(time.perf_counter() - start - 0.002)

        await asyncio.gather(heart(), *[client() for _ in range(clients)])
        store.stop()
        latencies.sort()
        lags.sort()
        p50, p99 = (latencies[int(len(latencies) * q)] * 1e3 for q in (0.5, 0.99))
        lag50, lag99 = (lags[int(len(lags) * q)] * 1e3 for q in (0.5, 0.99))
        print(
            f"sync +{sync_seconds * 1e3:.0f} ms  {clients:4} clients  {name:6}  {len(latencies) / SECONDS:6.0f}/s"
            f"  {len(latencies) / store.commits:6.1f} a commit  latency p50 {p50:6.2f} p99 {p99:6.2f} ms"
            f"  loop late p50 {lag50:6.2f} p99 {lag99:6.2f} ms"
        )


def main() -> None:
    for sync_seconds, clients in itertools.product((0.0, 0.005), (1, 8, 64, 256)):
        for name, kind in {"thread": OnThread, "loop": OnLoop, "split": Split}.items():
            uvloop.run(measure(name, kind, clients, sync_seconds))


if __name__ == "__main__":
    main()
