"""What a person should know at a glance: what is wrong, the worst first, and the numbers behind it.

What must stay true: a look costs little whatever the hub holds: sums that are in memory, and bounded reads of indexes.
It never waits long for a store that is sick, and never changes anything. What it says holds no peer's text, only names.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from angelia.bus.core import Bus
from angelia.bus.ports import Library, Load, Scope, View
from angelia.bus.runs import OWN_LANE
from angelia.model.address import PERSON
from angelia.model.connection import Condition
from angelia.model.delivery import Delivery
from angelia.model.limits import DAY, HOUR, MIB, MINUTE

NEARLY_FULL_BYTES = 1024 * MIB  # a matter of days; the hub keeps its last 64 MiB back for acks
NEAR = 0.8  # of a mailbox's bound: time to look before its senders are refused
UNREAD_SECONDS = 15 * MINUTE  # as long as Hermes' mail waits on a link; who polls at all has looked by then
LOOKED_AT = 100  # mailboxes whose next message is looked up
COUNTED = 1000  # dead letters, held messages, rows that were set aside
FIGHT = 3  # takeovers within a minute: whoever restarts makes one
NAMED = 20  # agents that are named for one kind of trouble
PATIENCE_SECONDS = 2.0
_OWN = " that it sent to itself, which wakes nobody"


@dataclass(frozen=True, slots=True)
class Disk:
    """How the disk stands; ``refusing`` is true while it is so full that new messages are refused."""

    free_bytes: int
    log_bytes: int = 0
    refusing: bool = False


@dataclass(slots=True)
class Glance:
    """``waiting_since``: when what an agent would be handed next was accepted (UTC ms), by handle. ``own``: for whom
    nothing waits but what they sent to themselves."""

    dead: int = 0
    held: int = 0
    set_aside: int = 0
    waiting_since: dict[str, int] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Box:
    mailbox: str
    name: str
    load: Load
    readers: int


async def glance(bus: Bus, failing: str | None, disk: Disk | None, links: Sequence[Condition] = ()) -> Glance:
    """Look. ``failing`` is what the self-test says, None when all is well; ``links``: how each connection stands."""
    found = Glance()
    boxes = [_box(bus, agent.mailbox, agent.handle) for agent in bus.directory.agents.values()]
    boxes.append(_box(bus, PERSON, PERSON))
    waiting = sorted((box for box in boxes if box.load.ready), key=lambda box: (box.readers > 0, -box.load.queued))
    read = failing is not None or await _read(bus, found, waiting[:LOOKED_AT])
    now = bus.clock.now()
    unread = [
        (box, now - since)
        for box in waiting
        if not box.readers and (since := found.waiting_since.get(box.name)) and now - since >= UNREAD_SECONDS * 1000
    ]
    found.problems = [
        *([failing] if failing else []),
        *_of_disk(disk),
        *([] if read else ["the store could not be read just now: hub.log says why"]),
        *_of_store(bus),
        *_counted(found.set_aside, "damaged row", "set aside, never served; hub.log names them"),
        *_counted(found.dead, "dead letter", "angelia dead lists them"),
        *_counted(found.held, "held message", "a person has to release them: angelia dead"),
        *_named(_near(bus, box) for box in boxes),
        *_named(_of_link(link, now) for link in sorted(links, key=_worst_first)),
        *_named(
            f"nobody reads {box.name}: {box.load.queued:,} wait{_OWN if box.name in found.own else ''}, "
            f"the next one for {_span(age)}"
            for box, age in sorted(unread, key=lambda row: -row[1])
            if box.mailbox != PERSON
        ),
        *_named(_crowd(bus, box) for box in boxes),
    ]
    return found


def _box(bus: Bus, mailbox: str, name: str) -> _Box:
    return _Box(mailbox, name, bus.store.load(mailbox), len(bus.streams.of(mailbox)) + bus.signals.watching(mailbox))


def _crowd(bus: Bus, box: _Box) -> str:
    """Two streams, or a stream and a claim. Several claims share the work, as they are meant to."""
    times = bus.presence.takeovers(box.mailbox, bus.clock.monotonic() - MINUTE)
    if times >= FIGHT:
        return f"the readers of {box.name} throw each other out: {times} times in the last minute"
    crowded = box.readers > 1 and bus.streams.of(box.mailbox)
    return f"{box.name} is read by {box.readers} at once" if crowded else ""


async def _read(bus: Bus, found: Glance, boxes: list[_Box]) -> bool:
    """False where that failed."""

    def work(view: View) -> tuple[int, tuple[int, int], dict[str, Delivery]]:
        heads = {box.name: view.waiting(Scope(mailbox=box.mailbox), 1, 1) for box in boxes}
        first = {name: head[0].delivery for name, head in heads.items() if head}
        return view.set_aside_count(COUNTED), view.stuck(COUNTED), first

    reading = bus.store.read(work)
    reading.add_done_callback(_seen)
    if not await bus.clock.wait(reading, PATIENCE_SECONDS):
        return True
    if reading.exception() is not None:
        return False
    found.set_aside, (found.held, found.dead), first = reading.result()
    found.waiting_since = {name: delivery.accepted_at for name, delivery in first.items()}
    found.own = {name for name, delivery in first.items() if delivery.lane == OWN_LANE}  # it is behind all others
    return True


def _of_disk(disk: Disk | None) -> list[str]:
    if disk is None:
        return []
    if disk.refusing:
        return ["the disk is full: new messages are refused, acks and expiry go on"]
    free = disk.free_bytes // MIB
    return [f"the disk is nearly full: {free} MiB are free"] if disk.free_bytes < NEARLY_FULL_BYTES else []


def _of_store(bus: Bus) -> list[str]:
    trouble = bus.store.trouble() if isinstance(bus.store, Library) else None
    return [] if trouble is None else [trouble]


def _counted(count: int, what: str, then: str) -> list[str]:
    many = f"{count:,} or more" if count >= COUNTED else f"{count:,}"
    return [f"{many} {what}{'' if count == 1 else 's'}: {then}"] if count else []


def _worst_first(link: Condition) -> tuple[bool, int, str]:
    return link.up, link.oldest_at or link.since, link.connection.id


def _of_link(link: Condition, now: int) -> str:
    """A connection that is down: since when, and how much waits for it. One that only its other side dials may be away
    for days (a laptop), which is worth a word once something waits."""
    name = link.connection.name
    if link.up:
        return f"{name} is up, with a warning: angelia connections shows it" if link.warning else ""
    if not (link.connection.target or link.waiting):
        return ""
    why = f" ({link.kind.replace('_', ' ')})" if link.kind else ""
    told = f"{name} has been down for {_span(now - link.since)}{why}"
    if link.waiting and link.oldest_at is not None:
        told += f": {link.waiting:,} wait, the oldest for {_span(now - link.oldest_at)}"
    return told


def _near(bus: Bus, box: _Box) -> str:
    count, size = bus.limits.mailbox_deliveries, bus.limits.mailbox_bytes
    if box.load.open >= count * NEAR:
        return f"the mailbox of {box.name} is nearly full: {box.load.open:,} of {count:,} messages"
    if box.load.bytes >= size * NEAR:
        return f"the mailbox of {box.name} is nearly full: {box.load.bytes // MIB:,} of {size // MIB:,} MiB"
    return ""


def _named(problems: Iterable[str]) -> list[str]:
    told = [problem for problem in problems if problem]
    more = len(told) - NAMED
    return [*told[:NAMED], f"and {more:,} more of this kind"] if more > 0 else told


def _span(milliseconds: int) -> str:
    seconds = max(0, milliseconds // 1000)
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min"
    return f"{seconds // HOUR} h" if seconds < 2 * DAY else f"{seconds // DAY} d"


def _seen(future: "asyncio.Future[Any]") -> None:
    """Somebody looked at how it ended: a read that was given up on may still fail later."""
    if not future.cancelled():
        future.exception()
