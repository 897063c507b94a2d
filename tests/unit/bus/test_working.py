"""Which agents can be woken, as far as is known: what a turn or a look has shown, of one way, and over a restart."""

import pytest

from angelia.bus.agents import put_agent
from angelia.bus.caller import ADMIN
from angelia.bus.ports import Tx
from angelia.bus.working import shown_by
from angelia.model.agent import Agent
from angelia.model.failure import Reason
from tests.fakes.small_hub import SmallHub

CAT, WC = b'{"kind":"command","argv":["/bin/cat"]}', b'{"kind":"command","argv":["/usr/bin/wc"]}'


async def adapted(hub: SmallHub, spec: bytes | None = CAT) -> Agent:
    return await put_agent(hub.bus, ADMIN, "ann", None, None, spec)


async def learn(hub: SmallHub, works: bool, spec: bytes = CAT) -> None:
    now = hub.clock.now()
    await hub.bus.store.write(lambda tx: hub.bus.working.learn(tx, "ann", spec, works=works, now=now))


async def test_one_works_until_something_shows_that_it_does_not(hub: SmallHub) -> None:
    ann = await adapted(hub)
    assert hub.bus.working.works(ann)
    await learn(hub, False)
    assert not hub.bus.working.works(ann)
    await learn(hub, True)
    assert hub.bus.working.works(ann)


async def test_without_an_adapter_none_works(hub: SmallHub) -> None:
    assert not hub.bus.working.works(await adapted(hub, None))


async def test_what_is_known_of_one_way_says_nothing_of_the_next(hub: SmallHub) -> None:
    await adapted(hub)
    await learn(hub, False)
    assert hub.bus.working.works(await adapted(hub, WC))
    assert not hub.bus.working.works(await adapted(hub, CAT))
    await learn(hub, True, WC)
    assert hub.bus.working.works(await adapted(hub, CAT))


async def test_it_is_known_after_a_restart(hub: SmallHub) -> None:
    ann = await adapted(hub)
    await learn(hub, False)
    await hub.restart()
    assert not hub.bus.working.works(ann)
    await learn(hub, True)
    await hub.restart()
    assert hub.bus.working.works(ann)


async def test_only_what_is_new_is_said_and_only_once_it_is_on_disk(hub: SmallHub) -> None:
    said: list[int] = []
    working = hub.bus.working
    working.on_change = lambda: said.append(working.changes)
    for works in (True, False, False, True, True):
        await learn(hub, works)
    assert said == [1, 2]

    def fails(tx: Tx) -> None:
        working.learn(tx, "ann", CAT, works=False, now=0)
        raise KeyError

    with pytest.raises(KeyError):
        await hub.bus.store.write(fails)
    assert (said, working.works(await adapted(hub))) == ([1, 2], True)


@pytest.mark.parametrize(
    ("outcome", "reason", "shows"),
    [
        ("answered", None, True), ("accepted", None, True), ("held", Reason.OUTCOME_UNKNOWN, None),
        ("given back", None, None), ("failed", Reason.MISSING_CONFIG, False), ("failed", Reason.RUNTIME_OFFLINE, False),
        ("failed", Reason.UNKNOWN, None), ("failed", Reason.TARGET_BUSY, None), ("failed", Reason.CANCELLED, None),
    ],
)  # fmt: skip
def test_what_a_turn_shows_of_it(outcome: str, reason: Reason | None, shows: bool | None) -> None:
    assert shown_by(outcome, reason) is shows
