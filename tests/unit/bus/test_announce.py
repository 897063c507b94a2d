"""Who is told that an agent is connected, how, and how often."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from angelia.bus.announce import AT_ONCE, MOST_TOLD, connected
from angelia.bus.ports import Tx
from angelia.model.delivery import State
from angelia.model.envelope import Intent, Kind
from angelia.model.errors import BadRequest, DiskFull
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore

T = TypeVar("T")


class CountedStore(TroubledStore):
    """``looked_at``: notices that units have looked through; ``left``: how many messages each unit left."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at = 0
        self.left: list[int] = []

    def write(
        self, work: Callable[[Tx], T], *, weight: int = 0, lazy: bool = False, essential: bool = False
    ) -> asyncio.Future[T]:
        def unit(tx: Tx) -> T:
            counted = _Counted(tx)
            result = work(cast(Tx, counted))
            self.looked_at += counted.looked_at
            self.left.append(counted.left)
            return result

        return super().write(unit, weight=weight, lazy=lazy, essential=essential)


class _Counted:
    def __init__(self, tx: Tx) -> None:
        self._tx, self.looked_at, self.left = tx, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def inbox(self, *where: Any) -> Any:
        page = self._tx.inbox(*where)
        self.looked_at += len(page.parcels)
        return page

    def add(self, *what: Any) -> None:
        self.left += 1
        self._tx.add(*what)


async def know_each_other(hub: SmallHub, *names: str) -> None:
    """All of these have exchanged mail, once."""

    def unit(tx: Tx) -> None:
        for one in names:
            for other in names[: names.index(one)]:
                tx.add_contact(one, other, hub.clock.now())

    await hub.know(*names)
    await hub.bus.store.write(unit)


async def told(hub: SmallHub, name: str) -> list[str]:
    """The agents that the stored notices of a mailbox speak of."""
    await settle()
    found = [p.envelope for p in await hub.mailbox(name) if p.envelope.sender == "interop"]
    return [json.loads(e.body or b"")["agent"] for e in found]


async def met(hub: SmallHub, one: str, other: str) -> None:
    """These two have exchanged mail, and it is out of the way."""
    await hub.send(one, other)
    await hub.ack(await hub.take_one(other))


async def test_the_two_of_the_seed_tell_each_other(hub: SmallHub) -> None:
    await hub.listen("openclaw")
    assert await told(hub, "hermes") == ["openclaw"]
    await hub.listen("hermes")
    assert await told(hub, "hermes") == ["openclaw"]


async def test_on_a_live_stream_the_notice_is_not_stored(hub: SmallHub) -> None:
    hermes = await hub.listen("hermes")
    await hub.listen("openclaw")
    await settle()
    (notice,) = await hermes.transients()
    assert (notice.sender, notice.kind, notice.intent, notice.flat) == ("interop", Kind.NOTICE, Intent.ACK, True)
    assert json.loads(notice.body or b"") == {
        "type": "subscriber_connected",
        "text": "openclaw is connected: messages reach it in real time now",
        "agent": "openclaw",
    }
    assert await hub.mailbox("hermes", *State) == []


async def test_otherwise_it_is_one_row_that_is_counted_shown_and_never_answered(hub: SmallHub) -> None:
    await hub.listen("openclaw")
    await settle()
    assert hub.bus.store.load("hermes").queued == 1
    (parcel,) = await hub.take("hermes")
    envelope = parcel.envelope
    assert (envelope.sender, envelope.kind, envelope.intent, envelope.flat) == (
        "interop",
        Kind.NOTICE,
        Intent.ACK,
        True,
    )
    assert json.loads(envelope.body or b"")["type"] == "subscriber_connected"
    with pytest.raises(BadRequest):
        await hub.send("hermes", None, "hello", kind=Kind.REPLY, in_reply_to=envelope.id)


async def test_a_newer_one_replaces_it(hub: SmallHub) -> None:
    for _ in range(3):
        reader = await hub.listen("openclaw")
        await reader.close()
        await hub.clock.advance(31)
    assert await told(hub, "hermes") == ["openclaw"]
    assert len(await hub.mailbox("hermes", *State)) == 1


async def test_a_newer_one_replaces_it_after_a_restart_too(hub: SmallHub) -> None:
    reader = await hub.listen("openclaw")
    await settle()
    await reader.close()
    await hub.restart()
    await hub.listen("openclaw")
    assert await told(hub, "hermes") == ["openclaw"]
    assert len(await hub.mailbox("hermes", *State)) == 1


async def test_a_newer_one_replaces_it_after_one_that_could_not_be_stored(
    store: TroubledStore, troubled: SmallHub
) -> None:
    stream = (await troubled.listen("openclaw")).stream
    await settle()
    for fault in (DiskFull("no room"), None):
        troubled.bus.presence.left("openclaw", troubled.clock.monotonic())
        await troubled.clock.advance(31)
        store.fault = fault
        connected(troubled.bus, stream)
        await settle()
    assert await told(troubled, "hermes") == ["openclaw"]


async def test_however_many_come_back_an_unread_notice_is_looked_at_once() -> None:
    store = CountedStore()
    hub = await SmallHub.open(store=store)
    names = [f"agent-{n}" for n in range(30)]
    await know_each_other(hub, "boss", *names)
    for _ in range(3):
        readers = [await hub.listen(name) for name in names]
        await settle()
        for reader in readers:
            await reader.close()
        await hub.clock.advance(31)
    assert sorted(await told(hub, "boss")) == sorted(names)
    assert store.looked_at <= len(names) * len(names)


async def test_one_unit_tells_few_and_all_are_told() -> None:
    store = CountedStore()
    hub = await SmallHub.open(store=store)
    names = [f"agent-{n}" for n in range(MOST_TOLD)]
    await know_each_other(hub, "ann", *names)
    store.left.clear()
    await hub.listen("ann")
    for name in names:
        assert await told(hub, name) == ["ann"]
    assert max(store.left) == AT_ONCE


async def test_of_many_that_come_at_once_one_unit_waits(store: TroubledStore, troubled: SmallHub) -> None:
    names = [f"agent-{n}" for n in range(20)]
    await know_each_other(troubled, "boss", *names)
    streams = [(await troubled.listen(name)).stream for name in names]
    await settle()
    for name in names:
        troubled.bus.presence.left(name, troubled.clock.monotonic() - 100)
    store.late = True
    before = store.commits
    for stream in streams:
        connected(troubled.bus, stream)
    await settle()
    assert store.commits == before + 1
    await store.let_go()
    while troubled.bus.presence.news:
        await settle()
    assert sorted(await told(troubled, "boss")) == sorted(names)


async def test_it_replaces_nothing_else(hub: SmallHub) -> None:
    await met(hub, "bob", "hermes")
    await hub.listen("bob")
    await hub.listen("openclaw")
    assert sorted(await told(hub, "hermes")) == ["bob", "openclaw"]


async def test_one_that_is_in_somebodys_hands_is_left_alone(hub: SmallHub) -> None:
    reader = await hub.listen("openclaw")
    await settle()
    held = await hub.take_one("hermes")
    await reader.close()
    await hub.clock.advance(31)
    await hub.listen("openclaw")
    await settle()
    assert (await hub.ack(held)).state is State.DELIVERED
    assert await told(hub, "hermes") == ["openclaw"]


async def test_one_that_was_handed_over_and_came_back_is_left_alone_too(hub: SmallHub) -> None:
    reader = await hub.listen("openclaw")
    await settle()
    await hub.nack(await hub.take_one("hermes"), 0)
    await reader.close()
    await hub.clock.advance(31)
    await hub.listen("openclaw")
    assert await told(hub, "hermes") == ["openclaw", "openclaw"]


async def test_it_expires_after_an_hour_and_nobody_is_told_of_that(hub: SmallHub) -> None:
    await hub.listen("openclaw")
    await settle()
    await hub.pass_time(3599)
    assert hub.bus.store.load("hermes").queued == 1
    await hub.pass_time(2)
    assert hub.bus.store.load("hermes").queued == 0
    assert await hub.notices("openclaw") == []


async def test_those_who_have_exchanged_mail_are_told_whoever_wrote(hub: SmallHub) -> None:
    await met(hub, "bob", "ann")
    await hub.listen("ann")
    assert await told(hub, "bob") == ["ann"]
    await hub.listen("bob")
    assert await told(hub, "ann") == []  # ann is connected, and was told there
    assert await told(hub, "cat") == []


async def test_strangers_and_mail_to_everyone_make_no_contacts(hub: SmallHub) -> None:
    await hub.send("ann", "*")
    await hub.listen("ann")
    assert await told(hub, "hermes") == []
    await hub.listen("hermes")
    assert await told(hub, "ann") == []
    assert await told(hub, "openclaw") == ["hermes"]


async def test_a_person_is_told_nothing(hub: SmallHub) -> None:
    await hub.send("ann", "human")
    await hub.listen("ann")
    assert await told(hub, "human") == []


async def test_contacts_survive_a_restart(hub: SmallHub) -> None:
    await met(hub, "bob", "ann")
    await hub.restart()
    await hub.listen("ann")
    assert await told(hub, "bob") == ["ann"]


async def test_a_contact_that_was_not_stored_is_stored_by_the_next_message(
    store: TroubledStore, troubled: SmallHub
) -> None:
    store.fault = DiskFull("no room")
    with pytest.raises(DiskFull):
        await troubled.send("bob", "ann")
    await met(troubled, "bob", "ann")
    await troubled.listen("ann")
    assert await told(troubled, "bob") == ["ann"]


@pytest.mark.parametrize(("gap", "news"), [(29.9, False), (30, True)])
async def test_a_short_break_is_a_reconnect_and_no_news(hub: SmallHub, gap: float, news: bool) -> None:
    hermes = await hub.listen("hermes")
    first = await hub.listen("openclaw")
    await settle()
    await hermes.items()
    await first.close()
    await hub.clock.advance(gap)
    await hub.listen("openclaw")
    await settle()
    assert bool(await hermes.transients()) is news


async def test_a_take_over_is_no_news(hub: SmallHub) -> None:
    hermes = await hub.listen("hermes")
    first = await hub.listen("openclaw")
    await settle()
    assert len(await hermes.transients()) == 1
    second = await hub.listen("openclaw")
    await first.close()
    await hub.clock.advance(120)
    await hub.listen("openclaw")
    await second.close()
    await settle()
    assert await hermes.transients() == []


async def test_observers_are_no_news(hub: SmallHub) -> None:
    await hub.observe("openclaw")
    assert await told(hub, "hermes") == []


async def test_thousands_that_come_and_go_cause_nothing(store: TroubledStore, troubled: SmallHub) -> None:
    before = store.commits
    for n in range(200):
        await (await troubled.listen(f"stranger-{n}")).close()
    units = store.commits - before
    assert units <= 3 * 200  # attach, look for whom to tell, detach
    for name in ("ann", "bob", "hermes", "openclaw"):
        assert await troubled.mailbox(name) == []


async def test_presence_that_finds_no_room_is_not_tried_again(store: TroubledStore, troubled: SmallHub) -> None:
    await troubled.listen("openclaw")
    reminders = len(troubled.bus.timers)
    store.refusal = DiskFull("no room")
    await settle()
    store.refusal = None
    assert len(troubled.bus.timers) == reminders


async def test_presence_is_told_to_no_name_that_was_forgotten(hub: SmallHub) -> None:
    await met(hub, "bob", "ann")
    await hub.bus.store.write(lambda tx: _forget(hub, tx, "bob"))
    await hub.listen("ann")
    assert await told(hub, "bob") == []


def _forget(hub: SmallHub, tx: Tx, name: str) -> None:
    hub.bus.directory.remove(tx, name)
