"""``write`` and ``read``: order, all or nothing, effects before futures, lazy units, closing."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from angelia.bus.ports import Scope, Store, Tx, View
from angelia.model.errors import Stopping, Unwell
from tests.conformance.mail import PLENTY, accept, delivery, envelope, lease, put, seqs


class Refused(Exception):
    """What a unit raises in these tests."""


def value(view: View) -> int:
    return view.self_test()


def keep(number: int) -> Callable[[Tx], int]:
    def unit(tx: Tx) -> int:
        tx.put_self_test(number)
        return number

    return unit


async def test_a_unit_gives_what_its_function_returns(store: Store) -> None:
    assert await store.write(lambda tx: "done") == "done"


async def test_a_unit_does_not_run_while_it_is_queued(store: Store) -> None:
    ran: list[int] = []
    future = store.write(lambda tx: ran.append(1))
    assert not ran
    assert not future.done()
    await future
    assert ran == [1]


async def test_units_run_one_after_the_other_in_the_order_of_the_calls(store: Store) -> None:
    ran: list[int] = []
    await asyncio.gather(*[store.write(lambda tx, n=n: ran.append(n)) for n in range(700)])  # type: ignore[misc]
    assert ran == list(range(700))


async def test_a_unit_sees_what_the_units_before_it_wrote(store: Store) -> None:
    def unit(tx: Tx) -> int:
        tx.put_self_test(value(tx) + 1)
        return value(tx)

    assert await asyncio.gather(*[store.write(unit) for _ in range(9)]) == list(range(1, 10))


async def test_a_unit_sees_what_it_wrote_itself(store: Store) -> None:
    def unit(tx: Tx) -> tuple[int, list[int], int]:
        parcel = accept(tx, 1)
        assert tx.message(parcel.envelope.id) == parcel.envelope
        tx.put_self_test(5)
        return value(tx), seqs(tx.waiting(Scope("claude"), 9, PLENTY)), tx.load("claude").ready

    assert await store.write(unit) == (5, [1], 1)


async def test_a_unit_runs_outside_the_turn_that_queued_it_even_for_one_who_does_not_wait(store: Store) -> None:
    ran = asyncio.Event()
    loop = asyncio.get_running_loop()
    store.write(lambda tx: loop.call_soon_threadsafe(ran.set))
    await ran.wait()


async def test_what_is_written_is_there_for_a_read_that_begins_after_the_future_is_done(store: Store) -> None:
    for number in range(1, 30):
        await store.write(keep(number))
        assert await store.read(value) == number


async def test_a_unit_that_raises_leaves_no_trace(store: Store) -> None:
    here = await put(store, 1)

    def unit(tx: Tx) -> None:
        accept(tx, 2)
        accept(tx, 3, "codex")
        tx.move(here.delivery, delivery(here.envelope, 1, attempt=1, deferred=True))
        tx.remove([here.delivery])
        tx.put_self_test(7)
        tx.add_contact("a", "b", 1)
        raise Refused

    with pytest.raises(Refused):
        await store.write(unit)

    def look(view: View) -> object:
        texts = [view.message(f"{number:032x}") for number in (1, 2, 3)]
        return [text and text.text for text in texts], view.delivery(1), view.self_test(), view.contacts("a", 9)

    assert await store.read(look) == (["text 1", None, None], here.delivery, 0, [])
    load = store.load("claude")
    assert (load.open, load.ready, load.queued, load.bytes, load.by_sender) == (1, 1, 1, 100, {"hermes": 1})
    assert load.bytes_by_sender == {"hermes": 100}
    assert store.load("codex").open == 0


async def test_a_unit_that_raises_takes_nobody_with_it(store: Store) -> None:
    """Whatever its place in a group: first, between others, last, or alone."""

    def unit(tx: Tx, number: int) -> int:
        accept(tx, number)
        if number % 3 == 0:
            raise Refused
        return number

    futures = [store.write(lambda tx, n=n: unit(tx, n)) for n in range(10)]  # type: ignore[misc]
    answers = await asyncio.gather(*futures, return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, Refused)] == [0, 3, 6, 9]
    parcels = await store.read(lambda view: view.waiting(Scope("claude"), 99, PLENTY))
    assert [parcel.envelope.text for parcel in parcels] == [f"text {n}" for n in (1, 2, 4, 5, 7, 8)]
    assert store.load("claude").open == 6


async def test_what_a_unit_raises_reaches_its_caller_as_it_is(store: Store) -> None:
    error = Refused("so")

    def unit(tx: Tx) -> None:
        raise error

    with pytest.raises(Refused) as raised:
        await store.write(unit)
    assert raised.value is error


async def test_a_row_that_does_not_fit_fails_its_unit_even_when_the_unit_goes_on(store: Store) -> None:
    await put(store, 1)

    def unit(tx: Tx) -> None:
        accept(tx, 2)
        tx.add(envelope(3), [delivery(envelope(3), 1)])  # the key is taken

    with pytest.raises(Unwell):
        await store.write(unit)
    assert await store.read(lambda view: view.message(f"{2:032x}")) is None
    assert store.load("claude").open == 1
    await put(store, 4)


@pytest.mark.parametrize("reader", [None, 2, 5])
async def test_a_row_that_does_not_fit_fails_its_unit_alone(store: Store, reader: int | None) -> None:
    """Among others of its group that add, too; one of which may look for what was added before it."""
    await put(store, 1)
    told: list[int] = []

    def unit(tx: Tx, number: int) -> bool:
        tx.otherwise(lambda: told.append(-number))
        tx.then(lambda: told.append(number))
        seen = number != reader or tx.message(f"{number - 1:032x}") is not None
        tx.add(envelope(number), [delivery(envelope(number), 1 if number == 4 else 100 + number)])
        return seen

    queued = threading.Event()
    before = store.write(lambda tx: queued.wait(5))  # so that those that are queued meanwhile are one group
    futures = [store.write(lambda tx, n=n: unit(tx, n)) for n in range(2, 7)]  # type: ignore[misc]
    queued.set()
    await before
    answers = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(answer) for answer in answers] == [bool, bool, Unwell, bool, bool]
    assert [answer for answer in answers if isinstance(answer, bool)] == [True, True, reader != 5, True]
    assert sorted(told) == [-4, 2, 3, 5, 6]
    kept = await store.read(lambda view: [view.message(f"{number:032x}") is not None for number in range(1, 7)])
    assert kept == [True, True, True, False, True, True]
    assert (store.load("claude").open, store.load("claude").ready) == (5, 5)


async def test_effects_run_after_the_commit_and_before_every_future_of_the_group(store: Store) -> None:
    told: list[tuple[str, int]] = []

    def unit(tx: Tx, number: int) -> None:
        tx.then(lambda: told.append(("effect", number)))
        tx.then(lambda: told.append(("second", number)))
        tx.then(lambda: early.extend(future for future in futures if future.done()))

    early: list[object] = []
    futures: list[asyncio.Future[None]] = []
    queued = threading.Event()
    before = store.write(lambda tx: queued.wait(5))  # so that those that are queued meanwhile are one group
    futures += [store.write(lambda tx, n=n: unit(tx, n)) for n in range(3)]  # type: ignore[misc]
    for number, future in enumerate(futures):
        future.add_done_callback(lambda _, n=number: told.append(("future", n)))  # type: ignore[misc]
    queued.set()
    await asyncio.gather(before, *futures)
    for number in range(3):
        effect = told.index(("effect", number))
        assert told[effect + 1] == ("second", number)
        assert effect < told.index(("future", number))
    assert early == []
    for kind in ("effect", "future"):
        assert [n for what, n in told if what == kind] == [0, 1, 2]


async def test_an_effect_finds_its_unit_on_disk(store: Store) -> None:
    seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def unit(tx: Tx) -> None:
        tx.put_self_test(3)
        tx.then(lambda: store.read(value).add_done_callback(lambda read: seen.set_result(read.result())))

    await store.write(unit)
    assert await seen == 3


async def test_effects_run_on_the_loop_and_see_the_new_sums(store: Store) -> None:
    seen: list[object] = []

    def unit(tx: Tx) -> None:
        accept(tx, 1)
        tx.then(lambda: seen.append((threading.current_thread(), store.load("claude").ready)))

    await store.write(unit)
    assert seen == [(threading.main_thread(), 1)]


async def test_the_effects_of_a_unit_that_raises_never_run(store: Store) -> None:
    told: list[int] = []

    def unit(tx: Tx) -> None:
        tx.then(lambda: told.append(1))
        raise Refused

    with pytest.raises(Refused):
        await store.write(unit)
    await store.write(lambda tx: None)
    assert told == []


async def test_what_a_unit_did_elsewhere_is_taken_back_when_it_raises_the_last_first_before_any_later_unit(
    store: Store,
) -> None:
    told: list[object] = []

    def unit(tx: Tx, number: int, fails: bool) -> None:
        told.append(("run", number))
        tx.otherwise(lambda: told.append(("first", number)))
        tx.otherwise(lambda: told.append(("last", number)))
        if fails:
            raise Refused

    futures = [store.write(lambda tx, n=n: unit(tx, n, n == 1)) for n in range(3)]  # type: ignore[misc]
    await asyncio.gather(*futures, return_exceptions=True)
    assert told == [("run", 0), ("run", 1), ("last", 1), ("first", 1), ("run", 2)]


async def test_an_undo_that_raises_keeps_the_others_from_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []

    def broken() -> None:
        raise Refused("undo")

    def unit(tx: Tx) -> None:
        tx.otherwise(lambda: told.append(1))
        tx.otherwise(broken)
        tx.put_self_test(3)
        raise Refused("unit")

    with pytest.raises(Refused, match="unit"):
        await store.write(unit)
    assert told == [1]
    assert await store.read(value) == 0
    assert "an undo failed" in caplog.text


async def test_an_effect_that_raises_keeps_nobody_from_being_told(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []

    def broken() -> None:
        raise Refused("effect")

    def unit(tx: Tx) -> None:
        tx.then(broken)
        tx.then(lambda: told.append(1))

    await asyncio.gather(store.write(unit), store.write(unit))
    assert told == [1, 1]
    assert "an effect failed" in caplog.text


async def test_a_caller_who_went_away_changes_nothing(store: Store) -> None:
    told: list[int] = []

    def unit(tx: Tx) -> None:
        tx.put_self_test(9)
        tx.then(lambda: told.append(1))

    future = store.write(unit)
    after = store.write(value)
    future.cancel()
    assert await after == 9
    assert told == [1]


async def test_a_lazy_unit_rides_in_the_next_commit_in_its_place(store: Store) -> None:
    loop = asyncio.get_running_loop()
    order: list[str] = []
    start = loop.time()
    lazy = store.write(lambda tx: order.append("lazy"), lazy=True)
    await store.write(lambda tx: order.append("next"))
    await lazy
    assert order == ["lazy", "next"]
    assert loop.time() - start < 0.2


async def test_a_lazy_unit_waits_250_ms_at_most_and_does_not_commit_at_once(store: Store) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(2):
        start = loop.time()
        futures = [store.write(keep(n), lazy=True) for n in range(3)]
        await asyncio.gather(*futures)
        assert 0.2 < loop.time() - start < 1.0


async def test_lazy_units_do_not_hold_up_the_order(store: Store) -> None:
    ran: list[int] = []
    futures = [store.write(lambda tx, n=n: ran.append(n), lazy=n % 2 == 0) for n in range(600)]  # type: ignore[misc]
    await asyncio.gather(*futures)
    assert ran == list(range(600))


@pytest.mark.parametrize("first_lazy", [0, 3])
async def test_close_commits_what_is_queued_and_lazy_ones_too(store: Store, first_lazy: int) -> None:
    told: list[int] = []
    loop = asyncio.get_running_loop()
    futures = [store.write(lambda tx, n=n: told.append(n), lazy=n >= first_lazy) for n in range(6)]  # type: ignore[misc]
    start = loop.time()
    await store.close()
    assert loop.time() - start < 0.2
    await asyncio.gather(*futures)
    assert told == list(range(6))


async def test_after_close_there_is_stopping(store: Store) -> None:
    await store.close()
    for future in (store.write(lambda tx: None), store.write(lambda tx: None, lazy=True), store.read(value)):
        with pytest.raises(Stopping):
            await future
    await store.close()


async def test_a_read_sees_one_picture(store: Store) -> None:
    """Two mailboxes change together; no read ever sees one without the other."""
    rows = [(await put(store, 1, "a")).delivery, (await put(store, 2, "b")).delivery]

    def unit(tx: Tx) -> None:
        for key in (1, 2):
            old = tx.delivery(key)
            assert old is not None
            tx.move(old, delivery(envelope(key), key, old.mailbox, attempt=old.attempt + 1))

    def look(view: View) -> tuple[int, int]:
        one, two = view.delivery(1), view.delivery(2)
        assert one is not None
        assert two is not None
        return one.attempt, two.attempt

    assert rows[0].attempt == 0
    for _ in range(40):
        store.write(unit)
        pictures = await asyncio.gather(*[store.read(look) for _ in range(5)])
        assert all(one == two for one, two in pictures)


async def test_what_a_read_raises_reaches_its_caller(store: Store) -> None:
    def look(view: View) -> None:
        raise Refused

    with pytest.raises(Refused):
        await store.read(look)
    assert await store.read(value) == 0


async def test_many_reads_at_once_are_all_answered(store: Store) -> None:
    await store.write(keep(4))
    assert await asyncio.gather(*[store.read(value) for _ in range(300)]) == [4] * 300


async def test_next_seq_only_rises_whatever_becomes_of_the_unit(store: Store) -> None:
    given: list[int] = []

    def unit(tx: Tx, fails: bool) -> None:
        given.append(tx.next_seq())
        given.append(tx.next_seq())
        if fails:
            raise Refused

    for number in range(9):
        await asyncio.gather(store.write(lambda tx, n=number: unit(tx, n % 2 == 0)), return_exceptions=True)  # type: ignore[misc]
    assert given == sorted(set(given))
    assert given[0] >= 1


async def test_a_store_says_who_it_is(store: Store) -> None:
    assert len(store.epoch) == 8
    assert len(store.instance) == 32
    assert int(store.epoch, 16) >= 0
    assert int(store.instance, 16) >= 0
    assert len(store.secret) == 32
    assert (store.epoch, store.instance, store.secret) == (store.epoch, store.instance, store.secret)


async def test_sums_are_those_on_disk_and_not_those_of_a_unit_that_failed(store: Store) -> None:
    parcel = await put(store, 1)

    def unit(tx: Tx) -> None:
        tx.move(parcel.delivery, delivery(parcel.envelope, 1, deferred=True))
        assert tx.load("claude").ready == 0
        raise Refused

    with pytest.raises(Refused):
        await store.write(unit)
    assert store.load("claude").ready == 1
    await lease(store, parcel.delivery)
    assert store.load("claude").ready == 0
