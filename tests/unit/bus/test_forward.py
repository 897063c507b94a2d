"""Mail that a relay of Hermes' fetches: handed out once, once more, and settled by the first outcome."""

import asyncio
from typing import Any

import pytest

from angelia.bus.agents import put_agent
from angelia.bus.ask import ask
from angelia.bus.caller import ADMIN
from angelia.bus.draft import Accepted, Draft
from angelia.bus.forward import Drained, drain, handed_out, said, settle_far, times_of, waits
from angelia.bus.look import expected
from angelia.bus.ports import Tx
from angelia.bus.remotes import ANONYMOUS
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Intent, Kind
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.protocol.bot_relay import BODY_CHARS, TEXT_CHARS
from angelia.protocol.bot_relay_stamp import qualify
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub

OPS: dict[str, object] = {"profile": "ops", "connection_id": "vps-1", "title": "Ops Bot"}
REOFFER, WAITER = 1560, 3120


@pytest.fixture
async def hub() -> SmallHub:
    hub = await SmallHub.open()
    await push(hub, OPS, {"profile": "quota-bot", "connection_id": "balance-1"})
    return hub


async def push(hub: SmallHub, *agents: object, name: str = ANONYMOUS) -> None:
    def unit(tx: Tx) -> None:
        hub.bus.remotes.push(tx, hub.bus.limits, name, list(agents), hub.clock.now())

    await hub.bus.store.write(unit)


async def send(hub: SmallHub, text: str = "hi", to: str = "ops@vps-1", **more: Any) -> Accepted:
    return await hub.send("bob", to, text, intent=Intent.REQUEST, **more)


async def fetch(hub: SmallHub, scope: str = ANONYMOUS, *, written: bool = True) -> Drained:
    drained = await drain(hub.bus, scope)
    handed_out(hub.bus, drained, written=written)
    await settle()
    return drained


async def bring(hub: SmallHub, of: Accepted, **outcome: Any) -> None:
    told = {"reply": None, "error": None, "reason": None, **outcome}
    await settle_far(hub.bus, of.envelope.id, told["reply"], told["error"], told["reason"])
    await settle()


# ---------------------------------------------------------------------------------------------------------- handing out


async def test_each_is_handed_out_once_the_oldest_first_and_then_awaited(hub: SmallHub) -> None:
    sent = [await send(hub, f"{n}") for n in range(3)]
    assert await waits(hub.bus, ANONYMOUS)
    drained = await fetch(hub)
    assert [envelope.id for envelope in drained.envelopes] == [each.envelope.id for each in sent]
    assert (await fetch(hub)).envelopes == []
    row = await hub.row(sent[0])
    assert (row.state, row.hand, row.attempt) == (State.FORWARDED, Hand.LINK, 1)
    assert expected(hub.bus, row, Intent.REQUEST) == "its relay has it; the outcome is awaited"


async def test_what_stands_in_an_envelope(hub: SmallHub) -> None:
    await hub.know("hermes")
    await hub.send("hermes", "ops@vps-1", "is it green?")
    (envelope,) = (await fetch(hub)).envelopes
    assert (envelope.from_profile, envelope.from_handle) == ("default", "hermes")
    assert (envelope.target_connection, envelope.target_profile, envelope.target_handle) == ("vps-1", "ops", "ops")
    assert envelope.message == "Message from 🤖 hermes (@hermes): is it green?"
    assert envelope.created_at == hub.clock.now() // 1000
    assert envelope.reoffered_at is None


async def test_an_answer_that_could_not_be_written_gives_everything_back_in_its_place(hub: SmallHub) -> None:
    """#111021: a claim is lost when the Desktop drops in the middle."""
    sent = [await send(hub, f"{n}") for n in range(2)]
    await fetch(hub, written=False)
    assert [await hub.state(each) for each in sent] == [State.QUEUED] * 2
    drained = await fetch(hub)
    assert [each.reoffered_at for each in drained.envelopes] == [None, None]
    assert [each.message[-1] for each in drained.envelopes] == ["0", "1"]


async def test_a_claim_is_bounded_and_says_that_there_is_more() -> None:
    hub = await SmallHub.open(Limits(claim_deliveries=2))
    await push(hub, OPS)
    for number in range(3):
        await send(hub, f"{number}")
    assert [(len(each.envelopes), each.more) for each in (await fetch(hub), await fetch(hub))] == [
        (2, True),
        (1, False),
    ]


async def test_nobody_fetches_what_is_anothers(hub: SmallHub) -> None:
    await push(hub, OPS, name="pc")
    await send(hub, to="quota-bot@balance-1")
    assert (await fetch(hub, "pc")).envelopes == []
    assert len((await fetch(hub)).envelopes) == 1


async def test_mail_to_somebody_who_is_forgotten_fails_and_blocks_nothing(hub: SmallHub) -> None:
    lost = await send(hub)
    stays = await send(hub, to="quota-bot@balance-1")
    hub.bus.remotes._pushed = {}
    await push(hub, {"profile": "quota-bot", "connection_id": "balance-1"})
    drained = await fetch(hub)
    assert [each.id for each in drained.envelopes] == [stays.envelope.id]
    assert (await hub.row(lost)).reason is Reason.RUNTIME_OFFLINE
    assert [notice.reason for notice in await hub.notices()] == ["runtime_offline"]


# ----------------------------------------------------------------------------------------------------------------- time


async def test_what_nobody_fetches_expires_after_fifteen_minutes(hub: SmallHub) -> None:
    """drain_expires_old_envelope_with_queued_expired_reply; drain_delivers_fresh_envelope_under_ttl."""
    old = await send(hub, "old")
    await hub.pass_time(899)
    fresh = await send(hub, "fresh")
    assert await hub.state(old) is State.QUEUED
    await hub.clock.advance(2)
    assert [each.id for each in (await fetch(hub)).envelopes] == [fresh.envelope.id]
    assert (await hub.row(old)).reason is Reason.QUEUED_EXPIRED
    (notice,) = await hub.notices()
    assert (notice.about, notice.reason) == (old.envelope.id, "queued_expired")


async def test_a_shorter_time_to_live_is_the_senders_and_a_longer_one_is_not(hub: SmallHub) -> None:
    short, long = await send(hub, ttl_seconds=5), await send(hub, ttl_seconds=3600)
    await hub.pass_time(6)
    assert [await hub.state(each) for each in (short, long)] == [State.FAILED, State.QUEUED]
    await hub.pass_time(900)
    assert await hub.state(long) is State.FAILED


async def test_what_stays_unanswered_is_offered_once_more_and_then_has_timed_out(hub: SmallHub) -> None:
    """The re-offer of G3: 1,560 s after the claim, once; 3,120 s after it was sent its sender stops waiting."""
    assert (times_of(hub.bus.limits).reoffer_seconds, times_of(hub.bus.limits).waiter_seconds) == (REOFFER, WAITER)
    sent = await send(hub)
    await hub.pass_time(100)
    await fetch(hub)
    await hub.pass_time(REOFFER - 1)
    assert (await fetch(hub)).envelopes == []
    await hub.pass_time(1)
    (again,) = (await fetch(hub)).envelopes
    assert (again.id, again.reoffered_at) == (sent.envelope.id, hub.clock.now() // 1000)
    assert again.content["reoffered_at"] == again.reoffered_at
    await hub.pass_time(WAITER - 100 - REOFFER - 1)
    assert await hub.state(sent) is State.FORWARDED
    await hub.pass_time(1)
    row = await hub.row(sent)
    assert (row.state, row.reason, row.attempt) == (State.FAILED, Reason.DELIVERY_TIMEOUT, 2)
    assert [notice.reason for notice in await hub.notices()] == ["delivery_timeout"]
    assert (await fetch(hub)).envelopes == []


async def test_of_many_who_fetch_at_once_one_gets_what_is_offered_again(hub: SmallHub) -> None:
    """Concurrent drains can both re-offer one claimed file."""
    await send(hub)
    await fetch(hub)
    await hub.pass_time(REOFFER)
    found = await asyncio.gather(*(drain(hub.bus, ANONYMOUS) for _ in range(5)))
    assert sum(len(drained.envelopes) for drained in found) == 1


async def test_the_longest_body_goes_through_whatever_the_names(hub: SmallHub) -> None:
    """16200 cap vs prefix, also after a Desktop has put a connection of 64 letters into the stamp."""
    name = "h" * 64
    await hub.know(name)
    await put_agent(hub.bus, ADMIN, name, "T" * 120, None)
    await hub.send(name, "ops@vps-1", "x" * BODY_CHARS)
    (envelope,) = (await fetch(hub)).envelopes
    assert envelope.message.endswith("x" * BODY_CHARS)
    assert len(qualify(envelope.message, name, "c" * 64)) <= TEXT_CHARS


async def test_what_was_offered_again_and_not_fetched_expires(hub: SmallHub) -> None:
    sent = await send(hub)
    await fetch(hub)
    await hub.pass_time(REOFFER)
    await hub.pass_time(899)
    assert await hub.state(sent) is State.QUEUED
    await hub.pass_time(2)
    assert (await hub.row(sent)).reason is Reason.QUEUED_EXPIRED


async def test_nothing_is_handed_out_once_its_sender_has_stopped_waiting(hub: SmallHub) -> None:
    sent = await send(hub)
    await hub.pass_time(890)
    await fetch(hub)
    await hub.pass_time(REOFFER)
    await hub.clock.advance(WAITER - 890 - REOFFER)
    assert (await fetch(hub)).envelopes == []
    assert (await hub.row(sent)).reason is Reason.DELIVERY_TIMEOUT


async def test_the_times_follow_from_the_limits() -> None:
    hub = await SmallHub.open(Limits(turn_seconds=10, lock_wait_seconds=5, turn_attempts=1))
    await push(hub, OPS)
    sent = await send(hub)
    await fetch(hub)
    await hub.pass_time(5 + 10 + 180 + 60 - 1)
    assert await hub.state(sent) is State.FORWARDED
    await hub.pass_time(1)
    assert await hub.state(sent) is State.QUEUED


async def test_a_restart_changes_none_of_it(hub: SmallHub) -> None:
    sent = await send(hub)
    await fetch(hub)
    await hub.restart()
    await hub.pass_time(REOFFER)
    assert [each.id for each in (await fetch(hub)).envelopes] == [sent.envelope.id]
    await bring(hub, sent, reply="done")
    assert await hub.state(sent) is State.ANSWERED


# ------------------------------------------------------------------------------------------------------------- outcomes


async def test_an_answer_is_stored_with_the_end_of_the_delivery_and_comes_from_whom_was_asked(hub: SmallHub) -> None:
    sent = await send(hub)
    await fetch(hub)
    await bring(hub, sent, reply="green\n since 04:10 ")
    (reply,) = await hub.take("bob")
    assert (reply.envelope.kind, reply.envelope.sender, reply.envelope.verified) == (Kind.REPLY, "ops@vps-1", False)
    assert (reply.envelope.text, reply.envelope.in_reply_to) == ("green\n since 04:10 ", sent.envelope.id)
    assert await hub.state(sent) is State.ANSWERED
    assert hub.bus.directory.find("ops@vps-1") is None


async def test_an_empty_answer_is_one(hub: SmallHub) -> None:
    sent = await send(hub)
    await fetch(hub)
    await bring(hub, sent, reply="")
    assert [parcel.envelope.text for parcel in await hub.take("bob")] == [""]


async def test_the_first_outcome_counts(hub: SmallHub) -> None:
    """write_reply_keeps_the_first_settled_reply_for_an_envelope."""
    sent, failing = await send(hub), await send(hub)
    await fetch(hub)
    await bring(hub, sent, reply="first")
    await bring(hub, failing, error="HTTP 401", reason="provider_auth_or_access")
    for of in (sent, failing):
        await bring(hub, of, reply="second")
        await bring(hub, of, error="third", reason="unknown")
    assert [await hub.state(of) for of in (sent, failing)] == [State.ANSWERED, State.FAILED]
    assert [parcel.envelope.text for parcel in await hub.take("bob") if parcel.envelope.kind is Kind.REPLY] == ["first"]
    assert len(await hub.notices()) == 1


async def test_an_answer_that_comes_after_only_time_had_ended_it_is_delivered_late_and_once(hub: SmallHub) -> None:
    sent = await send(hub)
    await fetch(hub)
    await hub.pass_time(REOFFER)
    await fetch(hub)
    await hub.pass_time(WAITER)
    assert (await hub.row(sent)).reason is Reason.DELIVERY_TIMEOUT
    await bring(hub, sent, reply="at last")
    await bring(hub, sent, reply="again")
    replies = [p for p in await hub.take("bob") if p.envelope.kind is Kind.REPLY]
    assert [(p.envelope.text, p.delivery.late) for p in replies] == [("at last", True)]
    assert await hub.state(sent) is State.FAILED


async def test_an_outcome_counts_while_the_claim_is_on_its_way_and_while_it_is_offered_again(hub: SmallHub) -> None:
    for outcome, state in (({"reply": "ok"}, State.ANSWERED), ({"error": "no"}, State.FAILED)):
        sent = await send(hub)
        drained = await drain(hub.bus, ANONYMOUS)
        await bring(hub, sent, **outcome)
        handed_out(hub.bus, drained, written=True)
        await settle()
        assert await hub.state(sent) is state
        later = await send(hub)
        await fetch(hub)
        await hub.pass_time(REOFFER)
        assert await hub.state(later) is State.QUEUED
        await bring(hub, later, **outcome)
        assert await hub.state(later) is state


async def test_what_was_never_handed_out_or_is_not_a_relays_has_no_far_outcome(hub: SmallHub) -> None:
    waiting, local = await send(hub), await hub.send("bob", "ann", intent=Intent.REQUEST)
    for of in (waiting, local):
        await bring(hub, of, reply="forged")
        await bring(hub, of, error="forged")
        assert await hub.state(of) is State.QUEUED
    await hub.take()
    await bring(hub, local, reply="forged")
    await bring(hub, local, error="forged")
    assert await hub.state(local) is State.LEASED
    await settle_far(hub.bus, "f" * 32, "to nobody", None, None)


@pytest.mark.parametrize("bad", ["../../x", "F" * 32, "f" * 31, "", None, 7, "f" * 32 + "\n\0"])
async def test_what_is_no_id_is_refused(hub: SmallHub, bad: object) -> None:
    """write_reply_validates_envelope_id."""
    with pytest.raises(ValueError, match="hex"):
        await settle_far(hub.bus, bad, "x", None, None)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ({"error": "HTTP 429: slow down"}, Reason.PROVIDER_RATE_LIMIT),
        ({"error": "HTTP 429: slow down", "reason": "target_busy"}, Reason.TARGET_BUSY),
        ({"error": "quota-bot on balance-1 hung up"}, Reason.UNKNOWN),
        ({"error": "connection 'x' is not connected to this Desktop right now"}, Reason.RUNTIME_OFFLINE),
        ({"error": "x", "reason": "no such word"}, Reason.UNKNOWN),
        ({"reason": "context_overflow"}, Reason.CONTEXT_OVERFLOW),
        ({"error": ["HTTP 429"], "reason": {"x": 1}, "reply": ""}, None),
    ],
)
async def test_a_reason_is_taken_as_it_is_or_read_without_the_names(
    hub: SmallHub, outcome: dict[str, object], reason: Reason | None
) -> None:
    """write_reply_reason_passthrough_and_classification; a target's name is no reason."""
    sent = await send(hub, to="quota-bot@balance-1")
    await fetch(hub)
    await bring(hub, sent, **outcome)
    row = await hub.row(sent)
    assert (row.state, row.reason) == ((State.FAILED, reason) if reason else (State.ANSWERED, None))


async def test_a_notice_says_what_the_other_side_said_in_one_line_and_not_for_ever(hub: SmallHub) -> None:
    sent = await send(hub)
    await fetch(hub)
    await bring(hub, sent, error="no\n key " + "x" * 5_000, reason="missing_config")
    (notice,) = await hub.notices()
    assert notice.text is not None
    assert "The other side says: no key xxx" in notice.text
    assert len(notice.text) < 1_000


async def test_an_answer_that_is_too_long_to_keep_whole_is_a_failure() -> None:
    hub = await SmallHub.open(Limits(reply_bytes=100))
    await push(hub, OPS)
    sent = await send(hub)
    await fetch(hub)
    await bring(hub, sent, reply="x" * 101)
    assert (await hub.row(sent)).reason is Reason.TOO_LARGE


async def test_whoever_waits_in_an_ask_gets_it(hub: SmallHub) -> None:
    draft = Draft(sender="bob", to="ops@vps-1", text="green?")
    pending = await ask(hub.bus, draft, 0)
    assert pending.pending
    await fetch(hub)
    await settle_far(hub.bus, draft.id, "yes", None, None)
    answered = await ask(hub.bus, draft, 0)
    assert answered.reply is not None
    assert answered.reply.text == "yes"


async def test_where_only_text_is_carried_a_body_is_not_lost(hub: SmallHub) -> None:
    both = await hub.send("bob", "ann", "see", body=b'{"a":1}')
    only = await hub.send("bob", "ann", None, body=b"[1]")
    flat = await hub.send("bob", "ann", None, body=b'{"text":"hi","type":"x"}', flat=True)
    bare = await hub.send("bob", "ann", None, body=b'{"type":"x"}', flat=True)
    shown = [said(each.envelope) for each in (both, only, flat, bare)]
    assert shown == ['see\n\n{"a":1}', "[1]", "hi", '{"type":"x"}']
