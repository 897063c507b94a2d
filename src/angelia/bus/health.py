"""Is the hub well? A write, a read and a wake-up, really done.

What must stay true: what ``/health`` says is at most 5 s old, and is found out by the path that messages take: through
the writer, on disk, out by a reader, and round by a wake-up. A look never waits long for a sick store.
"""

import asyncio
from dataclasses import dataclass

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
    running: bool = False


async def look(bus: Bus, health: Health) -> Health:
    """The health now: runs the self-test when the last is too old. Never raises."""
    now = bus.clock.monotonic()
    if health.at is not None and now - health.at < bus.limits.self_test_seconds:
        return health
    if health.running:
        return health
    health.running = True
    try:
        failing = await _self_test(bus, health)
    finally:
        health.running = False
    health.failing = failing
    health.at = bus.clock.monotonic()
    health.at_utc = bus.clock.now()
    health.milliseconds = round((health.at - now) * 1000, 3)
    return health


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
            written = bus.store.write(unit, essential=True)
            if not await bus.clock.wait(written, PATIENCE_SECONDS):
                return f"writing took longer than {PATIENCE_SECONDS:g} s"
            await written
            step = "reading"
            seen = bus.store.read(lambda view: view.self_test())
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
