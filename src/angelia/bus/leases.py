"""Who holds what until when: in memory only, and over when the hub ends.

What must stay true: a token names a delivery and an attempt and is signed with the store's secret, so that an ack is
understood after a restart and cannot be made up. A lease is never renewed past its cap.
"""

import hmac
from dataclasses import dataclass
from hashlib import blake2b

from angelia.bus.streams import Stream
from angelia.bus.timers import Timer
from angelia.model.delivery import Delivery, Hand
from angelia.model.errors import UnknownMessage

MAC_BYTES = 12
NO_LEASE = "That is no lease of this hub. Nothing was changed."


@dataclass(slots=True)
class Lease:
    """One delivery in somebody's hands (without its message: an idle lease holds no memory to speak of).

    ``deadline`` and ``cap`` are monotonic seconds; None: no time of its own.

    ``since`` is UTC milliseconds, for people; ``ends`` is when they may expect it back. ``stream`` is the manual stream
    that has it, where one has. ``reminder`` is when it is looked at next.
    """

    delivery: Delivery
    hand: Hand
    since: int
    ends: int | None
    deadline: float | None
    cap: float | None
    stream: Stream | None = None
    reminder: Timer | None = None

    @property
    def key(self) -> int:
        """The delivery's key."""
        return self.delivery.key

    @property
    def attempt(self) -> int:
        """The attempt it was leased under."""
        return self.delivery.attempt


class LeaseBook:
    """The leases that are on now, by delivery."""

    def __init__(self) -> None:
        self._by_key: dict[int, Lease] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, lease: Lease) -> None:
        """Note a lease; it replaces whatever was known of that delivery."""
        self._by_key[lease.key] = lease

    def get(self, key: int, attempt: int) -> Lease | None:
        """The lease of this delivery under this attempt, if it is on."""
        lease = self._by_key.get(key)
        return lease if lease is not None and lease.attempt == attempt else None

    def holder(self, key: int) -> Lease | None:
        """Whoever has it now."""
        return self._by_key.get(key)

    def drop(self, key: int, attempt: int) -> None:
        """Forget the lease of this attempt; a newer one stays."""
        lease = self.get(key, attempt)
        if lease is not None:
            del self._by_key[key]
            if lease.reminder is not None:
                lease.reminder.cancel()


def token_for(secret: bytes, key: int, attempt: int) -> str:
    """The token that settles attempt ``attempt`` of delivery ``key``."""
    word = f"{key}-{attempt}"
    return f"{word}-{blake2b(word.encode(), key=secret, digest_size=MAC_BYTES).hexdigest()}"


def read_token(secret: bytes, token: str) -> tuple[int, int]:
    """Key and attempt of a token; ``UnknownMessage`` when it is none of ours."""
    try:
        first, second, _ = token.split("-")
        key, attempt = int(first), int(second)
    except ValueError:
        raise UnknownMessage(NO_LEASE) from None
    if not hmac.compare_digest(token_for(secret, key, attempt).encode(), token.encode("utf-8", "surrogatepass")):
        raise UnknownMessage(NO_LEASE)
    return key, attempt
