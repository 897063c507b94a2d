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
    body_bytes: int = MIB  # as much as a text
    body_depth: int = 32  # deeper JSON is an attack on parsers, not data
    request_bytes: int = 2 * MIB  # one text and one body
    batch_bytes: int = 8 * MIB  # four of the largest requests; a batch is for many small ones
    arriving_bytes: int = 128 * MIB  # of all requests and frames by TCP that are not whole: 16 of the largest
    batch_messages: int = 1000  # as many as one sender may have waiting in a mailbox
    reply_bytes: int = 5 * MIB  # a turn's answer is kept whole; beyond this it failed
    mailbox_deliveries: int = 10_000  # days of busy mail; beyond it the reader is gone, and its senders should know
    mailbox_bytes: int = 64 * MIB  # 64 of the largest texts
    mailbox_deliveries_per_sender: int = 1_000  # one flooding sender cannot lock the others out
    mailbox_bytes_per_sender: int = 16 * MIB  # nor with few that are large: a quarter of the mailbox
    claim_deliveries: int = 100  # more than a reader works off within one lease
    claim_bytes: int = 8 * MIB  # what one answer may weigh in memory; one larger message still goes alone
    query_letters: int = 1_000  # a person's words; who has a whole page to look for has the message
    found_messages: int = 100  # in one page: more than anybody reads before asking better
    open_names: int = 10_000  # each is held in memory; a loop that makes up names must end
    roster_rows: int = 250  # of one push: a person's relay knows tens; every unknown name is looked for in all of them
    rosters: int = 32  # each is a person's desktop that relays; more are made up
    frame_bytes: int = 8 * MIB  # of the gateway: a turn's longest answer, with its escapes
    gateway_calls: int = 1_000  # of one connection at work: as many as one sender may have waiting in a mailbox
    connections: int = 1_000  # more machines than anybody has; a program that loses its id would make them for ever
    event_streams: int = 64  # people who watch; each is written to whenever anything happens
    streams_per_agent: int = 64  # observers and the own one together
    streams: int = 12_000  # each takes a file, and a process gets some 16,000

    # Streams
    stream_window_deliveries: int = 64  # handed over and not yet written: bounds a slow reader's memory
    stream_window_bytes: int = MIB  # one of the largest texts
    manual_window_deliveries: int = 16  # keeps a reader busy while its acks are on their way
    adapter_after_seconds: float = 5  # without a stream; a reader that only reconnects is back by then
    stream_stall_seconds: float = 10  # no byte taken for this long: cut, to resume later
    replay_deliveries: int = 10_000  # as many as a mailbox holds
    replay_seconds: int = 7 * DAY  # a laptop that was shut for a week
    retry_milliseconds: int = 2_000  # soon enough for people, and no tight loop

    # Times
    ttl_seconds: int = 7 * DAY  # a question of last week is rarely worth an answer
    ttl_min_seconds: int = 1  # shorter, and a busy machine alone would use it up
    ttl_max_seconds: int = 30 * DAY  # as long as settled mail is kept
    returned_grace_seconds: int = 900  # what came back after its time to live still gets this long, as Hermes has it
    relay_ttl_seconds: int = 900  # for what a relay of Hermes' is to fetch, as Hermes has it
    roster_keep_seconds: int = DAY  # a desktop that was off overnight; afterwards nobody can be written to through it
    lease_seconds: float = 60  # a reader that lives renews in time; a dead one's mail waits no longer
    lease_min_seconds: float = 1  # below this a lease would end on its way to the reader
    lease_max_seconds: float = 30 * MINUTE  # a long piece of work without renewals
    lease_total_seconds: float = 2 * HOUR  # a wedged worker that renews for ever is not a worker
    turn_seconds: float = 600  # of one attempt, as Hermes has it
    lock_wait_seconds: float = 120  # for a turn that somebody else runs, as Hermes has it
    wait_seconds: float = 60  # no longer than what stands in between keeps a silent connection
    nack_max_seconds: float = HOUR  # beyond this it is a schedule, which is the reader's own
    auto_ack_seconds: float = 0.25  # an auto hand's ack rides in the next commit, at the latest after this
    ask_grace_seconds: float = 5  # after a 202 the reply is kept back for the caller's next request
    presence_gap_seconds: float = 30  # a shorter break is a reconnect, not news
    presence_ttl_seconds: int = HOUR  # after an hour it is no news that somebody came
    self_test_seconds: float = 5  # what is asked each second costs a commit only now and then
    settled_keep_seconds: int = 30 * DAY  # for receipts, and for retries of whoever was away
    open_name_idle_seconds: int = 30 * DAY  # as long as its mail is kept

    # Attempts and loops
    reader_attempts: int = 10  # with the pauses between them some minutes of trying
    turn_attempts: int = 2  # once more when its outcome is unknown, or when a short fault may have passed
    turns: int = 8  # at once, of all agents: each may be a program of a gigabyte
    chain_depth: int = 64  # a long talk; a loop of agents is there within the hour
    chain_per_hour: int = 64  # a message a minute is a talk, more is a loop
    hops: int = 8  # more hubs in a row than anybody has

    @property
    def idempotency_seconds(self) -> int:
        """How long a settled message still answers its own retry: at least a day, for a laptop that slept."""
        return max(self.settled_keep_seconds, DAY)

    @property
    def mailbox_deliveries_unproved(self) -> int:
        """What a mailbox may hold when a sender without proof of its name writes: the last tenth is for the others."""
        return self.mailbox_deliveries - self.mailbox_deliveries // 10

    @property
    def mailbox_bytes_unproved(self) -> int:
        """The same of its bytes."""
        return self.mailbox_bytes - self.mailbox_bytes // 10


NACK_BACKOFF_SECONDS = (1, 2, 4, 8, 16, 32, 60)


def nack_delay(used: int) -> int:
    """Seconds until a delivery that came back ``used`` times is due again: 1, 2, 4 … 60."""
    return NACK_BACKOFF_SECONDS[min(max(used, 1), len(NACK_BACKOFF_SECONDS)) - 1]
