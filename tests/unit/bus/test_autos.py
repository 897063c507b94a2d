"""Acks that ride along: what counts now, what is asked about again, what is dropped, and what is put back."""

from dataclasses import dataclass

from angelia.bus.autos import Autos
from angelia.bus.ports import Parcel
from tests.fakes.small_hub import SmallHub


@dataclass
class Holder:
    fate: bool | None
    asked: int = 0

    def settled(self, mark: int) -> bool | None:
        self.asked = mark
        return self.fate


async def parcels(hub: SmallHub, count: int) -> list[Parcel]:
    await hub.send_all(*["x"] * count)
    return await hub.take()


async def test_what_counts_is_taken_once_in_order(hub: SmallHub) -> None:
    autos, (one, two) = Autos(), await parcels(hub, 2)
    autos.add(one, Holder(True), 1)
    autos.add(two, Holder(True), 2)
    assert [entry[0] for entry in autos.take()] == [one, two]
    assert autos.take() == []
    assert not autos.waiting()


async def test_a_holder_is_asked_up_to_the_mark_of_its_bytes(hub: SmallHub) -> None:
    autos, (one,) = Autos(), await parcels(hub, 1)
    holder = Holder(True)
    autos.add(one, holder, 4711)
    autos.take()
    assert holder.asked == 4711


async def test_the_undecided_stay_and_the_broken_go(hub: SmallHub) -> None:
    autos, (one, two, three) = Autos(), await parcels(hub, 3)
    undecided = Holder(None)
    autos.add(one, undecided, 0)
    autos.add(two, Holder(False), 0)
    autos.add(three, Holder(True), 0)
    assert [entry[0] for entry in autos.take()] == [three]
    assert autos.waiting()
    undecided.fate = True
    assert [entry[0] for entry in autos.take()] == [one]


async def test_what_was_not_stored_is_put_back(hub: SmallHub) -> None:
    autos, (one,) = Autos(), await parcels(hub, 1)
    autos.add(one, Holder(True), 0)
    autos.put_back(autos.take())
    assert [entry[0] for entry in autos.take()] == [one]
