"""Disks that lose their power, fail, are full, or hold bits that flipped, under real hubs (`tests/rigs` does it)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import MARGIN, ROOT, Hub, environment, eventually
from tests.rigs.broken import Fault, break_it
from tests.rigs.mounted import small_disk, why_not

MIB = 1024 * 1024
UNMOUNTABLE = why_not()
mounts = pytest.mark.skipif(UNMOUNTABLE is not None, reason=str(UNMOUNTABLE))


HIDES_A_FAILED_COMMIT = Fault(
    "storage/sqlite/writer.py",
    (("unit.error, unit.effects, unit.changes = OutcomeUnknown(UNKNOWN_DETAIL), (), ()", "pass"),),
    ("lost",),
)
ROWS, DAMAGE, ASIDE = (f"storage/sqlite/{name}.py" for name in ("rows", "damage", "aside"))
# What no longer looks, where the flips are, and what the rig must say then.
LOOKS_AWAY = {
    "messages": (
        Fault(ROWS, (("return bool(checksum(row[:checked]) == row[CHECKSUM])", "return True"),), ("served wrong",)),
        ("--flips", "60", "--large", "0"),
    ),
    "deliveries": (
        Fault(
            ROWS,
            (("    if crc32(_pack(found)) != row[SUM] or", "    if"),),
            ("served wrong", "unseen"),
        ),
        ("--flips", "200", "--large", "0"),
    ),
    "indexes of a large store": (
        Fault(DAMAGE, (("faults, unused = faults_of(desk.db)", "faults, unused = [], 0"),), ("deleted", "unseen")),
        ("--flips", "0", "--large", "60"),
    ),
    "senders": (
        Fault(ASIDE, (("    if loss.deliveries or loss.whole:", "    if loss.whole:"),), ("not told",)),
        ("--flips", "40", "--large", "0"),
    ),
    "the search index": (
        Fault(
            DAMAGE, (("yield not all(row_sum(block) == sum_ for _, block, sum_ in rows)", "yield False"),), ("unseen",)
        ),
        ("--flips", "100", "--large", "0"),
    ),
    "what leads into the search index": (
        Fault(DAMAGE, (("yield not all(row_sum(*row[:-1]) == row[-1] for row in rows)", "yield False"),), ("unseen",)),
        ("--flips", "0", "--large", "40"),
    ),
}


def rig(name: str, *words: str, seconds: float, source: Path = ROOT / "src") -> tuple[int, dict[str, Any], str]:
    """Run a rig to its end: its exit code, its figures, all that it printed."""
    ended = subprocess.run(
        [sys.executable, "-m", f"tests.rigs.{name}", *words], env=environment(ROOT, f"{source}:{ROOT}"),
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    said = ended.stdout + ended.stderr
    assert ended.stdout.endswith("}\n"), said
    return ended.returncode, json.loads(ended.stdout.splitlines()[-1]), said


# ----------------------------------------------------------------------------------------------------------- power cuts


@mounts
@pytest.mark.timeout(300)
def test_forty_power_cuts_lose_nothing() -> None:
    code, figures, said = rig("power", "--cuts", "40", "--senders", "20", seconds=280)
    assert code == 0, said
    # So that a rig that does nothing is no pass.
    assert figures["cuts"] >= 40, figures
    assert figures["accepted"] > 1000, figures
    assert figures["acks"] > 200, figures
    assert figures["repeats"] > 0, figures


@mounts
@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_thousand_power_cuts_lose_nothing() -> None:
    code, figures, said = rig("power", "--cuts", "1000", seconds=7000)
    assert (code, figures["cuts"] >= 1000) == (0, True), said


@mounts
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_with_less_durability_power_cuts_are_noticed() -> None:
    """So that a pass above means something."""
    code, _, said = rig("power", "--cuts", "5", "--durability", "normal", "--drain", "10", seconds=380)
    assert code == 1
    assert "lost ×" in said


# -------------------------------------------------------------------------------------------------------- failing disks


@pytest.mark.timeout(200)
def test_whatever_fails_on_the_disk_nothing_accepted_is_lost() -> None:
    """Some of the operations of a hub's life, by turns; `make soak` has them all."""
    code, figures, said = rig("disk", "--most", "4", "--every", "3", seconds=180)
    assert code == 0, said
    # No two lives have quite as many operations, so the last of one may not be there in another.
    assert figures["lives"] == 12, said
    assert figures["faults"] > 8, said
    assert figures["replaced themselves"] > 0, said


@pytest.mark.soak
@pytest.mark.timeout(4000)
def test_each_sync_and_each_fourth_write_may_fail() -> None:
    code, figures, said = rig("disk", "--every", "4", seconds=3900)
    assert (code, figures["breaches"]) == (0, 0), said


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_failed_commit_that_is_hidden_is_noticed(tmp_path: Path) -> None:
    source = break_it(HIDES_A_FAILED_COMMIT, tmp_path)
    code, _, said = rig("disk", "--every", "60", "--most", "6", "--source", str(source), seconds=280)
    assert code == 1
    assert "lost: " in said


# ---------------------------------------------------------------------------------------------------------- a full disk


class SmallHub(Hub):
    """A hub whose folder is on a small disk."""

    @property
    def folder(self) -> Path:
        return self.base / "disk" / "d"


@mounts
@pytest.mark.timeout(120)
def test_on_a_full_disk_acks_and_expiry_go_on_and_it_ends_by_itself() -> None:
    at = SmallHub()
    filler = at.base / "disk" / "filler"
    try:
        with small_disk(at.base / "disk", "160m"):
            at.start()
            pid, epoch = at.pid, at.get("/health").json["epoch"]
            for box in ("box", "other"):
                at.claim(box)
            for number in range(40):
                at.send("box", f"before {number}", "sender")
            held = at.claim("box", 20, lease_seconds=600)
            dying = at.send("other", "soon over", "asker", intent="request", ttl_seconds=2)
            _fill(filler)
            accepted, refused = _send_until_refused(at)
            assert (refused.status, refused.code) == (507, "disk_full")
            # Acks, what gives back, and reads.
            assert [at.lease(item["lease"]["token"], "ack").status for item in held[:15]] == [200] * 15
            assert [at.lease(item["lease"]["token"], "nack", delay_seconds=60).status for item in held[15:]] == [
                200
            ] * 5
            assert at.inbox("box", limit=1)["total"] == 25
            assert at.get("/status").status == 200
            unwell = eventually(lambda: (said := at.get("/health")).status == 503 and said, 5 * MARGIN)
            assert "disk is full" in unwell.json["failing"]
            eventually(lambda: at.state(dying["id"]) == "failed", 2 * MARGIN + 5)
            assert at.post("/v1/messages", {"to": "box", "text": "x", "from": "sender"}).status == 507
            filler.unlink()
            eventually(lambda: _takes(at), 3 * MARGIN)
            well = eventually(lambda: (said := at.get("/health")).status == 200 and said, 5 * MARGIN)
            assert (at.pid, well.json["epoch"]) == (pid, epoch)
            assert at.inbox("other", limit=1)["total"] == accepted
            assert "replaces itself" not in at.output()
            assert at.restart()
            assert at.inbox("other", limit=1)["total"] == accepted
            assert at.stop()[0] == 0
            assert "Traceback" not in at.output()
    finally:
        at.__exit__()


def _fill(filler: Path) -> None:
    """Take all the room that there is."""
    with filler.open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


def _send_until_refused(at: Hub) -> tuple[int, Any]:
    """Large messages until the disk is full, which the log's own room puts off; how many were accepted."""
    accepted = 0
    while True:
        answer = at.kept("POST", "/v1/messages", {"to": "other", "text": "x" * 500_000, "from": f"s{accepted % 9}"})
        if answer.status != 201:
            return accepted, answer
        accepted += 1


def _takes(at: Hub) -> bool:
    return at.post("/v1/messages", {"to": "box", "text": "after", "from": "sender"}).status == 201


# ---------------------------------------------------------------------------------------------------- bits that flipped


@pytest.mark.timeout(180)
def test_bits_that_flip_are_not_served_and_nothing_vanishes_in_silence() -> None:
    code, figures, said = rig("flips", "--flips", "50", "--large", "10", "--hubs", "3", seconds=170)
    assert code == 0, said
    assert figures["set aside"] > 20, said


@pytest.mark.soak
@pytest.mark.timeout(4000)
def test_a_thousand_bits_flip() -> None:
    code, figures, said = rig("flips", "--flips", "1000", "--large", "200", "--hubs", "25", seconds=3900)
    assert (code, figures["breaches"]) == (0, 0), said


@pytest.mark.soak
@pytest.mark.timeout(500)
@pytest.mark.parametrize("what", LOOKS_AWAY)
def test_a_store_that_takes_bits_as_they_come_is_noticed(tmp_path: Path, what: str) -> None:
    fault, words = LOOKS_AWAY[what]
    source = break_it(fault, tmp_path)
    code, _, said = rig("flips", *words, "--hubs", "0", seconds=480, source=source)
    assert code == 1
    assert any(f"{breach}: " in said for breach in fault.shows), said
