"""The transition table, written out a second time from semantics.md, and what follows from its shape."""

from itertools import product

import pytest

from angelia.model.delivery import LANE_ORDER, REASON_OF, TABLE, Delivery, Event, Hand, State, after
from angelia.model.envelope import Lane
from angelia.model.failure import Reason

# from: event → to, event → to …
ARROWS = """
queued: claim → leased, reply → answered, expire → failed, cancel → failed, late ack → delivered
leased: ack → delivered, reply → answered, forward → forwarded, release → queued, nack → queued, lapse → queued
leased: exhaust → dead, refuse → failed, cancel → failed, hold → held
forwarded: far delivered → delivered, far answered → answered, far failed → failed, far dead → dead
forwarded: reply → answered, time out → failed, offer again → queued
held: let go → queued, end → failed, expire → failed
delivered: reply → answered, unanswered → delivered, offer again → queued
dead: requeue → queued, drop → failed
queued: damage → failed
leased: damage → failed
forwarded: damage → failed
held: damage → failed
dead: damage → failed
"""
EXPECTED = {
    (State[line.partition(":")[0].upper()], Event(arrow.partition(" → ")[0].strip())): State[
        arrow.partition(" → ")[2].strip().upper()
    ]
    for line in ARROWS.strip().splitlines()
    for arrow in line.partition(":")[2].split(",")
}


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_an_event_leads_where_the_table_says_and_nowhere_else(state: State, event: Event) -> None:
    assert after(state, event) is EXPECTED.get((state, event))


def test_no_arrow_is_missing_or_too_many() -> None:
    assert TABLE == EXPECTED


def test_answered_and_failed_are_left_by_nothing() -> None:
    for state in (State.ANSWERED, State.FAILED):
        assert all(after(state, event) is None for event in Event)


def test_every_state_can_be_reached_and_left_for_an_end() -> None:
    ends = {State.ANSWERED, State.FAILED}
    grown = True
    while grown:
        grown = False
        for (start, _), target in TABLE.items():
            if target in ends and start not in ends:
                ends.add(start)
                grown = True
    assert ends == set(State)
    assert set(TABLE.values()) == set(State)


def test_every_event_has_an_arrow() -> None:
    assert {event for _, event in TABLE} == set(Event)


def test_only_open_deliveries_count_against_a_mailbox() -> None:
    assert [state.word for state in State if state.open] == ["queued", "leased", "forwarded", "held"]
    assert [state.word for state in State if state.final] == ["answered", "failed", "dead"]


def test_the_numbers_of_the_states_are_what_stores_have_on_disk() -> None:
    assert {state.word: int(state) for state in State} == {
        "queued": 0, "leased": 1, "forwarded": 2, "held": 3, "delivered": 4, "answered": 5, "failed": 6, "dead": 7,
    }  # fmt: skip


def test_the_words_of_the_hands_are_what_stores_have_on_disk() -> None:
    assert [hand.value for hand in Hand] == ["auto", "manual", "claim", "poll", "ask", "turn", "link"]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Event.EXPIRE, "queued_expired"),
        (Event.CANCEL, "cancelled"),
        (Event.END, "cancelled"),
        (Event.DROP, "cancelled"),
        (Event.TIME_OUT, "delivery_timeout"),
        (Event.UNANSWERED, "delivery_timeout"),
        (Event.EXHAUST, "attempts_used_up"),
        (Event.DAMAGE, "damaged"),
    ],
)
def test_an_event_that_has_one_cause_has_its_reason(event: Event, reason: str) -> None:
    assert REASON_OF[event] is Reason(reason)


def test_no_event_but_an_end_has_a_reason_of_its_own() -> None:
    assert len(REASON_OF) == 8


def test_a_person_goes_first() -> None:
    assert LANE_ORDER[Lane.PERSON] < LANE_ORDER[Lane.NORMAL]
    assert set(LANE_ORDER) == {lane.value for lane in Lane}


def test_one_that_stands_as_another_differs_in_nothing_but_what_is_its_own() -> None:
    waits = Delivery(
        key=1, seq=2, message_id="a" * 32, mailbox="ann", to="Ann", sender="bob", size=3, state=State.QUEUED,
        accepted_at=4, expires_at=5, sweep_at=5, connection="rack", lane=0, owes="lap",
    )  # fmt: skip
    held = waits._replace(state=State.LEASED, attempt=1, hand=Hand.AUTO, sweep_at=None, leased_at=6)
    other = waits._replace(key=7, seq=8, message_id="b" * 32, mailbox="cat", to="Cat")
    assert other.standing == waits.standing != held.standing
    assert other.standing_as(held) == held._replace(key=7, seq=8, message_id="b" * 32, mailbox="cat", to="Cat")
    assert held.beside(9, "dev", "Dev") == held._replace(key=9, seq=9, mailbox="dev", to="Dev")
