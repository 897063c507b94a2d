"""A hub with 1,000,000 messages waiting: claims and polls against one with 1,000, and its start after SIGKILL.

Both hubs run at once and are asked in turn. What was taken is put back as new mail outside the clock, so that the small
one stays at 1,000.
"""

import socket
import time
from collections.abc import Callable

from bench.figures import Bench, Figure, Measured, microseconds
from bench.load import Crowd, median
from bench.peers.angelia import READER, Angelia
from bench.peers.peer import BadAnswer
from bench.process import connect

MANY, FEW = 1_000_000, 1_000
BATCH, TAKEN = 1000, 10
CONNECTIONS = 2
FILL_SECONDS = 180.0
DEPTH = Figure(
    "depth", "claim and poll with 1,000,000 waiting over 1,000", 1.2, 1.0, "×",
    "Nothing that grows with the backlog: an index finds the first rows. What is left is one more level of the trees "
    "and colder pages.",
)  # fmt: skip
RESTART = Figure(
    "restart", "ready after SIGKILL with 1,000,000 rows", 5, 2, "s",
    "Starting Python and importing the hub (some 0.3 s), then one walk over the index of open deliveries for the sums.",
)  # fmt: skip
FIGURES = (DEPTH, RESTART)


def measure(bench: Bench) -> list[Measured]:
    """Both figures; the filling is most of the time."""
    many = MANY // 10 if bench.quick else MANY
    large, small = Angelia(bench.place("large")), Angelia(bench.place("small"))
    try:
        many = _fill(bench, large, many)
        _fill(bench, small, FEW)
        return [_depth(bench, large, small, many), _restart(bench, large, many)]
    finally:
        large.stop()
        small.stop()


def _fill(bench: Bench, hub: Angelia, count: int) -> int:
    """Store so many, or as many as there is time for; how many those are."""
    request = hub.batch(BATCH, READER)
    done, started = 0, time.monotonic()
    while done < count and time.monotonic() - started < FILL_SECONDS:
        size = min(count - done, 20 * BATCH)
        crowd = Crowd(hub, [(connect(hub.port), request) for _ in range(min(CONNECTIONS, size // BATCH))])
        crowd.run_count(size // BATCH)
        crowd.close()
        done += size
        if done % 100_000 == 0:
            bench.tell(f"{done:,} of {count:,} stored, {done / (time.monotonic() - started):,.0f}/s")
    if done < count:
        bench.tell(f"only {done:,} stored in {FILL_SECONDS:.0f} s: the figures are those of so many")
    return done


def _depth(bench: Bench, large: Angelia, small: Angelia, many: int) -> Measured:
    asks: dict[str, Callable[[Angelia, socket.socket], None]] = {"claim": _claim, "poll": _poll}
    took: dict[str, list[float]] = {f"{name}, {size:,}": [] for name in asks for size in (many, FEW)}
    refill = large.batch(TAKEN, READER), small.batch(TAKEN, READER)
    with connect(large.port) as to_large, connect(small.port) as to_small:
        sides = ((large, to_large, many, refill[0]), (small, to_small, FEW, refill[1]))
        for number in range(60 if bench.quick else 300):
            for name, ask in asks.items():
                for hub, connection, size, more in sides:
                    started = time.perf_counter()
                    ask(hub, connection)
                    seconds = time.perf_counter() - started
                    if number >= 20:
                        took[f"{name}, {size:,}"].append(seconds)
                    connection.sendall(more)
                    hub.answer_on(connection)
    middle = {name: median(values) for name, values in took.items()}
    ratios = {name: middle[f"{name}, {many:,}"] / middle[f"{name}, {FEW:,}"] for name in asks}
    told = ", ".join(f"{name} {microseconds(value)}" for name, value in middle.items())
    return Measured(DEPTH, max(ratios.values()), told, {name: [value] for name, value in ratios.items()})


def _claim(hub: Angelia, connection: socket.socket) -> None:
    status, answer = hub.call_on(connection, "POST", f"/v1/agents/{READER}/claim", {"limit": TAKEN})
    assert (status, len(answer["deliveries"])) == (200, TAKEN), answer


def _poll(hub: Angelia, connection: socket.socket) -> None:
    status, answer = hub.call_on(connection, "GET", f"/poll?agent={READER}&limit={TAKEN}")
    assert (status, len(answer["messages"])) == (200, TAKEN), answer


def _restart(bench: Bench, hub: Angelia, many: int) -> Measured:
    seconds = []
    for number in bench.rounds(3):
        hub.restart()
        seconds.append(hub.ready_seconds)
        bench.tell(f"round {number + 1}: {seconds[-1]:.2f} s")
    status, answer = hub.call("GET", "/status")
    left = answer["queues"][READER]
    if status != 200 or left < many * 0.9:
        raise BadAnswer(f"{left:,} are waiting after the restarts")
    size = hub.database.stat().st_size
    return Measured(RESTART, median(seconds), f"{left:,} waiting, {size / 1e6:,.0f} MB", {"seconds": seconds})
