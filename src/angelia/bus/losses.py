"""Mail that the store set aside, since bits of it had flipped: it has an outcome all the same, and its sender learns.

What must stay true:

- Each is seen to once: in the unit that takes its note away. Nothing here runs unless something was set aside.
- What was not over by then has failed (``damaged``). The sender of a request gets the notice; a hub that it came from
  is told as of any other failure; the receipt says so. Who waits for an answer that is lost so gets that notice, too.
  What was over stays as it was, and nobody is told anew.
- In place of a message that is damaged stand words of the hub's own, under its id: nothing of it is handed to anybody
  as what was sent. Who had it already may still answer.
- Of a delivery that is damaged nothing is believed but what its message, or our own list of names, says as well.
"""

from enum import StrEnum
from functools import partial
from typing import TypeVar

import msgspec

from angelia.bus.core import Bus, log
from angelia.bus.moves import move
from angelia.bus.notices import tell_of_failure
from angelia.bus.ports import Note, Parcel, Tx
from angelia.bus.way_back import address_back, home_of, way_back
from angelia.model.address import EVERYONE, Address
from angelia.model.delivery import LANE_ORDER, Delivery, Event, State, after
from angelia.model.envelope import Envelope, Intent, Kind, Lane
from angelia.model.failure import Reason
from angelia.model.loss import LOSS, Loss

AT_ONCE = 20  # in one unit; then others have their turn
IN_ITS_PLACE = "[This message was damaged on the disk of the hub, and set aside. What it said is not shown.]"
_UNTOUCHED = "It had not been handed to anybody."
_ANSWERED = "It was the answer that this happened to."
_SOMEBODY = "For which of them it was cannot be read any more."

_read = msgspec.msgpack.Decoder(Loss).decode
_Word = TypeVar("_Word", bound=StrEnum)


def settle_losses(bus: Bus) -> None:
    """See to all mail that was set aside and not seen to yet."""
    bus.submit(lambda tx: _settle(bus, tx))


def _settle(bus: Bus, tx: Tx) -> None:
    notes = tx.notes(LOSS)
    for note in notes[:AT_ONCE]:
        if (loss := _opened(note)) is not None:
            (_delivery_lost if loss.whole else _message_lost)(bus, tx, loss)
        tx.put_note(note.name, None, bus.clock.now())
    if len(notes) > AT_ONCE:
        tx.then(lambda: settle_losses(bus))


def _opened(note: Note) -> Loss | None:
    try:
        return _read(note.value)
    except msgspec.MsgspecError as error:
        log.error("what is known of damaged mail cannot be read (%s): %s", note.name, error)
        return None


# ----------------------------------------------------------------------------------------------- the message is damaged


def _message_lost(bus: Bus, tx: Tx, loss: Loss) -> None:
    if tx.message(loss.message_id) is not None:
        return  # it was sent again, and counts
    stand_in = _stand_in(loss)
    tx.add(stand_in, loss.deliveries)
    for delivery in loss.deliveries:
        if after(delivery.state, Event.DAMAGE) is not None:
            _fail(bus, tx, Parcel(delivery, stand_in), loss.in_reply_to)
        elif delivery.sweep_at is not None:
            tx.then(partial(bus.timers.sweep_by, delivery.sweep_at))


def _stand_in(loss: Loss) -> Envelope:
    """What is shown in place of the message: what its deliveries say of it, and words that no single bit turns into one
    another. Where these cannot be read, somebody waits for an answer. It is no answer itself: it is never sent on."""
    first = loss.deliveries[0]
    return Envelope(
        id=loss.message_id,
        sender=loss.sender if loss.sender.lower() == first.sender else first.sender,
        to=first.to if len(loss.deliveries) == 1 else EVERYONE,
        intent=_word(Intent, loss.intent, Intent.REQUEST),
        kind=_word(Kind, loss.kind, Kind.MESSAGE),
        text=IN_ITS_PLACE,
        body=None,
        thread=loss.message_id,
        chain=loss.message_id,
        created_at=first.accepted_at,
        expires_at=first.expires_at,
        lane=Lane.PERSON if first.lane == LANE_ORDER[Lane.PERSON] else Lane.NORMAL,
        key=loss.key,
        fingerprint=loss.fingerprint,  # where that is what flipped, sending it again is refused as another message
    )


def _word(kind: type[_Word], read: str, otherwise: _Word) -> _Word:
    return kind(read) if read in list(kind) else otherwise


# ------------------------------------------------------------------------------------------------ a delivery is damaged


def _delivery_lost(bus: Bus, tx: Tx, loss: Loss) -> None:
    envelope = tx.message(loss.message_id)
    if envelope is None or (envelope.to != EVERYONE and tx.deliveries(envelope.id)):
        return  # it was none of this message, which has its own
    read = loss.deliveries[0] if loss.deliveries else None
    address = _recipient(bus, tx, envelope, read)
    parcel = Parcel(_in_its_place(bus, tx, envelope, address or Address(EVERYONE)), envelope)
    tx.add(envelope, [parcel.delivery])
    over = _was_over(envelope, read)
    if address is not None and not over:
        _fail(bus, tx, parcel, envelope.in_reply_to, certain=False)
        return
    tx.remove([parcel.delivery])  # the message too, where this was the last
    if not over and envelope.intent is Intent.REQUEST:
        tell_of_failure(bus, tx, parcel, Reason.DAMAGED, _SOMEBODY)


def _recipient(bus: Bus, tx: Tx, envelope: Envelope, read: Delivery | None) -> Address | None:
    """Whom the delivery was for: as its message says; of one to all, an agent that we know and that has no other."""
    if envelope.to != EVERYONE:
        return address_back(bus, envelope.to)
    if read is None or any(other.mailbox == read.mailbox for other in tx.deliveries(envelope.id)):
        return None
    agent = bus.directory.find(read.mailbox)
    return None if agent is None else Address(agent.handle)


def _in_its_place(bus: Bus, tx: Tx, envelope: Envelope, address: Address) -> Delivery:
    """A delivery in the place of the damaged one, about to fail."""
    came_by = way_back(bus, envelope.sender, home_of(envelope.origin))
    seq = tx.next_seq()
    return Delivery(
        key=seq,
        seq=seq,
        message_id=envelope.id,
        mailbox=address.mailbox,
        to=str(address),
        sender=envelope.sender.lower(),
        size=envelope.size,
        state=State.QUEUED,
        accepted_at=bus.clock.now(),
        expires_at=envelope.expires_at,
        sweep_at=envelope.expires_at,
        connection=address.carrier,
        lane=LANE_ORDER[envelope.lane],
        owes=None if came_by is None else came_by.carrier,
    )


def _was_over(envelope: Envelope, read: Delivery | None) -> bool:
    """Whether its sender knows the outcome: where the state and the time that goes with it both say so, since one bit
    changes one of the two."""
    if read is None:
        return False
    if read.state is State.DELIVERED:
        awaited = envelope.intent is Intent.REQUEST and read.reason is None
        return read.delivered_at is not None and not awaited
    if read.state is State.ANSWERED:
        return read.answered_at is not None
    return read.state in (State.FAILED, State.DEAD) and read.ended_at is not None


# --------------------------------------------------------------------------------------------------------- how it ends


def _fail(bus: Bus, tx: Tx, parcel: Parcel, answers: str | None, *, certain: bool = True) -> None:
    """It ends here, and whoever waits for it is told. ``answers``: the message that it says it answers; ``certain``:
    how far it had come is known."""
    delivery, envelope = parcel
    done = move(bus, tx, parcel, Event.DAMAGE)
    if done is None or delivery.state is State.DEAD:
        return  # that it failed was told
    if envelope.kind is Kind.REPLY and answers is not None:
        _tell_of_lost_answer(bus, tx, delivery, answers)
    if envelope.intent is Intent.REQUEST:
        untouched = certain and delivery.state in (State.QUEUED, State.HELD) and not delivery.attempt
        tell_of_failure(bus, tx, done, Reason.DAMAGED, _UNTOUCHED if untouched else None)


def _tell_of_lost_answer(bus: Bus, tx: Tx, answer: Delivery, answers: str) -> None:
    """Who asked gets none; where the question is theirs, and was answered by the sender of this."""
    question = tx.message(answers)
    if question is None or question.sender.lower() != answer.mailbox or question.intent is not Intent.REQUEST:
        return
    for asked in tx.deliveries(question.id):
        if asked.mailbox == answer.sender and asked.state is State.ANSWERED:
            tell_of_failure(bus, tx, Parcel(asked, question), Reason.DAMAGED, _ANSWERED)
