"""Who is told that an agent is connected, how, and how often."""

import json

import pytest

from angelia.bus.ports import Tx
from angelia.model.delivery import State
from angelia.model.envelope import Intent, Kind
from angelia.model.errors import BadRequest, DiskFull
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore


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
