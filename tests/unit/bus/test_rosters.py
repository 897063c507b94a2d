"""Whom each connection is told of: all others, with the way there, and never its own."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angelia.bus.agents import put_agent, remove_agent
from angelia.bus.caller import ADMIN
from angelia.bus.neighbours import place_id
from angelia.bus.rosters import CHANGES, changes, rows_for_hermes, rows_for_hub, tell_changes
from angelia.bus.subscribe import detach
from angelia.bus.turns import begin, failed, looked_at
from angelia.model.connection import Away
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.protocol.bot_relay_rows import Row
from angelia.protocol.hub import HubRow
from tests.fakes.clock import settle
from tests.fakes.two_hubs import LinkedHub, Neighbourhood

OPS: dict[str, object] = {"profile": "ops", "connection_id": "vps-1", "title": "Ops Bot", "description": "runs it"}
HERMES = {"hermes", "openclaw"}  # known everywhere from the start
GONE, CAT = b'{"kind":"command","argv":["/gone"]}', b'{"kind":"command","argv":["/bin/cat"]}'


@pytest.fixture
async def three() -> Neighbourhood:
    """A line of three."""
    found = await Neighbourhood.of(lap="bob", mid="max", rack="ann")
    await found.line("lap", "mid")
    await found.line("mid", "rack")
    return await found.meet()


def to_hermes(hub: LinkedHub, connection: str) -> list[Row]:
    """What a gateway of Hermes' behind a connection would be told."""
    return rows_for_hermes(hub.bus, hub.bus.neighbours.require(connection), "here")


def told(hub: LinkedHub, connection: str) -> dict[str, HubRow]:
    """What a neighbour is told, by name; without those who are everywhere."""
    rows = rows_for_hub(hub.bus, hub.bus.neighbours.require(connection))
    return {f"{row.handle}@{row.name}": row for row in rows if row.handle not in HERMES}


async def test_each_side_is_told_of_all_others_and_of_none_of_its_own(three: Neighbourhood) -> None:
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    await mid.push("mac", OPS)
    assert sorted(told(mid, "lap")) == ["ann@rack", "max@mid", "ops@vps-1"]
    assert sorted(told(mid, "rack")) == ["bob@lap", "max@mid", "ops@vps-1"]
    assert sorted(told(lap, "mid")) == ["bob@lap"]
    ways = {row.handle: (row.hub, row.way) for row in told(mid, "lap").values()}
    place = place_id(mid.me, "vps-1")
    assert ways == {"max": (mid.me, (mid.me,)), "ann": (rack.me, (rack.me, mid.me)), "ops": (place, (place, mid.me))}


async def test_a_row_says_what_an_agent_is_for(three: Neighbourhood) -> None:
    await three["mid"].push("mac", OPS)
    row = told(three["mid"], "lap")["ops@vps-1"]
    assert (row.title, row.description, row.online) == ("Ops Bot", "runs it", None)


async def test_none_is_told_what_has_passed_it(three: Neighbourhood) -> None:
    """The rack has a second way to the laptop, by the middle: it tells the laptop of nobody there again."""
    lap, rack = three["lap"], three["rack"]
    await rack.connect("lap2", lap.me)
    assert sorted(told(rack, "lap2")) == ["ann@rack", "max@mid"]
    await rack.connect("far", "f" * 32)
    assert sorted(told(rack, "far")) == ["ann@rack", "bob@lap", "max@mid"]


async def test_a_way_that_no_message_could_go_is_not_told() -> None:
    line = await Neighbourhood.of({"c": Limits(hops=2)}, a="ann", b="", c="", d="")
    for one, other in ("ab", "bc", "cd"):
        await line.line(one, other)
    await line.meet()
    assert "ann@a" in line["c"].shown()
    assert "ann@a" not in line["d"].shown()


async def test_a_connection_hears_of_those_alone_who_are_shared_with_it(three: Neighbourhood) -> None:
    mid = three["mid"]
    await mid.connect("lap", three["lap"].me, share=("ann", "hermes"))
    await mid.push("mac", OPS)
    rows = rows_for_hub(mid.bus, mid.bus.neighbours.require("lap"))
    assert sorted(f"{row.handle}@{row.name}" for row in rows) == ["ann@rack", "hermes@mid", "hermes@rack"]
    await mid.connect("lap", three["lap"].me, share=())
    assert rows_for_hub(mid.bus, mid.bus.neighbours.require("lap")) == []


async def test_a_name_that_only_sent_is_told_to_nobody(three: Neighbourhood) -> None:
    await three["mid"].know("once")
    assert "once@mid" not in told(three["mid"], "lap")
    await three["mid"].know("once", member=True)
    assert "once@mid" in told(three["mid"], "lap")


async def test_a_private_row_is_told_to_nobody(three: Neighbourhood) -> None:
    await three["mid"].push("mac", {**OPS, "private": True})
    assert sorted(told(three["mid"], "lap")) == ["ann@rack", "max@mid"]


async def test_one_is_there_while_it_listens_and_else_nobody_knows(three: Neighbourhood) -> None:
    mid = three["mid"]
    assert told(mid, "lap")["max@mid"].online is None
    reader = await mid.listen("max")
    assert told(mid, "lap")["max@mid"].online is True
    await reader.close()
    assert told(mid, "lap")["max@mid"].online is None


async def test_one_is_there_while_its_adapter_works_and_else_nobody_knows(three: Neighbourhood) -> None:
    mid = three["mid"]
    gone = await put_agent(mid.bus, ADMIN, "max", None, None, GONE)
    assert told(mid, "lap")["max@mid"].online is True
    looked_at(mid.bus, gone, works=False)
    await settle()
    assert told(mid, "lap")["max@mid"].online is None
    ((_, online),) = {(row.handle, row.online) for row in to_hermes(mid, "rack") if row.handle == "max"}
    assert online is None
    reader = await mid.listen("max")
    assert told(mid, "lap")["max@mid"].online is True
    await reader.close()
    await put_agent(mid.bus, ADMIN, "max", None, None, CAT)
    assert told(mid, "lap")["max@mid"].online is True
    await put_agent(mid.bus, ADMIN, "max", None, None, GONE)
    assert told(mid, "lap")["max@mid"].online is None
    looked_at(mid.bus, gone, works=True)
    await settle()
    assert told(mid, "lap")["max@mid"].online is True


async def test_a_turn_that_nobody_is_there_to_run_is_told_at_once(three: Neighbourhood) -> None:
    mid = three["mid"]
    await put_agent(mid.bus, ADMIN, "max", None, None, GONE)
    await mid.send("bob", "max")
    run = await begin(mid.bus, "max", "command")
    assert run is not None
    tell_changes(mid.bus)
    with mid.bus.signals.watch(CHANGES) as watch:
        ticket, seen, run.spec = watch.ticket(), changes(mid.bus), GONE
        await failed(mid.bus, run, Reason.MISSING_CONFIG, "Its program is gone.")
        assert watch.changed(ticket).done()
    assert changes(mid.bus) != seen
    assert told(mid, "lap")["max@mid"].online is None


async def test_offline_is_said_of_those_alone_for_whom_mail_would_be_refused(three: Neighbourhood) -> None:
    mid, rack = three["mid"], three["rack"]
    mid.bus.neighbours.set_up("rack", up=False)
    assert told(mid, "lap")["ann@rack"].online is None
    await mid.connect("rack", rack.me, away=Away.REFUSE)
    mid.bus.neighbours.set_up("rack", up=False)
    assert told(mid, "lap")["ann@rack"].online is False


async def test_twins_behind_a_gateway_are_told_by_what_leads_to_each(three: Neighbourhood) -> None:
    mid = three["mid"]
    await mid.push("mac", *({"profile": name, "handle": "bot", "connection_id": "vps-1"} for name in ("dev", "ops")))
    assert {"dev@vps-1", "ops@vps-1"} <= set(told(mid, "lap"))


async def test_a_gateway_is_told_the_same_in_its_own_words(three: Neighbourhood) -> None:
    mid = three["mid"]
    gateway = await mid.connect("vps", None)
    await mid.push("vps", {**OPS, "connection_id": "local"})
    rows = {(row.connection_id, row.profile, row.handle) for row in rows_for_hermes(mid.bus, gateway, "desk")}
    ours = {("desk", "default", "hermes"), ("desk", "openclaw", "openclaw"), ("desk", "max", "max")}
    theirs = {("rack", "ann", "ann"), ("lap", "bob", "bob")}
    assert ours | theirs <= rows
    assert {connection for connection, *_ in rows} == {"desk", "rack", "lap"}


async def test_it_is_seen_when_somebody_has_to_be_told_anew(three: Neighbourhood) -> None:
    mid = three["mid"]
    seen = [changes(mid.bus)]
    reader = await mid.listen("max")
    seen.append(changes(mid.bus))
    await reader.close()
    await mid.know("new", member=True)
    seen.append(changes(mid.bus))
    await mid.learn("rack", [])
    seen.append(changes(mid.bus))
    await mid.push("mac", OPS)
    seen.append(changes(mid.bus))
    mid.bus.neighbours.set_up("rack", up=False)
    seen.append(changes(mid.bus))
    assert len(set(seen)) == len(seen)
    assert changes(mid.bus) == seen[-1]


LINES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda ends: ends[0] < ends[1]), unique=True)


@settings(max_examples=25)
@given(LINES, st.randoms(use_true_random=False))
def test_however_hubs_are_linked_each_knows_each_agent_once_and_forgets_it(lines: Any, order: Any) -> None:
    """Whatever order rosters are told in; and one that has left does not go round for ever."""

    async def follow() -> None:
        hubs = await Neighbourhood.of(a="ann", b="bob", c="cat", d="dan")
        letters = list(hubs.hubs)
        for one, other in lines:
            await hubs.line(letters[one], letters[other])
        for _ in range(5):
            for link in order.sample(hubs.links, len(hubs.links)):
                await link.tell_roster()
        reach = _reached(lines)
        for number, name in enumerate(letters):
            own = {(known.row.hub, known.row.handle) for known in hubs[name].bus.neighbours.everyone()}
            there = [
                known.row.handle for known in hubs[name].bus.neighbours.everyone() if known.row.handle not in HERMES
            ]
            assert sorted(there) == sorted(["ann", "bob", "cat", "dan"][other] for other in reach[number])
            assert hubs[name].me not in {hub for hub, _ in own}
        await remove_agent(hubs["a"].bus, "ann")
        for _ in range(5):
            for link in order.sample(hubs.links, len(hubs.links)):
                await link.tell_roster()
        assert not any(name.startswith("ann@") for hub in hubs.hubs.values() for name in hub.shown())

    asyncio.run(follow())


def _reached(lines: Any) -> dict[int, set[int]]:
    """Who is reached from each of four, over any number of lines."""
    found = {number: {number} for number in range(4)}
    for _ in range(4):
        for one, other in lines:
            found[one] |= found[other]
            found[other] |= found[one]
    return {number: there - {number} for number, there in found.items()}


async def test_whatever_others_may_have_to_be_told_of_is_said_at_once(three: Neighbourhood) -> None:
    mid = three["mid"]
    tell_changes(mid.bus)
    with mid.bus.signals.watch(CHANGES) as watch:

        async def is_said(change: Awaitable[object]) -> bool:
            ticket = watch.ticket()
            await change
            await settle()
            return watch.changed(ticket).done()

        for change in (
            mid.know("eve", member=True), remove_agent(mid.bus, "eve"), mid.push("mac", OPS),
            mid.connect("rack", three["rack"].me, share=()), mid.listen("max"),
        ):  # fmt: skip
            assert await is_said(change)
        assert not await is_said(mid.send("max", "max"))
        assert await is_said(detach(mid.bus, mid.bus.streams.attached["max"]))


async def test_only_what_desktops_push_gets_old_by_time_alone(three: Neighbourhood) -> None:
    lap, mid = three["lap"], three["mid"]
    before = [changes(hub.bus) for hub in (lap, mid)]
    await mid.push("mac", OPS)
    pushed = changes(mid.bus)
    await three.clock.advance(60)
    assert changes(lap.bus) == before[0]
    assert changes(mid.bus) != pushed
