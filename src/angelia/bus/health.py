"""Is the hub well? A write, a read and a wake-up, really done.

What must stay true: what ``/health`` says is at most 5 s old, and is found out by the path that messages take: through
the writer, on disk, out by a reader, and round by a wake-up. A look never waits long for a sick store.
"""

import asyncio
from dataclasses import dataclass
from math import inf
from typing import Any

from angelia.bus.core import Bus
from angelia.bus.ports import Tx

PATIENCE_SECONDS = 2.0
KEY = "self-test"


@dataclass(slots=True)
class Health:
    """The last self-test. ``failing`` says which step, in plain words; None when all is well."""

    failing: str | None = "no self-test has run yet"
    at: float | None = None
    at_utc: int = 0
    milliseconds: float = 0.0
    serial: int = 0
    running: asyncio.Future[None] | None = None


async def look(bus: Bus, health: Health) -> Health:
    """The health now: runs the self-test when the last is too old, one for all who look. Never raises."""
    while health.running is not None:
        await bus.clock.wait(health.running, None)
    now = bus.clock.monotonic()
    if now >= _good_until(bus, health):
        health.running = asyncio.get_running_loop().create_future()
        try:
            health.failing = await _self_test(bus, health)
            health.at = bus.clock.monotonic()
            health.at_utc = bus.clock.now()
            health.milliseconds = round((health.at - now) * 1000, 3)
        finally:
            health.running.set_result(None)
            health.running = None
    return health


def _good_until(bus: Bus, health: Health) -> float:
    return -inf if health.at is None else health.at + bus.limits.self_test_seconds


async def _self_test(bus: Bus, health: Health) -> str | None:
    health.serial += 1
    value = bus.clock.now() * 1000 + health.serial % 1000

    def unit(tx: Tx) -> None:
        tx.put_self_test(value)
        tx.then(lambda: bus.signals.wake(KEY))

    with bus.signals.watch(KEY) as watch:
        ticket = watch.ticket()
        step = "writing"
        try:
            written = bus.store.write(unit)
            written.add_done_callback(_seen)
            if not await bus.clock.wait(written, PATIENCE_SECONDS):
                return f"writing took longer than {PATIENCE_SECONDS:g} s"
            await written
            step = "reading"
            seen = bus.store.read(lambda view: view.self_test())
            seen.add_done_callback(_seen)
            if not await bus.clock.wait(seen, PATIENCE_SECONDS):
                return f"reading took longer than {PATIENCE_SECONDS:g} s"
            if await seen != value:
                return "what was written is not what is read"
            if not await bus.clock.wait(watch.changed(ticket), PATIENCE_SECONDS):
                return "a commit woke nobody"
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the answer is "unwell", with the reason
            return f"{step} fails: {getattr(error, 'title', type(error).__name__)}"
    return None


def _seen(future: "asyncio.Future[Any]") -> None:
    """Somebody looked at how it ended: a step that was given up on may still fail later."""
    if not future.cancelled():
        future.exception()
