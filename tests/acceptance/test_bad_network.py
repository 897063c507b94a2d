"""A bad network: nothing that was promised breaks, and what was cut off catches up (`tests/rigs/network.py`)."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.acceptance.hub import MARGIN, Hub, eventually, hub
from tests.acceptance.linked import connect, hubs, wait_knows
from tests.rigs.network import CAUGHT_UP_SECONDS, bad_weather, cut_at_once, stalled_readers
from tests.rigs.proxy import BLACK_HOLE, BYTES, CUTS, FAIR, HALF_OPEN, HOST, LATE, Proxy, Weather
from tests.rigs.talk import Broken, Talk


@pytest.mark.timeout(180)
def test_load_through_all_kinds_of_weather_breaks_no_promise() -> None:
    result = bad_weather(1, 14.0, senders=25)
    assert result.good, "\n".join(result.breaches)
    assert result.figures["weathers"] >= 5, result.figures
    assert result.figures["accepted"] > 300, result.figures
    assert result.figures["client breaks"] > 0, result.figures


@pytest.mark.timeout(120)
def test_five_hundred_clients_that_are_cut_at_once_are_caught_up_soon() -> None:
    """Each has what was sent before, meanwhile and after, once, and in order."""
    result = cut_at_once(1, 500, caught_up_seconds=CAUGHT_UP_SECONDS * MARGIN)
    assert result.good, "\n".join([*result.breaches[:5], str(result.figures)])


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_minutes_of_bad_network_break_no_promise() -> None:
    result = bad_weather(2, 300.0)
    assert result.good, "\n".join(result.breaches)


@pytest.mark.timeout(120)
def test_readers_that_stand_still_are_cut_and_hold_up_nobody() -> None:
    """One short round, which chance makes ten times as slow on a busy machine: the others' p99 may be three times what
    it is beside those who read, or 1.5 s. A hub that waits for those who stand still, for their two seconds or for each
    of them a little, takes longer than that; the long run has the fifth that is promised."""
    result = stalled_readers(30, 1, stall_seconds=2, p99_ratio=math.inf)
    assert result.good, "\n".join([*result.breaches, str(result.figures)])
    [stalled], [reading] = (result.figures[f"p99 ms beside {whom}"] for whom in ("stalled", "readers"))
    assert stalled < 3 * max(reading, 500), result.figures


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_hundred_readers_that_stand_still_cost_the_others_nothing() -> None:
    """The others' p99 grows by a fifth at most, and memory stays flat."""
    result = stalled_readers(100)
    print(result.figures)
    assert result.good, "\n".join([*result.breaches, str(result.figures)])


@asynccontextmanager
async def proxied(at: Hub) -> AsyncIterator[tuple[Proxy, Talk]]:
    """A hub behind a network, and a client of it."""
    proxy, talk = Proxy(at.port), Talk(at.port, HOST)
    await proxy.open()
    try:
        yield proxy, talk
    finally:
        talk.close()
        await proxy.close()


@pytest.mark.parametrize("weather", [HALF_OPEN, *CUTS[:4]], ids=lambda weather: weather.name)
async def test_an_answer_that_is_lost_behind_the_commit_is_asked_for_again_and_the_message_is_one(
    weather: Weather, running: Hub
) -> None:
    """The sender knows nothing, repeats under the same id, and learns that it is stored already."""
    name = f"once-{weather.name.replace(' ', '-')}"
    running.claim(name)
    body = {"to": name, "text": "once", "from": "sender", "id": weather.name.encode().hex().ljust(32, "0")[:32]}
    async with proxied(running) as (proxy, talk):
        proxy.turn(weather)
        with pytest.raises(Broken):
            await talk.call("POST", "/v1/messages", body, seconds=2.0)
        await asyncio.to_thread(eventually, lambda: running.inbox(name)["total"] == 1)
        proxy.turn(FAIR)
        again = await talk.call("POST", "/v1/messages", body)
    assert (again.status, again.json["duplicate"]) == (200, True)
    assert [each["message"]["text"] for each in running.claim(name, limit=10)] == ["once"]


async def test_what_goes_into_a_black_hole_was_not_sent_and_a_client_does_not_wait_for_ever(running: Hub) -> None:
    running.claim("hole")
    body = {"to": "hole", "text": "once", "from": "sender", "id": "e" * 32}
    async with proxied(running) as (proxy, talk):
        proxy.turn(BLACK_HOLE)
        with pytest.raises(Broken):
            await talk.call("POST", "/v1/messages", body, seconds=1.0)
        assert running.inbox("hole")["total"] == 0
        proxy.turn(FAIR)
        assert (await talk.call("POST", "/v1/messages", body)).status == 201


@pytest.mark.parametrize("weather", [LATE, BYTES], ids=lambda weather: weather.name)
async def test_slow_is_not_broken(weather: Weather, running: Hub) -> None:
    """A request and a stream that come a byte at a time, or late, are as good as any."""
    name = f"slow-{weather.name}"
    running.claim(name)
    async with proxied(running) as (proxy, talk):
        proxy.turn(weather)
        said = await talk.call("POST", "/v1/messages", {"to": name, "text": "é" * 500, "from": "sender"})
        assert said.status == 201
        async with asyncio.timeout(10 * MARGIN):
            async for event in Talk(running.port, HOST).stream(f"/v1/agents/{name}/stream"):
                if event.kind == "message":
                    assert event.json["message"]["text"] == "é" * 500
                    break


@pytest.fixture(scope="module")
def running() -> Any:
    with hub() as at:
        yield at


@pytest.mark.timeout(180)
async def test_between_hubs_each_message_crosses_once_through_all_of_it() -> None:
    """The link is late, brings a byte at a time, loses all answers, is a black hole, and is cut in the middle of
    frames; whatever was sent meanwhile is there when it is over, once each."""
    env = {"ANGELIA_ALLOWED_HOSTS": HOST}
    with hubs("near", "far", **env) as (near, far):
        far.claim("bob")
        proxy = Proxy(far.port)
        await proxy.open()
        try:
            await asyncio.to_thread(connect, near, "far", f"ws://{HOST}:{far.port}")
            await asyncio.to_thread(wait_knows, near, "bob")
            sent: list[str] = []
            send: Callable[[], None] = lambda: sent.append(str(near.send("bob", f"{len(sent)}", "ann")["id"]))  # noqa: E731
            for weather in (LATE, BYTES, HALF_OPEN, BLACK_HOLE, *CUTS[2:]):
                proxy.turn(weather)
                for _ in range(3):
                    await asyncio.to_thread(send)
                await asyncio.sleep(0.7)
            proxy.turn(FAIR)
            proxy.reset()
            await asyncio.to_thread(send)
            found: list[str] = []

            def look() -> bool:
                found.extend(each["text"] for each in far.poll("bob", limit=100))
                return len(found) >= len(sent)

            def told() -> bool:
                return {near.state(each) for each in sent} == {"delivered"}

            await asyncio.to_thread(eventually, look, 20 * MARGIN, "all has crossed")
            assert found == [str(number) for number in range(len(sent))]
            await asyncio.to_thread(eventually, told, 5 * MARGIN, "what became of each is known where it came from")
            assert await asyncio.to_thread(far.poll, "bob", wait=1) == []
        finally:
            await proxy.close()
