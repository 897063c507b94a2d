"""Watching what happens: where a reader begins, and the wait for what comes.

What must stay true: a ticket is taken before the look, so nothing that happens in between is slept through. A reader
holds a place in the ring and nothing else; however slow it is, it costs the hub no memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from angelia.bus.core import Bus
from angelia.bus.events import KEPT, Happening, concerns
from angelia.model.errors import BadRequest, RateLimited


@dataclass(slots=True)
class Watcher:
    """A reader's place; ``mailbox``: it hears only what that one has a part in; ``reset`` says why it could not go on
    where it was, if so."""

    place: int
    mailbox: str | None = None
    reset: str | None = None

    def wants(self, event: Happening) -> bool:
        """Whether it is for this reader."""
        return self.mailbox is None or concerns(event, self.mailbox)


@contextmanager
def watcher(bus: Bus, last: int, last_event_id: str | None, mailbox: str | None = None) -> Iterator[Watcher]:
    """A reader that begins behind an id that it saw, else with the ``last`` so many events that are for it."""
    if not 0 <= last <= KEPT:
        raise BadRequest(f"last is {last}; it lies between 0 and {KEPT}.")
    bus.check_running()
    events = bus.events
    if events.readers >= bus.limits.event_streams:
        raise RateLimited(f"{events.readers} are watching already.", limit=bus.limits.event_streams)
    events.readers += 1
    try:
        yield _begin(bus, Watcher(events.place, mailbox), last, last_event_id)
    finally:
        events.readers -= 1


def _begin(bus: Bus, reader: Watcher, last: int, last_event_id: str | None) -> Watcher:
    here = bus.events.place
    if not last_event_id:
        _, kept = bus.events.after(0) if last else (0, [])
        mine = [event.place for event in kept if reader.wants(event)][-last:]
        reader.place = mine[0] - 1 if mine else here
        return reader
    run, _, number = last_event_id.partition("-")
    if run != bus.events.run or not (number.isascii() and number.isdigit()) or len(number) > 18 or int(number) > here:
        reader.reset = "That id is of another run of the hub: what happened since is not kept."
    else:
        reader.place = int(number)
    return reader


async def news(bus: Bus, reader: Watcher, seconds: float) -> tuple[int, list[Happening]]:
    """How many events the reader missed, and what happened for it since; empty after ``seconds`` of nothing."""
    ends = bus.clock.monotonic() + seconds
    with bus.events.watch() as watch:
        while True:
            ticket = watch.ticket()
            missed, found = bus.events.after(reader.place)
            reader.place = bus.events.place
            wanted = [event for event in found if reader.wants(event)]
            left = ends - bus.clock.monotonic()
            if missed or wanted or left <= 0 or bus.stopping:
                return missed, wanted
            await bus.clock.wait(watch.changed(ticket), left)
