"""The states of a delivery and the one transition table.

What must stay true: every change of a delivery is an arrow of ``TABLE``; there is no second place that knows them.
The picture in ``docs/protocol/states.md`` is drawn from it. Attempts only rise; ``used`` counts those that came back
by nack, by a lease that ran out or by a break after bytes were written.
"""

from enum import IntEnum, StrEnum
from typing import NamedTuple

from angelia.model.failure import Reason


class State(IntEnum):
    """Where a delivery stands. Open ones come first, so that a store can tell them by comparison."""

    QUEUED = 0
    LEASED = 1
    FORWARDED = 2
    HELD = 3
    DELIVERED = 4
    ANSWERED = 5
    FAILED = 6
    DEAD = 7

    @property
    def word(self) -> str:
        """The name on the wire."""
        return _WORDS[self]

    @property
    def open(self) -> bool:
        """True while it counts against the mailbox."""
        return self <= State.HELD

    @property
    def final(self) -> bool:
        """True when no time limit can change it any more."""
        return self >= State.ANSWERED


_WORDS = tuple(state.name.lower() for state in State)


class Event(StrEnum):
    """What can happen to a delivery."""

    CLAIM = "claim"
    ACK = "ack"
    REPLY = "reply"
    FORWARD = "forward"
    RELEASE = "release"
    NACK = "nack"
    LAPSE = "lapse"
    EXHAUST = "exhaust"
    REFUSE = "refuse"
    EXPIRE = "expire"
    CANCEL = "cancel"
    TIME_OUT = "time out"
    REOFFER = "offer again"
    FAR_DELIVERED = "far delivered"
    FAR_ANSWERED = "far answered"
    FAR_FAILED = "far failed"
    FAR_DEAD = "far dead"
    LET_GO = "let go"
    END = "end"
    REQUEUE = "requeue"
    DROP = "drop"
    HOLD = "hold"
    LATE_ACK = "late ack"
    UNANSWERED = "unanswered"
    DAMAGE = "damage"


_Q, _L, _FW, _H = State.QUEUED, State.LEASED, State.FORWARDED, State.HELD
_D, _A, _F, _X = State.DELIVERED, State.ANSWERED, State.FAILED, State.DEAD

TABLE: dict[tuple[State, Event], State] = {
    (_Q, Event.CLAIM): _L,
    (_Q, Event.REPLY): _A,
    (_Q, Event.EXPIRE): _F,
    (_Q, Event.CANCEL): _F,
    (_Q, Event.LATE_ACK): _D,
    (_L, Event.ACK): _D,
    (_L, Event.REPLY): _A,
    (_L, Event.FORWARD): _FW,
    (_L, Event.RELEASE): _Q,
    (_L, Event.NACK): _Q,
    (_L, Event.LAPSE): _Q,
    (_L, Event.EXHAUST): _X,
    (_L, Event.REFUSE): _F,
    (_L, Event.CANCEL): _F,
    (_L, Event.HOLD): _H,
    (_FW, Event.FAR_DELIVERED): _D,
    (_FW, Event.FAR_ANSWERED): _A,
    (_FW, Event.FAR_FAILED): _F,
    (_FW, Event.FAR_DEAD): _X,
    (_FW, Event.REPLY): _A,
    (_FW, Event.TIME_OUT): _F,
    (_FW, Event.REOFFER): _Q,
    (_H, Event.LET_GO): _Q,
    (_H, Event.END): _F,
    (_H, Event.EXPIRE): _F,
    (_D, Event.REPLY): _A,
    (_D, Event.UNANSWERED): _D,
    (_D, Event.REOFFER): _Q,
    (_X, Event.REQUEUE): _Q,
    (_X, Event.DROP): _F,
    (_Q, Event.DAMAGE): _F,
    (_L, Event.DAMAGE): _F,
    (_FW, Event.DAMAGE): _F,
    (_H, Event.DAMAGE): _F,
    (_X, Event.DAMAGE): _F,
}

REASON_OF = {
    Event.EXPIRE: Reason.QUEUED_EXPIRED,
    Event.CANCEL: Reason.CANCELLED,
    Event.END: Reason.CANCELLED,
    Event.DROP: Reason.CANCELLED,
    Event.TIME_OUT: Reason.DELIVERY_TIMEOUT,
    Event.UNANSWERED: Reason.DELIVERY_TIMEOUT,
    Event.EXHAUST: Reason.ATTEMPTS_USED_UP,
    Event.DAMAGE: Reason.DAMAGED,
}


def after(state: State, event: Event) -> State | None:
    """The state that ``event`` leads to, or None where the table has no such arrow."""
    return TABLE.get((state, event))


class Hand(StrEnum):
    """Who takes mail out of a mailbox. AUTO, POLL and ASK settle when the answer was written; the rest by an ack."""

    AUTO = "auto"
    MANUAL = "manual"
    CLAIM = "claim"
    POLL = "poll"
    ASK = "ask"
    TURN = "turn"
    LINK = "link"


class Delivery(NamedTuple):
    """One message in one mailbox. ``key`` never changes; ``seq`` does when it is handed over after a later one.

    ``connection`` is None for a mailbox of this hub. ``deferred``: queued, and not due yet (a nack's delay, known to
    the hub that runs). ``sweep_at``: when time alone must change it next (UTC milliseconds); None when never. ``owes``:
    the key of the connection that it came by and that must still be told what became of it. The first five fields are
    its own; how it stands, in all others, it may share with many.
    """

    key: int
    seq: int
    message_id: str
    mailbox: str
    to: str
    sender: str
    size: int
    state: State
    accepted_at: int
    expires_at: int
    sweep_at: int | None
    connection: str | None = None
    lane: int = 1
    attempt: int = 0
    used: int = 0
    deferred: bool = False
    hand: Hand | None = None
    reason: Reason | None = None
    late: bool = False
    leased_at: int | None = None
    delivered_at: int | None = None
    answered_at: int | None = None
    ended_at: int | None = None
    owes: str | None = None

    @property
    def standing(self) -> tuple[object, ...]:
        """All but what is its own."""
        return self[_OWN:]

    def standing_as(self, other: "Delivery") -> "Delivery":
        """What is its own, and all else as another has it: half the cost of naming what differs."""
        return Delivery._make(self[:_OWN] + other[_OWN:])

    def beside(self, key: int, mailbox: str, to: str) -> "Delivery":
        """The same message in another mailbox, where it stands as here."""
        return Delivery._make((key, key, self.message_id, mailbox, to, *self[_OWN:]))


_OWN = 5

LANE_ORDER = {"person": 0, "normal": 1}
