"""How many deliveries a second reach live streams: broadcasts to 2,000 agents, each of which has one open.

The clock runs from the first byte of the first broadcast until the last event of the last one has been read.
"""

import json
import time

from bench.figures import Bench, Figure, Measured
from bench.load import median
from bench.peers.angelia import Angelia
from bench.peers.peer import TEXT, BadAnswer, http_request
from bench.process import connect

STREAMS = 2000
BROADCASTS = 10
PATIENCE_SECONDS = 60.0
LIMITS = (
    "Python and the kernel: for each delivery a row, its settling, an event's bytes and a write to a socket, "
    "which alone is some 10 µs here."
)
FANOUT = Figure("fanout", "deliveries/s to 2,000 streams", 30_000, 45_000, "/s", LIMITS, higher_is_better=True)
FIGURES = (FANOUT,)


def measure(bench: Bench) -> list[Measured]:
    """The figure."""
    hub = Angelia(bench.place("angelia"))
    try:
        audience = hub.audience(0, STREAMS)
        body = json.dumps({"from": "hermes", "to": "*", "text": TEXT}).encode()
        broadcast = http_request("POST", "/v1/messages", hub.port, body)
        rates, cost, wanted = [], [], STREAMS * BROADCASTS
        for number in bench.rounds(6):
            with connect(hub.port) as connection:
                used, started = hub.process.cpu_seconds(), time.perf_counter()
                got = audience.hear(connection, broadcast * BROADCASTS, wanted, PATIENCE_SECONDS)
                seconds = time.perf_counter() - started
                audience.drain()
            if got != wanted:
                raise BadAnswer(f"{got} of {wanted} events came in {PATIENCE_SECONDS} s")
            if number == 0:
                continue  # the hub's caches and the sockets' buffers are new
            rates.append(wanted / seconds)
            cost.append((hub.process.cpu_seconds() - used) / wanted)
            bench.tell(f"round {number}: {rates[-1]:,.0f}/s")
        audience.close()
    finally:
        hub.stop()
    told = f"{median(cost) * 1e6:.0f} µs of the hub's processor for a delivery"
    return [Measured(FANOUT, median(rates), told, {"deliveries/s": rates})]
