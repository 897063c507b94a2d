"""Back to whoever sent it: by the hub that it came from, whatever that is called here by now."""

import pytest

from angelia.bus.way_back import address_back, home_of, way_back
from angelia.model.address import Address
from angelia.model.envelope import Origin
from angelia.model.errors import RuntimeOffline
from tests.fakes.clock import FakeClock
from tests.fakes.two_hubs import LinkedHub

RACK, OTHER, FAR = "b" * 32, "c" * 32, "d" * 32


@pytest.fixture
async def hub() -> LinkedHub:
    hub = await LinkedHub.start("lap", 1, FakeClock())
    await hub.connect("rack", RACK)
    return hub


def asked_at(hub: str, sender: str = "eve") -> str | None:
    return home_of(Origin(hub, sender, "ann", "request", "message", None))


async def remove(hub: LinkedHub, name: str) -> None:
    neighbours = hub.bus.neighbours
    await hub.bus.store.write(lambda tx: neighbours.remove(tx, neighbours.require(name), hub.bus.clock.now()))


async def test_one_here_is_reached_here(hub: LinkedHub) -> None:
    assert address_back(hub.bus, "ann") == Address("ann")
    assert way_back(hub.bus, "ann", None) is None
    assert home_of(None) is None


async def test_it_goes_the_way_that_it_came(hub: LinkedHub) -> None:
    assert address_back(hub.bus, "eve@rack", asked_at(RACK)) == Address("eve", "rack", carrier="rack")


async def test_whoever_was_met_behind_a_link_is_reached_by_it_in_any_case(hub: LinkedHub) -> None:
    neighbours = hub.bus.neighbours
    rack = neighbours.require("rack")
    await hub.bus.store.write(lambda tx: neighbours.meet(tx, rack, FAR, "attic", hub.bus.clock.now()))
    assert way_back(hub.bus, "Zed@ATTIC", asked_at(FAR)) == Address("Zed", "attic", carrier="rack")
    for nobody in ("ann", "ann@nowhere", "ann@local", "ann@lap"):
        assert way_back(hub.bus, nobody, None) is None


async def test_it_waits_where_no_link_leads_there(hub: LinkedHub) -> None:
    await remove(hub, "rack")
    assert address_back(hub.bus, "eve@rack", asked_at(RACK)) == Address("eve", "rack", carrier="rack")
    assert way_back(hub.bus, "eve@rack", asked_at(RACK)) is None


async def test_it_follows_its_hub_to_another_name(hub: LinkedHub) -> None:
    await remove(hub, "rack")
    await hub.connect("shed", RACK)
    await hub.connect("rack", OTHER)
    assert address_back(hub.bus, "eve@rack", asked_at(RACK)) == Address("eve", "shed", carrier="shed")


async def test_it_goes_to_no_other_that_has_the_name_now(hub: LinkedHub) -> None:
    await remove(hub, "rack")
    await hub.connect("rack", OTHER)
    with pytest.raises(RuntimeOffline, match="Nothing was stored"):
        address_back(hub.bus, "eve@rack", asked_at(RACK))
    assert way_back(hub.bus, "eve@rack", asked_at(RACK)) is None


async def test_what_came_from_a_place_behind_a_hub_is_known_by_both(hub: LinkedHub) -> None:
    assert asked_at(RACK, "ops@vps") not in (None, RACK, asked_at(FAR, "ops@vps"))
