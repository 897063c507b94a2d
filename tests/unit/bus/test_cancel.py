"""Withdrawing a message, and what a person does with dead and held ones."""

from typing import Any

import pytest

from angelia.bus.caller import ADMIN, OPEN, Caller, Rank
from angelia.bus.cancel import cancel, dead_letters, drop, requeue
from angelia.bus.core import close_bus
from angelia.model.delivery import State
from angelia.model.errors import BadRequest, Stopping, UnknownMessage
from angelia.model.limits import DAY, Limits
from tests.fakes.small_hub import SmallHub, texts

FEW = Limits(reader_attempts=1, chain_depth=0)
ANN, BOB = Caller(Rank.AGENT, "ann"), Caller(Rank.AGENT, "bob")


async def dead_letter(hub: SmallHub, text: str = "dead") -> str:
    sent = await hub.send(text=text)
    await hub.nack(await hub.take_one())
    return sent.envelope.id


async def held_mail(hub: SmallHub, text: str = "held", **more: Any) -> str:
    root = await hub.send("cat", "bob")
    return (await hub.send(text=text, thread=root.envelope.id, **more)).envelope.id


# ------------------------------------------------------------------------------------------------------- withdrawing


async def test_what_waits_and_what_is_held_in_hand_can_be_withdrawn(hub: SmallHub) -> None:
    sent = await hub.send(to="*")
    await hub.take("hermes")
    rows = await cancel(hub.bus, OPEN, sent.envelope.id)
    assert [(row.state, row.reason) for row in rows] == [(State.FAILED, "cancelled")] * 2
    assert await hub.take("openclaw") == []


async def test_held_mail_can_be_withdrawn_by_its_sender() -> None:
    hub = await SmallHub.open(FEW)
    held = await held_mail(hub)
    (row,) = await cancel(hub.bus, OPEN, held)
    assert (row.state, row.reason) == (State.FAILED, "cancelled")


async def test_what_was_delivered_stays_so(hub: SmallHub) -> None:
    sent = await hub.send(to="*")
    await hub.ack(await hub.take_one("hermes"))
    rows = await cancel(hub.bus, OPEN, sent.envelope.id)
    assert {row.mailbox: row.state.word for row in rows} == {"hermes": "delivered", "openclaw": "failed"}


async def test_withdrawing_twice_is_the_same_as_once(hub: SmallHub) -> None:
    sent = await hub.send()
    first = await cancel(hub.bus, OPEN, sent.envelope.id)
    assert await cancel(hub.bus, OPEN, sent.envelope.id) == first


@pytest.mark.parametrize("caller", [ANN, Caller(Rank.LINK, "mac"), Caller(Rank.AGENT, "human")])
async def test_nobody_withdraws_what_another_sent(hub: SmallHub, caller: Caller) -> None:
    sent = await hub.send()
    with pytest.raises(UnknownMessage):
        await cancel(hub.bus, caller, sent.envelope.id)
    assert await hub.state(sent) is State.QUEUED


@pytest.mark.parametrize("caller", [BOB, OPEN, ADMIN])
async def test_its_sender_and_admin_withdraw_it(hub: SmallHub, caller: Caller) -> None:
    sent = await hub.send()
    await cancel(hub.bus, caller, sent.envelope.id)
    assert await hub.state(sent) is State.FAILED


async def test_nobody_but_admin_withdraws_the_hubs_own_words(hub: SmallHub) -> None:
    await hub.send(intent="request", ttl_seconds=1)
    await hub.pass_time(2)
    (notice,) = await hub.notices()
    for caller in (OPEN, ANN, BOB):
        with pytest.raises(UnknownMessage):
            await cancel(hub.bus, caller, notice.id)


async def test_ids_are_checked_and_a_hub_that_stops_changes_nothing(hub: SmallHub) -> None:
    with pytest.raises(BadRequest):
        await cancel(hub.bus, OPEN, "../x")
    with pytest.raises(UnknownMessage):
        await cancel(hub.bus, OPEN, "0" * 32)
    await close_bus(hub.bus)
    with pytest.raises(Stopping):
        await cancel(hub.bus, OPEN, "0" * 32)


# ------------------------------------------------------------------------------------------------------ dead and held


async def test_dead_and_held_mail_is_listed_oldest_first() -> None:
    hub = await SmallHub.open(FEW)
    await dead_letter(hub, "1")
    await held_mail(hub, "2")
    await dead_letter(hub, "3")
    listed = await dead_letters(hub.bus, 0, 100)
    assert texts(listed) == ["1", "2", "3"]
    assert texts(await dead_letters(hub.bus, listed[0].delivery.key, 1)) == ["2"]


async def test_a_dead_letter_gets_fresh_attempts_and_time() -> None:
    hub = await SmallHub.open(FEW)
    sent = await hub.send(ttl_seconds=60)
    await hub.nack(await hub.take_one())
    await hub.clock.advance(DAY / 2)
    (row,) = await requeue(hub.bus, sent.envelope.id)
    assert (row.state, row.attempt, row.used, row.reason, row.ended_at) == (State.QUEUED, 1, 0, None, None)
    assert row.expires_at == hub.clock.now() + 60_000
    assert (await hub.take_one()).delivery.attempt == 2


async def test_a_requeued_letter_wakes_its_reader() -> None:
    hub = await SmallHub.open(FEW)
    dead = await dead_letter(hub)
    reader = await hub.listen()
    await requeue(hub.bus, dead)
    assert await reader.read() == ["dead"]


async def test_held_mail_that_is_let_go_keeps_its_time_and_is_handed_over() -> None:
    hub = await SmallHub.open(FEW)
    held = await held_mail(hub, ttl_seconds=60)
    (row,) = await requeue(hub.bus, held)
    assert (row.state, row.reason, row.expires_at) == (State.QUEUED, None, hub.clock.now() + 60_000)
    assert texts(await hub.take()) == ["held"]


async def test_held_mail_that_nobody_lets_go_expires_and_its_sender_is_told() -> None:
    hub = await SmallHub.open(FEW)
    held = await held_mail(hub, ttl_seconds=60, intent="request")
    await hub.pass_time(61)
    row = await hub.row(held)
    assert (row.state, row.reason) == (State.FAILED, "queued_expired")
    assert [n.about for n in await hub.notices()] == [held]


async def test_dead_and_held_mail_can_be_ended_for_good() -> None:
    hub = await SmallHub.open(FEW)
    for each in (await dead_letter(hub), await held_mail(hub)):
        (row,) = await drop(hub.bus, each)
        assert (row.state, row.reason) == (State.FAILED, "cancelled")
    assert await dead_letters(hub.bus, 0, 100) == []


async def test_one_recipients_letter_can_be_acted_on_alone() -> None:
    hub = await SmallHub.open(FEW)
    sent = await hub.send(to="*")
    for name in ("hermes", "openclaw"):
        await hub.nack(await hub.take_one(name))
    rows = await requeue(hub.bus, sent.envelope.id, "HERMES")
    assert {row.mailbox: row.state.word for row in rows} == {"hermes": "queued", "openclaw": "dead"}


async def test_mail_that_is_neither_dead_nor_held_is_not_touched(hub: SmallHub) -> None:
    sent = await hub.send()
    for act in (requeue, drop):
        with pytest.raises(UnknownMessage):
            await act(hub.bus, sent.envelope.id)
    assert await hub.state(sent) is State.QUEUED


async def test_a_dead_letter_stays_until_retention_takes_it() -> None:
    hub = await SmallHub.open(FEW)
    dead = await dead_letter(hub)
    await hub.pass_time(29 * DAY)
    assert await hub.state(dead) is State.DEAD
    await hub.pass_time(2 * DAY)
    assert await hub.rows(dead) == []
