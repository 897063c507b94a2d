"""A connection that the owner of a hub removed stays removed, whoever dials, until that owner wants it again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from angelia.bus.carry import Ended
from angelia.links import hub_link, keeper
from angelia.model.connection import Connection
from angelia.model.delivery import State
from angelia.storage import memory
from angelia.storage.memory import MemoryStore
from tests.fakes.troubled_store import TroubledStore
from tests.links.neighbours import Side, until
from tests.links.town import Home, Town, a_town

FIRST = 0.05  # instead of a second
REMOVED = "That hub's owner removed the connection."


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LAZY_SECONDS", 0.005)
    monkeypatch.setattr(hub_link, "GATHER_SECONDS", 0.001)
    monkeypatch.setattr(keeper, "FIRST_SECONDS", FIRST)
    monkeypatch.setattr(keeper, "LAST_SECONDS", FIRST)  # else what lasts is tried again after a minute
    monkeypatch.setattr(keeper, "GATHER_SECONDS", 0.01)


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with a_town(tmp_path) as found:
        yield found


async def linked(town: Town) -> tuple[Home, Home]:
    """``home`` has dialled ``garage``, and is called ``home`` there."""
    here, far = await town.home("home", "ann"), await town.home("garage", "bob", "oracle")
    assert (await here.connect("garage")).up
    await until(lambda: far.is_up("home"))
    return here, far


async def is_refused(home: Home, name: str = "garage") -> bool:
    return (await home.condition(name)).problem == REMOVED


async def stays_refused(home: Home, far: Home, name: str = "garage") -> bool:
    """Through some more dials."""
    dials = len(home.dials)
    await until(lambda: len(home.dials) > dials + 3)
    assert await far.keeper.conditions() == []
    return await is_refused(home, name)


async def is_linked(one: Home, other: Home) -> bool:
    """Whichever of the two dialled, and whatever the connection is called then."""
    return any(each.up and each.connection.hub == hub_of(other) for each in await one.keeper.conditions())


async def want(far: Home, **more: Any) -> Connection:
    """Make the connection again, by its name alone."""
    return (await far.connect("home", **{"target": "", **more})).connection


def hub_of(home: Home) -> str:
    return home.side.bus.neighbours.me


# ------------------------------------------------------------------------------------------------------------ removed


async def test_who_was_removed_by_the_side_that_it_dials_is_not_let_in_and_is_told_what_to_do(town: Town) -> None:
    here, far = await linked(town)
    await far.keeper.disconnect("home")
    await until(lambda: is_refused(here))
    assert await stays_refused(here, far)
    found = await here.condition("garage")
    assert (found.kind, found.advice) == (
        "refused", "There: angelia connect home; or here: angelia disconnect garage",
    )  # fmt: skip


async def test_it_is_tried_again_late(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "LAST_SECONDS", 60.0)
    here, far = await linked(town)
    await far.keeper.disconnect("home")
    await until(lambda: is_refused(here))
    dials = len(here.dials)
    await asyncio.sleep(FIRST * 6)
    assert len(here.dials) == dials


async def removed_and_stopped(town: Town) -> tuple[Home, MemoryStore]:
    """A hub, and the store of the one that removed it and is stopped."""
    store = MemoryStore()
    here, far = await town.home("home"), await town.home("garage", store=store)
    await here.connect("garage")
    await until(lambda: far.is_up("home"))
    await far.keeper.disconnect("home")
    await far.stop()
    return here, store


async def test_it_stays_removed_after_a_restart(town: Town) -> None:
    here, store = await removed_and_stopped(town)
    far = town.place(await Side.make("garage", store=store)).start()
    await until(lambda: is_refused(here))
    assert await stays_refused(here, far)


async def test_it_stays_removed_whoever_dialled(town: Town) -> None:
    here, far = await linked(town)
    await here.keeper.disconnect("garage")
    assert [each.connection.name for each in await far.keeper.conditions()] == ["home"]  # its own, that waits
    assert not (await far.connect("home")).up
    await until(lambda: is_refused(far, "home"))
    assert await stays_refused(far, here, "home")


async def test_a_removal_at_any_instant_of_a_dial_holds(town: Town) -> None:
    """What comes in while its connection is being removed is cut off, or refused."""
    here, far = await linked(town)
    for steps in range(40):
        await want(far)
        await until(lambda: far.is_up("home"))
        for line in town.open_lines():
            line.cut()
        for _ in range(steps):
            await asyncio.sleep(0)
        await far.keeper.disconnect("home")
        await until(lambda: is_refused(here))
        assert await far.keeper.conditions() == []
        assert far.side.bus.neighbours.up == frozenset()
        assert town.open_lines() == [] or await until(lambda: not town.open_lines())


async def is_cut_off(here: Home, far: Home) -> bool:
    return await is_refused(here) and not here.town.open_lines() and far.side.bus.neighbours.up == frozenset()


async def test_what_comes_in_while_the_removal_is_being_written_is_cut_off(town: Town) -> None:
    store = TroubledStore()
    here, far = await town.home("home"), await town.home("garage", store=store)
    await here.connect("garage")
    await until(lambda: far.is_up("home"))
    store.late = True
    removing = town.tasks.create_task(far.keeper.disconnect("home"))
    await until(lambda: _is_down(here, "garage"))
    await until(lambda: far.is_up("home"))  # it has dialled again
    await store.let_go()
    await removing
    await until(lambda: is_cut_off(here, far))
    assert await stays_refused(here, far)


async def test_what_was_let_in_at_the_moment_of_the_removal_is_not_served(town: Town) -> None:
    stores = MemoryStore(), MemoryStore(), TroubledStore()
    stores[1].instance = stores[0].instance  # of another epoch, so that a meeting takes long
    here, far = await town.home("home", store=stores[0]), await town.home("garage", store=stores[2])
    await here.connect("garage")
    await until(lambda: far.is_up("home"))
    await here.stop()
    await until(lambda: _is_down(far, "home"))
    stores[2].late = True
    here = town.place(await Side.make("home", store=stores[1])).start()
    coming = town.tasks.create_task(here.connect("garage"))
    await until(lambda: town.open_lines())
    await asyncio.sleep(FIRST * 4)  # it has proved itself, and is on its way in
    removing = town.tasks.create_task(far.keeper.disconnect("home"))
    await asyncio.sleep(FIRST)
    await stores[2].let_go()
    await removing
    await coming
    await until(lambda: is_cut_off(here, far))
    assert await stays_refused(here, far)


# -------------------------------------------------------------------------------------------------------- wanted again


async def test_wanted_again_by_its_name_it_comes_in_under_what_was_said_of_it(town: Town) -> None:
    here, far = await linked(town)
    await far.keeper.disconnect("home")
    await until(lambda: is_refused(here))
    kept = await want(far, share=("oracle",), accept=("nobody",))
    assert kept.hub == hub_of(here)
    await until(lambda: here.is_up("garage"))
    [found] = await far.keeper.conditions()
    assert (found.connection.name, found.connection.share) == ("home", ("oracle",))
    assert found.connection.accept == ("nobody",)
    handles = await until(lambda: {known.row.handle for known in here.side.bus.neighbours.everyone()})
    assert handles == {"oracle"}


async def test_wanted_again_by_a_target_that_leads_there(town: Town) -> None:
    here, far = await linked(town)
    await far.keeper.disconnect("home")
    await until(lambda: is_refused(here))
    assert not (await far.connect("other", target="ws://nowhere")).up
    assert await is_refused(here)
    found = await far.connect("house", target="ws://home")
    assert (found.up, found.connection.hub) == (True, hub_of(here))
    await until(lambda: here.is_up("garage"))
    assert far.side.bus.neighbours.removed.of(hub_of(here)) is None


async def test_wanted_again_by_its_name_after_a_target_that_led_nowhere(town: Town) -> None:
    here, far = await linked(town)
    await far.keeper.disconnect("home")
    assert not (await far.connect("home", target="ws://nowhere")).up
    await until(lambda: is_refused(here))
    await want(far)
    await until(lambda: here.is_up("garage"))


@pytest.mark.parametrize("offers", ["the one that removed", "the one that was removed"])
async def test_wanted_again_by_a_code_from_either_side(town: Town, offers: str) -> None:
    town.trusting = False
    here, far = await town.home("home"), await town.home("garage")
    code, _ = far.keeper.offer()
    assert (await here.connect("garage", code)).up
    await far.keeper.disconnect("home")
    await until(lambda: _has_trouble(here, "garage", "removed the connection"))
    if offers == "the one that removed":
        code, _ = far.keeper.offer()
        assert (await here.connect("garage", code)).up
    else:
        await here.keeper.disconnect("garage")
        code, _ = here.keeper.offer()
        assert (await far.connect("home", code)).up
    for one, other in ((here, far), (far, here)):
        assert one.side.bus.neighbours.removed.of(hub_of(other)) is None
        assert len(await one.keeper.conditions()) == 1


async def test_two_that_removed_each_other_meet_again_once_both_want_it(town: Town) -> None:
    here, far = await linked(town)
    await here.keeper.disconnect("garage")
    await far.keeper.disconnect("home")
    assert (await here.connect("garage")).problem == REMOVED
    await far.connect("home")
    await until(lambda: is_linked(here, far))
    await until(lambda: is_linked(far, here))
    for one, other in ((here, far), (far, here)):
        assert one.side.bus.neighbours.removed.of(hub_of(other)) is None


async def test_a_name_that_another_hub_has_now_is_not_told_as_the_way_back(town: Town) -> None:
    here, far = await linked(town)
    await far.keeper.disconnect("home")
    await town.home("shed")
    assert (await far.connect("home", target="ws://shed")).up
    await until(lambda: is_refused(here))
    advice = (await here.condition("garage")).advice
    assert advice == (
        "Run 'angelia pair' there, and here: angelia pair garage ws://garage; or here: angelia disconnect garage"
    )


# ------------------------------------------------------------------------------------------------- what removes nobody


async def test_one_that_stands_in_the_settings_no_more_was_not_removed_by_hand(town: Town) -> None:
    fixed, store = Connection(name="garage", target="ws://garage", fixed=True), MemoryStore()
    here = await town.home("home", store=store, fixed=(fixed,))
    far = await town.home("garage")
    await until(lambda: here.is_up("garage"))
    await here.stop()
    here = town.place(await Side.make("home", store=store)).start()
    await until(lambda: _has_none(here))
    assert (await far.connect("home")).up


async def test_one_that_the_settings_name_again_is_wanted(town: Town) -> None:
    here, store = await removed_and_stopped(town)
    far = town.place(await Side.make("garage", store=store), (Connection(name="home", share=(), fixed=True),)).start()
    await until(lambda: here.is_up("garage"))
    [found] = await far.keeper.conditions()
    assert (found.connection.name, found.connection.share) == ("home", ())


async def test_a_hub_that_moved_was_not_removed(town: Town) -> None:
    """The connection that it made by coming in goes where this side dials it under another name."""
    here, far = await linked(town)
    assert not (await far.connect("house", target="ws://home", accept=("ann",))).up  # home is there already
    await far.keeper.disconnect("home")
    await until(lambda: far.is_up("house"))
    assert far.side.bus.neighbours.removed.of(hub_of(here)) is None
    await until(lambda: here.is_up("garage"))


# ------------------------------------------------------------------------------------------------------ what mail ends


async def test_who_removes_a_connection_learns_how_much_mail_ended(town: Town) -> None:
    here, far = await linked(town)
    await until(lambda: any(known.row.handle == "bob" for known in here.side.bus.neighbours.everyone()))
    gone = await here.side.send("ann", "bob", "gone", intent="request")
    await until(lambda: here.is_forwarded(gone))
    await far.stop()
    await until(lambda: _is_down(here, "garage"))
    waited = [await here.side.send("ann", "bob", str(n)) for n in range(2)]
    assert await here.keeper.disconnect("garage") == Ended(waited=2, handed_over=1)
    assert {await here.side.state(each) for each in (gone, *waited)} == {State.FAILED}


async def test_who_leads_a_connection_to_another_hub_learns_how_much_mail_ended(town: Town) -> None:
    here, far = await linked(town)
    await until(lambda: any(known.row.handle == "bob" for known in here.side.bus.neighbours.everyone()))
    await far.stop()
    await until(lambda: _is_down(here, "garage"))
    waited = [await here.side.send("ann", "bob", str(n)) for n in range(2)]
    found = await here.connect("garage", target="ws://nowhere")
    assert (found.waiting, found.warning) == (2, None)  # it waits on, as nobody knows yet who is there
    await town.home("shed")
    found = await here.connect("garage", target="ws://shed")
    assert found.up
    assert found.warning == (
        "Another hub is there now; 2 messages for the one before have ended, and the senders see that as failed."
    )
    assert {await here.side.state(each) for each in waited} == {State.FAILED}
    assert (await here.condition("garage")).warning is None


async def _has_trouble(home: Home, name: str, words: str) -> bool:
    return words in ((await home.condition(name)).problem or "")


async def _has_none(home: Home) -> bool:
    return await home.keeper.conditions() == []


async def _is_down(home: Home, name: str) -> bool:
    return not await home.is_up(name)
