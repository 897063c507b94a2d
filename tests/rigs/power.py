"""Cut the power again and again under load, and let the judge say whether anything that was promised broke.

    python -m tests.rigs.power --seed 1 --cuts 40 --minutes 5

The hub's folder is on an ext4 of its own, on a loop device. A cut is the kernel's shutdown of that file system at a
random moment: what is not on the disk by then is gone. The hub is killed, the image copied, the copy mounted in the
place of the first, and a hub started on it; senders and readers go on meanwhile, as they do in `kills.py`. Some cuts
come in the first moments of a folder's life, some while a hub recovers from the one before. It ends after so many cuts,
or after so many minutes, whichever is first, and judges what was done. Takes root. The exit code is 0 when there was no
breach.
"""

import argparse
import asyncio
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import apsw

from angelia.storage.sqlite.looking import Damaged, Pace, look_through
from tests.acceptance.hub import Hub
from tests.rigs import kills
from tests.rigs.history import judge
from tests.rigs.mounted import Disk, apart
from tests.rigs.scene import MAILBOXES, now

# A disk lives through so many cuts; then comes a new one, mounted another way.
DISK_CUTS = 50
MOUNTED = ("", "data=writeback", "data=journal")
# Of so many cuts one comes while a folder is being made.
YOUNG_EVERY = 10
YOUNG_SECONDS = 0.6  # a first start takes some 0.4 s
SHOWN = 40


@dataclass
class PoweredHub(Hub):
    """A hub whose end, when it is killed, is that of its disk's power, too."""

    disk: Disk | None = None
    options: str = ""
    cuts: int = 0
    # What was said up to each cut: afterwards, until it is killed, it may complain of its disk.
    said: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.base / "disk" / "d"

    def __enter__(self) -> "PoweredHub":
        self.disk = Disk(self.base / "disk", self.options)
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        super().kill9()
        if self.disk is not None:
            self.disk.close()
        super().__exit__()

    def kill9(self) -> None:
        """A power cut; when it is back, the disk holds what it held."""
        assert self.disk is not None
        if self.process is not None:
            self.said.append(self.output())
            self.disk.cut()
            super().kill9()
            (self.base / "output").write_bytes(b"")
            self.disk.again()
            self.cuts += 1

    def cli_environment(self, **more: str) -> dict[str, str]:
        """Commands run on a machine whose power stays."""
        return super().cli_environment(ANGELIA_URL=self.url, ANGELIA_DATA_DIR=str(self.base / "clients"), **more)

    def everything(self) -> str:
        """All that its processes said while there was power."""
        return "\n".join([*self.said, self.output()])


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do; ``keep``: the folder where history and disk of a breach are written."""

    seed: int = 1
    cuts: int = 40
    minutes: float = math.inf
    senders: int = 30
    every: float = 0.6
    pause: float = 0.05
    drain: float = 60.0
    durability: str = "full"
    source: Path | None = None
    keep: Path | None = None


@dataclass(slots=True)
class Result:
    """The figures, and what was wrong."""

    figures: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.breaches


def run(plan: Plan) -> Result:
    """The whole of it."""
    result = Result()
    dice = random.Random(plan.seed)
    ends = now() + plan.minutes * 60
    left, disk = plan.cuts, 0
    while left > 0 and now() < ends:
        cuts = min(left, DISK_CUTS)
        left -= cuts
        young = cuts // YOUNG_EVERY
        load = replace(_load(plan), seed=dice.getrandbits(32), kills=cuts - young, until=ends)
        _one_disk(plan, load, MOUNTED[disk % len(MOUNTED)], result)
        _young(plan, dice, young, ends, result)
        disk += 1
        print(f"{result.figures['cuts']} cuts", _short(result), flush=True)
    return result


def _one_disk(plan: Plan, load: kills.Plan, options: str, result: Result) -> None:
    """Load, and so many cuts, on one disk; then everything is drained, judged and looked through."""
    with _hub(plan, options) as hub:
        _settle_in(hub)
        scene = asyncio.run(kills._play(hub, load))
        store = hub.folder / "angelia.db"
        code, _ = hub.stop()
        faults = [*scene.faults, *([f"the hub ended with {code} when it was asked to end"] if code else [])]
        faults += _damage(store)
        said = hub.everything()
        if "Traceback" in said:
            faults.append("the hub's output holds a traceback:\n" + said[said.index("Traceback") :][:3000])
        if "is damaged" in said:
            faults.append("the hub says that something is damaged:\n" + said[said.index("is damaged") - 200 :][:600])
        verdict = judge(scene.history)
        result.figures.update(verdict.figures)
        result.figures["cuts"] += hub.cuts
        result.breaches += [str(breach) for breach in verdict.breaches] + faults
        if plan.keep is not None and (verdict.breaches or faults):
            name = plan.keep / f"power-{load.seed}"
            name.with_suffix(".history").write_text("\n".join(scene.history.lines()))
            assert hub.disk is not None
            hub.disk.keep(name.with_suffix(".image"))


def _settle_in(hub: PoweredHub) -> None:
    """Let the mailboxes be older than any cut: one that was made a moment ago has its own place, in ``_young``."""
    for mailbox in MAILBOXES:
        hub.claim(mailbox)
    hub.stop()
    hub.start()


def _young(plan: Plan, dice: random.Random, cuts: int, ends: float, result: Result) -> None:
    """Cuts while a folder is being made: whatever is there of it, the next start serves."""
    for number in range(cuts):
        if now() > ends:
            return
        hub = _hub(plan, MOUNTED[number % len(MOUNTED)])
        try:
            hub.disk = Disk(hub.base / "disk", hub.options)
            hub.launch()
            time.sleep(dice.uniform(0, YOUNG_SECONDS))
            hub.kill9()
            hub.start()
            hub.claim("box")
            hub.send("box", "first", "sender")
            hub.kill9()
            hub.start()
            if [item["text"] for item in hub.poll("box")] != ["first"]:
                result.breaches.append("lost: the first message of a folder")
            result.figures["cuts"] += hub.cuts
            result.figures["accepted"] += 1
        except AssertionError as error:
            result.breaches.append(f"a folder that was being made when the power went: {error}")
        finally:
            hub.__exit__()


def _hub(plan: Plan, options: str) -> PoweredHub:
    args = ("--durability", plan.durability)
    return PoweredHub(source=plan.source, env=kills.ENVIRONMENT, args=args, options=options)


def _load(plan: Plan) -> kills.Plan:
    return kills.Plan(senders=plan.senders, kill_every=plan.every, pause=plan.pause, drain_seconds=plan.drain)


def _damage(store: Path) -> list[str]:
    """What is wrong with a store that nobody serves: every page, every row, every checksum; and what was set aside."""
    try:
        look_through(store, Pace(gentle=False))
    except Damaged as damaged:
        return [damaged.detail]
    db = apsw.Connection(str(store))
    try:
        aside = list(db.execute("SELECT message_id FROM damaged"))
    finally:
        db.close()
    return [f"{len(aside)} messages were set aside"] if aside else []


def _short(result: Result) -> str:
    kinds = Counter(breach.split(":", 1)[0] for breach in result.breaches)
    return ", ".join(f"{kind} ×{count}" for kind, count in kinds.items()) or "no breach"


def main(words: Sequence[str]) -> int:
    """The command line."""
    words = apart("tests.rigs.power", words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most")
    parser.add_argument("--senders", type=int, default=30)
    parser.add_argument("--every", type=float, default=0.6, metavar="SECONDS", help="between a start and the next cut")
    parser.add_argument("--pause", type=float, default=0.05, metavar="SECONDS", help="between a sender's messages")
    parser.add_argument("--drain", type=float, default=60.0, metavar="SECONDS", help="what is left then is lost")
    parser.add_argument("--durability", choices=("full", "normal"), default="full", help="normal must lose something")
    parser.add_argument("--source", type=Path, help="another src folder: a hub that was broken on purpose")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the history and the disk of a breach there")
    plan = Plan(**vars(parser.parse_args(words)))
    begun = time.monotonic()
    result = run(plan)
    for breach in result.breaches[:SHOWN]:
        print(breach)
    seconds = round(time.monotonic() - begun, 1)
    figures = {**result.figures, "breaches": len(result.breaches)}
    print(json.dumps({"seed": plan.seed, "seconds": seconds, **figures}))
    return 0 if result.good else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
    sys.exit(130)
