"""The judge of `tests/rigs/history.py`: clean histories pass, and each kind of breach is found in one made by hand."""

from typing import Any

import pytest

from tests.rigs.history import (
    Acked,
    Answered,
    Broke,
    Concluded,
    Handed,
    Happening,
    History,
    Killed,
    Left,
    Receipt,
    Sent,
    Stored,
    Trouble,
    judge,
)


def id_of(number: int) -> str:
    return f"{number:032x}"


def sent(number: int, at: float, status: int | None = 201, **more: Any) -> list[Happening]:
    """`a` sends message ``number`` to `box` under its id, and is answered half a second later."""
    fields: dict[str, Any] = {"mark": f"m{number}", "sender": "a", "to": "box", "id": id_of(number)} | more
    answer = Answered(at=at + 0.5, mark=fields["mark"], status=status, id=id_of(number) if status == 201 else None)
    return [Sent(at=at, **fields), answer]


def handed(number: int, at: float, **more: Any) -> Handed:
    fields: dict[str, Any] = {
        "client": "r", "mailbox": "box", "hand": "claim", "mark": f"m{number}", "id": id_of(number), "sender": "a",
        "seq": number, "attempt": 1,
    }  # fmt: skip
    return Handed(at=at, **(fields | more))


def acked(number: int, at: float, **more: Any) -> Acked:
    fields: dict[str, Any] = {"client": "r", "mailbox": "box", "id": id_of(number), "attempt": 1, "status": 200}
    return Acked(at=at, **(fields | more))


def stored(number: int, at: float, *way: str) -> Stored:
    return Stored(at=at, id=id_of(number), mailbox="box", way=way)


def receipt(number: int, state: str | None, at: float = 99, **more: Any) -> Receipt:
    return Receipt(at=at, id=id_of(number), mailbox="box", state=state, **more)


def kinds(*happenings: Happening | list[Happening], drained: bool = False, concluded: bool = False) -> list[str]:
    history = History(drained=drained, concluded=concluded)
    for each in happenings:
        history.add(*(each if isinstance(each, list) else [each]))
    # What a rig writes down is what it judges.
    again = History.read(history.lines())
    assert again.happenings == history.happenings
    return [breach.kind for breach in judge(history).breaches]


CLEAN: dict[str, list[Any]] = {
    "one after another, acked": [
        sent(1, 0), handed(1, 1), acked(1, 2), sent(2, 3), handed(2, 4), acked(2, 5), receipt(2, "delivered"),
    ],
    "handed over while its answer is on its way": [
        sent(1, 0)[0], handed(1, 0.2), Answered(at=0.5, mark="m1", status=201, id=id_of(1)), acked(1, 1),
    ],
    "killed before the ack: again, with a higher attempt": [
        sent(1, 0), handed(1, 1), Killed(at=2), handed(1, 3, attempt=2), acked(1, 4, attempt=2),
    ],
    "the ack's answer was lost": [sent(1, 0), handed(1, 1), acked(1, 2, status=None), handed(1, 3, attempt=2)],
    "an ack that came too late": [
        sent(1, 0), handed(1, 1), handed(1, 3, attempt=2, client="s"), acked(1, 4, status=409),
        acked(1, 5, attempt=2, client="s"),
    ],
    "acked twice under one attempt": [sent(1, 0), handed(1, 1), acked(1, 2), acked(1, 3, already=True)],
    "what came back comes after later ones, with a new seq": [
        sent(1, 0), sent(2, 1), handed(1, 2), handed(2, 3), handed(1, 4, attempt=2, seq=3),
    ],
    "an attempt that reached nobody": [sent(1, 0), sent(2, 1), handed(2, 3), handed(1, 4, attempt=2, seq=3)],
    "two sends at once have no order": [sent(1, 0), sent(2, 0.2), handed(2, 1, seq=1), handed(1, 1, seq=2)],
    "a retry under the same id": [sent(1, 0, None), sent(1, 1), handed(1, 2)],
    "a retry under the same key": [
        sent(1, 0, None, id=None, key="k"), sent(1, 1, id=None, key="k"), handed(1, 2),
    ],
    "sent again without id or key: two messages": [
        sent(1, 0, None, id=None), sent(1, 1, None, id=None), handed(1, 2), handed(1, 3, id=id_of(7), seq=2),
    ],
    "nobody knows whether it was accepted": [sent(1, 0, None)],
    "each hub has numbers of its own": [
        sent(1, 0), sent(2, 0, to="far"), handed(1, 1, hub="one"),
        handed(2, 2, seq=1, hub="two", mailbox="far", client="s"),
    ],
    "it crossed soon after the line was whole": [
        sent(1, 0), Trouble(at=1, until=60, cause="cut", hubs=("one", "two")), stored(1, 62, "one", "two"),
        handed(1, 63),
    ],
    "two troubles, one after another": [
        sent(1, 0), Trouble(at=1, until=60, cause="cut", hubs=("one", "two")), stored(1, 92, "one", "two"),
        Trouble(at=58, until=90, cause="kill", hubs=("two",)), handed(1, 93),
    ],
    "refused": [sent(1, 0, 429)],
    "left in the mailbox": [sent(1, 0), Left(at=9, id=id_of(1), mailbox="box")],
    "expired": [sent(1, 0), receipt(1, "failed")],
    "dead, taken up again and delivered": [
        sent(1, 0), receipt(1, "dead", 5), receipt(1, "delivered", 6, by="claim"), handed(1, 5.5), acked(1, 5.6),
    ],
    "shown again as a copy only": [sent(1, 0), handed(1, 2, again=True, hand="auto")],
    "two readers at once: whose answer arrives first says nothing": [
        sent(1, 0), sent(2, 1), handed(2, 2, asked_at=1.8, client="s"), handed(1, 2.1, asked_at=1.7),
    ],
    "in the hands of a poll that was killed": [
        sent(1, 0), Broke(at=3, since=2, client="r", mailbox="box", hand="poll"),
        receipt(1, "delivered", by="poll", delivered_at=2.5),
    ],
    "a request and its answer": [
        sent(1, 0, request=True), handed(1, 1), acked(1, 2), Concluded(at=3, id=id_of(1), how="reply"),
    ],
    "an answer that is handed over again is one answer": [
        sent(1, 0, request=True), handed(1, 1), acked(1, 2), Concluded(at=3, id=id_of(1), how="reply", by=id_of(8)),
        Concluded(at=4, id=id_of(1), how="reply", by=id_of(8)),
    ],
    "a request that failed, and late replies": [
        sent(2, 0, request=True), receipt(2, "failed"), Concluded(at=3, id=id_of(2), how="failure", by=id_of(7)),
        Concluded(at=4, id=id_of(2), how="reply", late=True, by=id_of(8)),
        Concluded(at=5, id=id_of(2), how="reply", late=True, by=id_of(9)),
    ],
    "a request that failed, and a late reply": [
        sent(1, 0, request=True), receipt(1, "failed"), Concluded(at=3, id=id_of(1), how="failure"),
        Concluded(at=4, id=id_of(1), how="reply", late=True),
    ],
}  # fmt: skip

BREACHES: dict[str, tuple[str, list[Any]]] = {
    "accepted, and never seen again": ("lost", [sent(1, 0)]),
    "the hub no longer knows it": ("lost", [sent(1, 0), receipt(1, None)]),
    "said to be delivered, to nobody": ("lost", [sent(1, 0), receipt(1, "delivered", by="auto", delivered_at=2.5)]),
    "said to be delivered to a poll that broke at another time": (
        "lost",
        [
            sent(1, 0), Broke(at=30, since=20, client="r", mailbox="box", hand="poll"),
            receipt(1, "delivered", by="poll", delivered_at=2.5),
        ],
    ),
    "said to be delivered to a claim that broke": (
        "lost",
        [
            sent(1, 0), Broke(at=3, since=2, client="r", mailbox="box", hand="claim"), acked(1, 3, status=None),
            receipt(1, "delivered", by="claim", delivered_at=2.5),
        ],
    ),
    "handed over at another mailbox only": (
        "lost", [sent(1, 0), sent(2, 0, to="other"), handed(2, 2, mailbox="other")],
    ),
    "still there after the drain": ("stranded", [sent(1, 0), Left(at=9, id=id_of(1), mailbox="box")]),
    "handed over once and left behind": ("stranded", [sent(1, 0), handed(1, 1), receipt(1, "leased")]),
    "sent by nobody": ("from nowhere", [handed(1, 1)]),
    "the wrong sender": ("from nowhere", [sent(1, 0), handed(1, 1, sender="b")]),
    "the wrong mailbox": ("from nowhere", [sent(1, 0), handed(1, 1), handed(1, 1, mailbox="other", seq=2)]),
    "refused and handed over": ("from nowhere", [sent(1, 0, 429), handed(1, 1)]),
    "again after its ack was confirmed": (
        "again after ack", [sent(1, 0), handed(1, 1), acked(1, 2), handed(1, 3, attempt=2)],
    ),
    "again after a late ack was confirmed": (
        "again after ack",
        [sent(1, 0), handed(1, 1), Killed(at=2), acked(1, 3), handed(1, 4, attempt=2, client="s")],
    ),
    "a later one first": ("out of order", [sent(1, 0), sent(2, 1), handed(2, 2, seq=1), handed(1, 3, seq=2)]),
    "a later one first, by the clock, whatever seq says": (
        "out of order",
        [sent(1, 0), sent(2, 1), handed(2, 2, asked_at=1.8, client="s"), handed(1, 5, asked_at=4)],
    ),
    "a later one first, which has come back since": (
        "out of order",
        [sent(1, 0), sent(2, 1), handed(2, 2, seq=1, attempt=2), handed(1, 3, seq=2)],
    ),
    "a repeat under the same attempt": ("attempt not higher", [sent(1, 0), handed(1, 1), handed(1, 3, client="s")]),
    "two holders": ("attempt not higher", [sent(1, 0), handed(1, 1, client="r"), handed(1, 1, client="s")]),
    "a repeat with a lower attempt": (
        "attempt not higher",
        [sent(1, 0), handed(1, 1, attempt=2), handed(1, 3, attempt=1, seq=2)],
    ),
    "a second id for one key": (
        "second id",
        [
            Sent(at=0, mark="m1", sender="a", to="box", key="k"), Answered(at=1, mark="m1", status=201, id=id_of(1)),
            Sent(at=2, mark="m1", sender="a", to="box", key="k"), Answered(at=3, mark="m1", status=201, id=id_of(2)),
            handed(1, 4), handed(1, 5, id=id_of(2), seq=2),
        ],
    ),
    "handed over under another id than it was sent with": (
        "second id", [sent(1, 0), handed(1, 1), handed(1, 2, id=id_of(9), seq=2)],
    ),
    "the retry of a lost answer became a second message": (
        "second id",
        [
            sent(1, 0, None, id=None, key="k"), sent(1, 1, id=None, key="k"), handed(1, 2),
            handed(1, 3, id=id_of(9), seq=2),
        ],
    ),
    "a number used again": ("seq reused", [sent(1, 0), sent(2, 0), handed(1, 1), handed(2, 2, seq=1, client="s")]),
    "one reader sees seq fall": ("seq fell", [sent(2, 0), sent(1, 0), handed(2, 1), handed(1, 2)]),
    "acked under two attempts": (
        "acked twice",
        [sent(1, 0), handed(1, 1), handed(1, 3, attempt=2, client="s"), acked(1, 5, attempt=2), acked(1, 4)],
    ),
    "settled, and nobody acked": ("settled by nobody", [sent(1, 0), handed(1, 1), receipt(1, "delivered", by="claim")]),
    "failed, then delivered": (
        "two outcomes", [sent(1, 0), handed(1, 1), receipt(1, "failed", 2), receipt(1, "delivered", 3)],
    ),
    "delivered, then queued": (
        "two outcomes", [sent(1, 0), handed(1, 1), receipt(1, "delivered", 2), receipt(1, "queued", 3)],
    ),
    "a reply and a failure": (
        "two outcomes",
        [
            sent(1, 0, request=True), handed(1, 1), Concluded(at=2, id=id_of(1), how="reply"),
            Concluded(at=3, id=id_of(1), how="failure"),
        ],
    ),
    "two different replies": (
        "two outcomes",
        [
            sent(1, 0, request=True), handed(1, 1), Concluded(at=2, id=id_of(1), how="reply", by=id_of(8)),
            Concluded(at=3, id=id_of(1), how="reply", by=id_of(9)),
        ],
    ),
    "two notices of one failure": (
        "two outcomes",
        [
            sent(1, 0, request=True), receipt(1, "failed"), Concluded(at=2, id=id_of(1), how="failure", by=id_of(8)),
            Concluded(at=3, id=id_of(1), how="failure", by=id_of(9)),
        ],
    ),
    "it crossed long after the line was whole": (
        "crossed late",
        [
            sent(1, 0), Trouble(at=1, until=60, cause="cut", hubs=("one", "two")), stored(1, 77, "one", "two"),
            handed(1, 78),
        ],
    ),
    "a trouble elsewhere is no reason to wait": (
        "crossed late",
        [
            sent(1, 0), Trouble(at=0, until=60, cause="cut", hubs=("two", "three")), stored(1, 60, "one", "two"),
            handed(1, 61),
        ],
    ),
    "a request of which its sender never hears": ("no outcome", [sent(1, 0, request=True), handed(1, 1), acked(1, 2)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_history_has_no_breach(name: str) -> None:
    waits = name.startswith("left")
    assert kinds(*CLEAN[name], drained=not waits, concluded=True) == []


@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_is_found(name: str) -> None:
    kind, happenings = BREACHES[name]
    found = kinds(*happenings, drained=kind == "stranded", concluded=kind == "no outcome")
    assert kind in found
    # "acked twice" cannot be without a hand-over after the first ack.
    assert set(found) - {kind} <= {"again after ack"} & ({"again after ack"} if kind == "acked twice" else set())


def test_every_kind_of_breach_has_its_history() -> None:
    assert {kind for kind, _ in BREACHES.values()} == {
        "lost", "stranded", "from nowhere", "again after ack", "out of order", "attempt not higher", "second id",
        "seq reused", "seq fell", "acked twice", "settled by nobody", "two outcomes", "no outcome", "crossed late",
    }  # fmt: skip


def test_what_waits_is_no_loss_while_nothing_was_drained() -> None:
    assert kinds(sent(1, 0), Left(at=9, id=id_of(1), mailbox="box")) == []
    assert kinds(sent(1, 0, request=True), handed(1, 1), acked(1, 2)) == []


def test_the_figures_say_what_there_was_to_judge() -> None:
    history = History()
    history.add(
        *sent(1, 0), *sent(2, 1, None), Killed(at=2), handed(1, 1), handed(1, 3, attempt=2), acked(1, 4, attempt=2)
    )
    history.add(Broke(at=3, since=2, client="r", mailbox="box", hand="poll"))
    history.add(handed(1, 5, again=True))
    figures = judge(history).figures
    assert figures == {
        "accepted": 1, "unknown": 1, "hub kills": 1, "client breaks": 1, "hand-overs": 2, "repeats": 1, "copies": 1,
        "acks": 1, "outcomes": 0, "excused": 0, "breaches": 0,
    }  # fmt: skip


def test_what_is_excused_is_counted() -> None:
    history = History()
    history.add(*sent(1, 0), Broke(at=3, since=2, client="r", mailbox="box", hand="auto"))
    history.add(receipt(1, "delivered", by="auto", delivered_at=2.5))
    verdict = judge(history)
    assert (verdict.breaches, verdict.excused) == ([], 1)
