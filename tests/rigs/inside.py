"""Runs a hub with something inside that a rig needs: a death at a commit, a wall clock that jumps, an eye.

    python -P tests/rigs/inside.py FOLDER up …

What must stay true: the hub's own code is as it is; this imports nothing of the tests, and what is not asked for costs
nothing. In FOLDER is a file of numbers (``watched.py`` writes it: how far the wall clock is off, in nanoseconds; how
many commits are left until it kills itself, 0 for never; 1 where it dies behind that commit instead of before it; how
many there were; until when one of the threads that read sits on whatever it reads, on the monotonic clock; and for how
long it did), and a socket: whoever connects gets one look at what is in the process.
"""

import asyncio
import gc
import json
import mmap
import os
import runpy
import signal
import socket
import struct
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

NUMBERS = struct.Struct("=6q")
OFF, LEFT, BEHIND, SEEN, UNTIL, HELD = (8 * place for place in range(6))
HOLD_STEPS, HOLD_SECONDS = 20, 0.005  # how often SQLite asks in a statement; how long one look takes
REST_NS = 200_000_000

# What there is only so much of, or what somebody holds for a while: by its owner, what counts it. That is a number, one
# number less another, or something with a length. Nothing of it may be taken wherever nobody is at work.
SLOTS = {
    "bus.leases.LeaseBook": ("_by_key",),
    "bus.runs.Runs": ("busy",),
    "turns.slots.Slots": ("_held",),
    "bus.asks.Asks": ("_open",),
    "bus.asks.Waiter": ("users",),
    "bus.streams.Streams": ("count", "unsure"),
    "bus.streams.Stream": ("_taken-_freed", "_taken_bytes-_freed_bytes", "handed", "buffer"),
    "bus.carriers.Carrier": ("_taken_bytes-_freed_bytes", "leased", "queue"),
    "bus.turnstile.Turnstile": ("_inside", "_waiting"),
    "bus.events.Events": ("readers",),
    "bus.timers.Timers": ("_live",),
    "bus.visits.Visits": ("_on",),
    "doors.http.arriving.Arriving": ("bytes",),
    "doors.http.trickle.Trickle": ("_waiting",),
    "doors.gateway.peer.Peer": ("_waiting", "sessions"),
    "doors.gateway.server._Calls": ("_long",),
    "links.channel.Channel": ("_calls",),
    "storage.sqlite.units.UnitQueue": ("_units", "_urgent_in-_urgent_out"),
    "storage.sqlite.writer.Writer": ("_chores",),
}  # fmt: skip
TABLES = (dict, set, frozenset, list, deque)


class Numbers:
    """What the rig has written."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), NUMBERS.size)

    def __getitem__(self, at: int) -> int:
        return int(struct.unpack_from("=q", self._map, at)[0])

    def __setitem__(self, at: int, value: int) -> None:
        struct.pack_into("=q", self._map, at, value)


def jumping(numbers: Numbers) -> None:
    """Let the wall clock be off. What the kernel itself stamps, such as the times of files, is as ever."""

    def shifted(plain: Callable[[], int]) -> Callable[[], int]:
        return lambda: plain() + numbers[OFF]

    def of_clock(plain: Callable[[int], int]) -> Callable[[int], int]:
        return lambda clock: plain(clock) + (numbers[OFF] if clock == time.CLOCK_REALTIME else 0)

    time.time_ns = shifted(time.time_ns)
    time.time = lambda: time.time_ns() / 1e9
    time.clock_gettime_ns = of_clock(time.clock_gettime_ns)
    time.clock_gettime = lambda clock: time.clock_gettime_ns(clock) / 1e9


def dying(numbers: Numbers) -> None:
    """Die at a commit: before anything of it is on the disk, or once all of it is and nobody has been told."""

    doomed: list[bool] = []

    def die(*_: object) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def watch(db: apsw.Connection) -> None:
        def commit() -> bool:
            numbers[SEEN] += 1
            left = numbers[LEFT]
            if doomed:
                die()  # the one before had nothing to write, so that nobody was called behind it
            if left:
                numbers[LEFT] = left - 1
            if left == 1 and numbers[BEHIND]:
                doomed.append(True)
                db.set_wal_hook(die)  # called behind the commit; it takes the place of the hub's own, for good
            elif left == 1:
                die()
            return False

        db.set_commit_hook(commit)

    apsw.connection_hooks.append(watch)


def holding(numbers: Numbers) -> None:
    """The first connection that only reads is in the middle of a statement until it is time, or is interrupted."""
    slow: list[apsw.Connection] = []
    again = [0]  # when it may be held the next time: what is run again because it was interrupted gets through

    def watch(db: apsw.Connection) -> None:
        def hold() -> bool:
            begun = time.monotonic_ns()
            if begun < again[0]:
                return False
            while time.monotonic_ns() < numbers[UNTIL] and not db.is_interrupted:
                time.sleep(HOLD_SECONDS)
            again[0] = time.monotonic_ns() + REST_NS
            numbers[HELD] += time.monotonic_ns() - begun
            return False

        if not slow and db.readonly("main"):
            slow.append(db)
            db.set_progress_handler(hold, HOLD_STEPS)

    apsw.connection_hooks.append(watch)


class Counted(asyncio.Semaphore):
    """One that can tell how much of it is taken, and whose it is."""

    def __init__(self, value: int = 1) -> None:
        super().__init__(value)
        maker = sys._getframe(1)
        self.most, self.owner = value, f"{maker.f_globals['__name__']}.{maker.f_code.co_qualname}"

    @property
    def taken(self) -> int:
        """So many of ``most``."""
        return self.most - self._value


def looked_into(path: Path) -> None:
    """Tell whoever connects what is in here."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            asking, _ = listener.accept()
            with asking:
                asking.sendall(json.dumps(_look()).encode())

    threading.Thread(target=serve, name="look", daemon=True).start()


def _look() -> dict[str, Any]:
    gc.collect()
    kinds: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    tasks: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = type(each)
        if isinstance(each, asyncio.Task):
            if not each.done():
                tasks[getattr(each.get_coro(), "__qualname__", "?")] += 1
        elif isinstance(each, Counted):
            slots[f"semaphores of {each.owner}"] += each.taken
        elif isinstance(each, asyncio.Lock):
            slots["locks"] += each.locked()
        elif getattr(each, "remind", True) is None:
            pass  # a reminder that was cancelled: of these the bus keeps up to a bound (`bus/timers.py`)
        elif str(getattr(kind, "__module__", "")).startswith("angelia."):
            name = f"{kind.__module__[8:]}.{kind.__qualname__}"
            kinds[name] += 1
            for at in _attributes(each):
                if isinstance(table := getattr(each, at, None), TABLES):
                    kinds[f"{name}.{at}"] += len(table)
            for what in SLOTS.get(name, ()):
                slots[f"{name}: {what}"] += _taken(each, what)
    threads = sorted(each.name for each in threading.enumerate())
    return {"tasks": tasks, "threads": threads, "kinds": kinds, "slots": slots}


def _attributes(owner: object) -> set[str]:
    slots = {name for kind in type(owner).__mro__ for name in getattr(kind, "__slots__", ())}
    return slots | vars(owner).keys() if hasattr(owner, "__dict__") else slots


def _taken(owner: object, what: str) -> int:
    sizes = [getattr(owner, name) for name in what.split("-")]
    first, *less = (size if isinstance(size, int) else len(size) for size in sizes)
    return first - sum(less)


def main(folder: Path, words: list[str]) -> None:
    """Everything else is the hub's."""
    numbers = Numbers(folder / "numbers")
    jumping(numbers)
    dying(numbers)
    if numbers[UNTIL]:
        holding(numbers)
    asyncio.Semaphore = Counted  # type: ignore[misc]
    looked_into(folder / "look")
    sys.argv = ["angelia", *words]
    runpy.run_module("angelia", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
