"""The first comparison: the hub beside the seed's server alone, from send to stream and in sends a second.

``python -m bench.by_hand``, or ``python -m bench --only seed``; half a minute.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import latency, sends
from bench.load import median
from bench.peers.angelia import Angelia
from bench.peers.peer import Peer
from bench.peers.seed import Seed

ROUNDS, SLICES = 4, 40
ROOT = Path(__file__).parents[1]


def compare(folder: Path) -> None:
    """Measure both in turn and print a line for each figure."""
    with ExitStack() as stack:
        peers: tuple[Peer, ...] = (Angelia(folder / "angelia"), Seed(folder / "seed"))
        for peer in peers:
            stack.callback(peer.stop)
        lines = [latency.Line(peer) for peer in peers]
        lines[0].messages(latency.WARM_UP)
        took: dict[str, list[float]] = {peer.name: [] for peer in peers}
        for _ in range(SLICES):
            for line in lines:
                took[line.peer.name] += [seconds * 1e6 for seconds in line.messages(latency.SLICE)]
        for line in lines:
            line.close()
        rates: dict[str, list[float]] = {peer.name: [] for peer in peers}
        for _ in range(ROUNDS):
            for peer in peers:
                rates[peer.name].append(sends.once(peer, 2.0).each_second)
    _line("send → stream, p50", "µs", took)
    _line(f"sends/s, {sends.CONNECTIONS} connections", "/s", rates)
    print("The hub's sends are on disk before they are answered; the seed's are in memory, and gone with its process.")


def _line(title: str, unit: str, values: dict[str, list[float]]) -> None:
    hub, seed = median(values["angelia"]), median(values["seed"])
    print(f"{title:26} angelia {hub:8,.0f} {unit}   seed {seed:8,.0f} {unit}   ratio {hub / seed:.2f}")


def main() -> None:
    """Compare in a folder that goes away."""
    parent = ROOT / "build"
    parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as folder:
        compare(Path(folder))


if __name__ == "__main__":
    main()
