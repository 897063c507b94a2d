"""Who learns that a message failed: the sender of a request, once, and nobody else ever."""

import pytest

from angelia.bus.caller import ADMIN, OPEN
from angelia.bus.cancel import cancel, drop, requeue
from angelia.bus.turns import begin, failed
from angelia.model.delivery import State
from angelia.model.envelope import Intent, Kind, Origin
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from tests.fakes.clock import FakeClock
from tests.fakes.small_hub import SmallHub, texts
from tests.fakes.two_hubs import LinkedHub

FEW = Limits(reader_attempts=1, mailbox_deliveries=1)


async def test_the_sender_of_a_request_that_nobody_took_is_told_why(hub: SmallHub) -> None:
    sent = await hub.send(intent="request", ttl_seconds=5)
    await hub.pass_time(6)
    (notice,) = await hub.notices()
    assert (notice.sender, notice.to, notice.kind, notice.intent) == ("angelia", "bob", Kind.NOTICE, Intent.INFORM)
    assert (notice.about, notice.in_reply_to, notice.reason) == (sent.envelope.id, sent.envelope.id, "queued_expired")
    assert (notice.thread, notice.verified) == (sent.envelope.thread, True)
    assert "ann" in (notice.text or "")


async def test_of_what_was_sent_to_oneself_one_is_told_without_being_woken(hub: SmallHub) -> None:
    await hub.send("ann", "ann", intent="request", ttl_seconds=5)
    await hub.send("ann", "ann", intent="request", ttl_seconds=60)
    await hub.pass_time(6)
    for parcel in await hub.take("ann"):
        await hub.ack(parcel)
    await hub.pass_time(60)
    told = [(notice.kind, notice.intent, notice.reason) for notice in await hub.notices("ann")]
    assert told == [(Kind.NOTICE, Intent.ACK, "queued_expired"), (Kind.NOTICE, Intent.ACK, "delivery_timeout")]


@pytest.mark.parametrize("intent", [None, "inform", "ack"])
async def test_whoever_wanted_no_answer_is_told_nothing(intent: str | None) -> None:
    hub = await SmallHub.open(FEW)
    await hub.send(intent=intent, ttl_seconds=5)
    await hub.pass_time(6)
    await hub.send(intent=intent)
    await hub.nack(await hub.take_one())
    assert await hub.notices() == []


async def test_a_delivered_request_without_an_answer_is_told_of_at_the_end_of_its_time(hub: SmallHub) -> None:
    sent = await hub.send(intent="request", ttl_seconds=60)
    await hub.ack(await hub.take_one())
    await hub.pass_time(59)
    assert await hub.notices() == []
    await hub.pass_time(2)
    assert [n.reason for n in await hub.notices()] == ["delivery_timeout"]
    assert (await hub.row(sent)).state is State.DELIVERED
    await hub.pass_time(3600)
    assert len(await hub.notices()) == 1


async def test_an_answered_request_is_told_of_by_its_answer_alone(hub: SmallHub) -> None:
    sent = await hub.send(intent="request", ttl_seconds=60)
    await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    await hub.pass_time(61)
    assert await hub.notices() == []


async def test_a_reply_that_fails_causes_no_notice(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    reply = await hub.send(
        "ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id, intent="request", ttl_seconds=5
    )
    await hub.pass_time(6)
    assert await hub.state(reply) is State.FAILED
    assert await hub.notices("ann") == []


async def test_a_notice_that_fails_causes_no_other() -> None:
    hub = await SmallHub.open(Limits(ttl_seconds=100))
    await hub.send(intent="request", ttl_seconds=5)
    await hub.pass_time(6)
    assert len(await hub.mailbox("bob")) == 1
    await hub.pass_time(101)
    (notice,) = await hub.mailbox("bob", State.FAILED)
    assert notice.envelope.kind is Kind.NOTICE
    assert await hub.mailbox("bob") == []


async def test_the_outcome_is_told_even_to_a_full_mailbox() -> None:
    hub = await SmallHub.open(FEW)
    await hub.send("cat", "bob", "fills it")
    await hub.send(intent="request", ttl_seconds=5)
    await hub.pass_time(6)
    assert len(await hub.mailbox("bob")) == 2


async def test_a_notice_is_handed_to_a_live_stream_at_once(hub: SmallHub) -> None:
    reader = await hub.listen("bob")
    await hub.send(intent="request", ttl_seconds=5)
    await hub.pass_time(6)
    assert len(await reader.mail()) == 1


async def test_each_recipient_that_fails_is_told_of_by_itself(hub: SmallHub) -> None:
    await hub.send(to="*", intent="request", ttl_seconds=5)
    await hub.send("hermes", None, "here", kind=Kind.REPLY, in_reply_to=(await hub.take("hermes"))[0].envelope.id)
    await hub.pass_time(6)
    (notice,) = await hub.notices()
    assert "openclaw" in (notice.text or "")


async def test_a_person_is_told_too(hub: SmallHub) -> None:
    await hub.send("human", intent="request", ttl_seconds=5)
    await hub.pass_time(6)
    assert len(await hub.notices("human")) == 1


async def test_whoever_withdraws_its_own_is_told_by_the_answer(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    await cancel(hub.bus, OPEN, sent.envelope.id)
    assert await hub.notices() == []


async def test_whoever_had_its_own_withdrawn_by_a_person_is_told(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    await cancel(hub.bus, ADMIN, sent.envelope.id)
    assert [n.reason for n in await hub.notices()] == ["cancelled"]
    mine = await hub.send("human", intent="request")
    await cancel(hub.bus, ADMIN, mine.envelope.id)
    assert await hub.notices("human") == []


async def test_dropping_a_dead_letter_tells_nothing_new_and_ending_a_held_one_does() -> None:
    hub = await SmallHub.open(Limits(reader_attempts=1, chain_depth=0))
    dead = await hub.send(intent="request")
    await hub.nack(await hub.take_one())
    await drop(hub.bus, dead.envelope.id)
    assert [n.reason for n in await hub.notices()] == ["attempts_used_up"]
    held = await hub.send(intent="request", thread=dead.envelope.id)
    await drop(hub.bus, held.envelope.id)
    assert [n.reason for n in await hub.notices()] == ["attempts_used_up", "cancelled"]


async def test_a_request_that_was_requeued_can_be_told_of_again() -> None:
    hub = await SmallHub.open(Limits(reader_attempts=1))
    sent = await hub.send(intent="request")
    for _ in range(2):
        await hub.nack(await hub.take_one())
        await requeue(hub.bus, sent.envelope.id)
    assert len(await hub.notices()) == 2
    assert texts(await hub.take()) == ["hi"]


async def test_one_who_asked_from_elsewhere_is_told_there_with_the_turns_own_words() -> None:
    """The words stand alone beside the text, since the sender's own hub writes its own; the notice says the outcome, so
    that nothing else has to."""
    hub = await LinkedHub.start("rack", 1, FakeClock(), "ann")
    await hub.connect("lap", "a" * 32)
    sent = await hub.send("bob@lap", "ann", intent="request")
    row = await hub.row(sent)
    owing = row._replace(owes="lap")
    await hub.bus.store.write(lambda tx: tx.move(row, owing))
    run = await begin(hub.bus, "ann", "command")
    assert run is not None
    await failed(hub.bus, run, Reason.MISSING_CONFIG, "No program.")
    (notice,) = await hub.mailbox("bob@lap")
    assert (notice.envelope.body, notice.envelope.about) == (b'{"said":"No program."}', sent.envelope.id)
    assert (notice.delivery.connection, notice.delivery.to) == ("lap", "bob@lap")
    assert notice.envelope.origin == Origin(hub.me, "angelia", "bob@lap", None, "notice", None)
    assert (await hub.row(sent)).owes is None


async def test_one_who_asked_here_is_told_in_the_text_alone(hub: SmallHub) -> None:
    await hub.send(intent="request")
    run = await begin(hub.bus, "ann", "command")
    assert run is not None
    await failed(hub.bus, run, Reason.MISSING_CONFIG, "No program.")
    (notice,) = await hub.notices()
    assert (notice.body, notice.origin) == (None, None)
    assert (notice.text or "").endswith("No program.")
