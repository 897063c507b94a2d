"""The window of a stream, what its socket says, how it ends, and which one is its agent's own."""

import asyncio

import pytest

from angelia.bus.ports import Parcel, Tx
from angelia.bus.streams import Stream, Streams, reserve
from angelia.model.delivery import Hand
from angelia.storage.memory import MemoryStore
from tests.fakes.clock import settle
from tests.fakes.small_hub import ShortWay, SmallHub, Socket


def stream(hand: Hand = Hand.AUTO, mailbox: str = "ann") -> Stream:
    return Stream(
        mailbox=mailbox, name=mailbox, hand=hand, connection=Socket(), window=3, window_bytes=1000, opened_at=0
    )


async def reserved(one: Stream, *sizes: int) -> None:
    def unit(tx: Tx) -> None:
        for size in sizes:
            reserve(tx, [(one, size)])

    await MemoryStore().write(unit)


# --------------------------------------------------------------------------------------------------------- the window


async def test_the_window_counts_what_was_leased_and_is_not_free_again() -> None:
    one = stream()
    await reserved(one, 10, 10)
    assert one.room() == 1
    one.free(10)
    assert one.room() == 2


async def test_a_window_full_of_bytes_has_no_room() -> None:
    one = stream()
    await reserved(one, 1000)
    assert one.room() == 0
    one.free(1000)
    assert one.room() == 3


async def test_one_that_is_larger_than_the_window_still_goes_alone() -> None:
    one = stream()
    assert one.room() == 3
    await reserved(one, 5000)
    assert one.room() == 0


async def test_what_was_not_stored_takes_no_room() -> None:
    one = stream()

    def unit(tx: Tx) -> None:
        reserve(tx, [(one, 1000)])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await MemoryStore().write(unit)
    assert one.room() == 3


# --------------------------------------------------------------------------------------------------------- the socket


def test_bytes_that_have_not_left_are_undecided() -> None:
    one, socket = stream(), Socket()
    one.connection = socket
    one.written, socket.kept = 100, 30
    assert [one.settled(mark) for mark in (70, 71, 100)] == [True, None, None]


@pytest.mark.parametrize(("ended", "settled"), [("gone", False), ("superseded", True), ("bye", True)])
def test_only_a_broken_connection_makes_them_count_for_nothing(ended: str, settled: bool) -> None:
    one = stream()
    one.written = 100
    one.end(ended)
    assert one.settled(100) is settled


def test_a_connection_that_is_lost_while_it_is_asked_counts_for_nothing() -> None:
    class Torn(Socket):
        def unsent(self) -> int:
            one.end("gone")
            return 0

    one = stream()
    one.connection, one.written = Torn(), 100
    assert one.settled(100) is False


# ------------------------------------------------------------------------------------------------------------- ending


def test_the_first_reason_to_end_stays_but_a_break_beats_all() -> None:
    one = stream()
    one.end("superseded")
    one.end("bye")
    assert one.ended == "superseded"
    one.end("gone")
    one.end("bye")
    assert one.ended == "gone"


async def test_a_wake_between_the_look_and_the_wait_is_not_lost() -> None:
    one = stream()
    waiter = one.waiter()
    one.wake()
    one.wake()
    assert waiter.done()
    assert not one.waiter().done()


async def test_the_end_wakes_its_door() -> None:
    one = stream()
    waiter = one.waiter()
    one.end("bye")
    assert waiter.done()


@pytest.mark.parametrize(("hand", "woken"), [(Hand.AUTO, False), (Hand.MANUAL, True)])
async def test_room_in_a_manual_window_wakes_its_door(hand: Hand, woken: bool) -> None:
    one = stream(hand)
    waiter = one.waiter()
    one.free(1)
    assert waiter.done() is woken


async def test_a_door_waits_while_it_has_nothing_to_write_nor_to_say(hub: SmallHub) -> None:
    one, socket = stream(), Socket()
    one.connection = socket
    one.waiter()
    assert one.waits() is None  # it has no door
    one.door = door = ShortWay(hub.bus, one)
    one.wake()
    assert not one.waits()
    one.waiter()
    assert one.waits() is door
    socket.kept = 1
    assert not one.waits()
    socket.drain()
    one.wake()
    assert not one.waits()
    one.waiter()
    one.ended = "bye"
    assert not one.waits()


async def test_waking_a_cancelled_door_does_no_harm() -> None:
    one = stream()
    one.waiter().cancel()
    one.wake()


# --------------------------------------------------------------------------------------------------------- letting go


async def parcel(hub: SmallHub, attempt: int = 1) -> Parcel:
    await hub.send()
    (taken,) = await hub.take()
    assert taken.delivery.attempt == attempt
    return taken


async def test_only_the_attempt_that_ended_is_let_go(hub: SmallHub) -> None:
    one, held = stream(), await parcel(hub)
    one.handed[held.delivery.key] = 1
    one.let_go(held.delivery.key, 2)
    assert one.handed
    one.let_go(held.delivery.key, 1)
    assert not one.handed


@pytest.mark.parametrize(("hand", "room"), [(Hand.AUTO, 3), (Hand.MANUAL, 2)])
async def test_what_is_not_written_yet_is_taken_out_of_the_buffer(hub: SmallHub, hand: Hand, room: int) -> None:
    one, held = stream(hand), await parcel(hub)
    await reserved(one, held.delivery.size)
    one.buffer.append(held)
    one.let_go(held.delivery.key, 2)
    assert list(one.buffer) == [held]
    one.let_go(held.delivery.key, 1)
    assert (list(one.buffer), one.room()) == ([], room)  # a manual lease frees its place by itself


# -------------------------------------------------------------------------------------------------------- all streams


def test_streams_are_counted_and_found_by_mailbox() -> None:
    streams, one, two, other = Streams(), stream(), stream(), stream(mailbox="bob")
    for each in (one, two, other):
        streams.add(each)
    assert (streams.count, streams.of("ann"), streams.everyone()) == (3, [one, two], [one, two, other])
    streams.remove(one)
    streams.remove(one)
    assert (streams.count, streams.of("ann"), streams.of("nobody")) == (2, [two], [])


async def test_the_own_stream_is_the_attached_one_while_it_lives() -> None:
    streams, one, store = Streams(), stream(), MemoryStore()
    await store.write(lambda tx: streams.attach(tx, "ann", one))
    assert streams.own("ann") is one
    one.end("bye")
    assert streams.own("ann") is None
    await store.write(lambda tx: streams.attach(tx, "ann", None))
    assert streams.attached == {}


@pytest.mark.parametrize("before", [True, False])
async def test_a_take_over_that_was_not_stored_did_not_happen(before: bool) -> None:
    streams, old, store = Streams(), stream(), MemoryStore()
    if before:
        await store.write(lambda tx: streams.attach(tx, "ann", old))

    def unit(tx: Tx) -> None:
        streams.attach(tx, "ann", stream())
        streams.attach(tx, "ann", None)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.write(unit)
    assert streams.attached == ({"ann": old} if before else {})


async def test_waking_a_mailbox_wakes_its_streams_alone() -> None:
    streams, one, other = Streams(), stream(), stream(mailbox="bob")
    streams.add(one)
    streams.add(other)
    waiters = one.waiter(), other.waiter()
    streams.wake("ann")
    streams.wake("nobody")
    assert [waiter.done() for waiter in waiters] == [True, False]
    streams.end_all("bye")
    assert (one.ended, other.ended) == ("bye", "bye")
    await settle()
    assert isinstance(waiters[1], asyncio.Future)
