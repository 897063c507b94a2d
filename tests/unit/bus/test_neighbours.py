"""What hubs are called here, for how long, and who is known behind which link."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angelia.bus.neighbours import MOST_HUBS, Neighbours, place_id
from angelia.bus.ports import Tx
from angelia.model.address import check_handle
from angelia.model.connection import Away, Speaks
from angelia.model.envelope import check_id
from angelia.model.errors import DiskFull, NotAllowed, NotFound
from angelia.protocol.hub import HubRow
from angelia.storage.memory import MemoryStore
from tests.fakes.clock import FakeClock
from tests.fakes.troubled_store import TroubledStore
from tests.fakes.two_hubs import LinkedHub

RACK, BOX, FAR, FARTHER = "a" * 32, "b" * 32, "c" * 32, "d" * 32


@pytest.fixture
async def hub() -> LinkedHub:
    """A laptop that is linked to a rack and a box."""
    found = await LinkedHub.start("lap", 1, FakeClock(), "ann", "bob")
    await found.connect("rack", RACK)
    await found.connect("box", BOX)
    return found


def row(handle: str, hub: str, name: str, *way: str, **more: Any) -> dict[str, Any]:
    """As the neighbour at the end of the way tells it."""
    return {"handle": handle, "hub": hub, "name": name, "way": [hub, *way], **more}


def names(hub: LinkedHub) -> Neighbours:
    return hub.bus.neighbours


def told_by_rack(hub: LinkedHub) -> tuple[HubRow, ...]:
    found = tuple(known.row for known in names(hub).everyone() if known.link == "rack")
    assert len(found) == names(hub).count("rack")
    return found


async def meet(hub: LinkedHub, link: str, far: str, told: str) -> str:
    def unit(tx: Tx) -> str:
        return names(hub).meet(tx, names(hub).require(link), far, told, hub.clock.now())

    return await hub.bus.store.write(unit)


# ------------------------------------------------------------------------------------------------------------- names


async def test_the_neighbour_itself_is_called_as_its_connection_whatever_it_calls_itself(hub: LinkedHub) -> None:
    await hub.learn("rack", [row("ops", RACK, "other")])
    assert sorted(hub.shown()) == ["ops@rack"]
    assert await meet(hub, "rack", RACK, "other") == "rack"
    assert not names(hub).is_taken("other")


async def test_one_behind_it_is_called_as_it_says_where_that_is_free(hub: LinkedHub) -> None:
    await hub.learn("rack", [row("zed", FAR, "attic", RACK)])
    assert sorted(hub.shown()) == ["zed@attic"]


@pytest.mark.parametrize("told", ["box", "BOX", "rack", "lap", "Lap", "local", "desktop", "human", "angelia", "all"])
async def test_where_that_name_means_something_here_the_neighbours_is_added(hub: LinkedHub, told: str) -> None:
    await hub.learn("rack", [row("zed", FAR, told, RACK)])
    assert sorted(hub.shown()) == [f"zed@{told}-rack"]


async def test_a_name_that_two_say_is_the_firsts(hub: LinkedHub) -> None:
    await hub.learn("rack", [row("zed", FAR, "attic", RACK), row("yan", FARTHER, "attic", RACK)])
    await hub.learn("box", [row("xi", "e" * 32, "Attic", BOX), row("wu", "f" * 32, "attic", BOX)])
    assert sorted(hub.shown()) == ["wu@attic-box-2", "xi@Attic-box", "yan@attic-rack", "zed@attic"]


@pytest.mark.parametrize("link", ["r" * 64, "r"])
@pytest.mark.parametrize("told", ["x" * 64, "x", "x" * 60])
async def test_every_name_is_a_name_however_long_they_are(told: str, link: str) -> None:
    hub = await LinkedHub.start("lap", 1, FakeClock())
    await hub.connect(link, RACK)
    hubs = [f"{number:032x}" for number in range(10)]
    await hub.learn(link, [row("zed", each, told, RACK) for each in hubs])
    shown = [each.partition("@")[2] for each in hub.shown()]
    assert len(set(shown)) == 10
    for name in shown:
        check_handle(name)


async def test_a_name_stays_with_its_hub(hub: LinkedHub) -> None:
    """Through rosters without it, another name that it is told by, and a restart."""
    await hub.learn("rack", [row("zed", FAR, "attic", RACK)])
    await hub.learn("rack", [])
    await hub.learn("rack", [row("zed", FARTHER, "attic", RACK)])
    await hub.reopen()
    await hub.learn("rack", [row("zed", FAR, "cellar", RACK), row("zed", FARTHER, "attic", RACK)])
    assert sorted(hub.shown()) == ["zed@attic", "zed@attic-rack"]
    found = names(hub).behind("attic")
    assert found is not None
    assert (found.hub, found.link) == (FAR, "rack")


async def test_one_that_nobody_told_of_gets_its_name_from_its_first_message(hub: LinkedHub) -> None:
    assert await meet(hub, "rack", FAR, "attic") == "attic"
    assert await meet(hub, "rack", FAR, "cellar") == "attic"
    assert await meet(hub, "box", FAR, "attic") == "attic-box"  # by another link it is another's word
    await hub.reopen()
    assert names(hub).name_of("rack", FAR) == "attic"
    await hub.learn("rack", [row("zed", FAR, "cellar", RACK)])
    assert sorted(hub.shown()) == ["zed@attic"]


async def test_a_name_that_was_not_stored_is_not_there() -> None:
    store = TroubledStore()
    hub = await LinkedHub.start("lap", 1, FakeClock(), store=store)
    await hub.connect("rack", RACK)
    for store.refusal, store.fault in ((DiskFull("full"), None), (None, ZeroDivisionError())):
        with pytest.raises((DiskFull, ZeroDivisionError)):
            await hub.learn("rack", [row("zed", FAR, "attic", RACK)])
        assert not names(hub).is_taken("attic")
        assert hub.shown() == {}
    assert await meet(hub, "rack", FARTHER, "attic") == "attic"


async def test_made_up_hubs_come_to_an_end(hub: LinkedHub) -> None:
    """Those with a name keep it; of the others no row is taken, and no message."""
    many = [row("zed", f"{number:032x}", f"n{number}", RACK) for number in range(MOST_HUBS + 5)]
    await hub.learn("rack", [*many, row("ops", RACK, "rack")])
    assert len(hub.shown()) == MOST_HUBS + 1
    with pytest.raises(NotAllowed):
        await meet(hub, "rack", FAR, "attic")
    assert await meet(hub, "rack", f"{0:032x}", "x") == "n0"
    assert await meet(hub, "box", FAR, "attic") == "attic"  # one link's harm none of another's


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["rack", "box"]),
            st.sampled_from([RACK, BOX, FAR, FARTHER, "e" * 32]),
            st.sampled_from(["attic", "Attic", "attic-box", "attic-rack", "rack", "box", "x" * 64]),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_no_name_ever_comes_to_mean_another_hub(steps: Sequence[tuple[str, str, str, bool]]) -> None:
    async def follow() -> None:
        hub = await LinkedHub.start("lap", 1, FakeClock())
        links = {"rack": await hub.connect("rack", RACK), "box": await hub.connect("box", BOX)}
        seen: dict[str, tuple[str, str]] = {}
        for link, far, told, restarts in steps:
            name = await meet(hub, link, far, told)
            check_handle(name)
            assert seen.setdefault(name.lower(), (link, far)) == (link, far)
            if restarts:
                await hub.reopen()
            for known, (by, which) in seen.items():
                found = names(hub).behind(known)
                assert found is not None
                assert (found.link, found.hub) == (by, which)
                assert names(hub).name_of(by, which).lower() == known
        assert names(hub).connections == {connection.id: connection for connection in links.values()}

    asyncio.run(follow())


def test_what_is_behind_a_gateway_has_an_id_of_its_own_at_each_hub() -> None:
    ids = {place_id(RACK, "vps-1"), place_id(BOX, "vps-1"), place_id(RACK, "vps-2")}
    assert len(ids) == 3
    assert place_id(RACK, "VPS-1") in ids
    for id in ids:
        check_id(id)


# -------------------------------------------------------------------------------------------------------- connections


async def test_a_connection_is_kept_as_it_was_made() -> None:
    hub = await LinkedHub.start("lap", 1, FakeClock())
    made = await hub.connect(
        "Rack",
        RACK,
        target="ws://rack",
        speaks=Speaks.HUB,
        away=Away.REFUSE,
        share=("ann",),
        accept=(),
        key=b"\x00\xff",
    )
    await hub.reopen()
    assert names(hub).connections == {"rack": made}
    assert names(hub).require("RACK") == names(hub).of_hub(RACK) == made
    assert names(hub).of_hub(FAR) is None
    with pytest.raises(NotFound) as refused:
        names(hub).require("rock")
    assert refused.value.extra["suggestions"] == ["rack"]


@pytest.mark.parametrize("now", [FARTHER, None])
async def test_where_another_hub_is_behind_a_connection_its_agents_are_others(hub: LinkedHub, now: str | None) -> None:
    await hub.learn("rack", [row("ops", RACK, "rack"), row("zed", FAR, "attic", RACK)])
    await hub.connect("rack", RACK, target="ws://rack")
    assert sorted(hub.shown()) == ["ops@rack", "zed@attic"]
    await hub.connect("rack", now)
    for _ in range(2):
        assert hub.shown() == {}
        await hub.reopen()


async def test_one_that_is_removed_takes_all_with_it_that_it_led_to(hub: LinkedHub) -> None:
    await hub.learn("rack", [row("ops", RACK, "rack"), row("zed", FAR, "attic", RACK)])
    await hub.learn("box", [row("dev", BOX, "box")])
    gone = names(hub).require("rack")
    await hub.bus.store.write(lambda tx: names(hub).remove(tx, gone, hub.clock.now()))
    for _ in range(2):
        assert sorted(hub.shown()) == ["dev@box"]
        assert not names(hub).is_taken("attic")
        assert not names(hub).is_taken("rack")
        assert names(hub).count("rack") == 0
        await hub.reopen()
    last = names(hub).require("box")
    await hub.bus.store.write(lambda tx: names(hub).remove(tx, last, hub.clock.now()))
    await hub.reopen()
    assert hub.shown() == {}


async def test_whatever_others_may_have_to_be_told_of_is_counted(hub: LinkedHub) -> None:
    seen = names(hub).changes
    for change in ("learn", "up", "down", "put"):
        if change == "learn":
            await hub.learn("rack", [row("ops", RACK, "rack")])
        elif change == "put":
            await hub.connect("rack", RACK, share=())
        else:
            names(hub).set_up("rack", up=change == "up")
        assert names(hub).changes > seen, change
        seen = names(hub).changes


# ------------------------------------------------------------------------------------------------------------ rosters


async def test_a_roster_replaces_its_own_rows_and_no_others(hub: LinkedHub) -> None:
    await hub.learn("rack", [row("ops", RACK, "rack"), row("old", RACK, "rack")])
    await hub.learn("box", [row("dev", BOX, "box")])
    await hub.learn("rack", [row("ops", RACK, "rack")])
    assert sorted(hub.shown()) == ["dev@box", "ops@rack"]
    assert (hub.bus.remotes.count("rack"), told_by_rack(hub)[0].handle) == (1, "ops")


async def test_what_was_told_last_is_there_after_a_restart(hub: LinkedHub) -> None:
    await hub.learn("rack", [row("ops", RACK, "rack", title="Ops", description="all", online=True)])
    before = told_by_rack(hub)
    await hub.reopen()
    assert told_by_rack(hub) == before == (HubRow("ops", RACK, "rack", (RACK,), "Ops", "all", True),)
    assert hub.shown() == {"ops@rack": None}  # nobody knows while it is down


async def test_each_agent_is_there_once_by_the_shortest_way(hub: LinkedHub) -> None:
    await hub.learn("box", [row("zed", FAR, "attic", FARTHER, BOX), row("ops", RACK, "rack", BOX)])
    await hub.learn("rack", [row("zed", FAR, "attic", RACK), row("ops", RACK, "rack")])
    assert sorted(hub.shown()) == ["ops@rack", "zed@attic-rack"]
    for up in (True, False):  # a name does not come and go with a line
        names(hub).set_up("rack", up=up)
        found = [(known.link, known.name) for known in names(hub).everyone()]
        assert found == [("rack", "attic-rack"), ("rack", "rack")]


async def test_of_two_ways_alike_one_that_is_up_goes_first(hub: LinkedHub) -> None:
    for link, by in (("box", BOX), ("rack", RACK)):
        await hub.learn(link, [row("zed", FAR, "attic", by)])
    assert [known.link for known in names(hub).everyone()] == ["box"]
    names(hub).set_up("box", up=False)
    assert [known.link for known in names(hub).everyone()] == ["rack"]


@pytest.mark.parametrize(
    "claim",
    [[BOX], [BOX, FAR], [FAR, RACK], [FAR], [BOX, RACK, FAR]],
    ids=["as if it were that hub", "by another hub", "from another hub", "neither", "past itself"],
)
async def test_no_neighbour_takes_the_place_of_another(hub: LinkedHub, claim: list[str]) -> None:
    """The rack says that the box is right behind it, or nowhere: what the box tells of its own stands."""
    await hub.learn("box", [row("dev", BOX, "box")])
    await hub.learn("rack", [{"handle": "dev", "hub": BOX, "name": "box", "way": claim}])
    (dev,) = [known for known in names(hub).everyone() if known.row.handle == "dev"]
    assert (dev.link, dev.name) == ("box", "box")
    assert names(hub).count("rack") == 0


async def test_only_those_who_are_accepted_are_seen(hub: LinkedHub) -> None:
    await hub.connect("rack", RACK, accept=("ops",))
    await hub.learn("rack", [row("Ops", RACK, "rack"), row("dev", RACK, "rack")])
    assert sorted(hub.shown()) == ["Ops@rack"]


async def test_whether_it_is_there_is_told_by_the_neighbour_while_the_line_is_up(hub: LinkedHub) -> None:
    told = {"a": True, "b": False, "c": None}
    await hub.learn("rack", [row(name, RACK, "rack", online=online) for name, online in told.items()])
    assert hub.shown() == {f"{name}@rack": online for name, online in told.items()}
    names(hub).set_up("rack", up=False)
    assert set(hub.shown().values()) == {None}
    await hub.connect("rack", RACK, away=Away.REFUSE)
    names(hub).set_up("rack", up=False)
    assert set(hub.shown().values()) == {False}


async def test_a_store_of_its_own_is_what_a_hub_is() -> None:
    found = Neighbours()
    store = MemoryStore()
    await found.open(store, "lap")
    assert (found.me, found.name, found.connections, found.everyone()) == (store.instance, "lap", {}, [])
    assert found.is_taken("LAP")
