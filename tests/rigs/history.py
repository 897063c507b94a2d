"""The judge: what clients saw of a hub, and every promise that it breaks.

What must stay true:

- It knows only what clients saw: what was sent and answered, who was handed what, which acks were answered, which
  clients and hubs were killed, and what receipts and mailboxes say at the end. It never looks into a hub.
- In doubt it is for the hub, and says how often: ``excused`` counts what a poll or an auto stream had been handed (by
  the receipt) while it was being killed or its connection broke. That is theirs.
- Each message has a ``mark`` that its text carries, so that it is known by what is in it and not by its id alone.
- ``seq`` and ``attempt`` order things where clocks of several clients cannot.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, get_args

ENDED_BADLY = ("failed", "dead")
FINAL = ("delivered", "answered", "failed", "dead")
# What may follow a final state: an answer comes after the delivery; a person takes up, or drops, a dead letter.
AFTER = {("delivered", "answered"), ("dead", "failed"), ("dead", "delivered"), ("dead", "answered")}
SETTLED_BY_WRITING = ("auto", "poll")
# Within 5 s of the end of a trouble everything that waited for it has crossed; three times that on a busy machine.
CROSSED_SECONDS = 15.0
# How far a hub's clock, which a receipt shows, and ours may be apart, with the commit that an ack rides in.
CLOCKS_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A try to send. Times are seconds of one clock (the wall's, where receipts are to be compared with them)."""

    at: float
    mark: str
    sender: str
    to: str
    id: str | None = None
    key: str | None = None
    request: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the hub said to a try; ``status`` None: nothing, the connection broke."""

    at: float
    mark: str
    status: int | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A client got a message. ``again``: a copy of something settled. ``asked_at``: when it had begun to ask for it."""

    at: float
    client: str
    mailbox: str
    hand: str
    mark: str
    id: str
    sender: str
    seq: int
    attempt: int
    again: bool = False
    asked_at: float | None = None
    hub: str = ""  # where there are several: numbers are each hub's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """An ack was sent; ``status`` None: its answer was lost. ``already``: it was settled before."""

    at: float
    client: str
    mailbox: str
    id: str
    attempt: int
    status: int | None = None
    already: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Broke:
    """A client was killed, or its connection broke and does not resume: what came from ``since`` to ``at`` was its."""

    at: float
    since: float
    client: str
    mailbox: str
    hand: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """The hub was killed."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A hub was away, or a line was cut, until it was as before. It matters to whatever has all ``hubs`` on its way."""

    at: float
    until: float
    cause: str
    hubs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A message was on the disk of the hub that it is for, as that hub's receipt says. ``way``: the hubs it passes."""

    at: float
    id: str
    mailbox: str
    way: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the hub says of a delivery; ``state`` None: it knows no such message. ``by`` is the hand that has it."""

    at: float
    id: str
    mailbox: str
    state: str | None
    by: str | None = None
    delivered_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A mailbox still had it at the end."""

    at: float
    id: str
    mailbox: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Concluded:
    """The sender of a request learnt its outcome: a reply (``late`` ones are extra) or the notice of a failure; ``by``
    is the id of that message."""

    at: float
    id: str
    how: str
    late: bool = False
    by: str = ""


Happening = Sent | Answered | Handed | Acked | Broke | Killed | Trouble | Stored | Receipt | Left | Concluded
KINDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Happening)}


@dataclass(frozen=True, slots=True)
class Breach:
    """A promise that was broken: which kind, by which message, and how that shows."""

    kind: str
    id: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.id}: {self.what}"


@dataclass(slots=True)
class History:
    """All that happened, in the order in which it was seen.

    ``drained``: readers went on until there was nothing more, so that nothing may be waiting. ``concluded``: the same
    for the outcomes of requests.
    """

    happenings: list[Happening] = field(default_factory=list)
    drained: bool = False
    concluded: bool = False

    def add(self, *happenings: Happening) -> None:
        self.happenings += happenings

    def of(self, *kinds: type) -> Iterator[Any]:
        return (each for each in self.happenings if isinstance(each, kinds))

    def lines(self) -> Iterator[str]:
        """A line of JSON each, to look at afterwards."""
        for each in self.happenings:
            yield json.dumps({"what": type(each).__name__, **asdict(each)})

    @classmethod
    def read(cls, lines: Iterable[str], *, drained: bool = False, concluded: bool = False) -> "History":
        found = cls(drained=drained, concluded=concluded)
        for line in lines:
            fields = json.loads(line)
            kind = KINDS[fields.pop("what")]
            found.add(kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}))
        return found


@dataclass(slots=True)
class Verdict:
    """What the judge found, and the figures that say how much it had to go by."""

    breaches: list[Breach]
    figures: dict[str, int]
    excused: int

    def __str__(self) -> str:
        lines = [", ".join(f"{count} {what}" for what, count in self.figures.items())]
        kinds = Counter(breach.kind for breach in self.breaches)
        lines += [f"{kind} ×{count}" for kind, count in kinds.items()]
        lines += [str(breach) for breach in self.breaches[:20]]
        return "\n".join(lines)


@dataclass(slots=True)
class _Message:
    """All that is known of one message by its mark."""

    first: Sent
    tries: list[Sent] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    accepted_at: float | None = None
    unknown: bool = False


def judge(history: History) -> Verdict:
    """Look for every kind of breach."""
    case = _Case(history)
    looks = (
        case.second_ids, case.nowhere, case.repeats, case.after_ack, case.seqs, case.falls, case.order,
        case.lost, case.acks, case.outcomes, case.requests, case.late,
    )  # fmt: skip
    breaches = [breach for look in looks for breach in look()]
    figures = {
        "accepted": sum(message.accepted_at is not None for message in case.messages.values()),
        "unknown": sum(m.accepted_at is None and m.unknown for m in case.messages.values()),
        "hub kills": len(list(history.of(Killed))),
        "client breaks": len(list(history.of(Broke))),
        "hand-overs": sum(not each.again for each in history.of(Handed)),
        "repeats": sum(not h.again and h.attempt > 1 for h in history.of(Handed)),
        "copies": sum(each.again for each in history.of(Handed)),
        "acks": sum(each.status == 200 for each in history.of(Acked)),
        "outcomes": len(list(history.of(Concluded))),
        "excused": case.excused,
        "breaches": len(breaches),
    }
    return Verdict(breaches, figures, case.excused)


class _Case:
    """The history, sorted by message; a method for each kind of breach."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.excused = 0
        self.messages: dict[str, _Message] = {}
        for sent in history.of(Sent):
            self.messages.setdefault(sent.mark, _Message(sent)).tries.append(sent)
        for answer in history.of(Answered):
            message = self.messages[answer.mark]
            if answer.status is None or answer.status >= 500:
                message.unknown = True
            elif answer.status < 300 and answer.id is not None:
                message.ids.add(answer.id)
                if message.accepted_at is None:
                    message.accepted_at = answer.at
        # Hand-overs of each delivery, copies apart, in the order of attempts.
        self.handed: dict[tuple[str, str], list[Handed]] = defaultdict(list)
        self.copies: dict[tuple[str, str], list[Handed]] = defaultdict(list)
        for handed in history.of(Handed):
            (self.copies if handed.again else self.handed)[handed.id, handed.mailbox].append(handed)
        for found in self.handed.values():
            found.sort(key=lambda each: each.attempt)
        self.receipts: dict[tuple[str, str], list[Receipt]] = defaultdict(list)
        for receipt in history.of(Receipt):
            self.receipts[receipt.id, receipt.mailbox].append(receipt)
        self.left = {(left.id, left.mailbox) for left in history.of(Left)}
        self.breaks: dict[str, list[Broke]] = defaultdict(list)
        for broke in history.of(Broke):
            self.breaks[broke.mailbox].append(broke)

    def second_ids(self) -> Iterator[Breach]:
        """One message is one id: under its own id or key, however often it was sent."""
        shown: dict[str, set[str]] = defaultdict(set)
        for handed in self.history.of(Handed):
            shown[handed.mark].add(handed.id)
        for mark, message in self.messages.items():
            if message.first.id is None and message.first.key is None and len(message.tries) > 1:
                continue  # each try was a message of its own
            given = {sent.id for sent in message.tries if sent.id is not None}
            ids = message.ids | given | shown[mark]
            if len(ids) > 1:
                yield Breach("second id", min(ids), f"{mark} also goes by {sorted(ids)[1:]}")

    def nowhere(self) -> Iterator[Breach]:
        """What is handed over was sent, by that sender, to that mailbox, and was not refused."""
        for handed in self.history.of(Handed):
            message = self.messages.get(handed.mark)
            if message is None:
                yield Breach("from nowhere", handed.id, f"nobody sent '{handed.mark[:60]}'")
            elif (message.first.sender, message.first.to) != (handed.sender, handed.mailbox):
                way = f"{message.first.sender} → {message.first.to}"
                yield Breach("from nowhere", handed.id, f"sent {way}, handed {handed.sender} → {handed.mailbox}")
            elif message.accepted_at is None and not message.unknown and self._answered_by(handed):
                yield Breach("from nowhere", handed.id, f"{handed.mark} was refused, and handed over all the same")

    def _answered_by(self, handed: Handed) -> bool:
        """Whether every try had been answered: one under way may be accepted, and its answer come last."""
        answers = sum(answer.mark == handed.mark for answer in self.history.of(Answered))
        return answers == len(self.messages[handed.mark].tries)

    def repeats(self) -> Iterator[Breach]:
        """Each hand-over of a delivery has an attempt of its own, and later ones have higher ones."""
        for (message_id, mailbox), found in self.handed.items():
            for one, two in pairwise(found):
                if one.attempt == two.attempt:
                    who = f"{one.client} (seq {one.seq}) and {two.client} (seq {two.seq})"
                    yield Breach("attempt not higher", message_id, f"attempt {one.attempt} at {mailbox} to {who}")
                elif two.seq < one.seq or (one.client == two.client and two.at < one.at):
                    what = f"attempts {one.attempt}, {two.attempt} at {mailbox} have seq {one.seq}, {two.seq}"
                    yield Breach("attempt not higher", message_id, what)

    def after_ack(self) -> Iterator[Breach]:
        """An ack that was confirmed under one attempt is the end: no higher attempt is ever handed over."""
        for acked in self.history.of(Acked):
            if acked.status != 200 or acked.already:
                continue
            for handed in self.handed.get((acked.id, acked.mailbox), ()):
                if handed.attempt > acked.attempt:
                    what = f"attempt {acked.attempt} was acked, attempt {handed.attempt} went to {handed.client}"
                    yield Breach("again after ack", acked.id, what)

    def acks(self) -> Iterator[Breach]:
        """One ack settles; and what takes an ack is settled by nothing else."""
        first: dict[tuple[str, str], Acked] = {}
        tried = {(acked.id, acked.mailbox) for acked in self.history.of(Acked)}
        for acked in self.history.of(Acked):
            if acked.status == 200 and not acked.already:
                known = first.setdefault((acked.id, acked.mailbox), acked)
                if known.attempt != acked.attempt:
                    what = f"under attempts {known.attempt} and {acked.attempt}, by {known.client} and {acked.client}"
                    yield Breach("acked twice", acked.id, what)
        for (message_id, mailbox), receipts in self.receipts.items():
            last = receipts[-1]
            by_ack = last.state == "delivered" and last.by is not None and last.by not in SETTLED_BY_WRITING
            if by_ack and (message_id, mailbox) not in tried:
                yield Breach("settled by nobody", message_id, f"delivered by {last.by} at {mailbox}, never acked")

    def seqs(self) -> Iterator[Breach]:
        """A number stands for one delivery of its hub, for ever."""
        owners: dict[tuple[str, int], tuple[str, str]] = {}
        for handed in self.history.of(Handed):
            mine = (handed.id, handed.mailbox)
            owner = owners.setdefault((handed.hub, handed.seq), mine)
            if owner != mine:
                yield Breach("seq reused", handed.id, f"{handed.seq} was {owner[0]}'s at {owner[1]}")

    def falls(self) -> Iterator[Breach]:
        """What one reader sees only rises."""
        last: dict[tuple[str, str], Handed] = {}
        for handed in self.history.of(Handed):
            before = last.get((handed.client, handed.mailbox))
            if before is not None and handed.seq < before.seq:
                yield Breach("seq fell", handed.id, f"{handed.seq} came after {before.seq} to {handed.client}")
            last[handed.client, handed.mailbox] = handed

    def order(self) -> Iterator[Breach]:
        """The first hand-over of a later message is never before that of an earlier one of the same sender.

        *Later*: its sending began after the earlier one was accepted. *First*: attempt 1; an earlier one that comes
        with a higher attempt has been on its way before, and may come after later ones. *Before*: by seq; or it was
        there before the earlier one's taker even began to ask.
        """
        lines: dict[tuple[str, str], list[_First]] = defaultdict(list)
        for (_, mailbox), found in self.handed.items():
            message = self.messages.get(found[0].mark)
            if message is not None:
                lines[found[0].sender, mailbox].append((found[0], message))
        for line in lines.values():
            yield from _out_of_order(sorted(line, key=lambda first: first[0].seq))
            yield from _out_of_time([first for first in line if first[0].asked_at is not None])

    def lost(self) -> Iterator[Breach]:
        """What was accepted was handed over, ended with a reason, or still waits; after a drain nothing waits."""
        for mark, message in self.messages.items():
            mailbox = message.first.to
            for message_id in message.ids:
                here = (message_id, mailbox)
                receipts = self.receipts.get(here, [])
                state = receipts[-1].state if receipts else None
                waits = here in self.left or state in ("queued", "leased", "held", "forwarded")
                if waits and self.history.drained:
                    yield Breach("stranded", message_id, f"{mark} is {state or 'left'} at {mailbox} after the drain")
                elif here in self.handed or here in self.copies or waits or state in ENDED_BADLY:
                    continue
                elif state in ("delivered", "answered") and self._theirs(receipts[-1]):
                    self.excused += 1
                else:
                    says = f"the receipt says {state}" if receipts else "there is no receipt"
                    yield Breach("lost", message_id, f"{mark} for {mailbox} was accepted and handed to nobody; {says}")

    def _theirs(self, receipt: Receipt) -> bool:
        """Whether a reader that breaks had it in its hands, by a hand that settles what it wrote."""
        if receipt.by not in SETTLED_BY_WRITING or receipt.delivered_at is None:
            return False
        return any(
            broke.hand == receipt.by
            and broke.since - CLOCKS_SECONDS <= receipt.delivered_at <= broke.at + CLOCKS_SECONDS
            for broke in self.breaks[receipt.mailbox]
        )

    def outcomes(self) -> Iterator[Breach]:
        """A final state stays; and of a request there is one outcome: one reply, or one failure. What comes after a
        failure is a late reply, which says so. (Nobody takes up a dead letter here; that would begin it anew.)"""
        for (message_id, mailbox), receipts in self.receipts.items():
            states = [receipt.state for receipt in sorted(receipts, key=lambda each: each.at)]
            for one, two in pairwise(states):
                if one in FINAL and two != one and (one, two) not in AFTER:
                    yield Breach("two outcomes", message_id, f"{one}, then {two} at {mailbox}")
        told: dict[str, list[Concluded]] = defaultdict(list)
        for concluded in self.history.of(Concluded):
            if not concluded.late:
                told[concluded.id].append(concluded)
        for message_id, found in told.items():
            outcomes = {(concluded.how, concluded.by) for concluded in found}
            if len(outcomes) > 1:
                what = " and ".join(f"{how} {by}".strip() for how, by in sorted(outcomes))
                yield Breach("two outcomes", message_id, f"its sender was told of {what}")

    def requests(self) -> Iterator[Breach]:
        """A request that was accepted has an outcome, and its sender is told."""
        if not self.history.concluded:
            return
        told = {concluded.id for concluded in self.history.of(Concluded)}
        for mark, message in self.messages.items():
            if message.first.request and (open_ones := message.ids - told):
                yield Breach("no outcome", min(open_ones), f"{mark} for {message.first.to} was never concluded")

    def late(self) -> Iterator[Breach]:
        """What could cross has crossed soon."""
        for message_id, seconds in crossings(self.history):
            if seconds > CROSSED_SECONDS:
                yield Breach("crossed late", message_id, f"{seconds:.1f} s after its way was free")


def crossings(history: History) -> Iterator[tuple[str, float]]:
    """Of each message that was stored at a further hub: how many seconds after its way had been free to go."""
    troubles = list(history.of(Trouble))
    marks = {answer.id: answer.at for answer in reversed(list(history.of(Answered))) if answer.id is not None}
    for stored in history.of(Stored):
        free = [
            trouble.until for trouble in troubles if trouble.at < stored.at and set(trouble.hubs) <= set(stored.way)
        ]
        if stored.id in marks:
            yield stored.id, stored.at - max(marks[stored.id], *free, -math.inf)


_First = tuple[Handed, _Message]


def _out_of_order(line: list[_First]) -> Iterator[Breach]:
    newest: _First | None = None
    for first in line:
        if newest is not None and _overtaken(first, newest):
            yield _breach_of_order(first, newest)
        if newest is None or first[1].first.at > newest[1].first.at:
            newest = first


def _out_of_time(line: list[_First]) -> Iterator[Breach]:
    """Goes through the moments at which takers began to ask, and knows of each what was there by then."""
    there = sorted(line, key=lambda first: first[0].at)
    newest: _First | None = None
    place = 0
    for first in sorted(line, key=lambda each: each[0].asked_at or 0.0):
        while place < len(there) and there[place][0].at < (first[0].asked_at or 0.0):
            if newest is None or there[place][1].first.at > newest[1].first.at:
                newest = there[place]
            place += 1
        if newest is not None and newest[0].seq > first[0].seq and _overtaken(first, newest):
            yield _breach_of_order(first, newest)


def _overtaken(first: _First, other: _First) -> bool:
    """Whether ``first`` was accepted before ``other``, which was handed over before it, was even sent."""
    accepted_at = first[1].accepted_at
    return first[0].attempt == 1 and accepted_at is not None and accepted_at <= other[1].first.at


def _breach_of_order(first: _First, other: _First) -> Breach:
    what = f"{other[0].mark} (seq {other[0].seq}) was handed over before {first[0].mark} (seq {first[0].seq})"
    return Breach("out of order", first[0].id, what)
