"""The SQLite store and the memory store say the same, whatever was done to them.

Chance makes up units of adds, moves, removals and failures; both stores run them, and everything that the port can be
asked is asked of both. The memory store is plain enough to be believed.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from angelia.bus.ports import Scope, Store, Tx, View
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Kind
from angelia.model.failure import Reason
from angelia.storage.memory import MemoryStore
from angelia.storage.sqlite.store import SqliteStore
from tests.conformance.conftest import SMALL
from tests.conformance.mail import NOW, delivery, envelope

BOXES = ("a", "b", "c@far", "d@far")
SENDERS = ("Hermes", "hermes", "Codex")
Step = tuple[str, dict[str, Any]]

messages = some.fixed_dictionaries(
    {
        "number": some.integers(1, 12),
        "sender": some.sampled_from(SENDERS),
        "kind": some.sampled_from(Kind),
        "parent": some.integers(1, 12),
        "depth": some.integers(0, 2),
        "key": some.sampled_from([None, "k1", "k2"]),
        "boxes": some.lists(some.sampled_from(BOXES), max_size=4),
        "at": some.integers(0, 50),
        "size": some.integers(1, 60),
        "lane": some.integers(0, 1),
    }
)
changes = some.fixed_dictionaries(
    {"which": some.integers(0, 40), "stale": some.booleans()},
    optional={
        "state": some.sampled_from(State),
        "attempt": some.integers(0, 3),
        "deferred": some.booleans(),
        "hand": some.sampled_from(Hand),
        "reason": some.sampled_from(Reason),
        "seq": some.booleans(),
        "sweep_at": some.one_of(some.none(), some.integers(0, 50)),
        "accepted_at": some.integers(0, 50),
        "used": some.integers(0, 3),
        "late": some.booleans(),
    },
)
removals = some.fixed_dictionaries({"which": some.lists(some.integers(0, 40), max_size=5)})
step = some.one_of(
    some.tuples(some.just("add"), messages),
    some.tuples(some.just("move"), changes),
    some.tuples(some.just("move"), changes),
    some.tuples(some.just("remove"), removals),
)
units = some.lists(some.tuples(some.lists(step, max_size=6), some.booleans()), min_size=1, max_size=8)


class Failed(Exception):
    """A unit that changes its mind."""


def add(tx: Tx, what: dict[str, Any]) -> object:
    message = envelope(
        what["number"],
        sender=what["sender"],
        kind=what["kind"],
        in_reply_to=f"{what['parent']:032x}",
        chain=f"{what['parent']:032x}",
        depth=what["depth"],
        key=what["key"],
    )
    rows = [
        delivery(
            message,
            tx.next_seq(),
            box,
            to=box.upper(),
            connection="far" if "@" in box else None,
            accepted_at=what["at"],
            sweep_at=what["at"],
            size=what["size"],
            lane=what["lane"],
        )
        for box in what["boxes"]
    ]
    return tx.add(message, rows)  # type: ignore[func-returns-value]


def move(tx: Tx, what: dict[str, Any]) -> object:
    old = tx.delivery(what["which"])
    if old is None:
        return None
    values = {name: value for name, value in what.items() if name not in ("which", "stale")}
    if values.pop("seq", False):
        values["seq"] = tx.next_seq()
    new = old._replace(**values)
    if what["stale"]:
        old = old._replace(deferred=not old.deferred, sweep_at=7, used=9)
    return tx.move(old, new)


def remove(tx: Tx, what: dict[str, Any]) -> object:
    found = [tx.delivery(key) for key in what["which"]]
    return tx.remove([row for row in found if row is not None])  # type: ignore[func-returns-value]


VERBS = {"add": add, "move": move, "remove": remove}


async def play(store: Store, script: list[tuple[list[Step], bool]]) -> list[object]:
    """Run a script; what its units answered."""

    def unit(tx: Tx, steps: list[Step], fails: bool) -> list[object]:
        answers = [VERBS[verb](tx, what) for verb, what in steps]
        answers += [(tx.load(box).ready, tx.load(box).bytes, tx.handed_high(box)) for box in BOXES]
        if fails:
            raise Failed(repr(answers))
        return answers

    futures = [store.write(lambda tx, s=steps, f=fails: unit(tx, s, f)) for steps, fails in script]  # type: ignore[misc]
    return [repr(answer) for answer in await asyncio.gather(*futures, return_exceptions=True)]


def questions(view: View) -> list[object]:
    """Everything that a view can be asked."""
    ids = [f"{number:032x}" for number in range(14)]
    answers: list[object] = [view.message(message_id) for message_id in ids]
    answers += [view.reply_to(message_id) for message_id in ids]
    answers += [view.deliveries(message_id) for message_id in ids]
    answers += [view.by_key(sender, key) for sender in ("hermes", "codex") for key in ("k1", "k2")]
    answers += [view.chain_count(message_id, since) for message_id in ids for since in (0, 25)]
    answers += [view.delivery(key) for key in range(60)]
    answers += [view.dead(after, limit) for after in (0, 9) for limit in (2, 99)]
    answers += [view.due(now, limit) for now in (10, 99) for limit in (3, 99)]
    answers.append(view.next_sweep())
    for scope in [Scope(connection="far"), *[Scope(mailbox=box) for box in BOXES]]:
        answers += [view.waiting(scope, limit, most) for limit in (1, 99) for most in (50, 9999)]
    for box in BOXES:
        answers.append(view.leased(box, (Hand.AUTO, Hand.CLAIM)))
        answers += [view.returned(box, hand, upto) for hand in Hand for upto in (10, 99)]
        answers += [view.handed_high(box), view.oldest_unread(box)]
        answers += [view.history(box, after, 60, limit, 90) for after in (0, 9) for limit in (2, 99)]
        answers += [view.replay_floor(box, since, rows) for since in (0, 25) for rows in (0, 1, 3, 99)]
        for states in (None, frozenset(State), frozenset({State.QUEUED, State.DEAD}), frozenset({State.ANSWERED})):
            answers += [view.inbox(box, after, 3, states, who) for after in (0, 9) for who in (None, "hermes")]
    return answers


def sums(store: Store) -> list[object]:
    loads = [store.load(box) for box in BOXES]
    return [(load.open, load.ready, load.queued, load.bytes_by_sender, load.bytes, load.by_sender) for load in loads]


async def compare(script: list[tuple[list[Step], bool]], path: Path) -> None:
    memory = MemoryStore()
    sqlite = await SqliteStore.open(path, now=NOW, reserve=SMALL)
    assert await play(sqlite, script) == await play(memory, script)
    assert sums(sqlite) == sums(memory)
    theirs, ours = await sqlite.read(questions), await memory.read(questions)
    for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        assert one == other, f"question {number}"
    assert await sqlite.write(questions) == ours
    before = sums(sqlite)
    await sqlite.close()
    again = await SqliteStore.open(path, now=NOW, reserve=SMALL)
    for was, now in zip(before, sums(again), strict=True):
        assert isinstance(was, tuple)
        assert isinstance(now, tuple)
        assert (was[0], *was[3:]) == (now[0], *now[3:])
    await again.close()
    await memory.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(units)
def test_both_stores_say_the_same(script: list[tuple[list[Step], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(script, Path(folder, "angelia.db")))
