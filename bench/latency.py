"""How long a message takes: from the first byte of a durable send until it is whole at the recipient's stream.

One message at a time, on connections that are open. JetStream's way is publish → push consumer. The floor is what any
durable bus on this HTTP stack pays: one ``fdatasync`` of a page, and one request to a bare ASGI application.
"""

from contextlib import ExitStack

from bench.figures import Bench, Figure, Measured, microseconds
from bench.load import latencies, median, round_trips
from bench.peers import installed
from bench.peers.angelia import Angelia
from bench.peers.bare import Bare, sync_seconds
from bench.peers.base import Peer
from bench.peers.seed import Seed

COUNT = 300
# So many commits that the hub's log has reached its full length, as in one that has run for a while.
WARM_UP = 1500
LIMITS = (
    "One fdatasync and about 400 µs of Python that a message passes on its way: parse, route, validate, "
    "the unit of work, the hand-over and the stream's task; code runs two to three times slower here than in a busy "
    "hub, because it finds the processor's caches cold after each wait."
)
LATENCY = Figure("latency", "send → stream, p50, over JetStream's publish → consumer", 1.0, 0.75, "×", LIMITS)
FLOOR = Figure("floor", "the same over one fdatasync and one bare request", 3.0, 2.0, "×", LIMITS)
FIGURES = (LATENCY, FLOOR)


def measure(bench: Bench) -> list[Measured]:
    """Both figures from the same rounds."""
    with ExitStack() as stack:
        hub = Angelia(bench.place("angelia"))
        stack.callback(hub.stop)
        peers: list[Peer] = [hub]
        for kind in (*installed(), Seed):
            peers.append(kind(bench.place(kind.name)))
            stack.callback(peers[-1].stop)
        bare = Bare(bench.place("bare"))
        stack.callback(bare.stop)
        bench.versions.update({peer.name: peer.version() for peer in peers})
        once(hub, WARM_UP)
        took: dict[str, list[float]] = {peer.name: [] for peer in peers} | {"fdatasync": [], "bare request": []}
        for number in bench.rounds(7):
            for peer in peers:
                took[peer.name].append(once(peer, COUNT))
            took["fdatasync"].append(median(sync_seconds(bench.folder, COUNT)))
            connection, request = bare.sender(0)
            with connection:
                took["bare request"].append(median(round_trips(bare, connection, request, COUNT)))
            bench.tell(f"round {number + 1}: " + ", ".join(f"{k} {microseconds(v[-1])}" for k, v in took.items()))
    middle = {name: median(values) for name, values in took.items()}
    told = ", ".join(f"{name} {microseconds(value)}" for name, value in middle.items())
    floor = middle["fdatasync"] + middle["bare request"]
    found = [Measured(FLOOR, middle["angelia"] / floor, f"the floor is {microseconds(floor)}", took)]
    if "jetstream" in middle:
        found.insert(0, Measured(LATENCY, middle["angelia"] / middle["jetstream"], told, took))
    return found


def once(peer: Peer, count: int) -> float:
    """The median over ``count`` messages on fresh connections."""
    connection, request = peer.sender(0)
    with peer.reader() as reader, connection:
        return median(latencies(peer, connection, request, reader, count))
