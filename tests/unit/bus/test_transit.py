"""Mail by way of a third hub, and to agents behind gateways of Hermes' that other hubs know."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angelia.bus.ask import ask
from angelia.bus.carry import fail_waiting
from angelia.bus.draft import Draft
from angelia.bus.forward import drain, handed_out, settle_far
from angelia.bus.look import expected
from angelia.bus.outcomes import owed
from angelia.bus.turns import begin, failed
from angelia.model.connection import Away
from angelia.model.delivery import State
from angelia.model.envelope import Intent, Kind
from angelia.model.errors import AmbiguousName, RuntimeOffline, UnknownAgent
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from tests.fakes.clock import FakeClock
from tests.fakes.small_hub import texts
from tests.fakes.two_hubs import LinkedHub, Neighbourhood, forge

OPS: dict[str, object] = {"profile": "ops", "connection_id": "vps-1", "title": "Ops Bot"}
MAIA: dict[str, object] = {"profile": "default", "connection_id": "local", "title": "Maia"}


@pytest.fixture
async def three() -> Neighbourhood:
    """A laptop and a rack, which know each other by a hub in the middle alone."""
    found = await Neighbourhood.of(lap="bob cat", mid="max", rack="ann bob")
    await found.line("lap", "mid")
    await found.line("mid", "rack")
    return await found.meet()


async def take_there(three: Neighbourhood, scope: str = "desktop") -> list[Any]:
    """A relay of Hermes' fetches what waits in the middle."""
    drained = await drain(three["mid"].bus, scope)
    handed_out(three["mid"].bus, drained, written=True)
    await three["mid"].commit()
    return drained.envelopes


# ----------------------------------------------------------------------------------------------------- by a third hub


async def test_an_answer_given_while_the_way_back_is_removed_goes_once_it_is_there_again(three: Neighbourhood) -> None:
    mid, rack = three["mid"], three["rack"]
    asked = await mid.send("max", "ann", intent="request")
    await three.run()
    way = rack.bus.neighbours.require("mid")
    await rack.bus.store.write(lambda tx: rack.bus.neighbours.remove(tx, way, rack.clock.now()))
    await fail_waiting(rack.bus, way.id, "The connection was removed.")
    reply = await rack.answer("ann", asked.envelope)
    row = await rack.row(reply)
    assert (row.state, row.connection) == (State.QUEUED, "mid")
    assert expected(rack.bus, row, Intent.INFORM) == "waits until mid is connected again"
    await rack.connect("mid", mid.me)
    await three.meet()
    await three.run()
    assert await mid.told("max") == [("ann@rack", "done")]


async def test_question_and_answer_cross_in_both_directions(three: Neighbourhood) -> None:
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    there = await lap.send("cat", "ann", intent="request")  # the only one of that name
    back = await rack.send("ann", "cat@lap", "and you?", intent="request")
    await three.run()
    (question,) = await rack.mailbox("ann")
    assert (question.envelope.sender, question.envelope.via) == ("cat@lap", (lap.me, mid.me))
    assert [p.envelope.sender for p in await lap.mailbox("cat")] == ["ann@rack"]
    assert {await hub.state(sent) for hub, sent in ((lap, there), (mid, there), (mid, back), (rack, back))} == {
        State.FORWARDED
    }
    await rack.answer("ann", there.envelope, "fine")
    await lap.answer("cat", back.envelope, "so am I")
    await three.run()
    assert ("ann@rack", "fine") in await lap.told("cat")
    assert ("cat@lap", "so am I") in await rack.told("ann")
    assert {await hub.state(sent) for hub in (lap, mid, rack) for sent in (there, back)} == {State.ANSWERED}


async def test_an_outcome_goes_back_by_the_way_that_its_message_came(three: Neighbourhood) -> None:
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    sent = await lap.send("cat", "ann", intent="inform")
    await three.run()
    assert [await hub.state(sent) for hub in (lap, mid)] == [State.FORWARDED, State.FORWARDED]
    await rack.ack(await rack.take_one("ann"))
    await three.run()
    assert [await hub.state(sent) for hub in (lap, mid)] == [State.DELIVERED, State.DELIVERED]
    assert [(await hub.row(sent)).owes for hub in (mid, rack)] == [None, None]


async def test_a_failure_comes_back_in_the_turns_own_words_and_once(three: Neighbourhood) -> None:
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    sent = await lap.send("cat", "ann", intent="request")
    await three.run()
    run = await begin(rack.bus, "ann", "command")
    assert run is not None
    await failed(rack.bus, run, Reason.PROVIDER_QUOTA_LIMIT, "The card was refused.")
    await three.run()
    (notice,) = await lap.notices("cat")
    assert (notice.reason, notice.about) == ("provider_quota_limit", sent.envelope.id)
    assert (notice.text or "").startswith("Your message to ann@rack was not answered.")
    assert (notice.text or "").count("The card was refused.") == 1
    assert [await hub.state(sent) for hub in (lap, mid, rack)] == [State.FAILED] * 3
    assert await mid.notices("max") == []


async def test_no_notice_stays_open_once_the_other_side_has_it(three: Neighbourhood) -> None:
    """Nothing more is said of it: it would fill the mailbox of whoever asks often."""
    await three["lap"].send("cat", "ann", intent="request", ttl_seconds=5)
    await three.run()
    await three.pass_time(6)
    await three.run()
    assert len(await three["lap"].notices("cat")) == 1
    for name, box in (("mid", "cat@lap"), ("rack", "cat@lap")):
        assert await three[name].mailbox(box) == []


async def test_an_ask_waits_over_two_hops(three: Neighbourhood) -> None:
    draft = Draft(sender="cat", to="ann", text="well?", id="a" * 32)
    assert (await ask(three["lap"].bus, draft, 0)).pending
    await three.run()
    await three["rack"].answer("ann", draft.id or "", "well")
    await three.run()
    answer = await ask(three["lap"].bus, draft, 0)
    assert answer.reply is not None
    assert answer.reply.text == "well"


async def test_two_who_are_never_there_together_have_their_mail_by_the_third(three: Neighbourhood) -> None:
    lap, rack = three["lap"], three["rack"]
    sent = await lap.send("cat", "ann", intent="request")
    rack_line = (three.link("mid", "rack"), three.link("rack", "mid"))
    lap_line = (three.link("lap", "mid"), three.link("mid", "lap"))
    for link in rack_line:
        link.cut = True
    await three.run()
    for link in rack_line:
        link.cut = False
    for link in lap_line:
        link.cut = True
    await three.run()
    await rack.answer("ann", sent.envelope, "fine")
    await three.run()
    assert await lap.mailbox("cat") == []
    for link in lap_line:
        link.cut = False
    await three.run()
    assert texts(await lap.mailbox("cat")) == ["fine"]


async def test_a_name_that_two_have_is_refused_with_a_form_for_each(three: Neighbourhood) -> None:
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    assert (await lap.send("cat", "bob")).deliveries[0].connection is None  # somebody here goes before
    for hub in (lap, rack):
        await hub.know("eve", member=True)
    await three.meet()
    with pytest.raises(AmbiguousName) as refused:
        await mid.send("max", "eve", intent="request")
    assert refused.value.extra["suggestions"] == ["eve@lap", "eve@rack"]
    for form in ("eve@lap", "eve@rack"):
        await mid.send("max", form)
    await three.run()
    assert [len(await hub.mailbox("eve")) for hub in (lap, rack)] == [1, 1]


async def test_nobody_is_reached_by_a_line_that_does_not_show_him(three: Neighbourhood) -> None:
    """The middle shows the laptop only some; and takes nothing from there for the others."""
    lap, mid = three["lap"], three["mid"]
    await lap.send("cat", "ann@rack", intent="request")
    await mid.connect("lap", lap.me, share=("max", "bob"))
    await three.run()
    assert [n.reason for n in await lap.notices("cat")] == ["runtime_offline"]
    await three.meet()
    assert sorted(lap.shown()) == ["bob@rack", "max@mid"]
    with pytest.raises(UnknownAgent):
        await lap.send("cat", "ann@rack")


async def test_a_connection_that_refuses_while_it_is_down_says_so_at_each_hub(three: Neighbourhood) -> None:
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    before = await lap.send("cat", "ann", intent="request")
    await mid.connect("rack", rack.me, away=Away.REFUSE)
    assert mid.shown()["ann@rack"] is None
    mid.bus.neighbours.set_up("rack", up=False)
    with pytest.raises(RuntimeOffline):
        await mid.send("max", "ann")
    await three.run()  # on its way before anybody here could know
    row = await lap.row(before)
    assert (row.state, row.reason) == (State.FAILED, Reason.RUNTIME_OFFLINE)
    assert [n.reason for n in await lap.notices("cat")] == ["runtime_offline"]
    await three.meet()
    with pytest.raises(RuntimeOffline):
        await lap.send("cat", "ann")


async def test_mail_for_one_that_is_away_waits_where_it_must(three: Neighbourhood) -> None:
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    mid.bus.neighbours.set_up("rack", up=False)
    three.link("mid", "rack").cut = True
    sent = await lap.send("cat", "ann", intent="request", ttl_seconds=100)
    await three.run()
    assert await mid.state(sent) is State.QUEUED
    waiting, since = await mid.bus.store.read(lambda view: view.backlog("rack", 10))
    assert (waiting, since) == (1, sent.deliveries[0].accepted_at)
    await three.pass_time(101)
    await three.run()
    assert [n.reason for n in await lap.notices("cat")] == ["queued_expired"]
    assert await rack.mailbox("ann") == []


async def test_a_full_mailbox_on_the_way_makes_it_wait_before_that() -> None:
    few = {"mid": replace(Limits(), mailbox_deliveries=1)}
    three = await Neighbourhood.of(few, lap="cat", mid="", rack="ann")
    await three.line("lap", "mid")
    await three.line("mid", "rack")
    await three.meet()
    three.link("mid", "rack").cut = True
    sent = [await three["lap"].send("cat", "ann", word) for word in "12"]
    await three.run()
    assert [await three["lap"].state(each) for each in sent] == [State.FORWARDED, State.QUEUED]
    three.link("mid", "rack").cut = False
    await three.run()
    await three["rack"].ack(await three["rack"].take_one("ann"))
    await three.run()
    await three.pass_time(6)
    await three.run()
    assert await three["rack"].told("ann") == [("cat@lap", "1"), ("cat@lap", "2")]


# ------------------------------------------------------------------------------------------- gateways behind other hubs


async def test_an_agent_behind_a_gateway_is_asked_from_another_hub(three: Neighbourhood) -> None:
    lap, mid = three["lap"], three["mid"]
    await mid.push("desktop", OPS, MAIA)
    await three.meet()
    assert {"ops@vps-1", "hermes@desktop-mid"} <= set(lap.shown())  # "desktop" is nobody's name
    for to in ("ops", "maia"):
        await lap.send("cat", to, f"well, {to}?", intent="request")
    await three.run()
    offered = await take_there(three)
    assert [(each.target_connection, each.target_profile) for each in offered] == [
        ("vps-1", "ops"),
        ("local", "default"),
    ]
    for each in offered:
        await settle_far(mid.bus, each.id, f"{each.target_profile} is", None, None)
    await three.run()
    assert await lap.told("cat") == [("ops@vps-1", "ops is"), ("hermes@desktop-mid", "default is")]


async def test_a_gateways_failure_reaches_another_hub(three: Neighbourhood) -> None:
    await three["mid"].push("desktop", OPS)
    await three.meet()
    await three["lap"].send("cat", "ops", intent="request")
    await three.run()
    (offered,) = await take_there(three)
    await settle_far(three["mid"].bus, offered.id, None, "out of funds", "provider_quota_limit")
    await three.run()
    (notice,) = await three["lap"].notices("cat")
    assert notice.reason == "provider_quota_limit"
    assert "out of funds" in (notice.text or "")


async def test_what_a_gateway_would_cut_is_refused_before_it(three: Neighbourhood) -> None:
    lap, mid = three["lap"], three["mid"]
    await mid.push("desktop", OPS)
    await three.meet()
    most, more = "é" * 16_000, "x" * 16_001
    await lap.send("cat", "ops", most, intent="request")
    sent = await lap.send("cat", "ops", more, intent="request")
    await three.run()
    row = await lap.row(sent)
    assert (row.state, row.reason) == (State.FAILED, Reason.TOO_LARGE)
    assert [each.message.endswith(most) for each in await take_there(three)] == [True]


async def test_one_that_its_gateway_calls_offline_is_refused(three: Neighbourhood) -> None:
    lap, mid = three["lap"], three["mid"]
    await mid.push("desktop", OPS)
    await three.meet()
    await lap.send("cat", "ops", intent="request")
    await mid.push("desktop", {**OPS, "online": False})
    await three.run()
    assert [n.reason for n in await lap.notices("cat")] == ["runtime_offline"]
    await three.meet()
    assert lap.shown()["ops@vps-1"] is False


async def test_two_of_one_handle_behind_a_gateway_are_each_reached_and_answer(three: Neighbourhood) -> None:
    lap, mid = three["lap"], three["mid"]
    twins = [{"profile": name, "handle": "bot", "connection_id": "vps-1"} for name in ("dev", "ops")]
    await mid.push("desktop", *twins)
    await three.meet()
    assert {"dev@vps-1", "ops@vps-1"} <= set(lap.shown())
    await lap.send("cat", "ops@vps-1", intent="request")
    await three.run()
    (offered,) = await take_there(three)
    assert offered.target_profile == "ops"
    await settle_far(mid.bus, offered.id, "done", None, None)
    await three.run()
    assert await lap.told("cat") == [("ops@vps-1", "done")]


async def test_an_agent_behind_a_gateway_asks_one_at_another_hub(three: Neighbourhood) -> None:
    """What a relay hands in under its own name goes on, and its answer comes back to that relay."""
    lap, mid = three["lap"], three["mid"]
    await mid.push("desktop", OPS)
    sent = await mid.send("ops@vps-1", "cat@lap", "well?", intent="request")
    await three.run()
    (parcel,) = await lap.mailbox("cat")
    assert parcel.envelope.sender == "ops@vps-1"
    await lap.answer("cat", sent.envelope, "well")
    await three.run()
    assert [(p.envelope.kind, p.envelope.text) for p in await mid.mailbox("ops@vps-1")] == [(Kind.REPLY, "well")]
    assert await lap.state(sent) is State.ANSWERED


async def test_a_gateway_of_one_name_at_two_hubs_is_two(three: Neighbourhood) -> None:
    lap = three["lap"]
    for name, profile in (("mid", "ops"), ("rack", "dev")):
        await three[name].push("desktop", {"profile": profile, "connection_id": "vps-1"})
    await three.meet()
    shown = lap.shown()
    ours = sorted(name for name in shown if name.startswith(("ops@", "dev@")))
    assert len({name.partition("@")[2] for name in ours}) == 2
    for to, at in (("ops", "mid"), ("dev", "rack")):
        await lap.send("cat", to)
        await three.run()
        drained = await drain(three[at].bus, "desktop")
        assert [each.target_profile for each in drained.envelopes] == [to]


async def test_an_answer_that_was_made_up_on_the_way_is_nobodys(three: Neighbourhood) -> None:
    """The rack can answer what the rack was asked, whatever it calls itself."""
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    asked = await lap.send("cat", "max@mid", intent="request")
    other = await lap.send("cat", "ann@rack", intent="request")
    await three.run()
    await rack.answer("ann", other.envelope)
    (parcel,) = await three.link("rack", "mid").take()
    item = msgspec.to_builtins(rack.item(parcel))
    lies = [
        forge(item, in_reply_to=asked.envelope.id, **{"from": {"handle": "max", "hub": hub}})
        for hub in (mid.me, rack.me)
    ]
    assert {answer.code for answer in await mid.arrive("rack", *lies)} == {"bad_request", "unknown_message"}
    assert await lap.state(asked) is State.FORWARDED


# --------------------------------------------------------------------------------------------------- whatever happens

HUBS = ("lap", "mid", "rack")
WAYS = (("lap", "mid"), ("mid", "lap"), ("mid", "rack"), ("rack", "mid"))
STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([("cat", "lap", "ann"), ("ann", "rack", "cat"), ("max", "mid", "ann")])),
    st.tuples(st.sampled_from(["carry", "lose", "crash", "tell", "half", "up", "down"]), st.sampled_from(WAYS)),
    st.tuples(st.sampled_from(["restart", "answer"]), st.sampled_from(HUBS)),
)


@settings(max_examples=12)
@given(st.lists(STEPS, max_size=25))
def test_nothing_is_lost_nothing_comes_twice_and_every_request_settles(steps: list[tuple[str, Any]]) -> None:
    """Lines lose answers, come up, go down and are full, hubs die between any two steps, outcomes come when they like:
    at the end all is as if nothing had happened, the order too."""

    async def follow() -> None:
        three = await Neighbourhood.of(lap="cat", mid="max", rack="ann")
        await three.line("lap", "mid")
        await three.line("mid", "rack")
        await three.meet()
        asked: list[tuple[str, str, str, str]] = []
        for what, which in steps:
            await _step(three, asked, what, which)
        for name in HUBS:
            await _restart(three, name)
        await three.run()
        for name in HUBS * 2:
            await _answer(three, name)
            await three.run()
        at = {"cat": "lap", "max": "mid", "ann": "rack"}
        for name, agent in (("lap", "cat"), ("mid", "max"), ("rack", "ann")):
            there = [p.envelope for p in await three[name].mailbox(agent, *State)]
            assert len({envelope.id for envelope in there}) == len(there)
            got = [envelope for envelope in there if envelope.kind is Kind.MESSAGE]
            for sender in at:
                came = [envelope.id for envelope in got if envelope.sender.partition("@")[0] == sender]
                assert came == [id for id, name, _, to in asked if (name, to) == (sender, agent)]
            answers = sorted(envelope.in_reply_to or "" for envelope in there if envelope.kind is Kind.REPLY)
            assert answers == sorted(id for id, sender, _, _ in asked if sender == agent)
        for id, _, home, to in asked:
            for name in {home, "mid", at[to]}:
                assert {row.state for row in await three[name].rows(id)} == {State.ANSWERED}
        await _read_all(three)
        await three.run()
        for name in HUBS:
            for other in HUBS:
                assert await owed(three[name].bus, other) == []

    asyncio.run(follow())


async def _step(three: Neighbourhood, asked: list[tuple[str, str, str, str]], what: str, which: Any) -> None:
    if what == "send":
        sender, home, to = which
        sent = await three[home].send(sender, to, intent="request")
        asked.append((sent.envelope.id, sender, home, to))
        return
    if what == "restart":
        await _restart(three, which)
        return
    if what == "answer":
        await _answer(three, which)
        return
    link = three.link(*which)
    if what == "tell":
        await link.tell_outcomes()
        return
    if what == "half":
        await link.carry(1)
        return
    if what in ("up", "down"):
        link.down()
        if what == "up":
            await link.up(window=2)
        return
    if what == "crash":  # the other side has it, and this hub dies before it hears so
        items = [item for parcel in await link.take() if (item := link.near.item(parcel)) is not None]
        await link.far.arrive(link.far_name, *map(msgspec.to_builtins, items))
        await _restart(three, which[0])
        return
    link.lose = what == "lose"
    await link.carry()


async def _restart(three: Neighbourhood, name: str) -> None:
    await three[name].reopen()
    for link in three.links:
        if link.near is three[name]:
            link.down(died=True)
    for connection in three[name].bus.neighbours.connections:
        three[name].bus.neighbours.set_up(connection, up=True)


async def _answer(three: Neighbourhood, name: str) -> None:
    agent = {"lap": "cat", "mid": "max", "rack": "ann"}[name]
    for parcel in await three[name].mailbox(agent):
        if parcel.envelope.kind is Kind.MESSAGE:
            await three[name].answer(agent, parcel.envelope)


async def _read_all(three: Neighbourhood) -> None:
    for name, agent in (("lap", "cat"), ("mid", "max"), ("rack", "ann")):
        for parcel in await three[name].take(agent):
            await three[name].ack(parcel)


async def test_no_neighbour_gets_a_name_that_a_desktop_uses() -> None:
    """Else answers to who wrote under it would go to another machine."""
    far, rack = "c" * 32, "a" * 32
    hub = await LinkedHub.start("lap", 1, FakeClock(), "ann")
    await hub.connect("rack", rack)
    await hub.push("mac", {"profile": "ops", "connection_id": "vps-1"})
    asked = await hub.send("ops@vps-1", "ann", intent="request")
    await hub.push("mac")
    await hub.learn("rack", [{"handle": "ops", "hub": far, "name": "vps-1", "way": [far, rack]}])
    assert sorted(hub.shown()) == ["ops@vps-1-rack"]
    assert (await hub.answer("ann", asked.envelope)).deliveries[0].connection is None
    assert hub.bus.neighbours.is_taken("MAC")


async def test_a_name_that_a_hub_had_by_another_way_still_means_it() -> None:
    far, rack = "c" * 32, "a" * 32
    hub = await LinkedHub.start("lap", 1, FakeClock(), "ann")
    await hub.connect("rack", rack)
    await hub.learn("rack", [{"handle": "zed", "hub": far, "name": "attic", "way": [far, rack]}])
    await hub.connect("direct", far)
    await hub.learn("direct", [{"handle": "zed", "hub": far, "name": "attic", "way": [far]}])
    for to in ("zed@attic", "zed@direct", "zed"):
        assert (await hub.send("ann", to)).deliveries[0].to == "zed@direct"


async def test_our_own_name_is_here() -> None:
    """``ann@lap``, as others call her, is ann to whoever is here."""
    hub = await LinkedHub.start("lap", 1, FakeClock(), "ann", "bob")
    assert (await hub.send("bob", "ann@LAP")).deliveries[0].mailbox == "ann"
