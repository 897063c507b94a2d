"""Looking changes nothing, shows only what is the caller's, and says what is expected next."""

import asyncio

import pytest

from angelia.bus.agents import make_token
from angelia.bus.ask import ask
from angelia.bus.caller import ADMIN, OPEN, Caller, Rank
from angelia.bus.cancel import cancel
from angelia.bus.core import close_bus
from angelia.bus.draft import Draft
from angelia.bus.look import expected, held_until, inbox, receipt
from angelia.model.delivery import State
from angelia.model.envelope import Intent, Kind
from angelia.model.errors import BadRequest, UnknownMessage
from angelia.model.limits import Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub, texts

# ----------------------------------------------------------------------------------------------------------- receipts


async def test_a_receipt_shows_the_message_its_deliveries_and_its_reply(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    found = await receipt(hub.bus, OPEN, sent.envelope.id)
    assert (found.envelope, found.deliveries, found.reply) == (sent.envelope, sent.deliveries, None)
    reply = await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    assert (await receipt(hub.bus, OPEN, sent.envelope.id)).reply == reply.envelope


async def test_a_receipt_has_the_time_of_every_step(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    start = hub.clock.now()
    await hub.clock.advance(5)
    held = await hub.take_one()
    await hub.clock.advance(5)
    await hub.ack(held)
    await hub.clock.advance(5)
    await hub.send("ann", "bob", "done", in_reply_to=sent.envelope.id)
    row = (await receipt(hub.bus, OPEN, sent.envelope.id)).deliveries[0]
    times = [row.accepted_at, row.leased_at, row.delivered_at, row.answered_at]
    assert times == [start + ms for ms in (0, 5_000, 10_000, 15_000)]


ANN, BOB, CAT = (Caller(Rank.AGENT, name) for name in ("ann", "bob", "cat"))


@pytest.mark.parametrize(("caller", "sees"), [(ANN, True), (BOB, True), (CAT, False), (OPEN, True), (ADMIN, True),
                                              (Caller(Rank.LINK, "mac"), False)])  # fmt: skip
async def test_only_who_sent_or_got_it_sees_a_message(hub: SmallHub, caller: Caller, sees: bool) -> None:
    sent = await hub.send()
    if sees:
        assert (await receipt(hub.bus, caller, sent.envelope.id)).envelope == sent.envelope
        return
    with pytest.raises(UnknownMessage):
        await receipt(hub.bus, caller, sent.envelope.id)


async def test_open_sees_nothing_of_keyed_names_or_of_the_owner(hub: SmallHub) -> None:
    for name in ("ann", "bob"):
        await make_token(hub.bus, ADMIN, name)
    hidden = [await hub.send("bob", "ann", intent="request", ttl_seconds=1), await hub.send("bob", "human")]
    for sent in hidden:
        with pytest.raises(UnknownMessage):
            await receipt(hub.bus, OPEN, sent.envelope.id)
    await hub.pass_time(2)
    (notice,) = await hub.notices("bob")
    with pytest.raises(UnknownMessage):
        await receipt(hub.bus, OPEN, notice.id)
    assert (await receipt(hub.bus, BOB, notice.id)).envelope == notice


@pytest.mark.parametrize("wrong", ["", "x", "../../etc", "A" * 32])
async def test_an_id_is_looked_up_only_when_it_is_one(hub: SmallHub, wrong: str) -> None:
    with pytest.raises(BadRequest):
        await receipt(hub.bus, ADMIN, wrong)


async def test_an_unknown_id_is_unknown(hub: SmallHub) -> None:
    with pytest.raises(UnknownMessage):
        await receipt(hub.bus, ADMIN, "0" * 32)


# ------------------------------------------------------------------------------------------------------------ waiting


async def test_a_look_may_wait_for_a_change(hub: SmallHub) -> None:
    sent = await hub.send()
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(receipt(hub.bus, OPEN, sent.envelope.id, 20))
        await settle()
        assert not looking.done()
        await hub.take()
    assert looking.result().deliveries[0].state is State.LEASED


async def test_a_change_between_the_look_and_the_wait_is_not_missed(hub: SmallHub) -> None:
    sent = await hub.send()
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(receipt(hub.bus, OPEN, sent.envelope.id, 20))
        await asyncio.sleep(0)
        hub.bus.signals.wake("message:" + sent.envelope.id)
        await settle()
        assert looking.done()


async def test_a_look_that_waits_sees_the_reply(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    await hub.ack(await hub.take_one())
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(receipt(hub.bus, OPEN, sent.envelope.id, 20))
        await settle()
        await hub.send("ann", "bob", "done", in_reply_to=sent.envelope.id)
    assert looking.result().reply is not None


async def test_a_look_waits_no_longer_than_asked(hub: SmallHub) -> None:
    sent = await hub.send()
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(receipt(hub.bus, OPEN, sent.envelope.id, 20))
        await hub.clock.advance(20.1)
    assert looking.result().deliveries == sent.deliveries


async def test_a_final_outcome_is_told_at_once(hub: SmallHub) -> None:
    sent = await hub.send()
    await cancel(hub.bus, OPEN, sent.envelope.id)
    assert (await receipt(hub.bus, OPEN, sent.envelope.id, 20)).final


async def test_a_look_does_not_outlast_the_hub(hub: SmallHub) -> None:
    sent = await hub.send()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(receipt(hub.bus, OPEN, sent.envelope.id, 20))
        await settle()
        await close_bus(hub.bus)
    await receipt(hub.bus, OPEN, sent.envelope.id, 20)


@pytest.mark.parametrize("wait", [-1, 61, float("nan")])
async def test_a_wait_out_of_range_is_refused(hub: SmallHub, wait: float) -> None:
    sent = await hub.send()
    with pytest.raises(BadRequest):
        await receipt(hub.bus, OPEN, sent.envelope.id, wait)


async def test_an_inform_is_final_once_delivered_and_a_request_once_it_is_given_up(hub: SmallHub) -> None:
    inform, request = await hub.send(), await hub.send(intent="request", ttl_seconds=60)
    for held in await hub.take():
        await hub.ack(held)
    assert (await receipt(hub.bus, OPEN, inform.envelope.id)).final
    assert not (await receipt(hub.bus, OPEN, request.envelope.id)).final
    await hub.pass_time(61)
    assert (await receipt(hub.bus, OPEN, request.envelope.id)).final


# ---------------------------------------------------------------------------------------------------- what comes next


async def test_what_is_expected_next_is_said_from_the_place_that_knows(hub: SmallHub) -> None:
    async def says(of: str) -> str | None:
        row = await hub.row(of)
        return expected(hub.bus, row, Intent.REQUEST)

    sent = (await hub.send(intent="request", ttl_seconds=3600)).envelope.id
    assert "waits until" in str(await says(sent))
    held = await hub.take_one(lease_seconds=1800)
    assert await says(sent) == "in the agent's hands"
    await hub.clock.advance(12 * 60)
    assert "for 12 min" in str(await says(sent))
    await hub.nack(held, 60)
    assert "again shortly" in str(await says(sent))
    await hub.pass_time(61)
    await hub.listen()
    assert "takes it next" in str(await says(sent))
    await hub.ack(await hub.take_one())
    assert "answer is awaited" in str(await says(sent))
    await hub.pass_time(3600)
    assert await says(sent) is None


async def test_held_mail_says_that_a_person_must_act() -> None:
    hub = await SmallHub.open(Limits(chain_depth=0))
    root = await hub.send()
    held = await hub.send("bob", "ann", thread=root.envelope.id)
    assert "person" in str(expected(hub.bus, held.deliveries[0], Intent.INFORM))


async def test_a_receipt_says_until_when_it_is_held(hub: SmallHub) -> None:
    await hub.send()
    held = await hub.take_one(lease_seconds=60)
    assert held_until(hub.bus, held.delivery) == hub.clock.now() + 60_000
    await hub.renew(held, 120)
    assert held_until(hub.bus, held.delivery) == hub.clock.now() + 120_000
    await hub.ack(held)
    assert held_until(hub.bus, held.delivery) is None


# -------------------------------------------------------------------------------------------------------------- inbox


async def test_looking_twice_shows_the_same_and_changes_nothing(hub: SmallHub) -> None:
    sent = await hub.send_all("1", "2")
    pages = [await inbox(hub.bus, "ann", after=0, limit=10, states=None, sender=None) for _ in range(2)]
    assert pages[0] == pages[1]
    assert texts(pages[0].parcels) == ["1", "2"]
    assert [await hub.rows(s) for s in sent] == [s.deliveries for s in sent]


async def test_a_page_says_how_much_it_hides_and_how_old_the_oldest_is(hub: SmallHub) -> None:
    at = hub.clock.now()
    await hub.send_all("1", "2", sender="bob")
    await hub.clock.advance(5)
    await hub.send("cat", text="3")
    page = await inbox(hub.bus, "ann", after=0, limit=10, states=None, sender="cat")
    assert (texts(page.parcels), page.total, page.hidden, page.oldest_unread_at) == (["3"], 3, 2, at)


async def test_pages_go_on_where_the_last_ended(hub: SmallHub) -> None:
    await hub.send_all("1", "2", "3")
    page = await inbox(hub.bus, "ann", after=0, limit=2, states=None, sender=None)
    assert page.next is not None
    rest = await inbox(hub.bus, "ann", after=page.next, limit=2, states=None, sender=None)
    assert (texts(rest.parcels), rest.next) == (["3"], None)


@pytest.mark.parametrize("limit", [0, 1001])
async def test_a_page_is_bounded(hub: SmallHub, limit: int) -> None:
    with pytest.raises(BadRequest):
        await inbox(hub.bus, "ann", after=0, limit=limit, states=None, sender=None)


async def test_an_ask_in_the_air_is_seen_by_both_sides(hub: SmallHub) -> None:
    draft = Draft(sender="bob", to="ann", text="?")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ask(hub.bus, draft, 10))
        await settle()
        assert draft.id is not None
        assert (await receipt(hub.bus, ANN, draft.id)).envelope.intent is Intent.REQUEST
        await cancel(hub.bus, BOB, draft.id)
