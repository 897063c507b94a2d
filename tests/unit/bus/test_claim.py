"""Taking mail and settling it: order, leases, renewals, late acks, backing off, and who goes away meanwhile."""

import asyncio

import pytest

from angelia.bus.agents import make_token
from angelia.bus.caller import ADMIN, OPEN, Caller, Rank
from angelia.bus.cancel import cancel, requeue
from angelia.bus.claim import Claimer, ack, claim, owns, release, settle_written
from angelia.bus.core import close_bus
from angelia.bus.ports import Scope
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Kind, Lane
from angelia.model.errors import BadRequest, DiskFull, LeaseLost, RateLimited, Stopping, UnknownMessage
from angelia.model.limits import Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub, texts
from tests.fakes.troubled_store import TroubledStore

ANN = Caller(Rank.AGENT, "Ann")
BOB = Caller(Rank.AGENT, "bob")

# ------------------------------------------------------------------------------------------------------------- taking


async def test_a_claim_leases_in_order_and_says_how_much_waits(hub: SmallHub) -> None:
    await hub.send_all("1", "2", "3")
    taken = await claim(hub.bus, Scope("ann"), reader="ann", limit=2)
    assert (texts(taken.parcels), taken.remaining) == (["1", "2"], 1)
    assert {(p.delivery.state, p.delivery.attempt, p.delivery.hand) for p in taken.parcels} == {
        (State.LEASED, 1, Hand.CLAIM)
    }


async def test_a_persons_mail_is_taken_first(hub: SmallHub) -> None:
    await hub.send_all("1", "2")
    await hub.send("human", text="first", lane=Lane.PERSON)
    assert texts(await hub.take()) == ["first", "1", "2"]


async def test_of_many_claimants_each_delivery_has_one(hub: SmallHub) -> None:
    await hub.send_all(*[str(n) for n in range(30)])
    async with asyncio.TaskGroup() as tasks:
        claims = [tasks.create_task(hub.take(limit=1)) for _ in range(50)]
    taken = [text for each in claims for text in texts(each.result())]
    assert sorted(taken, key=lambda text: int(text or 0)) == [str(n) for n in range(30)]


async def test_the_attempt_is_on_disk_before_the_taker_hears_of_it(store: TroubledStore, troubled: SmallHub) -> None:
    sent = await troubled.send()
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(troubled.take())
        await settle()
        assert (await troubled.row(sent)).attempt == 1
        assert not taking.done()
        await store.let_go()


async def test_a_claim_makes_the_name_known_and_a_member(hub: SmallHub) -> None:
    assert await hub.take("dora") == []
    assert "dora" in {each.mailbox for each in hub.bus.directory.members()}


async def test_a_claim_of_one_name_too_many_is_refused() -> None:
    hub = await SmallHub.open(Limits(open_names=2), known=())
    with pytest.raises(RateLimited):
        await hub.take("dora")


@pytest.mark.parametrize(
    "bounds",
    [{"limit": 0}, {"limit": 101}, {"lease_seconds": 0.5}, {"lease_seconds": 1801}, {"lease_seconds": float("nan")},
     {"wait_seconds": -1}, {"wait_seconds": 61}, {"wait_seconds": float("nan")}],
)  # fmt: skip
async def test_a_bound_out_of_range_is_refused_and_takes_nothing(hub: SmallHub, bounds: dict[str, float]) -> None:
    sent = await hub.send()
    with pytest.raises(BadRequest):
        await claim(hub.bus, Scope("ann"), reader="ann", **bounds)  # type: ignore[arg-type]
    assert await hub.state(sent) is State.QUEUED


async def test_what_expired_in_the_queue_is_not_handed_over(hub: SmallHub) -> None:
    old = await hub.send(text="old", ttl_seconds=1, intent="request")
    await hub.send(text="new")
    await hub.clock.advance(2)
    assert texts(await hub.take()) == ["new"]
    row = await hub.row(old)
    assert (row.state, row.reason, row.attempt) == (State.FAILED, "queued_expired", 0)
    assert [n.reason for n in await hub.notices()] == ["queued_expired"]


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_a_claim_finds_mail_behind_any_number_of_expired_ones(hub: SmallHub, limit: int) -> None:
    await hub.send_all(*["old"] * 250, ttl_seconds=1)
    await hub.send(text="new")
    await hub.clock.advance(2)
    assert texts(await hub.take(limit=limit)) == ["new"]


async def test_what_began_in_time_may_be_taken_again_after_its_time(hub: SmallHub) -> None:
    await hub.send(ttl_seconds=1)
    held = await hub.take_one()
    await hub.pass_time(5)
    await hub.nack(held, 0)
    assert (await hub.take_one()).delivery.attempt == 2


async def test_what_came_back_after_its_time_expires_after_the_grace(hub: SmallHub) -> None:
    sent = await hub.send(ttl_seconds=1)
    held = await hub.take_one()
    await hub.pass_time(5)
    await hub.nack(held, 0)
    await hub.pass_time(899)
    assert await hub.state(sent) is State.QUEUED
    await hub.pass_time(2)
    assert await hub.state(sent) is State.FAILED


# ------------------------------------------------------------------------------------------------------------ waiting


async def test_a_claim_that_waits_gets_what_arrives(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=30))
        await settle()
        assert not waiting.done()
        await hub.send(text="hello")
    assert texts(waiting.result().parcels) == ["hello"]


async def test_a_claim_that_waits_ends_empty_when_its_time_is_up(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=30))
        await hub.clock.advance(29.9)
        assert not waiting.done()
        await hub.clock.advance(0.2)
    assert waiting.result().parcels == []


async def test_mail_that_commits_while_a_claim_looks_is_not_missed(store: TroubledStore, troubled: SmallHub) -> None:
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claim(troubled.bus, Scope("ann"), reader="ann", wait_seconds=30))
        await settle()
        tasks.create_task(troubled.send())
        await store.let_go()  # the empty look and the mail reach the loop together
    assert texts(waiting.result().parcels) == ["hi"]


async def test_one_message_wakes_many_and_goes_to_one(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=30)) for _ in range(5)]
        await settle()
        await hub.send()
        await hub.clock.advance(31)
    assert sorted(len(each.result().parcels) for each in waiting) == [0, 0, 0, 0, 1]


async def test_a_claim_that_waits_ends_when_the_hub_stops(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=30))
        await settle()
        await close_bus(hub.bus)
    assert waiting.result().parcels == []
    with pytest.raises(Stopping):
        await hub.take()


# ----------------------------------------------------------------------------------------------- going away meanwhile


@pytest.mark.parametrize("hand", [Hand.CLAIM, Hand.POLL])
@pytest.mark.parametrize("when", ["before the unit", "before the loop hears", "as the answer comes"])
async def test_whoever_goes_away_before_it_was_handed_anything_gives_it_back(
    store: TroubledStore, troubled: SmallHub, hand: Hand, when: str
) -> None:
    sent = await troubled.send()
    store.late = True
    async with asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(troubled.take(hand=hand))
        await asyncio.sleep(0)
        if when == "before the unit":
            taking.cancel()
        await settle()
        if when == "before the loop hears":
            taking.cancel()
        if when == "as the answer comes":
            store.kept_last(taking.cancel)
        await store.let_go()
    assert taking.cancelled()
    row = await troubled.row(sent)
    assert (row.state, row.used) == (State.QUEUED, 0)
    assert len(troubled.bus.leases) == 0
    assert len(await troubled.take()) == 1


async def test_a_claimer_that_is_marked_gone_is_handed_nothing(hub: SmallHub) -> None:
    claimer = Claimer()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=30, claimer=claimer))
        await settle()
        claimer.gone = True
        sent = await hub.send()
    assert waiting.result().parcels == []
    assert await hub.state(sent) is State.QUEUED


async def test_a_waiting_claim_that_is_cancelled_leaves_mail_where_it_is(hub: SmallHub) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=30))
        await settle()
        waiting.cancel()
        sent = await hub.send()
    assert await hub.state(sent) is State.QUEUED


async def test_a_release_uses_up_no_attempt_unless_bytes_were_written(hub: SmallHub) -> None:
    sent = await hub.send()
    for written, used in ((False, 0), (True, 1), (False, 1)):
        release(hub.bus, await hub.take(hand=Hand.POLL), used=written)
        await settle()
        row = await hub.row(sent)
        assert (row.state, row.used) == (State.QUEUED, used)
    assert (await hub.row(sent)).attempt == 3


async def test_releasing_nothing_costs_nothing(store: TroubledStore, troubled: SmallHub) -> None:
    before = store.commits
    release(troubled.bus, [], used=True)
    await settle()
    assert store.commits == before


# ------------------------------------------------------------------------------------------------------------- leases


async def test_a_lease_that_runs_out_returns_at_once_and_counts(hub: SmallHub) -> None:
    sent = await hub.send()
    await hub.take(lease_seconds=60)
    await hub.pass_time(59)
    assert await hub.state(sent) is State.LEASED
    await hub.pass_time(2)
    row = await hub.row(sent)
    assert (row.state, row.attempt, row.used, row.deferred) == (State.QUEUED, 1, 1, False)
    assert len(hub.bus.leases) == 0


async def test_the_end_of_a_lease_wakes_who_waits(hub: SmallHub) -> None:
    await hub.send()
    await hub.take(lease_seconds=1)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=30))
        await hub.pass_time(2)
    assert len(waiting.result().parcels) == 1


async def test_a_renewal_moves_the_end_of_the_lease(hub: SmallHub) -> None:
    sent = await hub.send()
    held = await hub.take_one(lease_seconds=60)
    await hub.pass_time(50)
    outcome = await hub.renew(held, 60)
    assert outcome.ends == hub.clock.now() + 60_000
    await hub.pass_time(59)
    assert await hub.state(sent) is State.LEASED
    await hub.pass_time(2)
    assert await hub.state(sent) is State.QUEUED


async def test_a_renewal_may_bring_the_end_nearer(hub: SmallHub) -> None:
    sent = await hub.send()
    held = await hub.take_one(lease_seconds=600)
    await hub.renew(held, 5)
    await hub.pass_time(6)
    assert await hub.state(sent) is State.QUEUED


async def test_no_lease_outlives_its_cap() -> None:
    hub = await SmallHub.open(Limits(lease_total_seconds=100))
    sent = await hub.send()
    held = await hub.take_one()
    await hub.pass_time(50)
    assert (await hub.renew(held)).ends == hub.clock.now() + 50_000
    await hub.pass_time(49)
    assert (await hub.renew(held)).ends == hub.clock.now() + 1_000
    await hub.clock.advance(1)
    with pytest.raises(LeaseLost):
        await hub.renew(held)
    await hub.pass_time(0)
    assert await hub.state(sent) is State.QUEUED


async def test_renewing_all_day_sets_no_more_than_one_reminder() -> None:
    hub = await SmallHub.open(Limits(lease_total_seconds=1e6))
    await hub.send()
    held = await hub.take_one()
    for _ in range(200):
        await hub.renew(held)
        await hub.pass_time(1)
    assert len(hub.bus.timers) == 1


async def test_a_lease_on_its_way_back_is_not_renewed(store: TroubledStore, troubled: SmallHub) -> None:
    await troubled.send()
    held = await troubled.take_one(lease_seconds=1)
    await troubled.clock.advance(2)
    store.late = True
    troubled.bus.timers.fire(troubled.clock.monotonic())
    await settle()
    with pytest.raises(LeaseLost):
        await troubled.renew(held)
    await store.let_go()


async def test_a_lease_that_no_longer_is_cannot_be_renewed(hub: SmallHub) -> None:
    await hub.send()
    held = await hub.take_one()
    await hub.ack(held)
    with pytest.raises(LeaseLost):
        await hub.renew(held)


async def test_a_lapse_is_tried_again_when_the_disk_was_full(store: TroubledStore, troubled: SmallHub) -> None:
    sent = await troubled.send()
    await troubled.take(lease_seconds=1)
    store.refusal = DiskFull("no room")
    await troubled.clock.advance(2)
    troubled.bus.timers.fire(troubled.clock.monotonic())
    await settle()
    store.refusal = None
    await troubled.pass_time(1)
    assert (await troubled.row(sent)).used == 1


# --------------------------------------------------------------------------------------------------------------- acks


async def test_an_ack_settles_once_and_a_second_one_says_so(hub: SmallHub) -> None:
    sent = await hub.send()
    held = await hub.take_one()
    first, second = await hub.ack(held), await hub.ack(held)
    assert (first.state, first.already, first.late) == (State.DELIVERED, False, False)
    assert (second.state, second.already) == (State.DELIVERED, True)
    assert (await hub.row(sent)).delivered_at == hub.clock.now()


async def test_an_ack_after_the_answer_is_no_error(hub: SmallHub) -> None:
    sent = await hub.send()
    held = await hub.take_one()
    await hub.send("ann", None, "done", kind=Kind.REPLY, in_reply_to=sent.envelope.id)
    outcome = await hub.ack(held)
    assert (outcome.state, outcome.already) == (State.ANSWERED, True)


async def test_a_late_ack_is_good_while_nobody_has_claimed_since(hub: SmallHub) -> None:
    sent = await hub.send()
    held = await hub.take_one(lease_seconds=1)
    await hub.pass_time(2)
    outcome = await hub.ack(held)
    assert (outcome.state, outcome.late) == (State.DELIVERED, True)
    row = await hub.row(sent)
    assert (row.state, row.late) == (State.DELIVERED, True)
    assert await hub.take() == []


async def test_a_late_ack_is_refused_once_somebody_has_claimed_since(hub: SmallHub) -> None:
    sent = await hub.send()
    old = await hub.take_one(lease_seconds=1)
    await hub.pass_time(2)
    new = await hub.take_one()
    with pytest.raises(LeaseLost) as lost:
        await hub.ack(old)
    assert lost.value.extra == {"state": "leased", "attempt": 2, "holder": "claim"}
    assert await hub.state(sent) is State.LEASED
    await hub.nack(new, 0)
    with pytest.raises(LeaseLost) as lost:
        await hub.ack(old)
    assert lost.value.extra["holder"] is None


async def test_an_ack_is_good_after_a_restart_of_the_hub(hub: SmallHub) -> None:
    sent = await hub.send()
    held = await hub.take_one()
    await hub.restart()
    row = await hub.row(sent)
    assert (row.state, row.attempt, row.used) == (State.QUEUED, 1, 0)
    assert (await hub.ack(held)).late
    assert await hub.state(sent) is State.DELIVERED


async def test_an_ack_after_a_restart_and_a_new_claim_is_refused(hub: SmallHub) -> None:
    await hub.send()
    held = await hub.take_one()
    await hub.restart()
    await hub.take()
    with pytest.raises(LeaseLost):
        await hub.ack(held)


async def test_an_ack_of_what_was_withdrawn_is_refused(hub: SmallHub) -> None:
    sent = await hub.send()
    held = await hub.take_one()
    await cancel(hub.bus, OPEN, sent.envelope.id)
    with pytest.raises(LeaseLost) as lost:
        await hub.ack(held)
    assert lost.value.extra["state"] == "failed"


async def test_an_old_ack_of_a_dead_letter_is_refused_and_good_again_once_it_was_requeued() -> None:
    hub = await SmallHub.open(Limits(reader_attempts=1))
    sent = await hub.send()
    held = await hub.take_one()
    assert (await hub.nack(held)).state is State.DEAD
    with pytest.raises(LeaseLost):
        await hub.ack(held)
    await requeue(hub.bus, sent.envelope.id)
    assert (await hub.ack(held)).late


@pytest.mark.parametrize(
    "token", ["", "x", "1-1", "1-1-00", "1-1-" + "0" * 24, "1-1-1-1", "a-b-c", "²-1-x", "\ud800-1-x"]
)
async def test_a_token_that_was_made_up_is_no_lease(hub: SmallHub, token: str) -> None:
    await hub.send()
    await hub.take()
    with pytest.raises(UnknownMessage):
        await ack(hub.bus, OPEN, token)


async def test_acks_settle_nothing_beside_their_own(hub: SmallHub) -> None:
    await hub.send_all("1", "2", "3")
    one, two, three = await hub.take()
    await hub.ack(three)
    await hub.nack(two, 0)
    assert [(await hub.row(p.delivery.message_id)).state.word for p in (one, two, three)] == [
        "leased", "queued", "delivered",
    ]  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- nacks


async def test_nacks_back_off_one_two_four_up_to_sixty_seconds() -> None:
    hub = await SmallHub.open(Limits(reader_attempts=99))
    sent = await hub.send()
    for delay in (1, 2, 4, 8, 16, 32, 60, 60):
        await hub.nack(await hub.take_one())
        assert (await hub.row(sent)).deferred
        await hub.pass_time(delay - 0.1)
        assert await hub.take() == [], delay
        await hub.pass_time(0.2)
    assert len(await hub.take()) == 1


async def test_a_nack_may_say_how_long(hub: SmallHub) -> None:
    await hub.send()
    await hub.nack(await hub.take_one(), 3600)
    await hub.pass_time(3599)
    assert await hub.take() == []
    await hub.pass_time(2)
    assert len(await hub.take()) == 1


@pytest.mark.parametrize("delay", [-1, 3601, float("nan")])
async def test_a_nack_for_longer_than_an_hour_is_refused(hub: SmallHub, delay: float) -> None:
    sent = await hub.send()
    held = await hub.take_one()
    with pytest.raises(BadRequest):
        await hub.nack(held, delay)
    assert await hub.state(sent) is State.LEASED


async def test_the_end_of_a_delay_wakes_who_waits(hub: SmallHub) -> None:
    await hub.send()
    await hub.nack(await hub.take_one(), 5)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claim(hub.bus, Scope("ann"), reader="ann", wait_seconds=30))
        await hub.pass_time(6)
    assert len(waiting.result().parcels) == 1


async def test_a_delay_does_not_outlive_the_hub(hub: SmallHub) -> None:
    await hub.send()
    await hub.nack(await hub.take_one(), 3600)
    await hub.restart()
    assert len(await hub.take()) == 1


async def test_a_second_nack_says_so(hub: SmallHub) -> None:
    await hub.send()
    held = await hub.take_one()
    await hub.nack(held, 60)
    second = await hub.nack(held, 0)
    assert (second.state, second.already) == (State.QUEUED, True)
    assert (await hub.row(held)).used == 1


async def test_what_was_nacked_ten_times_is_dead_and_its_sender_is_told() -> None:
    hub = await SmallHub.open()
    sent = await hub.send(intent="request")
    outcomes = [(await hub.nack(await hub.take_one(), 0)).state for _ in range(10)]
    assert outcomes == [State.QUEUED] * 9 + [State.DEAD]
    row = await hub.row(sent)
    assert (row.attempt, row.used, row.reason) == (10, 10, "attempts_used_up")
    assert [(n.reason, n.about) for n in await hub.notices()] == [("attempts_used_up", sent.envelope.id)]
    assert await hub.take() == []


async def test_what_is_put_off_may_be_overtaken_and_what_is_due_may_not(hub: SmallHub) -> None:
    await hub.send_all("1", "2")
    await hub.nack(await hub.take_one(), 60)
    await hub.send(text="3")
    assert texts(await hub.take()) == ["2", "3"]


# --------------------------------------------------------------------------------------------------- settling written


class Holder:
    """Whoever wrote; ``fate`` is what it says of it."""

    def __init__(self) -> None:
        self.fate: bool | None = True

    def settled(self, mark: int) -> bool | None:
        return self.fate


async def test_written_acks_ride_in_the_next_commit_and_cause_none(store: TroubledStore, troubled: SmallHub) -> None:
    sent = await troubled.send_all("1", "2")
    parcels = await troubled.take(hand=Hand.POLL)
    before = store.commits
    for parcel in parcels:
        troubled.bus.autos.add(parcel, Holder(), 0)
        settle_written(troubled.bus)
    await settle()
    assert store.commits == before
    await troubled.commit()
    assert store.commits == before + 2  # theirs, and the one that they rode with
    assert [await troubled.state(s) for s in sent] == [State.DELIVERED] * 2


async def test_an_undecided_one_is_looked_at_again_and_a_broken_one_is_left(hub: SmallHub) -> None:
    sent = await hub.send_all("1", "2")
    holders = [Holder(), Holder()]
    for parcel, holder in zip(await hub.take(hand=Hand.POLL), holders, strict=True):
        holder.fate = None
        hub.bus.autos.add(parcel, holder, 0)
    settle_written(hub.bus)
    await hub.commit()
    holders[0].fate, holders[1].fate = True, False
    await hub.commit()
    assert [await hub.state(s) for s in sent] == [State.DELIVERED, State.LEASED]
    assert not hub.bus.autos.waiting()


@pytest.mark.parametrize("how", ["refusal", "fault"])
async def test_a_full_disk_does_not_lose_a_written_ack(store: TroubledStore, troubled: SmallHub, how: str) -> None:
    sent = await troubled.send()
    troubled.bus.autos.add((await troubled.take(hand=Hand.POLL))[0], Holder(), 0)
    setattr(store, how, DiskFull("no room"))
    settle_written(troubled.bus)
    await store.inner.write(lambda tx: None)
    await settle()
    store.refusal = None
    assert await troubled.state(sent) is State.LEASED
    await troubled.pass_time(1)
    await troubled.commit()
    assert await troubled.state(sent) is State.DELIVERED


# -------------------------------------------------------------------------------------------------------- whose it is


async def test_another_agents_lease_is_not_found(hub: SmallHub) -> None:
    sent = await hub.send()
    held = await hub.take_one()
    for verb in (hub.ack, hub.renew):
        with pytest.raises(UnknownMessage):
            await verb(held, caller=BOB)
    with pytest.raises(UnknownMessage):
        await hub.nack(held, caller=BOB)
    assert await hub.state(sent) is State.LEASED
    await hub.ack(held, caller=ANN)


async def test_a_lost_lease_of_another_agent_is_not_found_either(hub: SmallHub) -> None:
    await hub.send()
    held = await hub.take_one()
    await hub.nack(held, 0)
    await hub.take()
    with pytest.raises(UnknownMessage):
        await hub.ack(held, caller=BOB)
    with pytest.raises(LeaseLost):
        await hub.ack(held, caller=ANN)


@pytest.mark.parametrize(
    ("caller", "names"),
    [
        (OPEN, {"ann", "bob"}),
        (ADMIN, {"ann", "bob", "human"}),
        (ANN, {"ann"}),
        (Caller(Rank.AGENT, "KEYED"), {"keyed"}),
        (Caller(Rank.LINK, "mac"), set()),
    ],
)
async def test_whose_mailbox_a_caller_may_act_for(hub: SmallHub, caller: Caller, names: set[str]) -> None:
    await make_token(hub.bus, ADMIN, "keyed")
    known = ("ann", "bob", "keyed", "human", "angelia", "interop", "everyone", "local")
    assert {name for name in known if owns(hub.bus, caller, name)} == names
