"""What a figure is, what a measurement of it says, and what every measurement is given.

What must stay true: a figure is one number with a bound that must hold and one that is aimed at; ratios are of medians
over rounds that were taken in turn, so that a slow moment of the machine falls on both sides.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.peer import BadAnswer, Peer
from bench.process import NotReady, busy_share

TOTAL_SECONDS = 570.0  # with what the end takes, ten minutes


@dataclass(frozen=True)
class Figure:
    """One number. ``limits``: what keeps it from being better, for the results."""

    name: str
    title: str
    must: float
    aim: float
    unit: str
    limits: str
    higher_is_better: bool = False

    def holds(self, value: float, bound: float) -> bool:
        """Whether a value is within a bound."""
        return value >= bound if self.higher_is_better else value <= bound

    def shown(self, value: float) -> str:
        """A value as people read it."""
        digits = 0 if value >= 1000 else 1 if value >= 10 else 2
        return f"{value:,.{digits}f} {self.unit}"

    def bound(self, value: float) -> str:
        """A bound as people read it."""
        number = f"{value:,.0f}" if value >= 1000 else f"{value:g}"
        return f"{'≥' if self.higher_is_better else '≤'} {number} {self.unit}"


@dataclass
class Measured:
    """What came of one figure. ``rounds``: the values behind it, by what they are of."""

    figure: Figure
    value: float
    told: str
    rounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    busy_before: float = 0.0


@dataclass
class Bench:
    """One run: where files go, how thorough it is, and until when it has to end.

    ``absent``: peers that are not measured, and why. ``beside``: what was found of each peer, by what it is of.
    """

    folder: Path
    quick: bool
    tell: Callable[[str], None]
    ends: float = field(default_factory=lambda: time.monotonic() + TOTAL_SECONDS)
    versions: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    beside: dict[str, dict[str, str]] = field(default_factory=dict)
    _number: int = 0

    def start(self, kinds: Sequence[type[Peer]], stack: ExitStack) -> list[Peer]:
        """Those peers that can be started, to be stopped with ``stack``; of the others it is kept why not."""
        started: list[Peer] = []
        for kind in kinds:
            if (why := kind.missing()) is None:
                try:
                    peer = kind(self.place(kind.name))
                except (NotReady, BadAnswer, OSError) as error:
                    why = f"could not be started: {' '.join(str(error).split())[-300:]}"
                else:
                    stack.callback(peer.stop)
                    self.versions[kind.name] = peer.version()
                    started.append(peer)
                    continue
            if kind.name not in self.absent:
                self.tell(f"{kind.name} {why}")
            self.absent[kind.name] = why
        return started

    def rounds(self, full: int, quick: int = 2) -> range:
        """How many rounds to take."""
        return range(quick if self.quick else full)

    def place(self, name: str) -> Path:
        """A folder that nothing else uses."""
        self._number += 1
        return self.folder / f"{self._number}-{name}"

    def left(self) -> float:
        """Seconds until the end."""
        return self.ends - time.monotonic()

    def busy(self) -> float:
        """What else the machine does before a measurement."""
        return busy_share()


def spread(values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Of many values the 10th, 50th, 90th and 99th of a hundred."""
    found = {}
    for name, several in values.items():
        ordered = sorted(several)
        found[name] = [ordered[min(int(share * len(ordered)), len(ordered) - 1)] for share in (0.1, 0.5, 0.9, 0.99)]
    return found


def microseconds(seconds: float) -> str:
    """A short time as people read it."""
    return f"{seconds * 1e6:,.0f} µs"
