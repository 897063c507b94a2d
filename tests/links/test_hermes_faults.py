"""A link to a gateway of Hermes' when something breaks: lines, processes, calls, envelopes, another relay."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from angelia.bus.agents import remove_agent
from angelia.bus.arrive_hermes import Shown
from angelia.bus.forward import times_of
from angelia.bus.subscribe import attach, detach
from angelia.links import hermes_rosters
from angelia.links.hermes_in import ANOTHER_RELAY, Incoming
from angelia.links.hermes_out import Outgoing
from angelia.model.connection import Connection
from angelia.model.delivery import Hand, State
from angelia.model.errors import DiskFull
from angelia.model.limits import Limits
from angelia.protocol.bot_relay import BODY_CHARS
from tests.fakes.small_hub import Socket
from tests.links.hermes import Gateway, a_gateway, until
from tests.links.hermes_side import HERE, RACK, SLOW, Side, a_side

DELIVER, DRAIN, REPLY = "bot_relay.deliver", "bot_relay.outbox.drain", "bot_relay.reply"
SYNC, LOOK, PING = "bot_relay.roster.sync", "profiles.list", "gateway.ping"
QUICK = replace(SLOW, poll=0.2, roster=0.2)


@pytest.fixture
async def rack(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with a_gateway(tmp_path / "rack") as gateway:
        yield gateway


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Side]:
    async with a_side(tmp_path / "hub") as side:
        yield side


# -------------------------------------------------------------------------------------------------------------- lines


async def test_one_line_is_kept_for_everything(side: Side, rack: Gateway) -> None:
    """10.1, #93594: a WebSocket is dialled and closed every 4 s."""
    side.pace = QUICK
    async with side.linked(rack):
        await until(lambda: len(rack.calls(DRAIN)) >= 4 and len(rack.calls(LOOK)) >= 4)
        assert "heard" in await side.ask()
    assert len(rack.events("connect")) == 1


async def test_only_what_keeps_nothing_warm_there_is_called(side: Side, rack: Gateway) -> None:
    """10.29, #108088: a look spawns a backend, and keeps it alive for ever."""
    side.pace = replace(QUICK, ping=0.1)
    async with side.linked(rack):
        await side.ask()
        id = rack.enqueue(f"ann@{HERE}", "hi")
        await side.reply(await side.next("ann"), "yes")
        await rack.answered(id)
        await until(lambda: rack.calls(PING))
    assert {each["method"] for each in rack.events("call")} == {DELIVER, DRAIN, REPLY, SYNC, LOOK, PING}
    assert rack.calls(LOOK)[0] == {"include_sessions": False}


async def test_a_turn_is_waited_for_as_long_as_it_may_take_there(side: Side, rack: Gateway) -> None:
    """10.2, #93911: every turn of more than 30 s fails; 10.9, #113107: one deadline outlives the other."""
    asked: list[tuple[str, float]] = []
    called = asyncio.Event()

    async def call(method: str, params: Mapping[str, object], seconds: float) -> Any:
        asked.append((method, seconds))
        called.set()
        return {"reply": "ok"}

    async with side.linked(rack):
        pass  # it is known who is there
    await side.send()
    times = times_of(side.bus.limits)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(Outgoing(side.bus, RACK, call, HERE).run())
        await called.wait()
        running.cancel()
    assert asked == [(DELIVER, times.deliver_seconds)]
    assert times.work_seconds + 180 == times.deliver_seconds == 1500
    slower = times_of(replace(Limits(), lock_wait_seconds=600))
    assert slower.deliver_seconds == 1500 + 480


async def test_a_line_that_breaks_during_a_turn_causes_no_second_one(side: Side, rack: Gateway) -> None:
    """10.11, #111021: the outcome is unknown; it is offered once more only when the turn must have ended."""
    rack.set(turns={"ops": [{"hold": "never"}]})
    async with side.dialled(rack) as (_, running):
        await until(lambda: side.bus.remotes.of_mail("rack", "ops@Rack"))
        sent = await side.send()
        await until(lambda: rack.turns("ops"))
        await rack.stop(signal.SIGKILL)
        assert await asyncio.wait_for(running, 10)
    assert (await side.comes_to(sent, State.FORWARDED)).used == 0
    await rack.start()
    async with side.linked(rack):
        assert "heard" in await side.ask("next", to="hermes@Rack")
    assert len(rack.calls(DELIVER)) == 2
    assert (await side.comes_to(sent, State.FORWARDED)).used == 0


async def test_what_had_not_left_when_the_line_broke_goes_with_the_next_one_in_its_order(
    side: Side, rack: Gateway
) -> None:
    rack.set(turns={"ops": [{"hold": "never"}, {}]})
    async with side.dialled(rack) as (_, running):
        await until(lambda: side.bus.remotes.of_mail("rack", "ops@Rack"))
        sent = [await side.send(f"{number}") for number in range(4)]
        await until(lambda: rack.turns("ops"))
        await rack.stop(signal.SIGKILL)
        await asyncio.wait_for(running, 10)
    for each in sent[1:]:
        await side.comes_to(each, State.QUEUED)
    rack.set(turns={})
    await rack.start()
    async with side.linked(rack):
        for each in sent[1:]:
            await side.comes_to(each, State.ANSWERED)
    assert [text[-1] for text in rack.turns("ops")] == ["0", "1", "2", "3"]


async def test_mail_that_was_drained_into_a_broken_line_comes_once(side: Side, rack: Gateway) -> None:
    """10.11: the claim is the gateway's; what it offers again is one message."""
    rack.set(faults={DRAIN: [None, {"drop": "after"}]}, reoffer=0)
    async with side.dialled(rack) as (_, running):
        await until(lambda: len(rack.events("end", DRAIN)) == 1)
        id = rack.enqueue(f"ann@{HERE}", "hi")
        await asyncio.wait_for(running, 10)
    assert await side.rows(id) == []
    async with side.linked(rack):
        await side.reply(await side.next("ann"), "here")
        assert (await rack.answered(id))["reply"] == "here"
    assert len([each for each in await side.mailbox("ann") if each.id == id]) == 1


async def test_what_is_offered_again_while_it_is_at_work_is_one_message_and_has_one_answer(
    side: Side, rack: Gateway
) -> None:
    """11.5: concurrent drains both offer one claimed file."""
    side.pace = QUICK
    rack.set(reoffer=0)
    async with side.linked(rack):
        id = rack.enqueue(f"ann@{HERE}", "hi")
        parcel = await side.next("ann")
        await until(lambda: sum(id in each["result"].get("ids", ()) for each in rack.events("end", DRAIN)) > 1)
        await side.reply(parcel, "once")
        assert (await rack.answered(id))["reply"] == "once"
    assert len([each for each in await side.mailbox("ann") if each.id == id]) == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_answer_is_told_again_where_the_line_broke_under_it(side: Side, rack: Gateway, when: str) -> None:
    """10.11: the reply post is swallowed and lost. There the first one counts, so that again is no harm."""
    rack.set(faults={REPLY: [{"drop": when}]})
    async with side.dialled(rack) as (_, running):
        id = rack.enqueue(f"ann@{HERE}", "hi")
        answer = await side.reply(await side.next("ann"), "yes")
        await asyncio.wait_for(running, 10)
    async with side.linked(rack):
        await side.comes_to(answer, State.DELIVERED)
        assert (await rack.answered(id))["reply"] == "yes"
    assert len(rack.calls(REPLY)) == 2


async def test_an_answer_that_the_gateway_could_not_write_is_told_again(side: Side, rack: Gateway) -> None:
    rack.set(faults={REPLY: [{"error": {"code": 5095, "message": "disk full"}}] * 2})
    async with side.linked(rack):
        id = rack.enqueue(f"ann@{HERE}", "hi")
        await side.reply(await side.next("ann"), "yes")
        assert (await rack.answered(id))["reply"] == "yes"


async def test_an_answer_that_came_while_nobody_was_linked_is_told_later(side: Side, rack: Gateway) -> None:
    async with side.linked(rack):
        id = rack.enqueue(f"ann@{HERE}", "hi")
        parcel = await side.next("ann")
    answer = await side.reply(parcel, "late, and whole")
    assert (await side.comes_to(answer, State.QUEUED)).connection == "rack"
    async with side.linked(rack):
        assert (await rack.answered(id))["reply"] == "late, and whole"


async def test_stopping_in_the_middle_of_a_drain_loses_nothing(side: Side, rack: Gateway) -> None:
    """11.10: envelopes that were claimed are abandoned."""
    rack.set(faults={DRAIN: [None, {"hold": "drain"}]})
    async with side.dialled(rack) as (_, running):
        await until(lambda: len(rack.events("end", DRAIN)) == 1)
        id = rack.enqueue(f"ann@{HERE}", "hi")
        await until(lambda: len(rack.events("work", DRAIN)) == 2)
        running.cancel()
        await asyncio.sleep(0)
        rack.go("drain")
        await asyncio.wait((running,), timeout=10)
        assert running.cancelled()
    assert [row.state for row in await side.rows(id)] == [State.QUEUED]


async def test_what_the_disk_does_not_take_is_kept_until_it_does_though_the_line_breaks(
    side: Side, rack: Gateway
) -> None:
    """11.10, 14: it was drained, so nobody else has it."""
    async with side.dialled(rack) as (_, running):
        await until(lambda: len(rack.events("end", DRAIN)) == 1)
        side.store.refusal = DiskFull("full")
        ids = [rack.enqueue(f"ann@{HERE}", f"{number}") for number in range(3)]
        await until(lambda: sum(len(each["result"]["ids"]) for each in rack.events("end", DRAIN)[1:]) == 3)
        await rack.stop(signal.SIGKILL)
        await asyncio.wait_for(running, 10)
    side.store.refusal = None
    for id in ids:
        await side.comes_to(id, State.QUEUED)
    assert [each.text for each in await side.mailbox("ann")] == ["0", "1", "2"]


async def test_a_drain_has_no_short_deadline(side: Side) -> None:
    """Whoever stops waiting for its answer loses what was claimed."""
    asked: list[tuple[str, float]] = []
    called = asyncio.Event()

    async def call(method: str, params: Mapping[str, object], seconds: float) -> Any:
        asked.append((method, seconds))
        called.set()
        return {"envelopes": []}

    incoming = Incoming(side.bus, RACK, call, HERE, lambda: Shown(HERE, ()), lambda warning: None)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(incoming.run())
        await called.wait()
        running.cancel()
    assert asked == [(DRAIN, times_of(side.bus.limits).deliver_seconds)]


async def test_a_signal_during_a_drain_is_followed_by_another(side: Side, rack: Gateway) -> None:
    """9.7: the gateway never repeats a signal."""
    rack.set(faults={DRAIN: [None, {"late": "first"}]})
    async with side.linked(rack):
        first = rack.enqueue(f"ann@{HERE}", "one")
        await until(lambda: list((rack.relay / "claimed").glob(f"{first}.json")))
        second = rack.enqueue(f"ann@{HERE}", "two")
        await until(lambda: rack.signals == 2)
        rack.go("first")
        await side.comes_to(first, State.QUEUED)
        await side.comes_to(second, State.QUEUED)


async def test_a_burst_of_signals_is_one_drain(side: Side, rack: Gateway) -> None:
    rack.set(tick=0.01)
    async with side.linked(rack):
        ids = [rack.enqueue(f"ann@{HERE}", f"{number}") for number in range(20)]
        for id in ids:
            await side.comes_to(id, State.QUEUED)
    assert len(rack.calls(DRAIN)) <= 3  # one when it was connected, one or two for the burst


async def test_without_a_signal_mail_is_found_by_the_poll(side: Side, rack: Gateway) -> None:
    side.pace = replace(SLOW, poll=0.2)
    rack.set(watch=False)
    async with side.linked(rack):
        await side.comes_to(rack.enqueue(f"ann@{HERE}", "hi"), State.QUEUED)


async def test_a_gateway_that_hangs_ends_the_line_and_one_that_is_busy_does_not(side: Side, rack: Gateway) -> None:
    """F117: connected, and nothing comes through."""
    side.pace = replace(SLOW, ping=0.5)
    rack.set(turns={"ops": [{"hold": "busy"}]})
    async with side.dialled(rack) as (_, running):
        await until(lambda: side.bus.remotes.of_mail("rack", "ops@Rack"))
        await side.send()
        await until(lambda: len(rack.calls(PING)) >= 3)
        assert not running.done()
        rack.freeze(frozen=True)
        assert "ping" in await asyncio.wait_for(running, 3 * (0.5 + 0.5))


async def test_an_older_gateway_that_knows_no_ping_is_alive(side: Side, rack: Gateway) -> None:
    side.pace = replace(SLOW, ping=0.05)
    rack.set(ping=False)
    async with side.linked(rack):
        await until(lambda: len(rack.calls(PING)) >= 3)
        assert "heard" in await side.ask()


async def test_nothing_is_done_before_the_first_answer(side: Side, rack: Gateway) -> None:
    rack.set(faults={PING: [{"hold": "first"}]})
    async with side.dialled(rack) as (_, running):
        await until(lambda: rack.calls(PING))
        rack.go("first")
        await until(lambda: rack.calls(SYNC) and rack.calls(LOOK))
        assert not running.done()
    began = [each["method"] for each in rack.events("call")]
    answered = [each["method"] for each in rack.events("end")]
    assert (began[0], answered[0]) == (PING, PING)


# ------------------------------------------------------------------------------------------------------------ rosters


async def test_each_sees_the_others_agents(side: Side, rack: Gateway) -> None:
    profiles = [
        {"name": "default", "ui_meta": {"hermes-bots": {"title": "Maia"}}},
        {"name": "ops", "description": "nightly"},
        {"name": "mine", "private": True},
    ]
    rack.set(profiles=profiles)
    async with side.linked(rack) as link:
        bus = side.bus
        there = bus.remotes.rows(bus.clock.now(), bus.limits)
        assert [(row.connection_id, row.handle, row.title, row.description, row.online) for row in there] == [
            ("Rack", "hermes", "Maia", "", True),
            ("Rack", "ops", "", "nightly", True),
        ]
        assert (link.agents, link.warning) == (2, None)
    shown = [(row["connection_id"], row["profile"], row["handle"]) for row in rack.roster]
    known = [(HERE, "ann", "ann"), (HERE, "bob", "bob"), (HERE, "default", "hermes"), (HERE, "openclaw", "openclaw")]
    assert shown == known
    assert {params["desktop"] for params in rack.calls(SYNC)} == {HERE}


async def test_only_those_who_are_accepted_are_seen_and_may_write(tmp_path: Path, rack: Gateway) -> None:
    some = Connection(name="Rack", accept=("ops",), share=("ann",))
    async with a_side(tmp_path / "hub", connection=some) as side, side.linked(rack) as link:
        assert link.agents == 1
        assert [row["handle"] for row in rack.roster] == ["ann"]
        no = [rack.enqueue(f"ann@{HERE}", "let me"), rack.enqueue(f"bob@{HERE}", "hi", sender="ops")]
        assert [(await rack.answered(id))["reason"] for id in no] == ["agent_blocked", "runtime_offline"]
        assert await side.mailbox("ann") == await side.mailbox("bob") == []


async def test_who_comes_and_goes_here_is_known_there_within_a_second(side: Side, rack: Gateway) -> None:
    """10.13, #111262: what was removed stays in the rosters."""
    async with side.linked(rack) as link:
        await side.know("zed")
        link.rows_changed()
        await until(lambda: "zed" in [row["handle"] for row in rack.roster], 3)
        await remove_agent(side.bus, "zed")
        link.rows_changed()
        await until(lambda: "zed" not in [row["handle"] for row in rack.roster], 3)


async def test_the_last_one_who_goes_leaves_an_empty_roster(tmp_path: Path, rack: Gateway) -> None:
    """10.13: a sole survivor is never told."""
    async with a_side(tmp_path / "hub", connection=replace(RACK, share=())) as side:
        rack.enqueue("x@y", "there is a relay folder")
        rack.relay.mkdir(exist_ok=True)
        (rack.relay / "roster.json").write_text('{"agents": [{"handle": "old"}], "updated_at": 1}')
        async with side.linked(rack):
            assert rack.roster == []


async def test_a_connection_that_is_forgotten_forgets_our_agents(side: Side, rack: Gateway) -> None:
    async with side.linked(rack) as link:
        assert rack.roster
        await link.say_farewell()
        assert rack.roster == []


async def test_a_farewell_that_nobody_answers_says_so(
    side: Side, rack: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hermes_rosters, "FAREWELL_SECONDS", 0.1)
    async with side.linked(rack) as link:
        rack.set(faults={SYNC: [{"hold": "never"}] * 3})
        await link.say_farewell()
    assert "Rack may go on showing our agents: no answer within 0.1 s" in caplog.messages


async def test_a_push_that_failed_is_made_again_until_it_worked(side: Side, rack: Gateway) -> None:
    """10.14, #113862."""
    error = {"error": {"code": 5090, "message": "roster sync failed: disk full"}}
    rack.set(faults={SYNC: [error, error, error]})
    async with side.dialled(rack) as (link, _):
        await until(lambda: link.warning and "disk full" in link.warning)
        await until(lambda: rack.roster)
        await until(lambda: link.warning is None)
    assert len(rack.calls(SYNC)) == 4


async def test_a_look_that_failed_changes_nothing_and_is_made_again(side: Side, rack: Gateway) -> None:
    """8: last good rows, never "empty"."""
    side.pace = replace(SLOW, roster=0.1, again=0.1)
    async with side.linked(rack) as link:
        error = {"error": {"code": -32000, "message": "boom"}}
        looks = len(rack.calls(LOOK))
        rack.set(faults={LOOK: [*[None] * looks, *[error] * 3]}, profiles=[{"name": "ops"}])
        await until(lambda: len([each for each in rack.events("end", LOOK) if "error" in each]) >= 2)
        assert link.agents == 2
        await until(lambda: link.agents == 1)
        assert "heard" in await side.ask()


async def test_online_is_told_where_it_is_known(side: Side, rack: Gateway) -> None:
    """11.2: the roster never says who is online."""
    async with side.linked(rack) as link:
        online = await attach(side.bus, "ann", Hand.AUTO, Socket(), None)
        link.rows_changed()
        await until(lambda: {row["handle"]: row.get("online") for row in rack.roster}["ann"] is True, 3)
        assert {row.get("online") for row in rack.roster if row["handle"] != "ann"} == {None}
        await detach(side.bus, online)


# -------------------------------------------------------------------------------------------------------- envelopes


async def test_what_is_for_nobody_here_is_told_at_once_and_another_relay_is_suspected(
    side: Side, rack: Gateway
) -> None:
    """10.12, #115161: two relays at one gateway; another's ``local`` is not this machine. 11.2: the reason is typed."""
    async with side.linked(rack) as link:
        first, second = rack.enqueue("ann@local", "hi"), rack.enqueue("ops@vps-1", "hi")
        found = [await rack.answered(id) for id in (first, second)]
        assert [each["reason"] for each in found] == ["runtime_offline"] * 2
        assert "vps-1" in found[1]["error"]
        assert await side.mailbox("ann") == []
        await until(lambda: link.warning == ANOTHER_RELAY)
        assert side.changes >= 2


async def test_an_agent_that_left_is_offline_and_no_sign_of_another_relay(side: Side, rack: Gateway) -> None:
    async with side.linked(rack) as link:
        found = await rack.answered(rack.enqueue(f"zed@{HERE}", "hi"))
        assert (found["reason"], link.warning) == ("runtime_offline", None)


async def test_a_time_of_a_wrong_type_costs_its_own_message_alone(side: Side, rack: Gateway) -> None:
    """11.4: its sender is told."""
    async with side.linked(rack):
        bad = rack.enqueue(f"ann@{HERE}", "hi", created_at=["never"])
        good = rack.enqueue(f"ann@{HERE}", "hi")
        await side.comes_to(good, State.QUEUED)
        assert "created_at" in (await rack.answered(bad))["error"]


async def test_a_gateway_whose_drains_break_is_told_of_and_everything_else_goes_on(side: Side, rack: Gateway) -> None:
    """11.4 at the gateway itself: every drain fails until somebody takes the file away."""
    side.pace = replace(SLOW, poll=0.2)
    rack.set(strict_times=True)
    async with side.linked(rack) as link:
        bad = rack.enqueue(f"ann@{HERE}", "hi", created_at=["never"])
        await until(lambda: link.warning and "drain" in link.warning)
        assert "heard" in await side.ask()
        good = rack.enqueue(f"ann@{HERE}", "hi")
        (rack.relay / "outbox" / f"{bad}.json").unlink()
        await side.comes_to(good, State.QUEUED)
        await until(lambda: link.warning is None)


async def test_hostile_envelopes_block_nothing(side: Side, rack: Gateway) -> None:
    rack.set(generation=2)  # which hands out whatever stands in a file
    async with side.linked(rack):
        outbox = rack.relay / "outbox"
        outbox.mkdir(parents=True, exist_ok=True)
        (outbox / "a.json").write_text('"text"')
        (outbox / "b.json").write_text("{}")
        rack.enqueue("../../etc@x y", "hi", name="c")
        rack.enqueue(f"ann@{HERE}", "hi", id="../../replies/x", name="d")
        await side.comes_to(rack.enqueue(f"ann@{HERE}", "hi", sender="\N{ROBOT FACE}" * 9), State.QUEUED)
    assert [each.text for each in await side.mailbox("ann")] == [f"Message from 🤖 {'🤖' * 9} (@{'🤖' * 9}): hi"]


async def test_a_full_mailbox_is_told_there(tmp_path: Path, rack: Gateway) -> None:
    limits = Limits(mailbox_deliveries_per_sender=1)
    async with a_side(tmp_path / "hub", limits) as side, side.linked(rack):
        await side.comes_to(rack.enqueue(f"ann@{HERE}", "one"), State.QUEUED)
        assert (await rack.answered(rack.enqueue(f"ann@{HERE}", "two")))["reason"] == "agent_blocked"


async def test_what_a_hub_that_died_had_in_its_hands_is_as_it_left_it(tmp_path: Path, rack: Gateway) -> None:
    """10.11, with the hub as what dies: over the same folder another one goes on."""
    rack.set(turns={"ops": [{"hold": "never"}]})
    async with a_side(tmp_path / "hub") as side, side.linked(rack):
        forwarded = await side.send("at work")
        waits = await side.send("behind it")
        await until(lambda: rack.turns("ops"))
        id = rack.enqueue(f"ann@{HERE}", "hi")
        parcel = await side.next("ann")
        await side.reply(parcel, "before the end")
        await rack.answered(id)
    rack.go("never")
    rack.set(turns={})
    async with a_side(tmp_path / "hub") as side, side.linked(rack):
        await side.comes_to(waits, State.ANSWERED)
        assert (await side.comes_to(forwarded, State.FORWARDED)).used == 0
    assert Counter(text[-9:] for text in rack.turns("ops")) == {": at work": 1, "behind it": 1}


async def test_an_outbox_that_filled_up_comes_in_one_frame(side: Side, rack: Gateway) -> None:
    """Nothing bounds a drain; who cuts the line for its size loses what was claimed, again and again."""
    text = "\N{ROBOT FACE}" * BODY_CHARS  # 12 bytes each, as the gateway spells them
    ids = [rack.enqueue(f"ann@{HERE}", text) for _ in range(60)]
    async with side.linked(rack):
        for id in ids:
            await side.comes_to(id, State.QUEUED)
    assert sum(path.stat().st_size for path in (rack.relay / "claimed").iterdir()) * 3 > 8 * 1024 * 1024
