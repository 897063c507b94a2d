"""Every measurement in turn: ``python -m bench [--only NAME …] [--quick] [--data DIR]``.

It ends by itself within ten minutes: what there is no time for is left out and said so. Files go to a folder beside the
checkout's build output (the disk counts, so not to a memory file system), and are removed.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType

from bench import (
    backlog,
    batches,
    by_hand,
    cold,
    fanout,
    generator,
    hop,
    latency,
    machine,
    report,
    sends,
    streams,
    turns,
)
from bench.figures import TOTAL_SECONDS, Bench, Measured
from bench.peers.peer import BadAnswer
from bench.process import NotReady

ROOT = Path(__file__).parents[1]
GROUPS: tuple[ModuleType, ...] = (generator, latency, sends, batches, fanout, streams, cold, turns, hop, backlog)
# What a group takes when the machine is slow; it is not begun with less left.
GROUP_SECONDS = {backlog: 240.0, hop: 120.0}
LEAST_SECONDS = 60.0


class OutOfTime(Exception):
    """The ten minutes are over."""


def main() -> int:
    """Measure what was asked for; 1 where a bound that must hold does not."""
    options = _options()
    if options.only == ["seed"]:
        by_hand.main()
        return 0
    chosen = [group for group in GROUPS if not options.only or _names(group) & set(options.only)]
    parent = options.data or ROOT / "build"
    parent.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, TOTAL_SECONDS)
    load = machine.load()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder:
        bench = Bench(Path(folder), options.quick, lambda words: print(f"  {words}", flush=True))
        found, missing = _measure(bench, chosen)
        facts = machine.facts(ROOT, Path(folder), bench.versions, load)
    print("\n" + "\n".join([report.HEADER, *(report.line(each) for each in found)]))
    for name, why in missing.items():
        print(f"{name:10} not measured: {why}")
    if not options.only and not options.quick:
        report.write(ROOT / "bench", facts, found, missing, report.peers(bench))
        print("\nWritten to bench/results.md and bench/results.json.")
    return 1 if any(report.verdict(each) == "NO" for each in found) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure, on loopback, in ten minutes at most."
    )
    names = sorted(set().union(*(_names(group) for group in GROUPS)))
    parser.add_argument("--only", action="append", choices=[*names, "seed"], help="this group alone; may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and rows; nothing is written")
    parser.add_argument("--data", type=Path, help="where the files go, on the disk to measure (build/)")
    return parser.parse_args()


def _names(group: ModuleType) -> set[str]:
    return {group.__name__.rpartition(".")[2], *(figure.name for figure in group.FIGURES)}


def _measure(bench: Bench, groups: Sequence[ModuleType]) -> tuple[list[Measured], dict[str, str]]:
    found: list[Measured] = []
    missing: dict[str, str] = {}
    for group in groups:
        name = group.__name__.rpartition(".")[2]
        if bench.left() < GROUP_SECONDS.get(group, LEAST_SECONDS):
            missing[name] = "there was no time left"
            continue
        started, busy = time.monotonic(), bench.busy()
        print(f"{name}: {group.__doc__.splitlines()[0] if group.__doc__ else ''}", flush=True)
        try:
            measured = group.measure(bench)
        except (BadAnswer, NotReady, OutOfTime, OSError, AssertionError) as error:
            missing[name] = f"{type(error).__name__}: {error}"[:600]
            print(f"  failed: {missing[name]}", flush=True)
            continue
        for each in measured:
            each.busy_before = busy
        measured_names = {each.figure.name for each in measured}
        for figure in group.FIGURES:
            if figure.name not in measured_names:
                missing[figure.name] = "; ".join(f"{peer} {why}" for peer, why in bench.absent.items()) or "not here"
        found += measured
        print(f"  {time.monotonic() - started:.0f} s, others used {busy:.0%} of the machine before", flush=True)
    return found, missing


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise OutOfTime("the ten minutes are over")


if __name__ == "__main__":
    sys.exit(main())
