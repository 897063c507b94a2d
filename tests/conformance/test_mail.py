"""Messages and deliveries: what is kept, how a row changes, what is found and in which order."""

from typing import Any

import pytest

from angelia.bus.ports import Parcel, Scope, Store, Tx
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Intent, Kind, Lane, Origin, Replay
from angelia.model.failure import Reason
from tests.conformance.mail import (
    HOUR,
    NOW,
    PLENTY,
    accept,
    change,
    delivery,
    envelope,
    lease,
    put,
    seqs,
    settle,
)  # fmt: skip

CLAUDE = Scope(mailbox="claude")
RICH = envelope(
    1,
    sender="Hermes@far",
    to="*",
    intent=Intent.REQUEST,
    kind=Kind.NOTICE,
    text="zero \0, umlaut ü, sign ⚙, end",
    body=b'{"a":[1,null,"\\u0000"]}',
    flat=True,
    thread=f"{8:032x}",
    in_reply_to=f"{9:032x}",
    chain=f"{7:032x}",
    depth=3,
    via=("one hub", "b,c"),
    lane=Lane.PERSON,
    replay=Replay.ASK,
    created_at=NOW + 5,
    expires_at=NOW + 6,
    verified=True,
    about=f"{6:032x}",
    reason="loop",
    key="a key",
    fingerprint=bytes(range(32)),
)
FULL_ROW = Delivery(
    key=1,
    seq=9,
    message_id=RICH.id,
    mailbox="claude@far",
    to="Claude@Far",
    connection="far",
    sender="hermes@far",
    lane=0,
    size=12345,
    state=State.LEASED,
    attempt=4,
    used=3,
    deferred=False,
    hand=Hand.LINK,
    reason=Reason.TARGET_BUSY,
    late=True,
    accepted_at=NOW + 1,
    expires_at=NOW + 2,
    sweep_at=NOW + 3,
    leased_at=NOW + 4,
    delivered_at=NOW + 5,
    answered_at=NOW + 6,
    ended_at=NOW + 7,
)


# --------------------------------------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("message", [envelope(1), RICH, envelope(1, text=""), envelope(1, text=None, body=b"0")])
async def test_a_message_comes_back_as_it_was(store: Store, message: object) -> None:
    assert isinstance(message, type(RICH))
    await store.write(lambda tx: tx.add(message, [delivery(message, tx.next_seq())]))
    assert await store.read(lambda view: view.message(message.id)) == message
    assert await store.read(lambda view: view.waiting(CLAUDE, 1, PLENTY)[0].envelope) == message


@pytest.mark.parametrize("size", [1, 4000, 1 << 20, 5 << 20])
async def test_a_long_text_is_not_cut(store: Store, size: int) -> None:
    message = envelope(1, text="ä" * (size // 2), body=b"1" * size)
    await store.write(lambda tx: tx.add(message, [delivery(message, 1)]), weight=size * 2)
    assert await store.read(lambda view: view.message(message.id)) == message


async def test_a_delivery_comes_back_as_it_was(store: Store) -> None:
    await store.write(lambda tx: tx.add(RICH, [FULL_ROW]))
    assert await store.read(lambda view: view.delivery(1)) == FULL_ROW
    assert await store.read(lambda view: view.deliveries(RICH.id)) == [FULL_ROW]


@pytest.mark.parametrize("state", State)
async def test_every_state_hand_and_reason_can_be_kept(store: Store, state: State) -> None:
    message = envelope(1)
    rows = [delivery(message, n, f"m{n}", state=state, hand=hand) for n, hand in enumerate(Hand, 1)]
    rows += [delivery(message, 100 + n, f"m{n}", state=state, reason=reason) for n, reason in enumerate(Reason)]
    await store.write(lambda tx: tx.add(message, rows))
    assert await store.read(lambda view: view.deliveries(message.id)) == rows


async def test_what_is_not_there_is_none(store: Store) -> None:
    found = await store.read(
        lambda view: (view.message("0" * 32), view.delivery(1), view.by_key("a", "b"), view.reply_to("0" * 32))
    )
    assert found == (None, None, None, None)
    assert await store.read(lambda view: view.deliveries("0" * 32)) == []


async def test_deliveries_of_a_message_come_by_key(store: Store) -> None:
    message = envelope(1)
    rows = [delivery(message, seq, f"m{seq}") for seq in (5, 3, 9)]
    await store.write(lambda tx: tx.add(message, rows))
    assert [row.key for row in await store.read(lambda view: view.deliveries(message.id))] == [3, 5, 9]


async def test_one_message_goes_to_thousands_at_once(store: Store) -> None:
    message = envelope(1)

    def unit(tx: Tx) -> None:
        tx.add(message, [delivery(message, tx.next_seq(), f"agent-{n}") for n in range(2000)])

    await store.write(unit)
    assert len(await store.read(lambda view: view.deliveries(message.id))) == 2000
    assert store.load("agent-1999").ready == 1


async def test_adding_a_message_that_is_there_adds_only_its_deliveries(store: Store) -> None:
    first, again = envelope(1), envelope(1, text="another text")
    await store.write(lambda tx: tx.add(first, [delivery(first, 1, "a")]))
    await store.write(lambda tx: tx.add(again, [delivery(again, 2, "b")]))
    assert await store.read(lambda view: view.message(first.id)) == first
    assert [row.mailbox for row in await store.read(lambda view: view.deliveries(first.id))] == ["a", "b"]


async def test_a_message_without_deliveries_is_kept(store: Store) -> None:
    await store.write(lambda tx: tx.add(envelope(1), []))
    assert await store.read(lambda view: view.message(envelope(1).id)) == envelope(1)


async def test_a_key_finds_its_senders_message_whatever_the_case_of_the_name(store: Store) -> None:
    for number, sender in ((1, "Hermes"), (2, "Claude")):
        message = envelope(number, sender=sender, key="k")
        await store.write(lambda tx, m=message: tx.add(m, [delivery(m, tx.next_seq())]))  # type: ignore[misc]

    def ids(*pairs: tuple[str, str]) -> object:
        return store.read(lambda view: [getattr(view.by_key(*pair), "id", None) for pair in pairs])

    wanted = [envelope(1).id, envelope(2).id, None, None]
    assert await ids(("hermes", "k"), ("claude", "k"), ("codex", "k"), ("hermes", "K")) == wanted  # type: ignore[misc]


async def test_reply_to_gives_the_first_message_of_kind_reply(store: Store) -> None:
    asked = envelope(1).id
    for number, kind in ((2, Kind.MESSAGE), (3, Kind.NOTICE), (4, Kind.REPLY), (5, Kind.REPLY)):
        message = envelope(number, kind=kind, in_reply_to=asked)
        await store.write(lambda tx, m=message: tx.add(m, [delivery(m, tx.next_seq())]))  # type: ignore[misc]
    found = await store.read(lambda view: view.reply_to(asked))
    assert found is not None
    assert found.id == envelope(4).id


async def test_chain_count_counts_what_descends_from_since_on(store: Store) -> None:
    chain = envelope(1).id
    for number, depth, at in ((1, 0, 100), (2, 1, 200), (3, 2, 300), (4, 3, 400)):
        message = envelope(number, chain=chain, depth=depth)
        row = delivery(message, number, accepted_at=at)
        await store.write(lambda tx, m=message, r=row: tx.add(m, [r]))  # type: ignore[misc]

    def counts(*sinces: int) -> object:
        return store.read(lambda view: [view.chain_count(chain, since) for since in sinces])

    assert await counts(0, 200, 201, 300, 401) == [3, 3, 2, 2, 0]  # type: ignore[misc]
    assert await store.read(lambda view: view.chain_count(envelope(9).id, 0)) == 0


# ---------------------------------------------------------------------------------------------------- how a row changes


@pytest.mark.parametrize(
    "changes",
    [
        {"state": State.LEASED, "attempt": 1, "hand": Hand.AUTO, "leased_at": 5, "sweep_at": None},
        {"state": State.LEASED, "attempt": 1, "seq": 77, "sweep_at": None},
        {"state": State.FAILED, "reason": Reason.CANCELLED, "ended_at": 8, "sweep_at": 99},
        {"state": State.ANSWERED, "answered_at": 8, "delivered_at": 7},
        {"state": State.HELD, "used": 3, "late": True},
        {"deferred": True},
        {"expires_at": 5, "accepted_at": 6, "used": 0},
        {"sweep_at": None},
    ],
)
async def test_a_move_changes_what_it_names_and_nothing_else(store: Store, changes: dict[str, object]) -> None:
    old = (await put(store, 1)).delivery
    other = (await put(store, 2)).delivery
    new = old._replace(**changes)  # type: ignore[arg-type]
    assert await store.write(lambda tx: tx.move(old, new))
    assert await store.read(lambda view: (view.delivery(1), view.delivery(2))) == (new, other)


@pytest.mark.parametrize("stale", [{"state": State.LEASED}, {"attempt": 1}, {"state": State.HELD, "attempt": 5}])
async def test_a_move_from_a_state_or_attempt_that_is_over_changes_nothing(
    store: Store, stale: dict[str, object]
) -> None:
    here = (await put(store, 1)).delivery
    old = here._replace(**stale)  # type: ignore[arg-type]
    new = old._replace(state=State.DELIVERED, sweep_at=1)
    assert await store.write(lambda tx: tx.move(old, new)) is False
    assert await store.read(lambda view: view.delivery(1)) == here
    assert store.load("claude").ready == 1


async def test_a_move_of_what_is_not_there_changes_nothing(store: Store) -> None:
    old = delivery(envelope(1), 1)
    assert await store.write(lambda tx: tx.move(old, old._replace(state=State.LEASED))) is False
    assert await store.read(lambda view: view.delivery(1)) is None


async def test_only_state_and_attempt_decide_and_the_sums_are_those_of_the_rows(store: Store) -> None:
    """A hub that remembers a row as due, while it was put off since, may still move it."""
    remembered = (await put(store, 1)).delivery
    await change(store, remembered, deferred=True, sweep_at=5, seq=1)
    assert store.load("claude").ready == 0
    new = remembered._replace(state=State.LEASED, attempt=1, seq=4, sweep_at=None)
    assert await store.write(lambda tx: tx.move(remembered, new))
    assert await store.read(lambda view: view.delivery(1)) == new
    load = store.load("claude")
    assert (load.open, load.ready, load.queued) == (1, 0, 0)


@pytest.mark.parametrize("gone", [[], [2], [1, 2, 3]], ids=["all are there", "one is over", "all are over"])
async def test_of_several_moves_each_is_as_if_alone(store: Store, gone: list[int]) -> None:
    rows = [(await put(store, number)).delivery for number in (1, 2, 3)]
    for number in gone:
        await change(store, rows[number - 1], state=State.LEASED, attempt=1, sweep_at=None)
    await change(store, (await put(store, 4)).delivery, deferred=True)  # remembered as due
    rows.append(delivery(envelope(4), 4))
    pairs = [(row, row._replace(state=State.DELIVERED, delivered_at=7)) for row in rows]
    done = await store.write(lambda tx: list(tx.move_all(pairs)))
    assert done == [pair for pair in pairs if pair[0].key not in gone]
    here = await store.read(lambda view: [view.delivery(row.key) for row in rows])
    assert [row.state for row in here if row] == [State.LEASED if n in gone else State.DELIVERED for n in (1, 2, 3, 4)]
    load = store.load("claude")
    assert (load.open, load.ready, load.queued) == (len(gone), 0, 0)


@pytest.mark.parametrize("changes", [{"mailbox": "codex"}, {"size": 5}, {"sender": "x"}, {"lane": 0}, {"to": "x"}])
async def test_what_never_changes_cannot_be_changed(store: Store, changes: dict[str, object]) -> None:
    old = (await put(store, 1)).delivery
    with pytest.raises(ValueError, match="may not change"):
        await store.write(lambda tx: tx.move(old, old._replace(**changes)))  # type: ignore[arg-type]
    assert await store.read(lambda view: view.delivery(1)) == old


async def test_a_message_goes_with_its_last_delivery(store: Store) -> None:
    message = envelope(1)
    rows = [delivery(message, seq, f"m{seq}") for seq in (1, 2, 3)]
    await store.write(lambda tx: tx.add(message, rows))
    await store.write(lambda tx: tx.remove(rows[:2]))
    assert await store.read(lambda view: view.message(message.id)) == message
    assert await store.read(lambda view: view.deliveries(message.id)) == rows[2:]
    await store.write(lambda tx: tx.remove(rows))
    assert await store.read(lambda view: (view.message(message.id), view.delivery(3))) == (None, None)
    assert [store.load(f"m{seq}").open for seq in (1, 2, 3)] == [0, 0, 0]
    await store.write(lambda tx: tx.remove(rows))


async def test_an_id_that_was_forgotten_can_be_used_again(store: Store) -> None:
    first = (await put(store, 1)).delivery
    await store.write(lambda tx: tx.remove([first]))
    second = (await put(store, 1)).delivery
    assert second.key > first.key
    assert await store.read(lambda view: view.deliveries(first.message_id)) == [second]


# -------------------------------------------------------------------------------------------------------- what is found


async def waiting(store: Store, limit: int = 99, most: int = PLENTY, scope: Scope = CLAUDE) -> list[int]:
    return seqs(await store.read(lambda view: view.waiting(scope, limit, most)))


async def test_what_waits_comes_by_lane_then_seq(store: Store) -> None:
    for number, lane in ((1, 1), (2, 0), (3, 1), (4, 0)):
        await put(store, number, lane=lane)
    assert await waiting(store) == [2, 4, 1, 3]


async def test_only_what_is_queued_and_due_waits(store: Store) -> None:
    for number, state in enumerate(State, 1):
        await put(store, number, state=state)
    await put(store, 50, deferred=True)
    await put(store, 51, "codex")
    assert await waiting(store) == [1]
    assert await store.read(lambda view: view.waiting(Scope("nobody"), 9, PLENTY)) == []


async def test_waiting_keeps_to_both_bounds_but_gives_one_where_there_is_any(store: Store) -> None:
    for number, size in enumerate((500, 100, 100, 100), 1):
        await put(store, number, size=size)
    assert await waiting(store, limit=2) == [1, 2]
    assert await waiting(store, most=1) == [1]
    assert await waiting(store, most=600) == [1, 2]
    assert await waiting(store, most=699) == [1, 2]
    assert await waiting(store, most=700) == [1, 2, 3]
    assert await waiting(store, limit=0) == []


async def test_a_connections_scope_reaches_all_its_mailboxes_and_no_other(store: Store) -> None:
    for number, mailbox, connection in (
        (1, "a@far", "far"), (2, "b@far", "far"), (3, "c", None), (4, "d@near", "near"), (5, "a@far", "far"),
    ):  # fmt: skip
        await put(store, number, mailbox, connection=connection, lane=0 if number == 5 else 1)
    assert await waiting(store, scope=Scope(connection="far")) == [5, 1, 2]
    assert await waiting(store, scope=Scope(connection="near")) == [4]
    assert await waiting(store, scope=Scope(mailbox="a@far")) == [5, 1]
    assert await waiting(store, limit=1, scope=Scope(connection="far")) == [5]


async def test_leased_gives_those_of_these_hands_by_seq(store: Store) -> None:
    for number, hand in ((1, Hand.AUTO), (2, Hand.MANUAL), (3, Hand.CLAIM), (4, Hand.AUTO)):
        await lease(store, (await put(store, number, lane=number % 2)).delivery, hand)
    await put(store, 5, hand=Hand.AUTO, attempt=1)
    await lease(store, (await put(store, 6, "codex")).delivery, Hand.AUTO)
    found = await store.read(lambda view: view.leased("claude", (Hand.AUTO, Hand.MANUAL)))
    assert [row.seq for row in found] == [1, 2, 4]
    assert await store.read(lambda view: view.leased("claude", ())) == []


async def test_returned_gives_those_queued_again_whose_last_hand_it_was(store: Store) -> None:
    rows: list[dict[str, Any]] = [
        {"attempt": 1, "hand": Hand.AUTO},
        {"attempt": 1, "hand": Hand.CLAIM},
        {"attempt": 2, "hand": Hand.AUTO, "lane": 0},
        {},
        {"attempt": 1, "hand": Hand.AUTO, "state": State.DELIVERED},
        {"attempt": 1, "hand": Hand.AUTO},
    ]
    for number, changes in enumerate(rows, 1):
        await put(store, number, **changes)
    found = await store.read(lambda view: view.returned("claude", Hand.AUTO, 5))
    assert [row.seq for row in found] == [1, 3]
    assert [row.seq for row in await store.read(lambda view: view.returned("claude", Hand.AUTO, 6))] == [1, 3, 6]


async def test_handed_high_is_the_highest_seq_that_was_ever_handed_over(store: Store) -> None:
    async def high() -> int:
        return await store.read(lambda view: view.handed_high("claude"))

    assert await high() == 0
    one, two = (await put(store, 1)).delivery, (await put(store, 2)).delivery
    assert await high() == 0
    two = await settle(store, two)
    assert await high() == 2
    one = await lease(store, one, seq=8)
    assert await high() == 8
    one = await change(store, one, state=State.QUEUED, sweep_at=NOW)
    assert await high() == 8
    await store.write(lambda tx: tx.remove([one]))
    assert await high() == 8
    await store.write(lambda tx: tx.remove([two]))
    assert await high() == 8


async def test_history_gives_what_was_delivered_or_answered_between_two_seqs(store: Store) -> None:
    for number, state in enumerate((*State, *State), 1):
        await put(store, number, state=state, attempt=1, lane=number % 2)
    await put(store, 90, state=State.ANSWERED)  # answered out of the queue, by someone who had only looked
    await put(store, 91, "codex", state=State.DELIVERED, attempt=1)

    async def history(after: int, upto: int, limit: int = 99, most: int = PLENTY) -> list[int]:
        return seqs(await store.read(lambda view: view.history("claude", after, upto, limit, most)))

    assert await history(0, 99) == [5, 6, 13, 14, 17]
    assert await history(5, 14) == [6, 13, 14]
    assert await history(5, 13, limit=1) == [6]
    assert await history(0, 99, most=250) == [5, 6]
    assert await history(0, 99, most=1) == [5]
    assert await history(17, 99) == []


async def test_replay_floor_is_one_above_the_last_that_is_out_of_reach(store: Store) -> None:
    async def floor(since: int = 0, rows: int = 99) -> int:
        return await store.read(lambda view: view.replay_floor("claude", since, rows))

    assert await floor() == 1
    rows = [(await put(store, n, leased_at=n * 100, attempt=1, state=State.DELIVERED)).delivery for n in range(1, 6)]
    await put(store, 6)
    await put(store, 7, "codex", attempt=1)
    assert await floor() == 1
    assert await floor(rows=5) == 1
    assert await floor(rows=2) == 4
    assert await floor(since=300) == 3
    assert await floor(since=300, rows=1) == 5
    assert await floor(since=501) == 6
    assert await floor(rows=0) == 6
    await store.write(lambda tx: tx.remove([rows[1]]))
    assert await floor() == 3
    await store.write(lambda tx: tx.remove([rows[0]]))
    assert await floor() == 3
    await store.write(lambda tx: tx.remove(rows))
    assert await floor() == 6


async def test_what_was_removed_without_a_hand_over_does_not_shorten_replay(store: Store) -> None:
    await put(store, 1, attempt=1, state=State.DELIVERED)
    gone = (await put(store, 2, state=State.FAILED)).delivery
    await put(store, 3, attempt=1, state=State.DELIVERED)
    await store.write(lambda tx: tx.remove([gone]))
    assert await store.read(lambda view: view.replay_floor("claude", 0, 99)) == 1


async def test_dead_gives_dead_and_held_ones_by_key(store: Store) -> None:
    for number, state in enumerate((*State, *State), 1):
        row = (await put(store, number, f"m{number}", state=state)).delivery
        await change(store, row, seq=200 - number)

    async def dead(after: int, limit: int) -> list[int]:
        return [parcel.delivery.key for parcel in await store.read(lambda view: view.dead(after, limit))]

    assert await dead(0, 99) == [4, 8, 12, 16]
    assert await dead(4, 2) == [8, 12]
    assert await dead(16, 9) == []
    assert await store.read(lambda view: view.stuck(99)) == (2, 2)
    assert await store.read(lambda view: view.stuck(3)) == (2, 1)
    assert await store.read(lambda view: view.stuck(0)) == (0, 0)


async def test_due_gives_what_time_has_come_for_the_earliest_first(store: Store) -> None:
    for number, at in enumerate((300, 100, None, 200, 100), 1):
        await put(store, number, sweep_at=at)

    async def due(now: int, limit: int = 99) -> list[int]:
        return seqs(await store.read(lambda view: view.due(now, limit)))

    assert await due(99) == []
    assert await due(100) == [2, 5]
    assert await due(299) == [2, 5, 4]
    assert await due(999, limit=3) == [2, 5, 4]
    assert await store.read(lambda view: view.next_sweep()) == 100
    first = await store.read(lambda view: view.due(100, 1)[0])
    await lease(store, first.delivery)
    assert await due(100) == [5]


async def test_next_sweep_is_none_where_nothing_ever_comes_due(store: Store) -> None:
    await put(store, 1, sweep_at=None)
    assert await store.read(lambda view: view.next_sweep()) is None


async def test_oldest_unread_is_of_what_is_queued_or_leased(store: Store) -> None:
    async def oldest() -> int | None:
        return await store.read(lambda view: view.oldest_unread("claude"))

    assert await oldest() is None
    for number, (at, state) in enumerate(
        ((50, State.DELIVERED), (60, State.HELD), (90, State.QUEUED), (80, State.LEASED), (70, State.DEAD)), 1
    ):
        await put(store, number, accepted_at=at, state=state)
    assert await oldest() == 80
    await put(store, 9, accepted_at=75, deferred=True)
    assert await oldest() == 75


# ---------------------------------------------------------------------------------------------------------------- inbox


async def fill_inbox(store: Store) -> None:
    for number, state in enumerate(State, 1):
        await put(store, number, state=state, attempt=number % 2, lane=number % 2, accepted_at=NOW - number)
    message = envelope(9, sender="Codex")
    await store.write(lambda tx: tx.add(message, [delivery(message, tx.next_seq())]))
    await put(store, 10, "codex")


@pytest.mark.parametrize(
    ("states", "sender", "shown", "hidden"),
    [
        (None, None, [1, 2, 3, 4, 9], 0),
        (None, "codex", [9], 4),
        (None, "hermes", [1, 2, 3, 4], 1),
        ({State.QUEUED}, None, [1, 9], 3),
        ({State.DELIVERED, State.LEASED}, None, [2, 5], 4),
        ({State.FAILED}, None, [7], 5),
        (set(State), None, [1, 2, 3, 4, 5, 6, 7, 8, 9], 0),
        (set(State), "hermes", [1, 2, 3, 4, 5, 6, 7, 8], 1),
        (set(), None, [], 5),
        (None, "nobody", [], 5),
    ],
)
async def test_an_inbox_shows_what_fits_by_seq_and_says_how_much_is_hidden(
    store: Store, states: set[State] | None, sender: str | None, shown: list[int], hidden: int
) -> None:
    await fill_inbox(store)
    wanted = None if states is None else frozenset(states)
    page = await store.read(lambda view: view.inbox("claude", 0, 99, wanted, sender))
    assert seqs(page.parcels) == shown
    assert (page.total, page.hidden, page.oldest_unread_at, page.next) == (5, hidden, NOW - 2, None)


async def test_an_inbox_has_pages(store: Store) -> None:
    await fill_inbox(store)
    found: list[int] = []
    after: int | None = 0
    pages = 0
    while after is not None:
        page = await store.read(lambda view, after=after: view.inbox("claude", after, 2, frozenset(State), None))  # type: ignore[misc]
        assert (page.total, page.hidden) == (5, 0)
        found += seqs(page.parcels)
        after = page.next
        pages += 1
    assert found == list(range(1, 10))
    assert pages == 5


async def test_an_inbox_gives_whole_parcels_and_changes_nothing(store: Store) -> None:
    parcel = await put(store, 1)
    for _ in range(2):
        page = await store.read(lambda view: view.inbox("claude", 0, 9, None, None))
        assert page.parcels == [parcel]
    empty = await store.read(lambda view: view.inbox("nobody", 0, 9, None, None))
    assert (empty.parcels, empty.total, empty.hidden, empty.oldest_unread_at, empty.next) == ([], 0, 0, None, None)


# ----------------------------------------------------------------------------------------------------------------- sums


def sums(store: Store, mailbox: str = "claude") -> tuple[int, int, int, int, dict[str, int]]:
    load = store.load(mailbox)
    return load.open, load.ready, load.queued, load.bytes, dict(load.by_sender)


async def test_sums_follow_every_arrow(store: Store) -> None:
    assert sums(store) == (0, 0, 0, 0, {})
    row = (await put(store, 1, size=70)).delivery
    await put(store, 2, size=30, sender="Codex")
    assert sums(store) == (2, 2, 2, 100, {"hermes": 1, "codex": 1})
    row = await change(store, row, deferred=True)
    assert sums(store) == (2, 1, 2, 100, {"hermes": 1, "codex": 1})
    row = await change(store, row, deferred=False)
    row = await lease(store, row)
    assert sums(store) == (2, 1, 1, 100, {"hermes": 1, "codex": 1})
    row = await change(store, row, state=State.FORWARDED)
    assert sums(store) == (2, 1, 1, 100, {"hermes": 1, "codex": 1})
    row = await change(store, row, state=State.DELIVERED)
    assert sums(store) == (1, 1, 1, 30, {"codex": 1})
    row = await change(store, row, state=State.DEAD)
    row = await change(store, row, state=State.QUEUED, deferred=True)
    assert sums(store) == (2, 1, 2, 100, {"hermes": 1, "codex": 1})
    row = await change(store, row, state=State.HELD, deferred=False)
    assert sums(store) == (2, 1, 1, 100, {"hermes": 1, "codex": 1})
    await store.write(lambda tx: tx.remove([row]))
    assert sums(store) == (1, 1, 1, 30, {"codex": 1})


async def test_bytes_are_summed_for_each_sender_too(store: Store) -> None:
    row = (await put(store, 1, size=70)).delivery
    await put(store, 2, size=30, sender="Codex")
    await put(store, 3, size=5)
    assert store.load("claude").bytes_by_sender == {"hermes": 75, "codex": 30}
    row = await lease(store, row)
    assert store.load("claude").bytes_by_sender == {"hermes": 75, "codex": 30}
    row = await settle(store, row)
    assert store.load("claude").bytes_by_sender == {"hermes": 5, "codex": 30}

    def unit(tx: Tx) -> None:
        accept(tx, 4, size=9)
        tx.remove(tx.deliveries(f"{3:032x}"))
        assert tx.load("claude").bytes_by_sender == {"hermes": 9, "codex": 30}
        tx.remove(tx.deliveries(f"{2:032x}"))
        assert tx.load("claude").bytes_by_sender == {"hermes": 9}
        raise RuntimeError("it is taken back")

    with pytest.raises(RuntimeError, match="taken back"):
        await store.write(unit)
    assert store.load("claude").bytes_by_sender == {"hermes": 5, "codex": 30}
    assert await store.write(lambda tx: dict(tx.load("claude").bytes_by_sender)) == {"hermes": 5, "codex": 30}


@pytest.mark.parametrize("state", State)
async def test_sums_count_what_is_added_in_any_state(store: Store, state: State) -> None:
    await put(store, 1, state=state, size=9)
    assert sums(store)[0] == (1 if state.open else 0)
    assert sums(store)[2] == (1 if state is State.QUEUED else 0)


async def test_a_unit_sees_the_sums_with_what_it_did(store: Store) -> None:
    def unit(tx: Tx) -> list[int]:
        first = accept(tx, 1)
        seen = [tx.load("claude").open]
        accept(tx, 2)
        seen.append(tx.load("claude").open)
        tx.remove([first.delivery])
        return [*seen, tx.load("claude").open]

    assert await store.write(unit) == [1, 2, 1]


async def test_a_parcel_is_a_delivery_with_its_message(store: Store) -> None:
    parcel = await put(store, 1)
    for look in (
        lambda view: view.waiting(CLAUDE, 1, PLENTY),
        lambda view: view.due(NOW + 2 * HOUR, 1),
    ):
        assert await store.read(look) == [Parcel(parcel.delivery, parcel.envelope)]


async def test_what_is_owed_to_a_connection_is_found_once_it_has_an_outcome_and_until_it_is_told(store: Store) -> None:
    waiting = await put(store, 1, owes="box")
    ended = await put(store, 2, owes="box", state=State.FAILED, sweep_at=None)
    await put(store, 3, owes="desk", state=State.DELIVERED)
    await put(store, 4, state=State.DELIVERED)
    assert [d.key for d in await store.read(lambda view: view.owed("box", 9))] == [ended.delivery.key]
    done = waiting.delivery._replace(state=State.DELIVERED)
    assert await store.write(lambda tx: tx.move(waiting.delivery, done))
    assert [d.owes for d in await store.read(lambda view: view.owed("box", 9))] == ["box", "box"]
    assert await store.write(lambda tx: tx.move(done, done._replace(owes=None)))
    assert [d.key for d in await store.read(lambda view: view.owed("box", 9))] == [ended.delivery.key]
    assert await store.read(lambda view: view.owed("box", 0)) == []


async def test_what_waits_for_a_connection_is_counted_up_to_a_bound_with_its_oldest(store: Store) -> None:
    await put(store, 1, "a@box", connection="box", accepted_at=NOW + 500)
    await put(store, 2, "b@box", connection="box", accepted_at=NOW + 400, deferred=True)
    await put(store, 3, "c@desk", connection="desk", accepted_at=NOW + 1)
    await put(store, 4, "c@box", connection="box", state=State.FORWARDED)
    assert await store.read(lambda view: view.backlog("box", 100)) == (2, NOW + 400)
    assert (await store.read(lambda view: view.backlog("box", 1)))[0] == 1
    assert await store.read(lambda view: view.backlog("nowhere", 100)) == (0, None)


async def test_the_links_with_something_to_carry_or_to_hear_are_found_however_many_there_are(store: Store) -> None:
    assert await store.read(lambda view: (view.links_with_mail(), view.links_owed())) == ([], [])
    number = 0
    for link in ("box", "desk", "attic"):
        for _ in range(3):
            number += 1
            await put(store, number, f"a@{link}", connection=link, deferred=link == "attic")
            await put(store, 50 + number, owes=link, state=State.FAILED if link == "box" else State.QUEUED)
    await put(store, 100, "a@shed", connection="shed", state=State.FORWARDED)
    await put(store, 101)
    assert await store.read(lambda view: view.links_with_mail()) == ["box", "desk"]
    assert await store.read(lambda view: view.links_owed()) == ["box"]


async def test_what_waits_of_one_sender_is_found_in_its_order_whether_it_is_due_or_not(store: Store) -> None:
    await put(store, 1, deferred=True)
    await put(store, 2, lane=0)
    await put(store, 3)
    await put(store, 4, "other")
    await put(store, 5, sender="cat")
    await put(store, 6, state=State.LEASED, attempt=1)
    await put(store, 7, lane=0, deferred=True)

    for limit, most, keys in ((9, PLENTY, [2, 7, 1, 3]), (2, PLENTY, [2, 7]), (9, 1, [2])):
        found = await store.read(lambda view: view.waiting_from("claude", "hermes", limit, most))  # noqa: B023
        assert [parcel.delivery.key for parcel in found] == keys


async def test_what_a_sender_said_at_another_hub_is_kept_and_guarded(store: Store) -> None:
    said = Origin("a" * 32, "ops", "hermes@laptop", None, "message", None)
    message = envelope(1)._replace(origin=said, via=("a" * 32, "b" * 32))
    await store.write(lambda tx: tx.add(message, [delivery(message, tx.next_seq())]))
    assert await store.read(lambda view: view.message(message.id)) == message


async def test_what_a_connection_has_to_do_with_is_what_waits_for_it_and_what_it_handed_over(store: Store) -> None:
    waiting = await put(store, 1, "a@box", connection="box")
    later = await put(store, 2, "a@box", connection="box", deferred=True, attempt=1)
    there = await put(store, 3, "b@box", connection="box", state=State.FORWARDED, attempt=1)
    await put(store, 4, "b@box", connection="box", state=State.DELIVERED, attempt=1)
    await put(store, 5, "c@desk", connection="desk")
    keys = [parcel.delivery.key for parcel in (waiting, later, there)]
    assert [p.delivery.key for p in await store.read(lambda view: view.carried("box", 0, 9))] == keys
    assert [p.delivery.key for p in await store.read(lambda view: view.carried("box", 0, 2))] == keys[:2]
    assert [p.delivery.key for p in await store.read(lambda view: view.carried("box", keys[0], 9))] == keys[1:]
