"""A real hub that a rig can look into: it dies at a commit, its wall clock jumps, and it tells what is in it.

What must stay true: only what is asked for differs from any other hub (``inside.py`` is what runs in it).
"""

import json
import os
import signal
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.hub import Hub
from tests.rigs.inside import BEHIND, HELD, LEFT, NUMBERS, OFF, SEEN, UNTIL

INSIDE = Path(__file__).with_name("inside.py")


@dataclass(frozen=True, slots=True)
class Look:
    """What is in a hub: tasks by what they run, names of threads, objects of the hub's own by kind and what is in their
    tables, how much is taken of whatever there is only so much of; files, memory."""

    tasks: dict[str, int]
    threads: list[str]
    kinds: dict[str, int]
    slots: dict[str, int]
    descriptors: int
    memory: int


@dataclass
class WatchedHub(Hub):
    """Such a hub."""

    def __post_init__(self) -> None:
        self._numbers.write_bytes(bytes(NUMBERS.size))

    def __enter__(self) -> "WatchedHub":
        super().__enter__()
        return self

    @property
    def _numbers(self) -> Path:
        return self.base / "numbers"

    @property
    def command(self) -> list[str]:
        python, _, _, *words = super().command
        return [python, "-P", str(INSIDE), str(self.base), *words]

    def die_at(self, commit: int, *, behind: bool = False) -> None:
        """Die at that commit from now on, the first being 1; 0: never."""
        self._put(BEHIND, int(behind))
        self._put(LEFT, commit)

    @property
    def commits(self) -> int:
        """How many there were."""
        return self._get(SEEN)

    def hold_reads(self, seconds: float) -> None:
        """For so long one of its reading threads sits on whatever it reads. It has to be said, with 0, before the hub
        starts, so that it can be said later."""
        self._put(UNTIL, time.monotonic_ns() + int(seconds * 1e9))

    @property
    def held_seconds(self) -> float:
        """For how long that thread sat on something, so far."""
        return self._get(HELD) / 1e9

    def jump(self, seconds: float) -> None:
        """From now on the wall clock is so far from what it should be."""
        self._put(OFF, int(seconds * 1e9))

    def freeze(self) -> None:
        """Stop it, as a debugger or a sleeping machine does."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def look(self) -> Look:
        """What is in it now."""
        told = b""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(30)
            sock.connect(str(self.base / "look"))
            while piece := sock.recv(65536):
                told += piece
        found: dict[str, Any] = json.loads(told)
        return Look(**found, descriptors=self.descriptors, memory=self.memory)

    def _get(self, at: int) -> int:
        return int(struct.unpack_from("=q", self._numbers.read_bytes(), at)[0])

    def _put(self, at: int, value: int) -> None:
        with self._numbers.open("r+b") as file:
            file.seek(at)
            file.write(struct.pack("=q", value))
