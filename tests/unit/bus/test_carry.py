"""Mail that a link carries: in its order, until it is there, and what becomes of it on this side."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from angelia.bus.carriers import Carrier
from angelia.bus.carry import delivered, detach, fail_waiting, fill, forwarded, given_back, look_behind, refused, take
from angelia.bus.draft import Accepted
from angelia.bus.moves import owed_key
from angelia.bus.outcomes import owed
from angelia.bus.ports import Parcel
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Kind, Lane
from angelia.model.errors import DiskFull, Stopping
from angelia.model.failure import Reason
from angelia.model.limits import DAY, Limits
from tests.fakes.clock import FakeClock, settle
from tests.fakes.small_hub import texts
from tests.fakes.troubled_store import TroubledStore
from tests.fakes.two_hubs import LinkedHub, Neighbourhood

REMOVED = "The connection was removed."


@pytest.fixture
async def two() -> Neighbourhood:
    found = await Neighbourhood.of({"lap": Limits(reader_attempts=2)}, lap="bob cat", rack="ann dev")
    return await (await found.line("lap", "rack")).meet()


@pytest.fixture
def lap(two: Neighbourhood) -> LinkedHub:
    return two["lap"]


async def taken(lap: LinkedHub, *words: str, to: str = "ann@rack", **more: object) -> list[Parcel]:
    """Messages that the link has in its hand."""
    for word in words:
        await lap.send("bob", to, word, **{"intent": "request", **more})
    return await take(lap.bus, "rack", 100, 0)


async def answer(two: Neighbourhood) -> tuple[Accepted, Parcel]:
    """An answer of ann's, in the hand of the rack's link."""
    sent = await two["lap"].send("bob", "ann@rack", intent="request")
    await two.run()
    reply = await two["rack"].answer("ann", sent.envelope)
    (parcel,) = await two.link("rack", "lap").take()
    return reply, parcel


# -------------------------------------------------------------------------------------------------------------- taking


async def test_it_is_taken_by_lane_and_order_over_all_mailboxes_of_the_connection(lap: LinkedHub) -> None:
    await lap.connect("box", "b" * 32)
    await lap.learn("box", [{"handle": "zed", "hub": "b" * 32, "name": "box", "way": ["b" * 32]}])
    for to, word in (("ann", "1"), ("dev", "2"), ("ann", "3")):
        await lap.send("bob", f"{to}@rack", word)
    await lap.send("human", "dev@rack", "0", lane=Lane.PERSON)
    await lap.send("bob", "zed@box", "elsewhere")
    await lap.send("bob", "cat", "here")
    assert texts(await take(lap.bus, "rack", 3, 0)) == ["0", "1", "2"]
    (last,) = await take(lap.bus, "rack", 3, 0)
    assert (last.envelope.text, last.delivery.state, last.delivery.hand) == ("3", State.LEASED, Hand.LINK)
    assert texts(await take(lap.bus, "box", 3, 0)) == ["elsewhere"]


async def test_who_waits_is_waked_by_the_first_and_not_by_others_mail(lap: LinkedHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(take(lap.bus, "rack", 10, 30))
        await settle()
        await lap.send("bob", "cat")
        await settle()
        assert not waiting.done()
        await lap.send("bob", "ann@rack", "now")
    assert texts(waiting.result()) == ["now"]


async def test_who_waits_goes_home_in_time(lap: LinkedHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(take(lap.bus, "rack", 10, 30))
        await lap.clock.advance(29)
        assert not waiting.done()
        await lap.clock.advance(2)
    assert waiting.result() == []


async def test_what_waits_too_long_for_the_line_expires_and_its_sender_is_told(two: Neighbourhood) -> None:
    lap = two["lap"]
    await lap.send("bob", "ann@rack", intent="request", ttl_seconds=60)
    await lap.clock.advance(61)
    assert await take(lap.bus, "rack", 10, 0) == []
    assert [n.reason for n in await lap.notices("bob")] == ["queued_expired"]


# ------------------------------------------------------------------------------------------------ a link that is filled


@asynccontextmanager
async def filled(lap: LinkedHub, window: int = 100) -> AsyncIterator[Carrier]:
    """A link to the rack that is up, while the block runs."""
    carrier = Carrier("rack", window, 10_000)
    async with asyncio.TaskGroup() as tasks:
        filling = tasks.create_task(fill(lap.bus, carrier))
        await settle()
        yield carrier
        filling.cancel()
    detach(lap.bus, carrier)
    await lap.commit()


async def test_a_link_gets_what_waits_and_then_what_comes(lap: LinkedHub) -> None:
    await lap.send_all("1", "2", to="ann@rack")
    async with filled(lap) as carrier:
        await lap.send("bob", "ann@rack", "3")
        assert texts(await carrier.next(2)) == ["1", "2"]
        assert texts(await carrier.next(2)) == ["3"]


async def test_who_waits_for_mail_is_waked_by_it(lap: LinkedHub) -> None:
    async with filled(lap) as carrier, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(carrier.next(9))
        await settle()
        assert not waiting.done()
        await lap.send("bob", "ann@rack", "now")
    assert texts(waiting.result()) == ["now"]


async def test_what_did_not_fit_comes_as_soon_as_it_does(lap: LinkedHub) -> None:
    async with filled(lap, window=2) as carrier:
        await lap.send_all("1", "2", "3", "4", to="ann@rack")
        first, second = await carrier.next(9)
        carrier.free(first)
        await settle()
        assert texts(carrier.queue) == ["3"]
        carrier.free(second)
        await settle()
        assert texts(carrier.queue) == ["3", "4"]


async def test_what_comes_back_or_due_is_claimed_at_once(lap: LinkedHub) -> None:
    async with filled(lap) as carrier:
        await lap.send("bob", "ann@rack", "1")
        (first,) = await carrier.next(9)
        carrier.free(first)
        given_back(lap.bus, [first], used=True, delay=8.0)
        await lap.pass_time(7.9)
        assert texts(carrier.queue) == []
        await lap.pass_time(0.2)
        assert texts(carrier.queue) == ["1"]


async def test_what_nobody_told_of_is_found_by_a_look_for_all_links(lap: LinkedHub) -> None:
    async with filled(lap) as carrier:
        lap.bus.carriers.live.clear()  # so nothing is leased to it
        wake, lap.bus.signals.wake = lap.bus.signals.wake, lambda key: None  # type: ignore[method-assign]  # lost
        await lap.send("bob", "ann@rack", "1")
        await settle()
        lap.bus.signals.wake = wake  # type: ignore[method-assign]
        lap.bus.carriers.live["rack"] = carrier
        assert texts(carrier.queue) == []
        await look_behind(lap.bus)
        await settle()
        assert texts(carrier.queue) == ["1"]


async def test_a_look_for_all_links_wakes_those_alone_that_have_something_to_do(two: Neighbourhood) -> None:
    rack = two["rack"]
    await two["lap"].send("bob", "ann@rack", "1")
    await two.run()
    parcel = await rack.take_one("ann")
    await rack.ack(parcel)
    assert [delivery.message_id for delivery in await owed(rack.bus, "lap")] == [parcel.envelope.id]
    rack.bus.carriers.live.update({"lap": Carrier("lap", 1, 1), "box": Carrier("box", 1, 1)})
    with rack.bus.signals.watch(owed_key("lap")) as outcomes, rack.bus.signals.watch("@lap") as mail:
        before = outcomes.ticket(), mail.ticket()
        await look_behind(rack.bus)
        assert (outcomes.ticket(), mail.ticket()) == (before[0] + 1, before[1])


async def test_a_full_disk_here_ends_no_link_and_mail_goes_once_there_is_room() -> None:
    store = TroubledStore()
    lap = await LinkedHub.start("lap", 1, FakeClock(), "bob", store=store)
    await lap.connect("rack", "f" * 32)
    await lap.learn("rack", [{"handle": "ann", "hub": "f" * 32, "name": "rack", "way": ["f" * 32]}])
    await lap.send("bob", "ann@rack", "1")
    async with filled(lap, 1) as carrier:
        [first] = await carrier.next(1)
        await lap.send("bob", "ann@rack", "2")
        store.refusal = DiskFull("full")
        carrier.free(first)
        await lap.clock.advance(10)
        store.refusal = None
        await lap.clock.advance(2)
        assert texts(carrier.queue) == ["2"]


async def test_a_link_ends_with_its_hub(lap: LinkedHub) -> None:
    carrier = Carrier("rack", 2, 10_000)
    lap.bus.stopping = True
    with pytest.raises(Stopping):
        await fill(lap.bus, carrier)


async def test_a_link_that_ends_in_the_middle_of_a_claim_holds_nothing(lap: LinkedHub) -> None:
    sent = await lap.send("bob", "ann@rack", "1")
    for turns in range(20):
        carrier = Carrier("rack", 2, 10_000)
        async with asyncio.TaskGroup() as tasks:
            filling = tasks.create_task(fill(lap.bus, carrier))
            await settle(turns)
            filling.cancel()
        detach(lap.bus, carrier)
        await lap.commit()
        assert (await lap.state(sent), lap.bus.carriers.live) == (State.QUEUED, {}), turns


# ------------------------------------------------------------------------------------------------- there, or not there


async def test_it_is_called_forwarded_and_not_delivered_once_the_other_side_has_it(lap: LinkedHub) -> None:
    parcels = await taken(lap, "1", "2")
    forwarded(lap.bus, parcels)
    await lap.commit()
    assert [(await lap.row(each)).state for each in parcels] == [State.FORWARDED, State.FORWARDED]
    assert (await lap.row(parcels[0])).delivered_at is None


async def test_what_is_never_heard_of_again_ends_in_its_time_and_its_sender_is_told(two: Neighbourhood) -> None:
    lap = two["lap"]
    forwarded(lap.bus, await taken(lap, "1", ttl_seconds=100))
    await lap.commit()
    await lap.pass_time(159)
    assert await lap.notices("bob") == []
    await lap.pass_time(2)
    assert [n.reason for n in await lap.notices("bob")] == ["delivery_timeout"]


async def test_a_notice_needs_no_more_than_to_be_there(two: Neighbourhood) -> None:
    rack = two["rack"]
    await two["lap"].send("bob", "ann@rack", intent="request", ttl_seconds=5)
    await two.run()
    await two.pass_time(6)
    (notice,) = await two.link("rack", "lap").take()
    assert notice.envelope.kind is Kind.NOTICE
    forwarded(rack.bus, [notice])
    await rack.commit()
    assert (await rack.row(notice)).state is State.DELIVERED


async def test_what_was_not_handed_over_goes_back_into_its_place(lap: LinkedHub) -> None:
    parcels = await taken(lap, "1", "2")
    await lap.send("bob", "ann@rack", "3")
    given_back(lap.bus, parcels)
    await lap.commit()
    again = await take(lap.bus, "rack", 10, 0)
    assert texts(again) == ["1", "2", "3"]
    assert [(each.delivery.attempt, each.delivery.used) for each in again] == [(2, 0), (2, 0), (1, 0)]


async def test_a_link_has_no_limit_of_attempts(lap: LinkedHub) -> None:
    parcels = await taken(lap, "1")
    for _ in range(20):
        given_back(lap.bus, parcels, used=True)
        await lap.commit()
        parcels = await take(lap.bus, "rack", 10, 0)
    assert parcels[0].delivery.used == 20


async def test_one_that_cannot_go_now_waits_alone(lap: LinkedHub) -> None:
    (first,) = await taken(lap, "1")
    given_back(lap.bus, [first], used=True, delay=8.0)
    await lap.commit()
    assert texts(await taken(lap, "2")) == ["2"]
    await lap.pass_time(7.9)
    assert await take(lap.bus, "rack", 10, 0) == []
    await lap.pass_time(0.2)
    assert texts(await take(lap.bus, "rack", 10, 0)) == ["1"]


async def test_who_waits_is_waked_when_the_delay_is_over(lap: LinkedHub) -> None:
    (first,) = await taken(lap, "1")
    given_back(lap.bus, [first], used=True, delay=8.0)
    await lap.commit()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(take(lap.bus, "rack", 10, 30))
        await settle()
        await lap.pass_time(9)
    assert texts(waiting.result()) == ["1"]


async def test_a_refusal_ends_it_and_its_sender_is_told_in_the_other_sides_words(lap: LinkedHub) -> None:
    first, second = await taken(lap, "1", "2")
    refused(lap.bus, first, Reason.TOO_LARGE, "The other side says: too much.")
    refused(lap.bus, second, Reason.LOOP, "")
    await lap.commit()
    told = [(n.reason, (n.text or "").endswith("too much.")) for n in await lap.notices("bob")]
    assert told == [("too_large", True), ("loop", False)]
    assert [(await lap.row(each)).state for each in (first, second)] == [State.FAILED, State.FAILED]


async def test_a_refused_answer_is_a_dead_letter_and_nothing_else(two: Neighbourhood) -> None:
    reply, parcel = await answer(two)
    refused(two["rack"].bus, parcel, Reason.AGENT_BLOCKED, "no")
    await two["rack"].commit()
    row = await two["rack"].row(reply)
    assert (row.state, row.reason) == (State.DEAD, Reason.AGENT_BLOCKED)
    assert await two["rack"].notices("ann") == []


async def test_an_answer_may_be_called_delivered_at_once(two: Neighbourhood) -> None:
    reply, parcel = await answer(two)
    delivered(two["rack"].bus, [parcel])
    await two["rack"].commit()
    assert await two["rack"].state(reply) is State.DELIVERED


async def test_what_has_ended_meanwhile_stays_as_it_is(lap: LinkedHub) -> None:
    (parcel,) = await taken(lap, "1")
    refused(lap.bus, parcel, Reason.LOOP, "")
    for late in (forwarded, given_back, delivered):
        late(lap.bus, [parcel])
    refused(lap.bus, parcel, Reason.TOO_LARGE, "again")
    await lap.commit()
    row = await lap.row(parcel)
    assert (row.state, row.reason) == (State.FAILED, Reason.LOOP)
    assert len(await lap.notices("bob")) == 1


async def test_nothing_in_the_hand_is_nothing_to_do(lap: LinkedHub) -> None:
    for each in (forwarded, given_back, delivered):
        each(lap.bus, [])
    given_back(lap.bus, [], delay=1.0)
    await lap.commit()


async def test_what_waited_for_a_connection_that_is_no_more_ends_and_its_senders_are_told(lap: LinkedHub) -> None:
    sent = [await lap.send("bob", "ann@rack", str(number), intent="request", ttl_seconds=DAY) for number in range(150)]
    quiet = await lap.send("cat", "dev@rack", intent="inform")
    kept = await lap.send("bob", "cat")
    await fail_waiting(lap.bus, "rack", REMOVED)
    told = await lap.notices("bob")
    assert len(told) == len(sent)
    assert {(n.reason, (n.text or "").endswith(REMOVED)) for n in told} == {("runtime_offline", True)}
    assert [await lap.state(each) for each in (sent[0], quiet, kept)] == [State.FAILED, State.FAILED, State.QUEUED]
    assert await take(lap.bus, "rack", 10, 0) == []


async def test_what_is_not_due_yet_and_what_was_handed_over_end_with_the_connection_too(lap: LinkedHub) -> None:
    later = await lap.send("bob", "ann@rack", "later", intent="request")
    given_back(lap.bus, await take(lap.bus, "rack", 10, 0), used=True, delay=60.0)
    there = await lap.send("bob", "ann@rack", "there", intent="request")
    forwarded(lap.bus, await take(lap.bus, "rack", 10, 0))
    await lap.commit()
    await fail_waiting(lap.bus, "rack", REMOVED)
    told = {notice.about: notice.reason for notice in await lap.notices("bob")}
    assert told == {later.envelope.id: "runtime_offline", there.envelope.id: "connection_gone"}


async def test_what_a_cut_gave_back_goes_again_in_its_place_however_often(lap: LinkedHub) -> None:
    """Else a second cut would put it behind what was sent later."""
    for number in range(4):
        await lap.send("bob", "ann@rack", str(number))
    first = await take(lap.bus, "rack", 2, 0)
    forwarded(lap.bus, await take(lap.bus, "rack", 1, 0))
    given_back(lap.bus, first, used=True)
    await lap.commit()
    again = await take(lap.bus, "rack", 1, 0)
    given_back(lap.bus, again, used=True)
    await lap.commit()
    assert [p.envelope.text for p in await take(lap.bus, "rack", 10, 0)] == ["0", "1", "3"]
