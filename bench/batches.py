"""How many durable sends a second in batches of 100, each with an outcome of its own."""

from bench.figures import Bench, Figure, Measured
from bench.load import Crowd, median
from bench.peers.angelia import READER, Angelia
from bench.process import connect

BATCH = 100
CONNECTIONS = 4  # one is parsed while another is stored
LIMITS = "Python: what each message costs without HTTP, in validating, in the unit of work and in its receipt."
BATCHES = Figure("batches", "durable sends/s in batches of 100", 30_000, 80_000, "/s", LIMITS, higher_is_better=True)
FIGURES = (BATCHES,)


def measure(bench: Bench) -> list[Measured]:
    """The figure."""
    hub = Angelia(bench.place("angelia"))
    try:
        request = hub.batch(BATCH, READER)
        rates, cost = [], []
        for number in bench.rounds(5):
            crowd = Crowd(hub, [(connect(hub.port), request) for _ in range(CONNECTIONS)])
            used = hub.process.cpu_seconds()
            rate = crowd.run(2.0)
            crowd.close()
            cost.append((hub.process.cpu_seconds() - used) / rate.count / BATCH)
            rates.append(rate.each_second * BATCH)
            bench.tell(f"round {number + 1}: {rates[-1]:,.0f}/s")
    finally:
        hub.stop()
    told = f"{CONNECTIONS} connections; {median(cost) * 1e6:.0f} µs of the hub's processor for a message"
    return [Measured(BATCHES, median(rates), told, {"messages/s": rates})]
