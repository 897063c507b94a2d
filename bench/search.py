"""Search and conversations at a million messages: how long each takes, how far the index lags, what mail feels of it.

What must stay true: it ends by itself and leaves no file behind. Words are drawn as in any language, a few of them very
often, from a generator that begins the same each time. ``delay`` is what a lone add waits while the index is filled.

    python -m bench.search [--count 1000000] [--in FOLDER]
"""

import argparse
import asyncio
import itertools
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from angelia.bus.ports import Sight, Tx
from angelia.model.query import Query, read_phrases
from angelia.storage.sqlite.store import SqliteStore
from bench.store import NOW, pair, quantiles

VOCABULARY = 30_000
LETTERS = 15  # words in a message
THREAD = 8  # messages in a conversation
BOXES = 200
TIMES = 200
PAGE_BYTES = 8 << 20
EVERYBODY = Sight()
ONE = Sight(owns=lambda box: box == "agent-7", only="agent-7")
OPEN = Sight(owns=lambda box: box.startswith("agent-"))


def texts() -> Iterator[str]:
    chance = random.Random(1)
    words = [f"word{number}" for number in range(VOCABULARY)]
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(VOCABULARY)))
    while True:
        drawn = chance.choices(words, cum_weights=weights, k=LETTERS * 1000)
        for start in range(0, len(drawn), LETTERS):
            yield " ".join(drawn[start : start + LETTERS])


def unit(source: Iterator[str], count: int) -> Callable[[Tx], None]:
    def work(tx: Tx) -> None:
        thread = ""
        for place in range(count):
            seq = tx.next_seq()
            envelope, row = pair(seq, f"agent-{seq % BOXES}")
            thread = envelope.id if place % THREAD == 0 else thread
            tx.add(envelope._replace(text=next(source), thread=thread), [row])

    return work


async def fill(store: SqliteStore, count: int) -> None:
    source = texts()
    begun = time.perf_counter()
    for _ in range(count // 4000):
        await asyncio.gather(*[store.write(unit(source, 1000)) for _ in range(4)])
    print(f"added  {count:9,} messages in {time.perf_counter() - begun:5.1f} s")


async def indexed(store: SqliteStore, count: int) -> None:
    """Until the index has caught up; a lone add every 50 ms beside it, and how long each took."""
    source = texts()
    delays: list[float] = []
    begun = time.perf_counter()
    while time.perf_counter() - begun < 300:
        await asyncio.sleep(0.05)
        if store._writer.index.complete:
            break
        start = time.perf_counter()
        await store.write(unit(source, 1))
        delays.append(time.perf_counter() - start)
    print(f"indexed in the quiet in {time.perf_counter() - begun:5.1f} s; delay of a lone add   {quantiles(delays)}")
    quiet: list[float] = []
    for _ in range(len(delays)):
        await asyncio.sleep(0.05)
        start = time.perf_counter()
        await store.write(unit(source, 1))
        quiet.append(time.perf_counter() - start)
    print(f"{'':32} and when there is nothing to index    {quantiles(quiet)}")


async def measure(name: str, ask: Callable[[], Awaitable[int]], times: int = TIMES) -> None:
    found = 0
    took: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        found = await ask()
        took.append(time.perf_counter() - start)
    print(f"{name:44} {found:4} found  {quantiles(took)}")


async def questions(store: SqliteStore) -> None:
    async def search(words: str, sight: Sight = EVERYBODY, sender: str | None = None) -> int:
        page = await store.search(sight, Query(read_phrases(words), sender), None, 20, PAGE_BYTES)
        assert page.behind == 0
        return len(page.envelopes)

    for name, words in (
        ("a word of nearly every message", "word0"),
        ("a word of a few", "word20000"),
        ("a word of none", "nowhere"),
        ("two common ones", "word1 word2"),
        ("a common and a rare one", "word0 word20000"),
        ("four of middling", "word10 word20 word30 word40"),
        ("a phrase", '"word0 word1"'),
        ("the beginning of a word", "word123*"),
    ):
        await measure(name, lambda words=words: search(words))  # type: ignore[misc]
    await measure("a common word, in one agent's mail", lambda: search("word0", ONE))
    await measure("a rare word, in one agent's mail", lambda: search("word2000", ONE))
    await measure("a common word, in all open names' mail", lambda: search("word0", OPEN))
    await measure("a common word, from one sender", lambda: search("word0", sender="hermes"))
    await measure("a common word, from nobody", lambda: search("word0", sender="nobody"))
    source = texts()

    async def fresh() -> int:
        await store.write(unit(source, 1))
        return await search("word0")

    async def many() -> int:
        await asyncio.gather(*[store.write(unit(source, 100)) for _ in range(10)])
        return await search("word0")

    await measure("an add, then a common word", fresh)
    await measure("1,000 adds, then a common word", many, 20)
    for who, sight in (("the owner", EVERYBODY), ("one agent", ONE), ("an open name", OPEN)):
        await measure(f"conversations of {who}", lambda s=sight: _count(store.talks(s, None, 20)))  # type: ignore[misc]
    some = (await store.talks(EVERYBODY, None, 20)).talks[0].thread

    async def said() -> int:
        page = await store.conversation(EVERYBODY, some, 0, 100, PAGE_BYTES)
        return len(page.said) if page else 0

    await measure("one conversation", said)


async def _count(talks: Awaitable[object]) -> int:
    return len((await talks).talks)  # type: ignore[attr-defined]


async def main_at(folder: Path, count: int) -> None:
    path = folder / "search.db"
    store = await SqliteStore.open(path, now=NOW)
    await fill(store, count)
    await indexed(store, count)
    await questions(store)
    await store.close()
    size = path.stat().st_size
    begun = time.perf_counter()
    again = await SqliteStore.open(path, now=NOW)
    print(f"opened ({size >> 20} MB) in {time.perf_counter() - begun:5.2f} s")
    await measure("the first search", lambda: _first(again), 1)
    print(f"index  {await again.read(_index_bytes) >> 20} MB of it")
    await again.close()


async def _first(store: SqliteStore) -> int:
    return len((await store.search(EVERYBODY, Query(read_phrases("word0")), None, 20, PAGE_BYTES)).envelopes)


def _index_bytes(view: object) -> int:
    return int(view._desk.run("SELECT sum(length(block)) FROM search_data")[0][0])  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000, help="messages")
    parser.add_argument("--in", dest="folder", type=Path, help="the disk to measure (a folder on it)")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="angelia-bench-") as folder:
        asyncio.run(main_at(Path(folder), given.count))


if __name__ == "__main__":
    main()
