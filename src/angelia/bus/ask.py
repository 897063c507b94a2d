"""Send a question and wait for what becomes of it.

What must stay true: the waiter stands before the question is committed; the reply is leased to it and settled only
when it was written to a caller who is still there; a caller who went away leaves it in the mailbox. After a 202 it is
kept back for 5 s, in which the same question may be asked again. What a waiter was given in the instant in which it
closed goes back. The notice of a failure goes the same way, so that nobody is told of one twice; where several were
asked, each notice lies in the mailbox.
"""

from dataclasses import dataclass

from angelia.bus.asks import Waiter
from angelia.bus.claim import hand_over, release, settle_written
from angelia.bus.core import Bus
from angelia.bus.draft import Draft
from angelia.bus.ports import Parcel, Tx
from angelia.bus.publish import accept, check, recipients_of, weight
from angelia.bus.runs import PLACES
from angelia.model.address import HUB
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope, Intent, Kind
from angelia.model.errors import AskCycle, BadRequest, CallerError, TokenRequired
from angelia.model.failure import Reason, prose, read_reason

_NOTICES = 100  # of the hub's own, newer than a question, that are looked through for the one about it
_QUEUED = frozenset({State.QUEUED})


@dataclass(slots=True)
class Answer:
    """What an ask brought: a reply, a failure, or neither yet (then ``deliveries`` say where it stands)."""

    question: Envelope
    deliveries: list[Delivery]
    reply: Envelope | None = None
    failure: tuple[Reason, str] | None = None
    waiter: Waiter | None = None

    @property
    def pending(self) -> bool:
        """True while there is neither reply nor failure."""
        return self.reply is None and self.failure is None


class _Written:
    """The holder of an answer whose bytes have left."""

    def settled(self, mark: int) -> bool | None:
        return True


WRITTEN = _Written()


async def ask(bus: Bus, draft: Draft, wait_seconds: float, *, blocks: bool = True) -> Answer:
    """Ask, and wait up to ``wait_seconds``. Call ``finished`` once the answer was written, or could not be.

    ``blocks``: the asker does nothing else meanwhile; not so where somebody else waits on its behalf.

    Raises ``AskCycle``, ``TokenRequired`` where the asker's name is keyed meanwhile, and what ``publish`` raises.
    """
    bus.check_running()
    if not 0 <= wait_seconds <= bus.limits.wait_seconds:
        raise BadRequest(f"wait_seconds is {wait_seconds}; it lies between 0 and {bus.limits.wait_seconds}.")
    draft.intent = draft.intent or Intent.REQUEST
    check(bus, draft)
    recipients = recipients_of(bus, draft)
    asker = draft.sender.lower()
    targets = () if isinstance(recipients, CallerError) else tuple(address.mailbox for address in recipients)
    circle = bus.asks.would_close_circle(asker, targets) if blocks else None
    if circle is not None:
        raise AskCycle(f"{' waits for '.join(circle)}. Nothing was stored; answer what you were asked first.")
    draft.id = draft.id or bus.ids.message_id()
    waiter = _join(bus, draft.id, asker, targets, blocks)
    ends = bus.clock.monotonic() + wait_seconds
    keyed = bus.directory.is_keyed(asker)
    try:
        accepted = await bus.store.write(lambda tx: accept(bus, tx, draft, recipients), weight=weight(draft))
        if accepted.envelope.id != waiter.message_id:  # a repeat by its key: the answer comes under the first id
            _leave(bus, waiter)
            waiter = _join(bus, accepted.envelope.id, asker, targets, blocks)
        waiter.targets = targets or tuple(delivery.mailbox for delivery in accepted.deliveries)
        answer = await _outcome(bus, waiter, accepted.envelope, ends, keyed)
    except BaseException:
        _leave(bus, waiter)
        raise
    answer.waiter = waiter
    if answer.pending:
        waiter.keep_until = bus.clock.monotonic() + bus.limits.ask_grace_seconds
        bus.timers.at(waiter.keep_until, lambda: _close_unused(bus, waiter))
    waiter.users -= 1
    return answer


def _join(bus: Bus, message_id: str, asker: str, targets: tuple[str, ...], blocks: bool) -> Waiter:
    waiter = bus.asks.find(message_id, asker)
    if waiter is None:
        waiter = Waiter(message_id, asker, targets, blocks=blocks)
        bus.asks.add(waiter)
    waiter.users += 1
    bus.runs.signals.wake(PLACES)
    return waiter


def _leave(bus: Bus, waiter: Waiter) -> None:
    waiter.users -= 1
    _close_unused(bus, waiter)


async def _outcome(bus: Bus, waiter: Waiter, question: Envelope, ends: float, keyed: bool) -> Answer:
    with bus.signals.watch("message:" + question.id) as watch:
        while True:
            ticket = watch.ticket()
            answer = await bus.store.write(lambda tx: _look(bus, tx, waiter, question), essential=True)
            if bus.directory.is_keyed(waiter.asker) != keyed:  # whoever waits has shown no token
                raise TokenRequired(
                    f"The name {waiter.asker} is keyed now: it takes its own token. The question is asked."
                )
            left = ends - bus.clock.monotonic()
            if not answer.pending or left <= 0 or bus.stopping:
                return answer
            await bus.clock.wait(watch.changed(ticket), left)


def _look(bus: Bus, tx: Tx, waiter: Waiter, question: Envelope) -> Answer:
    """Where it stands; takes a reply, or the notice that there is none, out of the asker's mailbox for the waiter."""
    answer = Answer(question, tx.deliveries(question.id))
    reply = tx.reply_to(question.id)
    if reply is not None and _take(bus, tx, waiter, reply):
        answer.reply = reply
        return answer
    ended = [d for d in answer.deliveries if d.state in (State.FAILED, State.DEAD)]
    late = [d for d in answer.deliveries if d.state is State.DELIVERED and d.reason is not None]
    failed = bool(answer.deliveries) and len(ended) + len(late) == len(answer.deliveries)
    notice = _notice(bus, tx, waiter, answer, failed=failed)
    on_its_way = waiter.taken and notice is None  # the notice of it, given by a unit just before: it wakes us
    if failed and not on_its_way:
        reason = (ended + late)[0].reason or Reason.UNKNOWN
        answer.failure = (reason, (notice.text if notice else None) or prose(reason))
    elif notice is not None:
        answer.failure = (read_reason(notice.reason), notice.text or "")  # it was answered, and the answer was damaged
    return answer


def _notice(bus: Bus, tx: Tx, waiter: Waiter, answer: Answer, *, failed: bool) -> Envelope | None:
    """What the waiter was given in place of an answer, and says more than the reason alone. It came to the mailbox
    where nobody waited at that moment: the hub was being started, say."""
    if waiter.answer is not None:
        given = waiter.answer.envelope
        return given if given.kind is Kind.NOTICE else None
    over = failed or all(d.state is State.ANSWERED for d in answer.deliveries)
    if not over or not answer.deliveries or waiter.taken or len(waiter.targets) != 1:
        return None
    question, asked = answer.question.id, answer.deliveries[0].key
    page = tx.inbox(waiter.asker, asked, _NOTICES, _QUEUED, HUB)
    for parcel in page.parcels:
        if parcel.envelope.in_reply_to == question and parcel.envelope.kind is Kind.NOTICE:
            return parcel.envelope if _lease(bus, tx, waiter, parcel) else None
    return None


def _take(bus: Bus, tx: Tx, waiter: Waiter, reply: Envelope) -> bool:
    """Whether the asker may see the reply: not one that is held, or was withdrawn. Where it waits, it is taken."""
    mine = next((d for d in tx.deliveries(reply.id) if d.mailbox == waiter.asker), None)
    if mine is None or mine.state in (State.HELD, State.FAILED):
        return False
    if mine.state is State.QUEUED and not waiter.taken:
        _lease(bus, tx, waiter, Parcel(mine, reply))
    return True


def _lease(bus: Bus, tx: Tx, waiter: Waiter, parcel: Parcel) -> bool:
    """Out of the mailbox, into the waiter's hands; whoever else waits with it looks again."""
    leased = hand_over(bus, tx, parcel, Hand.ASK, tx.handed_high(parcel.delivery.mailbox))
    if leased is None:
        return False
    waiter.take(tx)
    tx.then(lambda: waiter.give(leased))
    tx.then(lambda: bus.signals.wake("message:" + waiter.message_id))
    return True


def finished(bus: Bus, answer: Answer, *, written: bool) -> None:
    """The answer was written to a caller who is there: settle the reply; or it was not: leave it in the mailbox."""
    waiter = answer.waiter
    if waiter is None:
        return
    if answer.pending:
        if not written and not waiter.users:
            _close(bus, waiter)
        return
    waiter.written = waiter.written or written
    if not waiter.users:
        _close(bus, waiter)


def _close_unused(bus: Bus, waiter: Waiter) -> None:
    """Close it unless somebody waits on it, or may still come back to it."""
    if not waiter.users and waiter.keep_until <= bus.clock.monotonic():
        _close(bus, waiter)


def _close(bus: Bus, waiter: Waiter) -> None:
    """The question is over: the answer is settled when somebody has it, else it goes back into the mailbox."""
    if not waiter.open:
        return
    bus.asks.remove(waiter)
    if waiter.answer is None:
        # Behind every unit that may still lease to this waiter; what it is given by then, nobody has seen.
        bus.submit(lambda tx: tx.then(lambda: release(bus, _held(waiter), used=False)), lazy=True)
    elif waiter.written:
        bus.autos.add(waiter.answer, WRITTEN, 0)
        settle_written(bus)
    else:
        release(bus, _held(waiter), used=False)


def _held(waiter: Waiter) -> list[Parcel]:
    return [] if waiter.answer is None else [waiter.answer]
