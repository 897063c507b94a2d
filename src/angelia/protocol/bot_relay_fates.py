"""What becomes of a queued or claimed envelope of Hermes' relay when somebody looks at it.

What must stay true: each is handed out once, and at most once more when its claim stayed unanswered; after that it has
a typed end. Times are epoch seconds; ``None`` is no limit.
"""

from enum import Enum

from angelia.protocol.bot_relay import Times
from angelia.protocol.bot_relay_mail import RelayEnvelope


class Fate(Enum):
    """What to do with an envelope now."""

    HAND_OUT = "hand out"
    WAIT = "wait"
    EXPIRED = "queued_expired"
    TIMED_OUT = "delivery_timeout"


def of_queued(envelope: RelayEnvelope, modified: float, now: float, ttl: float | None) -> Fate:
    """One in ``outbox``. ``modified``: the file's time, which counts where the envelope says none."""
    age = now - (envelope.created_at or modified)
    return Fate.EXPIRED if ttl is not None and age > ttl else Fate.HAND_OUT


def of_claimed(envelope: RelayEnvelope, claimed: float, now: float, ttl: float | None, times: Times) -> Fate:
    """One in ``claimed`` that has no reply. ``claimed``: the file's time, set when it was claimed."""
    if now - (envelope.created_at or claimed) > times.waiter_seconds:
        return Fate.TIMED_OUT
    queued_again_for = now - claimed - times.reoffer_seconds
    if envelope.reoffered_at is not None or queued_again_for < 0:
        return Fate.WAIT
    return Fate.EXPIRED if ttl is not None and queued_again_for > ttl else Fate.HAND_OUT


def end_text(fate: Fate, envelope: RelayEnvelope, ttl: float | None) -> str:
    """What its sender is told of one that has ended."""
    target = f"@{envelope.target_handle} on {envelope.target_connection}"
    if fate is Fate.EXPIRED:
        return f"Not delivered to {target}: nobody took it within {ttl or 0:g} s."
    return f"Nothing came back from {target} in time; it may have been delivered, so do not send it again unseen."
