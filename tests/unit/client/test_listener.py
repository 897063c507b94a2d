"""The listener: each message once, in the order dealt with → journal → ack, whatever breaks between."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from angelia.client.client import Client
from angelia.client.errors import HubError
from angelia.client.journal import Journal
from angelia.client.listener import Listener, OnceListener, Taken
from tests.fakes.fake_hub import FakeHub, Feed, answer, drop, problem

ROUTE = "GET /v1/agents/scout/stream"
CLAIM = "POST /v1/agents/scout/claim"
ACKED = answer({"state": "delivered"})


class Quick(Listener):
    renew_seconds = 0.05


def an_id(number: int) -> str:
    return f"{number:032x}"


def mail(number: int, attempt: int = 1) -> dict[str, object]:
    lease = {"token": f"{number}-{attempt}-ff", "attempt": attempt}
    return {
        "message": {"id": an_id(number), "text": f"no. {number}"},
        "seq": number,
        "attempt": attempt,
        "lease": lease,
    }


@pytest.fixture
def feed() -> Feed:
    return Feed(": connected\nretry: 100\n\n")


@pytest.fixture
def hub(feed: Feed) -> Iterator[FakeHub]:
    with FakeHub() as fake:
        yield fake.on(ROUTE, feed)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(str(tmp_path / "listen" / "scout"))


def listener(
    hub: FakeHub, journal: Journal, kind: type[Listener] = Listener, told: list[str] | None = None
) -> Listener:
    return kind(lambda: Client(hub.url, name="scout"), journal, (told if told is not None else []).append)


def next_of(one: Listener) -> Taken:
    for _ in range(100):
        taken = one.take(0.1)
        if taken is not None:
            return taken
    raise AssertionError("nothing came")


def test_each_is_noted_and_then_acked(hub: FakeHub, feed: Feed, journal: Journal) -> None:
    hub.on("POST /v1/leases/1-1-ff/ack", ACKED)
    feed.event(mail(1), id="e-1")
    with listener(hub, journal) as one:
        taken = next_of(one)
        assert (taken.id, taken.attempt, taken.seq, taken.message["text"]) == (an_id(1), 1, 1, "no. 1")
        assert not hub.asked("POST /v1/leases/1-1-ff/ack")
        one.finish(taken)
        assert hub.asked("POST /v1/leases/1-1-ff/ack")
        assert an_id(1) in journal
        assert journal.last_event_id == "e-1"


def test_they_come_in_order(hub: FakeHub, feed: Feed, journal: Journal) -> None:
    for number in range(1, 11):
        feed.event(mail(number), id=f"e-{number}")
    with listener(hub, journal) as one:
        assert [next_of(one).id for _ in range(10)] == [an_id(number) for number in range(1, 11)]


def test_what_comes_again_because_its_ack_was_lost_is_acked_and_not_handed_over(
    hub: FakeHub, feed: Feed, journal: Journal
) -> None:
    hub.on("POST /v1/leases/1-1-ff/ack", drop).on("POST /v1/leases/1-2-ff/ack", ACKED)
    feed.event(mail(1), id="e-1")
    with listener(hub, journal) as one:
        one.finish(next_of(one))
        feed.event(mail(1, attempt=2), id="e-2")
        feed.event(mail(3), id="e-3")
        assert next_of(one).id == an_id(3)
        assert hub.asked("POST /v1/leases/1-2-ff/ack")


def test_so_does_the_next_listener(hub: FakeHub, feed: Feed, journal: Journal, tmp_path: Path) -> None:
    assert journal.take()
    journal.finish(an_id(1), "e-1")
    journal.close()
    feed.event(mail(1, attempt=2), id="e-2")
    feed.event(mail(3), id="e-3")
    hub.on("POST /v1/leases/1-2-ff/ack", ACKED)
    with listener(hub, journal) as one:
        assert next_of(one).id == an_id(3)
    assert hub.asked(ROUTE)[0].headers["last-event-id"] == "e-1"


def test_what_failed_goes_back_with_its_reason(hub: FakeHub, feed: Feed, journal: Journal) -> None:
    hub.on("POST /v1/leases/1-1-ff/nack", answer({"state": "queued"}))
    feed.event(mail(1), id="e-1")
    with listener(hub, journal) as one:
        one.give_back(next_of(one), "it ended with 1")
    assert hub.asked("POST /v1/leases/1-1-ff/nack")[0].json == {"reason": "it ended with 1"}
    assert an_id(1) not in journal


def test_copies_are_not_handed_over(hub: FakeHub, feed: Feed, journal: Journal) -> None:
    feed.event({"message": {"id": an_id(1)}, "seq": 1, "attempt": 1, "again": True}, id="e-1")
    feed.event(mail(2), id="e-2")
    with listener(hub, journal) as one:
        assert next_of(one).id == an_id(2)


def test_news_that_needs_no_ack_is_handed_over(hub: FakeHub, feed: Feed, journal: Journal) -> None:
    feed.event({"type": "subscriber_connected", "text": "hermes is connected", "_meta": {"from": "interop"}})
    with listener(hub, journal) as one:
        taken = next_of(one)
        assert taken.message["type"] == "subscriber_connected"
        assert taken.lease == taken.id == ""
        one.finish(taken)
    assert len(hub.requests) == 1


def test_one_that_is_offered_again_while_it_is_worked_on_is_acked_under_its_new_lease(
    hub: FakeHub, feed: Feed, journal: Journal
) -> None:
    hub.on("POST /v1/leases/1-2-ff/ack", ACKED)
    feed.event(mail(1), id="e-1")
    with listener(hub, journal) as one:
        taken = next_of(one)
        feed.event(mail(1, attempt=2), id="e-2")
        feed.event(mail(3), id="e-3")
        assert next_of(one).id == an_id(3)
        one.finish(taken)
    assert hub.asked("POST /v1/leases/1-2-ff/ack")


def test_leases_are_renewed_while_work_goes_on(hub: FakeHub, feed: Feed, journal: Journal) -> None:
    hub.on("POST /v1/leases/1-1-ff/renew", answer({"state": "leased"}))
    feed.event(mail(1), id="e-1")
    with listener(hub, journal, Quick) as one:
        next_of(one)
        assert hub.wait_for("POST /v1/leases/1-1-ff/renew", 3)[0].json == {"lease_seconds": 60.0}


def test_one_that_waits_and_was_lost_is_forgotten(hub: FakeHub, feed: Feed, journal: Journal) -> None:
    hub.on("POST /v1/leases/1-1-ff/renew", answer({"state": "leased"}))
    hub.on("POST /v1/leases/2-1-ff/renew", problem(409, "lease_lost"))
    feed.event(mail(1), id="e-1")
    feed.event(mail(2), id="e-2")
    with listener(hub, journal, Quick) as one:
        next_of(one)
        hub.wait_for("POST /v1/leases/2-1-ff/renew")
        hub.wait_for("POST /v1/leases/1-1-ff/renew", 4)
        assert one.take(0.05) is None


def test_superseded_is_the_end(hub: FakeHub, feed: Feed, journal: Journal) -> None:
    feed.event(mail(1), id="e-1")
    feed.event({}, event="superseded")
    with listener(hub, journal) as one:
        while not one.ended:
            one.take(0.01)
        assert one.superseded
        assert one.take(0.01) is None


def test_a_refusal_is_the_end(hub: FakeHub, journal: Journal) -> None:
    hub.on(ROUTE, problem(401, "token_required"))
    with listener(hub, journal) as one:
        while not one.ended:
            one.take(0.01)
        assert isinstance(one.error, HubError)


def test_nothing_is_handed_over_while_an_earlier_listener_works(
    hub: FakeHub, feed: Feed, journal: Journal, tmp_path: Path
) -> None:
    earlier = Journal(str(tmp_path / "listen" / "scout"))
    assert earlier.take()
    told: list[str] = []
    hub.on("POST /v1/leases/1-2-ff/ack", ACKED)
    feed.event(mail(1, attempt=2), id="e-1")
    feed.event(mail(2), id="e-2")
    with listener(hub, journal, told=told) as one:
        hub.wait_for(ROUTE)
        assert one.take(0.05) is None
        assert one.take(0.05) is None
        assert len(told) == 1
        earlier.finish(an_id(1))
        earlier.close()
        assert next_of(one).id == an_id(2)
    assert hub.asked("POST /v1/leases/1-2-ff/ack")


def test_the_end_leaves_no_thread(hub: FakeHub, feed: Feed, journal: Journal) -> None:
    before = threading.active_count()
    one = listener(hub, journal)
    with one:
        hub.wait_for(ROUTE)
    assert not any(thread.is_alive() for thread in one._threads)
    assert threading.active_count() <= before + 1


# ---- once


def claimed(*numbers: int) -> object:
    return answer({"deliveries": [mail(number) for number in numbers], "remaining": 0})


def test_once_claims_one_and_only_when_it_is_wanted(hub: FakeHub, journal: Journal) -> None:
    hub.on(CLAIM, drop, claimed(), claimed(1), claimed(2))  # type: ignore[arg-type]
    hub.on("POST /v1/leases/1-1-ff/ack", ACKED)
    with listener(hub, journal, OnceListener) as one:
        taken = next_of(one)
        assert taken.id == an_id(1)
        one.finish(taken)
    asked = hub.asked(CLAIM)
    assert len(asked) == 3
    assert all(request.json["limit"] == 1 for request in asked)
    assert not hub.asked(ROUTE)


def test_once_goes_on_after_one_that_is_known(hub: FakeHub, journal: Journal) -> None:
    assert journal.take()
    journal.finish(an_id(1))
    journal.close()
    hub.on(CLAIM, claimed(1), claimed(2)).on("POST /v1/leases/1-1-ff/ack", ACKED)  # type: ignore[arg-type]
    with listener(hub, journal, OnceListener) as one:
        assert next_of(one).id == an_id(2)
    assert hub.asked("POST /v1/leases/1-1-ff/ack")


def test_once_ends_when_it_is_refused(hub: FakeHub, journal: Journal) -> None:
    hub.on(CLAIM, problem(401, "token_required"))
    with listener(hub, journal, OnceListener) as one:
        while not one.ended:
            one.take(0.01)
        assert isinstance(one.error, HubError)
