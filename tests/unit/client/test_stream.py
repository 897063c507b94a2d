"""The stream: it goes on where it was, whatever ends it, and stops when it should."""

import threading
from collections.abc import Iterator

import pytest

import angelia
from angelia.client.client import Client
from angelia.client.connection import Connection
from angelia.client.errors import HubError
from angelia.client.find import read
from angelia.client.stream import Item, Stream
from tests.fakes.fake_hub import FakeHub, Feed, answer, drop, hold, problem, raw

ROUTE = "GET /v1/agents/scout/stream"
PATH = "/v1/agents/scout/stream?ack=manual"
CALM = ": connected\nretry: 100\n\n"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as fake:
        yield fake


def stream(hub: FakeHub, **more: object) -> Stream:
    """One that waits next to nothing between tries."""
    return Stream(Connection(read(hub.url)), PATH, draw=lambda: 0.001, **more)  # type: ignore[arg-type]


def mail(number: int) -> dict[str, object]:
    return {"message": {"id": f"{number:032x}", "text": f"no. {number}"}, "lease": {"token": f"{number}-1-ff"}}


def feed(*numbers: int, first: str = CALM) -> Feed:
    made = Feed(first)
    for number in numbers:
        made.event(mail(number), id=f"e-{number}")
    return made


def superseded(after: Feed | None = None) -> Feed:
    made = after or Feed(CALM)
    made.event({"by": "another"}, event="superseded")
    return made.end()


def texts(items: list[Item]) -> list[str]:
    return [item.data["message"]["text"] for item in items if item.kind == "message"]


def test_events_come_as_they_are(hub: FakeHub) -> None:
    hub.on(ROUTE, superseded(feed(1, 2)))
    items = list(stream(hub))
    assert items[0] == Item("message", mail(1), "e-1")
    assert [item.kind for item in items] == ["message", "message", "superseded"]
    assert hub.requests[0].path == PATH
    assert "last-event-id" not in hub.requests[0].headers


@pytest.mark.parametrize("how", ["end", "cut"])
def test_it_resumes_after_the_last_event(hub: FakeHub, how: str) -> None:
    hub.on(ROUTE, getattr(feed(1, 2), how)(), superseded(feed(3)))
    assert texts(list(stream(hub))) == ["no. 1", "no. 2", "no. 3"]
    assert [request.headers.get("last-event-id") for request in hub.requests] == [None, "e-2"]


def test_an_event_that_was_cut_off_is_asked_for_again(hub: FakeHub) -> None:
    torn = feed(1)
    torn.put('id: e-2\ndata: {"message": {"te')
    hub.on(ROUTE, torn.cut(), superseded(feed(2)))
    assert texts(list(stream(hub))) == ["no. 1", "no. 2"]
    assert hub.requests[1].headers["last-event-id"] == "e-1"


def test_it_starts_where_it_was_told_to(hub: FakeHub) -> None:
    hub.on(ROUTE, superseded())
    list(stream(hub, last_event_id="e-41"))
    assert hub.requests[0].headers["last-event-id"] == "e-41"


@pytest.mark.parametrize(
    "first",
    [
        drop,
        problem(503, "stopping"),
        problem(429, "rate_limited"),
        answer(b"Bad gateway", 502, "text/plain"),
        answer(b"<html>", 200, "text/html"),
        raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    ],
)
def test_what_may_pass_is_tried_again_and_told_once(hub: FakeHub, first: object) -> None:
    told: list[str] = []
    hub.on(ROUTE, first, first, first, superseded(feed(1)))  # type: ignore[arg-type]
    assert texts(list(stream(hub, notice=told.append))) == ["no. 1"]
    assert len(told) == 2
    assert told[0].endswith("; trying again")
    assert told[1] == "the hub is back"


@pytest.mark.parametrize(
    "refusal", [problem(401, "token_required"), problem(403, "not_your_name"), problem(400, "bad_name")]
)
def test_what_would_be_the_same_next_time_is_raised(hub: FakeHub, refusal: object) -> None:
    hub.on(ROUTE, refusal)  # type: ignore[arg-type]
    with pytest.raises(HubError):
        list(stream(hub))
    assert len(hub.requests) == 1


def test_superseded_is_the_end_for_good(hub: FakeHub) -> None:
    after = superseded()
    hub.on(ROUTE, after)
    assert [item.kind for item in stream(hub)] == ["superseded"]
    assert len(hub.requests) == 1


def test_bye_is_not(hub: FakeHub) -> None:
    first = feed(1)
    first.event({"why": "stopping"}, event="bye")
    hub.on(ROUTE, first.end(), superseded(feed(2)))
    assert [item.kind for item in stream(hub)] == ["message", "bye", "message", "superseded"]


def test_a_reset_is_told(hub: FakeHub) -> None:
    first = Feed(CALM)
    first.event({"asked": "x-1", "earliest": "e-1", "why": "another store"}, event="reset")
    hub.on(ROUTE, superseded(first))
    items = list(stream(hub, last_event_id="x-1"))
    assert items[0].kind == "reset"
    assert items[0].data["why"] == "another store"


def test_a_line_without_a_byte_is_dead(hub: FakeHub) -> None:
    hub.on(ROUTE, feed(1), superseded(feed(2)))
    assert texts(list(stream(hub, quiet_seconds=0.1))) == ["no. 1", "no. 2"]


def test_a_hub_that_takes_the_request_and_says_nothing_is_dead(hub: FakeHub) -> None:
    hub.on(ROUTE, hold, superseded(feed(1)))
    assert texts(list(stream(hub, quiet_seconds=0.1))) == ["no. 1"]


def test_keepalives_are_bytes(hub: FakeHub) -> None:
    living = feed(1)
    read_on = iter(stream(hub, quiet_seconds=1.0))
    hub.on(ROUTE, living)
    next(read_on)
    for _ in range(20):
        living.put(": keepalive\n\n")
    superseded(living)
    assert next(read_on).kind == "superseded"
    assert len(hub.requests) == 1


def test_the_hubs_retry_is_the_first_ceiling(hub: FakeHub) -> None:
    made = stream(hub)
    hub.on(ROUTE, superseded(feed(1, first="retry: 7000\n\n")))
    list(made)
    assert made._backoff.first_seconds == 7


def test_a_retry_of_nothing_is_no_tight_loop(hub: FakeHub) -> None:
    made = stream(hub)
    hub.on(ROUTE, superseded(feed(1, first="retry: 0\n\n")))
    list(made)
    assert made._backoff.first_seconds >= 0.1


def test_events_of_a_later_version_are_passed_over(hub: FakeHub) -> None:
    strange = Feed(CALM, "data: no json\n\n", "data: [1]\n\n", "event: news\ndata: {}\n\n")
    hub.on(ROUTE, superseded(strange))
    assert [item.kind for item in stream(hub)] == ["news", "superseded"]


def test_close_from_another_thread_ends_a_reader_that_waits(hub: FakeHub) -> None:
    made = stream(hub)
    hub.on(ROUTE, feed(1))
    seen: list[Item] = []
    thread = threading.Thread(target=lambda: seen.extend(made))
    thread.start()
    hub.wait_for(ROUTE)
    made.close()
    thread.join(5)
    assert not thread.is_alive()


def test_close_ends_a_wait_between_two_tries(hub: FakeHub) -> None:
    made = Stream(Connection(read(hub.url)), PATH, draw=lambda: 1.0)
    hub.on(ROUTE, drop)
    thread = threading.Thread(target=lambda: list(made))
    thread.start()
    hub.wait_for(ROUTE)
    made.close()
    thread.join(5)
    assert not thread.is_alive()


# ---- Client.stream


def test_finished_ones_are_acked_and_dropped(hub: FakeHub) -> None:
    hub.on(ROUTE, superseded(feed(1, 2, 3))).on("POST /v1/leases/2-1-ff/ack", answer({"state": "delivered"}))
    with Client(hub.url, name="scout") as client:
        assert texts(list(client.stream(finished={f"{2:032x}"}))) == ["no. 1", "no. 3"]
    assert len(hub.asked("POST /v1/leases/2-1-ff/ack")) == 1


def test_an_ack_that_fails_does_not_end_the_stream(hub: FakeHub) -> None:
    hub.on(ROUTE, superseded(feed(1, 2))).on("POST /v1/leases/1-1-ff/ack", problem(409, "lease_lost"))
    with Client(hub.url, name="scout") as client:
        assert texts(list(client.stream(finished={f"{1:032x}"}))) == ["no. 2"]


def test_an_auto_stream_hands_over_each_message_once(hub: FakeHub) -> None:
    route = "GET /v1/agents/scout/stream"
    hub.on(route, feed(1, 2).cut(), superseded(feed(2, 3)))
    with Client(hub.url, name="scout") as client:
        assert texts(list(client.stream(ack="auto"))) == ["no. 1", "no. 2", "no. 3"]
    assert hub.requests[0].path.endswith("?ack=auto")


def test_other_calls_work_while_a_stream_is_read(hub: FakeHub) -> None:
    hub.on(ROUTE, feed(1)).on("POST /v1/leases/1-1-ff/ack", answer({"state": "delivered"}))
    with Client(hub.url, name="scout") as client:
        items = client.stream()
        item = next(items)
        assert client.ack(item.data["lease"]["token"]) == {"state": "delivered"}
        items.close()


def test_it_is_found_at_the_package_root() -> None:
    assert angelia.Client is Client
    with pytest.raises(AttributeError, match="Bus"):
        angelia.Bus  # noqa: B018
