"""What a far hub takes no more of for now waits in its order, is in nobody's way, and goes on once there is room."""

import pytest

from angelia.bus.carry import fail_waiting
from angelia.bus.draft import Accepted
from angelia.bus.look import expected
from angelia.model.delivery import State
from angelia.model.envelope import Intent
from angelia.model.limits import Limits
from tests.fakes.small_hub import texts
from tests.fakes.two_hubs import Link, LinkedHub, Neighbourhood

FEW = 2  # of one sender, in one mailbox of the far hub
LONG = 3600.0


@pytest.fixture
async def two() -> Neighbourhood:
    few = {"rack": Limits(mailbox_deliveries_per_sender=FEW)}
    return await (await (await Neighbourhood.of(few, lap="bob cat", rack="ann dev")).line("lap", "rack")).meet()


@pytest.fixture
def lap(two: Neighbourhood) -> LinkedHub:
    return two["lap"]


@pytest.fixture
def rack(two: Neighbourhood) -> LinkedHub:
    return two["rack"]


@pytest.fixture
def link(two: Neighbourhood) -> Link:
    return two.link("lap", "rack")


async def read(rack: LinkedHub, limit: int = FEW) -> list[str | None]:
    """Somebody there reads: what it got."""
    taken = await rack.take("ann", limit)
    for parcel in taken:
        await rack.ack(parcel)
    return texts(taken)


async def read_all(two: Neighbourhood, rounds: int = 20, seconds: float = 1.0) -> list[str | None]:
    """It goes on reading while time passes."""
    got: list[str | None] = []
    for _ in range(rounds):
        got += await read(two["rack"])
        await two.run()
        await two.pass_time(seconds)
        await two.run()
    return got


async def full(two: Neighbourhood, *words: str, up: bool = True) -> list[Accepted]:
    """These were sent, and the mailbox there is full."""
    if up:
        await two.link("lap", "rack").up()
    sent = await two["lap"].send_all(*words, to="ann@rack", ttl_seconds=LONG)
    await two.run()
    return sent


async def test_all_of_it_arrives_in_its_order(two: Neighbourhood) -> None:
    await full(two, *"123456789")
    assert await read_all(two) == list("123456789")


async def test_what_is_sent_while_it_lasts_waits_behind_it_although_there_is_room(
    two: Neighbourhood, rack: LinkedHub
) -> None:
    await full(two, *"1234")
    assert await read(rack) == ["1", "2"]
    late = await two["lap"].send("bob", "ann@rack", "5")
    assert late.deliveries[0].deferred
    await two.run()
    assert await rack.mailbox("ann") == []
    assert await read_all(two) == ["3", "4", "5"]


async def test_nobody_else_waits_for_it(two: Neighbourhood, lap: LinkedHub, rack: LinkedHub, link: Link) -> None:
    await full(two, *map(str, range(30)))
    one, other = await lap.send("cat", "ann@rack", "cat's"), await lap.send("bob", "dev@rack", "dev's")
    assert [sent.deliveries[0].state for sent in (one, other)] == [State.LEASED] * 2  # by the accepting commit
    await link.carry()
    assert texts(await rack.mailbox("ann")) == ["0", "1", "cat's"]
    assert texts(await rack.mailbox("dev")) == ["dev's"]


async def test_what_was_on_its_way_does_not_pass_the_one_that_was_refused(
    two: Neighbourhood, rack: LinkedHub, link: Link
) -> None:
    await link.up()
    await two["lap"].send_all(*"12345", to="ann@rack")
    assert await link.carry(3) == 3  # the third was refused
    assert await read(rack) == ["1", "2"]
    assert await link.carry() == 2
    assert await rack.mailbox("ann") == []
    assert await read_all(two) == ["3", "4", "5"]


async def test_it_is_not_tried_while_more_of_it_is_on_its_way(two: Neighbourhood, rack: LinkedHub, link: Link) -> None:
    await link.up()
    await two["lap"].send_all(*"12345", to="ann@rack")
    await link.carry(3)
    await two["lap"].send("bob", "ann@rack", "6")
    await read(rack)
    await two.pass_time(1)  # 4 and 5 have not been sent yet
    assert await read_all(two) == ["3", "4", "5", "6"]


async def test_what_waits_beyond_the_window_does_not_pass_it_either(two: Neighbourhood, link: Link) -> None:
    await link.up(window=4)
    await two["lap"].send_all(*"123456789", to="ann@rack")
    assert await link.carry() == 4
    assert await link.carry() == 0  # nor is it sent, only to be refused
    assert await read_all(two) == list("123456789")


async def test_a_line_that_breaks_meanwhile_changes_nothing_of_the_order(two: Neighbourhood, link: Link) -> None:
    await full(two, *"12345")
    await read(two["rack"])
    await two.pass_time(1)
    assert link.carrier is not None
    assert texts(link.carrier.queue) == ["3", "4", "5"]
    link.down()
    await two["lap"].send("bob", "ann@rack", "6")
    await two["lap"].commit()
    await link.up()
    assert await read_all(two) == ["3", "4", "5", "6"]


async def test_it_is_tried_after_1_2_4_and_at_most_60_seconds(two: Neighbourhood, link: Link) -> None:
    await full(two, *"123")
    waits: list[int] = []
    for _ in range(9):
        seconds = 0
        while not await link.carry():
            await two.pass_time(1)
            seconds += 1
        waits.append(seconds)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_an_outcome_there_says_that_there_may_be_room(two: Neighbourhood, rack: LinkedHub, link: Link) -> None:
    await full(two, *"1234")
    for _ in range(200):  # nobody has read for minutes
        await two.pass_time(1)
        await link.carry()
    assert await read(rack) == ["1", "2"]
    await two.run()
    await two.pass_time(1)
    await two.run()
    assert texts(await rack.mailbox("ann")) == ["3", "4"]


@pytest.mark.parametrize("how", ["an answer", "its time is over"])
async def test_so_does_an_answer_and_the_end_of_a_time(
    two: Neighbourhood, lap: LinkedHub, rack: LinkedHub, link: Link, how: str
) -> None:
    await link.up()
    await lap.send_all(*"12", to="ann@rack", intent="request", ttl_seconds=150)
    await lap.send_all(*"34", to="ann@rack", ttl_seconds=LONG)
    await two.run()
    for _ in range(100):
        await two.pass_time(1)
        await link.carry()
    if how == "an answer":
        for parcel in await rack.take("ann", 2):
            await rack.answer("ann", parcel.envelope)
    else:
        await two.pass_time(60)  # within it one try comes by itself
        await link.carry()
        await rack.pass_time(0)
    await two.run()
    await two.pass_time(1)
    await two.run()
    assert texts(await rack.mailbox("ann"))[-2:] == ["3", "4"]


async def test_where_there_is_room_all_of_it_goes_at_once(two: Neighbourhood, rack: LinkedHub, link: Link) -> None:
    await full(two, *map(str, range(120)))
    rack.bus.limits = Limits()
    await two.pass_time(1)
    for _ in range(4):
        await link.carry()
        await two.pass_time(0)
    assert len(await rack.mailbox("ann")) == 120


async def test_when_it_is_over_mail_is_leased_as_it_is_accepted(two: Neighbourhood, lap: LinkedHub, link: Link) -> None:
    await full(two, *"123")
    await read_all(two, 5)
    assert lap.bus.jams.on(link.key) == []
    assert (await lap.send("bob", "ann@rack", "4")).deliveries[0].state is State.LEASED


async def test_one_whose_time_is_over_meanwhile_is_told_and_the_next_goes(
    two: Neighbourhood, lap: LinkedHub, rack: LinkedHub
) -> None:
    await full(two, *"12")
    await lap.send("bob", "ann@rack", "short", ttl_seconds=30, intent="request")
    await two.run()
    behind = await lap.send("bob", "ann@rack", "never sent", ttl_seconds=30, intent="request")
    await lap.send("bob", "ann@rack", "long")
    await two.pass_time(200)
    await two.run()
    assert (await lap.row(behind)).state is State.FAILED
    assert [notice.reason for notice in await lap.notices("bob")] == ["queued_expired"] * 2
    assert await read_all(two, seconds=60) == ["1", "2", "long"]


async def test_the_receipt_says_why_it_waits(two: Neighbourhood, lap: LinkedHub, link: Link) -> None:
    *_, last = await full(two, *"123")
    row = await lap.row(last)
    assert expected(lap.bus, row, Intent.INFORM) == (
        "its mailbox at rack has no room for it now; it goes there once it has"
    )
    jam = lap.bus.jams.find(row.mailbox, "bob")
    assert jam is not None
    jam.code = "disk_full"
    assert expected(lap.bus, row, Intent.INFORM) == (
        "rack takes no mail for now (disk_full); it is tried again within a minute"
    )
    lap.bus.neighbours.set_up("rack", up=False)
    assert expected(lap.bus, row, Intent.INFORM) == "waits until rack is connected again"


async def test_what_came_back_is_not_looked_at_again_by_claims(two: Neighbourhood, lap: LinkedHub, link: Link) -> None:
    await link.up()
    sent = await lap.send_all(*"1234", to="ann@rack")
    await link.carry()
    assert [(await lap.row(each)).deferred for each in sent] == [False, False, True, True]


async def test_how_much_waits_counts_it(two: Neighbourhood, lap: LinkedHub) -> None:
    sent = await full(two, *"12345")
    waiting = await lap.bus.store.read(lambda view: view.backlog("rack", 100))
    assert waiting == (3, sent[2].deliveries[0].accepted_at)


async def test_it_ends_with_its_connection(two: Neighbourhood, lap: LinkedHub, link: Link) -> None:
    *_, last = await full(two, *"123")
    link.down()
    await fail_waiting(lap.bus, "rack", "Gone.")
    assert (await lap.row(last)).state is State.FAILED
    assert lap.bus.jams.on("rack") == []
