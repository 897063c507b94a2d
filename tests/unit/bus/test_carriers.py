"""A link that is up is leased its mail in the commit that accepts it, and nothing passes anything by that."""

from asyncio import Future

import pytest

from angelia.bus.carriers import Carrier
from angelia.bus.carry import claim_for, detach, given_back
from angelia.bus.draft import Accepted, Draft
from angelia.bus.ports import Parcel
from angelia.bus.publish import accept, publish, resolve
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Kind, Lane
from angelia.model.errors import DiskFull
from tests.fakes.clock import FakeClock, settle
from tests.fakes.small_hub import texts
from tests.fakes.troubled_store import TroubledStore
from tests.fakes.two_hubs import Link, LinkedHub, Neighbourhood


@pytest.fixture
async def two() -> Neighbourhood:
    return await (await (await Neighbourhood.of(lap="bob cat", rack="ann dev")).line("lap", "rack")).meet()


@pytest.fixture
def lap(two: Neighbourhood) -> LinkedHub:
    return two["lap"]


@pytest.fixture
def link(two: Neighbourhood) -> Link:
    return two.link("lap", "rack")


async def states(lap: LinkedHub, *words: str, to: str = "ann@rack", **more: object) -> list[str]:
    """Send these; the states that they start in."""
    sent = [await lap.send("bob", to, word, **more) for word in words]
    return [each.deliveries[0].state.word for each in sent]


def queued(carrier: Carrier) -> list[str | None]:
    return texts(carrier.queue)


class Alone:
    """A hub over a store that can be late or fail, with a link to a hub that nobody needs."""

    def __init__(self, store: TroubledStore, lap: LinkedHub, carrier: Carrier) -> None:
        self.store, self.lap, self.carrier = store, lap, carrier

    @classmethod
    async def start(cls, window_bytes: int = 1000) -> "Alone":
        """The link is up, but has not looked yet."""
        store, carrier = TroubledStore(), Carrier("rack", 10, window_bytes)
        lap = await LinkedHub.start("lap", 1, FakeClock(), "bob", store=store)
        await lap.connect("rack", "f" * 32)
        await lap.learn("rack", [{"handle": "ann", "hub": "f" * 32, "name": "rack", "way": ["f" * 32]}])
        await store.write(lambda tx: lap.bus.carriers.attach(tx, carrier))
        return cls(store, lap, carrier)

    def send(self, text: str) -> Future[Accepted]:
        """Queue the unit of a message."""
        draft = Draft(sender="bob", to="ann@rack", text=text)
        return self.store.write(lambda tx: accept(self.lap.bus, tx, draft, resolve(self.lap.bus, draft)))

    def look(self) -> Future[bool]:
        """Queue a claim."""
        return self.store.write(lambda tx: claim_for(self.lap.bus, tx, self.carrier))


@pytest.fixture
async def alone() -> Alone:
    started = await Alone.start()
    assert await started.look() is False
    return started


# ---------------------------------------------------------------------------------------- in the accepting commit


async def test_a_link_that_is_up_is_leased_it_in_the_commit_that_accepts_it(lap: LinkedHub, link: Link) -> None:
    carrier = await link.up()
    sent = await lap.send("bob", "ann@rack", "hi")
    (row,) = sent.deliveries
    assert (row.state, row.attempt, row.used, row.hand) == (State.LEASED, 1, 0, Hand.LINK)
    assert (row.leased_at, row.sweep_at) == (lap.clock.now(), None)
    assert await lap.rows(sent) == [row]
    assert list(carrier.queue) == [Parcel(row, sent.envelope)]


async def test_with_no_link_or_another_one_it_waits(two: Neighbourhood, lap: LinkedHub, link: Link) -> None:
    assert await states(lap, "no link") == ["queued"]
    await link.take()
    await two.link("rack", "lap").up()
    assert await states(lap, "the other side's") == ["queued"]


async def test_an_answer_and_a_notice_go_the_same_way(two: Neighbourhood) -> None:
    rack, back = two["rack"], two.link("rack", "lap")
    answered = await two["lap"].send("bob", "ann@rack", intent="request")
    await two["lap"].send("bob", "dev@rack", intent="request", ttl_seconds=5)
    await two.run()
    carrier = await back.up()
    await rack.answer("ann", answered.envelope)
    await two.pass_time(6)
    assert [each.envelope.kind for each in carrier.queue] == [Kind.REPLY, Kind.NOTICE]


async def test_nobody_hears_of_it_before_it_is_on_disk(alone: Alone) -> None:
    alone.store.late = True
    alone.send("hi")
    await settle()
    assert (len(alone.carrier.leased), len(alone.carrier.queue)) == (1, 0)
    await alone.store.let_go()
    assert len(alone.carrier.queue) == 1


async def test_what_is_not_stored_after_all_takes_no_room_and_does_not_go(alone: Alone) -> None:
    carrier = alone.carrier
    alone.store.fault = DiskFull("no room")
    with pytest.raises(DiskFull):
        await alone.send("hi")
    assert (carrier.leased, list(carrier.queue), carrier.room_bytes()) == ({}, [], carrier.window_bytes)


# --------------------------------------------------------------------------------------------- passing nothing


async def test_it_waits_behind_what_waits_in_its_mailbox_and_others_do_not(lap: LinkedHub, link: Link) -> None:
    carrier = await link.up()
    (first,) = await _held(lap, link, "1")
    carrier.free(first)
    given_back(lap.bus, [first])
    assert await states(lap, "2") == ["queued"]
    assert await states(lap, "dev's", to="dev@rack") == ["leased"]
    await link.fill()
    assert queued(carrier) == ["dev's", "1", "2"]


async def test_it_waits_until_the_link_has_looked(lap: LinkedHub, link: Link) -> None:
    """Also where nothing waits in its own mailbox: else a busy one would keep the others' mail waiting."""
    await lap.send("bob", "ann@rack", "1")
    carrier = link.carrier = Carrier("rack", 10, 1000)
    await lap.bus.store.write(lambda tx: lap.bus.carriers.attach(tx, carrier))
    assert await states(lap, "2", to="dev@rack") == ["queued"]
    await link.fill()
    assert queued(carrier) == ["1", "2"]
    assert await states(lap, "3", to="dev@rack") == ["leased"]


async def test_mail_that_is_put_off_stops_nothing(lap: LinkedHub, link: Link) -> None:
    carrier = await link.up()
    (first,) = await _held(lap, link, "1")
    carrier.free(first)
    given_back(lap.bus, [first], used=True, delay=60.0)
    await lap.commit()
    assert await states(lap, "2") == ["leased"]


async def test_a_link_that_is_full_takes_nothing_until_it_has_caught_up(lap: LinkedHub, link: Link) -> None:
    carrier = await link.up(window=2)
    assert await states(lap, "1", "2", "3") == ["leased", "leased", "queued"]
    for parcel in await carrier.next(2):
        carrier.free(parcel)
    assert await states(lap, "4", to="dev@rack") == ["queued"], "there is room, but 3 came first"
    await lap.send("human", "dev@rack", "0", lane=Lane.PERSON)
    await link.fill()
    assert texts(await carrier.next(9)) == ["0", "3"]
    assert carrier.room() == 0


async def test_a_look_that_finds_its_room_taken_is_no_look(lap: LinkedHub, link: Link) -> None:
    carrier = await link.up(window=1)
    assert await states(lap, "1", "2") == ["leased", "queued"]
    assert await lap.bus.store.write(lambda tx: claim_for(lap.bus, tx, carrier)) is True
    assert carrier.behind


async def test_a_message_of_many_bytes_fills_it_and_goes_alone_where_it_is_larger(alone: Alone) -> None:
    carrier = alone.carrier
    sent = [await alone.send(text) for text in ("x" * 5000, "small")]
    assert [each.deliveries[0].state for each in sent] == [State.LEASED, State.QUEUED]
    (large,) = await carrier.next(9)
    carrier.free(large)
    assert carrier.room_bytes() == carrier.window_bytes
    await alone.look()
    assert queued(carrier) == ["small"]


async def test_claims_and_accepts_reach_it_in_the_order_of_commits() -> None:
    """What was claimed comes late to the loop, and what was accepted later stays behind it."""
    alone = await Alone.start()
    await alone.send("1")
    alone.store.late = True
    for unit in (alone.look(), alone.send("2"), alone.look(), alone.look(), alone.send("3")):
        unit.add_done_callback(lambda done: done.result())
    await settle()
    assert (len(alone.carrier.leased), len(alone.carrier.queue)) == (3, 0)
    await alone.store.let_go()
    assert queued(alone.carrier) == ["1", "2", "3"]


async def test_a_look_that_was_not_stored_has_found_nothing() -> None:
    alone = await Alone.start()
    alone.store.fault = DiskFull("no room")
    with pytest.raises(DiskFull):
        await alone.look()
    assert (await alone.send("hi")).deliveries[0].state is State.QUEUED


# ------------------------------------------------------------------------------------------------------- the end


async def test_what_a_link_holds_when_it_ends_goes_back_and_nothing_passes_it(lap: LinkedHub, link: Link) -> None:
    carrier = await link.up()
    await lap.send("bob", "ann@rack", "0")
    await carrier.next(1)  # on its way
    await lap.send("bob", "ann@rack", "1")
    link.down()
    later = publish(lap.bus, Draft(sender="bob", to="ann@rack", text="2"))
    assert (await later).deliveries[0].state is State.QUEUED
    again = await link.up()
    assert queued(again) == ["0", "1", "2"]
    assert [(p.delivery.attempt, p.delivery.used) for p in again.queue] == [(2, 0), (2, 0), (1, 0)]


async def test_what_was_leased_while_the_link_was_ending_goes_back_too(alone: Alone) -> None:
    """The unit that accepts it runs before the one that ends the link, and the loop hears of it afterwards."""
    alone.store.late = True
    alone.send("hi")
    detach(alone.lap.bus, alone.carrier)
    await alone.store.let_go()
    [parcel] = await alone.lap.mailbox("ann@rack")
    assert (parcel.delivery.state, parcel.delivery.used) == (State.QUEUED, 0)
    assert alone.lap.bus.carriers.live == {}


async def test_a_link_that_has_a_successor_leaves_it_alone(lap: LinkedHub, link: Link) -> None:
    old, new = await link.up(), await link.up()
    detach(lap.bus, old)
    await lap.commit()
    assert lap.bus.carriers.live == {"rack": new}


async def test_an_end_that_is_not_stored_is_made_up_for(alone: Alone) -> None:
    lap, sent = alone.lap, await alone.send("hi")
    alone.store.fault = DiskFull("no room")
    detach(lap.bus, alone.carrier)
    await lap.commit()
    assert (lap.bus.carriers.live, await lap.state(sent)) == ({"rack": alone.carrier}, State.LEASED)
    await lap.pass_time(2)
    assert (lap.bus.carriers.live, await lap.state(sent)) == ({}, State.QUEUED)


async def test_what_goes_out_again_before_its_first_answer_is_held_twice(lap: LinkedHub, link: Link) -> None:
    carrier = await link.up()
    (first,) = await _held(lap, link, "1")
    given_back(lap.bus, [first])
    await link.fill()
    (second,) = await carrier.next(9)
    carrier.free(first)
    assert list(carrier.leased.values()) == [second]
    carrier.free(second)
    assert carrier.room_bytes() == carrier.window_bytes


async def _held(lap: LinkedHub, link: Link, *words: str) -> list[Parcel]:
    """Messages that have left the link's queue."""
    assert set(await states(lap, *words)) == {"leased"}
    assert link.carrier is not None
    return await link.carrier.next(len(words))
