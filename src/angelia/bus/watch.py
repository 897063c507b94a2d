"""Watching what happens: where a reader begins, and the wait for what comes.

What must stay true: a ticket is taken before the look, so nothing that happens in between is slept through. A reader
holds a place in the ring and nothing else; however slow it is, it costs the hub no memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from angelia.bus.core import Bus
from angelia.bus.events import KEPT, Happening
from angelia.model.errors import BadRequest, RateLimited


@dataclass(slots=True)
class Watcher:
    """A reader's place; ``reset`` says why it could not go on where it was, if so."""

    place: int
    reset: str | None = None


@contextmanager
def watcher(bus: Bus, last: int, last_event_id: str | None) -> Iterator[Watcher]:
    """A reader that begins behind an id that it saw, else with the ``last`` so many events."""
    if not 0 <= last <= KEPT:
        raise BadRequest(f"last is {last}; it lies between 0 and {KEPT}.")
    bus.check_running()
    events = bus.events
    if events.readers >= bus.limits.event_streams:
        raise RateLimited(f"{events.readers} are watching already.", limit=bus.limits.event_streams)
    events.readers += 1
    try:
        yield _begin(bus, last, last_event_id)
    finally:
        events.readers -= 1


def _begin(bus: Bus, last: int, last_event_id: str | None) -> Watcher:
    here = bus.events.place
    if not last_event_id:
        return Watcher(max(here - last, 0))
    run, _, number = last_event_id.partition("-")
    if run != bus.events.run or not (number.isascii() and number.isdigit()) or len(number) > 18 or int(number) > here:
        return Watcher(here, "That id is of another run of the hub: what happened since is not kept.")
    return Watcher(int(number))


async def news(bus: Bus, reader: Watcher, seconds: float) -> tuple[int, list[Happening]]:
    """How many events the reader missed, and what happened since its place; empty after ``seconds`` of nothing."""
    with bus.events.watch() as watch:
        ticket = watch.ticket()
        if bus.events.place == reader.place and not bus.stopping:
            await bus.clock.wait(watch.changed(ticket), seconds)
        missed, found = bus.events.after(reader.place)
        reader.place = bus.events.place
        return missed, found
