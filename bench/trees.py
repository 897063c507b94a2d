"""Trees of this project side by side: ``python -m bench.trees NAME=FOLDER … [--rounds N]``.

A hub of each runs at the same time, and they are loaded in turn, so that whatever else the machine does falls on all
of them. What is compared is the hub's processor time for one operation, which other work disturbs least; behind each
figure stands its ratio to the first tree's.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import batches, latency, sends
from bench.load import Audience, Crowd, median
from bench.peers.angelia import READER, Angelia
from bench.peers.peer import TEXT, http_request
from bench.process import connect

ROOT = Path(__file__).parents[1]
STREAMS, BROADCASTS = 500, 10
SECONDS = 0.4
LONE = 60  # messages, one after the other
MICRO = 1e6


class Tree:
    """One of them, with its hub."""

    def __init__(self, name: str, folder: Path, source: Path) -> None:
        self.name = name
        self.hub = Angelia(folder, source)
        self.took: dict[str, list[float]] = {}

    def note(self, figure: str, value: float) -> None:
        self.took.setdefault(figure, []).append(value)

    def cost(self, figure: str, work: Callable[[], int]) -> None:
        """The processor's time of the hub for each operation of ``work``, which says how many they were."""
        before = self.hub.process.cpu_seconds()
        count = work()
        self.note(figure, (self.hub.process.cpu_seconds() - before) / count * MICRO)


def _quiet(values: list[float], *, best: bool) -> float:
    """The better quarter's bound: what other work did not disturb."""
    return statistics.quantiles(values, n=4)[2 if best else 0]


def _lone(tree: Tree, line: latency.Line) -> int:
    tree.note("lone send → stream, p50", median(line.messages(LONE)) * MICRO)
    return LONE


def _sends(tree: Tree) -> int:
    rate = sends.once(tree.hub, SECONDS)
    tree.note("sends/s", rate.each_second)
    return rate.count


def _batches(tree: Tree) -> int:
    request = tree.hub.batch(batches.BATCH, READER)
    crowd = Crowd(tree.hub, [(connect(tree.hub.port), request) for _ in range(batches.CONNECTIONS)])
    try:
        rate = crowd.run(SECONDS)
    finally:
        crowd.close()
    tree.note("batch messages/s", rate.each_second * batches.BATCH)
    return rate.count * batches.BATCH


def _fanout(tree: Tree, audience: Audience) -> int:
    body = json.dumps({"from": "hermes", "to": "*", "text": TEXT}).encode()
    broadcast = http_request("POST", "/v1/messages", tree.hub.port, body)
    with connect(tree.hub.port) as connection:
        got = audience.hear(connection, broadcast * BROADCASTS, STREAMS * BROADCASTS, 60.0)
        audience.drain()
    return got


def _idle(trees: list[Tree], audiences: list[Audience], seconds: float) -> None:
    """All of them at once, in four parts; what the streams get meanwhile is read away."""
    for _ in range(4):
        used, started = [tree.hub.process.cpu_seconds() for tree in trees], time.perf_counter()
        while time.perf_counter() - started < seconds / 4:
            for audience in audiences:
                audience.drain(0.1)
        for tree, before in zip(trees, used, strict=True):
            share = (tree.hub.process.cpu_seconds() - before) / (time.perf_counter() - started)
            tree.note(f"idle with {STREAMS} streams, %", share * 100)


def compare(trees: list[Tree], rounds: int, idle: float) -> None:
    """Each kind of load in turn over all of them."""
    lines = [latency.Line(tree.hub) for tree in trees]
    for line in lines:
        line.messages(200)
    for _ in range(rounds):
        for tree, line in zip(trees, lines, strict=True):
            tree.cost("CPU of a lone message", partial(_lone, tree, line))
    for line in lines:
        line.close()
    for _ in range(rounds):
        for tree in trees:
            tree.cost("CPU of a send", partial(_sends, tree))
    for _ in range(rounds):
        for tree in trees:
            tree.cost("CPU of a batch's message", partial(_batches, tree))
    audiences = [tree.hub.audience(0, STREAMS) for tree in trees]
    for number in range(rounds + 1):
        for tree, audience in zip(trees, audiences, strict=True):
            if number:  # before that, caches and buffers are new
                tree.cost("CPU of a delivery", partial(_fanout, tree, audience))
            else:
                _fanout(tree, audience)
    if idle:
        _idle(trees, audiences, idle)
    for audience in audiences:
        audience.close()


def main() -> None:
    """Compare the trees that were named, in a folder that goes away."""
    parser = argparse.ArgumentParser(prog="python -m bench.trees", description="Compare trees by processor time.")
    parser.add_argument("trees", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--idle", type=float, default=0.0, metavar="SECONDS", help="watch them do nothing for so long")
    options = parser.parse_args()
    parent = ROOT / "build"
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder, ExitStack() as stack:
        trees = []
        for word in options.trees:
            name, _, path = word.partition("=")
            trees.append(Tree(name, Path(folder) / name, Path(path) / "src"))
            stack.callback(trees[-1].hub.stop)
        compare(trees, options.rounds, options.idle)
    for figure in trees[0].took:
        middle = [_quiet(tree.took[figure], best=figure.endswith("/s")) for tree in trees]
        shown = "   ".join(f"{t.name} {m:,.1f} ({m / middle[0]:.3f})" for t, m in zip(trees, middle, strict=True))
        print(f"{figure:26} {shown}")


if __name__ == "__main__":
    main()
