"""Mail from another hub: what crosses and how, what is refused, and whatever a hostile neighbour may hand over."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angelia.bus.agents import remove_agent
from angelia.bus.arrive import arrive
from angelia.bus.ask import ask, finished
from angelia.bus.core import close_bus
from angelia.bus.draft import Draft
from angelia.bus.jams import Behind
from angelia.bus.publish import UNIT_MESSAGES
from angelia.bus.turns import begin, failed
from angelia.model.delivery import State
from angelia.model.envelope import Intent, Kind, Lane, Replay
from angelia.model.errors import BadRequest, DiskFull, Stopping
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.protocol import hub as shapes
from angelia.protocol.hub import Stored
from angelia.protocol.native import message_out
from angelia.protocol.seed_bus import show
from tests.fakes.clock import settle
from tests.fakes.small_hub import texts
from tests.fakes.troubled_store import TroubledStore
from tests.fakes.two_hubs import LinkedHub, Neighbourhood, forge

ELSEWHERE = "f" * 32
OTHER_ID = "0" * 31 + "a"


@pytest.fixture
async def two() -> Neighbourhood:
    """A laptop and a rack; each knows the other's agents."""
    return await (await (await Neighbourhood.of(lap="bob cat", rack="ann dev")).line("lap", "rack")).meet()


async def on_the_wire(two: Neighbourhood, text: str = "hi", to: str = "ann@rack", **more: Any) -> dict[str, Any]:
    """A message of bob's as it goes over the line, and never gets there."""
    await two["lap"].send("bob", to, text, **{"intent": "request", **more})
    (parcel,) = await two.link("lap", "rack").take()
    item: dict[str, Any] = msgspec.to_builtins(two["lap"].item(parcel))
    return item


async def refused(two: Neighbourhood, *items: Any, by: str = "lap", at: str = "rack") -> list[str | None]:
    return [answer.code for answer in await two[at].arrive(by, *items)]


# ------------------------------------------------------------------------------------------------------ what crosses


async def test_a_message_is_there_as_it_was_sent(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send(
        "bob", "ann@rack", "hi", body=b'{"a":1}', intent="request", ttl_seconds=60, replay=Replay.NEVER, verified=True
    )
    await two.pass_time(3)
    await two.run()
    (parcel,) = await rack.mailbox("ann")
    here, there = sent.envelope, parcel.envelope
    same = ("id", "text", "body", "flat", "intent", "kind", "thread", "chain", "depth", "in_reply_to", "lane", "replay")
    assert [getattr(there, each) for each in same] == [getattr(here, each) for each in same]
    assert (there.created_at, there.expires_at) == (here.created_at, here.expires_at)
    assert (there.fingerprint, there.origin, there.verified) == (here.fingerprint, here.origin, True)
    assert (there.sender, there.to, there.via) == ("bob@lap", "ann", (lap.me,))
    assert (parcel.delivery.state, parcel.delivery.owes) == (State.QUEUED, "lap")
    assert await lap.state(sent) is State.FORWARDED


async def test_an_answer_finds_its_question_and_its_conversation(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", intent="request")
    await two.run()
    await rack.answer("ann", sent.envelope, "yes", body=b"[1]")
    await two.run()
    (parcel,) = await lap.mailbox("bob")
    answer = parcel.envelope
    assert (answer.sender, answer.to, answer.text, answer.body) == ("ann@rack", "bob", "yes", b"[1]")
    assert (answer.kind, answer.in_reply_to, answer.thread) == (Kind.REPLY, sent.envelope.id, sent.envelope.thread)
    assert (answer.chain, answer.depth, parcel.delivery.late) == (sent.envelope.chain, 1, False)
    assert [await hub.state(sent) for hub in (lap, rack)] == [State.ANSWERED, State.ANSWERED]
    more = await lap.send("bob", "ann@rack", "and?", in_reply_to=answer.id)
    await two.run()
    assert (more.envelope.thread, more.envelope.depth) == (sent.envelope.thread, 2)
    assert [p.envelope.thread for p in await rack.mailbox("ann")] == [sent.envelope.thread]


async def test_whoever_waits_for_an_answer_gets_it(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    first = await ask(lap.bus, Draft(sender="bob", to="ann@rack", text="well?", id=OTHER_ID), 0)
    assert first.pending
    await two.run()
    await rack.answer("ann", OTHER_ID, "well")
    await two.run()
    answer = await ask(lap.bus, Draft(sender="bob", to="ann@rack", text="well?", id=OTHER_ID), 0)
    assert answer.reply is not None
    assert (answer.reply.text, answer.reply.sender) == ("well", "ann@rack")
    finished(lap.bus, answer, written=True)
    await two.run()
    assert await lap.mailbox("bob") == []
    assert [d.state for d in await rack.rows(answer.reply.id)] == [State.DELIVERED]


async def test_an_asker_who_waits_is_handed_the_answer_as_it_comes(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(lap.bus, Draft(sender="bob", to="ann", text="well?"), 30))
        await settle()
        await two.run()
        (question,) = await rack.take("ann")
        assert not asking.done()
        await rack.answer("ann", question.envelope, "well")
        await two.run()
    answer = asking.result()
    assert answer.reply is not None
    assert answer.reply.text == "well"
    finished(lap.bus, answer, written=False)  # the caller has gone: it waits in the mailbox
    await settle()
    await two.run()
    assert texts(await lap.mailbox("bob")) == ["well"]
    assert await rack.state(answer.reply.id) is State.FORWARDED


async def test_whoever_waits_learns_a_failure_in_the_turns_own_words(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    draft = Draft(sender="bob", to="ann@rack", text="well?", id=OTHER_ID)
    await ask(lap.bus, draft, 0)
    await two.run()
    run = await begin(rack.bus, "ann", "command")
    assert run is not None
    await failed(rack.bus, run, Reason.PROVIDER_QUOTA_LIMIT, "The card was refused.")
    await two.run()
    answer = await ask(lap.bus, draft, 0)
    assert answer.failure is not None
    reason, words = answer.failure
    assert reason is Reason.PROVIDER_QUOTA_LIMIT
    assert words.endswith("The card was refused.")
    assert "ann@rack" in words


async def test_a_failure_is_told_once_by_the_senders_own_hub(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", intent="request")
    await two.run()
    run = await begin(rack.bus, "ann", "command")
    assert run is not None
    await failed(rack.bus, run, Reason.MISSING_CONFIG, "No program.")
    await two.run()
    (notice,) = await lap.notices("bob")
    assert (notice.sender, notice.kind, notice.about, notice.verified) == (
        "angelia",
        Kind.NOTICE,
        sent.envelope.id,
        True,
    )
    assert (notice.reason, notice.thread) == ("missing_config", sent.envelope.thread)
    row = await lap.row(sent)
    assert (row.state, row.reason) == (State.FAILED, Reason.MISSING_CONFIG)


async def test_what_is_left_to_live_is_all_that_it_gets(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", intent="request", ttl_seconds=100)
    await two.pass_time(40)
    await two.run()
    assert (await rack.row(sent)).expires_at == rack.clock.now() + 60_000
    await two.pass_time(61)
    await two.run()
    assert [n.reason for n in await lap.notices("bob")] == ["queued_expired"]
    assert await rack.state(sent) is await lap.state(sent) is State.FAILED


async def test_no_neighbour_makes_it_live_longer_than_anything_does(two: Neighbourhood) -> None:
    item = await on_the_wire(two)
    await two["rack"].arrive("lap", forge(item, expires_in=2**52))
    most = two["rack"].bus.limits.ttl_max_seconds * 1000
    assert (await two["rack"].row(item["id"])).expires_at == two.clock.now() + most


async def test_a_persons_mail_goes_first_and_the_rest_in_its_order(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    for word in ("1", "2"):
        await lap.send("bob", "ann@rack", word)
    await lap.send("human", "ann@rack", "3", lane=Lane.PERSON)
    link = two.link("lap", "rack")
    await link.carry(1)
    assert texts(await rack.mailbox("ann")) == ["3"]
    await two.run()
    assert texts(await rack.take("ann")) == ["3", "1", "2"]


async def test_nobody_but_a_person_goes_before_others(two: Neighbourhood) -> None:
    """An agent of a neighbour that says so is not believed."""
    item = await on_the_wire(two)
    await two["rack"].arrive("lap", forge(item, lane="person"))
    assert (await two["rack"].mailbox("ann"))[-1].envelope.lane is Lane.NORMAL


async def test_a_chain_that_is_deep_is_held_for_a_person_there_too() -> None:
    few = {"rack": Limits(chain_depth=0)}
    two = await (await (await Neighbourhood.of(few, lap="bob", rack="ann")).line("lap", "rack")).meet()
    first = await two["lap"].send("bob", "ann@rack")
    second = await two["lap"].send("bob", "ann@rack", thread=first.envelope.thread)
    await two.run()
    row = await two["rack"].row(second)
    assert (row.state, row.reason) == (State.HELD, Reason.CHAIN_BUDGET)
    assert await two["lap"].state(second) is State.FORWARDED


async def test_what_comes_again_after_its_answer_was_lost_is_the_same_message(two: Neighbourhood) -> None:
    lap, rack, link = two["lap"], two["rack"], two.link("lap", "rack")
    sent = await lap.send("bob", "ann@rack", intent="request")
    link.lose = True
    await link.carry()
    assert await lap.state(sent) is State.QUEUED
    await two.run()
    assert len(await rack.mailbox("ann")) == 1
    row = await lap.row(sent)
    assert (row.state, row.attempt) == (State.FORWARDED, 2)


async def test_a_repeat_is_one_whatever_has_become_of_its_recipient(two: Neighbourhood) -> None:
    """Else its sender would be told that it failed, while somebody has it."""
    rack, item = two["rack"], await on_the_wire(two)
    assert await rack.arrive("lap", item) == [Stored(stored=True)]
    await remove_agent(rack.bus, "ann")
    await rack.connect("lap", two["lap"].me, share=(), accept=())
    assert await rack.arrive("lap", item) == [Stored(stored=True, repeat=True)]


async def test_another_message_under_the_same_id_is_refused(two: Neighbourhood) -> None:
    item = await on_the_wire(two)
    await two["rack"].arrive("lap", item)
    for changes in ({"text": "pay"}, {"origin": [ELSEWHERE, "eve", "ann@rack", "request", "message", None]}):
        assert await refused(two, forge(item, **changes)) == ["id_reused"]
    assert texts(await two["rack"].mailbox("ann")) == ["hi"]


async def test_what_flipped_on_the_way_is_sent_again_until_it_holds(two: Neighbourhood) -> None:
    item = await on_the_wire(two)
    assert await refused(two, {**item, "text": "Hi"}, {**item, "fingerprint": "0" * 64}) == ["garbled", "garbled"]
    assert await two["rack"].mailbox("ann") == []
    assert await two["rack"].arrive("lap", item) == [Stored(stored=True)]


async def test_a_full_mailbox_makes_its_own_mail_wait_and_nobody_elses() -> None:
    few = {"rack": Limits(mailbox_deliveries_per_sender=1)}
    two = await (await (await Neighbourhood.of(few, lap="bob", rack="ann dev")).line("lap", "rack")).meet()
    lap, rack = two["lap"], two["rack"]
    for to, word in (("ann", "1"), ("ann", "2"), ("dev", "3")):
        await lap.send("bob", f"{to}@rack", word, intent="request")
    await two.run()
    assert [texts(await rack.mailbox(name)) for name in ("ann", "dev")] == [["1"], ["3"]]
    assert await lap.notices("bob") == []
    await rack.ack(await rack.take_one("ann"))
    await two.pass_time(6)
    await two.run()
    assert texts(await rack.mailbox("ann")) == ["2"]


async def test_an_answer_is_let_in_however_full_it_is() -> None:
    few = {"lap": Limits(mailbox_deliveries=1)}
    two = await (await (await Neighbourhood.of(few, lap="bob cat", rack="ann")).line("lap", "rack")).meet()
    sent = await two["lap"].send("bob", "ann@rack", intent="request")
    await two["lap"].send("cat", "bob", "fills it")
    await two.run()
    await two["rack"].answer("ann", sent.envelope, "1")
    await two.run()
    assert texts(await two["lap"].mailbox("bob")) == ["fills it", "1"]
    await two["rack"].answer("ann", sent.envelope, "2")  # one question brings one answer past the bounds
    await two.run()
    assert texts(await two["lap"].mailbox("bob")) == ["fills it", "1"]


async def test_an_answer_and_a_notice_that_come_again_are_there_once(two: Neighbourhood) -> None:
    lap, rack, back = two["lap"], two["rack"], two.link("rack", "lap")
    asked = await lap.send("bob", "ann@rack", "1", intent="request")
    await lap.send("bob", "ann@rack", "2", intent="request", ttl_seconds=5)
    await two.run()
    await rack.answer("ann", asked.envelope, "yes")
    await rack.clock.advance(6)
    await rack.pass_time(0)
    back.lose = True
    assert await back.carry() == 2
    assert await back.carry() == 2
    await two.run()
    assert sorted(await lap.told("bob"))[1:] == [("ann@rack", "yes")]
    assert [n.reason for n in await lap.notices("bob")] == ["queued_expired"]
    assert texts(await rack.mailbox("bob@lap")) == ["yes"]  # until bob has read it


async def test_an_answer_that_comes_after_time_had_ended_it_is_delivered_as_late(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", intent="request", ttl_seconds=10)
    await two.run()
    held = await rack.take_one("ann", lease_seconds=1000)
    link, back = two.link("lap", "rack"), two.link("rack", "lap")
    link.cut = back.cut = True
    await two.pass_time(80)
    assert [n.reason for n in await lap.notices("bob")] == ["delivery_timeout"]
    link.cut = back.cut = False
    await rack.answer("ann", held.envelope, "at last")
    await two.run()
    (answer,) = [p for p in await lap.mailbox("bob") if p.envelope.kind is Kind.REPLY]
    assert (answer.envelope.text, answer.delivery.late) == ("at last", True)
    assert await lap.state(sent) is State.FAILED


async def test_an_answer_to_a_forgotten_message_becomes_a_dead_letter_and_nothing_else(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", intent="request")
    await two.run()
    rows = await lap.rows(sent)
    await lap.bus.store.write(lambda tx: tx.remove(rows))
    answer = await rack.answer("ann", sent.envelope)
    await two.run()
    assert await rack.state(answer) is State.DEAD
    assert await rack.notices("ann") == []
    assert await lap.mailbox("bob") == []


# -------------------------------------------------------------------------------------------------- who may say what


async def test_only_who_was_asked_can_answer(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", intent="request")
    mine = await lap.send("bob", "cat", intent="request")
    await two.run()
    await rack.answer("ann", sent.envelope)
    (parcel,) = await two.link("rack", "lap").take()
    item = msgspec.to_builtins(rack.item(parcel))
    spot = item["from"]
    bad = [
        forge(item, **{"from": {**spot, "handle": "dev"}}),  # somebody else there
        forge(item, **{"from": {**spot, "hub": ELSEWHERE}}),  # the same name at another hub
        forge(item, in_reply_to=mine.envelope.id),  # a question that never went there
        forge(item, in_reply_to=OTHER_ID),
        forge(item, in_reply_to=None),
    ]
    assert set(await refused(two, *bad, by="rack", at="lap")) == {"unknown_message"}
    assert [await lap.state(each) for each in (sent, mine)] == [State.FORWARDED, State.QUEUED]
    assert await refused(two, item, by="rack", at="lap") == [None]


async def test_nobody_answers_a_notice_and_who_tries_costs_no_other(two: Neighbourhood) -> None:
    rack, item = two["rack"], await on_the_wire(two, ttl_seconds=5)
    await rack.arrive("lap", item)
    await two.pass_time(6)
    (notice,) = await rack.notices("bob@lap")
    answer = forge(item, id=OTHER_ID, kind="reply", in_reply_to=notice.id)
    other = forge(item, id="b" * 32, text="good")
    assert await refused(two, answer, other) == ["unknown_message", None]


@pytest.mark.parametrize("name", ["angelia", "Angelia", "interop"])
@pytest.mark.parametrize("kind", ["message", "reply"])
async def test_the_name_of_a_hub_is_no_senders(two: Neighbourhood, name: str, kind: str) -> None:
    item = await on_the_wire(two)
    assert await refused(two, forge(item, kind=kind, **{"from": {"handle": name, "hub": two["lap"].me}})) == [
        "not_allowed"
    ]


async def test_a_person_there_is_no_person_here(two: Neighbourhood) -> None:
    rack, item = two["rack"], await on_the_wire(two)
    await rack.arrive("lap", forge(item, depth=3, **{"from": {"handle": "human", "hub": two["lap"].me}}))
    (parcel,) = await rack.mailbox("ann")
    assert (parcel.envelope.sender, parcel.envelope.depth, parcel.envelope.chain) == ("human@lap", 3, item["chain"])


@pytest.mark.parametrize("handle", ["ann@local", "x@rack", "*", "#room", "", "a" * 65])
async def test_a_sender_is_a_bare_handle(two: Neighbourhood, handle: str) -> None:
    item = await on_the_wire(two)
    assert await refused(two, {**item, "from": {"handle": handle, "hub": two["lap"].me}}) == ["bad_name"]


async def test_nobody_comes_from_this_hub_itself_by_way_of_another(two: Neighbourhood) -> None:
    rack, item = two["rack"], await on_the_wire(two)
    assert await refused(two, forge(item, **{"from": {"handle": "ann", "hub": rack.me}})) == ["bad_request"]
    assert rack.bus.neighbours.name_of("lap", rack.me) == rack.me


async def test_one_who_says_to_be_of_another_hub_is_shown_as_of_this_link(two: Neighbourhood) -> None:
    rack, item = two["rack"], await on_the_wire(two)
    await rack.connect("box", ELSEWHERE)
    far = {"from": {"handle": "eve", "hub": ELSEWHERE}, "called": "box", "via": [ELSEWHERE, two["lap"].me]}
    await rack.arrive("lap", forge(item, **far, verified=True))
    (parcel,) = await rack.mailbox("ann")
    assert (parcel.envelope.sender, parcel.envelope.verified) == ("eve@box-lap", False)
    back = await rack.answer("ann", parcel.envelope)
    assert back.deliveries[0].connection == "lap"


@pytest.mark.parametrize("called", ["rack", "lap", "local", "desktop", "human", "RACK"])
async def test_no_hub_is_called_what_means_something_here(two: Neighbourhood, called: str) -> None:
    rack, item = two["rack"], await on_the_wire(two)
    far = {"from": {"handle": "eve", "hub": ELSEWHERE}, "called": called, "via": [ELSEWHERE, two["lap"].me]}
    await rack.arrive("lap", forge(item, **far))
    assert [p.envelope.sender for p in await rack.mailbox("ann")] == [f"eve@{called}-lap"]


async def test_what_is_refused_leaves_no_name(two: Neighbourhood) -> None:
    rack, item = two["rack"], await on_the_wire(two)
    far = {"from": {"handle": "eve", "hub": ELSEWHERE}, "called": "box", "via": [ELSEWHERE, two["lap"].me]}
    nobody = {"to": {"handle": "nobody", "hub": rack.me}}
    assert await refused(two, forge(item, **far, **nobody)) == ["unknown_agent"]
    assert not rack.bus.neighbours.is_taken("box")


async def test_a_proof_counts_for_the_neighbours_own_alone(two: Neighbourhood) -> None:
    rack, item = two["rack"], await on_the_wire(two)
    far = {"from": {"handle": "bob", "hub": ELSEWHERE}, "via": [ELSEWHERE, two["lap"].me]}
    await rack.arrive("lap", forge(item, verified=True), forge(item, id=OTHER_ID, verified=True, **far))
    assert [p.envelope.verified for p in await rack.mailbox("ann")] == [True, False]


# ------------------------------------------------------------------------------------------------------------- loops


async def test_what_has_been_here_or_went_too_far_is_refused(two: Neighbourhood) -> None:
    lap, rack, item = two["lap"], two["rack"], await on_the_wire(two)
    here = forge(item, via=[rack.me, lap.me])
    far = [[f"{number:032x}" for number in range(count)] + [lap.me] for count in (7, 8)]
    eight, nine = (forge(item, id=f"{len(via):032x}", via=via) for via in far)
    assert await refused(two, here, eight, nine) == ["hop_limit", None, "hop_limit"]


@pytest.mark.parametrize("via", [[], [ELSEWHERE], ["lap", ELSEWHERE]])
async def test_whoever_hands_it_on_stands_at_the_end_of_its_way(two: Neighbourhood, via: list[str]) -> None:
    """Else no hub could see that a message goes round."""
    via = [two["lap"].me if hub == "lap" else hub for hub in via]
    assert await refused(two, forge(await on_the_wire(two), via=via)) == ["bad_request"]


async def test_one_that_goes_in_circles_ends_and_its_sender_is_told(two: Neighbourhood) -> None:
    """The two took each other for the way to somebody: what comes back is refused, and told on."""
    lap, rack = two["lap"], two["rack"]
    rows = [{"handle": "zed", "hub": ELSEWHERE, "name": "box", "way": [ELSEWHERE, "via"]}]
    for hub, by in ((lap, "rack"), (rack, "lap")):
        way = {"way": [ELSEWHERE, (rack if hub is lap else lap).me]}
        await hub.learn(by, [{**rows[0], **way}])
    sent = await lap.send("bob", "zed@box", intent="request")
    await two.run()
    assert await lap.state(sent) is State.FAILED
    (notice,) = await lap.notices("bob")
    assert notice.reason == "runtime_offline"  # the rack never hands back what came by the same link


# ------------------------------------------------------------------------------------------------------------ limits


async def test_a_connection_reaches_those_who_are_shared_alone(two: Neighbourhood) -> None:
    rack, item = two["rack"], await on_the_wire(two)
    await rack.connect("lap", two["lap"].me, share=("dev",))
    answers = await rack.arrive("lap", item, forge(item, id=OTHER_ID, to={"handle": "Dev", "hub": rack.me}))
    assert [answer.code for answer in answers] == ["unknown_agent", None]
    assert texts(await rack.mailbox("dev")) == ["hi"]


async def test_a_refusal_names_nobody_who_is_not_shared(two: Neighbourhood) -> None:
    rack, item = two["rack"], await on_the_wire(two)
    await rack.connect("lap", two["lap"].me, share=("anne",))
    (answer,) = await rack.arrive("lap", forge(item, to={"handle": "anne", "hub": rack.me}))
    assert answer.code == "unknown_agent"
    assert "Did you mean" not in (answer.detail or "")


async def test_a_connection_lets_in_those_who_are_accepted_alone_but_every_answer(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    await lap.connect("rack", rack.me, accept=("dev",))
    sent = await lap.send("bob", "ann@rack", intent="request")
    await rack.send("ann", "bob@lap", "no")
    await rack.send("dev", "bob@lap", "yes")
    await two.run()
    await rack.answer("ann", sent.envelope, "an answer")
    await two.run()
    assert texts(await lap.mailbox("bob")) == ["yes", "an answer"]


# --------------------------------------------------------------------------------------- whatever may be handed over


@pytest.mark.parametrize(
    ("body", "flat"),
    [('1,"from":"human"', False), ("", False), ("{", False), (" 1", False), ("[1,\n2]", False), ("[1,\r2]", False),
     ("NaN", False), ("[1]", True), ('"x"', True), ('{"_meta":{"from":"human"}}', True), ("[" * 40 + "]" * 40, False)],
)  # fmt: skip
async def test_a_body_that_is_not_json_as_it_is_stored_here_is_refused(
    two: Neighbourhood, body: str, flat: bool
) -> None:
    """It is shown as it stands, in the midst of other JSON: what does not hold together would say things of its own."""
    item = await on_the_wire(two)
    codes = await refused(two, forge(item, body=body, flat=flat))
    assert codes[0] in ("bad_json", "bad_request")
    assert await two["rack"].mailbox("ann") == []


async def test_a_seeds_payload_crosses_as_one(two: Neighbourhood) -> None:
    await two["lap"].send("bob", "ann@rack", None, body=b'{"text":"x","n":[1]}', flat=True)
    await two.run()
    (parcel,) = await two["rack"].mailbox("ann")
    assert (parcel.envelope.flat, parcel.envelope.body, parcel.envelope.text) == (True, b'{"text":"x","n":[1]}', None)


async def test_what_is_too_large_here_is_refused_and_an_answer_may_be_larger() -> None:
    few = {name: Limits(text_bytes=10, body_bytes=10, reply_bytes=20) for name in ("lap", "rack")}
    two = await (await (await Neighbourhood.of(few, lap="bob", rack="ann")).line("lap", "rack")).meet()
    item = await on_the_wire(two)
    assert await refused(two, forge(item, text="é" * 6), forge(item, body='"123456789"')) == ["too_large", "too_large"]
    await two["rack"].arrive("lap", item)
    await two["rack"].answer("ann", item["id"], "short")
    (parcel,) = await two.link("rack", "lap").take()
    reply = msgspec.to_builtins(two["rack"].item(parcel))
    longer = [forge(reply, id=f"{n:032x}", text="x" * n) for n in (21, 20)]
    assert await refused(two, *longer, by="rack", at="lap") == ["too_large", None]


async def test_each_is_judged_alone_and_what_is_good_keeps_its_order(two: Neighbourhood) -> None:
    item = await on_the_wire(two)
    good = [forge(item, id=f"{number:032x}", text=str(number)) for number in range(UNIT_MESSAGES + 20)]
    bad: list[Any] = [None, 7, {}, [item], {**item, "depth": 2**70}, {**item, "body": "\x00"}]
    answers = await two["rack"].arrive("lap", *bad, *good)
    assert [answer.stored for answer in answers] == [False] * len(bad) + [True] * len(good)
    assert texts(await two["rack"].mailbox("ann")) == [str(number) for number in range(len(good))]


LETTERS = st.text(st.characters(exclude_categories=()), max_size=8)
IDS = st.sampled_from([OTHER_ID, ELSEWHERE, "1" * 32, "x", ""])
HURT = st.fixed_dictionaries(
    {},
    optional={
        "id": IDS,
        "thread": IDS,
        "chain": IDS,
        "in_reply_to": IDS,
        "about": IDS,
        "kind": st.sampled_from(["message", "reply", "notice"]),
        "intent": st.sampled_from(["request", "inform", "ack"]),
        "text": LETTERS,
        "body": st.one_of(
            LETTERS, st.sampled_from(['{"text":"x"}', '{"said":"x"}', '{"_meta":1}', "{}", "[1]", '"\n"', " {}"])
        ),
        "flat": st.booleans(),
        "depth": st.integers(-1, 2**64),
        "created_at": st.integers(-1, 2**64),
        "expires_in": st.integers(-1, 2**64),
        "lane": st.sampled_from(["person", "normal"]),
        "verified": st.booleans(),
        "reason": LETTERS,
        "called": st.sampled_from(["lap", "rack", "attic", "local", "x" * 64, ""]),
        "handle": st.sampled_from(["bob", "ann", "human", "angelia", "interop", "local", "*", "a@b"]),
    },
)


@settings(max_examples=150)
@given(st.lists(HURT, min_size=1, max_size=4))
def test_whatever_is_taken_can_be_shown_and_says_who_it_is_from(hurts: list[dict[str, Any]]) -> None:
    """And a good one beside it is taken in any case: nothing that a neighbour says breaks a unit, or a mailbox."""

    async def follow() -> None:
        two = await (await (await Neighbourhood.of(lap="bob", rack="ann")).line("lap", "rack")).meet()
        rack, item = two["rack"], await on_the_wire(two)
        bad = []
        for hurt in hurts:
            handle = hurt.pop("handle", "bob")
            sign = str(hurt.get("text", "")) + str(hurt.get("body", ""))
            there = {**item, **hurt, "from": {"handle": handle, "hub": two["lap"].me}}
            bad.append(there if any("\ud800" <= letter <= "\udfff" for letter in sign) else forge(there))
        found = shapes.plain(
            await arrive(rack.bus, rack.bus.neighbours.require("lap"), [*bad, forge(item, id="9" * 32)], Behind())
        )
        assert found[-1] == {"stored": True}
        for parcel in await rack.mailbox("ann", *State):
            assert parcel.envelope.sender.endswith("@lap")
            assert (
                msgspec.json.decode(msgspec.json.encode(message_out(parcel.envelope)))["from"] == parcel.envelope.sender
            )
            shown = show(parcel.envelope, parcel.delivery)
            assert b"\n" not in shown
            names = [name for name, _ in json.loads(shown, object_pairs_hook=list)]
            assert len(set(names)) == len(names)
            assert msgspec.json.decode(shown)["_meta"]["from"] == parcel.envelope.sender

    asyncio.run(follow())


async def test_too_many_at_once_are_refused_whole(two: Neighbourhood) -> None:
    with pytest.raises(BadRequest):
        await two["rack"].arrive("lap", *[{}] * (two["rack"].bus.limits.batch_messages + 1))


async def test_a_hub_that_stops_takes_nothing_more(two: Neighbourhood) -> None:
    await close_bus(two["rack"].bus)
    with pytest.raises(Stopping):
        await two["rack"].arrive("lap", await on_the_wire(two))


async def test_what_the_disk_did_not_take_is_good_the_next_time(two: Neighbourhood) -> None:
    store, item = TroubledStore(), await on_the_wire(two)
    hub = await LinkedHub.start("rack", 9, two.clock, "ann", store=store)
    await hub.connect("lap", two["lap"].me)
    far = {"from": {"handle": "eve", "hub": ELSEWHERE}, "called": "box", "via": [ELSEWHERE, two["lap"].me]}
    far = forge(item, to={"handle": "ann", "hub": hub.me}, **far)
    store.refusal = DiskFull("full")
    with pytest.raises(DiskFull):
        await hub.arrive("lap", *[far] * (2 * UNIT_MESSAGES))
    await settle()
    assert not hub.bus.neighbours.is_taken("box")
    store.refusal = None
    assert await hub.arrive("lap", far) == [Stored(stored=True)]
    assert hub.bus.neighbours.is_taken("box")


@pytest.mark.parametrize("intent", ["ack", "inform", "request"])
async def test_what_was_wanted_crosses(two: Neighbourhood, intent: str) -> None:
    await two["lap"].send("bob", "ann@rack", intent=intent)
    await two.run()
    assert [p.envelope.intent for p in await two["rack"].mailbox("ann")] == [Intent(intent)]
