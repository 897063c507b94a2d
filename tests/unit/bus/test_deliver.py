"""Hermes' deliver over the bus: one outcome for a call, the same one for the same id, and nothing left behind."""

import asyncio
from typing import Any

import pytest

from angelia.bus import turns
from angelia.bus.ask import finished
from angelia.bus.deliver import NOBODY, Fate, Incoming, agent_of, attributed, deliver
from angelia.bus.draft import Draft
from angelia.bus.forward import drain
from angelia.bus.ports import Tx
from angelia.bus.publish import publish
from angelia.bus.remotes import ANONYMOUS
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Kind
from angelia.model.errors import IdReused, MailboxFull, Stopping, UnknownAgent
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub, texts

ID = "0123456789abcdef" * 2
LOCK_WAIT, DEADLINE = 120, 1500


def mail(text: str = "green?", **more: Any) -> Incoming:
    return Incoming(**{"agent": "ann", "sender": "hermes@desktop", "text": text, **more})


class Calls:
    """Deliver calls that run beside the test."""

    def __init__(self, hub: SmallHub, tasks: asyncio.TaskGroup) -> None:
        self.hub, self.tasks = hub, tasks

    async def begin(self, **more: Any) -> "asyncio.Task[Fate]":
        task = self.tasks.create_task(deliver(self.hub.bus, mail(**more)))
        await settle()
        return task


async def run_turn(hub: SmallHub, text: str | None = None, reason: Reason = Reason.UNKNOWN) -> None:
    run = await turns.begin(hub.bus, "ann", "command")
    assert run is not None
    if text is None:
        await turns.failed(hub.bus, run, reason, "It broke.")
    else:
        await turns.answered(hub.bus, run, text)
    await settle()


# ------------------------------------------------------------------------------------------------------------- outcomes


async def test_the_answer_of_the_turn_is_the_answer_of_the_call(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = await Calls(hub, tasks).begin()
        await run_turn(hub, "since 04:10")
    fate = call.result()
    assert (fate.text, fate.reason) == ("since 04:10", None)
    assert fate.answer is not None
    finished(hub.bus, fate.answer, written=True)
    await hub.commit()
    assert [parcel.delivery.state for parcel in await hub.mailbox("hermes@desktop", *State)] == [State.DELIVERED]
    assert hub.bus.directory.find("hermes@desktop") is None


@pytest.mark.parametrize("reason", [Reason.PROVIDER_RATE_LIMIT, Reason.DELIVERY_TIMEOUT, Reason.TARGET_BUSY])
async def test_a_turn_that_fails_says_why(hub: SmallHub, reason: Reason) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = await Calls(hub, tasks).begin()
        await run_turn(hub, reason=reason)
    assert call.result().reason is reason
    assert "It broke." in call.result().text


async def test_neither_answer_nor_notice_of_it_is_ever_fetched_as_mail(hub: SmallHub) -> None:
    """#95074: one request, two reply paths, contradictory answers."""

    def unit(tx: Tx) -> None:
        there = [{"profile": "default", "connection_id": "local"}]
        hub.bus.remotes.push(tx, hub.bus.limits, ANONYMOUS, there, hub.clock.now())

    await hub.bus.store.write(unit)
    for id, text in ((ID, "late"), ("f" * 32, None)):
        async with asyncio.TaskGroup() as tasks:
            call = await Calls(hub, tasks).begin(id=id)
            call.cancel()
        await settle()
        await run_turn(hub, text)
    assert len(await hub.mailbox("hermes@desktop")) == 2
    assert (await drain(hub.bus, ANONYMOUS)).envelopes == []
    await hub.send("ann", "hermes@desktop", "a message of its own")
    assert len((await drain(hub.bus, ANONYMOUS)).envelopes) == 1


# ---------------------------------------------------------------------------------------------------------- the same id


async def test_the_same_id_again_brings_the_same_outcome_and_no_second_turn(hub: SmallHub) -> None:
    for id, text in ((ID, "done"), ("e" * 32, None)):
        async with asyncio.TaskGroup() as tasks:
            calls = [await Calls(hub, tasks).begin(id=id) for _ in range(3)]
            await run_turn(hub, text, Reason.PROVIDER_QUOTA_LIMIT)
        again = await deliver(hub.bus, mail(id=id))
        assert {call.result().reason for call in calls} == {again.reason}
        assert again.reason is (None if text else Reason.PROVIDER_QUOTA_LIMIT)
        if text:
            assert {again.text, *(call.result().text for call in calls)} == {"done"}
        assert await turns.begin(hub.bus, "ann", "command") is None
        assert len(await hub.rows(id)) == 1


async def test_whoever_goes_away_loses_nothing_under_its_id(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = await Calls(hub, tasks).begin(id=ID)
        call.cancel()
    await settle()
    await hub.restart()
    await run_turn(hub, "done")
    await hub.restart()
    assert (await deliver(hub.bus, mail(id=ID))).text == "done"


async def test_an_answer_that_was_not_written_is_there_for_the_next_call(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = await Calls(hub, tasks).begin(id=ID)
        await run_turn(hub, "done")
    answer = call.result().answer
    assert answer is not None
    finished(hub.bus, answer, written=False)
    await settle()
    assert (await deliver(hub.bus, mail(id=ID))).text == "done"


async def test_the_same_id_is_a_repeat_though_its_senders_connection_has_another_name_by_now(hub: SmallHub) -> None:
    """#115161: a second desktop that uses the same id for a connection changes what that is called here."""
    async with asyncio.TaskGroup() as tasks:
        names = ("hermes@vps-1", "hermes@mac-vps-1")
        calls = [await Calls(hub, tasks).begin(id=ID, sender=sender) for sender in names]
        await run_turn(hub, "done")
    assert [call.result().text for call in calls] == ["done", "done"]
    assert (await deliver(hub.bus, mail(id=ID))).text == "done"
    with pytest.raises(IdReused):
        await deliver(hub.bus, mail(id=ID, sender="bob", verified=True))


async def test_another_text_under_the_same_id_is_refused(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = await Calls(hub, tasks).begin(id=ID)
        with pytest.raises(IdReused):
            await deliver(hub.bus, mail("another", id=ID))
        call.cancel()
    assert len(await hub.mailbox()) == 1


# ----------------------------------------------------------------------------------------------------- busy, and no id


async def test_without_an_id_what_has_not_begun_in_time_is_withdrawn(hub: SmallHub) -> None:
    """lock_wait; relay_deliver_returns_target_busy_error: nothing is left behind."""
    await hub.send("bob", "ann", "first")
    run = await turns.begin(hub.bus, "ann", "command")
    assert run is not None
    async with asyncio.TaskGroup() as tasks:
        call = await Calls(hub, tasks).begin()
        await hub.pass_time(LOCK_WAIT - 1)
        assert not call.done()
        assert texts(await hub.mailbox()) == ["first", "green?"]
        await hub.pass_time(1)
        assert call.done()
    assert call.result().reason is Reason.TARGET_BUSY
    assert call.result().text.startswith("target_busy")
    assert texts(await hub.mailbox("ann", *State)) == ["first"]
    assert await hub.notices("hermes@desktop") == []
    await turns.answered(hub.bus, run, "done")
    assert await turns.begin(hub.bus, "ann", "command") is None


async def test_with_an_id_it_stays_queued(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = await Calls(hub, tasks).begin(id=ID)
        await hub.pass_time(DEADLINE - 1)
        assert not call.done()
        await hub.pass_time(1)
        assert call.done()
    assert call.result().reason is Reason.DELIVERY_TIMEOUT
    assert texts(await hub.mailbox()) == ["green?"]


async def test_a_turn_that_has_begun_is_waited_for_to_its_end(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = await Calls(hub, tasks).begin()
        await hub.pass_time(LOCK_WAIT - 1)
        run = await turns.begin(hub.bus, "ann", "command")
        assert run is not None
        await hub.pass_time(1200)
        assert not call.done()
        await turns.answered(hub.bus, run, "at last")
    assert call.result().text == "at last"


async def test_once_its_time_is_over_nobody_is_handed_it_again(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    async with asyncio.TaskGroup() as tasks:
        call = await Calls(hub, tasks).begin()
        (held,) = await reader.mail()
        await hub.pass_time(DEADLINE - 1)
        assert not call.done()
        await hub.pass_time(1)
        assert call.done()
    assert call.result().reason is Reason.DELIVERY_TIMEOUT
    assert (await hub.row(held.parcel)).state is State.FAILED
    assert reader.stream.room() == hub.bus.limits.manual_window_deliveries
    await reader.close()
    assert await hub.mailbox() == []


async def test_a_caller_that_goes_away_takes_what_has_not_begun_with_it_and_nothing_else(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        calls = Calls(hub, tasks)
        running = await calls.begin(text="running")
        run = await turns.begin(hub.bus, "ann", "command")
        assert run is not None
        waiting = await calls.begin(text="waiting")
        running.cancel()
        waiting.cancel()
    await settle()
    assert [p.envelope.text for p in await hub.mailbox("ann", *State)] == ["running"]
    await turns.answered(hub.bus, run, "done")
    assert (await hub.row(run.parcel)).state is State.ANSWERED


async def test_what_a_hub_that_died_leaves_of_it_is_over_with_the_call(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = await Calls(hub, tasks).begin()
        (parcel,) = await hub.mailbox()
        assert parcel.delivery.expires_at - parcel.delivery.accepted_at == DEADLINE * 1000
        call.cancel()


async def test_what_is_refused_leaves_nothing_and_says_so() -> None:
    hub = await SmallHub.open(Limits(mailbox_deliveries=1))
    await hub.send("bob", "ann")
    with pytest.raises(MailboxFull):
        await deliver(hub.bus, mail())
    hub.bus.stopping = True
    with pytest.raises(Stopping):
        await deliver(hub.bus, mail())
    assert len(await hub.mailbox("ann", *State)) == 1


async def test_one_agents_calls_do_not_hold_up_anothers(hub: SmallHub) -> None:
    """different_profiles_do_not_contend."""
    async with asyncio.TaskGroup() as tasks:
        calls = Calls(hub, tasks)
        blocked = [await calls.begin(text=f"{n}", id=f"{n:032x}") for n in range(20)]
        other = tasks.create_task(deliver(hub.bus, mail(agent="cat")))
        await settle()
        (parcel,) = await hub.take("cat")
        reply = Draft(sender="cat", text="mine", in_reply_to=parcel.envelope.id, kind=Kind.REPLY)
        await publish(hub.bus, reply)
        await settle()
        assert other.result().text == "mine"
        assert not any(call.done() for call in blocked)
        for call in blocked:
            call.cancel()


# ------------------------------------------------------------------------------------------------------- who is meant


async def test_hermes_and_default_are_one_agent_and_an_unknown_one_names_itself(hub: SmallHub) -> None:
    assert {agent_of(hub.bus, name) for name in ("default", "hermes", "HERMES", "Hermes")} == {"hermes"}
    assert agent_of(hub.bus, "ann") == "ann"
    for unknown in ("nobody", "human", "all", "../x", "Default "):
        with pytest.raises(UnknownAgent) as refused:
            agent_of(hub.bus, unknown)
        assert unknown in refused.value.detail


HEADER = "Message from 🤖 Maia (@hermes): "
DESK = "Message from 🤖 Maia (@hermes@vps-1): "


@pytest.mark.parametrize(
    ("message", "profile", "handle", "connection", "sender", "text"),
    [
        (HEADER + "hi", "default", "hermes", "local", "hermes@desktop", "hi"),
        (HEADER + "hi", "default", "Hermes", "vps-1", "Hermes@vps-1", "hi"),
        (HEADER + "hi", "default", None, "vps-1", "hermes@vps-1", "hi"),
        (HEADER + "hi", None, None, None, "hermes@desktop", "hi"),
        (DESK + "hi", None, None, None, "hermes@vps-1", "hi"),
        (DESK + "hi", "ops", "ops", "vps-2", "ops@vps-2", DESK + "hi"),
        ("hi", "ops", "", "vps-1", "ops@vps-1", "hi"),
        ("hi", None, None, None, f"{NOBODY}@desktop", "hi"),
        ("hi", "a b", "../x", "x\n", f"{NOBODY}@desktop", "hi"),
        ("hi", 7, ["x"], {"y": 1}, f"{NOBODY}@desktop", "hi"),
        (HEADER + "  ", "default", "hermes", "local", "hermes@desktop", HEADER + "  "),
    ],
)
async def test_the_sender_is_what_the_relay_says_and_never_one_of_ours(
    hub: SmallHub, message: str, profile: object, handle: object, connection: object, sender: str, text: str
) -> None:
    """#103731: ``@hermes`` of another machine is not the one here. deliver_accepts_a_sender_from_an_admitted…"""
    remotes, limits = hub.bus.remotes, hub.bus.limits
    found = attributed(remotes, limits, hub.clock.now(), ANONYMOUS, message, profile, handle, connection)
    assert found == (sender, text)


MAIA = {"profile": "default", "connection_id": "local", "title": "Maia"}
ADA = {"profile": "default", "connection_id": "vps-2", "title": "Ada"}
TITLED = {**MAIA, "connection_id": "vps-3", "handle": "maia"}
OPS = {"profile": "ops", "connection_id": "vps-1"}


@pytest.mark.parametrize(
    ("rows", "name", "handle", "connection", "sender"),
    [
        ([OPS, MAIA], "ops", "ops", None, "ops@vps-1"),  # the first release does not say where
        ([OPS, {**OPS, "connection_id": "vps-9"}], "ops", "ops", None, "ops@desktop-unknown"),
        ([OPS, {**OPS, "connection_id": "vps-9"}], "ops", "ops", "vps-9", "ops@vps-9"),
        ([MAIA, ADA], "Ada", "hermes", None, "hermes@vps-2"),
        ([MAIA, ADA], "hermes", "hermes", None, "hermes@desktop-unknown"),
        ([TITLED, ADA], "hermes", "hermes", "vps-3", "maia@vps-3"),  # whom its roster calls by the title
        ([TITLED, ADA], "Ada", "hermes", None, "hermes@vps-2"),
        ([OPS], "bob", "bob", None, "bob@desktop"),
        ([{**OPS, "handle": "one"}, {**OPS, "profile": "one"}], "one", "one", "vps-1", "one@vps-1"),
    ],
)
async def test_the_sender_is_called_what_the_relays_roster_calls_it_and_never_by_somebody_elses_name(
    hub: SmallHub, rows: list[dict[str, object]], name: str, handle: str, connection: object, sender: str
) -> None:
    """#103731: whoever writes back to that name reaches the machine that asked, or none."""
    remotes, limits = hub.bus.remotes, hub.bus.limits
    await hub.bus.store.write(lambda tx: remotes.push(tx, limits, ANONYMOUS, rows, hub.clock.now()))
    message = f"Message from 🤖 {name} (@{handle}): hi"
    found = attributed(remotes, limits, hub.clock.now(), ANONYMOUS, message, None, None, connection)
    assert found == (sender, "hi")
