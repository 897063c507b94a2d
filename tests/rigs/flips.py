"""Flip bits of a store's file, one at a time: nothing is served wrong, nothing vanishes in silence.

    python -m tests.rigs.flips --seed 1 --flips 1000 --large 200 --hubs 25

A store is filled with mail in every state. Each time one bit of a copy of it flips, anywhere, and the copy is opened
and all of it read, by every way that the bus has. What must be true: it is refused with a text that says what to do, or
what cannot be read is, and the log says what to do; or all that is served is what was written, whatever is not served
any more was set aside, and it is told; and the hub tells whoever had sent it, once, unless it was over by then. A flip
is harmless only if every row, every index and all that describes them is as before: so says another reader of the file.
Some of the flips are in a store that is too large to be compared when it is opened, half of them in its indexes and
small tables. Some of the copies are given to a real hub. The exit code is 0 when that was so.
"""

import argparse
import asyncio
import hashlib
import json
import logging
import math
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from angelia.bus.core import open_bus
from angelia.bus.losses import settle_losses
from angelia.bus.ports import Note, Parcel, Scope, Sight, Tx, View
from angelia.bus.system import SystemClock, SystemIds
from angelia.model.address import HUB
from angelia.model.agent import Agent, Token
from angelia.model.delivery import Delivery, Hand, State
from angelia.model.envelope import Envelope, Intent
from angelia.model.errors import AngeliaError, Unwell
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.model.query import Phrase, Query
from angelia.storage.sqlite.full import Reserve
from angelia.storage.sqlite.store import SqliteStore
from tests.acceptance.hub import Hub
from tests.conformance.mail import NOW, PLENTY, change, delivery, envelope, lease, settle

BOXES = ("ada", "brook", "cleo", "dune")
MESSAGES = 240
TINY = Reserve(ballast_bytes=4096, log_bytes=256 * 1024, slack_bytes=64 * 1024, probe_seconds=0.02)
ALL = frozenset(State)
REMEDY = "angelia restore"
MEMORY = Path("/dev/shm")  # nothing here is about syncs, which take most of the time
TOGETHER = 100
LARGE_TEXTS, LARGE_LETTERS = 500, 40_000  # 20 MB: more than is compared at the start
HUB_SECONDS = 20.0

SENDER = "Hermes"  # of all mail (tests/conformance/mail.py)
LOREM = "é lorem ipsum "
LOOKED_FOR = Query(phrases=(Phrase("text"),))
PAGE = 4096
# Pages of large tables are found by chance.
NARROW = """SELECT pageno FROM dbstat
WHERE name NOT IN ('message', 'delivery', 'search_data', 'search_docsize', 'search_sum') ORDER BY pageno"""

Served = dict[str, object]  # by what it is
Aside = dict[str, set[str]]
Fate = tuple[list[tuple[State, Reason | None]], int]
Fates = dict[str, Fate]


async def fill(path: Path, dice: random.Random, large: int = 0) -> list[str]:
    """Make a store; the ids of its messages, ``large`` of which are so."""
    store = await SqliteStore.open(path, now=NOW, reserve=TINY)
    ids = []
    for number in range(1, MESSAGES + large + 1):
        box = dice.choice(BOXES)
        more = "x" * LARGE_LETTERS if number > MESSAGES else LOREM * dice.choice((0, 3, 40, 600))
        message = envelope(
            number, to=box, text=f"text {number} " + more,
            body=b'{"n": %d}' % number if dice.random() < 0.3 else None,
            in_reply_to=f"{number - 1:032x}" if number % 7 == 0 else None,
            key=f"key-{number}" if number % 3 == 0 else None,
            intent=Intent.INFORM if number % 5 == 0 else Intent.REQUEST,
        )  # fmt: skip
        row = await store.write(lambda tx, m=message, b=box: _add(tx, m, b))  # type: ignore[misc]
        ids.append(message.id)
        match number % 6:
            case 1 | 2:
                await settle(store, row)
            case 3:
                leased = await lease(store, row, Hand.CLAIM)
                await change(store, leased, state=State.DEAD, ended_at=NOW, used=10, hand=None)
            case 4:
                await lease(store, row, Hand.MANUAL)

    def introduce(tx: Tx) -> None:
        for box in BOXES:
            tx.put_agent(
                Agent(
                    handle=box, title=box.title(), description=f"{box} does things", member=True, keyed=box == "ada",
                    created_at=NOW, seen_at=NOW, adapter=None,
                )
            )  # fmt: skip
            tx.add_contact(box, "hermes", NOW)
            tx.put_note(f"note/{box}", box.encode() * 9, NOW)
        tx.put_token(Token(id="t1", mailbox="ada", digest=bytes(range(32)), created_at=NOW, ends_at=None))

    await store.write(introduce)
    await store.search(Sight(), LOOKED_FOR, None, 1, PLENTY)  # which waits until all is in the index
    await store.close()
    return ids


def _add(tx: Tx, message: Envelope, box: str) -> Delivery:
    row = delivery(message, tx.next_seq(), box)
    tx.add(message, [row])
    return row


class Words(logging.Handler):
    """What the store says."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def content(path: Path) -> dict[str, str]:
    """What a file holds, as SQLite alone reads it: its rows, its indexes, what describes them; a sum of each."""
    db = apsw.Connection(str(path))
    try:
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
        found = {
            str(name): _sum_of(db.execute(f'SELECT * FROM "{name}"'))
            for (name,) in [*tables, ("sqlite_schema",)]
            if name not in ("search", "search_docsize")  # how long texts are: nothing is found by it
        }
        for pragma in ("integrity_check", "user_version", "application_id", "encoding"):
            found[pragma] = str(db.pragma(pragma))
        return found
    except (apsw.Error, UnicodeDecodeError) as error:
        return {"unreadable": str(error)}
    finally:
        db.close()


def is_walkable(path: Path) -> bool:
    """Whether SQLite can read all messages, and walk over the deliveries: then no bit in a row may hold others up."""
    db = apsw.Connection(str(path))
    try:
        db.execute("SELECT key FROM delivery NOT INDEXED").fetchall()
        db.execute("SELECT CAST(text AS BLOB), CAST(origin AS BLOB) FROM message NOT INDEXED").fetchall()
    except apsw.CorruptError:
        return False
    finally:
        db.close()
    return True


def is_message(shown: object) -> bool:
    """Whether a message that was set aside could be read as one: else somebody waits for its answer."""
    return bool(json.loads(str(shown)).get("id"))


def _sum_of(rows: Any) -> str:
    sum_ = hashlib.blake2b()
    for row in rows:
        sum_.update(repr(row).encode("utf-8", "surrogatepass"))
    return sum_.hexdigest()


async def serve(path: Path, ids: Sequence[str]) -> tuple[Served, Served, Fates]:
    """Open a store and read all of it, by every way, twice: the second time what was damaged has been set aside. Then
    have the hub see to that, twice; what it says of each message.

    Raises ``Unwell`` where it is not opened.
    """
    store = await SqliteStore.open(path, now=NOW, reserve=TINY)
    try:
        first = await _read_all(store, ids)
        await store.looked_through()
        await store.write(lambda tx: None)  # behind what was found, and is set aside
        second = await _read_all(store, ids)
        try:
            return first, second, await _settled(store, ids)
        except Unwell as error:
            return first, second | {"told: fates": error.detail}, {}
    finally:
        await store.close()


async def _settled(store: SqliteStore, ids: Sequence[str]) -> Fates:
    """What the hub says of each message, once it has seen to what was set aside."""
    bus = await open_bus(store, SystemClock(), SystemIds(), Limits())
    for _ in range(2):
        settle_losses(bus)
        await store.write(lambda tx: None)
    return await store.read(lambda view: _fates(view, ids))


def _fates(view: View, ids: Sequence[str]) -> Fates:
    """Of each message: how its deliveries stand, and how often its sender was told that it failed."""
    said = [parcel.envelope for parcel in view.inbox(SENDER.lower(), 0, 9999, ALL, None).parcels]
    told = Counter(each.about for each in said if (each.sender, each.reason) == (HUB, Reason.DAMAGED))
    return {each: ([(d.state, d.reason) for d in view.deliveries(each)], told[each]) for each in ids}


async def _read_all(store: SqliteStore, ids: Sequence[str]) -> Served:
    found: Served = {}
    for box in BOXES:
        try:
            waiting = await store.write(lambda tx, b=box: tx.waiting(Scope(b), 9999, PLENTY))  # type: ignore[misc]
            found.update(_parcels(f"waiting {box}", waiting))
        except AngeliaError as error:
            found[f"told: claim {box}"] = error.detail
        found |= await _read(store, f"inbox {box}", lambda view, b=box: _inbox(view, b))  # type: ignore[misc]
        found |= await _read(store, f"history {box}", lambda view, b=box: _history(view, b))  # type: ignore[misc]
    found |= await _read(store, "names", _names)
    try:
        looked = await store.search(Sight(), LOOKED_FOR, None, 9999, PLENTY)
        found["search"] = [each.id for each in looked.envelopes]
    except AngeliaError as error:
        found["told: search"] = error.detail
    for start in range(0, len(ids), TOGETHER):
        some = ids[start : start + TOGETHER]
        together = await _read(store, "some", lambda view, s=some: _messages(view, s))  # type: ignore[misc]
        if "told: some" in together:
            together = {}
            for one in some:
                together |= await _read(store, one, lambda view, i=one: _message(view, i))  # type: ignore[misc]
        found |= together
    return found


Look = Callable[[View], Served]


async def _read(store: SqliteStore, what: str, look: Look) -> Served:
    try:
        return await store.read(look)
    except AngeliaError as error:
        return {f"told: {what}": error.detail}


def _parcels(what: str, parcels: Sequence[Parcel]) -> Served:
    return {f"{what} {parcel.delivery.seq}": parcel for parcel in parcels}


def _inbox(view: View, box: str) -> Served:
    return _parcels(f"inbox {box}", view.inbox(box, 0, 9999, ALL, None).parcels)


def _history(view: View, box: str) -> Served:
    return _parcels(f"history {box}", view.history(box, 0, 1 << 40, 9999, PLENTY))


def _messages(view: View, ids: Sequence[str]) -> Served:
    found: Served = {}
    for message_id in ids:
        found |= _message(view, message_id)
    return found


def _message(view: View, message_id: str) -> Served:
    found: Served = {f"deliveries {message_id}": tuple(view.deliveries(message_id))}
    message = view.message(message_id)
    if message is not None:
        found[f"message {message_id}"] = message
        if message.key is not None:
            found[f"key {message_id}"] = view.by_key(message.sender, message.key)
        if message.in_reply_to is not None:
            found[f"reply {message_id}"] = view.reply_to(message.in_reply_to)
    return found


def _names(view: View) -> Served:
    agents: Served = {f"agent {agent.handle}": agent for agent in view.agents()}
    tokens = {f"token {token.id}": token for token in view.tokens()}
    notes = {f"note {note.name}": note for note in view.notes("note/")}
    return agents | tokens | notes


# ---- judging


@dataclass(slots=True)
class Result:
    """What became of each flip, and what was wrong."""

    kinds: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Judge:
    """Compares what is served with what was written."""

    store: Path
    copy: Path
    ids: list[str]
    words: Words
    result: Result
    count: int = 0
    whole: Served = field(default_factory=dict)
    content: dict[str, str] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)  # the ids that were read in rows that were set aside
    unread: set[str] = field(default_factory=set)  # the ids of messages of which nothing could be read

    def begin(self) -> None:
        """Note what is in the store, and how it is served."""
        self.words.said.clear()
        shutil.copyfile(self.store, self.copy)
        self.content = content(self.copy)
        assert self.content["integrity_check"] == "ok"
        self.whole, again, fates = asyncio.run(serve(self.copy, self.ids))
        assert self.whole == again
        assert not any(told for _, told in fates.values())
        assert {f"message {each}" for each in self.ids} <= self.whole.keys()
        assert not self.words.said, self.words.said

    def flip(self, place: int, bit: int) -> None:
        """A copy of the store in which one bit is another; under a new name, for SQLite knows files of old."""
        for left in self.copy.parent.glob(self.copy.name + "*"):
            left.unlink()
        self.count += 1
        self.copy = self.copy.with_name(f"{self.store.stem}-copy{self.count}.db")
        shutil.copyfile(self.store, self.copy)
        with self.copy.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1 << bit]))
        self.words.said.clear()

    def look(self, where: str) -> None:
        """Open the copy, read it and judge."""
        before = content(self.copy)
        try:
            first, second, fates = asyncio.run(serve(self.copy, self.ids))
        except Unwell as error:
            self.result.kinds["refused"] += 1
            self.result.kinds["refused, walkable"] += is_walkable(self.copy)
            if REMEDY not in error.detail:
                self.breach(where, f"refused without a remedy: {error.detail}")
            return
        except Exception as error:  # noqa: BLE001  (whatever it is, it is a breach)
            self.breach(where, f"raised {error!r:.300}")
            return
        aside = self._set_aside()
        told = [what for what in second if what.startswith("told: ")]
        if told and is_walkable(self.copy):
            self.breach(
                where, f"refused for good, though all rows can be read: {told[:3]}; said: {self.words.said[:3]}"
            )
        if told and not any(REMEDY in each for each in self.words.said):
            self.breach(where, f"told without a remedy: {told[:3]}; said: {self.words.said[:3]}")
        if wrong := {what for served in (first, second) for what in served if self._is_wrong(what, served, aside)}:
            self.breach(where, f"served wrong: {sorted(wrong)[:5]}")
        if not told and (gone := [what for what in self.whole if self._is_gone(what, second, aside)]):
            self.breach(where, f"deleted: {gone[:5]}; said: {self.words.said[:3]}")
        if len(aside) > 1 or (aside and not any("set aside" in each for each in self.words.said)):
            self.breach(where, f"one bit, and {len(aside)} rows were set aside; said: {self.words.said[:3]}")
        if unknown := [] if told else [n for n in self.ids if not self._is_known(n, second, fates[n], aside)]:
            self.breach(
                where, f"not told: {[(each, fates[each]) for each in unknown[:3]]}; said: {self.words.said[:3]}"
            )
        changed = sorted(what for what in before.keys() | self.content if before.get(what) != self.content.get(what))
        if changed and not (self.words.said or told):
            self.breach(where, f"unseen: {changed}")
        kind = "set aside" if aside else "unreadable, told" if told else "mended" if changed else "harmless"
        self.result.kinds[kind] += 1

    def breach(self, where: str, what: str) -> None:
        self.result.breaches.append(f"{where}: {what}")
        print(self.result.breaches[-1], flush=True)

    def _is_wrong(self, what: str, served: Served, aside: Aside) -> bool:
        """Whether something that is not what was written, or is another's, is given out."""
        one, known = served[what], self.whole.get(what)
        if what.startswith("told: ") or what == "search" or one == known or one is None:
            return False
        if isinstance(one, tuple) and isinstance(known, tuple):
            return bool(set(one) - set(known))
        # In place of an agent's row, what is known of it still: that its name is kept for its token.
        return not (isinstance(one, Agent) and one.keyed and not one.member and aside.keys() == {"agent"})

    def _is_gone(self, what: str, served: Served, aside: Aside) -> bool:
        """Whether something is missing that was not set aside."""
        one, known = served.get(what), self.whole[what]
        if one == known or what.startswith("told: "):
            return False
        named = set().union(*aside.values())
        match known:
            case Parcel():
                return known.envelope.id not in named
            case Envelope():
                return known.id not in named
            case list():
                return not isinstance(one, list) or bool((set(one) ^ set(known)) - named)
            case Note():
                return "note" not in aside
            case tuple():
                return what.removeprefix("deliveries ") not in named
            case _:
                return not aside.keys() & {"agent", "token", "note"}

    def _is_known(self, name: str, second: Served, fate: Fate, aside: Aside) -> bool:
        """Whether a message stands as it has to by now, and its sender was told as often as that takes."""
        rows, told = fate
        before, message = self.whole[f"deliveries {name}"], self.whole[f"message {name}"]
        assert isinstance(before, tuple)
        assert isinstance(message, Envelope)
        (was,) = before
        as_it_was = [(was.state, was.reason)]
        failed = [(State.FAILED, Reason.DAMAGED)]
        wanted = int(message.intent is Intent.REQUEST or name in self.unread)
        if second.get(f"deliveries {name}") == before:
            return fate == (as_it_was, 0)
        if not rows and name not in self.named and f"message {name}" not in second:
            return told == 0  # its id could not be read any more
        if was.state.open:
            return fate == (failed, wanted)
        if name in aside.get("message", set()):
            return fate == (failed if was.state is State.DEAD else as_it_was, 0)
        if was.state is State.DELIVERED and wanted:
            return fate == (failed, 1)
        return fate == ([], 0) or fate == (failed, wanted)  # what said that it was over is what flipped

    def _set_aside(self) -> Aside:
        """By table, the ids of messages that the rows set aside belong to."""
        db = apsw.Connection(str(self.copy))
        try:
            rows = db.execute("SELECT kind, message, deliveries, message_id FROM damaged").fetchall()
        finally:
            db.close()
        found: Aside = {}
        self.named = {str(name) for *_, name in rows}
        self.unread = {str(name) for kind, message, _, name in rows if kind == "message" and not is_message(message)}
        for kind, message, deliveries, name in rows:
            # A message has the number of its delivery; bits may have flipped in any of what names them.
            numbers = [json.loads(str(message)).get("number"), *(row["key"] for row in json.loads(str(deliveries)))]
            ids = {self.ids[number - 1] for number in numbers if number and number <= len(self.ids)}
            found.setdefault(str(kind), set()).update({str(name)} | ids)
        return found


def narrow_pages(store: Path) -> list[int]:
    """The pages of a store, from 0, that hold its indexes, what leads into the search index, and small tables."""
    db = apsw.Connection(str(store))
    try:
        return [int(str(page)) - 1 for (page,) in db.execute(NARROW)]
    finally:
        db.close()


def run(seed: int, flips: int, large: int, hubs: int, minutes: float = math.inf) -> Result:
    """The whole of it, or as much as the minutes allow."""
    ends = time.monotonic() + minutes * 60
    dice = random.Random(seed)
    words = Words()
    result = Result()
    log = logging.getLogger("angelia.storage")
    log.addHandler(words)
    log.propagate = False
    try:
        with tempfile.TemporaryDirectory(prefix="ang-flips-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
            small = _judge(Path(folder, "small.db"), dice, words, result)
            size = small.store.stat().st_size
            for number in _until(ends, flips):
                _flip(small, dice.randrange(size), dice.randrange(8), number)
            for _ in _until(ends, hubs):
                place, bit = dice.randrange(size), dice.randrange(8)
                small.flip(place, bit)
                _serve_it(small, f"bit {bit} of byte {place}, a hub")
            if large and time.monotonic() < ends:
                judge = _judge(Path(folder, "large.db"), dice, words, result, LARGE_TEXTS)
                size, narrow = judge.store.stat().st_size, narrow_pages(judge.store)
                for number in _until(ends, large):
                    place = dice.choice(narrow) * PAGE + dice.randrange(PAGE) if number % 2 else dice.randrange(size)
                    _flip(judge, place, dice.randrange(8), number)
            return result
    finally:
        log.removeHandler(words)
        log.propagate = True


def _until(ends: float, count: int) -> Iterator[int]:
    for number in range(count):
        if time.monotonic() > ends:
            return
        yield number


def _judge(store: Path, dice: random.Random, words: Words, result: Result, large: int = 0) -> Judge:
    judge = Judge(store, store.with_name(f"{store.stem}-copy.db"), asyncio.run(fill(store, dice, large)), words, result)
    judge.begin()
    return judge


def _flip(judge: Judge, place: int, bit: int, number: int) -> None:
    judge.flip(place, bit)
    judge.look(f"{judge.store.stem}, bit {bit} of byte {place}")
    if number % 100 == 99:
        print(number + 1, dict(judge.result.kinds), len(judge.result.breaches), "breaches", flush=True)


def _serve_it(judge: Judge, where: str) -> None:
    """Give the copy to a real hub: it serves, or says what is wrong and how to mend it."""
    hub = Hub()
    try:
        hub.folder.mkdir(mode=0o700)
        (hub.folder / "hub.lock").touch(mode=0o600)
        shutil.copyfile(judge.copy, hub.folder / "angelia.db")
        hub.launch()
        assert hub.process is not None
        ends = time.monotonic() + HUB_SECONDS
        while not hub.is_ready() and hub.process.poll() is None:
            assert time.monotonic() < ends, hub.output()
            time.sleep(0.02)
        if hub.process.poll() is not None:
            judge.result.kinds["a hub refused"] += 1
            if hub.process.returncode != 1 or REMEDY not in hub.output():
                judge.breach(where, f"ended with {hub.process.returncode}: {hub.output()[-800:]}")
        else:
            judge.result.kinds["a hub served"] += 1
            for box in BOXES[1:]:  # the first is keyed
                for item in _inbox_of(hub, box):
                    message = item["message"]
                    known = judge.whole.get(f"message {message['id']}")
                    if not isinstance(known, Envelope) or known.text != message["text"]:
                        judge.breach(where, f"served wrong: {message}")
        if "Traceback" in hub.output():
            judge.breach(where, f"a traceback: {hub.output()[-2000:]}")
    finally:
        hub.__exit__()


def _inbox_of(hub: Hub, box: str) -> list[Any]:
    """What waits there; what cannot be read is told, and is soon set aside."""
    ends = time.monotonic() + HUB_SECONDS
    while (answer := hub.get(f"/v1/agents/{box}/inbox?limit=1000")).status == 503:
        assert time.monotonic() < ends, answer.body
        time.sleep(0.02)
    assert answer.status == 200, answer.body
    return list(answer.json["deliveries"])


def main(words: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most")
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--large", type=int, default=200, metavar="N", help="so many more in a large store")
    parser.add_argument("--hubs", type=int, default=25, metavar="N", help="so many more are given to a real hub")
    begun = time.monotonic()
    result = run(**vars(parser.parse_args(words)))
    print(json.dumps({"seconds": round(time.monotonic() - begun, 1), **result.kinds, "breaches": len(result.breaches)}))
    return 1 if result.breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
