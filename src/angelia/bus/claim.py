"""Take mail and settle it: claim, renew, ack, nack.

What must stay true: of any number of claimants one gets a delivery, because taking is one unit on the store's thread.
The attempt is on disk before the taker hears of it. An ack under an old attempt never settles a newer one. Whoever
goes away before it was handed anything gives it back at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from angelia.bus.caller import Caller, Rank
from angelia.bus.core import Bus
from angelia.bus.leases import Lease, read_token, token_for
from angelia.bus.moves import backoff, give_back, move, move_all, put_back
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Scope, Tx
from angelia.model.address import PERSON, RESERVED
from angelia.model.delivery import Delivery, Event, Hand, State
from angelia.model.errors import BadRequest, LeaseLost, TokenRequired, UnknownMessage
from angelia.model.failure import Reason


@dataclass(slots=True)
class Taken:
    """What a claim got, and how many more wait there."""

    parcels: list[Parcel]
    remaining: int


@dataclass(slots=True)
class Settled:
    """The outcome of an ack, nack or renewal: the state, and whether it was so before or came late."""

    state: State
    already: bool = False
    late: bool = False
    ends: int | None = None


Arrow = Callable[[Tx, Parcel], Settled]


class Claimer:
    """Whoever waits for a claim's answer; ``gone`` once it cannot be handed anything any more.

    ``taken`` is what was leased to it and is not in its hands yet.
    """

    __slots__ = ("gone", "taken")

    def __init__(self) -> None:
        self.gone = False
        self.taken: list[Parcel] = []


def take(bus: Bus, tx: Tx, scope: Scope, limit: int, hand: Hand, max_bytes: int | None = None) -> list[Parcel]:
    """Lease what is due, in order, inside a unit: something, unless nothing at all is due."""
    max_bytes = bus.limits.claim_bytes if max_bytes is None else max_bytes
    now = bus.clock.now()
    if scope.mailbox in bus.runs.busy:
        return []  # its turn has ended before anybody gets more
    taken: list[Parcel] = []
    highs: dict[str, int] = {}
    looking = limit > 0
    while looking:
        looking = False
        for parcel in tx.waiting(scope, limit, max_bytes):
            delivery = parcel.delivery
            if delivery.attempt == 0 and delivery.expires_at <= now:
                expire(bus, tx, parcel)
                looking = not taken
                continue
            if bus.jams.holds(delivery):
                tx.move(delivery, delivery._replace(deferred=True))
                looking = not taken
                continue
            if delivery.mailbox not in highs:
                highs[delivery.mailbox] = tx.handed_high(delivery.mailbox)
            leased = hand_over(bus, tx, parcel, hand, highs[delivery.mailbox])
            if leased is not None:
                highs[delivery.mailbox] = leased.delivery.seq
                taken.append(leased)
                looking = False
    return taken


def hand_over(bus: Bus, tx: Tx, parcel: Parcel, hand: Hand, high: int) -> Parcel | None:
    """Lease what waits. Where one with a later ``seq`` (``high``) was handed over before it, it takes a new one; not on
    its way to a link, where no reader resumes by it: what a cut gave back goes again in its place."""
    old, now = parcel.delivery, bus.clock.now()
    seq = old.seq if old.seq > high or hand is Hand.LINK else tx.next_seq()
    return move(bus, tx, parcel, Event.CLAIM, attempt=old.attempt + 1, hand=hand, leased_at=now, seq=seq)


def expire(bus: Bus, tx: Tx, parcel: Parcel) -> None:
    """The time to live of something that waits is over."""
    done = move(bus, tx, parcel, Event.EXPIRE)
    if done is not None:
        tell_of_failure(bus, tx, done, Reason.QUEUED_EXPIRED)


async def claim(
    bus: Bus,
    scope: Scope,
    *,
    reader: str | None,
    hand: Hand = Hand.CLAIM,
    limit: int | None = None,
    lease_seconds: float | None = None,
    wait_seconds: float = 0,
    claimer: Claimer | None = None,
) -> Taken:
    """Take up to ``limit`` deliveries, waiting up to ``wait_seconds`` for the first.

    ``reader`` is the name to make known by this claim (None: not by this one). ``lease_seconds`` applies to hands that
    settle by an ack. Raises ``BadRequest`` for a bound that is out of range, ``Stopping``, or the store's error.
    """
    bus.check_running()
    limit, seconds = _bounds(bus, limit, lease_seconds, wait_seconds)
    claimer = claimer or Claimer()
    mailbox = scope.mailbox or f"@{scope.connection}"
    ends = bus.clock.monotonic() + wait_seconds
    keyed = bus.directory.is_keyed(scope.mailbox)
    try:
        with bus.signals.watch(mailbox) as watch:
            while True:
                ticket = watch.ticket()
                _check_still(bus, scope, keyed)
                await bus.store.write(lambda tx: _take_for(bus, tx, scope, limit, hand, seconds, claimer, reader))
                _check_still(bus, scope, keyed)
                left = ends - bus.clock.monotonic()
                if claimer.taken or claimer.gone or left <= 0 or bus.stopping:
                    break
                await bus.clock.wait(watch.changed(ticket), left)
    except BaseException:
        claimer.gone = True
        raise
    finally:
        parcels, claimer.taken = claimer.taken, []
        if claimer.gone:
            release(bus, parcels, used=False)
    return Taken([] if claimer.gone else parcels, bus.store.load(mailbox).ready if scope.mailbox else 0)


def _check_still(bus: Bus, scope: Scope, keyed: bool) -> None:
    """Whoever waited when the name was keyed has shown no token."""
    if bus.directory.is_keyed(scope.mailbox) != keyed:
        raise TokenRequired(f"The name {scope.mailbox} is keyed now: it takes its own token. Nothing was taken.")


def _take_for(
    bus: Bus, tx: Tx, scope: Scope, limit: int, hand: Hand, seconds: float, claimer: Claimer, reader: str | None
) -> None:
    if reader is not None:
        bus.directory.learn(tx, reader, bus.clock.now(), member=True, most=bus.limits.open_names)
    if claimer.gone or (scope.mailbox is not None and not tx.load(scope.mailbox).ready):
        return
    parcels = take(bus, tx, scope, limit, hand)

    def handed() -> None:
        if claimer.gone:
            release(bus, parcels, used=False)
            return
        claimer.taken = parcels
        if hand is Hand.CLAIM:
            for parcel in parcels:
                grant(bus, parcel, seconds)

    tx.then(handed)


def _bounds(bus: Bus, limit: int | None, lease: float | None, wait: float) -> tuple[int, float]:
    limits = bus.limits
    limit = limits.claim_deliveries if limit is None else limit
    lease = limits.lease_seconds if lease is None else lease
    if not 1 <= limit <= limits.claim_deliveries:
        raise BadRequest(f"limit is {limit}; it lies between 1 and {limits.claim_deliveries}.")
    if not limits.lease_min_seconds <= lease <= limits.lease_max_seconds:
        raise BadRequest(
            f"lease_seconds is {lease}; it lies between {limits.lease_min_seconds} and {limits.lease_max_seconds}."
        )
    if not 0 <= wait <= limits.wait_seconds:
        raise BadRequest(f"wait_seconds is {wait}; it lies between 0 and {limits.wait_seconds}.")
    return limit, lease


def grant(bus: Bus, parcel: Parcel, seconds: float) -> Lease:
    """Start the lease of something just taken, and set the reminder of its end."""
    start = bus.clock.monotonic()
    now = bus.clock.now()
    lease = Lease(
        parcel.delivery,
        parcel.delivery.hand or Hand.CLAIM,
        since=now,
        ends=now + int(seconds * 1000),
        deadline=start + seconds,
        cap=start + bus.limits.lease_total_seconds,
    )
    bus.leases.add(lease)
    _remind(bus, lease, start + seconds)
    return lease


def _remind(bus: Bus, lease: Lease, when: float) -> None:
    """Look at a lease at ``when``, and no more at the time that was set before."""
    if lease.reminder is not None:
        lease.reminder.cancel()
    lease.reminder = bus.timers.at(when, lambda: _lapse(bus, lease))


def _lapse(bus: Bus, lease: Lease) -> None:
    """A lease is over: take it back."""
    if bus.leases.get(lease.key, lease.attempt) is not lease:
        return
    bus.leases.drop(lease.key, lease.attempt)  # over from now on: nobody renews what is on its way back

    bus.submit(lambda tx: put_back(bus, tx, [lease.delivery], Event.LAPSE, used=True))


def release(bus: Bus, parcels: Sequence[Parcel], *, used: bool) -> None:
    """Give back, at once and without waiting, what somebody held. ``used``: bytes may have reached it."""
    if not parcels:
        return
    event = Event.LAPSE if used else Event.RELEASE

    def unit(tx: Tx) -> None:
        for parcel in parcels:
            give_back(bus, tx, parcel, event, used=used)

    bus.submit(unit)


def settle_written(bus: Bus) -> None:
    """Settle, in the next commit, what ``bus.autos`` was told of."""
    if bus.autos.queued:
        return
    bus.autos.queued = True

    def unit(tx: Tx) -> None:
        bus.autos.queued = False
        written = bus.autos.take()
        tx.otherwise(lambda: bus.autos.put_back(written))
        move_all(bus, tx, [parcel for parcel, _, _ in written], Event.ACK)
        if bus.autos.waiting():
            tx.then(lambda: settle_written(bus))

    bus.submit(unit, lazy=True)


async def ack(bus: Bus, caller: Caller, token: str) -> Settled:
    """The work is done. Raises ``LeaseLost`` when somebody else has, or had, it since."""

    def arrow(tx: Tx, parcel: Parcel) -> Settled:
        if parcel.delivery.state is State.LEASED:
            move(bus, tx, parcel, Event.ACK)
            return Settled(State.DELIVERED)
        if parcel.delivery.state is State.QUEUED:
            move(bus, tx, parcel, Event.LATE_ACK, late=True)
            return Settled(State.DELIVERED, late=True)
        return Settled(parcel.delivery.state, already=True)

    return await settle(bus, caller, token, arrow, {State.LEASED, State.QUEUED, State.DELIVERED, State.ANSWERED})


async def nack(bus: Bus, caller: Caller, token: str, delay_seconds: float | None) -> Settled:
    """The work failed: due again after ``delay_seconds`` (None: 1, 2, 4 … 60 s by how often it came back)."""
    if delay_seconds is not None and not 0 <= delay_seconds <= bus.limits.nack_max_seconds:
        raise BadRequest(f"delay_seconds is {delay_seconds}; it lies between 0 and {bus.limits.nack_max_seconds}.")

    def arrow(tx: Tx, parcel: Parcel) -> Settled:
        if parcel.delivery.state is not State.LEASED:
            return Settled(parcel.delivery.state, already=True)
        delay = backoff(parcel) if delay_seconds is None else delay_seconds
        back = give_back(bus, tx, parcel, Event.NACK, used=True, delay=delay)
        return Settled(back.delivery.state if back else State.QUEUED)

    return await settle(bus, caller, token, arrow, {State.LEASED, State.QUEUED, State.DEAD})


async def renew(bus: Bus, caller: Caller, token: str, lease_seconds: float | None) -> Settled:
    """Go on holding it, to at most the cap of two hours. Costs no commit."""
    _, seconds = _bounds(bus, None, lease_seconds, 0)
    key, attempt = read_token(bus.store.secret, token)
    lease = bus.leases.get(key, attempt)
    if lease is None:
        raise await bus.store.read(lambda view: _lost(bus, caller, view.delivery(key)))
    _own(bus, caller, lease.delivery)
    if lease.deadline is None or lease.cap is None:
        return Settled(State.LEASED)  # a manual stream's lease lasts as long as the stream
    start = bus.clock.monotonic()
    deadline = min(start + seconds, lease.cap)
    if deadline <= start:
        raise LeaseLost(f"This lease has lasted {bus.limits.lease_total_seconds} s; it cannot be renewed any further.")
    lease.deadline = deadline
    lease.ends = bus.clock.now() + int((deadline - start) * 1000)
    _remind(bus, lease, deadline)
    return Settled(State.LEASED, ends=lease.ends)


async def settle(bus: Bus, caller: Caller, token: str, arrow: Arrow, good: set[State]) -> Settled:
    """Take an arrow of what a token stands for, in one unit; ``LeaseLost`` where its state is none of ``good``."""
    bus.check_running()
    key, attempt = read_token(bus.store.secret, token)

    def unit(tx: Tx) -> Settled:
        delivery = tx.delivery(key)
        envelope = tx.message(delivery.message_id) if delivery else None
        if delivery is None or envelope is None or delivery.attempt != attempt or delivery.state not in good:
            raise _lost(bus, caller, delivery)
        _own(bus, caller, delivery)
        return arrow(tx, Parcel(delivery, envelope))

    return await bus.store.write(unit, essential=True)


def _own(bus: Bus, caller: Caller, delivery: Delivery) -> None:
    """Another agent's lease is not found, whatever the caller knows of it."""
    if not owns(bus, caller, delivery.mailbox):
        raise UnknownMessage("There is no such lease of yours.")


def owns(bus: Bus, caller: Caller, mailbox: str) -> bool:
    """Whether ``caller`` may act for a mailbox: its own token's, an open name's; admin for ``human`` and open names. A
    name elsewhere is nobody's here, however open it may be there."""
    if caller.rank is Rank.AGENT:
        return caller.mailbox == mailbox
    if "@" in mailbox:
        return False
    if mailbox in RESERVED:
        return mailbox == PERSON and caller.rank is Rank.ADMIN
    return caller.rank in (Rank.OPEN, Rank.ADMIN) and not bus.directory.is_keyed(mailbox)


def _lost(bus: Bus, caller: Caller, delivery: Delivery | None) -> LeaseLost | UnknownMessage:
    if delivery is None or not owns(bus, caller, delivery.mailbox):
        return UnknownMessage("There is no such lease of yours.")
    hand = delivery.hand.value if delivery.hand else "nobody"
    return LeaseLost(
        f"That lease is over: the delivery is {delivery.state.word}, at attempt {delivery.attempt}.",
        state=delivery.state.word,
        attempt=delivery.attempt,
        holder=hand if delivery.state is State.LEASED else None,
    )


def lease_token(bus: Bus, parcel: Parcel) -> str:
    """The token that settles this parcel."""
    return token_for(bus.store.secret, parcel.delivery.key, parcel.delivery.attempt)
