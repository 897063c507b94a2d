"""The rows of the memory store, and the port's view and unit over them.

What must stay true: rows change only through ``MemoryTx._set``, which remembers how to change them back. Plain and slow
on purpose: it is the text by which the other stores are read.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from angelia.bus.ports import Load, Note, Page, Parcel, Scope
from angelia.model.agent import Agent, Token
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope, Kind
from angelia.model.errors import Unwell
from angelia.storage.calls import run_undos
from angelia.storage.load import Change, Loads, added, moved, weigh

_GONE = object()


@dataclass
class Rows:
    """All that is kept. Only dictionaries, so that every change can be undone in one way."""

    messages: dict[str, Envelope] = field(default_factory=dict)
    accepted_at: dict[str, int] = field(default_factory=dict)
    deliveries: dict[int, Delivery] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    contacts: dict[tuple[str, str], int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Note] = field(default_factory=dict)


class MemoryView:
    """``ports.View`` over the rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def message(self, message_id: str) -> Envelope | None:
        return self._rows.messages.get(message_id)

    def by_key(self, sender: str, key: str) -> Envelope | None:
        found = (m for m in self._rows.messages.values() if m.key == key and m.sender.lower() == sender)
        return next(found, None)

    def reply_to(self, message_id: str) -> Envelope | None:
        found = (m for m in self._rows.messages.values() if m.in_reply_to == message_id and m.kind is Kind.REPLY)
        return next(found, None)

    def delivery(self, key: int) -> Delivery | None:
        return self._rows.deliveries.get(key)

    def deliveries(self, message_id: str) -> list[Delivery]:
        found = [d for d in self._rows.deliveries.values() if d.message_id == message_id]
        return sorted(found, key=lambda d: d.key)

    def waiting(self, scope: Scope, limit: int, max_bytes: int) -> list[Parcel]:
        found = [
            d
            for d in self._rows.deliveries.values()
            if d.state is State.QUEUED
            and not d.deferred
            and (d.mailbox == scope.mailbox if scope.mailbox is not None else d.connection == scope.connection)
        ]
        return self._parcels(sorted(found, key=lambda d: (d.lane, d.seq)), limit, max_bytes)

    def waiting_from(self, mailbox: str, sender: str, limit: int, max_bytes: int) -> list[Parcel]:
        found = [d for d in self._mailbox(mailbox) if d.state is State.QUEUED and d.sender == sender]
        return self._parcels(sorted(found, key=lambda d: (d.lane, d.seq)), limit, max_bytes)

    def leased(self, mailbox: str, hands: Iterable[Hand]) -> list[Delivery]:
        wanted = set(hands)
        return [d for d in self._mailbox(mailbox) if d.state is State.LEASED and d.hand in wanted]

    def returned(self, mailbox: str, hand: Hand, upto: int) -> list[Delivery]:
        found = self._mailbox(mailbox)
        return [d for d in found if d.state is State.QUEUED and d.attempt and d.hand is hand and d.seq <= upto]

    def handed_high(self, mailbox: str) -> int:
        removed = self._rows.removed.get(mailbox, 0)
        return max([removed, *(d.seq for d in self._mailbox(mailbox) if d.attempt)])

    def history(self, mailbox: str, after: int, upto: int, limit: int, max_bytes: int) -> list[Parcel]:
        settled = (State.DELIVERED, State.ANSWERED)
        found = [d for d in self._mailbox(mailbox) if d.state in settled and after < d.seq <= upto]
        return self._parcels(found, limit, max_bytes)

    def replay_floor(self, mailbox: str, since: int, rows: int) -> int:
        handed = [d for d in self._mailbox(mailbox) if d.attempt]
        beyond = handed[: max(len(handed) - rows, 0)]
        old = [d for d in handed if d.leased_at is not None and d.leased_at < since]
        return 1 + max(self._rows.removed.get(mailbox, 0), *(d.seq for d in [*beyond, *old]), 0)

    def inbox(self, mailbox: str, after: int, limit: int, states: frozenset[State] | None, sender: str | None) -> Page:
        def shown(d: Delivery) -> bool:
            fits = d.state.open if states is None else d.state in states
            return fits and (sender is None or d.sender.lower() == sender)

        rows = self._mailbox(mailbox)
        here = [d for d in rows if d.state.open]
        page = [d for d in rows if d.seq > after and shown(d)]
        return Page(
            parcels=[Parcel(d, self._rows.messages[d.message_id]) for d in page[:limit]],
            total=len(here),
            hidden=sum(not shown(d) for d in here),
            oldest_unread_at=self.oldest_unread(mailbox),
            next=page[limit - 1].seq if len(page) > limit else None,
        )

    def dead(self, after: int, limit: int) -> list[Parcel]:
        found = [d for d in self._rows.deliveries.values() if d.state in (State.DEAD, State.HELD) and d.key > after]
        return self._parcels(sorted(found, key=lambda d: d.key), limit, None)

    def stuck(self, limit: int) -> tuple[int, int]:
        found = [d for d in self._rows.deliveries.values() if d.state in (State.DEAD, State.HELD)]
        states = [d.state for d in sorted(found, key=lambda d: d.key)[:limit]]
        return states.count(State.HELD), states.count(State.DEAD)

    def set_aside_count(self, limit: int) -> int:
        return 0

    def due(self, now: int, limit: int) -> list[Parcel]:
        found = [(d.sweep_at, d.key, d) for d in self._rows.deliveries.values() if d.sweep_at is not None]
        return self._parcels([d for at, _, d in sorted(found, key=lambda x: x[:2]) if at <= now], limit, None)

    def next_sweep(self) -> int | None:
        return min((d.sweep_at for d in self._rows.deliveries.values() if d.sweep_at is not None), default=None)

    def chain_count(self, chain: str, since: int) -> int:
        rows = self._rows
        found = (m for m in rows.messages.values() if m.chain == chain and m.depth > 0)
        return sum(rows.accepted_at[m.id] >= since for m in found)

    def oldest_unread(self, mailbox: str) -> int | None:
        unread = (State.QUEUED, State.LEASED)
        return min((d.accepted_at for d in self._mailbox(mailbox) if d.state in unread), default=None)

    def agent(self, mailbox: str) -> Agent | None:
        return self._rows.agents.get(mailbox)

    def agents(self) -> list[Agent]:
        return sorted(self._rows.agents.values(), key=lambda agent: agent.mailbox)

    def tokens(self) -> list[Token]:
        return sorted(self._rows.tokens.values(), key=lambda token: token.id)

    def contacts(self, mailbox: str, limit: int) -> list[str]:
        found = [(-at, other) for (one, other), at in self._rows.contacts.items() if one == mailbox]
        return [other for _, other in sorted(found)[:limit]]

    def turns(self) -> list[Delivery]:
        found = (d for d in self._rows.deliveries.values() if d.state is State.LEASED and d.hand is Hand.TURN)
        return sorted(found, key=lambda d: d.key)

    def owed(self, connection: str, limit: int) -> list[Delivery]:
        found = (d for d in self._rows.deliveries.values() if d.owes == connection and not d.state.open)
        return sorted(found, key=lambda d: d.key)[:limit]

    def links_with_mail(self) -> list[str]:
        here = self._rows.deliveries.values()
        return sorted({d.connection for d in here if d.connection and d.state is State.QUEUED and not d.deferred})

    def links_owed(self) -> list[str]:
        return sorted({d.owes for d in self._rows.deliveries.values() if d.owes is not None and not d.state.open})

    def backlog(self, connection: str, limit: int) -> tuple[int, int | None]:
        queued = [d for d in self._rows.deliveries.values() if d.state is State.QUEUED and d.connection == connection]
        return min(len(queued), limit), min((d.accepted_at for d in queued), default=None)

    def carried(self, connection: str, after: int, limit: int) -> list[Parcel]:
        there = (State.QUEUED, State.FORWARDED)
        found = [d for d in self._rows.deliveries.values() if d.connection == connection and d.state in there]
        return self._parcels(sorted((d for d in found if d.key > after), key=lambda d: d.key), limit, None)

    def note(self, name: str) -> bytes | None:
        found = self._rows.notes.get(name)
        return found.value if found else None

    def notes(self, prefix: str) -> list[Note]:
        return [note for name, note in sorted(self._rows.notes.items()) if name.startswith(prefix)]

    def self_test(self) -> int:
        return self._rows.values.get("self_test", 0)

    def _mailbox(self, mailbox: str) -> list[Delivery]:
        return sorted((d for d in self._rows.deliveries.values() if d.mailbox == mailbox), key=lambda d: d.seq)

    def _parcels(self, found: list[Delivery], limit: int, max_bytes: int | None) -> list[Parcel]:
        parcels: list[Parcel] = []
        weight = 0
        for delivery in found[: max(limit, 0)]:
            weight += delivery.size
            if parcels and max_bytes is not None and weight > max_bytes:
                break
            parcels.append(Parcel(delivery, self._rows.messages[delivery.message_id]))
        return parcels


class MemoryTx(MemoryView):
    """``ports.Tx``: a view that also changes the rows and remembers how to change them back."""

    def __init__(self, rows: Rows, loads: Loads, seqs: "Seqs") -> None:
        super().__init__(rows)
        self._loads, self._seqs = loads, seqs
        self._undo: list[tuple[dict[Any, Any], Any, object]] = []
        self.changes: list[Change] = []
        self.effects: list[Callable[[], None]] = []
        self.undos: list[Callable[[], None]] = []

    def rollback(self) -> None:
        run_undos(reversed(self.undos))
        for mapping, key, old in reversed(self._undo):
            if old is _GONE:
                del mapping[key]
            else:
                mapping[key] = old
        self._loads.undo(self.changes)

    def then(self, effect: Callable[[], None]) -> None:
        self.effects.append(effect)

    def otherwise(self, undo: Callable[[], None]) -> None:
        self.undos.append(undo)

    def next_seq(self) -> int:
        self._seqs.last += 1
        return self._seqs.last

    def load(self, mailbox: str) -> Load:
        return self._loads.of(mailbox)

    def add(self, envelope: Envelope, deliveries: Sequence[Delivery]) -> None:
        if envelope.id not in self._rows.messages:
            accepted_at = max((d.accepted_at for d in deliveries), default=envelope.created_at)
            self._set(self._rows.messages, envelope.id, envelope)
            self._set(self._rows.accepted_at, envelope.id, accepted_at)
        for delivery in deliveries:
            if delivery.key in self._rows.deliveries:
                raise Unwell(f"The store refused a row: delivery {delivery.key} is there already. Nothing was stored.")
            self._set(self._rows.deliveries, delivery.key, delivery)
            self._sum(added(delivery))

    def move(self, old: Delivery, new: Delivery) -> bool:
        here = self._rows.deliveries.get(old.key)
        if here is None or here.state is not old.state or here.attempt != old.attempt:
            return False
        self._sum(moved(here, new))
        self._set(self._rows.deliveries, old.key, new)
        return True

    def move_all(self, pairs: Sequence[tuple[Delivery, Delivery]]) -> Sequence[tuple[Delivery, Delivery]]:
        return [pair for pair in pairs if self.move(*pair)]

    def remove(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            here = self._rows.deliveries.get(delivery.key)
            if here is None:
                continue
            self._set(self._rows.deliveries, here.key, _GONE)
            self._sum(weigh(here.mailbox, here.sender, here.state, here.deferred, here.size, -1))
            if here.attempt and here.seq > self._rows.removed.get(here.mailbox, 0):
                self._set(self._rows.removed, here.mailbox, here.seq)
            if not self.deliveries(here.message_id):
                self._set(self._rows.messages, here.message_id, _GONE)
                self._set(self._rows.accepted_at, here.message_id, _GONE)

    def put_agent(self, agent: Agent) -> None:
        self._set(self._rows.agents, agent.mailbox, agent)

    def remove_agent(self, mailbox: str) -> None:
        self._set(self._rows.agents, mailbox, _GONE)
        for token in [token for token in self.tokens() if token.mailbox == mailbox]:
            self.remove_token(token.id)

    def put_token(self, token: Token) -> None:
        self._set(self._rows.tokens, token.id, token)

    def remove_token(self, token_id: str) -> None:
        self._set(self._rows.tokens, token_id, _GONE)

    def add_contact(self, one: str, other: str, now: int) -> None:
        self._set(self._rows.contacts, (one, other), now)
        self._set(self._rows.contacts, (other, one), now)

    def put_note(self, name: str, value: bytes | None, now: int) -> None:
        self._set(self._rows.notes, name, _GONE if value is None else Note(name, value, now))

    def put_self_test(self, value: int) -> None:
        self._set(self._rows.values, "self_test", value)

    def _sum(self, change: Change | None) -> None:
        if change is not None:
            self.changes.append(change)
            self._loads.apply([change])

    def _set(self, mapping: dict[Any, Any], key: Any, value: object) -> None:
        old = mapping.get(key, _GONE)
        if old is value:
            return
        self._undo.append((mapping, key, old))
        if value is _GONE:
            del mapping[key]
        else:
            mapping[key] = value


@dataclass
class Seqs:
    """The counter: a number once given is never given again, whatever became of the unit that took it."""

    last: int = 0
