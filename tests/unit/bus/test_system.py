"""The real clock and ids: time that only runs forward, and ids that nobody can guess."""

import asyncio
import time

from angelia.bus.ports import Clock, Ids
from angelia.bus.system import SystemClock, SystemIds, uuid7
from angelia.model.envelope import check_id


def test_they_fill_their_ports() -> None:
    clock: Clock = SystemClock()
    ids: Ids = SystemIds()
    assert clock.monotonic() <= clock.monotonic()
    assert check_id(ids.message_id())


def test_now_is_the_wall_clock_of_the_start_carried_forward() -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time_ns() // 1_000_000) < 1000
    seen = [clock.now() for _ in range(1000)]
    assert seen == sorted(seen)


async def test_a_wait_ends_with_the_future_or_with_the_time_and_leaves_the_future_alone() -> None:
    clock, loop = SystemClock(), asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    assert await clock.wait(ready, 0) is False
    assert not ready.cancelled()
    loop.call_soon(ready.set_result, None)
    assert await clock.wait(ready, None) is True


def test_an_id_is_a_uuid_of_version_seven_of_this_moment() -> None:
    before = time.time_ns() // 1_000_000
    found = uuid7()
    after = time.time_ns() // 1_000_000
    assert len(found) == 32
    assert before <= int(found[:12], 16) <= after
    assert found[12] == "7"
    assert found[16] in "89ab"


def test_ids_and_secrets_differ() -> None:
    ids = SystemIds()
    assert len({ids.message_id() for _ in range(10_000)}) == 10_000
    assert len({ids.secret() for _ in range(100)}) == 100
    assert len(ids.secret()) == 32
