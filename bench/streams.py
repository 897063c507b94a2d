"""What streams cost that nothing happens on: memory of each of 10,000, and the processor with 1,000."""

import resource
import time

from bench.figures import Bench, Figure, Measured
from bench.peers.angelia import Angelia
from bench.process import has_proc

MANY, SOME = 10_000, 1_000
MEMORY = Figure(
    "memory", "memory of one of 10,000 idle streams", 20, 12, "KB",
    "The objects of uvicorn, uvloop and asyncio for a connection, its request and its task; the kernel's own part of "
    "a socket is not counted.",
)  # fmt: skip
IDLE = Figure(
    "idle", "CPU of an idle hub with 1,000 streams", 1, 0.3, "% of a core",
    "A wake-up every 5 s, at which a third of the streams gets the keep-alive that is due every 15 s.",
)  # fmt: skip
FIGURES = (MEMORY, IDLE)


def measure(bench: Bench) -> list[Measured]:
    """Both; one after the other, since an idle hub must be alone."""
    if not has_proc():
        bench.tell("left out: this system has no /proc")
        return []
    _allow_files(MANY + 500)
    return [_memory(bench), _idle(bench)]


def _memory(bench: Bench) -> Measured:
    count = MANY // 5 if bench.quick else MANY
    hub = Angelia(bench.place("angelia"))
    try:
        audience = hub.audience(0, 100)  # what is made once does not count
        before = hub.process.rss_bytes()
        bench.tell(f"{before / 1e6:.0f} MB with 100 streams; opening {count:,} more")
        more = hub.audience(100, count)
        after = hub.process.rss_bytes()
        audience.close()
        more.close()
    finally:
        hub.stop()
    told = f"{before / 1e6:.0f} MB before, {after / 1e6:.0f} MB with {count:,} more streams of as many agents"
    return Measured(MEMORY, (after - before) / count / 1000, told)


def _idle(bench: Bench) -> Measured:
    hub = Angelia(bench.place("angelia"))
    seconds = 10.0 if bench.quick else 30.0
    try:
        audience = hub.audience(0, SOME)
        bench.tell(f"watching for {seconds:.0f} s")
        used, started = hub.process.cpu_seconds(), time.perf_counter()
        audience.count(1, seconds)  # reads the keep-alives away
        share = (hub.process.cpu_seconds() - used) / (time.perf_counter() - started) * 100
        audience.close()
    finally:
        hub.stop()
    return Measured(IDLE, share, f"over {seconds:.0f} s")


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
