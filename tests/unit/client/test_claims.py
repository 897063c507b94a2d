"""Claims, by both drivers: renewed while the body runs, settled at its end, and no thread or task left behind."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from angelia.client.aio.client import AsyncClient
from angelia.client.core.keeping import Held
from angelia.client.errors import LeaseLost
from tests.fakes.fake_hub import FakeHub, answer, hold, problem
from tests.rigs.drivers import DRIVERS, EVERY_LOOP, Driver

CLAIM = "POST /v1/agents/scout/claim"
LEASED, ACKED = answer({"state": "leased"}), answer({"state": "delivered"})
NONE = answer({"deliveries": [], "remaining": 0})
LOST = problem(409, "lease_lost", "Somebody else has it.", holder="claim")


def lease(number: int, verb: str) -> str:
    return f"POST /v1/leases/{number}-1-ff/{verb}"


def claimed(number: int) -> Any:
    message = {"id": f"{number:032x}", "text": f"no. {number}"}
    return answer({"deliveries": [{"message": message, "lease": {"token": f"{number}-1-ff"}}], "remaining": 0})


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as fake:
        for number in (1, 2, 3):
            fake.on(lease(number, "renew"), LEASED).on(lease(number, "ack"), ACKED).on(lease(number, "nack"), LEASED)
        yield fake


@pytest.fixture(params=EVERY_LOOP)
def client(request: pytest.FixtureRequest, hub: FakeHub) -> Iterator[Driver]:
    before = threading.active_count()
    with EVERY_LOOP[request.param](hub.url, name="scout", patience_seconds=1) as made:
        yield made
    assert threading.active_count() <= before + len(hub._open)  # the fake's own, one for each connection


def renewals(hub: FakeHub, number: int, times: int) -> None:
    hub.wait_for(lease(number, "renew"), times)


def test_each_is_renewed_while_it_is_worked_on_and_acked_at_the_end(hub: FakeHub, client: Driver) -> None:
    hub.on(CLAIM, claimed(1), claimed(2), NONE)
    seen: list[str] = []

    def body(claim: Held, message: dict[str, Any]) -> None:
        renewals(hub, len(seen) + 1, 2)
        assert not claim.lost
        claim.check()
        assert not hub.asked(lease(len(seen) + 1, "ack"))
        seen.append(message["text"])

    client.work(body, lease_seconds=0.1, wait_seconds=0)
    assert seen == ["no. 1", "no. 2"]
    assert len(hub.asked(lease(1, "ack"))) == len(hub.asked(lease(2, "ack"))) == 1
    assert hub.asked(lease(1, "renew"))[0].json == {"lease_seconds": 0.1}
    assert hub.asked(CLAIM)[0].json == {"limit": 1, "lease_seconds": 0.1, "wait_seconds": 0}


def test_an_error_gives_it_back_and_comes_out_as_it_was(hub: FakeHub, client: Driver) -> None:
    hub.on(CLAIM, claimed(1))

    def body(claim: Held, message: dict[str, Any]) -> None:
        raise ZeroDivisionError("no good")

    with pytest.raises(ZeroDivisionError, match="no good"):
        client.work(body)
    assert hub.asked(lease(1, "nack"))[0].json == {"reason": "ZeroDivisionError: no good"}
    assert not hub.asked(lease(1, "ack"))


def lost_within(hub: FakeHub, told: list[bool]) -> Callable[[Held, dict[str, Any]], None]:
    def body(claim: Held, message: dict[str, Any]) -> None:
        renewals(hub, 1, 1)
        while not claim.lost:
            threading.Event().wait(0.001)
        with pytest.raises(LeaseLost, match="Somebody else"):
            claim.check()
        told.append(True)

    return body


def test_a_lease_that_is_lost_is_told_and_the_work_goes_on(hub: FakeHub, client: Driver) -> None:
    """And while nobody else has taken the message, its ack is still good."""
    hub.on(CLAIM, claimed(1), NONE).on(lease(1, "renew"), LOST)
    told: list[bool] = []
    client.work(lost_within(hub, told), lease_seconds=0.1, wait_seconds=0)
    assert told == [True]
    assert len(hub.asked(lease(1, "ack"))) == 1
    assert len(hub.asked(lease(1, "renew"))) == 1


def test_work_that_another_was_given_too_ends_with_an_error(hub: FakeHub, client: Driver) -> None:
    hub.on(CLAIM, claimed(1)).on(lease(1, "renew"), LOST).on(lease(1, "ack"), LOST)
    with pytest.raises(LeaseLost) as caught:
        client.work(lost_within(hub, []), lease_seconds=0.1)
    assert caught.value.extra == {"holder": "claim"}


def test_renewing_ends_at_the_cap(hub: FakeHub, client: Driver) -> None:
    hub.on(CLAIM, claimed(1), NONE)
    told: list[str] = []

    def body(claim: Held, message: dict[str, Any]) -> None:
        while not claim.lost:
            threading.Event().wait(0.001)
        try:
            claim.check()
        except LeaseLost as error:
            told.append(error.detail)

    client.work(body, lease_seconds=0.1, keep_seconds=0.3, wait_seconds=0)
    assert told == ["This lease was kept for 0.3 s; it is not renewed any further."]
    assert 1 <= len(hub.asked(lease(1, "renew"))) <= 9


def test_a_renewal_that_hangs_does_not_keep_the_end_waiting(hub: FakeHub, client: Driver) -> None:
    hub.on(CLAIM, claimed(1), NONE).on(lease(1, "renew"), hold)
    client.work(lambda claim, message: renewals(hub, 1, 1), lease_seconds=0.1, wait_seconds=0)
    assert len(hub.asked(lease(1, "ack"))) == 1


async def test_a_task_that_is_cancelled_gives_back_at_once(hub: FakeHub) -> None:
    hub.on(CLAIM, claimed(1))

    async def work(client: AsyncClient) -> None:
        async with asyncio.timeout(None) as limit:
            async for claim in client.claims():
                async with claim:
                    limit.reschedule(0)
                    await asyncio.Event().wait()

    async with AsyncClient(hub.url, name="scout") as client:
        with pytest.raises(TimeoutError):
            await work(client)
    assert hub.asked(lease(1, "nack"))[0].json["delay_seconds"] == 0


def test_a_program_that_is_interrupted_gives_back_at_once(hub: FakeHub) -> None:
    hub.on(CLAIM, claimed(1))

    def body(claim: Held, message: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with DRIVERS["blocking"](hub.url, name="scout") as client, pytest.raises(KeyboardInterrupt):
        client.work(body)
    assert hub.asked(lease(1, "nack"))[0].json["delay_seconds"] == 0
