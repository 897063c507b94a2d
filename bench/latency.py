"""How long a message takes: from the first byte of a durable send until it is whole at the recipient's stream.

One message at a time, on connections that are open. JetStream's way is publish → push consumer. The floor is what any
durable bus on this HTTP stack pays: one ``fdatasync`` of a page, and one request to a bare ASGI application.
"""

from contextlib import ExitStack

from bench.figures import Bench, Figure, Measured, microseconds, spread
from bench.load import latencies, median, round_trips
from bench.peers.angelia import Angelia
from bench.peers.bare import Bare, sync_seconds
from bench.peers.jetstream import JetStream
from bench.peers.peer import Peer
from bench.peers.redis import Redis
from bench.peers.seed import Seed

SLICE = 20  # messages of one peer, before the next one's turn: a slow moment of the machine falls on all of them
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
        peers: list[Peer] = [hub, *bench.start((JetStream, Redis, Seed), stack)]
        bare = Bare(bench.place("bare"))
        stack.callback(bare.stop)
        bench.versions[hub.name] = hub.version()
        lines = [Line(peer) for peer in peers]
        lines[0].messages(WARM_UP)
        names = [*(peer.name for peer in peers), "fdatasync", "bare request"]
        took: dict[str, list[float]] = {name: [] for name in names}
        connection, request = bare.sender(0)
        for number in bench.rounds(100, 25):
            for line in lines:
                took[line.peer.name] += line.messages(SLICE)
            took["fdatasync"] += sync_seconds(bench.folder, SLICE)
            took["bare request"] += round_trips(bare, connection, request, SLICE)
            if number % 25 == 24:
                shown = ", ".join(f"{name} {microseconds(median(values))}" for name, values in took.items())
                bench.tell(f"{len(took['angelia']):,} messages each: {shown}")
    middle = {name: median(values) for name, values in took.items()}
    told = ", ".join(f"{name} {microseconds(value)}" for name, value in middle.items())
    for name, value in middle.items():
        bench.beside.setdefault(name, {})["send → recipient, p50"] = microseconds(value)
    floor = middle["fdatasync"] + middle["bare request"]
    found = [Measured(FLOOR, middle["angelia"] / floor, f"the floor is {microseconds(floor)}", spread(took))]
    if "jetstream" in middle:
        found.insert(0, Measured(LATENCY, middle["angelia"] / middle["jetstream"], told, spread(took)))
    return found


class Line:
    """A sender's and a recipient's connection to one peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._reader = peer.reader()
        self._sender = peer.sender(0)

    def messages(self, count: int) -> list[float]:
        """Seconds from send to recipient, of so many messages one after another."""
        took, self._sender = latencies(self.peer, self._sender, self._reader, count)
        return took

    def close(self) -> None:
        """Let go of both."""
        self._reader.close()
        self._sender[0].close()
