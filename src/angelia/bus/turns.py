"""Turns: take the next message of an agent that is woken, and bring back what became of it.

What must stay true:

- One turn at a time for each mailbox. The adapter is the last of all hands: it takes only when no stream has been there
  for ``adapter_after_seconds`` and nobody waits in a claim. While it holds a message, no other hand gets mail of that
  mailbox, and a second attempt keeps its place.
- The answer and the end of the delivery are one unit, and so are a failure and the notice of it. An answer is exempt
  from the bounds of the sender's mailbox: the outcome of what was accepted is always told.
- Answers and notices are handed to the agent, and what its turn says to them goes nowhere: no two agents answer each
  other for ever. An ``ack`` starts no turn; it is shown with the next one. What an agent sent to itself starts none and
  is shown with none: it waits for a reader. Neither holds up what stands behind it (``bus/runs.py``: ``wakes``).
- A turn whose outcome nobody knows follows the message's ``replay``. After a start, what the hub before was in the
  middle of is still leased, and counts as such.
"""

from collections.abc import Callable, Iterator, Sequence

from angelia.bus.claim import expire, hand_over
from angelia.bus.core import Bus
from angelia.bus.draft import Draft
from angelia.bus.leases import Lease
from angelia.bus.moves import give_back, move
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Parcel, Scope, Tx
from angelia.bus.publish import accept
from angelia.bus.runs import OWN_LANE, Run, wakes
from angelia.bus.working import shown_by
from angelia.model.agent import Agent
from angelia.model.delivery import Delivery, Event, Hand, State
from angelia.model.envelope import Envelope, Intent, Kind, Replay
from angelia.model.errors import NotFound
from angelia.model.failure import Reason

LOOKED_AT = 128  # of what waits, where the first starts no turn: acks and notices of presence stand before what does
STEP = 4  # times as many as before are read where none of those did
NOTES = 20  # acks that are shown with a turn
NOTES_BYTES = 64 * 1024
GIVEN_BACK = "given back"  # no turn began
CLAIMER_SECONDS = 0.25  # between two looks while somebody waits in a claim


def hold_off(bus: Bus, mailbox: str) -> float | None:
    """Seconds until the adapter may look for work: 0 now; None until it is waked."""
    if bus.stopping or mailbox in bus.runs.busy or not bus.store.load(mailbox).ready:
        return None
    if bus.streams.own(mailbox) is not None:
        return None
    if (ended := bus.presence.ended(mailbox)) is not None:
        left = ended + bus.limits.adapter_after_seconds - bus.clock.monotonic()
        if left > 0:
            return left
    return CLAIMER_SECONDS if bus.signals.watching(mailbox) else 0.0


async def begin(bus: Bus, mailbox: str, kind: str) -> Run | None:
    """Take the next message for a turn; None where there is none, or another hand is there now."""

    def unit(tx: Tx) -> Run | None:
        if mailbox in bus.runs.busy or mailbox in bus.streams.attached or not tx.load(mailbox).ready:
            return None
        found, notes = _next(bus, tx, mailbox)
        if found is None:
            return None
        high = tx.handed_high(mailbox)
        taken: list[Parcel] = []
        for parcel in [*notes, found]:
            leased = hand_over(bus, tx, parcel, Hand.TURN, high)
            assert leased is not None
            high = leased.delivery.seq
            taken.append(leased)
        run = _run(bus, mailbox, taken[-1], taken[:-1], kind)
        bus.runs.begin(tx, run)
        tx.then(lambda: _hold(bus, run))
        return run

    return await bus.store.write(unit, essential=True)


def _next(bus: Bus, tx: Tx, mailbox: str) -> tuple[Parcel | None, list[Parcel]]:
    """The first that starts a turn, and the acks before it that are shown with it."""
    now = bus.clock.now()
    notes: list[Parcel] = []
    size = 0
    for parcel in _waiting(bus, tx, mailbox):
        delivery, envelope = parcel
        if delivery.lane == OWN_LANE:
            break  # and so is all behind it
        if delivery.attempt == 0 and delivery.expires_at <= now:
            expire(bus, tx, parcel)
        elif wakes(delivery, envelope.intent):
            return parcel, notes
        elif envelope.kind is not Kind.NOTICE and len(notes) < NOTES and size + envelope.size <= NOTES_BYTES:
            notes.append(parcel)
            size += envelope.size
    return None, []


def _waiting(bus: Bus, tx: Tx, mailbox: str) -> Iterator[Parcel]:
    """What waits there, in its order. Read in steps that grow: nearly always the first is what is looked for."""
    seen: set[int] = set()
    count, size = 1, 1
    while True:
        for parcel in tx.waiting(Scope(mailbox=mailbox), count, size):
            if parcel.delivery.key not in seen:
                seen.add(parcel.delivery.key)
                yield parcel
        load = tx.load(mailbox)
        if count >= load.ready and size >= load.bytes:
            return
        count, size = max(count * STEP, LOOKED_AT), max(size * STEP, bus.limits.claim_bytes)


def _run(bus: Bus, mailbox: str, parcel: Parcel, notes: list[Parcel], kind: str) -> Run:
    return Run(mailbox, bus.directory.name_of(mailbox), parcel, notes, since=bus.clock.now(), kind=kind)


def _hold(bus: Bus, run: Run) -> None:
    """Note who has it, for whoever looks; the lease lasts as long as the turn, whose time the runner limits."""
    for parcel in (*run.notes, run.parcel):
        since = parcel.delivery.leased_at or run.since
        bus.leases.add(Lease(parcel.delivery, Hand.TURN, since=since, ends=None, deadline=None, cap=None))


async def orphans(bus: Bus) -> list[Run]:
    """What the hub before, or a runner that failed, was in the middle of, as runs that are going on, with the acks that
    were shown with them. Called before any turn begins."""

    def unit(tx: Tx) -> list[Run]:
        runs: list[Run] = []
        notes: dict[str, list[Parcel]] = {}
        for parcel in _with_messages(tx, tx.turns()):
            mailbox = parcel.delivery.mailbox
            if parcel.envelope.intent is Intent.ACK:
                notes.setdefault(mailbox, []).append(parcel)
                continue
            if (old := bus.runs.busy.get(mailbox)) is not None:
                bus.runs.end(tx, old)
            run = _run(bus, mailbox, parcel, notes.setdefault(mailbox, []), "")
            run.orphan = True
            runs.append(run)
            bus.runs.begin(tx, run)
            tx.then(lambda run=run: _hold(bus, run))  # type: ignore[misc]
        for parcel in [note for mailbox in notes.keys() - {run.mailbox for run in runs} for note in notes[mailbox]]:
            give_back(bus, tx, parcel, Event.RELEASE, used=False)
        return runs

    return await bus.store.write(unit, essential=True)


def _with_messages(tx: Tx, deliveries: Sequence[Delivery]) -> list[Parcel]:
    return [Parcel(d, envelope) for d in deliveries if (envelope := tx.message(d.message_id)) is not None]


async def answered(bus: Bus, run: Run, text: str) -> bool:
    """The turn ended well: its answer is stored with the end of the delivery. True where an answer went out.

    None goes out to an answer or a notice, to an ``inform`` that got no words, and where the agent has answered by
    itself meanwhile.
    """

    def unit(tx: Tx) -> bool:
        here = _here(tx, run)
        wanted = run.parcel.envelope.kind is Kind.MESSAGE and (
            run.parcel.envelope.intent is Intent.REQUEST or text != ""
        )
        replies = wanted and here is not None and here.state is not State.ANSWERED
        if replies:
            draft = Draft(
                sender=run.agent,
                verified=True,
                text=text,
                in_reply_to=run.parcel.envelope.id,
                kind=Kind.REPLY,
                intent=None if text else Intent.ACK,  # nothing was said: it answers, and wakes nobody
                outcome=True,
            )
            accept(bus, tx, draft, [])
        elif here is not None and here.state is State.LEASED:
            move(bus, tx, Parcel(here, run.parcel.envelope), Event.ACK)
        _settle_notes(bus, tx, run, Event.ACK)
        _over(bus, tx, run, "answered", None)
        return replies

    return await bus.store.write(unit, weight=len(text), essential=True)


async def accepted(bus: Bus, run: Run) -> None:
    """The agent has it, and answers later by itself: delivered."""

    def unit(tx: Tx) -> None:
        _if_leased(tx, run, lambda parcel: move(bus, tx, parcel, Event.ACK))
        _settle_notes(bus, tx, run, Event.ACK)
        _over(bus, tx, run, "accepted", None)

    await bus.store.write(unit, essential=True)


async def failed(bus: Bus, run: Run, reason: Reason, text: str) -> None:
    """The turn ended without an answer, for good: the sender is told, in the same unit."""

    def unit(tx: Tx) -> None:
        _if_leased(tx, run, lambda parcel: _fail(bus, tx, parcel, reason, text))
        _settle_notes(bus, tx, run, Event.RELEASE)
        _over(bus, tx, run, "failed", reason)

    await bus.store.write(unit, essential=True)


async def again(bus: Bus, run: Run) -> bool:
    """Take the message once more, in its place, under a new attempt; False where no attempt is left, or it is not
    leased to this turn any more (then the run goes on as it was)."""

    def unit(tx: Tx) -> Run | None:
        here = _here(tx, run)
        if here is None or here.state is not State.LEASED or here.used + 1 >= bus.limits.turn_attempts:
            return None
        parcel = give_back(bus, tx, Parcel(here, run.parcel.envelope), Event.LAPSE, used=True)
        assert parcel is not None
        leased = hand_over(bus, tx, parcel, Hand.TURN, tx.handed_high(run.mailbox))
        assert leased is not None

        def took() -> None:
            run.parcel = leased
            _hold(bus, run)

        tx.then(took)
        return run

    return await bus.store.write(unit, essential=True) is not None


async def held(bus: Bus, run: Run) -> None:
    """Nobody knows what became of it, and its sender wants a person to decide."""

    def unit(tx: Tx) -> None:
        reason = Reason.OUTCOME_UNKNOWN
        used = run.parcel.delivery.used + 1
        _if_leased(tx, run, lambda parcel: move(bus, tx, parcel, Event.HOLD, reason=reason, used=used))
        _settle_notes(bus, tx, run, Event.RELEASE)
        _over(bus, tx, run, "held", reason)

    await bus.store.write(unit, essential=True)


async def given_back(bus: Bus, run: Run) -> None:
    """No turn ran (nobody to run it, a lock that is taken): everything goes back into its place, as if never taken."""

    def unit(tx: Tx) -> None:
        _if_leased(tx, run, lambda parcel: give_back(bus, tx, parcel, Event.RELEASE, used=False))
        _settle_notes(bus, tx, run, Event.RELEASE)
        _over(bus, tx, run, GIVEN_BACK, None)

    await bus.store.write(unit, essential=True)


def replays(run: Run) -> Replay:
    """What its sender wants done where nobody knows whether the turn ran. Nothing but a message is worth a person."""
    envelope: Envelope = run.parcel.envelope
    return Replay.NEVER if envelope.kind is not Kind.MESSAGE and envelope.replay is Replay.ASK else envelope.replay


def stop(bus: Bus, message_id: str) -> Run:
    """End the turn that runs for a message; ``NotFound`` where none does. Its sender is told that it was cancelled."""
    run = bus.runs.find(message_id)
    if run is None:
        raise NotFound(f"No turn runs for message {message_id[:40]}. Nothing was changed.")
    run.stopped = True
    if run.stop is not None:
        run.stop()
    return run


def looked_at(bus: Bus, agent: Agent, *, works: bool) -> None:
    """Somebody looked whether an agent can be woken as it is set up: keep what was seen."""
    spec = agent.adapter
    if spec is not None and bus.working.works(agent) is not works:
        now = bus.clock.now()
        bus.submit(lambda tx: bus.working.learn(tx, agent.mailbox, spec, works=works, now=now), essential=False)


def _here(tx: Tx, run: Run) -> Delivery | None:
    """The delivery as it is now, where it is still this turn's attempt."""
    here = tx.delivery(run.parcel.delivery.key)
    return here if here is not None and here.attempt == run.parcel.delivery.attempt else None


def _if_leased(tx: Tx, run: Run, do: Callable[[Parcel], object]) -> None:
    """Unless it was withdrawn or answered meanwhile."""
    here = _here(tx, run)
    if here is not None and here.state is State.LEASED:
        do(Parcel(here, run.parcel.envelope))


def _fail(bus: Bus, tx: Tx, parcel: Parcel, reason: Reason, text: str) -> None:
    if parcel.envelope.kind is not Kind.MESSAGE:
        move(bus, tx, parcel, Event.EXHAUST, reason=reason)
        return
    done = move(bus, tx, parcel, Event.REFUSE, reason=reason)
    if done is not None:
        tell_of_failure(bus, tx, done, reason, said=text)


def _settle_notes(bus: Bus, tx: Tx, run: Run, event: Event) -> None:
    for note in run.notes:
        here = tx.delivery(note.delivery.key)
        if here is None or here.state is not State.LEASED or here.attempt != note.delivery.attempt:
            continue
        if event is Event.ACK:
            move(bus, tx, Parcel(here, note.envelope), event)
        else:
            give_back(bus, tx, Parcel(here, note.envelope), event, used=False)


def _over(bus: Bus, tx: Tx, run: Run, outcome: str, reason: Reason | None) -> None:
    bus.runs.end(tx, run)
    works = shown_by(outcome, reason)
    if works is not None and run.spec is not None:
        bus.working.learn(tx, run.mailbox, run.spec, works=works, now=bus.clock.now())

    def effect() -> None:
        run.outcome, run.reason, run.ended = outcome, reason, bus.clock.now()
        if outcome != GIVEN_BACK:
            bus.runs.lately.append(run)
        bus.wake(run.mailbox)

    tx.then(effect)
