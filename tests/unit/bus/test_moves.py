"""Every arrow of the table as a change of a row: what it stamps, when it is looked at next, who is told and woken."""

import asyncio
from typing import Any, cast

import pytest

from angelia.bus.ask import ask, finished
from angelia.bus.draft import Draft
from angelia.bus.moves import backoff, give_back, move, owed_key, put_back, sweep_time
from angelia.bus.ports import Parcel, Tx
from angelia.model.delivery import TABLE, Delivery, Event, Hand, State, after
from angelia.model.envelope import Envelope, Intent
from angelia.model.failure import Reason
from angelia.model.limits import DAY, Limits
from tests.fakes.clock import settle
from tests.fakes.small_hub import SmallHub

NOW = 1_000_000_000


async def in_state(hub: SmallHub, state: State, **more: object) -> Parcel:
    """A request in some state, put there without any arrow."""
    sent = await hub.send(intent="request")
    row = sent.deliveries[0]._replace(state=state, **more)  # type: ignore[arg-type]
    await hub.bus.store.write(lambda tx: tx.move(sent.deliveries[0], row))
    return Parcel(await hub.row(sent), sent.envelope)


async def take(hub: SmallHub, parcel: Parcel, event: Event, **changes: object) -> Parcel | None:
    return await hub.bus.store.write(lambda tx: move(hub.bus, tx, parcel, event, **changes))


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
async def test_a_row_moves_along_the_table_and_nowhere_else(hub: SmallHub, state: State, event: Event) -> None:
    parcel = await in_state(hub, state, attempt=3, used=2, hand=Hand.CLAIM)
    target = after(state, event)
    if target is None:
        with pytest.raises(LookupError):
            await take(hub, parcel, event)
        assert await hub.row(parcel) == parcel.delivery
        return
    moved = await take(hub, parcel, event)
    assert moved is not None
    row = await hub.row(parcel)
    assert row == moved.delivery
    assert (row.state, row.attempt, row.used, row.deferred) == (target, 3, 2, False)


@pytest.mark.parametrize(("arrow", "target"), list(TABLE.items()), ids=str)
async def test_each_arrow_stamps_the_state_that_it_enters(
    hub: SmallHub, arrow: tuple[State, Event], target: State
) -> None:
    parcel = await in_state(hub, arrow[0])
    await hub.clock.advance(5)
    moved = await take(hub, parcel, arrow[1])
    assert moved is not None
    row, now = moved.delivery, hub.clock.now()
    assert row.delivered_at == (now if target in (State.DELIVERED, State.ANSWERED) else None)
    assert row.answered_at == (now if target is State.ANSWERED else None)
    assert row.ended_at == (now if target in (State.FAILED, State.DEAD) else None)


async def test_an_answer_keeps_the_time_of_delivery_and_drops_the_reason(hub: SmallHub) -> None:
    parcel = await in_state(hub, State.DELIVERED, delivered_at=17, reason=Reason.DELIVERY_TIMEOUT)
    moved = await take(hub, parcel, Event.REPLY)
    assert moved is not None
    assert (moved.delivery.delivered_at, moved.delivery.reason) == (17, None)


async def test_a_row_that_moved_meanwhile_is_left_alone(hub: SmallHub) -> None:
    sent = await hub.send()
    stale = Parcel(await hub.row(sent), sent.envelope)
    held = await hub.take_one()
    assert await take(hub, stale, Event.CANCEL) is None
    await hub.nack(held, 0)
    await hub.take_one()
    assert await take(hub, held, Event.ACK) is None  # leased, but under another attempt
    assert (await hub.row(sent)).attempt == 2


# ------------------------------------------------------------------------------------------------------- giving back


async def returned(hub: SmallHub, hand: Hand | None, used: int) -> Delivery:
    parcel = await in_state(hub, State.LEASED, attempt=used + 1, used=used, hand=hand)
    back = await hub.bus.store.write(lambda tx: give_back(hub.bus, tx, parcel, Event.LAPSE, used=True))
    assert back is not None
    return back.delivery


@pytest.mark.parametrize("hand", [Hand.CLAIM, Hand.AUTO, Hand.MANUAL, Hand.POLL, Hand.ASK, None])
async def test_readers_have_ten_attempts(hub: SmallHub, hand: Hand | None) -> None:
    assert (await returned(hub, hand, 8)).state is State.QUEUED
    assert (await returned(hub, hand, 9)).state is State.DEAD


async def test_a_turn_has_two_attempts_and_a_link_any_number(hub: SmallHub) -> None:
    assert (await returned(hub, Hand.TURN, 0)).state is State.QUEUED
    dead = await returned(hub, Hand.TURN, 1)
    assert (dead.state, dead.used, dead.reason) == (State.DEAD, 2, Reason.ATTEMPTS_USED_UP)
    assert (await returned(hub, Hand.LINK, 1000)).state is State.QUEUED


async def test_what_uses_up_no_attempt_is_never_dead(hub: SmallHub) -> None:
    parcel = await in_state(hub, State.LEASED, attempt=50, used=9, hand=Hand.AUTO)
    back = await hub.bus.store.write(lambda tx: give_back(hub.bus, tx, parcel, Event.RELEASE, used=False))
    assert back is not None
    assert (back.delivery.state, back.delivery.used) == (State.QUEUED, 9)


class Blind:
    """A ``Tx`` without messages: they are large, and what is given back by the hundred is not read."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def message(self, message_id: str) -> Envelope | None:
        raise AssertionError("a message was read")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


@pytest.mark.parametrize("used", [False, True])
async def test_what_is_put_back_is_as_what_is_given_back_and_is_not_read(hub: SmallHub, used: bool) -> None:
    event = Event.LAPSE if used else Event.RELEASE
    given, put = [await in_state(hub, State.LEASED, attempt=3, used=1, hand=Hand.AUTO, leased_at=NOW) for _ in range(2)]

    def unit(tx: Tx) -> None:
        give_back(hub.bus, tx, given, event, used=used)
        put_back(hub.bus, cast(Tx, Blind(tx)), [put.delivery], event, used=used)

    await hub.bus.store.write(unit)
    expected, found = await hub.row(given), await hub.row(put)
    assert found == expected._replace(key=found.key, seq=found.seq, message_id=found.message_id)
    assert (found.state, found.used) == (State.QUEUED, 2 if used else 1)


async def test_what_is_put_back_for_the_last_time_is_dead_and_its_sender_is_told(hub: SmallHub) -> None:
    parcel = await in_state(hub, State.LEASED, attempt=10, used=9, hand=Hand.AUTO)
    await hub.bus.store.write(lambda tx: put_back(hub.bus, tx, [parcel.delivery], Event.LAPSE, used=True))
    row = await hub.row(parcel)
    assert (row.state, row.used, row.reason) == (State.DEAD, 10, Reason.ATTEMPTS_USED_UP)
    assert [notice.reason for notice in await hub.notices()] == ["attempts_used_up"]


async def test_what_moved_meanwhile_is_not_put_back(hub: SmallHub) -> None:
    parcel = await in_state(hub, State.LEASED, attempt=1, hand=Hand.AUTO)
    await take(hub, parcel, Event.ACK)
    await hub.bus.store.write(lambda tx: put_back(hub.bus, tx, [parcel.delivery], Event.LAPSE, used=True))
    assert await hub.state(parcel) is State.DELIVERED


async def test_of_many_that_are_put_back_each_goes_its_own_way(hub: SmallHub) -> None:
    used = {"first": 0, "last": 9, "gone": 0, "next": 3}
    parcels = {
        name: await in_state(hub, State.LEASED, attempt=count + 1, used=count, hand=Hand.AUTO)
        for name, count in used.items()
    }
    await take(hub, parcels["gone"], Event.ACK)
    held = [parcel.delivery for parcel in parcels.values()]
    await hub.bus.store.write(lambda tx: put_back(hub.bus, tx, held, Event.LAPSE, used=True))
    rows = {name: await hub.row(parcel) for name, parcel in parcels.items()}
    assert {name: (row.state, row.used) for name, row in rows.items()} == {
        "first": (State.QUEUED, 1),
        "last": (State.DEAD, 10),
        "gone": (State.DELIVERED, 0),
        "next": (State.QUEUED, 4),
    }
    assert [notice.reason for notice in await hub.notices()] == ["attempts_used_up"]


async def test_a_delay_that_outlived_its_row_does_nothing(hub: SmallHub) -> None:
    await hub.send()
    held = await hub.take_one()
    await hub.nack(held, 5)
    await hub.ack(held)  # late, and good
    await hub.pass_time(10)
    row = await hub.row(held)
    assert (row.state, row.deferred) == (State.DELIVERED, False)


async def test_an_old_delay_does_not_shorten_a_new_one(hub: SmallHub) -> None:
    """A blocking question may take what is put off; it comes back, and is put off anew."""
    asked = Draft(sender="bob", to="ann", text="?", id="0" * 32)
    finished(hub.bus, await ask(hub.bus, asked, 0), written=False)
    await hub.commit()
    await hub.send("ann", "bob", "!", in_reply_to="0" * 32)
    await hub.nack(await hub.take_one("bob"), 60)
    got = await ask(hub.bus, asked, 0)
    finished(hub.bus, got, written=False)
    await settle()
    await hub.nack(await hub.take_one("bob"), 3600)
    await hub.pass_time(61)
    assert await hub.take("bob") == []


async def test_a_delay_keeps_what_changed_beside_it(hub: SmallHub) -> None:
    await hub.send()
    held = await hub.take_one()
    await hub.nack(held, 5)
    row = await hub.row(held)
    await hub.bus.store.write(lambda tx: tx.move(row, row._replace(hand=None)))
    await hub.pass_time(6)
    row = await hub.row(held)
    assert (row.deferred, row.hand) == (False, None)


async def test_the_longer_it_goes_on_the_longer_a_nack_waits(hub: SmallHub) -> None:
    delays = [backoff(await in_state(hub, State.LEASED, used=used)) for used in range(9)]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


# --------------------------------------------------------------------------------------------------- who is told


async def test_whatever_changes_wakes_those_who_watch_the_message(hub: SmallHub) -> None:
    parcel = await in_state(hub, State.QUEUED)
    with hub.bus.signals.watch("message:" + parcel.envelope.id) as watch:
        for event in (Event.CLAIM, Event.RELEASE, Event.CLAIM, Event.ACK, Event.REPLY):
            ticket = watch.ticket()
            moved = await take(hub, parcel, event)
            assert moved is not None
            parcel = moved
            assert watch.changed(ticket).done(), event


@pytest.mark.parametrize("deferred", [False, True])
async def test_only_what_is_due_wakes_the_mailbox(hub: SmallHub, deferred: bool) -> None:
    parcel = await in_state(hub, State.LEASED)
    with hub.bus.signals.watch("ann") as watch:
        ticket = watch.ticket()
        await take(hub, parcel, Event.NACK, deferred=deferred)
        assert watch.changed(ticket).done() is not deferred


async def test_nobody_is_woken_by_a_unit_that_failed(hub: SmallHub) -> None:
    parcel = await in_state(hub, State.LEASED)

    def unit(tx: Tx) -> None:
        move(hub.bus, tx, parcel, Event.RELEASE)
        raise ZeroDivisionError

    with hub.bus.signals.watch("ann") as watch:
        ticket = watch.ticket()
        with pytest.raises(ZeroDivisionError):
            await hub.bus.store.write(unit)
        await settle()
        assert not watch.changed(ticket).done()


@pytest.mark.parametrize("event", [Event.ACK, Event.RELEASE, Event.CANCEL, Event.REPLY])
async def test_the_lease_ends_with_the_state(hub: SmallHub, event: Event) -> None:
    await hub.send()
    held = await hub.take_one()
    assert len(hub.bus.leases) == 1
    await take(hub, held, event)
    assert len(hub.bus.leases) == 0


# -------------------------------------------------------------------------------------------------- what time will do


def row_in(state: State, **more: object) -> Delivery:
    row = Delivery(
        key=1, seq=1, message_id="0" * 32, mailbox="ann", to="ann", sender="bob", size=300, state=state,
        accepted_at=NOW, expires_at=NOW + 5_000, sweep_at=None,
    )  # fmt: skip
    return row._replace(**more)  # type: ignore[arg-type]


KEEP = 30 * DAY * 1000


def sweep_of(limits: Limits, row: Delivery, intent: Intent) -> int | None:
    return sweep_time(limits, row.state, row.attempt, row.expires_at, row.reason, intent, NOW)


@pytest.mark.parametrize(
    ("row", "intent", "expected"),
    [
        (row_in(State.QUEUED), Intent.INFORM, NOW + 5_000),
        (row_in(State.QUEUED, attempt=1), Intent.INFORM, NOW + 900_000),
        (row_in(State.QUEUED, attempt=1, expires_at=NOW + 901_000), Intent.INFORM, NOW + 901_000),
        (row_in(State.HELD), Intent.INFORM, NOW + 5_000),
        (row_in(State.LEASED, attempt=1), Intent.REQUEST, None),
        (row_in(State.FORWARDED), Intent.INFORM, NOW + 65_000),
        (row_in(State.DELIVERED), Intent.REQUEST, NOW + 5_000),
        (row_in(State.DELIVERED, expires_at=NOW - 1), Intent.REQUEST, NOW),
        (row_in(State.DELIVERED, reason=Reason.DELIVERY_TIMEOUT), Intent.REQUEST, NOW + KEEP),
        (row_in(State.DELIVERED), Intent.INFORM, NOW + KEEP),
        (row_in(State.ANSWERED), Intent.REQUEST, NOW + KEEP),
        (row_in(State.FAILED), Intent.REQUEST, NOW + KEEP),
        (row_in(State.DEAD), Intent.REQUEST, NOW + KEEP),
    ],
)
def test_when_time_alone_looks_at_a_delivery(row: Delivery, intent: Intent, expected: int | None) -> None:
    assert sweep_of(Limits(), row, intent) == expected


def test_a_settled_message_answers_its_repeat_for_a_day_at_least() -> None:
    assert sweep_of(Limits(settled_keep_seconds=1), row_in(State.FAILED), Intent.INFORM) == NOW + DAY * 1000


async def test_moves_in_one_commit_are_told_in_their_order(hub: SmallHub) -> None:
    seen: list[str] = []

    def unit(word: str) -> asyncio.Future[None]:
        return hub.bus.store.write(lambda tx: tx.then(lambda: seen.append(word)))

    await asyncio.gather(unit("1"), unit("2"), unit("3"))
    assert seen == ["1", "2", "3"]


# ------------------------------------------------------------------------------------- what is owed to a connection


@pytest.mark.parametrize("event", [Event.ACK, Event.REFUSE, Event.EXHAUST, Event.REPLY, Event.RELEASE, Event.FORWARD])
async def test_whoever_is_owed_an_outcome_hears_of_it_once_there_is_one(hub: SmallHub, event: Event) -> None:
    """An answer goes the same way and says so itself."""
    parcel = await in_state(hub, State.LEASED, owes="lap")
    with hub.bus.signals.watch(owed_key("lap")) as watch:
        ticket = watch.ticket()
        await take(hub, parcel, event)
        assert watch.changed(ticket).done() is (event in (Event.ACK, Event.REFUSE, Event.EXHAUST))
    row = await hub.row(parcel)
    assert row.owes == (None if event is Event.REPLY else "lap")


async def test_what_is_owed_to_nobody_wakes_nobody(hub: SmallHub) -> None:
    parcel = await in_state(hub, State.LEASED)
    with hub.bus.signals.watch(owed_key("lap")) as watch:
        ticket = watch.ticket()
        await take(hub, parcel, Event.ACK)
        assert not watch.changed(ticket).done()
