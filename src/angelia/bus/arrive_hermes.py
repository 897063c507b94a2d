"""Mail that was drained out of the outbox of a Hermes gateway: committed here, or refused with a reason.

What must stay true:

- What was drained is on disk before anything else is done about it: the gateway hands it out once, and once more at
  most. A repeat of an id is the same message.
- A target means what this hub showed to that gateway: an agent here, or one on another connection. A name that was not
  shown is nobody, above all not somebody here who happens to be called so: another relay has shown it.
- Its sender is a claim of that gateway, ``handle@connection``, and never one of ours.
- Each is judged alone: one that cannot be taken costs no other.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from angelia.bus.core import Bus
from angelia.bus.deliver import agent_of, attributed
from angelia.bus.draft import Draft
from angelia.bus.ports import Tx
from angelia.bus.publish import UNIT_MESSAGES, accept, check, resolve, weight
from angelia.model.address import LOCAL, Address
from angelia.model.connection import Connection
from angelia.model.envelope import Intent
from angelia.model.errors import AngeliaError, CallerError, IdReused, MailboxFull, NotAllowed, NotFound, TooLarge
from angelia.model.failure import Reason
from angelia.protocol.bot_relay_mail import BadEnvelope, RelayEnvelope
from angelia.protocol.bot_relay_rows import Row

log = logging.getLogger("angelia.links")
SHORTEST_SECONDS = 60.0  # to live, for what was drained in time by a clock that differs from ours

_REASONS: dict[type[AngeliaError], Reason] = {
    MailboxFull: Reason.MAILBOX_FULL,
    TooLarge: Reason.TOO_LARGE,
    NotAllowed: Reason.AGENT_BLOCKED,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One that was not taken: its id, and what its sender is told. ``stranger``: it is for a connection that this hub
    never showed."""

    id: str
    reason: Reason
    text: str
    stranger: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """What this hub showed to that gateway. ``here``: its own name there; ``names``: of connections that are, or were,
    among the rows (lower case)."""

    here: str
    rows: Sequence[Row]
    names: frozenset[str] = frozenset()

    def row(self, envelope: RelayEnvelope) -> Row | None:
        """Whom it is for: by its profile, to the letter where there is one such; else by its handle."""
        there = [row for row in self.rows if row.connection_id.lower() == envelope.target_connection.lower()]
        profile, handle = envelope.target_profile, envelope.target_handle.lower()
        exact = [row for row in there if row.profile == profile]
        alike = [row for row in there if row.profile.lower() == profile.lower()]
        called = [row for row in there if row.handle.lower() == handle]
        return next(iter((*exact, *alike, *called)), None)

    def knows(self, connection: str) -> bool:
        """Whether this hub showed such a connection."""
        key = connection.lower()
        return key == self.here.lower() or key in self.names or any(r.connection_id.lower() == key for r in self.rows)


async def arrive_from_hermes(
    bus: Bus, connection: Connection, shown: Shown, found: Sequence[RelayEnvelope | BadEnvelope]
) -> list[Refusal]:
    """Commit what was drained; those that were not taken, with what to tell their senders. Raises the store's error:
    then nothing is stored, and the same may be tried again."""
    refused = [bad for each in found if isinstance(each, BadEnvelope) and (bad := _bad(connection, each)) is not None]
    for writing in [bus.store.write(unit, weight=size) for unit, size in _units(bus, connection, shown, found)]:
        refused += await writing
    return refused


def arrive_unwatched(
    bus: Bus, connection: Connection, shown: Shown, found: Sequence[RelayEnvelope | BadEnvelope]
) -> None:
    """The same where nobody is left to tell anybody: as often as it takes. What is there already stays as it is."""
    for unit, _ in _units(bus, connection, shown, found):
        bus.submit(unit)


def _units(
    bus: Bus, connection: Connection, shown: Shown, found: Sequence[RelayEnvelope | BadEnvelope]
) -> list[tuple[Callable[[Tx], list[Refusal]], int]]:
    """Units that take them in their order, each with what it carries."""
    drafts = [(each, _draft(bus, connection, each)) for each in found if isinstance(each, RelayEnvelope)]
    parts = [drafts[start : start + UNIT_MESSAGES] for start in range(0, len(drafts), UNIT_MESSAGES)]
    return [(_unit(bus, connection, shown, part), sum(weight(draft) for _, draft in part)) for part in parts]


def _unit(
    bus: Bus, connection: Connection, shown: Shown, drafts: Sequence[tuple[RelayEnvelope, Draft]]
) -> Callable[[Tx], list[Refusal]]:
    def unit(tx: Tx) -> list[Refusal]:
        refused: list[Refusal] = []
        for envelope, draft in drafts:
            try:
                _take(bus, tx, connection, shown, envelope, draft)
            except IdReused:
                log.warning("%s drained another message of the id %s; the first one counts", connection.name, draft.id)
            except CallerError as error:
                stranger = not shown.knows(envelope.target_connection)
                reason = _REASONS.get(type(error), Reason.RUNTIME_OFFLINE)
                refused.append(Refusal(envelope.id, reason, error.detail, stranger))
        return refused

    return unit


def _take(bus: Bus, tx: Tx, connection: Connection, shown: Shown, envelope: RelayEnvelope, draft: Draft) -> None:
    first = tx.message(envelope.id)
    if first is not None and (first.sender.lower(), first.text) == (draft.sender.lower(), draft.text):
        return  # whoever was meant then, and whatever has become of that name since
    handle = draft.sender.partition("@")[0]
    if not connection.accepts(handle):
        raise NotAllowed(f"@{handle} may not write here; nothing was delivered.")
    row = shown.row(envelope)
    if row is None:
        where = f"'{envelope.target_connection}' is not connected here, or has no @{envelope.target_handle}"
        raise NotFound(f"{where}; nothing was delivered.")
    check(bus, draft)
    if row.connection_id.lower() == shown.here.lower():
        draft.to = agent_of(bus, row.profile)
        recipients = [Address(draft.to)]
    else:
        draft.to = f"{row.profile}@{row.connection_id}"
        recipients = resolve(bus, draft)
    accept(bus, tx, draft, recipients)


def _draft(bus: Bus, connection: Connection, envelope: RelayEnvelope) -> Draft:
    now = bus.clock.now()
    claimed = (envelope.from_profile, envelope.from_handle, LOCAL)
    sender, text = attributed(bus.remotes, bus.limits, now, connection.name, envelope.message, *claimed)
    age = max(0.0, now / 1000 - (envelope.created_at or now / 1000))
    return Draft(
        sender=f"{sender.partition('@')[0]}@{connection.name}",
        text=text,
        intent=Intent.REQUEST,
        id=envelope.id,
        ttl_seconds=max(bus.limits.relay_ttl_seconds - age, SHORTEST_SECONDS),
    )


def _bad(connection: Connection, bad: BadEnvelope) -> Refusal | None:
    """What to tell the sender of what is no envelope; None where nobody can be told."""
    log.warning("%s drained what is no message. %s", connection.name, bad.why)
    return None if bad.id is None else Refusal(bad.id, Reason.AGENT_BLOCKED, f"Not delivered: {bad.why}")
