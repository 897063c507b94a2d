"""Hubs that were broken on purpose, to see that the judge of `kills.py` notices.

    python -m tests.rigs.broken [NAME …]

Each fault is a change of a few words in a copy of the source. Where the words are no longer there, the fault has to be
written anew: it says so.
"""

import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.hub import ROOT
from tests.rigs.broken_parts import try_named
from tests.rigs.kills import Plan, Result, run


@dataclass(frozen=True, slots=True)
class Fault:
    """What is changed in which file, and the breaches of which at least one must be found."""

    file: str
    changes: tuple[tuple[str, str], ...]
    shows: tuple[str, ...]


FAULTS: dict[str, Fault] = {
    "answered before the commit": Fault(
        "storage/sqlite/writer.py",
        (
            ("        self._tell(self._finish, units)\n        self._guard", "        self._guard"),
            (
                '            desk.control("COMMIT")\n            self._seqs.saved()',
                # Not for a unit that comes alone: the hub's own self-test would find out, and it would not start.
                '            sleep = __import__("time").sleep\n'
                "            early = len(units) > 1 and (self._tell(self._finish, units), sleep(0.02))\n"
                '            desk.control("COMMIT")\n            self._seqs.saved()\n'
                "            early or self._tell(self._finish, units)",
            ),
        ),
        ("lost",),
    ),
    "leases outlive the hub": Fault(
        "storage/sqlite/opening.py",
        (("            new = new._replace(sweep_at=max(old.expires_at, returned_at))\n", "            continue\n"),),
        ("stranded",),
    ),
    "an ack is answered and not kept": Fault(
        "bus/claim.py",
        (("            move(bus, tx, parcel, Event.ACK)\n            return Settled", "            return Settled"),),
        ("again after ack",),
    ),
    "an old attempt settles a newer one": Fault(
        "bus/claim.py",
        (("delivery.attempt != attempt or delivery.state not in good", "delivery.state not in good"),),
        ("again after ack", "acked twice"),
    ),
    "the attempt does not rise": Fault(
        "bus/claim.py", (("attempt=old.attempt + 1, hand=hand", "attempt=1, hand=hand"),), ("attempt not higher",)
    ),
    "a repeat is a second message": Fault(
        "bus/publish.py",
        (("    if found.fingerprint != mark:", "    return None\n    if found.fingerprint != mark:"),),
        ("second id", "attempt not higher"),
    ),
    "newest first": Fault(
        "storage/sqlite/queries.sql",
        (
            (
                "WHERE d.mailbox = ? AND d.state = 0 AND d.deferred = 0 AND d.state <= 3\nORDER BY d.lane, d.seq;",
                "WHERE d.mailbox = ? AND d.state = 0 AND d.deferred = 0 AND d.state <= 3\nORDER BY d.lane, d.seq DESC;",
            ),
        ),
        ("out of order", "seq fell"),
    ),
    "what came back keeps its number": Fault(
        "bus/claim.py",
        (("old.seq if old.seq > high or hand is Hand.LINK else tx.next_seq()", "old.seq"),),
        ("seq fell",),
    ),
    "a resume shows nothing again": Fault(
        "bus/subscribe.py", (("    stream.replay_after = seen\n", "    stream.replay_after = high\n"),), ("lost",)
    ),
    "a break gives nothing back": Fault(
        "bus/subscribe.py",
        (
            ("        put_back(bus, tx, seen, Event.LAPSE, used=True)\n", ""),
            ("        put_back(bus, tx, unseen, Event.RELEASE, used=False)\n", ""),
        ),
        ("stranded",),
    ),
    "a failure is told to nobody": Fault(
        "bus/notices.py",
        (("    about, delivery = parcel.envelope, parcel.delivery\n", "    return\n"),),
        ("no outcome",),
    ),
}


def break_it(fault: Fault, into: Path) -> Path:
    """A copy of the source with the fault in it; the folder to import from."""
    source = into / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    file = source / "angelia" / fault.file
    text = file.read_text(encoding="utf-8")
    for old, new in fault.changes:
        if text.count(old) != 1:
            raise LookupError(f"{fault.file} holds {text.count(old)} times what should be changed: {old!r}")
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return source


def try_it(fault: Fault, *, seed: int = 1, kills: int = 8) -> Result:
    """Run the broken hub under kills."""
    with tempfile.TemporaryDirectory(prefix="ang-broken-", dir="/tmp") as into:
        source = break_it(fault, Path(into))
        return run(Plan(seed=seed, kills=kills, kill_every=0.8, source=source, drain_seconds=12))


def is_found(fault: Fault, result: Result) -> bool:
    """Whether the judge found what the fault must show as."""
    return bool({breach.kind for breach in result.verdict.breaches} & set(fault.shows))


def _tried(fault: Fault) -> tuple[bool, str]:
    result = try_it(fault)
    kinds = dict(Counter(breach.kind for breach in result.verdict.breaches))
    return is_found(fault, result), f"{kinds} faults: {len(result.faults)}"


if __name__ == "__main__":
    sys.exit(try_named(sys.argv[1:], FAULTS, _tried))
