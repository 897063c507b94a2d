"""What happened, for people who watch: a ring of the last of it in memory, and a wait for more.

What must stay true: an event is noted by an effect, so only after its commit, in the order of the commits. Noting costs
a tuple; what it says is worked out for whoever reads. It is bounded, and nothing depends on it: a reader that is too
slow is told how many it missed, and the truth is on disk. No more of a text is kept than its beginning.
"""

import secrets
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from angelia.bus.signals import Signals, Watch
from angelia.model.delivery import Delivery, State
from angelia.model.envelope import Envelope

KEPT = 2_000  # some minutes of a busy hub, and less than a megabyte
LETTERS = 200  # of a text
_KEY = "events"


class What(StrEnum):
    """The kinds of event. Deliveries: as their states change; then agents, names, and the hub itself."""

    ACCEPTED = "accepted"
    HANDED_OVER = "handed_over"
    RETURNED = "returned"
    FORWARDED = "forwarded"
    DELIVERED = "delivered"
    ANSWERED = "answered"
    FAILED = "failed"
    DEAD = "dead"
    HELD = "held"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    TOKEN_MADE = "token_made"
    TOKEN_REVOKED = "token_revoked"
    NAME_REMOVED = "name_removed"
    REFUSED = "refused"
    BACKED_UP = "backed_up"


# By the number of the state, which is quicker to look up than the state.
_OF_STATE = (
    What.RETURNED,
    What.HANDED_OVER,
    What.FORWARDED,
    What.HELD,
    What.DELIVERED,
    What.ANSWERED,
    What.FAILED,
    What.DEAD,
)


class Happening(NamedTuple):
    """One of them. ``at``: UTC ms. ``delivery`` as it is after it, or the ``name`` that it is about; ``detail``: the
    beginning of a text (bytes: of a body), or words."""

    place: int
    what: What
    at: int
    delivery: Delivery | None
    name: str | None
    detail: str | bytes | None


class Events:
    """The ring. Everything here happens on the event loop. ``readers``: how many are waked."""

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)  # places begin anew with the hub
        self.place = 0
        self.readers = 0
        self._signals = Signals()
        # What (None: the state says it), when, about whom or what, and words.
        self._ring: deque[tuple[What | None, int, Delivery | str | None, str | bytes | None]] = deque(maxlen=KEPT)

    def note(self, what: What | None, at: int, about: Delivery | str | None, detail: str | bytes | None = None) -> None:
        """Something happened."""
        self.place += 1
        self._ring.append((what, at, about, detail))
        if self.readers:
            self._signals.wake(_KEY)

    def accepted(self, at: int, envelope: Envelope, rows: Sequence[Delivery]) -> None:
        """A message is in these mailboxes; some of it may be in somebody's hands by the same commit."""
        text = envelope.text
        # One letter more than is shown, so that it is known whether there is more.
        detail = text[: LETTERS + 1] if text is not None else (envelope.body or b"")[: LETTERS + 1]
        for row in rows:
            self._ring.append((What.ACCEPTED, at, row, detail))
            if row.state is not State.QUEUED:
                self._ring.append((None, at, row, None))
                self.place += 1
        self.place += len(rows)
        if self.readers:
            self._signals.wake(_KEY)

    def moved(self, at: int, row: Delivery) -> None:
        """A delivery is in another state."""
        self.note(None, at, row)

    def after(self, place: int) -> tuple[int, list[Happening]]:
        """How many behind ``place`` are gone, and those that are there."""
        first = self.place - len(self._ring)
        missed = max(first - place, 0)
        found = []
        for number, (what, at, about, detail) in enumerate(islice(self._ring, max(place - first, 0), None)):
            delivery, name = (None, about) if about is None or isinstance(about, str) else (about, None)
            if what is None:
                assert delivery is not None
                what = _OF_STATE[delivery.state]
            found.append(Happening(place + missed + number + 1, what, at, delivery, name, detail))
        return missed, found

    def watch(self) -> Watch:
        """A context in which it is counted when something happens."""
        return self._signals.watch(_KEY)

    def wake_all(self) -> None:
        """Wake every reader, as the hub stops."""
        self._signals.wake_all()


def concerns(event: Happening, mailbox: str) -> bool:
    """Whether an agent has a part in it."""
    if event.delivery is not None:
        return mailbox in (event.delivery.sender, event.delivery.mailbox)
    return event.name is not None and event.name.lower() == mailbox
