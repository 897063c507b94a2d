"""Send a question and wait for what becomes of it.

What must stay true: the waiter stands before the question is committed; the reply is leased to it and settled only
when it was written to a caller who is still there; a caller who went away leaves it in the mailbox. After a 202 it is
kept back for 5 s, in which the same question may be asked again.
"""

from dataclasses import dataclass

from angelia.bus.asks import Waiter
from angelia.bus.claim import release, settle_written
from angelia.bus.core import Bus
from angelia.bus.moves import move
from angelia.bus.ports import Parcel, Tx
from angelia.bus.publish import Draft, accept, check, resolve
from angelia.model.delivery import Delivery, Event, Hand, State
from angelia.model.envelope import Envelope, Intent
from angelia.model.errors import AskCycle, BadRequest
from angelia.model.failure import Reason, prose


@dataclass(slots=True)
class Answer:
    """What an ask brought: a reply, a failure, or neither yet (then ``deliveries`` say where it stands)."""

    question: Envelope
    deliveries: list[Delivery]
    reply: Envelope | None = None
    failure: tuple[Reason, str] | None = None
    waiter: Waiter | None = None


class _Written:
    """The holder of an answer whose bytes have left."""

    def settled(self, mark: int) -> bool | None:
        return True


WRITTEN = _Written()


async def ask(bus: Bus, draft: Draft, wait_seconds: float) -> Answer:
    """Ask, and wait up to ``wait_seconds``. Call ``finished`` once the answer was written, or could not be.

    Raises ``AskCycle``, and what ``publish`` raises.
    """
    bus.check_running()
    if not 0 <= wait_seconds <= bus.limits.wait_seconds:
        raise BadRequest(f"wait_seconds is {wait_seconds}; it lies between 0 and {bus.limits.wait_seconds}.")
    draft.intent = draft.intent or Intent.REQUEST
    check(bus, draft)
    recipients = resolve(bus, draft)
    asker = draft.sender.lower()
    targets = tuple(address.mailbox for address in recipients)
    circle = bus.asks.would_close_circle(asker, targets)
    if circle is not None:
        raise AskCycle(f"{' waits for '.join(circle)}. Nothing was stored; answer what you were asked first.")
    draft.id = draft.id or bus.ids.message_id()
    waiter = bus.asks.find(draft.id, asker)
    if waiter is None:
        waiter = Waiter(draft.id, asker, targets)
        bus.asks.add(waiter)
    waiter.users += 1
    ends = bus.clock.monotonic() + wait_seconds
    try:
        accepted = await bus.store.write(lambda tx: accept(bus, tx, draft, recipients))
        answer = await _outcome(bus, waiter, accepted.envelope, ends)
    except BaseException:
        waiter.users -= 1
        _close(bus, waiter)
        raise
    waiter.users -= 1
    answer.waiter = waiter
    if answer.reply is None and answer.failure is None:
        bus.timers.at(bus.clock.monotonic() + bus.limits.ask_grace_seconds, lambda: _close(bus, waiter))
    return answer


async def _outcome(bus: Bus, waiter: Waiter, question: Envelope, ends: float) -> Answer:
    with bus.signals.watch("message:" + question.id) as watch:
        while True:
            ticket = watch.ticket()
            answer = await bus.store.write(lambda tx: _look(bus, tx, waiter, question), essential=True)
            left = ends - bus.clock.monotonic()
            if answer.reply is not None or answer.failure is not None or left <= 0 or bus.stopping:
                return answer
            await bus.clock.wait(watch.changed(ticket), left)


def _look(bus: Bus, tx: Tx, waiter: Waiter, question: Envelope) -> Answer:
    """Where it stands; takes a reply, or the notice of a failure, out of the asker's mailbox for the waiter."""
    answer = Answer(question, tx.deliveries(question.id))
    answer.reply = tx.reply_to(question.id)
    if answer.reply is not None:
        _take(bus, tx, waiter, answer.reply)
        return answer
    ended = [d for d in answer.deliveries if d.state in (State.FAILED, State.DEAD)]
    late = [d for d in answer.deliveries if d.state is State.DELIVERED and d.reason is not None]
    if len(ended) + len(late) == len(answer.deliveries):
        reason = (ended + late)[0].reason or Reason.UNKNOWN
        answer.failure = (reason, prose(reason))
    return answer


def _take(bus: Bus, tx: Tx, waiter: Waiter, reply: Envelope) -> None:
    if waiter.taken:
        return
    mine = next((d for d in tx.deliveries(reply.id) if d.mailbox == waiter.asker), None)
    if mine is None or mine.state is not State.QUEUED:
        return
    now = bus.clock.now()
    leased = move(bus, tx, Parcel(mine, reply), Event.CLAIM, attempt=mine.attempt + 1, hand=Hand.ASK, leased_at=now)
    if leased is not None:
        waiter.taken = True
        tx.then(lambda: waiter.give(leased))


def finished(bus: Bus, answer: Answer, *, written: bool) -> None:
    """The answer was written to a caller who is there: settle the reply; or it was not: leave it in the mailbox."""
    waiter = answer.waiter
    if waiter is None or waiter.users:
        return
    if answer.reply is None and answer.failure is None:
        if not written:
            _close(bus, waiter)
        return
    bus.asks.remove(waiter)
    if waiter.answer is None:
        return
    if written:
        bus.autos.add(waiter.answer, WRITTEN, 0)
        settle_written(bus)
    else:
        release(bus, [waiter.answer], used=False)


def _close(bus: Bus, waiter: Waiter) -> None:
    """Nobody waits any more: a reply that came meanwhile stays in the mailbox."""
    if waiter.users or not waiter.open:
        return
    bus.asks.remove(waiter)
    # Behind every unit that may still lease to this waiter: what it was given by then goes back.
    bus.submit(lambda tx: tx.then(lambda: release(bus, [waiter.answer] if waiter.answer else [], used=False)))
