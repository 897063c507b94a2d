"""Links that were broken on purpose, to see that the judge of `hubs.py` notices.

    python -m tests.rigs.broken_links [NAME …]

As `broken.py`: each fault is a change of a few words in a copy of the source, and says so where the words are gone.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.rigs.broken import Fault, break_it
from tests.rigs.broken_parts import try_named
from tests.rigs.hubs import Plan, Result, run

SECONDS = 30.0  # in fewer, a run may see too few cuts for the order to break
DRAIN_SECONDS = 15.0

FAULTS: dict[str, Fault] = {
    "said to be stored before it is": Fault(
        "bus/arrive.py",
        (
            (
                "    units = [bus.store.write(_each(bus, connection, part, behind), weight=4096 * len(part)) for part "
                "in parts]\n",
                "    def later() -> None:\n"
                "        for part in parts:\n"
                "            bus.store.write(_each(bus, connection, part, behind), weight=4096 * len(part))\n"
                '    __import__("asyncio").get_running_loop().call_later(0.3, later)\n',
            ),
            (
                "    return [stored for part in await asyncio.gather(*units) for stored in part]\n",
                "    return [Stored(stored=True) for _ in given]\n",
            ),
        ),
        ("lost", "stranded", "no outcome"),
    ),
    "what was on its way when the line broke is let go": Fault(
        "links/hub_link.py",
        (("            detach(self._bus, self._carrier)\n", "            pass\n"),),
        ("stranded", "lost", "crossed late", "no outcome"),
    ),
    "outcomes are told to nobody": Fault(
        "links/hub_link.py",
        (('if await _call(channel, "hub.settle", {"outcomes": outcomes}) is None:', "if False:"),),
        ("stranded",),
    ),
    "forwarded before it is there": Fault(
        "links/hub_link.py",
        (
            (
                '            answer = await channel.call("hub.send"',
                "            forwarded(self._bus, [parcel for parcel, _ in part])\n"
                '            answer = await channel.call("hub.send"',
            ),
        ),
        ("stranded", "no outcome", "lost"),
    ),
    "what is accepted passes what waits": Fault(
        "bus/carriers.py",
        (("        if self.behind or tx.load(mailbox).ready:\n", "        if False:\n"),),
        ("out of order",),
    ),
    "what comes back to a link takes a new place": Fault(
        "bus/claim.py",
        (
            (" or hand is Hand.LINK else", " else"),
            # A few at a time, so that a cut finds some that were claimed before others that waited with them.
            ("    looking = limit > 0\n", "    limit = min(limit, 5)\n    looking = limit > 0\n"),
        ),
        ("out of order",),
    ),
}


def try_it(fault: Fault, *, seed: int = 1, seconds: float = SECONDS) -> Result:
    """Run broken hubs under troubles, on loopback, where a cut resets lines in the middle."""
    with tempfile.TemporaryDirectory(prefix="ang-broken-", dir="/tmp") as into:
        source = break_it(fault, Path(into))
        return run(Plan(
            seed=seed, seconds=seconds, ground="loopback", shape="line", pause=0.03, trouble_every=1.0, source=source,
            drain_seconds=DRAIN_SECONDS,
        ))  # fmt: skip


def is_found(fault: Fault, result: Result) -> bool:
    """Whether the judge found what the fault must show as."""
    return bool({breach.kind for breach in result.verdict.breaches} & set(fault.shows))


def _tried(fault: Fault) -> tuple[bool, str]:
    result = try_it(fault)
    kinds = dict(Counter(breach.kind for breach in result.verdict.breaches))
    return is_found(fault, result), f"{kinds} faults: {len(result.faults)}"


if __name__ == "__main__":
    sys.exit(try_named(sys.argv[1:], FAULTS, _tried))
