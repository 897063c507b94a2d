"""Hubs that meet again after one of them was put back to a copy, or their connection was made anew: what was handed
over goes again, whatever waits beside it, and answers find who asked by whatever way is left.

What must stay true: a hub that was put back is one whose rows are gone, and whose store says another epoch; the links
do the rest.
"""

from typing import Any

import msgspec
import pytest

from angelia.bus.carry import AT_ONCE, fail_waiting, forwarded, given_back, take
from angelia.bus.draft import Accepted
from angelia.bus.neighbours import MOST_FORMER, Meeting
from angelia.bus.outcomes import have_met
from angelia.bus.way_back import way_back
from angelia.model.connection import Connection
from angelia.model.delivery import State
from angelia.model.envelope import Envelope, Kind
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from tests.fakes.two_hubs import LinkedHub, Neighbourhood, forge

REMOVED = "The connection to it was removed."
OTHER_HUB = "e" * 32


@pytest.fixture
async def two() -> Neighbourhood:
    return await (await (await Neighbourhood.of(lap="bob cat", rack="ann dev")).line("lap", "rack")).meet()


@pytest.fixture
async def three() -> Neighbourhood:
    """A laptop and a rack, which know each other by a hub in the middle alone."""
    found = await Neighbourhood.of(lap="bob cat", mid="max", rack="ann")
    await found.line("lap", "mid")
    await found.line("mid", "rack")
    return await found.meet()


async def forget(hub: LinkedHub, *messages: Accepted | str) -> None:
    """As if it had been put back to before these."""
    for each in messages:
        rows = await hub.rows(each)
        await hub.bus.store.write(lambda tx, rows=rows: tx.remove(rows))  # type: ignore[misc]


async def meet(hub: LinkedHub, name: str, epoch: str, far: str | None = None) -> None:
    """The link ``name`` comes up; the store there says this epoch. ``far``: which hub is there."""
    connection = hub.bus.neighbours.require(name)
    meeting = Meeting(far or connection.hub or "", hub.bus.store.epoch, epoch)
    await have_met(hub.bus, connection, meeting)


async def handed_over(lap: LinkedHub, count: int, **more: Any) -> list[Accepted]:
    """So many messages that the rack has, as far as is known here."""
    sent = [await lap.send("bob", "ann@rack", str(number), **more) for number in range(count)]
    while parcels := await take(lap.bus, "rack", 100, 0):
        forwarded(lap.bus, parcels)
    await lap.commit()
    return sent


async def states(hub: LinkedHub, sent: list[Accepted]) -> set[State]:
    return {await hub.state(each) for each in sent}


async def rename(hub: LinkedHub, old: str, new: str, far: LinkedHub) -> Connection:
    """The owner of ``hub`` gives a connection up, and makes one to the same hub under another name."""
    bus = hub.bus
    gone = bus.neighbours.require(old)
    await bus.store.write(lambda tx: bus.neighbours.remove(tx, gone, hub.clock.now()))
    await fail_waiting(bus, gone.id, REMOVED)
    await hub.clock.advance(1)
    return await hub.connect(new, far.me)


async def replies(hub: LinkedHub, agent: str) -> list[tuple[str, str | None]]:
    """Who answered an agent, and what."""
    there = [p.envelope for p in await hub.mailbox(agent, *State) if p.envelope.kind is Kind.REPLY]
    return [(envelope.sender, envelope.text) for envelope in there]


async def read_all(hub: LinkedHub, agent: str) -> None:
    for parcel in await hub.take(agent):
        await hub.ack(parcel)


# ------------------------------------------------------------------------------------------------- all of it goes again


async def test_all_that_was_forwarded_goes_again_however_much_it_is(two: Neighbourhood) -> None:
    lap = two["lap"]
    sent = await handed_over(lap, AT_ONCE * 2 + 1)
    await meet(lap, "rack", "the copy")
    assert await states(lap, sent) == {State.QUEUED}


async def test_what_was_forwarded_goes_again_whatever_waits_before_it(two: Neighbourhood) -> None:
    lap = two["lap"]
    waiting = [await lap.send("bob", "ann@rack", str(number)) for number in range(AT_ONCE + 1)]
    while parcels := await take(lap.bus, "rack", 100, 0):
        given_back(lap.bus, parcels, used=True, delay=3000.0)  # not due: as what a full mailbox keeps
    await lap.commit()
    sent = await handed_over(lap, 1, intent="request")
    await meet(lap, "rack", "the copy")
    assert await states(lap, [*waiting, *sent]) == {State.QUEUED}


async def test_a_connection_that_ends_takes_all_with_it_however_much_it_is(two: Neighbourhood) -> None:
    lap = two["lap"]
    sent = await handed_over(lap, AT_ONCE + 1)
    later = await lap.send("bob", "ann@rack")
    await fail_waiting(lap.bus, "rack", REMOVED)
    assert await states(lap, [*sent, later]) == {State.FAILED}


# ---------------------------------------------------------------------------------------------- which hub was last met


async def test_what_was_forwarded_stays_there_where_both_are_what_they_were(two: Neighbourhood) -> None:
    lap = two["lap"]
    await meet(lap, "rack", "one")
    sent = await handed_over(lap, 1)
    await meet(lap, "rack", "one")
    assert await states(lap, sent) == {State.FORWARDED}
    await lap.reopen()
    await meet(lap, "rack", "one")
    assert await states(lap, sent) == {State.FORWARDED}
    await meet(lap, "rack", "two")
    assert await states(lap, sent) == {State.QUEUED}


@pytest.mark.parametrize("known", [True, False])
async def test_a_connection_that_is_made_anew_forgets_nothing_of_that(two: Neighbourhood, known: bool) -> None:
    """Paired anew after a restore, say: under the same name, with another key, and perhaps to another address."""
    lap, rack = two["lap"], two["rack"]
    await meet(lap, "rack", "one")
    sent = await handed_over(lap, 1)
    await lap.connect("rack", rack.me if known else None, target="ws://elsewhere", key=b"another")
    await lap.reopen()
    await meet(lap, "rack", "two", rack.me)
    assert await states(lap, sent) == {State.QUEUED}


async def test_where_nobody_knows_what_was_there_before_it_goes_again(two: Neighbourhood) -> None:
    sent = await handed_over(two["lap"], 1)
    await meet(two["lap"], "rack", "one")
    assert await states(two["lap"], sent) == {State.QUEUED}


@pytest.mark.parametrize("known", [True, False])
async def test_another_hub_gets_nothing_of_what_was_for_the_one_before(two: Neighbourhood, known: bool) -> None:
    lap = two["lap"]
    await meet(lap, "rack", "one")
    sent = await handed_over(lap, 1, intent="request")
    waits = await lap.send("bob", "ann@rack", intent="request")
    await lap.connect("rack", OTHER_HUB if known else None, target="ws://elsewhere")
    await meet(lap, "rack", "one", OTHER_HUB)
    assert await states(lap, [*sent, waits]) == {State.FAILED}
    told = {notice.about: notice.reason for notice in await lap.notices("bob")}
    assert told == {sent[0].envelope.id: "connection_gone", waits.envelope.id: "runtime_offline"}


async def test_one_that_was_removed_is_met_as_if_for_the_first_time(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    await meet(lap, "rack", "one")
    await rename(lap, "rack", "rack", rack)
    assert lap.bus.neighbours.met == {}
    await lap.reopen()
    assert lap.bus.neighbours.met == {}


# ------------------------------------------------------------------------------------- answers to what was forgotten


async def test_an_answer_that_was_refused_goes_again_once_its_question_does(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", "where?", intent="request")
    await two.run()
    await forget(lap, sent)
    answer = await rack.answer("ann", sent.envelope, "here")
    await two.run()
    row = await rack.row(answer)
    assert (row.state, row.reason) == (State.DEAD, Reason.QUESTION_UNKNOWN)
    await lap.send("bob", "ann@rack", "where?", intent="request", id=sent.envelope.id)
    await two.run()
    assert await lap.state(sent) is State.ANSWERED
    assert await replies(lap, "bob") == [("ann@rack", "here")]
    assert await rack.state(answer) is State.FORWARDED
    await read_all(lap, "bob")
    await two.run()
    assert await rack.state(answer) is State.DELIVERED


async def asked_by_the_middle(three: Neighbourhood) -> Accepted:
    """A question of the laptop's that the rack has, and the middle has forgotten."""
    sent = await three["lap"].send("bob", "ann@rack", "where?", intent="request")
    await three.run()
    await forget(three["mid"], sent)
    return sent


async def test_a_hub_between_that_has_forgotten_the_question_hands_the_answer_on(three: Neighbourhood) -> None:
    sent = await asked_by_the_middle(three)
    answer = await three["rack"].answer("ann", sent.envelope, "here")
    await three.run()
    assert await three["lap"].state(sent) is State.ANSWERED
    assert await replies(three["lap"], "bob") == [("ann@rack", "here")]
    await read_all(three["lap"], "bob")
    await three.run()
    assert await three["rack"].state(answer) is State.DELIVERED
    assert await three["mid"].state(answer) is State.DELIVERED


async def test_an_answer_comes_by_its_question_where_no_way_was_left(three: Neighbourhood) -> None:
    """The hub between was put back to before it knew either: the answer is refused, and told again."""
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    sent = await asked_by_the_middle(three)
    known = mid.bus.neighbours.require("lap")
    await mid.bus.store.write(lambda tx: mid.bus.neighbours.learn(tx, known, [], mid.clock.now()))
    answer = await rack.answer("ann", sent.envelope, "here")
    await three.link("rack", "mid").carry()
    assert await rack.state(answer) is State.DEAD
    await three.meet()
    await meet(lap, "mid", "the copy")
    await three.run()
    assert await lap.state(sent) is State.ANSWERED
    assert await replies(lap, "bob") == [("ann@rack", "here")]
    assert await rack.state(answer) is State.FORWARDED


async def test_an_answer_that_is_known_at_the_end_is_a_repeat_whatever_was_forgotten_between(
    three: Neighbourhood,
) -> None:
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    sent = await lap.send("bob", "ann@rack", "where?", intent="request")
    await three.run()
    answer = await rack.answer("ann", sent.envelope, "here")
    await three.run()
    assert await rack.state(answer) is State.FORWARDED
    await forget(mid, sent, answer)
    for hub, name in ((rack, "mid"), (lap, "mid")):
        await meet(hub, name, "the copy")
    await three.run()
    assert await rack.state(answer) is State.FORWARDED
    assert await replies(lap, "bob") == [("ann@rack", "here")]
    await read_all(lap, "bob")
    await three.run()
    assert await rack.state(answer) is State.DELIVERED


async def test_an_answer_to_what_nobody_asked_goes_no_further_than_where_that_is_known(three: Neighbourhood) -> None:
    """The middle has forgotten, and so has the laptop: it says so, and that comes back."""
    sent = await asked_by_the_middle(three)
    await forget(three["lap"], sent)
    answer = await three["rack"].answer("ann", sent.envelope)
    await three.run()
    assert await replies(three["lap"], "bob") == []
    row = await three["rack"].row(answer)
    assert (row.state, row.reason) == (State.DEAD, Reason.QUESTION_UNKNOWN)


@pytest.mark.parametrize(
    ("at", "more", "code"),
    [
        ("rack", {"accept": ()}, "not_allowed"),
        ("rack", {"share": ("max",)}, "unknown_agent"),
        ("lap", {"hub": None}, "unknown_agent"),
    ],
)
async def test_who_may_not_write_there_hands_no_answer_on_either(
    three: Neighbourhood, at: str, more: dict[str, Any], code: str
) -> None:
    mid, rack = three["mid"], three["rack"]
    sent = await asked_by_the_middle(three)
    await rack.answer("ann", sent.envelope)
    (parcel,) = await three.link("rack", "mid").take()
    await mid.connect(**{"name": at, "hub": three[at].me, **more})
    (stored,) = await mid.arrive("rack", msgspec.to_builtins(rack.item(parcel)))
    assert stored.code == code


async def test_an_answer_to_what_was_forgotten_waits_for_room_like_any_message() -> None:
    three = await Neighbourhood.of({"mid": Limits(mailbox_deliveries=1)}, lap="bob", mid="max", rack="ann")
    await three.line("lap", "mid")
    await three.line("mid", "rack")
    await three.meet()
    sent = await asked_by_the_middle(three)
    await three["mid"].send("max", "bob@lap")
    await three["rack"].answer("ann", sent.envelope)
    (parcel,) = await three.link("rack", "mid").take()
    (stored,) = await three["mid"].arrive("rack", msgspec.to_builtins(three["rack"].item(parcel)))
    assert stored.code == "mailbox_full"


# ------------------------------------------------------------------------------------- the same hub by another name


async def test_an_answer_comes_home_though_its_hub_is_called_otherwise_since(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", "where?", intent="request")
    await two.run()
    await rename(lap, "rack", "attic", rack)
    assert [notice.reason for notice in await lap.notices("bob")] == ["connection_gone"]
    two.link("lap", "rack").name = two.link("rack", "lap").far_name = "attic"
    answer = await rack.answer("ann", sent.envelope, "here")
    await two.run()
    (parcel,) = [p for p in await lap.mailbox("bob") if p.envelope.kind is Kind.REPLY]
    assert (parcel.envelope.sender, parcel.envelope.text, parcel.delivery.late) == ("ann@rack", "here", True)
    assert await rack.state(answer) is State.FORWARDED
    back = await lap.answer("bob", parcel.envelope, "thanks")  # and whoever got it can answer
    await two.run()
    assert await lap.state(back) is State.FORWARDED
    assert await replies(rack, "ann") == [("bob@lap", "thanks")]


async def test_whoever_was_asked_answers_by_the_name_that_the_asking_hub_has_now(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await lap.send("bob", "ann@rack", intent="request")
    await two.run()
    await rename(rack, "lap", "bag", lap)
    two.link("rack", "lap").name = two.link("lap", "rack").far_name = "bag"
    await rack.reopen()
    rack.bus.neighbours.set_up("bag", up=True)
    await rack.answer("ann", sent.envelope, "here")
    await two.run()
    assert await lap.state(sent) is State.ANSWERED
    assert await replies(lap, "bob") == [("ann@rack", "here")]


async def test_a_hub_between_carries_an_answer_from_one_that_is_called_otherwise_since(three: Neighbourhood) -> None:
    lap, mid, rack = (three[name] for name in ("lap", "mid", "rack"))
    sent = await lap.send("bob", "ann@rack", intent="request")
    await three.run()
    await rename(mid, "rack", "attic", rack)
    three.link("mid", "rack").name = three.link("rack", "mid").far_name = "attic"
    await rack.answer("ann", sent.envelope, "here")
    await three.run()
    assert await replies(lap, "bob") == [("ann@rack", "here")]


async def an_answer(two: Neighbourhood) -> Any:
    """Of ann's to bob's question, as it would go over the line."""
    sent = await two["lap"].send("bob", "ann@rack", intent="request")
    await two.run()
    await two["rack"].answer("ann", sent.envelope)
    (parcel,) = await two.link("rack", "lap").take()
    return msgspec.to_builtins(two["rack"].item(parcel))


async def test_nobody_answers_under_the_name_of_a_hub_that_was_asked_before_it(two: Neighbourhood) -> None:
    """Its name was given up and is another hub's now, which knows the id of a question that was not for it."""
    lap = two["lap"]
    item = await an_answer(two)
    other = await LinkedHub.start("other", 9, two.clock, "ann")
    await rename(lap, "rack", "rack", other)
    forged = forge(item, **{"from": {"handle": "ann", "hub": other.me}, "via": [other.me]})
    assert [stored.code for stored in await lap.arrive("rack", forged)] == ["unknown_message"]
    assert await replies(lap, "bob") == []


async def test_no_third_hub_hands_on_an_answer_to_what_did_not_go_by_it(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    item = await an_answer(two)
    box = await LinkedHub.start("box", 9, two.clock)
    await lap.connect("box", box.me)
    forged = forge(item, via=[rack.me, box.me])
    assert [stored.code for stored in await lap.arrive("box", forged)] == ["unknown_message"]
    assert [stored.code for stored in await lap.arrive("rack", item)] == [None]


async def test_names_that_were_given_up_are_remembered_up_to_a_bound(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    await rename(lap, "rack", "attic", rack)
    rows = [
        {"handle": "zed", "hub": f"{number:032x}", "name": f"h{number}", "way": [f"{number:032x}", rack.me]}
        for number in range(1, MOST_FORMER + 1)
    ]
    await lap.learn("attic", rows)
    assert str(way_back(lap.bus, "ann@rack", None)) == "ann@attic"
    await rename(lap, "attic", "cellar", rack)
    for _ in range(2):
        assert str(way_back(lap.bus, "ann@attic", None)) == "ann@cellar"
        assert way_back(lap.bus, "ann@rack", None) is None
        await lap.reopen()


def _text(envelope: Envelope) -> str:
    return envelope.text or ""


async def test_who_asked_is_told_what_is_true_and_who_only_told_is_told_nothing(two: Neighbourhood) -> None:
    lap = two["lap"]
    asked = await lap.send("bob", "ann@rack", intent="request")
    told = await lap.send("cat", "ann@rack", intent="inform")
    await two.run()
    waits = await lap.send("cat", "ann@rack", intent="inform")
    await fail_waiting(lap.bus, "rack", REMOVED)
    (notice,) = await lap.notices("bob")
    assert notice.about == asked.envelope.id
    assert "was handed to the hub there" in _text(notice)
    assert "no answer came in time" not in _text(notice)
    assert _text(notice).endswith(REMOVED)
    assert await lap.notices("cat") == []
    assert [(await lap.row(each)).reason for each in (told, waits)] == [Reason.CONNECTION_GONE, Reason.RUNTIME_OFFLINE]
