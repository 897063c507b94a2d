"""Every bound on size and time, each with its reason. Settings may change them; nothing else invents a number.

What must stay true: a limit that waits on another is computed from it. Units stand in the names.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one hub."""

    # Sizes
    text_bytes: int = MIB  # a model's whole context is smaller than this
    body_bytes: int = MIB
    body_depth: int = 32  # deeper JSON is an attack on parsers, not data
    request_bytes: int = 2 * MIB  # one text and one body
    batch_bytes: int = 8 * MIB
    batch_messages: int = 1000
    reply_bytes: int = 5 * MIB  # a turn's answer is kept whole; beyond this it failed
    mailbox_deliveries: int = 10_000
    mailbox_bytes: int = 64 * MIB
    mailbox_deliveries_per_sender: int = 1_000  # one flooding sender cannot lock the others out
    claim_deliveries: int = 100
    claim_bytes: int = 8 * MIB  # what one answer may weigh in memory; one larger message still goes alone
    open_names: int = 10_000
    streams_per_agent: int = 64  # observers and the own one together
    streams: int = 12_000

    # Streams
    stream_window_deliveries: int = 64  # handed over and not yet written: bounds a slow reader's memory
    stream_window_bytes: int = MIB
    manual_window_deliveries: int = 16
    stream_stall_seconds: float = 10  # no byte taken for this long: cut, to resume later
    replay_deliveries: int = 10_000
    replay_seconds: int = 7 * DAY
    retry_milliseconds: int = 2_000

    # Times
    ttl_seconds: int = 7 * DAY
    ttl_min_seconds: int = 1
    ttl_max_seconds: int = 30 * DAY
    returned_grace_seconds: int = 900  # what came back after its time to live still gets this long, as Hermes has it
    lease_seconds: float = 60
    lease_min_seconds: float = 1
    lease_max_seconds: float = 30 * MINUTE
    lease_total_seconds: float = 2 * HOUR  # a wedged worker that renews for ever is not a worker
    wait_seconds: float = 60
    nack_max_seconds: float = HOUR
    auto_ack_seconds: float = 0.25  # an auto hand's ack rides in the next commit, at the latest after this
    ask_grace_seconds: float = 5  # after a 202 the reply is kept back for the caller's next request
    presence_gap_seconds: float = 30  # a shorter break is a reconnect, not news
    presence_ttl_seconds: int = HOUR
    self_test_seconds: float = 5
    settled_keep_seconds: int = 30 * DAY
    open_name_idle_seconds: int = 30 * DAY

    # Attempts and loops
    reader_attempts: int = 10
    turn_attempts: int = 2
    chain_depth: int = 64
    chain_per_hour: int = 64
    hops: int = 8

    @property
    def idempotency_seconds(self) -> int:
        """How long a settled message still answers its own retry: at least a day, for a laptop that slept."""
        return max(self.settled_keep_seconds, DAY)


NACK_BACKOFF_SECONDS = (1, 2, 4, 8, 16, 32, 60)


def nack_delay(used: int) -> int:
    """Seconds until a delivery that came back ``used`` times is due again: 1, 2, 4 … 60."""
    return NACK_BACKOFF_SECONDS[min(max(used, 1), len(NACK_BACKOFF_SECONDS)) - 1]
