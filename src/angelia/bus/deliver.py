"""Hermes' ``deliver``: one call that hands a message from elsewhere to an agent here and waits for what becomes of it.

What must stay true:

- It is a question like any other: one mailbox, one order, one outcome. Its sender is a claim, ``name@connection``.
- With an id, the same id again gives the same outcome and never a second turn; who goes away loses nothing.
- Without one it leaves nothing behind that could still begin: where its turn has not begun after the wait for the lock,
  or its caller has gone before that, it is withdrawn.
- The time that it waits is computed from the limits of turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from angelia.bus.ask import Answer, ask, finished
from angelia.bus.core import Bus
from angelia.bus.draft import Draft
from angelia.bus.forward import said, times_of
from angelia.bus.moves import move
from angelia.bus.ports import Parcel, Tx
from angelia.bus.remotes import Remotes
from angelia.model.address import LOCAL
from angelia.model.delivery import Event, Hand, State
from angelia.model.envelope import Envelope, Intent
from angelia.model.errors import UnknownAgent
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.protocol.bot_relay import DEFAULT_HANDLE, DEFAULT_PROFILE, handle_of
from angelia.protocol.bot_relay_rows import Row, is_name
from angelia.protocol.prompt import read_attribution

NOBODY = "someone"  # a sender of whom nothing is said
UNPLACED = "-unknown"  # behind the pusher's name: a connection that nobody has, of a sender who may be one of several
_NAME_CHARS = 64  # of a connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """What a relay hands over: to ``agent`` (a handle of this hub), from ``sender`` (``name@connection``; with
    ``verified`` the agent whose token the caller has).

    ``id``: 32 lowercase hex digits, where the relay may ask again.
    """

    agent: str
    sender: str
    text: str
    verified: bool = False
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of it: an answer (``text``), or a ``reason`` with what is known of it in ``text``.

    ``answer``: hand it to ``ask.finished`` once the caller has it, or could not be told.
    """

    text: str
    reason: Reason | None = None
    answer: Answer | None = None


def agent_of(bus: Bus, profile: str) -> str:
    """The handle of a profile as Hermes names it: ``hermes`` in any case and ``default`` are one agent. Raises
    ``UnknownAgent``."""
    name = DEFAULT_HANDLE if profile.lower() == DEFAULT_HANDLE or profile == DEFAULT_PROFILE else profile
    agent = bus.directory.find(name.lower())
    if agent is None:
        raise UnknownAgent(f"There is no profile '{profile[:80]}' on this gateway. Nothing was stored.")
    return agent.handle


def attributed(
    remotes: Remotes,
    limits: Limits,
    now: int,
    pusher: str,
    message: str,
    profile: object,
    handle: object,
    where: object,
) -> tuple[str, str]:
    """Who wrote a relayed message, as it is called here, and its text without the header that says so.

    ``profile``, ``handle``, ``where`` (a connection in the pusher's namespace): the sender as the relay says it; what
    is no name counts as not said. A header that names somebody else stays in the text. The sender is called what the
    pusher's roster calls it, so that whoever writes to that name reaches it and nobody else.
    """
    header = read_attribution(message)
    names = (handle, handle_of(str(profile)) if is_name(profile) else None)
    told = next((str(name) for name in names if is_name(name)), None)
    named = told is None or (header is not None and told.lower() == header.handle.lower())
    own = header is not None and header.body.strip() != "" and named
    name = told or (header.handle if header is not None else NOBODY)
    connection = where if is_name(where) else header.connection if own and header is not None else None
    rows = next((push.rows for push in remotes.living(now, limits) if push.scope == pusher.lower()), ())
    found = _who(rows, name, str(connection) if connection else None, header.name if header is not None else "")
    body = header.body if own and header is not None else message
    if len(found) == 1:
        (row,) = found
        name = name if name.lower() in (row.handle.lower(), row.profile.lower()) else row.handle
        connection = row.connection_id
    elif found and not connection:
        return f"{name}@{pusher[: _NAME_CHARS - len(UNPLACED)]}{UNPLACED}", body
    return f"{name}@{remotes.shown(pusher, str(connection or LOCAL), now, limits)}", body


def _who(rows: Sequence[Row], name: str, connection: str | None, title: str) -> list[Row]:
    """The rows that a sender may be. Of several, where its connection was not said, those of the header's ``title``."""
    found = [
        row
        for row in rows
        if name.lower() in (row.handle.lower(), row.profile.lower(), handle_of(row.profile))
        and (connection is None or row.connection_id.lower() == connection.lower())
    ]
    titled = [row for row in found if row.title == title]
    return titled if len(found) > 1 and titled else found


async def deliver(bus: Bus, mail: Incoming) -> Fate:
    """Hand it over and wait. Raises what ``ask`` raises: then nothing was stored, or (``HubError``) nobody knows."""
    seconds = times_of(bus.limits).deliver_seconds
    ttl = seconds if mail.id is None else None  # so that what a hub that died leaves of it is over then, too
    draft = Draft(
        sender=await _sender_of(bus, mail),
        verified=mail.verified,
        to=mail.agent,
        text=mail.text,
        intent=Intent.REQUEST,
        id=mail.id,
        ttl_seconds=ttl,
    )
    begun = bus.clock.monotonic()
    ends = begun + seconds
    patience = begun + bus.limits.lock_wait_seconds if mail.id is None else None
    try:
        while True:
            now = bus.clock.monotonic()
            if patience is not None and now >= patience:
                patience = None
                if await _withdrawn(bus, draft):
                    return Fate(_busy(mail, bus.limits.lock_wait_seconds), Reason.TARGET_BUSY)
            if now >= ends:
                return Fate(await _given_up(bus, mail, draft, seconds), Reason.DELIVERY_TIMEOUT)
            left = min(ends, patience if patience is not None else ends) - now
            # Whom a relay speaks for does not wait itself, so no circle of asks closes over it.
            answer = await ask(bus, draft, min(left, bus.limits.wait_seconds), blocks=mail.verified)
            if not answer.pending:
                return _fate(answer)
            bus.check_running()
            finished(bus, answer, written=True)  # it goes on with the same waiter
    except BaseException:
        if mail.id is None and draft.id is not None:
            bus.submit(lambda tx: _withdraw(tx, draft))
        raise


async def _sender_of(bus: Bus, mail: Incoming) -> str:
    """Who sent it: of what is asked for once more, whoever it was at first. What a connection is called may have
    changed since."""
    id = mail.id
    first = await bus.store.read(lambda view: view.message(id)) if id is not None else None
    if first is None or (first.to.lower(), first.text) != (mail.agent.lower(), mail.text):
        return mail.sender
    return first.sender if "@" in first.sender and "@" in mail.sender else mail.sender


def _fate(answer: Answer) -> Fate:
    if answer.reply is not None:
        return Fate(said(answer.reply), answer=answer)
    assert answer.failure is not None
    reason, words = answer.failure
    told = answer.waiter.answer if answer.waiter is not None else None
    return Fate((told.envelope.text if told is not None else None) or words, reason, answer)


def _busy(mail: Incoming, seconds: float) -> str:
    return f"target_busy: @{mail.agent} was busy for {seconds:g} s; the message was not delivered"


async def _given_up(bus: Bus, mail: Incoming, draft: Draft, seconds: float) -> str:
    """Its time is over: without an id nothing is left that could be taken once more. What to say of it."""
    if mail.id is not None:
        return f"no answer within {seconds:g} s; it goes on under its id, which may be asked for again"

    def unit(tx: Tx) -> None:
        envelope = tx.message(draft.id or "")
        for delivery in tx.deliveries(draft.id or ""):
            if delivery.state in (State.QUEUED, State.HELD):
                tx.remove([delivery])
            elif delivery.state is State.LEASED and delivery.hand is not Hand.TURN and envelope is not None:
                move(bus, tx, Parcel(delivery, envelope), Event.CANCEL)

    await bus.store.write(unit, essential=True)
    return f"no answer within {seconds:g} s"


async def _withdrawn(bus: Bus, draft: Draft) -> bool:
    return await bus.store.write(lambda tx: _withdraw(tx, draft), essential=True)


def _withdraw(tx: Tx, draft: Draft) -> bool:
    """Remove it where nothing has begun; whether it is gone."""
    deliveries = tx.deliveries(draft.id or "")
    envelope: Envelope | None = tx.message(draft.id or "")
    mine = envelope is not None and envelope.sender == draft.sender
    if not mine or any(d.state not in (State.QUEUED, State.HELD) or d.used for d in deliveries):
        return False
    tx.remove(deliveries)
    return True
