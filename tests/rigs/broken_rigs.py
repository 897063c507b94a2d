"""Hubs that were broken on purpose, to see that the rigs of commits, disks, the network and leaks notice by themselves.

    python -m tests.rigs.broken_rigs [NAME …]

As `broken.py`: each fault is a change of a few words in a copy of the source, and says so where the words are gone.
Here it is run under the rig that is named first, as short as that can be.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.rigs import disk, faults
from tests.rigs.broken import FAULTS as KILLS
from tests.rigs.broken import Fault, break_it
from tests.rigs.broken_parts import try_named
from tests.rigs.failing_up import SYNC
from tests.rigs.flood import flooded
from tests.rigs.leaks import run as use
from tests.rigs.network import bad_weather, cut_at_once, stalled_readers

DRAIN_SECONDS = 12.0
SYNCS = range(14, 24)


@dataclass(frozen=True, slots=True)
class Bite:
    """What is broken, and the rig: it is given a source, and says what was wrong. One of these must begin with what the
    fault must show as."""

    fault: Fault
    rig: Callable[[Path], list[str]]


def _commits(source: Path) -> list[str]:
    result = faults.run(faults.Plan(walk=4, count=8, every=0.6, drain_seconds=DRAIN_SECONDS, source=source))
    return [*(str(breach) for breach in result.verdict.breaches), *result.faults]


def _weather(source: Path) -> list[str]:
    return bad_weather(1, 14.0, senders=25, source=source).breaches


def _cut(source: Path) -> list[str]:
    return cut_at_once(1, 50, source=source).breaches


def _stalled(source: Path) -> list[str]:
    return stalled_readers(30, 1, stall_seconds=2, source=source).breaches


def _flood(source: Path) -> list[str]:
    return flooded(1, 1, source=source).breaches


def _disk(source: Path) -> list[str]:
    """Syncs of a hub's life fail, one after another from its first mail on, until it was one under a send."""
    for number in SYNCS:
        if (life := disk.one(SYNC, number, source).life).told is not None:
            return life.wrong
    return []


def _kept(file: str, gives_back: str, used: str, shows: str) -> Bite:
    """A hub that never gives something back, used once more in this way."""
    return Bite(
        Fault(file, ((gives_back, "pass\n"),), (shows,)), lambda source: use(1, only=[used], source=source).breaches
    )


FAULTS: dict[str, Bite] = {
    "commits: answered before the commit": Bite(KILLS["answered before the commit"], _commits),
    "commits: leases outlive the hub": Bite(KILLS["leases outlive the hub"], _commits),
    "weather: a repeat is a second message": Bite(KILLS["a repeat is a second message"], _weather),
    "cut at once: a resume shows nothing again": Bite(
        replace(KILLS["a resume shows nothing again"], shows=("not caught up",)), _cut
    ),
    "cut at once: whoever comes back waits for what is new": Bite(
        Fault(
            "bus/subscribe.py",
            (("elif stream.room() > 0 and bus.store.load(stream.mailbox).ready and", "elif stream.room() < 0 and"),),
            ("not caught up",),
        ),
        _cut,
    ),
    "standing still: nobody is cut": Bite(
        Fault("bus/timekeeper.py", (("    return now - since >= seconds\n", "    return False\n"),), ("not cut",)),
        _stalled,
    ),
    "standing still: the hub tries each of them again and waits": Bite(
        Fault(
            "bus/timekeeper.py",
            (
                (
                    "        if unsent := stream.connection.unsent():\n",
                    '        if unsent := stream.connection.unsent():\n            __import__("time").sleep(0.1)\n',
                ),
            ),
            ("held up",),
        ),
        _stalled,
    ),
    "flood: a sender has no share": Bite(
        Fault("bus/room.py", ((" and load.by_sender[me] < limits.mailbox_deliveries_per_sender\n", "\n"),), ("share",)),
        _flood,
    ),
    "flood: a refusal takes the writer's time": Bite(
        Fault(
            "bus/room.py",
            (
                (
                    "    mine, my_bytes = load.by_sender",
                    '    __import__("time").sleep(0.02)\n    mine, my_bytes = load.by_sender',
                ),
            ),
            ("held up",),
        ),
        _flood,
    ),
    "disk: a commit that failed is called an illness": Bite(
        Fault(
            "storage/sqlite/writer.py",
            (
                (
                    "unit.changes = OutcomeUnknown(UNKNOWN_DETAIL), (), ()",
                    "unit.changes = Unwell(UNKNOWN_DETAIL), (), ()",
                ),
            ),
            ("not told",),
        ),
        _disk,
    ),
    "leaks: a turn keeps its place": _kept("turns/slots.py", "self._held.discard(mailbox)\n", "turns", "turns: "),
    "leaks: a lease that has ended stays in the book": _kept(
        "bus/leases.py", "del self._by_key[key]\n", "claims", "claims: "
    ),
    "leaks: a stream keeps its place": _kept("bus/streams.py", "self.count -= 1\n", "streams", "streams: "),
    "leaks: what was written to a stream keeps its place in the window": _kept(
        "bus/streams.py", "self._freed += 1\n", "streams", "two streams: "
    ),
    "leaks: what has come of a body is counted for ever": _kept(
        "doors/http/call.py", "self.arriving.bytes -= size\n", "claims", "claims: "
    ),
    "leaks: a call keeps its place on a socket": _kept(
        "doors/gateway/server.py", "self._short.release()\n", "gateway", "a socket of the gateway: "
    ),
    "leaks: whoever has waited is counted for ever": _kept(
        "bus/signals.py", "del self._users[key], self._count[key]\n", "asks", "asks: "
    ),
    "leaks: what has crossed keeps its place on the link": _kept(
        "links/hub_link.py", "self._slots.release()\n", "links", "a link: "
    ),
}


def is_found(bite: Bite) -> tuple[bool, str]:
    """Run the rig on a broken copy: whether it found what the fault must show as, and what it said."""
    with tempfile.TemporaryDirectory(prefix="ang-broken-", dir="/tmp") as into:
        said = bite.rig(break_it(bite.fault, Path(into)))
    return any(breach.startswith(bite.fault.shows) for breach in said), "\n".join(said[:20])


if __name__ == "__main__":
    sys.exit(try_named(sys.argv[1:], FAULTS, is_found))
