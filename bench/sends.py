"""How many durable sends a second from 64 connections, each of which waits for its answer before it sends again.

Nobody reads meanwhile. The seed's server takes a new connection for each and stores nothing on disk.
"""

from contextlib import ExitStack

from bench.figures import Bench, Figure, Measured
from bench.load import Crowd, Rate, median
from bench.peers.angelia import Angelia
from bench.peers.jetstream import JetStream
from bench.peers.peer import Peer
from bench.peers.redis import Redis
from bench.peers.seed import Seed

CONNECTIONS = 64
LIMITS = (
    "Python: some 100 µs of processor for one send, of which HTTP takes half, the unit of work a third and SQLite the "
    "rest; the disk is not the limit, since 64 senders share a commit."
)
OVER_JETSTREAM = Figure(
    "sends", "durable sends/s of 64 connections, over JetStream's", 1.5, 4, "×", LIMITS, higher_is_better=True
)
OVER_SEED = Figure("sends-seed", "the same over the seed's, which is not durable", 5, 15, "×", LIMITS, True)
FIGURES = (OVER_JETSTREAM, OVER_SEED)


def measure(bench: Bench) -> list[Measured]:
    """Both figures from the same rounds."""
    with ExitStack() as stack:
        hub = Angelia(bench.place("angelia"))
        stack.callback(hub.stop)
        peers: list[Peer] = [hub, *bench.start((JetStream, Redis, Seed), stack)]
        rates: dict[str, list[float]] = {peer.name: [] for peer in peers}
        own: list[float] = []
        for peer in peers:
            once(peer, 0.5)
        for number in bench.rounds(5):
            for peer in peers:
                rate = once(peer, 2.0)
                rates[peer.name].append(rate.each_second)
                if peer.name == "angelia":
                    own.append(rate.own)
            bench.tell(f"round {number + 1}: " + ", ".join(f"{k} {v[-1]:,.0f}/s" for k, v in rates.items()))
    middle = {name: median(values) for name, values in rates.items()}
    told = ", ".join(f"{name} {value:,.0f}/s" for name, value in middle.items())
    for name, value in middle.items():
        bench.beside.setdefault(name, {})[f"durable sends/s, {CONNECTIONS} connections"] = f"{value:,.0f}"
    load = f"the load took {median(own):.0%} of a core"
    found = []
    if "seed" in middle:
        found.append(Measured(OVER_SEED, middle["angelia"] / middle["seed"], load, rates))
    if "jetstream" in middle:
        found.insert(0, Measured(OVER_JETSTREAM, middle["angelia"] / middle["jetstream"], told, rates))
    return found


def once(peer: Peer, seconds: float) -> Rate:
    """One round, on fresh connections."""
    kept = [] if peer.fresh else [peer.sender(number) for number in range(CONNECTIONS)]
    crowd = Crowd(peer, kept)
    try:
        return crowd.run_fresh(seconds, CONNECTIONS) if peer.fresh else crowd.run(seconds)
    finally:
        crowd.close()
