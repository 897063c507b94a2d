"""Let one operation of the hub's disk fail, the first, the second, and so on to the end of a hub's whole life.

    python -m tests.rigs.disk --every 1 --minutes 60

In each life a hub starts, mail is sent (one by one, together, large), claimed, acked, given back and polled, some of it
expires, a copy is made, and the hub is stopped; then one on a sound disk starts on what is there, and hands everything
over. In each the Nth sync or the Nth write fails, or the Nth write finds no space (`failing_up.py`). Senders repeat
under the same ids; one whose commit could not be synced is told that its outcome is unknown. It ends when all have
failed, or after so many minutes (then they fail in any order). The exit code is 0 when no promise broke.
"""

import argparse
import http.client
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance.hub import ROOT, Answer, Hub
from tests.rigs.failing_up import FIRED, FULL, SYNC, WRITE
from tests.rigs.history import Acked, Answered, Handed, History, Receipt, Sent, judge

FAULTS = (SYNC, WRITE, FULL)
COMMIT = f"{SYNC} angelia.db-wal"
# What a send hears whose commit failed. It may also have come too late, behind a commit of the hub's own that failed.
UNKNOWN, LATE = "outcome_unknown", "stopping"
PATIENCE_SECONDS = 45.0
AGAIN_SECONDS = 0.02
EXPIRED_SECONDS = 10.0
BOX, UNREAD, SENDER = "box", "unread", "sender"
LARGE = 300_000  # some seventy pages
# What a hub may say when its disk fails. "stopping": while it replaces itself.
TROUBLES = {(503, UNKNOWN), (503, LATE), (503, "unwell"), (507, "disk_full")}
# How a start says that the disk does not let it.
REFUSALS = ("could not be used", "is damaged", "MiB free", "gives up")


@dataclass
class FailingHub(Hub):
    """A hub on a disk that does what ``plan`` says, or on a sound one when there is none."""

    plan: Path | None = None

    @property
    def command(self) -> list[str]:
        if self.plan is None:
            return super().command
        before = [sys.executable, "-m", "tests.rigs.failing_up", str(self.plan)]
        return [*before, *super().command[3:]]

    def ends_by_itself(self) -> int | None:
        """Wait until it serves, or has ended: with which code."""
        ends = time.monotonic() + PATIENCE_SECONDS
        assert self.process is not None
        while not self.is_ready():
            if (code := self.process.poll()) is not None:
                self.process = None
                return code
            assert time.monotonic() < ends, f"neither ready nor ended:\n{self.output()}"
            time.sleep(AGAIN_SECONDS)
        return None


@dataclass(slots=True)
class Life:
    """One hub's life: what was seen, and what was wrong. ``said``: the codes of troubles."""

    hub: FailingHub
    history: History = field(default_factory=History)
    said: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    count: int = 0
    told: str | None = None  # what a send was answered whose commit could not be synced

    # ---- talking

    def call(self, method: str, path: str, body: object = None, sent: Sequence[Sent] = (), **how: Any) -> Answer:
        """A request, again and again until it is answered for good; ``sent``: the messages that are in it."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.history.add(*sent)
            before = self._failed()
            try:
                answer = self.hub.call(method, path, body, **how)
            except (OSError, http.client.HTTPException):
                self.history.add(*(Answered(at=_now(), mark=each.mark) for each in sent))
                self.said["broken off"] += 1
            else:
                self._note(answer, sent)
                if sent and not before and self._failed() == COMMIT:
                    self.told = answer.code if answer.status >= 400 else str(answer.status)
                if answer.status < 500:
                    return answer
                self.said[answer.code] += 1
                if (answer.status, answer.code) not in TROUBLES:
                    self.wrong.append(f"{method} {path} was answered with {answer.status} {answer.code}")
            assert time.monotonic() < ends, f"{method} {path} was not answered for good: {self.said}"
            time.sleep(AGAIN_SECONDS)

    def _failed(self) -> str:
        """What has failed so far, if anything has."""
        if self.hub.plan is None or self.hub.plan.read_text() != FIRED:
            return ""
        operations = Path(f"{self.hub.plan}.log").read_text().splitlines()
        return operations[operations.index(FIRED) - 1]

    def _note(self, answer: Answer, sent: Sequence[Sent]) -> None:
        said = answer.json if answer.status < 300 else {}
        rows = said.get("outcomes") or [{"status": answer.status, "sent": said} for _ in sent]
        for each, row in zip(sent, rows, strict=False):
            status, message_id = row["status"], row.get("sent", {}).get("id")
            self.history.add(Answered(at=_now(), mark=each.mark, status=status, id=message_id))

    def mail(self, to: str = BOX) -> Sent:
        self.count += 1
        return Sent(at=_now(), mark=f"m{self.count}", sender=SENDER, to=to, id=f"{self.count:032x}")

    def send(self, *batch: Sent, **more: Any) -> None:
        """One message, or several together; a batch of which a part was refused is sent again whole."""
        items = [{"to": each.to, "text": each.mark, "from": SENDER, "id": each.id, **more} for each in batch]
        while True:
            answer = self.call("POST", "/v1/messages", items[0] if len(items) == 1 else {"messages": items}, batch)
            statuses = [row["status"] for row in answer.json.get("outcomes", [{"status": answer.status}])]
            if any(status not in (200, 201, 503, 507) for status in statuses):
                self.wrong.append(f"{batch[0].mark} … were answered with {statuses}")
            if all(status < 500 for status in statuses):
                return
            time.sleep(AGAIN_SECONDS)

    def take(self, limit: int, box: str = BOX) -> list[tuple[Handed, str]]:
        """Claim; what came, each with its lease."""
        answer = self.call("POST", f"/v1/agents/{box}/claim", {"limit": limit})
        found = []
        for item in answer.json.get("deliveries", ()):
            if item["message"]["kind"] != "notice":
                handed = self._handed(item["message"], item["seq"], item["attempt"], "claim", box)
                found.append((handed, item["lease"]["token"]))
        return found

    def settle(self, handed: Handed, token: str, verb: str = "ack") -> None:
        answer = self.call("POST", f"/v1/leases/{token}/{verb}", {})
        if verb == "ack":
            done = answer.status == 200
            self.history.add(
                Acked(
                    at=_now(), client=handed.client, mailbox=handed.mailbox, id=handed.id, attempt=handed.attempt,
                    status=answer.status, already=done and bool(answer.json.get("already")),
                )
            )  # fmt: skip
        if answer.status not in (200, 409):
            self.wrong.append(f"{verb} of {handed.mark} was answered with {answer.status}")

    def _handed(self, message: dict[str, Any], seq: int, attempt: int, hand: str, box: str) -> Handed:
        handed = Handed(
            at=_now(), client=hand, mailbox=box, hand=hand, mark=message["text"][:99].split(" ")[0], id=message["id"],
            sender=message["from"], seq=seq, attempt=attempt,
        )  # fmt: skip
        self.history.add(handed)
        return handed


def _now() -> float:
    return time.time()


def live(life: Life) -> None:
    """Everything that a hub does with its disk, once."""
    for box in (BOX, UNREAD):
        life.take(1, box)
    dies = life.mail(UNREAD)
    life.send(dies, ttl_seconds=1, intent="request")
    for _ in range(4):
        life.send(life.mail())
    life.send(*(life.mail() for _ in range(8)))
    large = life.mail()
    life.send(large, body={"x": "y" * LARGE})
    taken = life.take(5)
    for (handed, token), verb in zip(taken, ("ack", "ack", "nack", "ack"), strict=False):  # one is left
        life.settle(handed, token, verb)
    copied = life.call("POST", "/v1/backups", {}, admin=True)
    if copied.status != 201:
        life.wrong.append(f"the copy was answered with {copied.status}: {copied.body[:200]!r}")
    life.send(life.mail(), life.mail())
    ends = time.monotonic() + EXPIRED_SECONDS
    while life.call("GET", f"/v1/messages/{dies.id}").json["deliveries"][0]["state"] != "failed":
        if time.monotonic() > ends:
            life.wrong.append("what ran out did not expire")
            break
        time.sleep(AGAIN_SECONDS)


def look_back(life: Life) -> None:
    """On a sound disk: take everything that is left, and ask what became of all."""
    while taken := life.take(100):
        for handed, token in taken:
            life.settle(handed, token)
    for sent in {sent.mark: sent for sent in life.history.of(Sent)}.values():
        answer = life.call("GET", f"/v1/messages/{sent.id}")
        rows = answer.json["deliveries"] if answer.status == 200 else [{"state": None}]
        life.history.add(Receipt(at=_now(), id=str(sent.id), mailbox=sent.to, state=rows[0]["state"], by="claim"))
    life.history.drained = True


@dataclass(slots=True)
class Ended:
    """What became of one life."""

    fault: str
    number: int
    fired: bool
    replaced: bool
    refused: bool
    life: Life
    operations: list[str]

    def __str__(self) -> str:
        how = "start refused" if self.refused else "replaced itself" if self.replaced else "went on"
        return f"{self.fault} {self.number}: {how}, {dict(self.life.said)} {self.life.wrong or ''}"


def one(fault: str, number: int, source: Path | None = None) -> Ended:
    """A life in which this operation fails."""
    paths = f"{source or ROOT / 'src'}:{ROOT}"
    with tempfile.TemporaryDirectory(prefix="ang-disk-", dir="/tmp") as folder:
        plan = Path(folder, "plan")
        plan.write_text(f"{fault} {number}")
        hub = FailingHub(source=source, env={"PYTHONPATH": paths}, plan=plan)
        life = Life(hub)
        try:
            refused = _start(life)
            said = hub.output()
            pid = hub.pid
            live(life)
            if hub.pid != pid or (not hub.is_ready() and hub.ends_by_itself() is not None):
                life.wrong.append("the hub is not the process that was started")
            code, _ = hub.stop()
            if code:
                life.wrong.append(f"it ended with {code} when it was asked to")
            said += hub.output()
            replaced = "replaces itself" in said
            fired = plan.read_text() == FIRED
            operations = Path(f"{plan}.log").read_text().splitlines()
            hub.plan = None
            hub.start()
            look_back(life)
            hub.stop()
            life.wrong += [str(breach) for breach in judge(life.history).breaches]
            if life.told not in (None, UNKNOWN, LATE):
                life.wrong.append(f"not told: the commit of a send failed, and it was answered with {life.told}")
            life.wrong += _blunders(hub.output())
        except AssertionError as error:
            life.wrong.append(str(error)[-3000:])
            return Ended(fault, number, fired=True, replaced=False, refused=False, life=life, operations=[])
        finally:
            hub.__exit__()
    return Ended(fault, number, fired, replaced, refused, life, operations)


def _start(life: Life) -> bool:
    """Start it; where the disk does not let it, it says so and ends, and is started again. Whether that was so."""
    life.hub.launch()
    code = life.hub.ends_by_itself()
    if code is None:
        return False
    said = life.hub.output()
    if code != 1 or not any(words in said for words in REFUSALS):
        life.wrong.append(f"a start ended with {code}, and said:\n{said[-1500:]}")
    life.hub.start()
    return True


def _blunders(said: str) -> list[str]:
    """Tracebacks but the one that goes with the store's own failure."""
    expected = said.count("the store failed, nothing is written any more")
    found = said.count("Traceback (most recent call last)")
    return [f"{found - expected} tracebacks that nobody meant:\n{said[-4000:]}"] if found > expected else []


def run(
    seed: int,
    every: int,
    most: int | None = None,
    source: Path | None = None,
    minutes: float = math.inf,
    kinds: Sequence[str] | None = None,
) -> list[Ended]:
    """Each sync, and every so many writes from a random first one on, fail; at most so many of a kind, for so long."""
    dice, ends = random.Random(seed), time.monotonic() + minutes * 60
    lives: list[tuple[str, int]] = []
    sound = one(SYNC, 1 << 30)
    assert not sound.life.wrong, sound
    count = Counter(line.split(" ")[0] for line in sound.operations)
    for fault in kinds or FAULTS:
        step = 1 if fault == SYNC else every  # a sync is a commit; a write is a page of one
        numbers = list(range(dice.randint(1, step), count[SYNC if fault == SYNC else WRITE] + 1, step))
        if most is not None and len(numbers) > most:
            numbers = sorted(dice.sample(numbers, most))
        lives += [(fault, number) for number in numbers]
    if minutes != math.inf:
        dice.shuffle(lives)  # so that there are some of each kind
    ended = []
    for fault, number in lives:
        if time.monotonic() > ends:
            break
        ended.append(one(fault, number, source))
        print(ended[-1], flush=True)
    return ended


def main(words: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth write")
    parser.add_argument("--most", type=int, metavar="N", help="at most so many of each kind")
    parser.add_argument("--kinds", nargs="+", choices=FAULTS, help="these alone")
    parser.add_argument("--source", type=Path, help="another src folder: a hub that was broken on purpose")
    begun = time.monotonic()
    ended = run(**vars(parser.parse_args(words)))
    breaches = [str(each) for each in ended if each.life.wrong]
    told = Counter(each.life.told for each in ended)
    if told[LATE] > 1 + told[UNKNOWN]:
        breaches.append(f"not told: of sends whose commit failed {told[UNKNOWN]} heard that it is unknown, not {told}")
    for breach in breaches:
        print("BREACH", breach)
    figures = {
        "lives": len(ended),
        "faults": sum(each.fired for each in ended),
        "replaced themselves": sum(each.replaced for each in ended),
        "starts refused": sum(each.refused for each in ended),
        "sends told": told[UNKNOWN],
        "unknown": sum(each.life.said["outcome_unknown"] for each in ended),
        "full": sum(each.life.said["disk_full"] for each in ended),
        "breaches": len(breaches),
    }
    print(json.dumps({"seconds": round(time.monotonic() - begun, 1), **figures}))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
