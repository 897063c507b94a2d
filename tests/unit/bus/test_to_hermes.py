"""Mail that a link takes to a gateway of Hermes': forwarded before it leaves, settled by the first outcome."""

import asyncio
from typing import Any

import pytest

from angelia.bus.carry import take
from angelia.bus.draft import Accepted, Draft
from angelia.bus.ports import Parcel, Tx
from angelia.bus.publish import accept
from angelia.bus.to_hermes import Answer, Begun, answer_to_envelope, answered, begin, did_not_leave, failed
from angelia.model.address import Address
from angelia.model.delivery import State
from angelia.model.envelope import Envelope, Intent, Kind
from angelia.model.errors import DiskFull
from angelia.model.failure import Reason
from angelia.protocol.bot_relay import BODY_CHARS, fits
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub
from tests.fakes.troubled_store import TroubledStore

OPS = "ops@Rack"
HERE = "desk"
REOFFER, WAITER = 1560, 3120


async def push(hub: SmallHub, *profiles: str) -> None:
    rows = [{"profile": profile, "connection_id": "local", "title": "quota"} for profile in profiles]
    await hub.bus.store.write(lambda tx: hub.bus.remotes.push(tx, hub.bus.limits, "Rack", rows, hub.clock.now()))


@pytest.fixture
async def rack(hub: SmallHub) -> SmallHub:
    await push(hub, "ops", "default")
    return hub


async def send(hub: SmallHub, text: str = "hi", to: str = OPS, **more: Any) -> Accepted:
    return await hub.send("bob", to, text, intent=Intent.REQUEST, **more)


async def taken(hub: SmallHub) -> Parcel:
    (parcel,) = await take(hub.bus, "rack", 1, 0)
    return parcel


async def begun(hub: SmallHub) -> Begun:
    found = await begin(hub.bus, "rack", await taken(hub), HERE)
    assert found is not None
    return found


async def replies(hub: SmallHub, name: str = "bob") -> list[tuple[str, str | None]]:
    """(kind, text or reason) of what came to a mailbox."""
    there = [parcel.envelope for parcel in await hub.mailbox(name, *State)]
    return [(each.kind.value, each.text if each.kind is Kind.REPLY else each.reason) for each in there]


async def from_there(hub: SmallHub, text: str = "is it green?", sender: str = OPS) -> Envelope:
    """An envelope of ops' that has arrived."""
    draft = Draft(sender=sender, to="ann", text=text, intent=Intent.REQUEST, id="a" * 32)
    return (await hub.bus.store.write(lambda tx: accept(hub.bus, tx, draft, [Address("ann")]))).envelope


async def parcel_to(hub: SmallHub, envelope: Envelope, **fields: Any) -> Parcel:
    """A reply or notice about it, on its way back."""
    given = {"sender": "ann", "text": "green", "in_reply_to": envelope.id, "kind": Kind.REPLY, **fields}

    def unit(tx: Tx) -> Parcel:
        done = accept(hub.bus, tx, Draft(**given), [])
        return Parcel(done.deliveries[0], done.envelope)

    return await hub.bus.store.write(unit)


# -------------------------------------------------------------------------------------------------------- handing over


async def test_it_is_forwarded_before_it_leaves_and_says_from_whom_it_is(rack: SmallHub) -> None:
    """#103731: both defaults are ``@hermes``, and replies reach the wrong one; the stamp leads back."""
    await rack.know("hermes")
    sent = await rack.send("hermes", OPS, "is it green?", intent=Intent.REQUEST)
    found = await begun(rack)
    assert await rack.state(sent) is State.FORWARDED
    envelope = found.envelope
    assert (envelope.target_profile, envelope.id) == ("ops", sent.envelope.id)
    assert (envelope.from_profile, envelope.from_handle, found.connection) == ("default", "hermes", HERE)
    assert envelope.message == "Message from 🤖 hermes (@hermes@desk): is it green?"


async def test_a_sender_elsewhere_keeps_its_own_connection(rack: SmallHub) -> None:
    draft = Draft(sender="zed@lab", to=OPS, text="hi", intent=Intent.REQUEST)
    address = Address("ops", "Rack", carrier="rack")
    await rack.bus.store.write(lambda tx: accept(rack.bus, tx, draft, [address]))
    found = await begun(rack)
    assert (found.connection, found.envelope.message) == ("lab", "Message from 🤖 zed (@zed@lab): hi")


async def test_the_longest_body_fits_behind_the_longest_names(rack: SmallHub) -> None:
    """11: 16,200 characters less the names are too few for a legal body."""
    long = "a" * 64
    await rack.know(long)
    await rack.send(long, OPS, "x" * BODY_CHARS, intent=Intent.REQUEST)
    (parcel,) = await take(rack.bus, "rack", 1, 0)
    found = await begin(rack.bus, "rack", parcel, "b" * 64)
    assert found is not None
    assert len(found.envelope.message) <= 16_200
    assert fits(found.envelope.message)


async def test_what_did_not_leave_is_back_in_its_place(rack: SmallHub) -> None:
    sent = await send(rack)
    found = await begun(rack)
    did_not_leave(rack.bus, found.parcel)
    await rack.commit()
    row = await rack.row(sent)
    assert (row.state, row.used) == (State.QUEUED, 0)
    did_not_leave(rack.bus, found.parcel)  # and nothing happens to what is not as it was
    again = await begun(rack)
    did_not_leave(rack.bus, found.parcel)
    await rack.commit()
    assert await rack.state(sent) is State.FORWARDED
    assert again.envelope.reoffered_at is None


async def test_cancelled_before_it_could_leave_it_is_back_in_its_place(
    troubled: SmallHub, store: TroubledStore
) -> None:
    """Stop in the middle: the unit that forwards it is on its way already."""
    await push(troubled, "ops")
    sent = await send(troubled)
    parcel = await taken(troubled)
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        beginning = tasks.create_task(begin(troubled.bus, "rack", parcel, HERE))
        await settle()
        beginning.cancel()
        await settle()
        await store.let_go()
    store.late = False
    await troubled.commit()
    assert await troubled.state(sent) is State.QUEUED


async def test_a_store_that_takes_nothing_leaves_it_taken(troubled: SmallHub, store: TroubledStore) -> None:
    await push(troubled, "ops")
    sent = await send(troubled)
    parcel = await taken(troubled)
    store.refusal = DiskFull("full")
    with pytest.raises(DiskFull):
        await begin(troubled.bus, "rack", parcel, HERE)
    store.refusal = None
    assert await troubled.state(sent) is State.LEASED
    did_not_leave(troubled.bus, parcel)
    await troubled.commit()
    assert await troubled.state(sent) is State.QUEUED


async def test_whoever_is_not_there_any_more_gets_nothing_and_the_sender_is_told(rack: SmallHub) -> None:
    sent = await send(rack)
    parcel = await taken(rack)
    rack.bus.remotes._pushed = {}
    assert await begin(rack.bus, "rack", parcel, HERE) is None
    await rack.commit()
    assert (await rack.row(sent)).state is State.FAILED
    assert await replies(rack) == [("notice", "runtime_offline")]


async def test_what_waited_behind_others_until_its_sender_stopped_waiting_is_not_handed_over(rack: SmallHub) -> None:
    await send(rack)
    parcel = await taken(rack)
    await rack.pass_time(WAITER)
    assert await begin(rack.bus, "rack", parcel, HERE) is None
    await rack.commit()
    assert await replies(rack) == [("notice", "queued_expired")]


async def test_what_was_withdrawn_meanwhile_is_not_handed_over(rack: SmallHub) -> None:
    await send(rack)
    parcel = await taken(rack)
    did_not_leave(rack.bus, parcel)
    await rack.commit()
    assert await begin(rack.bus, "rack", parcel, HERE) is None


async def test_an_outcome_that_never_came_is_asked_for_once_more_and_then_has_timed_out(rack: SmallHub) -> None:
    """#111021, and no double before: 1,560 s, once; 3,120 s after it was sent its sender stops waiting."""
    sent = await send(rack)
    await begun(rack)
    await rack.pass_time(REOFFER - 1)
    assert await rack.state(sent) is State.FORWARDED
    await rack.pass_time(61)
    assert await rack.state(sent) is State.QUEUED
    assert (await begun(rack)).envelope.reoffered_at is not None
    await rack.pass_time(WAITER - REOFFER)
    assert (await rack.row(sent)).reason is Reason.DELIVERY_TIMEOUT
    assert await replies(rack) == [("notice", "delivery_timeout")]


# ------------------------------------------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize(("said", "text"), [("green", "green"), ("", ""), ("[SILENT]", ""), ("NO_REPLY", "")])
async def test_an_answer_is_the_reply_and_silence_an_empty_one(rack: SmallHub, said: str, text: str) -> None:
    sent = await send(rack)
    await answered(rack.bus, await begun(rack), said)
    assert await rack.state(sent) is State.ANSWERED
    assert await replies(rack) == [("reply", text)]


@pytest.mark.parametrize("reason", [Reason.TARGET_BUSY, Reason.PROVIDER_RATE_LIMIT, Reason.UNKNOWN])
async def test_a_refusal_is_told_with_its_own_reason(rack: SmallHub, reason: Reason) -> None:
    await send(rack)
    await failed(rack.bus, await begun(rack), "@ops has no quota", reason)
    assert await replies(rack) == [("notice", reason.value)]


async def test_without_a_reason_the_words_say_it_and_names_do_not(rack: SmallHub) -> None:
    """11: a target called ``quota`` has not run out of it."""
    await send(rack)
    await failed(rack.bus, await begun(rack), "delivery turn failed: quota is angry, status 503", None)
    assert await replies(rack) == [("notice", "provider_server_error")]
    await send(rack, to="hermes@Rack")
    await failed(rack.bus, await begun(rack), "", None)
    assert (await replies(rack))[1:] == [("notice", "unknown")]


async def test_what_is_said_to_an_answer_goes_nowhere(rack: SmallHub) -> None:
    """No two agents answer each other for ever."""
    about = await from_there(rack)
    parcel = await parcel_to(rack, about)
    found = Begun(parcel._replace(delivery=parcel.delivery._replace(state=State.FORWARDED)), (await _any(rack)), HERE)
    await rack.bus.store.write(lambda tx: tx.move(parcel.delivery, found.parcel.delivery))
    before = await replies(rack, "ann")
    await answered(rack.bus, found, "thank you")
    assert await rack.state(found.parcel) is State.DELIVERED
    assert await replies(rack, "ann") == before


async def _any(rack: SmallHub) -> Any:
    await send(rack)
    return (await begun(rack)).envelope


# ------------------------------------------------------------------------------- answers to what came from there


async def test_a_reply_is_the_outcome_of_the_envelope_that_it_answers(rack: SmallHub) -> None:
    about = await from_there(rack)
    found = await answer_to_envelope(rack.bus, "Rack", await parcel_to(rack, about))
    assert found == Answer(about.id, reply="green")
    assert found.params() == {"id": about.id, "reply": "green"}


async def test_an_empty_reply_is_one(rack: SmallHub) -> None:
    about = await from_there(rack)
    found = await answer_to_envelope(rack.bus, "rack", await parcel_to(rack, about, text=""))
    assert found is not None
    assert found.params() == {"id": about.id, "reply": ""}


@pytest.mark.parametrize(
    ("reason", "word"),
    [("queued_expired", "queued_expired"), ("attempts_used_up", "unknown"), ("loop", "agent_blocked")],
)
async def test_a_notice_is_its_failure_with_a_word_that_hermes_knows(rack: SmallHub, reason: str, word: str) -> None:
    about = await from_there(rack)
    parcel = await parcel_to(rack, about)
    notice = parcel.envelope._replace(kind=Kind.NOTICE, text="It failed.", reason=reason)
    found = await answer_to_envelope(rack.bus, "Rack", parcel._replace(envelope=notice))
    assert found is not None
    assert found.params() == {"id": about.id, "error": "It failed.", "reason": word}


async def test_that_nothing_came_is_told_when_its_sender_is_about_to_stop_waiting(rack: SmallHub) -> None:
    """The first outcome counts there: an answer that is slower than our own time to live is not shut out by it."""
    about = await from_there(rack)
    parcel = await parcel_to(rack, about)
    notice = parcel.envelope._replace(kind=Kind.NOTICE, reason="delivery_timeout")
    await rack.pass_time(900)
    found = await answer_to_envelope(rack.bus, "Rack", parcel._replace(envelope=notice))
    assert found is not None
    assert found.wait == WAITER - 60 - 900


async def test_what_answers_no_envelope_of_that_gateway_is_none_of_its_outcomes(rack: SmallHub) -> None:
    about = await from_there(rack, sender="ops@Lab")
    reply = await parcel_to(rack, about)
    assert await answer_to_envelope(rack.bus, "Rack", reply) is None
    await send(rack)
    assert await answer_to_envelope(rack.bus, "Rack", await taken(rack)) is None
    unknown = reply.envelope._replace(in_reply_to="f" * 32)
    assert await answer_to_envelope(rack.bus, "Lab", reply._replace(envelope=unknown)) is None
