"""Which turns run, as units see it and undo it, and what ran lately."""

import pytest

from angelia.bus.ports import Tx
from angelia.bus.runs import LATELY, OWN_LANE, Run, wakes
from angelia.model.delivery import LANE_ORDER
from angelia.model.envelope import Intent
from tests.fakes.small_hub import SmallHub


async def _run(hub: SmallHub) -> Run:
    await hub.send()
    return Run("ann", "ann", await hub.take_one(), [], since=hub.clock.now())


async def test_a_unit_that_is_undone_began_and_ended_nothing(hub: SmallHub) -> None:
    run, runs = await _run(hub), hub.bus.runs

    def begins_and_fails(tx: Tx) -> None:
        runs.begin(tx, run)
        assert runs.busy == {"ann": run}
        raise KeyError

    with pytest.raises(KeyError):
        await hub.bus.store.write(begins_and_fails)
    assert runs.busy == {}
    await hub.bus.store.write(lambda tx: runs.begin(tx, run))

    def ends_and_fails(tx: Tx) -> None:
        runs.end(tx, run)
        assert runs.busy == {}
        raise KeyError

    with pytest.raises(KeyError):
        await hub.bus.store.write(ends_and_fails)
    assert runs.find(run.parcel.envelope.id) is run
    await hub.bus.store.write(lambda tx: runs.end(tx, run))
    assert runs.find(run.parcel.envelope.id) is None


async def test_what_ran_lately_is_bounded(hub: SmallHub) -> None:
    run = await _run(hub)
    for _ in range(LATELY + 5):
        hub.bus.runs.lately.append(run)
    assert len(hub.bus.runs.lately) == LATELY


async def test_a_turn_is_run_for_all_but_acks_and_what_one_sent_to_oneself(hub: SmallHub) -> None:
    (row,) = (await hub.send()).deliveries
    (own,) = (await hub.send("ann", "ann")).deliveries
    assert own.lane == OWN_LANE
    assert OWN_LANE not in LANE_ORDER.values()
    found = {intent: (wakes(row, intent), wakes(own, intent)) for intent in Intent}
    assert found == {Intent.REQUEST: (True, False), Intent.INFORM: (True, False), Intent.ACK: (False, False)}
