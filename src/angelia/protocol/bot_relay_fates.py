"""What becomes of an envelope in the outbox of Hermes' relay when somebody looks at it, and how an end is told.

What must stay true: each is handed out in time, or has a typed end. Times are epoch seconds; ``None`` is no limit. That
a message is offered again is the bus's rule (``bus/forward.py``).
"""

from enum import Enum

from angelia.protocol.bot_relay_mail import RelayEnvelope


class Fate(Enum):
    """What to do with an envelope now."""

    HAND_OUT = "hand out"
    EXPIRED = "queued_expired"
    TIMED_OUT = "delivery_timeout"


def of_queued(envelope: RelayEnvelope, modified: float, now: float, ttl: float | None) -> Fate:
    """One in ``outbox``. ``modified``: the file's time, which counts where the envelope says none."""
    age = now - (envelope.created_at or modified)
    return Fate.EXPIRED if ttl is not None and age > ttl else Fate.HAND_OUT


def end_text(fate: Fate, envelope: RelayEnvelope, ttl: float | None) -> str:
    """What its sender is told of one that has ended."""
    target = f"@{envelope.target_handle} on {envelope.target_connection}"
    if fate is Fate.EXPIRED:
        return f"Not delivered to {target}: nobody took it within {ttl or 0:g} s."
    return f"Nothing came back from {target} in time; it may have been delivered, so do not send it again unseen."
