"""A glance says what is wrong, the worst first, costs little, and waits for no store that is sick."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from angelia.bus import glance as module
from angelia.bus.glance import Disk, Glance, glance
from angelia.bus.ports import View
from angelia.model.connection import Condition, Connection, Speaks
from angelia.model.delivery import Hand, State
from angelia.model.limits import MIB, Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore

T = TypeVar("T")
ROOMY = Disk(1 << 40)


async def look(hub: SmallHub, failing: str | None = None, disk: Disk | None = ROOMY) -> Glance:
    return await glance(hub.bus, failing, disk)


async def dead_letter(hub: SmallHub) -> None:
    """Send one, and let it come back until it is dead."""
    sent = await hub.send()
    while await hub.state(sent) is State.QUEUED:
        await hub.nack(await hub.take_one(), 0)
        await hub.pass_time(0)


async def test_of_a_hub_that_is_well_nothing_is_said(hub: SmallHub) -> None:
    await hub.send()
    assert await look(hub) == Glance(waiting_since={"ann": hub.clock.now()})


async def test_dead_letters_and_held_mail_are_counted(hub: SmallHub) -> None:
    deep = Limits(chain_depth=1)
    hub = await SmallHub.open(deep)
    await dead_letter(hub)
    one = await hub.send()
    two = await hub.send("ann", "bob", "2", thread=one.envelope.id)
    await hub.send("bob", "ann", "3", in_reply_to=two.envelope.id)
    found = await look(hub)
    assert (found.dead, found.held) == (1, 1)
    assert found.problems == [
        "1 dead letter: angelia dead lists them",
        "1 held message: a person has to release them: angelia dead",
    ]


async def test_mail_that_nobody_reads_is_a_problem_after_a_while(hub: SmallHub) -> None:
    await hub.send_all("one", "two")
    await hub.clock.advance(module.UNREAD_SECONDS - 1)
    assert (await look(hub)).problems == []
    await hub.clock.advance(2 * 3600)
    assert (await look(hub)).problems == ["nobody reads ann: 2 wait, the next one for 2 h"]


async def test_what_waits_for_nobody_but_its_own_sender_is_said_to_be_so(hub: SmallHub) -> None:
    await hub.send_all("one", "two", sender="ann")
    await hub.clock.advance(2 * 3600)
    told = "nobody reads ann: 2 wait that it sent to itself, which wakes nobody, the next one for 2 h"
    assert (await look(hub)).problems == [told]
    await hub.send()
    await hub.clock.advance(3600)
    assert (await look(hub)).problems == ["nobody reads ann: 3 wait, the next one for 1 h"]


async def test_mail_that_somebody_reads_is_none_however_old(hub: SmallHub) -> None:
    reader = (await hub.listen(hand=Hand.MANUAL)).jam()
    await hub.send_all(*map(str, range(40)))  # more than it may hold
    await hub.clock.advance(3600)
    assert (await look(hub)).problems == []
    await reader.close()
    assert "nobody reads ann" in (await look(hub)).problems[0]


async def test_who_waits_in_a_claim_reads(hub: SmallHub) -> None:
    await hub.listen()
    async with asyncio.TaskGroup() as tasks:
        claims = [tasks.create_task(hub.take("bob", wait_seconds=30)) for _ in range(2)]
        await settle()
        assert (await look(hub)).problems == []  # several claims share the work
        claims.append(tasks.create_task(hub.take("ann", wait_seconds=30)))
        await settle()
        assert (await look(hub)).problems == ["ann is read by 2 at once"]
        await hub.clock.advance(31)


async def test_two_streams_of_one_name_are_told(hub: SmallHub) -> None:
    await hub.listen()
    await hub.observe()
    assert (await look(hub)).problems == ["ann is read by 2 at once"]


async def test_two_readers_that_throw_each_other_out_are_told(hub: SmallHub) -> None:
    await hub.listen()
    for _ in range(module.FIGHT - 1):
        await hub.clock.advance(5)
        await hub.listen()
    assert "throw" not in str((await look(hub)).problems)  # somebody came back, twice
    await hub.listen()
    assert (await look(hub)).problems == ["the readers of ann throw each other out: 3 times in the last minute"]
    await hub.clock.advance(61)
    assert "throw" not in str((await look(hub)).problems)


async def test_a_mailbox_that_is_nearly_full_by_number_or_by_weight() -> None:
    hub = await SmallHub.open(Limits(mailbox_deliveries=10, mailbox_bytes=10 * MIB))
    await hub.send_all(*"1234567")
    assert (await look(hub)).problems == []
    await hub.send(text="8")
    for _ in range(8):
        await hub.send(to="cat", text="x" * MIB)
    await hub.take("cat", 8)  # what is in somebody's hands is in the mailbox still
    assert (await look(hub)).problems == [
        "the mailbox of ann is nearly full: 8 of 10 messages",
        "the mailbox of cat is nearly full: 8 of 10 messages",
    ]


async def test_a_disk_that_is_full_or_nearly() -> None:
    hub = await SmallHub.open()
    assert (await look(hub, disk=Disk(300 * MIB))).problems == ["the disk is nearly full: 300 MiB are free"]
    assert (await look(hub, disk=Disk(0, refusing=True))).problems[0].startswith("the disk is full: new messages are")
    assert (await look(hub, disk=None)).problems == []


def link(hub: SmallHub, name: str, *, up: bool = False, target: str = "wss://mac", **more: Any) -> Condition:
    since = hub.clock.now() - 3 * 3600 * 1000
    return Condition(connection=Connection(name=name, target=target), speaks=Speaks.HUB, up=up, since=since, **more)


async def test_a_connection_that_is_down_is_told_with_what_waits_for_it_and_since_when(hub: SmallHub) -> None:
    now = hub.clock.now()
    links = [
        link(hub, "cloud", kind="wrong_version"),
        link(hub, "mac", kind="unreachable", waiting=12, oldest_at=now - 26 * 3600 * 1000),
        link(hub, "box", up=True, waiting=3, oldest_at=now),
        link(hub, "desk", up=True, warning="another relay\x1b[2J is at work there"),
    ]
    assert (await glance(hub.bus, None, ROOMY, links)).problems == [
        "mac has been down for 3 h (unreachable): 12 wait, the oldest for 26 h",
        "cloud has been down for 3 h (wrong version)",
        "desk is up, with a warning: angelia connections shows it",
    ]


async def test_one_that_only_the_other_side_dials_may_be_away_unless_mail_waits_for_it(hub: SmallHub) -> None:
    assert (await glance(hub.bus, None, ROOMY, [link(hub, "laptop", target="")])).problems == []
    waits = link(hub, "laptop", target="", waiting=1, oldest_at=hub.clock.now() - 5000)
    assert (await glance(hub.bus, None, ROOMY, [waits])).problems == [
        "laptop has been down for 3 h: 1 wait, the oldest for 5 s"
    ]


async def test_the_worst_comes_first(hub: SmallHub) -> None:
    await dead_letter(hub)
    await hub.send()
    await hub.clock.advance(3600)
    await hub.listen("bob")
    await hub.observe("bob")
    told = (await look(hub, None, Disk(0))).problems
    assert [problem[:10] for problem in told] == ["the disk i", "1 dead let", "nobody rea", "bob is rea"]
    told = (await look(hub, "writing fails", Disk(0))).problems
    assert [problem[:10] for problem in told] == ["writing fa", "the disk i", "bob is rea"]


async def test_a_look_costs_little_whatever_there_is() -> None:
    names = [f"agent-{number}" for number in range(module.LOOKED_AT + module.NAMED + 5)]
    hub = await SmallHub.open(known=names)
    for name in names:
        await hub.send(sender="boss", to=name)
    await hub.clock.advance(3600)
    found = await look(hub)
    assert len(found.waiting_since) == module.LOOKED_AT
    assert len(found.problems) == module.NAMED + 1
    assert found.problems[-1] == f"and {module.LOOKED_AT - module.NAMED} more of this kind"


async def test_of_a_store_that_fails_only_that_is_said(troubled: SmallHub) -> None:
    await troubled.send()
    found = await look(troubled, "reading fails")
    assert found == Glance(problems=["reading fails"])


class Stuck(TroubledStore):
    """Reads never end."""

    def read(self, work: Callable[[View], T]) -> "asyncio.Future[T]":
        if self.late:
            return asyncio.get_running_loop().create_future()
        return super().read(work)


async def test_a_store_that_hangs_is_not_waited_for_long() -> None:
    store = Stuck()
    hub = await SmallHub.open(store=store)
    await hub.send()
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(look(hub))
        await hub.clock.advance(module.PATIENCE_SECONDS + 0.1)
    assert looking.result() == Glance()
