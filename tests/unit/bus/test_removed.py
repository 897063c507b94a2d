"""Which hubs the owner of this hub has removed: for how long that holds, and what their names stand for."""

import pytest

from angelia.bus.neighbours import Neighbours
from angelia.bus.ports import Tx
from angelia.bus.removed import MOST_REMOVED, Removed
from angelia.model.errors import DiskFull
from tests.fakes.clock import FakeClock
from tests.fakes.troubled_store import TroubledStore
from tests.fakes.two_hubs import LinkedHub

RACK, BOX, FAR, FARTHER = "a" * 32, "b" * 32, "c" * 32, "d" * 32


@pytest.fixture
async def hub() -> LinkedHub:
    """A laptop that is linked to a rack and a box."""
    found = await LinkedHub.start("lap", 1, FakeClock())
    await found.connect("rack", RACK)
    await found.connect("box", BOX)
    return found


def names(hub: LinkedHub) -> Neighbours:
    return hub.bus.neighbours


async def remove(hub: LinkedHub, name: str, *, by_owner: bool = True) -> None:
    gone = names(hub).require(name)
    await hub.bus.store.write(lambda tx: names(hub).remove(tx, gone, hub.clock.now(), by_owner=by_owner))


async def test_what_its_owner_removed_is_remembered_by_id_and_name_until_it_is_made_again(hub: LinkedHub) -> None:
    await remove(hub, "rack")
    await remove(hub, "box", by_owner=False)
    for _ in range(2):
        assert names(hub).removed.of(RACK) == names(hub).removed_as("Rack") == Removed(RACK, "rack")
        assert names(hub).removed.of(BOX) is names(hub).removed_as("box") is None
        await hub.reopen()
    await hub.connect("shed", None, target="ws://rack")  # where that leads is not known yet
    assert names(hub).removed.of(RACK) is not None
    await hub.connect("shed", RACK, target="ws://rack")
    for _ in range(2):
        assert names(hub).removed.of(RACK) is None
        await hub.reopen()


async def test_a_hub_with_another_connection_is_not_removed_with_one_of_them(hub: LinkedHub) -> None:
    await hub.connect("shed", RACK)
    await remove(hub, "rack")
    assert names(hub).removed.of(RACK) is None
    await remove(hub, "shed")
    assert names(hub).removed.of(RACK) is not None


async def test_the_name_of_a_removed_hub_means_the_last_one_and_nobody_takes_it_by_itself(hub: LinkedHub) -> None:
    await remove(hub, "rack")
    await hub.connect("rack", FAR)
    await remove(hub, "rack")
    assert names(hub).removed_as("rack") == Removed(FAR, "rack")  # the last that was called so
    await hub.learn("box", [{"handle": "zed", "hub": FARTHER, "name": "rack", "way": [FARTHER, BOX]}])
    assert names(hub).removed_as("rack") == Removed(FAR, "rack")
    assert names(hub).name_of("box", FARTHER) == "rack-box"
    assert names(hub).removed.of(RACK) is not None


async def test_a_removal_that_was_not_stored_was_none() -> None:
    store = TroubledStore()
    hub = await LinkedHub.start("lap", 1, FakeClock(), store=store)
    await hub.connect("rack", RACK)
    for store.refusal, store.fault in ((DiskFull("full"), None), (None, ZeroDivisionError())):
        with pytest.raises((DiskFull, ZeroDivisionError)):
            await remove(hub, "rack")
        assert names(hub).removed.of(RACK) is None
        assert names(hub).require("rack").hub == RACK


async def test_only_the_last_removed_hubs_are_remembered() -> None:
    hub = await LinkedHub.start("lap", 1, FakeClock())

    def unit(tx: Tx) -> None:
        for number in range(MOST_REMOVED + 3):
            names(hub).removed.add(tx, f"{number:032x}", f"n{number}", hub.clock.now())
        names(hub).removed.add(tx, f"{7:032x}", "again", hub.clock.now())

    await hub.bus.store.write(unit)
    await hub.reopen()
    kept = [n for n in range(MOST_REMOVED + 3) if names(hub).removed.of(f"{n:032x}") is not None]
    assert kept == list(range(3, MOST_REMOVED + 3))
    assert names(hub).removed.of(f"{7:032x}") == Removed(f"{7:032x}", "again")
