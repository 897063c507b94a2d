"""``ports.View`` over a connection.

What must stay true: nothing here outlives the transaction that its owner opened; a row whose sum does not match is
never given out, nor one that an index led to and that is not what was asked for: it may be another's. No look-up walks
a backlog unless the port asks for a count over it.
"""

from collections.abc import Callable, Iterable

from angelia.bus.ports import Note, Page, Parcel, Scope
from angelia.model.agent import Agent, Token
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope
from angelia.storage.sqlite.bad_rows import DELIVERY, MESSAGE
from angelia.storage.sqlite.connect import Desk
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import DELIVERY_COLUMNS, Row, agent_of, delivery_of, is_right, message_of, token_of

_MESSAGE, _BY_KEY, _REPLY_TO = SQL["message"], SQL["message_by_key"], SQL["reply_to"]
_DELIVERY, _DELIVERIES, _PARCEL = SQL["delivery"], SQL["deliveries"], SQL["parcel"]
_IN_MAILBOX, _ON_CONNECTION = SQL["waiting_in_mailbox"], SQL["waiting_on_connection"]
_WAITING_FROM = SQL["waiting_from"]
_LEASED, _RETURNED, _HANDED_HIGH = SQL["leased"], SQL["returned"], SQL["handed_high"]
_HISTORY = (SQL["history_handed"], SQL["history_unhanded"])
_REPLAY_FLOOR, _INBOX_SUMS, _OLDEST_UNREAD = SQL["replay_floor"], SQL["inbox_sums"], SQL["oldest_unread"]
_INBOX_OPEN, _INBOX_ENDED = SQL["inbox_open"], (SQL["inbox_handed"], SQL["inbox_unhanded"])
_STUCK = SQL["stuck"]
_DEAD, _DUE, _NEXT_SWEEP, _CHAIN_COUNT = SQL["dead"], SQL["due"], SQL["next_sweep"], SQL["chain_count"]
_OWED, _BACKLOG, _CARRIED = SQL["owed"], SQL["backlog"], SQL["carried"]
_LINKS_WITH_MAIL, _LINKS_OWED = SQL["links_with_mail"], SQL["links_owed"]
_TURNS, _NOTE, _NOTES = SQL["turns"], SQL["note"], SQL["notes"]
_AGENT, _AGENTS, _TOKENS, _CONTACTS, _VALUE = SQL["agent"], SQL["agents"], SQL["tokens"], SQL["contacts"], SQL["value"]

_COUNT_DAMAGED = SQL["count_damaged"]

_OPEN = frozenset(state for state in State if state.open)
_NO_BOUND = 1 << 62
UNKNOWN = (0, "")  # something is damaged, and it is not known which row


class SqliteView:
    """One consistent picture. ``damaged`` is told the number and table of a row that is not what was written, 0 for the
    tables that have no numbers; ``UNKNOWN`` where an index may be what is wrong."""

    __slots__ = ("_own", "_tell")

    def __init__(self, desk: Desk, damaged: Callable[[int, str], None] | None = None) -> None:
        self._own, self._tell = desk, damaged

    @property
    def _desk(self) -> Desk:
        """The connection, with all on it that there is to see."""
        return self._own

    def message(self, message_id: str) -> Envelope | None:
        return self._message(_MESSAGE, (message_id,))

    def by_key(self, sender: str, key: str) -> Envelope | None:
        return self._message(_BY_KEY, (key, sender))

    def reply_to(self, message_id: str) -> Envelope | None:
        return self._message(_REPLY_TO, (message_id,))

    def delivery(self, key: int) -> Delivery | None:
        rows = self._desk.run(_DELIVERY, (key,))
        delivery = delivery_of(rows[0]) if rows else None
        if rows and delivery is None:
            self._damaged(key, DELIVERY)
        return delivery

    def deliveries(self, message_id: str) -> list[Delivery]:
        return self._deliveries(_DELIVERIES, (message_id,), lambda d: d.message_id == message_id)

    def waiting(self, scope: Scope, limit: int, max_bytes: int) -> list[Parcel]:
        if (mailbox := scope.mailbox) is not None:
            return self._walk(_IN_MAILBOX, (mailbox,), limit, max_bytes, lambda d: d.mailbox == mailbox)
        return self._walk(
            _ON_CONNECTION, (scope.connection,), limit, max_bytes, lambda d: d.connection == scope.connection
        )

    def waiting_from(self, mailbox: str, sender: str, limit: int, max_bytes: int) -> list[Parcel]:
        keys = [row[0] for row in self._desk.run(_WAITING_FROM, (mailbox, sender, limit))]
        return self._parcels(keys, limit, max_bytes, lambda d: (d.mailbox, d.sender) == (mailbox, sender))

    def leased(self, mailbox: str, hands: Iterable[Hand]) -> list[Delivery]:
        wanted = set(hands)
        found = self._deliveries(_LEASED, (mailbox,), lambda d: d.mailbox == mailbox and d.state is State.LEASED)
        return sorted((d for d in found if d.hand in wanted), key=lambda d: d.seq)

    def returned(self, mailbox: str, hand: Hand, upto: int) -> list[Delivery]:
        return self._deliveries(_RETURNED, (mailbox, upto, hand.value), lambda d: d.mailbox == mailbox)

    def handed_high(self, mailbox: str) -> int:
        return self._number(_HANDED_HIGH, (mailbox,)) or 0

    def history(self, mailbox: str, after: int, upto: int, limit: int, max_bytes: int) -> list[Parcel]:
        keys = self._merged(_HISTORY, (mailbox, after, upto, limit))
        return self._parcels((key for _, key in keys), limit, max_bytes, lambda d: d.mailbox == mailbox)

    def replay_floor(self, mailbox: str, since: int, rows: int) -> int:
        return self._number(_REPLAY_FLOOR, (mailbox, since, rows)) or 1

    def inbox(self, mailbox: str, after: int, limit: int, states: frozenset[State] | None, sender: str | None) -> Page:
        wanted = _OPEN if states is None else states
        bits = sum(1 << state for state in wanted)
        arms = ((_INBOX_OPEN,) if wanted & _OPEN else ()) + (_INBOX_ENDED if wanted - _OPEN else ())
        keys = self._merged(arms, (mailbox, bits, sender, after, limit + 1))
        (total, hidden) = self._desk.run(_INBOX_SUMS, (mailbox, bits, sender))[0]
        return Page(
            parcels=self._parcels((key for _, key in keys[:limit]), limit, _NO_BOUND, lambda d: d.mailbox == mailbox),
            total=total,
            hidden=hidden,
            oldest_unread_at=self.oldest_unread(mailbox),
            next=keys[limit - 1][0] if len(keys) > limit else None,
        )

    def dead(self, after: int, limit: int) -> list[Parcel]:
        keys = [row[0] for row in self._desk.run(_DEAD, (after, limit))]
        return self._parcels(keys, limit, _NO_BOUND, lambda d: d.state in (State.HELD, State.DEAD))

    def stuck(self, limit: int) -> tuple[int, int]:
        states = [state for (state,) in self._desk.run(_STUCK, (limit,))]
        return states.count(State.HELD), states.count(State.DEAD)

    def due(self, now: int, limit: int) -> list[Parcel]:
        keys = [row[0] for row in self._desk.run(_DUE, (now, limit))]
        return self._parcels(keys, limit, _NO_BOUND, lambda d: d.sweep_at is not None and d.sweep_at <= now)

    def next_sweep(self) -> int | None:
        return self._number(_NEXT_SWEEP, ())

    def chain_count(self, chain: str, since: int) -> int:
        return self._number(_CHAIN_COUNT, (chain, since)) or 0

    def oldest_unread(self, mailbox: str) -> int | None:
        return self._number(_OLDEST_UNREAD, (mailbox,))

    def agent(self, mailbox: str) -> Agent | None:
        rows = self._right("agent", _AGENT, (mailbox,))
        return agent_of(rows[0]) if rows else None

    def agents(self) -> list[Agent]:
        return [agent_of(row) for row in self._right("agent", _AGENTS)]

    def tokens(self) -> list[Token]:
        return [token_of(row) for row in self._right("token", _TOKENS)]

    def contacts(self, mailbox: str, limit: int) -> list[str]:
        return [row[1] for row in self._right("contact", _CONTACTS, (mailbox, limit))]

    def turns(self) -> list[Delivery]:
        return self._deliveries(_TURNS, (), lambda d: d.hand is Hand.TURN)

    def owed(self, connection: str, limit: int) -> list[Delivery]:
        return self._deliveries(_OWED, (connection, limit), lambda d: d.owes == connection)

    def links_with_mail(self) -> list[str]:
        return _names(self._desk.run(_LINKS_WITH_MAIL))

    def links_owed(self) -> list[str]:
        return _names(self._desk.run(_LINKS_OWED))

    def backlog(self, connection: str, limit: int) -> tuple[int, int | None]:
        count, oldest = self._desk.run(_BACKLOG, (connection, limit))[0]
        return count, oldest

    def carried(self, connection: str, after: int, limit: int) -> list[Parcel]:
        keys = [row[0] for row in self._desk.run(_CARRIED, (connection, after, limit))]
        return self._parcels(keys, limit, _NO_BOUND, lambda d: d.connection == connection)

    def note(self, name: str) -> bytes | None:
        rows = self._right("note", _NOTE, (name,))
        return rows[0][1] if rows else None

    def notes(self, prefix: str) -> list[Note]:
        return [Note(*row[:3]) for row in self._right("note", _NOTES, (prefix, prefix + "\U0010ffff"))]

    def self_test(self) -> int:
        return self._number(_VALUE, ("self_test",)) or 0

    def set_aside_count(self, limit: int) -> int:
        return self._number(_COUNT_DAMAGED, (limit,)) or 0

    def _damaged(self, number: int, table: str) -> None:
        """A row is not what was written."""
        if self._tell is not None:
            self._tell(number, table)

    def _right(self, table: str, sql: str, values: Row = ()) -> list[Row]:
        """The rows of a small table that are what was written."""
        rows = self._desk.run(sql, values)
        right = [row for row in rows if is_right(row)]
        if len(right) < len(rows):
            self._damaged(0, table)
        return right

    def _deliveries(self, sql: str, values: Row, fits: Callable[[Delivery], bool]) -> list[Delivery]:
        """The deliveries that a statement gives, that are what was written, and that an index was right about."""
        found = []
        for row in self._desk.run(sql, values):
            delivery = delivery_of(row)
            if delivery is None:
                self._damaged(row[0], DELIVERY)
            elif not fits(delivery):
                self._damaged(*UNKNOWN)
            else:
                found.append(delivery)
        return found

    def _number(self, sql: str, values: Row) -> int | None:
        rows = self._desk.run(sql, values)
        return rows[0][0] if rows else None

    def _message(self, sql: str, values: Row) -> Envelope | None:
        """The first sound message of a statement."""
        for row in self._desk.run(sql, values):
            envelope = message_of(row)
            if envelope is not None:
                return envelope
            self._damaged(row[-1], MESSAGE)
        return None

    def _merged(self, statements: Iterable[str], values: Row) -> list[tuple[int, int]]:
        """(seq, key) of several statements that each end with a limit, as one list in order of seq under that limit."""
        found = [(seq, key) for sql in statements for seq, key in self._desk.run(sql, values)]
        return sorted(found)[: values[-1]]

    def _parcels(
        self, keys: Iterable[int], limit: int, max_bytes: int, fits: Callable[[Delivery], bool]
    ) -> list[Parcel]:
        """The parcels of these keys, up to both bounds, at least one. An index is wrong that led to others."""
        parcels: list[Parcel] = []
        weight = 0
        for key in keys:
            for row in self._desk.run(_PARCEL, (key,)):
                parcel = self._parcel(row)
                if parcel is None:
                    self._damaged_parcel(row)
                    continue
                if not fits(parcel.delivery):
                    self._damaged(*UNKNOWN)
                    continue
                weight += parcel.delivery.size
                if parcels and (weight > max_bytes or len(parcels) >= limit):
                    return parcels
                parcels.append(parcel)
        return parcels

    def _walk(
        self, sql: str, values: Row, limit: int, max_bytes: int, fits: Callable[[Delivery], bool]
    ) -> list[Parcel]:
        """The same straight from a statement, which is not read further than needed."""
        parcels: list[Parcel] = []
        damaged: list[Row] = []
        weight = 0

        def visit(row: Row) -> bool:
            nonlocal weight
            parcel = self._parcel(row)
            if parcel is None or not fits(parcel.delivery) or parcel.delivery.state is not State.QUEUED:
                damaged.append(row)
                return True
            weight += parcel.delivery.size
            if parcels and weight > max_bytes:
                return False
            parcels.append(parcel)
            return len(parcels) < limit

        if limit > 0:
            self._desk.walk(sql, values, visit)
        for row in damaged:
            self._damaged_parcel(row)
        return parcels

    @staticmethod
    def _parcel(row: Row) -> Parcel | None:
        envelope = message_of(row[DELIVERY_COLUMNS:])
        delivery = delivery_of(row[:DELIVERY_COLUMNS])
        return None if envelope is None or delivery is None else Parcel(delivery, envelope)

    def _damaged_parcel(self, row: Row) -> None:
        if message_of(row[DELIVERY_COLUMNS:]) is None:
            self._damaged(row[-1], MESSAGE)
        elif self._parcel(row) is not None:
            self._damaged(*UNKNOWN)
        else:
            self._damaged(row[0], DELIVERY)


def _names(rows: list[Row]) -> list[str]:
    """Of connections; where bits of one have flipped, it is nobody's."""
    return [bytes.decode(row[0], "utf-8", "replace") for row in rows]
