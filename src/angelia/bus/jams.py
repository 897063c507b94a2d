"""What one sender has for one mailbox at another hub that takes no more of it for now, seen from both ends of the link.

What must stay true:

- As long as a jam lasts, all that its sender has for its mailbox is put off (*deferred*): what was refused, what the
  link held when it ended, what waited, and what is accepted from now on. So none of it passes what came before it, and
  it is in nobody's way: no claim sees it, and it fills no link's window.
- What was on its way when the first was refused does not pass that one either: the far hub refuses it until the first
  comes again, and says so.
- Both are changed inside units alone; ``Jam``'s times and tries by the loop alone.

How a jam is tried again, and ends, is in ``bus/backpressure.py``. None outlives its hub: after a start all is due.
"""

from collections.abc import Callable, Sequence
from functools import partial

from angelia.bus.ports import Tx
from angelia.bus.timers import Timer
from angelia.model.delivery import Delivery
from angelia.protocol.hub import Item

SOON_SECONDS = 1.0  # between two tries of which the first found room for some
BEHIND_SECONDS = 30.0  # three calls: what left before its hub heard of the refusal is here by then
BEHIND_MOST = 10_000  # what a hub that refuses remembers of one link; the oldest is let go


class Jam:
    """``code``: why the far hub takes no more, as on the wire. ``tries``: how often in a row none of it was stored.
    ``again``: the next that goes says that it comes again. ``tried_at`` by the monotonic clock. ``plan`` sets when it
    is tried, in seconds."""

    __slots__ = ("again", "code", "connection", "mailbox", "plan", "sender", "timer", "tried_at", "tries")

    def __init__(self, delivery: Delivery, code: str, plan: "Callable[[Jam, float], None]") -> None:
        assert delivery.connection is not None
        self.plan = partial(plan, self)
        self.mailbox, self.sender, self.connection = delivery.mailbox, delivery.sender, delivery.connection
        self.code = code
        self.tries, self.tried_at, self.again = 0, float("-inf"), False
        self.timer: Timer | None = None


class Jams:
    """All that last."""

    def __init__(self) -> None:
        self._by_mailbox: dict[str, dict[str, Jam]] = {}

    def find(self, mailbox: str, sender: str) -> Jam | None:
        """That of a sender (lower case) for a mailbox."""
        there = self._by_mailbox.get(mailbox)
        return None if there is None else there.get(sender)

    def holds(self, delivery: Delivery) -> bool:
        """Whether a delivery that waits, or comes back, is put off by one."""
        return self.find(delivery.mailbox, delivery.sender) is not None

    def of(self, mailbox: str) -> list[Jam]:
        """Those for one mailbox."""
        return list(self._by_mailbox.get(mailbox, {}).values())

    def on(self, connection: str) -> list[Jam]:
        """Those of one connection, by its key."""
        return [jam for there in list(self._by_mailbox.values()) for jam in list(there.values())
                if jam.connection == connection]  # fmt: skip

    def room(self, mailbox: str, now: float) -> None:
        """What was in a mailbox at the far hub is over: there may be room. On the loop; ``now`` is monotonic."""
        for jam in self.of(mailbox):
            soon = max(jam.tried_at + SOON_SECONDS, now)
            if jam.timer is not None and soon < jam.timer.when:
                jam.plan(soon - now)

    def begin(self, tx: Tx, delivery: Delivery, code: str, plan: Callable[[Jam, float], None]) -> Jam | None:
        """This one was refused for now. The jam that it begins; None where there is one."""
        if (known := self.find(delivery.mailbox, delivery.sender)) is not None:
            known.code = code
            return None
        jam = Jam(delivery, code, plan)
        self._by_mailbox.setdefault(jam.mailbox, {})[jam.sender] = jam
        tx.otherwise(lambda: self._drop(jam))
        return jam

    def end(self, tx: Tx, jam: Jam) -> None:
        """Nothing of it waits any more."""
        self._drop(jam)
        tx.otherwise(lambda: self._by_mailbox.setdefault(jam.mailbox, {}).update({jam.sender: jam}))

    def _drop(self, jam: Jam) -> None:
        there = self._by_mailbox[jam.mailbox]
        del there[jam.sender]
        if not there:
            del self._by_mailbox[jam.mailbox]


class Behind:
    """The far end: whose mail this hub refused for now, on one link; what comes behind that is refused, too."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str, str, str], tuple[float, str]] = {}

    def code(self, item: Item, now: float) -> str | None:
        """Why a message is refused that comes behind another; None where it does not, or is that one, again."""
        found = self._refused.get(_pair(item)) if self._refused else None
        if found is not None and (item.again or now - found[0] > BEHIND_SECONDS):
            del self._refused[_pair(item)]
            return None
        return None if found is None else found[1]

    def all_refused(self, items: Sequence[Item], code: str, now: float) -> None:
        """Their unit was not stored."""
        for item in items:
            self.refused(item, code, now)

    def refused(self, item: Item, code: str, now: float) -> None:
        """This one was, at ``now`` (monotonic)."""
        self._refused[_pair(item)] = (now, code)
        if len(self._refused) > BEHIND_MOST:
            del self._refused[next(iter(self._refused))]


def _pair(item: Item) -> tuple[str, str, str, str]:
    return item.sender.hub, item.sender.handle.lower(), item.recipient.hub, item.recipient.handle.lower()
