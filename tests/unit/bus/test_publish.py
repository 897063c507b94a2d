"""Accepting a message: what is checked, what is stored, what a repeat gets, what has no room, and where it belongs."""

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

import pytest

from angelia.bus import turns
from angelia.bus.agents import remove_agent
from angelia.bus.ask import ask
from angelia.bus.cancel import requeue
from angelia.bus.core import close_bus
from angelia.bus.draft import Accepted, Draft
from angelia.bus.publish import HINTS, UNIT_MESSAGES, publish, publish_many
from angelia.model.connection import Away
from angelia.model.delivery import State
from angelia.model.envelope import Intent, Kind, Lane, Origin
from angelia.model.errors import (
    BadName,
    BadRequest,
    CallerError,
    DiskFull,
    IdReused,
    MailboxFull,
    RateLimited,
    RuntimeOffline,
    Stopping,
    TooLarge,
    UnknownAgent,
    UnknownMessage,
)
from angelia.model.limits import DAY, Limits
from tests.fakes.clock import FakeClock, settle
from tests.fakes.small_hub import SmallHub, texts
from tests.fakes.troubled_store import TroubledStore
from tests.fakes.two_hubs import LinkedHub

ID = "0" * 31 + "a"
OTHER_ID = "0" * 31 + "b"


async def everything(hub: SmallHub) -> list[object]:
    """All that is stored: what a refusal must leave as it was."""
    names = [*hub.bus.directory.agents, "human"]
    rows = [[(p.delivery, p.envelope) for p in await hub.mailbox(name, *State)] for name in names]
    return [rows, await hub.bus.store.read(lambda view: (view.agents(), view.tokens()))]


# --------------------------------------------------------------------------------------------------------- acceptance


async def test_an_accepted_message_is_stored_as_it_was_sent(hub: SmallHub) -> None:
    sent = await hub.send("bob", "ANN", "hi", body=b'{"a":1}', intent="request", ttl_seconds=60, verified=True)
    (parcel,) = await hub.mailbox()
    envelope, row = parcel.envelope, parcel.delivery
    assert envelope == sent.envelope
    assert (envelope.sender, envelope.to, envelope.text, envelope.body) == ("bob", "ann", "hi", b'{"a":1}')
    assert (envelope.intent, envelope.kind, envelope.verified) == (Intent.REQUEST, Kind.MESSAGE, True)
    assert (envelope.thread, envelope.chain, envelope.depth) == (envelope.id, envelope.id, 0)
    assert (envelope.created_at, envelope.expires_at) == (hub.clock.now(), hub.clock.now() + 60_000)
    assert (row.state, row.attempt, row.used, row.seq, row.key) == (State.QUEUED, 0, 0, row.key, row.key)
    assert (row.mailbox, row.to, row.sender, row.size) == ("ann", "ann", "bob", envelope.size)


async def test_seq_counts_the_deliveries_of_the_hub(hub: SmallHub) -> None:
    sent = [await hub.send(to=to) for to in ("ann", "cat", "ann")]
    first = sent[0].deliveries[0].seq
    assert [s.deliveries[0].seq for s in sent] == [first, first + 1, first + 2]


async def test_the_answer_comes_after_the_commit_and_the_hand_over_too(
    store: TroubledStore, troubled: SmallHub
) -> None:
    reader = await troubled.listen()
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(troubled.send())
        await asyncio.sleep(0)
        assert not reader.stream.buffer
        assert not sending.done()
        await store.let_go()
    assert await reader.read() == ["hi"]


async def test_without_an_intent_nothing_is_asked_for(hub: SmallHub) -> None:
    assert (await hub.send()).envelope.intent is Intent.INFORM


async def test_the_first_message_makes_its_sender_known_and_no_member(hub: SmallHub) -> None:
    await hub.send("Dora")
    assert hub.bus.directory.name_of("dora") == "Dora"
    assert "dora" not in {each.mailbox for each in hub.bus.directory.members()}


def _refusals() -> int:
    return sum(isinstance(found, MailboxFull) for found in gc.get_objects())


async def test_a_batch_that_is_refused_leaves_nothing_that_only_a_collection_would_free() -> None:
    """A flood of them would make collections, each of which holds up everybody."""
    hub = await SmallHub.open(Limits(mailbox_deliveries_per_sender=1))
    await hub.send()
    gc.collect()
    before = _refusals()
    gc.disable()
    try:
        outcomes = await publish_many(hub.bus, [Draft(sender="bob", to="ann", text="hi")] * 50)
        assert {type(outcome) for outcome in outcomes} == {MailboxFull}
        del outcomes
        await settle()
        assert _refusals() == before
    finally:
        gc.enable()


async def test_a_batch_keeps_its_order_over_all_its_units(hub: SmallHub) -> None:
    drafts = [Draft(sender="bob", to="ann", text=str(n)) for n in range(2 * UNIT_MESSAGES + 1)]
    outcomes = await publish_many(hub.bus, drafts)
    assert [o.envelope.text for o in outcomes if isinstance(o, Accepted)] == [draft.text for draft in drafts]
    assert texts(await hub.mailbox()) == [draft.text for draft in drafts]


async def test_in_a_batch_a_refusal_harms_no_other(hub: SmallHub) -> None:
    drafts = [Draft(sender="bob", to=to, text=text) for to, text in [("ann", "1"), ("nobody", "2"), ("ann", "")]]
    outcomes = await publish_many(hub.bus, [*drafts, Draft(sender="bob", to="ann", text="4")])
    assert [type(outcome) for outcome in outcomes] == [Accepted, UnknownAgent, BadRequest, Accepted]
    assert texts(await hub.take()) == ["1", "4"]


async def test_in_a_batch_a_refused_answer_leaves_its_question_as_it_was() -> None:
    hub = await SmallHub.open(Limits(open_names=5))
    sent = await hub.send(intent="request")
    await hub.bus.store.write(lambda tx: hub.bus.directory.remove(tx, "ann"))
    await hub.know("dora")  # there is no room for ann to be known again
    answer = Draft(sender="ann", text="!", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    outcomes = await publish_many(hub.bus, [answer, Draft(sender="bob", to="cat", text="x")])
    assert [type(outcome) for outcome in outcomes] == [RateLimited, Accepted]
    assert await hub.state(sent) is State.QUEUED


async def test_a_store_that_refuses_refuses_the_whole_batch(store: TroubledStore, troubled: SmallHub) -> None:
    store.refusal = DiskFull("no room")
    with pytest.raises(DiskFull):
        await publish_many(troubled.bus, [Draft(sender="bob", to="ann", text="x")] * (3 * UNIT_MESSAGES))


# ----------------------------------------------------------------------------------------------------------- refusals

REFUSED: list[tuple[type[CallerError], Mapping[str, Any]]] = [
    (BadRequest, {"text": None}),
    (BadRequest, {"text": ""}),
    (BadRequest, {"text": "half \ud800"}),
    (TooLarge, {"text": "é" * 600}),
    (TooLarge, {"body": b'"' + b"x" * 1000 + b'"'}),
    (BadRequest, {"id": "A" * 32}),
    (BadRequest, {"id": "0" * 31}),
    (BadRequest, {"thread": "../../x"}),
    (BadRequest, {"in_reply_to": "x"}),
    (BadRequest, {"intent": "shout"}),
    (BadRequest, {"key": ""}),
    (BadRequest, {"key": "k" * 256}),
    (BadRequest, {"ttl_seconds": 0}),
    (BadRequest, {"ttl_seconds": 31 * DAY}),
    (BadRequest, {"ttl_seconds": float("nan")}),
    (BadName, {"to": ""}),
    (BadName, {"to": None}),
    (BadName, {"to": "no spaces"}),
    (BadName, {"to": "ann@"}),
    (UnknownAgent, {"to": "nobody"}),
    (UnknownAgent, {"to": "#room"}),
    (UnknownAgent, {"to": "ann@elsewhere"}),
    (UnknownAgent, {"to": "angelia"}),
    (UnknownAgent, {"to": "interop"}),
    (UnknownMessage, {"in_reply_to": ID}),
    (UnknownMessage, {"in_reply_to": ID, "kind": Kind.REPLY, "to": None}),
    (RateLimited, {"sender": "new"}),
]


@pytest.mark.parametrize(("error", "fields"), REFUSED, ids=lambda value: str(value)[:40])
async def test_a_refusal_stores_nothing(error: type[CallerError], fields: Mapping[str, Any]) -> None:
    hub = await SmallHub.open(Limits(text_bytes=1000, body_bytes=1000, open_names=5))
    reader = await hub.listen()
    before = await everything(hub)
    with pytest.raises(error):
        await hub.send(**{"to": "ann", **fields})
    assert await everything(hub) == before
    assert await reader.items() == []
    assert hub.bus.store.load("ann").open == 0


async def test_an_unknown_recipient_is_told_close_names_and_stays_unknown(hub: SmallHub) -> None:
    with pytest.raises(UnknownAgent) as refused:
        await hub.send(to="openclwa")
    assert refused.value.extra["suggestions"] == ["openclaw"]
    assert hub.bus.directory.find("openclwa") is None


async def test_a_message_over_a_link_that_is_not_there_names_the_agent_that_is(hub: SmallHub) -> None:
    with pytest.raises(UnknownAgent) as refused:
        await hub.send(to="ann@mac")
    assert refused.value.extra["suggestions"] == ["ann"]


async def test_nothing_is_accepted_by_a_hub_that_stops(hub: SmallHub) -> None:
    await close_bus(hub.bus)
    with pytest.raises(Stopping):
        await hub.send()


async def test_what_is_exactly_at_a_bound_is_accepted() -> None:
    hub = await SmallHub.open(Limits(text_bytes=10, body_bytes=10))
    await hub.send(text="é" * 5, body=b"1234567890", key="k" * 255, ttl_seconds=1)
    await hub.send(text="x", ttl_seconds=30 * DAY)


async def test_a_full_disk_leaves_the_bus_as_it_was(store: TroubledStore, troubled: SmallHub) -> None:
    reader = await troubled.listen()
    room = reader.stream.room()
    store.fault = DiskFull("no room")
    with pytest.raises(DiskFull):
        await troubled.send("dora", text="lost")
    assert reader.stream.room() == room
    assert await reader.items() == []
    assert troubled.bus.directory.find("dora") is None
    await troubled.send("dora", text="stored")
    assert await reader.read() == ["stored"]
    assert troubled.bus.directory.find("dora") is not None
    assert await store.read(lambda view: view.contacts("dora", 9)) == ["ann"]


# ------------------------------------------------------------------------------------------------------------ repeats


@pytest.mark.parametrize("by", [{"id": ID}, {"key": "a key"}])
async def test_a_repeat_is_the_same_message_and_gets_the_same_answer(hub: SmallHub, by: dict[str, str]) -> None:
    first = await hub.send(**by)
    second = await hub.send(**by)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert (second.envelope, second.deliveries) == (first.envelope, first.deliveries)
    assert len(await hub.mailbox()) == 1


@pytest.mark.parametrize("by", [{"id": ID}, {"key": "a key"}])
@pytest.mark.parametrize("change", [{"text": "other"}, {"sender": "cat"}, {"to": "cat"}, {"intent": "request"},
                                    {"body": b"1"}, {"thread": OTHER_ID}])  # fmt: skip
async def test_another_content_under_the_same_id_is_refused(
    hub: SmallHub, by: dict[str, str], change: dict[str, Any]
) -> None:
    await hub.send(**by)
    before = await everything(hub)
    if "key" in by and "sender" in change:
        assert not (await hub.send(**by, **change)).duplicate  # a key belongs to its sender
        return
    with pytest.raises(IdReused):
        await hub.send(**by, **change)
    assert await everything(hub) == before


async def test_a_repeat_is_known_whatever_became_of_the_message(hub: SmallHub) -> None:
    sent = await hub.send(id=ID)
    held = await hub.take_one()
    assert (await hub.send(id=ID)).deliveries[0].state is State.LEASED
    await hub.ack(held)
    again = await hub.send(id=ID)
    assert (again.duplicate, again.deliveries[0].state) == (True, State.DELIVERED)
    assert again.envelope == sent.envelope


@pytest.mark.parametrize("by", [{"id": ID}, {"key": "a key"}])
async def test_a_repeat_is_known_after_a_restart(hub: SmallHub, by: dict[str, str]) -> None:
    first = await hub.send(**by)
    await hub.restart()
    second = await hub.send(**by)
    assert (second.duplicate, second.envelope.id) == (True, first.envelope.id)
    with pytest.raises(IdReused):
        await hub.send(text="other", **by)


async def test_a_repeat_is_known_for_as_long_as_the_message_is_kept() -> None:
    hub = await SmallHub.open(Limits(settled_keep_seconds=1))
    await hub.send(key="k")
    await hub.ack(await hub.take_one())
    await hub.pass_time(DAY - 1)
    assert (await hub.send(key="k")).duplicate
    await hub.pass_time(2)
    assert not (await hub.send(key="k")).duplicate


async def test_repeats_at_the_same_moment_are_one_message(hub: SmallHub) -> None:
    soon = [publish(hub.bus, Draft(sender="bob", to="ann", text="once", key="k")) for _ in range(50)]
    outcomes = await asyncio.gather(*soon)
    assert [o.duplicate for o in outcomes] == [False] + [True] * 49
    assert len({o.envelope.id for o in outcomes}) == 1
    assert len(await hub.mailbox()) == 1


@pytest.mark.parametrize("by", [{"id": ID}, {"key": "k"}])
async def test_a_repeat_is_known_when_nobody_is_called_so_any_more(hub: SmallHub, by: dict[str, str]) -> None:
    """Whoever was told that nothing was stored would send it anew, and it would be done twice."""
    await hub.know("dora")
    sent = await hub.send("ann", "dora", "hi", **by)
    await remove_agent(hub.bus, "dora")
    again = await hub.send("ann", "dora", "hi", **by)
    assert (again.duplicate, again.envelope) == (True, sent.envelope)
    drafts = [
        Draft(sender="ann", to="dora", text="hi", id=by.get("id"), key=by.get("key")),
        Draft(sender="ann", to="dora", text="new", id="c" * 32),
    ]
    assert [getattr(each, "duplicate", type(each)) for each in await publish_many(hub.bus, drafts)] == [
        True, UnknownAgent,
    ]  # fmt: skip
    with pytest.raises(UnknownAgent, match="Nothing was stored"):
        await hub.send("ann", "dora", "new", id="c" * 32)


async def test_whoever_asks_again_waits_on_when_nobody_is_called_so_any_more(hub: SmallHub) -> None:
    await hub.know("dora")
    asked = await hub.send("ann", "dora", "well?", id=ID, intent=Intent.REQUEST)
    await remove_agent(hub.bus, "dora")
    found = await ask(hub.bus, Draft(sender="ann", to="dora", text="well?", id=ID), 0)
    assert (found.question, found.pending) == (asked.envelope, True)
    assert found.waiter is not None
    assert found.waiter.targets == ("dora",)
    with pytest.raises(UnknownAgent):
        await ask(hub.bus, Draft(sender="ann", to="dora", text="well?", id="c" * 32), 0)
    assert len(hub.bus.asks) == 1


async def test_a_repeat_is_not_handed_over_again(hub: SmallHub) -> None:
    reader = await hub.listen()
    await hub.send(id=ID)
    await hub.send(id=ID)
    assert await reader.read() == ["hi"]


async def test_a_repeated_answer_is_one_answer(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    for duplicate in (False, True):
        answer = await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id, key="k")
        assert answer.duplicate is duplicate
    assert len(await hub.mailbox("bob")) == 1


# ------------------------------------------------------------------------------------------------------------- bounds


async def test_a_full_mailbox_takes_no_more_until_there_is_room() -> None:
    hub = await SmallHub.open(Limits(mailbox_deliveries=2))
    await hub.send_all("1", "2")
    with pytest.raises(MailboxFull) as refused:
        await hub.send(text="3")
    assert refused.value.extra["limit"] == 2
    held = await hub.take_one()
    with pytest.raises(MailboxFull):
        await hub.send(text="3")
    await hub.ack(held)
    await hub.send(text="3")


async def test_one_sender_cannot_lock_the_others_out() -> None:
    hub = await SmallHub.open(Limits(mailbox_deliveries_per_sender=2))
    await hub.send_all("1", "2")
    with pytest.raises(MailboxFull):
        await hub.send("BOB")
    await hub.send("cat")


async def test_answers_are_not_counted_against_their_senders_share() -> None:
    hub = await SmallHub.open(Limits(mailbox_deliveries_per_sender=1))
    asked = [await hub.send("ann", "bob", str(n)) for n in range(1)]
    await hub.send(text="1")
    await hub.send("bob", None, "answer", kind=Kind.REPLY, in_reply_to=asked[0].envelope.id)
    assert len(await hub.mailbox()) == 2


async def test_a_mailbox_is_bounded_in_bytes() -> None:
    hub = await SmallHub.open(Limits(mailbox_bytes=1000))
    await hub.send(text="x" * 400)
    with pytest.raises(MailboxFull):
        await hub.send(text="x" * 200, verified=True)
    await hub.send(text="x" * 88, verified=True)
    assert hub.bus.store.load("ann").bytes == 1000


async def test_mail_to_everyone_goes_to_the_members_that_have_room() -> None:
    hub = await SmallHub.open(Limits(mailbox_deliveries=1))
    await hub.send(to="hermes", text="fills it")
    sent = await hub.send(to="*")
    assert [row.to for row in sent.deliveries] == ["openclaw"]
    assert [(to, error.code) for to, error in sent.refused] == [("hermes", "mailbox_full")]
    with pytest.raises(MailboxFull):
        await hub.send(to="*")


async def test_everyone_is_the_members_but_the_sender(hub: SmallHub) -> None:
    await hub.take("dora")
    assert {row.to for row in (await hub.send(to="*")).deliveries} == {"hermes", "openclaw", "dora"}
    assert {row.to for row in (await hub.send("hermes", to="*")).deliveries} == {"openclaw", "dora"}
    assert {row.to for row in (await hub.send("human", to="*")).deliveries} == {"hermes", "openclaw", "dora"}


async def test_mail_to_everyone_is_one_message(hub: SmallHub) -> None:
    sent = await hub.send(to="*")
    assert sent.envelope.to == "*"
    assert len({row.message_id for row in sent.deliveries}) == 1
    assert len(await hub.rows(sent)) == 2


async def test_mail_to_everyone_is_refused_where_there_is_nobody_else(hub: SmallHub) -> None:
    for name in ("hermes", "openclaw"):
        await hub.bus.store.write(lambda tx, name=name: hub.bus.directory.remove(tx, name))  # type: ignore[misc]
    with pytest.raises(UnknownAgent):
        await hub.send(to="*")


# ------------------------------------------------------------------------------------------------------ conversations


async def test_an_answer_settles_its_message_in_one_step(hub: SmallHub) -> None:
    sent = await hub.send(intent="request", text="question")
    await hub.ack(await hub.take_one())
    reply = await hub.send("ann", None, "answer", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    row = await hub.row(sent)
    assert (row.state, row.answered_at, row.reason) == (State.ANSWERED, hub.clock.now(), None)
    envelope = reply.envelope
    assert (envelope.kind, envelope.intent, envelope.to) == (Kind.REPLY, Intent.INFORM, "bob")
    assert (envelope.thread, envelope.chain, envelope.depth) == (sent.envelope.id, sent.envelope.id, 1)
    assert texts(await hub.take("bob")) == ["answer"]


@pytest.mark.parametrize("state", ["queued", "leased", "delivered", "answered"])
async def test_an_answer_is_taken_in_any_state_that_can_be_answered(hub: SmallHub, state: str) -> None:
    sent = await hub.send(intent="request")
    if state != "queued":
        held = await hub.take_one()
        if state != "leased":
            await hub.ack(held)
    if state == "answered":
        await hub.send("ann", None, "first", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    reply = await hub.send("ann", None, "answer", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    assert await hub.state(sent) is State.ANSWERED
    assert not reply.deliveries[0].late
    assert len(hub.bus.leases) == 0
    assert await hub.take() == []


async def test_a_message_back_to_the_sender_is_an_answer_too(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    reply = await hub.send("ann", "Bob", "answer", in_reply_to=sent.envelope.id, intent="request")
    assert (reply.envelope.kind, reply.envelope.intent) == (Kind.REPLY, Intent.INFORM)
    assert await hub.state(sent) is State.ANSWERED


async def test_a_message_to_a_third_party_about_it_is_none(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    other = await hub.send("ann", "cat", "help me", in_reply_to=sent.envelope.id, intent="request")
    assert (other.envelope.kind, other.envelope.intent) == (Kind.MESSAGE, Intent.REQUEST)
    assert (other.envelope.thread, other.envelope.depth) == (sent.envelope.id, 1)
    assert await hub.state(sent) is State.QUEUED


async def test_the_sender_may_follow_up_and_answers_nothing_by_it(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    more = await hub.send(text="one more thing", in_reply_to=sent.envelope.id)
    assert more.envelope.kind is Kind.MESSAGE
    assert await hub.state(sent) is State.QUEUED


async def test_the_text_of_an_answer_may_be_empty(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    await hub.send("ann", None, "", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    assert texts(await hub.take("bob")) == [""]


async def test_nobody_answers_what_was_not_sent_to_it(hub: SmallHub) -> None:
    sent = await hub.send(intent="request")
    for stranger in ("cat", "bob", "human"):
        with pytest.raises(UnknownMessage):
            await hub.send(stranger, None, "me too", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    assert await hub.state(sent) is State.QUEUED


async def test_a_stranger_cannot_refer_to_a_message(hub: SmallHub) -> None:
    sent = await hub.send()
    with pytest.raises(UnknownMessage):
        await hub.send("cat", "ann", in_reply_to=sent.envelope.id)


async def test_a_notice_of_the_hub_is_not_answered(hub: SmallHub) -> None:
    await hub.send(intent="request", ttl_seconds=1)
    await hub.pass_time(2)
    (notice,) = await hub.take("bob")
    with pytest.raises(BadRequest):
        await hub.send("bob", None, "oh", kind=Kind.REPLY, in_reply_to=notice.envelope.id)


@pytest.mark.parametrize("end", ["failed", "dead"])
async def test_a_late_answer_is_delivered_and_marked_and_the_state_stays(end: str) -> None:
    hub = await SmallHub.open(Limits(reader_attempts=1))
    sent = await hub.send(intent="request", ttl_seconds=1)
    if end == "dead":
        await hub.nack(await hub.take_one())
    else:
        await hub.pass_time(2)
    before = await hub.row(sent)
    assert before.state.word == end
    reply = await hub.send("ann", None, "sorry", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    assert reply.deliveries[0].late
    assert await hub.row(sent) == before
    assert "sorry" in texts(await hub.take("bob"))


async def test_each_recipient_of_mail_to_everyone_answers_for_itself(hub: SmallHub) -> None:
    sent = await hub.send(to="*", intent="request")
    await hub.send("hermes", None, "here", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    assert (await hub.row(sent, "hermes")).state is State.ANSWERED
    assert (await hub.row(sent, "openclaw")).state is State.QUEUED


async def test_a_thread_given_is_kept_and_carries_its_chain(hub: SmallHub) -> None:
    root = await hub.send()
    joined = await hub.send("ann", "cat", "you too", thread=root.envelope.id)
    assert (joined.envelope.thread, joined.envelope.chain, joined.envelope.depth) == (
        root.envelope.id, root.envelope.id, 1,
    )  # fmt: skip
    fresh = await hub.send("cat", "ann", "new", thread=ID)
    assert (fresh.envelope.thread, fresh.envelope.chain, fresh.envelope.depth) == (ID, fresh.envelope.id, 0)


async def test_anothers_thread_is_to_a_stranger_like_one_that_is_not_there() -> None:
    """Or whoever knows an id could use up the hour of two that talk, and learn how deep they are in it."""
    hub = await SmallHub.open(Limits(chain_per_hour=3))
    await hub.know("ann", "cat")
    root = await hub.send()
    for n in range(9):
        sent = await hub.send("eve", "cat", str(n), thread=root.envelope.id)
        envelope = sent.envelope
        assert (envelope.thread, envelope.chain, envelope.depth) == (root.envelope.id, envelope.id, 0)
    reply = await hub.send("ann", "bob", "hi", in_reply_to=root.envelope.id)
    assert reply.deliveries[0].state is State.QUEUED


async def test_a_person_starts_a_chain_anew(hub: SmallHub) -> None:
    sent = await hub.send("ann", "human")
    reply = await hub.send("human", None, "go on", kind=Kind.REPLY, in_reply_to=sent.envelope.id, lane=Lane.PERSON)
    assert (reply.envelope.thread, reply.envelope.chain, reply.envelope.depth) == (
        sent.envelope.id, reply.envelope.id, 0,
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- loops


async def ping_pong(hub: SmallHub, rounds: int) -> list[State]:
    """Two agents that answer each other: the state in which each message starts."""
    last = await hub.send("ann", "bob", "0")
    states = [last.deliveries[0].state]
    for n in range(1, rounds):
        one, other = ("bob", "ann") if n % 2 else ("ann", "bob")
        last = await hub.send(one, other, str(n), in_reply_to=last.envelope.id)
        states.append(last.deliveries[0].state)
    return states


async def test_a_chain_that_is_too_deep_is_held() -> None:
    hub = await SmallHub.open(Limits(chain_depth=5, chain_per_hour=1000))
    assert await ping_pong(hub, 8) == [State.QUEUED] * 6 + [State.HELD] * 2


async def test_a_chain_that_is_too_fast_is_held_and_goes_on_after_an_hour() -> None:
    hub = await SmallHub.open(Limits(chain_per_hour=3))
    root = await hub.send()
    states = [(await hub.send("bob", "ann", str(n), thread=root.envelope.id)).deliveries[0].state for n in range(5)]
    assert states == [State.QUEUED] * 3 + [State.HELD] * 2
    await hub.pass_time(3601)
    assert (await hub.send("bob", "ann", thread=root.envelope.id)).deliveries[0].state is State.QUEUED


@pytest.mark.parametrize("what", ["nothing", "the conversation", "what it began with"])
async def test_what_an_agent_sends_in_a_turn_descends_from_that_whatever_it_says(hub: SmallHub, what: str) -> None:
    """F053. Three who write anew each time, or name what is far behind, would go round for ever."""
    first = last = await hub.send("dan", "ann", "0")
    for one, other in (("ann", "bob"), ("bob", "cat"), ("cat", "ann"), ("ann", "bob")):
        run = await turns.begin(hub.bus, one, "command")
        assert run is not None
        named: dict[str, Any] = {"thread": last.envelope.thread} if what == "the conversation" else {}
        if what == "what it began with" and one == "ann":
            named = {"in_reply_to": first.envelope.id}
        sent = await hub.send(one, other, **named)
        await turns.accepted(hub.bus, run)
        assert (sent.envelope.chain, sent.envelope.depth) == (first.envelope.id, last.envelope.depth + 1)
        last = sent
    assert (await hub.send("bob", "cat")).envelope.depth == 0  # between turns it begins something


async def test_by_default_a_chain_has_sixty_four_messages_in_an_hour(hub: SmallHub) -> None:
    assert await ping_pong(hub, 67) == [State.QUEUED] * 65 + [State.HELD] * 2


async def test_held_mail_says_why_wakes_nobody_and_waits_for_a_person() -> None:
    hub = await SmallHub.open(Limits(chain_depth=0))
    root = await hub.send()
    await hub.ack(await hub.take_one())
    reader = await hub.listen()
    held = await hub.send("bob", "ann", "looping", thread=root.envelope.id)
    row = held.deliveries[0]
    assert (row.state, row.reason, row.attempt) == (State.HELD, "chain_budget", 0)
    assert await reader.items() == []
    await requeue(hub.bus, held.envelope.id)
    assert await reader.read() == ["looping"]


async def test_a_person_is_never_held() -> None:
    hub = await SmallHub.open(Limits(chain_depth=0, chain_per_hour=0))
    sent = await hub.send("ann", "human")
    reply = await hub.send("human", None, "ok", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    assert reply.deliveries[0].state is State.QUEUED


async def test_a_held_answer_is_not_shown_to_who_asked() -> None:
    hub = await SmallHub.open(Limits(chain_depth=0))
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(hub.bus, Draft(sender="bob", to="ann", text="?"), 10))
        (question,) = await hub.take(wait_seconds=5)
        await hub.send("ann", None, "!", kind=Kind.REPLY, in_reply_to=question.envelope.id)
        await hub.clock.advance(11)
    assert asking.result().pending


# -------------------------------------------------------------------------------------------- to and from elsewhere


@pytest.fixture
async def linked() -> LinkedHub:
    """A hub with a link to a rack, where ops is."""
    hub = await LinkedHub.start("lap", 1, FakeClock(), "ann", "bob")
    await hub.connect("rack", "a" * 32)
    await hub.learn("rack", [{"handle": "ops", "hub": "a" * 32, "name": "rack", "way": ["a" * 32]}])
    return hub


async def test_what_leaves_this_hub_keeps_what_its_sender_said(linked: LinkedHub) -> None:
    """All that its fingerprint is made over, so that it holds wherever it goes."""
    sent = await linked.send("bob", "OPS@Rack", "hi", intent="request", thread=ID)
    assert sent.envelope.to == "ops@rack"
    assert sent.envelope.origin == Origin(linked.me, "bob", "OPS@Rack", "request", "message", ID)
    plain = await linked.send("bob", "ops", "hi")
    assert plain.envelope.origin == Origin(linked.me, "bob", "ops", None, "message", None)
    assert plain.envelope.via == ()


async def test_what_stays_here_needs_none(linked: LinkedHub) -> None:
    assert (await linked.send("bob", "ann")).envelope.origin is None


async def test_an_answer_to_one_elsewhere_goes_by_the_link_that_asked_and_needs_no_roster(linked: LinkedHub) -> None:
    asked = await linked.send("ops@rack", "ann", "well?", intent="request")
    await linked.learn("rack", [])
    answer = await linked.send("ann", None, "well", kind=Kind.REPLY, in_reply_to=asked.envelope.id)
    (row,) = answer.deliveries
    assert (row.to, row.mailbox, row.connection) == ("ops@rack", "ops@rack", "rack")
    assert answer.envelope.origin == Origin(linked.me, "ann", "", None, "reply", None)


async def test_what_goes_to_another_hub_has_a_hubs_bounds_and_not_those_of_hermes(linked: LinkedHub) -> None:
    sent = await linked.send("bob", "ops", "x" * 100_000)
    assert sent.deliveries[0].expires_at - sent.deliveries[0].accepted_at == 7 * DAY * 1000


@pytest.mark.parametrize("to", ["ops@rack", "ops"])
async def test_a_connection_that_refuses_while_it_is_down_refuses_at_the_send(linked: LinkedHub, to: str) -> None:
    await linked.connect("rack", "a" * 32, away=Away.REFUSE)
    await linked.send("bob", to, id=ID)
    linked.bus.neighbours.set_up("rack", up=False)
    assert (await linked.send("bob", to, id=ID)).duplicate  # it waits already
    with pytest.raises(RuntimeOffline):
        await linked.send("bob", to)
    assert len(await linked.mailbox("ops@rack")) == 1
    await linked.connect("rack", "a" * 32, away=Away.WAIT)
    linked.bus.neighbours.set_up("rack", up=False)
    await linked.send("bob", to)


async def test_a_mailbox_elsewhere_has_bounds_too() -> None:
    hub = await LinkedHub.start("lap", 1, FakeClock(), "bob", limits=Limits(mailbox_deliveries=1))
    await hub.connect("rack", "a" * 32)
    await hub.learn("rack", [{"handle": "ops", "hub": "a" * 32, "name": "rack", "way": ["a" * 32]}])
    await hub.send("bob", "ops")
    with pytest.raises(MailboxFull):
        await hub.send("bob", "ops")


async def test_everybody_is_everybody_here(linked: LinkedHub) -> None:
    assert all(row.connection is None for row in (await linked.send("bob", "*")).deliveries)


async def test_close_names_are_looked_for_a_few_times_in_a_batch(hub: SmallHub) -> None:
    """Each look takes a millisecond of the loop, in which everybody waits."""
    await hub.know("annabel")
    drafts = [Draft(sender="bob", to="anabel", text=str(n)) for n in range(HINTS + 5)]
    outcomes = await publish_many(hub.bus, drafts)
    assert [isinstance(each, UnknownAgent) for each in outcomes] == [True] * (HINTS + 5)
    hinted = [bool(each.extra["suggestions"]) for each in outcomes if isinstance(each, UnknownAgent)]
    assert hinted == [True] * HINTS + [False] * 5


async def test_a_name_at_local_is_nobody_elsewhere(linked: LinkedHub) -> None:
    assert (await linked.send("bob", "ops", "hi")).deliveries[0].connection is not None
    with pytest.raises(UnknownAgent):
        await linked.send("bob", "OPS@Local", "hi")
