"""How sends fare while a copy of the store is made, and how long that takes.

What must stay true: it ends by itself and leaves no file behind. The same senders run for as long without a copy, then
while one is made; each has one add under way. ``log`` is how far the write-ahead log grew meanwhile.

    python -m bench.backup [--count 1000000] [--senders 8] [--in FOLDER]
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

from angelia.model.query import Query, read_phrases
from angelia.storage import backups
from angelia.storage.sqlite.store import SqliteStore
from bench.search import EVERYBODY, fill, texts, unit
from bench.store import NOW, quantiles

QUIET_SECONDS = 8.0
Beside = tuple[list[float], float, int]


def size_of(file: Path) -> int:
    return file.stat().st_size


async def beside(store: SqliteStore, log: Path, senders: int, work: Awaitable[object]) -> Beside:
    """Senders that send until ``work`` is done: how long each add took, how long all of it, and the longest log."""
    source = texts()
    times: list[float] = []
    longest = 0
    done = False

    async def send() -> None:
        nonlocal longest
        while not done:
            start = time.perf_counter()
            await store.write(unit(source, 1))
            times.append(time.perf_counter() - start)
            longest = max(longest, size_of(log))

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(senders):
            tasks.create_task(send())
        await work
        done = True
    return times, time.perf_counter() - begun, longest


async def measure(folder: Path, count: int, senders: int) -> None:
    path = folder / "angelia.db"
    store = await SqliteStore.open(path, now=NOW)
    await fill(store, count)
    while (await store.search(EVERYBODY, Query(read_phrases("word0")), None, 1, 1)).behind:
        continue  # each waits a second for the index
    await asyncio.sleep(1)
    log = path.with_name("angelia.db-wal")
    times: list[float] = []
    for name, work in (
        ("nothing else", asyncio.sleep(QUIET_SECONDS)),
        ("a copy is made", store.back_up(None, NOW)),
        ("nothing else", asyncio.sleep(QUIET_SECONDS)),
    ):
        times, took, longest = await beside(store, log, senders, work)
        rate = len(times) / took
        print(f"{name:15} {took:5.1f} s  {rate:6.0f}/s  {quantiles(times)}  log {longest >> 20} MB")
    (copy,) = backups.listed(folder)
    print(f"the copy has {size_of(copy) >> 20} MB")
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="messages in the store")
    parser.add_argument("--senders", type=int, default=8, help="adds under way at once")
    parser.add_argument("--in", dest="folder", type=Path, help="the disk to measure (a folder on it)")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {given.senders} senders")
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="angelia-bench-") as folder:
        asyncio.run(measure(Path(folder), given.count, given.senders))


if __name__ == "__main__":
    main()
