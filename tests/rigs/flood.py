"""A sender that floods one mailbox, and ordinary traffic of others beside it: it fills its share and no more, and their
p99 at most doubles.

    python -m tests.rigs.flood --seed 1 --minutes 2

Calm and flood take turns, so that whatever else the machine does is beside both, and every other pair is turned round;
the medians of all windows are compared. What is sent in a window, and how it is refused, is the same each time: the
seed changes nothing but the names. The exit code is 0 when there was no breach.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.acceptance.hub import Hub
from tests.rigs.beside import Beside, Window
from tests.rigs.outcome import Result
from tests.rigs.talk import Broken, Talk

SHARE = 200  # of one sender in one mailbox, here: filled within the first moments
WINDOW_SECONDS = 5.0
CONNECTIONS = 8
PATIENCE_SECONDS = 20.0  # a busy machine takes longer to fill a share
P99_RATIO = 2.0


class Flood:
    """One sender on many connections, each sending as fast as it is answered."""

    def __init__(self, port: int, to: str, sender: str) -> None:
        self._port = port
        self._body = {"to": to, "text": "flood " * 100, "from": sender}
        self.statuses: Counter[int] = Counter()

    def run(self, seconds: float) -> None:
        """For so long, and until it was refused."""
        asyncio.run(self._run(seconds))

    async def _run(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONNECTIONS):
                tasks.create_task(self._line(ends))

    async def _line(self, ends: float) -> None:
        talk = Talk(self._port)
        while (now := time.monotonic()) < ends or (429 not in self.statuses and now < ends + PATIENCE_SECONDS):
            with suppress(Broken):
                said = await talk.call("POST", "/v1/messages", self._body)
                self.statuses[said.status] += 1
        talk.close()


def flooded(seed: int, rounds: int, *, source: Path | None = None) -> Result:
    """So many pairs of windows, each with a mailbox of its own."""
    calm, beside_flood, result = list[Window](), list[Window](), Result()
    statuses: Counter[int] = Counter()
    hub = Hub(source=source, env={"ANGELIA_LIMITS_MAILBOX_DELIVERIES_PER_SENDER": str(SHARE)})
    with hub, Beside(hub.port) as beside:
        for number in range(rounds):
            name = f"flooded{seed}x{number}"
            hub.claim(name)
            beside.window()
            for floods in (False, True) if number % 2 == 0 else (True, False):
                if not floods:
                    calm.append(beside.after(WINDOW_SECONDS))
                    continue
                flood = Flood(hub.port, name, "flooder")
                flood.run(WINDOW_SECONDS)
                beside_flood.append(beside.window())
                statuses += flood.statuses
            if (kept := hub.inbox(name)["total"]) != SHARE:
                result.breaches.append(f"share: {kept} of {SHARE} are in {name}")
            said = hub.post("/v1/messages", {"to": name, "text": "there is room for me", "from": "neighbour"})
            if said.status != 201:
                result.breaches.append(f"locked out: a neighbour is answered with {said.status} {said.code}")
    if unmeant := {status: count for status, count in statuses.items() if status not in (201, 429)}:
        result.breaches.append(f"answers: {unmeant}")
    if failed := sum(window.failed for window in (*calm, *beside_flood)):
        result.breaches.append(f"failed: {failed} requests of others")
    ratio = statistics.median(each.p99 for each in beside_flood) / statistics.median(each.p99 for each in calm)
    if ratio > P99_RATIO:
        result.breaches.append(f"held up: the others' p99 is {ratio:.2f} of what it was")
    result.figures = {
        "floods": rounds,
        "accepted": statuses[201],
        "refused": statuses[429],
        "p99 ms calm": [round(each.p99 * 1000, 1) for each in calm],
        "p99 ms beside a flood": [round(each.p99 * 1000, 1) for each in beside_flood],
        "p99 ratio": round(ratio, 2),
    }
    return result


def main(words: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--source", type=Path, help="another src folder: a hub that was broken on purpose")
    given = parser.parse_args(words)
    result = flooded(given.seed, max(1, round(given.minutes * 30 / WINDOW_SECONDS)), source=given.source)
    for breach in result.breaches[:20]:
        print(breach)
    print(json.dumps({"seed": given.seed, **result.figures}))
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
