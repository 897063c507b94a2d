"""The links between hubs that are up, and what each of them holds: leased to it, and not settled yet.

What must stay true:

- All mail reaches a link through its one queue, in the order of commits: what was leased in the commit that accepted it
  as well as what a claim took out of the mailboxes. Each is put there by the effect of its unit.
- The accepting commit leases only what passes nothing by that: there is room; nothing that is due waits in the mailbox;
  and the link has looked, and found that nothing waits for it in any other, since it last was full. All else waits in
  its mailbox and is claimed, by lane and ``seq``.
- A link holds at most a window: so a slow far side costs constant memory, and a person's message passes all but these.
- What a link holds when it ends goes back into its place in the very unit that takes it from ``live``. No later unit
  leases anything to it, and nothing that is accepted or claimed later goes before what went back.
- ``live`` and ``behind`` are changed inside units alone. ``leased`` is filled by units, and emptied by the loop as each
  comes to an end: so nothing that was leased is ever in nobody's hands, whichever way a commit or a link ends.

A gateway of Hermes' is no link of these: its mail goes in lanes of its own (``links/hermes_out.py``).
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from angelia.bus.ports import Parcel, Tx
from angelia.model.delivery import Hand


class Carrier:
    """A link that is up. ``link``: the key of its connection. ``behind``: mail may wait for it in some mailbox.

    ``leased`` is by key and attempt: what is offered anew may go out again before the first answer to it is here.
    ``queue``: what of these was not sent yet.
    """

    hand = Hand.LINK
    __slots__ = ("_arrived", "_freed", "_freed_bytes", "_taken_bytes", "behind", "leased", "link", "queue", "window",
                 "window_bytes")  # fmt: skip

    def __init__(self, link: str, window: int, window_bytes: int) -> None:
        """The window: how many deliveries it holds at most, and of how many bytes."""
        self.link, self.window, self.window_bytes = link, window, window_bytes
        self.behind = True  # nobody has looked yet
        self.leased: dict[tuple[int, int], Parcel] = {}
        self.queue: deque[Parcel] = deque()
        self._taken_bytes = 0  # written inside units alone
        self._freed_bytes = 0  # written by the loop alone
        self._arrived, self._freed = asyncio.Event(), asyncio.Event()

    def room(self) -> int:
        """How many more deliveries fit."""
        return self.window - len(self.leased) if self.room_bytes() > 0 else 0

    def room_bytes(self) -> int:
        """How many more bytes fit; one delivery that is larger still goes alone."""
        return self.window_bytes - (self._taken_bytes - self._freed_bytes)

    # ------------------------------------------------------------------------------------------------- inside units

    def holds(self, mailbox: str, sender: str) -> bool:
        """Whether anything of a sender for a mailbox is leased to it."""
        held = (parcel.delivery for parcel in list(self.leased.values()))  # which the loop empties meanwhile
        return any((delivery.mailbox, delivery.sender) == (mailbox, sender) for delivery in held)

    def takes(self, tx: Tx, mailbox: str) -> bool:
        """Whether mail that is accepted for a mailbox is leased to it at once."""
        if self.behind or tx.load(mailbox).ready:
            return False
        self.behind = self.room() <= 0  # then this one waits; should it not be stored after all, a look costs little
        return not self.behind

    def lease(self, tx: Tx, parcels: Sequence[Parcel]) -> None:
        """A unit leases these to it; ``push`` them once that is on disk."""
        size = sum(parcel.delivery.size for parcel in parcels)
        self.leased.update((_lease(parcel), parcel) for parcel in parcels)
        self._taken_bytes += size

        def undo() -> None:
            for parcel in parcels:
                del self.leased[_lease(parcel)]
            self._taken_bytes -= size

        tx.otherwise(undo)

    def caught_up(self, tx: Tx) -> None:
        """A claim has found nothing that waits for it."""
        self.behind = False
        tx.otherwise(self._fall_behind)  # what was claimed before it waits again, too

    def _fall_behind(self) -> None:
        self.behind = True

    # -------------------------------------------------------------------------------------------------- on the loop

    def push(self, parcels: Sequence[Parcel]) -> None:
        """That these are leased to it is on disk."""
        self.queue.extend(parcels)
        self._arrived.set()

    async def next(self, limit: int) -> list[Parcel]:
        """Take up to ``limit`` out of the queue, in order; waits for the first."""
        while not self.queue:
            self._arrived.clear()
            await self._arrived.wait()
        return [self.queue.popleft() for _ in range(min(limit, len(self.queue)))]

    def free(self, parcel: Parcel) -> None:
        """It does not hold this any more: what becomes of it is known, and told to the bus."""
        del self.leased[_lease(parcel)]
        self._freed_bytes += parcel.delivery.size
        self._freed.set()

    async def wait_for_room(self) -> None:
        """Until something fits."""
        while self.room() <= 0:
            self._freed.clear()
            await self._freed.wait()


class Carriers:
    """All links between hubs that are up. ``live``: by the keys of their connections."""

    def __init__(self) -> None:
        self.live: dict[str, Carrier] = {}

    def taker(self, tx: Tx, link: str, mailbox: str) -> Carrier | None:
        """The link that mail for a mailbox is leased to in the commit that accepts it; None where it waits."""
        carrier = self.live.get(link)
        return carrier if carrier is not None and carrier.takes(tx, mailbox) else None

    def attach(self, tx: Tx, carrier: Carrier) -> None:
        """A link is up, with this unit."""
        self._swap(tx, carrier.link, carrier)

    def detach(self, tx: Tx, carrier: Carrier) -> list[Parcel]:
        """It is up no more, with this unit, which has to give back what it holds: these."""
        if self.live.get(carrier.link) is carrier:
            self._swap(tx, carrier.link, None)
        return list(carrier.leased.values())

    def _swap(self, tx: Tx, link: str, carrier: Carrier | None) -> None:
        old = self.live.get(link)
        tx.otherwise(lambda: self._set(link, old))
        self._set(link, carrier)

    def _set(self, link: str, carrier: Carrier | None) -> None:
        if carrier is None:
            self.live.pop(link, None)
        else:
            self.live[link] = carrier


def _lease(parcel: Parcel) -> tuple[int, int]:
    return parcel.delivery.key, parcel.delivery.attempt
