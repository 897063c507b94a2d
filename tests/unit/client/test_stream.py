"""Streams over real sockets, by both drivers: what is handed out, and what ends a reader that waits.

What a stream does on each ending stands in ``core/following.py`` and is tested there.
"""

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from angelia.client.aio.connection import UNREAD_BYTES, Connection
from angelia.client.core.following import Following, Item
from angelia.client.errors import HubError, NotAHub, Superseded
from angelia.client.find import read
from tests.fakes.fake_hub import FakeHub, Feed, answer, drop, hold, problem
from tests.rigs.drivers import DRIVERS, EVERY_LOOP, Driver, Reading

ROUTE = "GET /v1/agents/scout/stream"
PATH = "/v1/agents/scout/stream?ack=manual"
CALM = ": connected\nretry: 100\n"
ACKED = answer({"state": "delivered"})


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as fake:
        yield fake


@pytest.fixture(params=EVERY_LOOP)
def client(request: pytest.FixtureRequest, hub: FakeHub) -> Iterator[Driver]:
    with EVERY_LOOP[request.param](hub.url, name="scout", token="secret") as made:
        yield made


def stream(client: Driver, draw: float = 0.001, **more: Any) -> Reading:
    """One that waits next to nothing between tries."""
    return client.read(Following("http://hub", PATH, draw=lambda: draw, **more))


def mail(number: int) -> dict[str, object]:
    return {"message": {"id": f"{number:032x}", "text": f"no. {number}"}, "lease": {"token": f"{number}-1-ff"}}


def feed(*numbers: int) -> Feed:
    made = Feed(CALM)
    for number in numbers:
        made.event(mail(number), id=f"e-{number}")
    return made


def superseded(after: Feed | None = None) -> Feed:
    made = after or Feed(CALM)
    made.event({"by": "another"}, event="superseded")
    return made.end()


def texts(items: list[Item]) -> list[str]:
    return [item.data["message"]["text"] for item in items if item.kind == "message"]


def test_events_come_as_they_are(hub: FakeHub, client: Driver) -> None:
    hub.on(ROUTE, superseded(feed(1, 2)))
    items = list(stream(client))
    assert items[0] == Item("message", mail(1), "e-1")
    assert [item.kind for item in items] == ["message", "message", "superseded"]
    head = hub.requests[0].headers
    assert hub.requests[0].path == PATH
    assert head["accept"] == "text/event-stream"
    assert head["cache-control"] == "no-store"
    assert head["authorization"] == "Bearer secret"
    assert "last-event-id" not in head


@pytest.mark.parametrize("how", ["end", "cut"])
def test_it_resumes_after_the_last_event(hub: FakeHub, client: Driver, how: str) -> None:
    hub.on(ROUTE, getattr(feed(1, 2), how)(), drop, superseded(feed(3)))
    assert texts(list(stream(client))) == ["no. 1", "no. 2", "no. 3"]
    assert [request.headers.get("last-event-id") for request in hub.requests] == [None, "e-2", "e-2"]


def test_an_id_beyond_latin_goes_out_as_utf_8(hub: FakeHub, client: Driver) -> None:
    hub.on(ROUTE, superseded())
    list(stream(client, last_event_id="…✓"))
    assert hub.requests[0].headers["last-event-id"].encode("latin-1") == "…✓".encode()


def test_an_event_in_pieces_and_one_of_a_mebibyte(hub: FakeHub, client: Driver) -> None:
    large = Feed(CALM)
    for piece in ("id: e-", "1\nda", 'ta: {"message": {"id": "1", "text": "', "ü🐝" * 200_000, '"}}', "\n", "\n"):
        large.put(piece)
    hub.on(ROUTE, superseded(large))
    assert texts(list(stream(client))) == ["ü🐝" * 200_000]


@pytest.mark.parametrize(
    "refusal", [problem(401, "token_required"), problem(403, "not_your_name"), problem(400, "bad_name")]
)
def test_what_would_be_the_same_next_time_is_raised(hub: FakeHub, client: Driver, refusal: Any) -> None:
    hub.on(ROUTE, refusal)
    with pytest.raises(HubError, match="Because"):
        list(client.messages())
    assert len(hub.requests) == 1


def test_a_redirect_is_not_followed(hub: FakeHub, client: Driver) -> None:
    hub.on(ROUTE, answer(b"", 302, Location=hub.url + "/elsewhere"))
    with pytest.raises(NotAHub, match="elsewhere"):
        list(client.messages())
    assert len(hub.requests) == 1


def test_events_of_a_later_version_are_passed_over(hub: FakeHub, client: Driver) -> None:
    strange = Feed(CALM, "data: no json\n\n", "data: [1]\n\n", "event: news\ndata: {}\n\n")
    hub.on(ROUTE, superseded(strange))
    assert [item.kind for item in stream(client)] == ["news", "superseded"]


@pytest.mark.parametrize("first", [hold, feed()])
def test_a_line_without_a_byte_is_dead(hub: FakeHub, client: Driver, first: Any) -> None:
    hub.on(ROUTE, first, superseded(feed(1)))
    assert texts(list(stream(client, quiet_seconds=0.3))) == ["no. 1"]


def test_keepalives_are_bytes(hub: FakeHub, client: Driver) -> None:
    living = feed(1)
    reading = stream(client, quiet_seconds=1.0)
    hub.on(ROUTE, living)
    next(reading)
    for _ in range(20):
        living.put(": keepalive\n")
    superseded(living)
    assert next(reading).kind == "superseded"
    assert len(hub.requests) == 1


def test_the_hubs_retry_is_the_first_ceiling(hub: FakeHub, client: Driver) -> None:
    hub.on(ROUTE, superseded(Feed("retry: 7000\n")))
    following: Following[Item] = Following("http://hub", PATH)
    list(client.read(following))
    assert following.backoff.first_seconds == 7


async def test_what_a_busy_reader_has_not_read_waits_at_the_hub(hub: FakeHub) -> None:
    much, chunk = Feed(), "x" * 1024 * 1024
    for _ in range(16):
        much.put(chunk)
    hub.on(ROUTE, much.end())
    connection = Connection(read(hub.url))
    await connection.open(PATH, {}, 5.0)
    wire = connection._wire
    assert wire is not None
    assert wire.transport is not None
    assert wire.answer is not None
    async with asyncio.timeout(10):
        while wire.transport.is_reading():  # noqa: ASYNC110 - nobody tells when it pauses
            await asyncio.sleep(0)
    assert UNREAD_BYTES < len(wire.answer.unread) < UNREAD_BYTES + 512 * 1024
    found = 0
    while piece := await connection.read():
        found += len(piece)
    assert found == 16 * len(chunk)
    connection.close()


@pytest.mark.parametrize("first", [feed(), drop])
def test_close_from_elsewhere_ends_a_reader_that_waits(hub: FakeHub, client: Driver, first: Any) -> None:
    """For an event, or between two tries."""
    told: list[str] = []
    hub.on(ROUTE, first)
    reading = stream(client, draw=1.0, notice=told.append)
    seen: list[Item] = []
    thread = threading.Thread(target=lambda: seen.extend(reading))
    thread.start()
    hub.wait_for(ROUTE)
    reading.close()
    thread.join(5)
    assert not thread.is_alive()
    assert list(reading) == []
    assert len(told) <= (first is drop)  # that it was let go of is no news


def test_a_stream_that_was_never_read_can_be_closed(client: Driver) -> None:
    reading = stream(client)
    reading.close()
    assert list(reading) == []


def test_letting_go_of_a_stream_ends_its_connection(hub: FakeHub) -> None:
    hub.on(ROUTE, feed(1))
    with DRIVERS["blocking"](hub.url, name="scout") as client:
        gc.disable()  # without the collector's help
        try:
            for item in client.stream():
                assert item.kind == "message"
                break
            [gone] = hub._open
            gone.settimeout(5)
            assert gone.recv(1) == b""
        finally:
            gc.enable()


def test_other_calls_work_while_a_stream_is_read(hub: FakeHub, client: Driver) -> None:
    hub.on(ROUTE, feed(1)).on("POST /v1/leases/1-1-ff/ack", ACKED)
    items = client.stream()
    item = next(items)
    assert client.ack(item.data["lease"]["token"]) == {"state": "delivered"}
    items.close()


# ---- the ways to read


def test_an_auto_stream_hands_over_each_message_once(hub: FakeHub, client: Driver) -> None:
    hub.on(ROUTE, feed(1, 2).cut(), superseded(feed(2, 3)))
    hub.on("POST /v1/leases/2-1-ff/ack", ACKED)
    assert texts(list(client.stream(ack="auto"))) == ["no. 1", "no. 2", "no. 3"]
    assert hub.requests[0].path.endswith("?ack=auto")


def test_a_message_is_acked_when_the_next_one_is_asked_for(hub: FakeHub, client: Driver) -> None:
    hub.on(ROUTE, feed(1, 2).cut(), superseded(feed(2)))
    for number in (1, 2):
        hub.on(f"POST /v1/leases/{number}-1-ff/ack", ACKED)
    messages = client.messages()
    assert next(messages)["text"] == "no. 1"
    assert not hub.asked("POST /v1/leases/1-1-ff/ack")
    assert next(messages)["text"] == "no. 2"
    assert len(hub.asked("POST /v1/leases/1-1-ff/ack")) == 1
    assert not hub.asked("POST /v1/leases/2-1-ff/ack")
    with pytest.raises(Superseded):
        next(messages)
    assert len(hub.asked("POST /v1/leases/2-1-ff/ack")) == 2  # the second for what came again


def test_it_says_where_it_is_and_goes_on_there(hub: FakeHub, client: Driver) -> None:
    hub.on(ROUTE, superseded(feed(5)))
    items = client.stream(last_event_id="e-4", ack="auto")
    assert hub.requests == []
    list(items)
    assert items.last_event_id == "e-5"
    assert hub.requests[0].path.endswith("?ack=auto")
    assert hub.requests[0].headers["last-event-id"] == "e-4"
