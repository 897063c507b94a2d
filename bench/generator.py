"""Is the load fast enough? The same 64 connections against a server that answers everything with the same bytes.

The rate here is what the load and the kernel can do together; what is measured elsewhere has to stay well below it.
"""

from bench.figures import Bench, Figure, Measured
from bench.load import Crowd, median
from bench.peers.canned import Canned
from bench.sends import CONNECTIONS

GENERATOR = Figure(
    "generator", "requests/s that the load itself can make", 30_000, 40_000, "/s",
    "The load, in Python on one core, and the kernel; a check of the measuring, not of the hub.",
    higher_is_better=True,
)  # fmt: skip
FIGURES = (GENERATOR,)


def measure(bench: Bench) -> list[Measured]:
    """The figure."""
    canned = Canned(bench.place("canned"))
    try:
        rates, own = [], []
        for number in bench.rounds(3):
            crowd = Crowd(canned, [canned.sender(each) for each in range(CONNECTIONS)])
            rate = crowd.run(1.0)
            crowd.close()
            rates.append(rate.each_second)
            own.append(rate.own)
            bench.tell(f"round {number + 1}: {rates[-1]:,.0f}/s")
    finally:
        canned.stop()
    told = f"{median(own) / median(rates) * 1e6:.0f} µs of the load's processor for a request"
    return [Measured(GENERATOR, median(rates), told, {"requests/s": rates})]
