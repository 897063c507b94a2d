"""The turns that run now, those that ran lately, and what starts one.

What must stay true: while an agent's turn runs, no other hand gets mail of its mailbox. ``busy`` is changed only inside
units, on the store's thread, so that "a turn runs" has one order with every commit; all else belongs to the event loop.
What ran lately is for people to look at, bounded, and lost with the process. Nobody is woken by an ``ack``, nor by what
it sent to itself: that has a lane of its own behind all others', so that however much of it waits, a turn has none of
it to look through.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from angelia.bus.ports import Parcel, Tx
from angelia.bus.signals import Signals
from angelia.model.delivery import LANE_ORDER, Delivery
from angelia.model.envelope import Intent
from angelia.model.failure import Reason

ADAPTERS = "@adapters"
PLACES = "@places"  # a turn ended, or its agent began to wait for another
LATELY = 200  # turns that ended, kept for a look: some days of a person's agents
OWN_LANE = max(LANE_ORDER.values()) + 1  # what an agent of this hub sent to itself


def wakes(delivery: Delivery, intent: Intent) -> bool:
    """Whether a turn is run for it, where its agent is woken by turns."""
    return delivery.lane != OWN_LANE and intent is not Intent.ACK


@dataclass(slots=True, eq=False)
class Run:
    """One turn. ``notes``: what was acknowledged to the agent before it, settled with it. Times are UTC milliseconds.

    ``stop``: ends it early (None: there is nothing to end yet); ``stopped``: somebody asked for that. ``route``,
    ``usage`` and ``report`` are what the adapter said; ``outcome``: ``answered``, ``accepted``, ``failed``, ``held``,
    ``given back``, or None while it runs. ``spec``: how the agent is reached in it, once that is known.
    """

    mailbox: str
    agent: str
    parcel: Parcel
    notes: list[Parcel]
    since: int
    kind: str = ""
    spec: bytes | None = None
    orphan: bool = False
    stop: Callable[[], None] | None = None
    stopped: bool = False
    route: str | None = None
    outcome: str | None = None
    reason: Reason | None = None
    ended: int | None = None
    started: int | None = None
    output: str | None = None  # the end of what a failed one printed, for its owner
    usage: dict[str, int | float | str] = field(default_factory=dict)


class Runs:
    """Who runs, who is watched for work, and what ran lately."""

    def __init__(self) -> None:
        self.busy: dict[str, Run] = {}
        self.lately: deque[Run] = deque(maxlen=LATELY)
        self.signals = Signals()  # by mailbox: there may be work; ``ADAPTERS``: some agent is reached in another way

    def begin(self, tx: Tx, run: Run) -> None:
        """A turn runs, from this unit on."""
        self.busy[run.mailbox] = run
        tx.otherwise(lambda: self._drop(run))

    def end(self, tx: Tx, run: Run) -> None:
        """It runs no more, from this unit on."""
        if self.busy.pop(run.mailbox, None) is not None:
            tx.otherwise(lambda: self.busy.__setitem__(run.mailbox, run))

    def _drop(self, run: Run) -> None:
        self.busy.pop(run.mailbox, None)

    def find(self, message_id: str) -> Run | None:
        """The turn that runs for a message."""
        return next((run for run in list(self.busy.values()) if run.parcel.envelope.id == message_id), None)
