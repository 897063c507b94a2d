"""Kill the hub at its commits, freeze it, and let its clock jump, under load; the judge says what that broke.

    python -m tests.rigs.faults --seed 1 --minutes 5 --walk 60

First the hub dies at its first commit, then at its second, and so on through a start and what follows: before anything
of that commit is on the disk, and once all of it is and nobody has been told. Then, for as long as it is given, it is
killed at random, dies at some commit, is stopped for longer than a lease lasts, or its wall clock jumps: by an hour, a
day, ten years, and by an hour or a day across a restart. Senders and readers are those of `kills.py`. The exit code is
0 when there was no breach.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rigs import kills
from tests.rigs.history import Killed, Verdict, judge
from tests.rigs.scene import Scene, now
from tests.rigs.watched import WatchedHub

HOUR, DAY, TEN_YEARS = 3600.0, 86_400.0, 3652 * 86_400.0
JUMPS = tuple(sign * size for size in (HOUR, DAY, TEN_YEARS) for sign in (1, -1))
# How much later it is at a start than one would think. Ten years later everything is old, and at a start in the past a
# question is not over before the time at which it was asked has come: tests of their own show what becomes of those.
RESTARTS = (0.0, 0.0, 0.0, HOUR, HOUR, DAY)
# Beyond that the answers to the first questions, which are read at the end alone, would have expired.
FURTHEST = 6 * DAY
FROZEN_SECONDS = (0.3, 6.0)  # a lease of these runs lasts 2 or 4 s
COMMITS = 60  # of a hub under such load some are made each second
DEATH_SECONDS = 20.0
KINDS = ("kill", "commit", "freeze", "jump")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. ``walk``: up to which commit; ``count``: how many troubles after that, or else for ``seconds``."""

    seed: int = 1
    seconds: float = 60.0
    walk: int = 20
    count: int | None = None
    senders: int = 40
    readers: int = 20
    every: float = 1.0
    pause: float = 0.2
    drain_seconds: float = 180.0
    source: Path | None = None


@dataclass(slots=True)
class Result:
    """The judge's verdict, answers that the contract does not have, and what troubles there were."""

    verdict: Verdict
    faults: list[str]
    troubles: Counter[str]

    @property
    def good(self) -> bool:
        return not self.verdict.breaches and not self.faults


class _Troubles:
    """What befalls a hub."""

    def __init__(self, hub: WatchedHub, scene: Scene, plan: Plan) -> None:
        self._hub, self._scene, self._plan = hub, scene, plan
        self._off = 0.0  # of the clock at its last start
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        """All of them."""
        for commit in range(1, self._plan.walk + 1):
            for behind in (False, True):
                await self._walk(commit, behind=behind)
        await kills._ready(self._hub)
        ends, dealt, left = now() + self._plan.seconds, list[str](), self._plan.count
        while now() < ends if left is None else left > 0:
            await asyncio.sleep(self._plan.every * self._scene.dice.uniform(0.3, 1.7))
            dealt = dealt or self._scene.dice.sample(KINDS, len(KINDS))
            kind = dealt.pop()
            self.counts[kind] += 1
            await getattr(self, kind)()
            left = None if left is None else left - 1
        await kills._ready(self._hub)
        await asyncio.sleep(kills.CALM_SECONDS)

    async def _walk(self, commit: int, *, behind: bool) -> None:
        await self._end()
        self._hub.die_at(commit, behind=behind)
        self._hub.launch()
        await self._death()
        self.counts["walk"] += 1
        self._hub.launch()

    async def kill(self) -> None:
        """SIGKILL, and perhaps another clock afterwards."""
        await self._end()
        self._clock(min(self._off + self._scene.dice.choice(RESTARTS), FURTHEST))
        self._hub.launch()
        await kills._ready(self._hub)

    async def commit(self) -> None:
        """At some commit from now."""
        self._clock(self._off)
        self._hub.die_at(self._scene.dice.randint(1, COMMITS), behind=self._scene.dice.random() < 0.5)
        await self._death()
        self._hub.launch()
        await kills._ready(self._hub)

    async def freeze(self) -> None:
        """Stopped, and on."""
        self._hub.freeze()
        await asyncio.sleep(self._scene.dice.uniform(*FROZEN_SECONDS))
        self._hub.thaw()

    async def jump(self) -> None:
        """While it runs, nothing comes of it: its time goes on from that of its start."""
        self._hub.jump(self._scene.dice.choice(JUMPS))

    def _clock(self, off: float) -> None:
        self._off = off
        self._hub.jump(off)
        self._scene.offsets.add(off)

    async def _end(self) -> None:
        self._scene.history.add(Killed(at=now()))
        await asyncio.to_thread(self._hub.kill9)

    async def _death(self) -> None:
        assert self._hub.process is not None
        ends = now() + DEATH_SECONDS
        while self._hub.process.poll() is None:
            assert now() < ends, f"it did not die in {DEATH_SECONDS} s, after {self._hub.commits} commits"
            await asyncio.sleep(0.02)
        self._hub.die_at(0)
        await self._end()


def run(plan: Plan) -> Result:
    """The whole of it."""
    load = kills.Plan(
        seed=plan.seed, senders=plan.senders, readers=plan.readers, pause=plan.pause, drain_seconds=plan.drain_seconds
    )
    counts: Counter[str] = Counter()

    async def befall(scene: Scene) -> None:
        troubles = _Troubles(hub, scene, plan)
        await troubles.run()
        counts.update(troubles.counts)

    with WatchedHub(source=plan.source, env=kills.ENVIRONMENT) as hub:
        scene = asyncio.run(kills._play(hub, load, befall))
        code, _ = hub.stop()
        if code:
            scene.fault(f"the hub ended with {code} when it was asked to end")
        if "Traceback" in (output := hub.output()):
            scene.fault("the hub's output holds a traceback:\n" + output[output.index("Traceback") :][:3000])
    return Result(judge(scene.history), scene.faults, counts)


def main(words: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0, help="of random troubles, after the walk")
    parser.add_argument("--walk", type=int, default=20, metavar="COMMITS")
    parser.add_argument("--senders", type=int, default=40)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--source", type=Path, help="another src folder: a hub that was broken on purpose")
    given = vars(parser.parse_args(words))
    plan = Plan(seconds=given.pop("minutes") * 60, **given)
    begun = time.monotonic()
    result = run(plan)
    print(result.verdict)
    for fault in result.faults:
        print("fault:", fault)
    seconds = round(time.monotonic() - begun, 1)
    print(json.dumps({"seed": plan.seed, "seconds": seconds, **result.troubles, **result.verdict.figures}))
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
