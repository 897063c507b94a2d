"""What becomes of mail that crossed: told once, by exactly one way, whenever it is heard of."""

import pytest

from angelia.bus.caller import ADMIN
from angelia.bus.cancel import cancel, requeue
from angelia.bus.carry import forwarded, given_back
from angelia.bus.draft import Accepted
from angelia.bus.moves import owed_key
from angelia.bus.outcomes import AT_ONCE, far_outcomes, outcome_of, owe_again, owed, told
from angelia.bus.turns import begin, failed
from angelia.model.delivery import Delivery, State
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.protocol.hub import Outcome
from tests.fakes.two_hubs import LinkedHub, Neighbourhood

FEW = Limits(reader_attempts=1, turn_attempts=1)


@pytest.fixture
async def two() -> Neighbourhood:
    return await (await (await Neighbourhood.of({"rack": FEW}, lap="bob", rack="ann")).line("lap", "rack")).meet()


async def cross(two: Neighbourhood, intent: str = "inform", text: str = "hi", **more: object) -> Accepted:
    """A message of bob's that the rack has; the laptop knows that it has it."""
    sent = await two["lap"].send("bob", "ann@rack", text, intent=intent, **more)
    await two.link("lap", "rack").carry()
    return sent


async def hear(hub: LinkedHub, sent: Accepted, state: str, reason: str | None = None, by: str = "rack") -> Delivery:
    """The other side says what became of it."""
    await far_outcomes(hub.bus, by, [Outcome(sent.envelope.id, "ann", state, reason)])
    return await hub.row(sent)


async def owes(two: Neighbourhood) -> list[tuple[str, str | None]]:
    """What the rack has yet to tell."""
    found = [outcome_of(delivery) for delivery in await owed(two["rack"].bus, "lap")]
    return [(outcome.state, outcome.reason) for outcome in found]


# ------------------------------------------------------------------------------------------ what is owed, and how


async def test_nothing_is_owed_before_there_is_an_outcome(two: Neighbourhood) -> None:
    await cross(two)
    assert await owes(two) == []
    held = await two["rack"].take_one("ann")
    assert await owes(two) == []
    await two["rack"].ack(held)
    assert await owes(two) == [("delivered", None)]
    await two.run()
    assert await owes(two) == []


async def test_an_answer_is_told_by_itself_alone(two: Neighbourhood) -> None:
    sent = await cross(two, "request")
    await two["rack"].ack(await two["rack"].take_one("ann"))
    await two["rack"].answer("ann", sent.envelope)
    assert await owes(two) == []
    await two.run()
    assert await two["lap"].state(sent) is State.ANSWERED


async def test_a_request_that_failed_is_told_by_the_notice_alone(two: Neighbourhood) -> None:
    sent = await cross(two, "request")
    run = await begin(two["rack"].bus, "ann", "command")
    assert run is not None
    await failed(two["rack"].bus, run, Reason.MISSING_CONFIG, "No program.")
    assert await owes(two) == []
    await two.run()
    assert [n.reason for n in await two["lap"].notices("bob")] == ["missing_config"]
    assert (await two["lap"].row(sent)).reason is Reason.MISSING_CONFIG


async def test_what_wanted_no_answer_is_told_of_without_a_notice(two: Neighbourhood) -> None:
    sent = [await cross(two), await cross(two)]
    await cancel(two["rack"].bus, ADMIN, sent[0].envelope.id)
    await two["rack"].nack(await two["rack"].take_one("ann"))
    assert await owes(two) == [("failed", "cancelled"), ("dead", "attempts_used_up")]
    await two.run()
    rows = [await two["lap"].row(each) for each in sent]
    assert [(row.state, row.reason) for row in rows] == [
        (State.FAILED, Reason.CANCELLED),
        (State.DEAD, Reason.ATTEMPTS_USED_UP),
    ]
    assert await two["lap"].notices("bob") == []


async def test_a_request_that_was_taken_and_never_answered_is_told_twice_and_noticed_once(two: Neighbourhood) -> None:
    """First that it was delivered; then, by each hub's own clock, that no answer came."""
    sent = await cross(two, "request", ttl_seconds=60)
    await two["rack"].ack(await two["rack"].take_one("ann"))
    await two.run()
    assert await two["lap"].state(sent) is State.DELIVERED
    await two.pass_time(61)
    await two.run()
    await two.pass_time(61)
    await two.run()
    assert [n.reason for n in await two["lap"].notices("bob")] == ["delivery_timeout"]
    row = await two["lap"].row(sent)
    assert (row.state, row.reason) == (State.DELIVERED, Reason.DELIVERY_TIMEOUT)


async def test_it_is_owed_until_the_other_side_has_it(two: Neighbourhood) -> None:
    sent = await cross(two)
    await two["rack"].ack(await two["rack"].take_one("ann"))
    await two["rack"].reopen()
    assert await owes(two) == [("delivered", None)]
    await two["rack"].connect("lap", two["lap"].me)
    await two.run()
    assert await two["lap"].state(sent) is State.DELIVERED


async def test_what_changed_while_it_was_told_is_not_changed_back(two: Neighbourhood) -> None:
    """It was delivered; while that was on its way its time ran out, which is noticed once."""
    rack = two["rack"]
    sent = await cross(two, "request", ttl_seconds=60)
    await rack.ack(await rack.take_one("ann"))
    on_its_way = await owed(rack.bus, "lap")
    await two.pass_time(61)
    await told(rack.bus, on_its_way)
    await rack.commit()
    assert (await rack.row(sent)).reason is Reason.DELIVERY_TIMEOUT
    await two.pass_time(61)
    assert len(await rack.notices("bob@lap")) == 1


async def test_what_was_requeued_while_its_end_was_told_is_owed_still(two: Neighbourhood) -> None:
    rack = two["rack"]
    sent = await cross(two)
    await rack.nack(await rack.take_one("ann"))
    on_its_way = await owed(rack.bus, "lap")
    await requeue(rack.bus, sent.envelope.id)
    await told(rack.bus, on_its_way)
    await rack.ack(await rack.take_one("ann"))
    assert await owes(two) == [("delivered", None)]


async def test_the_oldest_are_told_first_and_not_all_at_once(two: Neighbourhood) -> None:
    rack = two["rack"]
    first = await cross(two)
    for _ in range(AT_ONCE):
        await two["lap"].send("bob", "ann@rack", intent="inform")
    await two.run()
    while parcels := await rack.take("ann"):
        for parcel in parcels:
            await rack.ack(parcel)
    found = await owed(rack.bus, "lap")
    assert (len(found), found[0].message_id) == (AT_ONCE, first.envelope.id)
    await two.run()
    assert await owes(two) == []


async def test_whoever_tells_is_waked_when_there_is_something_to_tell(two: Neighbourhood) -> None:
    await cross(two)
    held = await two["rack"].take_one("ann")
    with two["rack"].bus.signals.watch(owed_key("lap")) as watch:
        ticket = watch.ticket()
        await two["rack"].ack(held)
        assert watch.changed(ticket).done()


# ------------------------------------------------------------------------------------------------------ what is heard


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [("delivered", None, (State.DELIVERED, None)), ("answered", None, (State.DELIVERED, None)),
     ("failed", "loop", (State.FAILED, Reason.LOOP)),
     ("dead", "attempts_used_up", (State.DEAD, Reason.ATTEMPTS_USED_UP)),
     ("failed", None, (State.FAILED, Reason.UNKNOWN)), ("failed", "no such word", (State.FAILED, Reason.UNKNOWN)),
     ("queued", None, (State.FORWARDED, None)), ("", "loop", (State.FORWARDED, None))],
)  # fmt: skip
async def test_it_ends_as_the_far_side_says(
    two: Neighbourhood, state: str, reason: str | None, expected: tuple[State, Reason | None]
) -> None:
    row = await hear(two["lap"], await cross(two), state, reason)
    assert (row.state, row.reason) == expected


async def test_an_outcome_that_comes_before_its_message_was_noted_as_forwarded_counts(two: Neighbourhood) -> None:
    lap, link = two["lap"], two.link("lap", "rack")
    sent = await lap.send("bob", "ann@rack", intent="inform")
    parcels = await link.take()
    assert (await hear(lap, sent, "delivered")).state is State.DELIVERED
    forwarded(lap.bus, parcels)
    given_back(lap.bus, parcels)  # the line broke in between, say
    await lap.commit()
    row = await lap.row(sent)
    assert (row.state, row.attempt) == (State.DELIVERED, 1)


async def test_an_outcome_that_comes_after_a_restart_counts_and_it_does_not_go_again(two: Neighbourhood) -> None:
    lap, link = two["lap"], two.link("lap", "rack")
    sent = await lap.send("bob", "ann@rack", intent="request")
    await link.take()
    await lap.reopen()
    await lap.connect("rack", two["rack"].me)
    assert await lap.state(sent) is State.QUEUED
    row = await hear(lap, sent, "failed", "missing_config")
    assert (row.state, row.reason, row.attempt) == (State.FAILED, Reason.MISSING_CONFIG, 2)
    assert await link.take() == []
    assert [n.reason for n in await lap.notices("bob")] == ["missing_config"]


async def test_nobody_ends_what_never_went_there(two: Neighbourhood) -> None:
    sent = await two["lap"].send("bob", "ann@rack", intent="request")
    assert (await hear(two["lap"], sent, "failed")).state is State.QUEUED
    assert await two["lap"].notices("bob") == []


async def test_nobody_ends_what_went_elsewhere(two: Neighbourhood) -> None:
    lap = two["lap"]
    sent, mine = await cross(two, "request"), await lap.send("bob", "bob")
    assert (await hear(lap, sent, "failed", by="box")).state is State.FORWARDED
    assert (await hear(lap, mine, "failed")).state is State.QUEUED
    await far_outcomes(lap.bus, "rack", [Outcome("e" * 32, "ann", "failed")])


async def test_said_twice_it_is_said_once_and_what_has_ended_stays(two: Neighbourhood) -> None:
    lap = two["lap"]
    sent = await cross(two, "request")
    for state, reason in (("failed", "loop"), ("failed", "missing_config"), ("delivered", None), ("dead", "loop")):
        row = await hear(lap, sent, state, reason)
        assert (row.state, row.reason) == (State.FAILED, Reason.LOOP)
    assert [n.reason for n in await lap.notices("bob")] == ["loop"]


async def test_one_that_time_had_ended_changes_no_more(two: Neighbourhood) -> None:
    sent = await cross(two, "request", ttl_seconds=5)
    await two["lap"].clock.advance(5)
    await two["lap"].pass_time(61)
    row = await hear(two["lap"], sent, "delivered")
    assert (row.state, row.reason) == (State.FAILED, Reason.DELIVERY_TIMEOUT)
    assert len(await two["lap"].notices("bob")) == 1


async def test_a_delivered_request_that_fails_there_is_told_of_once(two: Neighbourhood) -> None:
    sent = await cross(two, "request", ttl_seconds=60)
    await hear(two["lap"], sent, "delivered")
    row = await hear(two["lap"], sent, "failed", "missing_config")
    assert (row.state, row.reason) == (State.DELIVERED, Reason.MISSING_CONFIG)
    await hear(two["lap"], sent, "failed", "loop")
    await two["lap"].pass_time(61)
    assert [n.reason for n in await two["lap"].notices("bob")] == ["missing_config"]


async def test_an_answer_that_fails_there_is_a_dead_letter_and_nothing_else(two: Neighbourhood) -> None:
    lap, rack = two["lap"], two["rack"]
    sent = await cross(two, "request")
    answer = await rack.answer("ann", sent.envelope)
    await two.run()
    assert await rack.state(answer) is State.FORWARDED
    assert (await hear(rack, answer, "failed", "queued_expired", by="lap")).state is State.DEAD
    assert await rack.notices("ann") == []
    assert await lap.notices("bob") == []


async def test_a_message_that_is_gone_here_costs_no_other(two: Neighbourhood) -> None:
    lap = two["lap"]
    gone, sent = await cross(two), await cross(two)
    rows = await lap.rows(gone)
    await lap.bus.store.write(lambda tx: tx.remove(rows))
    await far_outcomes(lap.bus, "rack", [Outcome(each.envelope.id, "ann", "delivered") for each in (gone, sent)])
    assert await lap.state(sent) is State.DELIVERED


async def test_a_repeat_while_its_outcome_is_being_told_has_it_told_once_more(two: Neighbourhood) -> None:
    """Who was restored hears it before it has sent the message again, and can do nothing with it."""
    rack = two["rack"]
    sent = await two["lap"].send("bob", "ann@rack", "hi")
    await two.link("lap", "rack").carry()
    await rack.ack(await rack.take_one("ann"))
    found = await owed(rack.bus, "lap")
    assert [delivery.message_id for delivery in found] == [sent.envelope.id]
    await rack.bus.store.write(lambda tx: owe_again(tx, rack.bus, "lap", sent.envelope.id))  # it comes again just now
    await told(rack.bus, found)
    assert [delivery.message_id for delivery in await owed(rack.bus, "lap")] == [sent.envelope.id]
    await told(rack.bus, found)
    assert await owed(rack.bus, "lap") == []
    await rack.bus.store.write(lambda tx: owe_again(tx, rack.bus, "lap", sent.envelope.id))
    assert [delivery.message_id for delivery in await owed(rack.bus, "lap")] == [sent.envelope.id]
