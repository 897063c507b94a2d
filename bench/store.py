"""What the SQLite store costs: adds by group size, claims from a short and a long backlog, a start after a kill.

What must stay true: every part ends by itself within a minute, and leaves no file behind. ``cpu`` is what the writing
thread used for one add, its share of the commit included; it hardly feels what else the machine does.

    python -m bench.store [adds] [claims] [fanout] [start] [checkpoints]
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from angelia.bus.ports import Parcel, Scope, Tx
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope, Intent, Kind
from angelia.storage.sqlite.store import SqliteStore

NOW = 1_800_000_000_000
DAY = 86_400_000
BOXES = 100
PART_SECONDS = 3.0

Unit = Callable[[Tx], None]


def pair(seq: int, mailbox: str) -> tuple[Envelope, Delivery]:
    """A small message with its delivery; ids as UUIDv7 has them: time first, then chance."""
    now = NOW + seq
    message_id = f"{now:012x}7000{os.urandom(8).hex()}"
    envelope = Envelope(
        id=message_id,
        sender="hermes",
        to=mailbox,
        intent=Intent.INFORM,
        kind=Kind.MESSAGE,
        text="The build of branch feature/relay is green; 312 tests in 41 s. Please merge when you are ready.",
        body=None,
        thread=message_id,
        chain=message_id,
        created_at=now,
        expires_at=now + 7 * DAY,
        fingerprint=os.urandom(32),
    )
    return envelope, delivery(envelope, seq, mailbox)


def delivery(envelope: Envelope, seq: int, mailbox: str) -> Delivery:
    return Delivery(
        key=seq,
        seq=seq,
        message_id=envelope.id,
        mailbox=mailbox,
        to=mailbox,
        sender="hermes",
        size=envelope.size,
        state=State.QUEUED,
        accepted_at=envelope.created_at,
        expires_at=envelope.expires_at,
        sweep_at=envelope.expires_at,
    )


def add(tx: Tx) -> None:
    seq = tx.next_seq()
    envelope, row = pair(seq, f"agent-{seq % BOXES}")
    tx.add(envelope, [row])


def ready_made(first: int, count: int) -> list[Unit]:
    """Units whose rows are made already, so that the store alone is measured."""

    def unit(envelope: Envelope, row: Delivery) -> Unit:
        return lambda tx: tx.add(envelope, [row])

    return [unit(*pair(seq, f"agent-{seq % BOXES}")) for seq in range(first, first + count)]


def take(tx: Tx, mailbox: str, count: int) -> list[Parcel]:
    found = tx.waiting(Scope(mailbox), count, 8 << 20)
    for parcel in found:
        old = parcel.delivery
        tx.move(old, old._replace(state=State.LEASED, attempt=1, hand=Hand.CLAIM, leased_at=NOW, sweep_at=None))
    return found


def settle(tx: Tx, taken: list[Parcel]) -> None:
    for parcel in taken:
        old = parcel.delivery._replace(state=State.LEASED, attempt=1, hand=Hand.CLAIM, leased_at=NOW, sweep_at=None)
        tx.move(old, old._replace(state=State.DELIVERED, delivered_at=NOW, sweep_at=NOW + 30 * DAY))


def quantiles(times: list[float]) -> str:
    times.sort()
    p50, p99, worst = (times[min(len(times) - 1, int(len(times) * q))] * 1e6 for q in (0.5, 0.99, 1.0))
    return f"p50 {p50:6.0f} µs  p99 {p99:6.0f} µs  worst {worst:7.0f} µs"


async def adds(folder: Path) -> None:
    """So many senders, each with one add under way."""
    for senders in (1, 4, 16, 64, 256, 1024):
        store = await SqliteStore.open(folder / f"adds-{senders}", now=NOW)
        units = iter(ready_made(1, 6_000 if senders == 1 else 60_000))
        times: list[float] = []
        ends = time.perf_counter() + PART_SECONDS

        async def sender(store: SqliteStore, units: Iterator[Unit], times: list[float], ends: float) -> None:
            for unit in units:
                start = time.perf_counter()
                if start > ends:
                    return
                await store.write(unit)
                times.append(time.perf_counter() - start)

        used = await store.write(lambda tx: time.thread_time())
        start = time.perf_counter()
        await asyncio.gather(*[sender(store, units, times, ends) for _ in range(senders)])
        took = time.perf_counter() - start
        used = await store.write(lambda tx: time.thread_time()) - used
        await store.close()
        count = len(times)
        print(
            f"add    {senders:5} at once  {count / took:7.0f}/s  cpu {used / count * 1e6:5.1f} µs  {quantiles(times)}"
        )


async def bulk(folder: Path) -> None:
    """Adds that do not wait for one another: what the writer can do at most."""
    store = await SqliteStore.open(folder / "bulk", now=NOW)
    units = ready_made(1, 20 * 4096)
    used = await store.write(lambda tx: time.thread_time())
    start = time.perf_counter()
    for first in range(0, len(units), 4096):
        await asyncio.gather(*[store.write(unit) for unit in units[first : first + 4096]])
    took = time.perf_counter() - start
    used = await store.write(lambda tx: time.thread_time()) - used
    await store.close()
    print(f"add    in groups of 256  {len(units) / took:7.0f}/s  cpu {used / len(units) * 1e6:5.1f} µs")


async def fill(store: SqliteStore, count: int, mailbox: Callable[[int], str]) -> None:
    def unit(tx: Tx) -> None:
        for _ in range(1000):
            seq = tx.next_seq()
            envelope, row = pair(seq, mailbox(seq))
            tx.add(envelope, [row])

    for _ in range(count // 4000):
        await asyncio.gather(*[store.write(unit) for _ in range(4)])
    for _ in range(count % 4000 // 1000):
        await store.write(unit)


async def claims(folder: Path) -> None:
    """Claim and ack from one mailbox that holds so many."""
    for backlog in (1_000, 1_000_000):
        store = await SqliteStore.open(folder / f"claims-{backlog}", now=NOW)
        await fill(store, backlog, lambda _: "claude")
        for count in (1, 100):
            claimed: list[float] = []
            acked: list[float] = []
            for _ in range(300 if count == 1 else 7):
                start = time.perf_counter()
                taken = await store.write(lambda tx, count=count: take(tx, "claude", count))  # type: ignore[misc]
                middle = time.perf_counter()
                assert len(taken) == count
                await store.write(lambda tx, taken=taken: settle(tx, taken))  # type: ignore[misc]
                claimed.append(middle - start)
                acked.append(time.perf_counter() - middle)
            print(f"claim  {count:3} of {backlog:9,}   {quantiles(claimed)}")
            print(f"ack    {count:3} of {backlog:9,}   {quantiles(acked)}")
        await store.close()


async def fanout(folder: Path) -> None:
    """One message for 2,000 recipients."""
    store = await SqliteStore.open(folder / "fanout", now=NOW)
    await fill(store, 20_000, lambda seq: f"agent-{seq % 2000}")
    whole: list[float] = []
    inside: list[float] = []
    for _ in range(20):

        def unit(tx: Tx) -> None:
            start = time.perf_counter()
            seqs = [tx.next_seq() for _ in range(2000)]
            envelope, _ = pair(seqs[0], "agent-0")
            tx.add(envelope, [delivery(envelope, seq, f"agent-{index}") for index, seq in enumerate(seqs)])
            inside.append(time.perf_counter() - start)

        start = time.perf_counter()
        await store.write(unit)
        whole.append(time.perf_counter() - start)
    await store.close()
    print(f"fanout to 2,000  unit    {quantiles(inside)}")
    print(f"fanout to 2,000  on disk {quantiles(whole)}")


async def start(folder: Path) -> None:
    """Open a store whose hub was killed while 100,000 and 1,000,000 waited, 10,000 of them leased."""
    for count in (100_000, 1_000_000):
        path = folder / f"start-{count}"
        child = [sys.executable, "-m", "bench.store", "--fill-and-die", str(path), str(count)]
        await asyncio.to_thread(subprocess.run, child, check=False)
        begun = time.perf_counter()
        store = await SqliteStore.open(path, now=NOW)
        opened = time.perf_counter() - begun
        await store.write(add)
        ready = time.perf_counter() - begun
        waiting = sum(store.load(f"agent-{box}").ready for box in range(BOXES))
        size = path.stat().st_size >> 20
        await store.close()
        print(f"start  with {waiting:9,} waiting ({size} MB): open {opened:5.2f} s, first add done {ready:5.2f} s")


async def fill_and_die(path: Path, count: int) -> None:
    store = await SqliteStore.open(path, now=NOW)
    await fill(store, count, lambda seq: f"agent-{seq % BOXES}")
    for box in range(BOXES):
        await store.write(lambda tx, box=box: take(tx, f"agent-{box}", 100) and None)  # type: ignore[misc]
    os.kill(os.getpid(), signal.SIGKILL)


async def checkpoints(folder: Path) -> None:
    """How long a commit waits for a checkpoint: the slowest of many lone adds, in a store that holds 200,000."""
    store = await SqliteStore.open(folder / "checkpoints", now=NOW)
    await fill(store, 200_000, lambda seq: f"agent-{seq % BOXES}")
    times: list[float] = []
    longest = 0
    ends = time.perf_counter() + 3 * PART_SECONDS
    while (begun := time.perf_counter()) < ends:
        await store.write(add)
        times.append(time.perf_counter() - begun)
        longest = max(longest, (folder / "checkpoints-wal").stat().st_size)
    slow = sum(took > 0.002 for took in times)
    await store.close()
    print(f"lone adds over checkpoints  {quantiles(times)}  {slow} of {len(times)} over 2 ms  log {longest >> 20} MB")


PARTS: dict[str, tuple[Callable[[Path], Awaitable[None]], ...]] = {
    "adds": (adds, bulk),
    "claims": (claims,),
    "fanout": (fanout,),
    "start": (start,),
    "checkpoints": (checkpoints,),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all when none is named")
    parser.add_argument("--in", dest="folder", type=Path, help="the disk to measure (a folder on it)")
    parser.add_argument("--fill-and-die", nargs=2, metavar=("PATH", "COUNT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fill_and_die:
        asyncio.run(fill_and_die(Path(given.fill_and_die[0]), int(given.fill_and_die[1])))
        return
    for name in given.parts or PARTS:
        for part in PARTS[name]:
            with tempfile.TemporaryDirectory(dir=given.folder, prefix="angelia-bench-") as folder:
                asyncio.run(asyncio.wait_for(part(Path(folder)), 60))


if __name__ == "__main__":
    main()
