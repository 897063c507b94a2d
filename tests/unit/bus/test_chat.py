"""What a live chat says of a message: answered with its delivery, or failed with the notice of it."""

import pytest

from angelia.bus import chat
from angelia.bus.caller import OPEN, Caller, Rank
from angelia.bus.claim import lease_token
from angelia.bus.ports import Parcel
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Intent, Kind
from angelia.model.errors import LeaseLost, TooLarge, UnknownMessage
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from tests.fakes.small_hub import Reader, SmallHub

ANN = Caller(Rank.AGENT, "ann")


async def turn(hub: SmallHub, reader: Reader) -> tuple[str, str, Parcel]:
    """The next message of a chat: its lease, its id, itself."""
    (item,) = await reader.mail()
    return lease_token(hub.bus, item.parcel), item.parcel.envelope.id, item.parcel


async def test_an_answer_goes_to_whom_asked_in_the_unit_that_ends_the_delivery(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    sent = await hub.send(intent=Intent.REQUEST)
    lease, id, _ = await turn(hub, reader)
    settled = await chat.answered(hub.bus, OPEN, lease, id, "hello")
    assert (settled.state, settled.already) == (State.ANSWERED, False)
    (reply,) = await hub.take("bob")
    assert (reply.envelope.kind, reply.envelope.sender, reply.envelope.text) == (Kind.REPLY, "ann", "hello")
    assert (reply.envelope.in_reply_to, reply.envelope.verified) == (id, False)
    assert await hub.state(sent) is State.ANSWERED
    assert reader.stream.room() == hub.bus.limits.manual_window_deliveries


async def test_saying_it_twice_is_saying_it_once(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    await hub.send(intent=Intent.REQUEST)
    lease, id, _ = await turn(hub, reader)
    await chat.answered(hub.bus, OPEN, lease, id, "hello")
    assert (await chat.answered(hub.bus, OPEN, lease, id, "hello")).already
    assert len(await hub.take("bob")) == 1
    await hub.send(intent=Intent.REQUEST)
    lease, id, _ = await turn(hub, reader)
    await chat.failed(hub.bus, OPEN, lease, id, Reason.UNKNOWN, "no")
    assert (await chat.failed(hub.bus, OPEN, lease, id, Reason.UNKNOWN, "no")).already
    with pytest.raises(LeaseLost):
        await chat.answered(hub.bus, OPEN, lease, id, "after all")
    assert len(await hub.notices()) == 1


async def test_no_answer_goes_out_where_none_is_wanted(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    asked = await hub.send("ann", "bob", intent=Intent.REQUEST)
    await hub.send("bob", None, "an answer", in_reply_to=asked.envelope.id, kind=Kind.REPLY)
    lease, id, _ = await turn(hub, reader)
    assert (await chat.answered(hub.bus, OPEN, lease, id, "thanks!")).state is State.DELIVERED
    await hub.send(intent=Intent.INFORM)
    lease, id, _ = await turn(hub, reader)
    assert (await chat.answered(hub.bus, OPEN, lease, id, "")).state is State.DELIVERED
    assert [p.envelope.kind for p in await hub.mailbox("bob")] == []
    await hub.send(intent=Intent.INFORM)
    lease, id, _ = await turn(hub, reader)
    assert (await chat.answered(hub.bus, OPEN, lease, id, "good to know")).state is State.ANSWERED


async def test_a_failure_ends_it_and_the_sender_is_told(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    sent = await hub.send(intent=Intent.REQUEST)
    lease, id, _ = await turn(hub, reader)
    await chat.failed(hub.bus, OPEN, lease, id, Reason.PROVIDER_RATE_LIMIT, "HTTP 429")
    row = await hub.row(sent)
    assert (row.state, row.reason) == (State.FAILED, Reason.PROVIDER_RATE_LIMIT)
    (notice,) = await hub.notices()
    assert notice.reason == "provider_rate_limit"
    assert "HTTP 429" in (notice.text or "")


async def test_an_answer_that_fails_becomes_a_dead_letter_and_nothing_else(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    asked = await hub.send("ann", "bob", intent=Intent.REQUEST)
    await hub.send("bob", None, "an answer", in_reply_to=asked.envelope.id, kind=Kind.REPLY)
    lease, id, parcel = await turn(hub, reader)
    assert (await chat.failed(hub.bus, OPEN, lease, id, Reason.UNKNOWN, "x")).state is State.DEAD
    assert (await hub.row(parcel)).state is State.DEAD
    assert await hub.notices() == []


async def test_after_a_restart_an_answer_is_still_good_until_somebody_claims(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    await hub.send(intent=Intent.REQUEST)
    lease, id, _ = await turn(hub, reader)
    await hub.restart()
    settled = await chat.answered(hub.bus, OPEN, lease, id, "late")
    assert (settled.state, settled.late) == (State.ANSWERED, True)
    reader = await hub.listen(hand=Hand.MANUAL)
    await hub.send(intent=Intent.REQUEST)
    lease, id, _ = await turn(hub, reader)
    await reader.close()
    await hub.take_one()
    with pytest.raises(LeaseLost):
        await chat.answered(hub.bus, OPEN, lease, id, "too late")


async def test_a_lease_is_for_its_own_message_and_its_own_agent(hub: SmallHub) -> None:
    reader = await hub.listen(hand=Hand.MANUAL)
    await hub.send(intent=Intent.REQUEST)
    lease, id, parcel = await turn(hub, reader)
    with pytest.raises(LeaseLost):
        await chat.answered(hub.bus, OPEN, lease, "f" * 32, "x")
    with pytest.raises(UnknownMessage):
        await chat.answered(hub.bus, Caller(Rank.AGENT, "cat"), lease, id, "x")
    with pytest.raises(UnknownMessage):
        await chat.answered(hub.bus, OPEN, lease + "0", id, "x")
    assert (await hub.row(parcel)).state is State.LEASED
    await chat.answered(hub.bus, ANN, lease, id, "mine")
    assert [p.envelope.verified for p in await hub.take("bob")] == [True]


async def test_an_answer_that_is_too_long_is_refused_and_the_lease_stays() -> None:
    hub = await SmallHub.open(Limits(reply_bytes=10))
    reader = await hub.listen(hand=Hand.MANUAL)
    await hub.send(intent=Intent.REQUEST)
    lease, id, parcel = await turn(hub, reader)
    with pytest.raises(TooLarge):
        await chat.answered(hub.bus, OPEN, lease, id, "x" * 11)
    assert (await hub.row(parcel)).state is State.LEASED
