"""Pages of a hub's search index that cannot be read any more: mail goes on, and searches come back by themselves."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from tests.acceptance.hub import MARGIN, Hub, eventually, hub

pytestmark = pytest.mark.timeout(150)

LETTERS, MESSAGES = 50_000, 120  # the index of so much text is made in some seconds, so that one sees that it is
BEING_MADE = "the search index was damaged and is being made anew: searches find less until then; mail is not concerned"
DAMAGED, WHOLE = "it is made anew from the messages; mail is not concerned", "the search index is whole again"
TENS_OF_MS = 0.05
PAGE = 4096


def overwrite(path: Path, table: str, *, which: slice) -> None:
    """Garbage over some pages of a table, its first page first."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    pages = [
        int(str(page)) for (page,) in db.execute("SELECT pageno FROM dbstat WHERE name = ? ORDER BY path", (table,))
    ]
    db.close()
    with path.open("r+b") as file:
        for page in pages[which]:
            file.seek((page - 1) * PAGE)
            file.write(b"\xa5" * PAGE)


def finds(at: Hub, word: str) -> tuple[int, int]:
    """How many messages are found, and how many could not be looked into."""
    answer = at.get(f"/v1/search?q={word}&limit=100")
    assert answer.status == 200, answer.body
    return len(answer.json["messages"]), answer.json["behind"]


def problems(at: Hub) -> list[str]:
    return [each for each in at.get("/status").json["problems"] if "search" in each or "damaged" in each]


def told(at: Hub) -> tuple[int, int]:
    """How often the log says that it is damaged, and that it is whole."""
    said = at.output()
    return said.count(DAMAGED), said.count(WHOLE)


def use_until_whole(at: Hub, first: int) -> int:
    """Send, claim and ack while the index is made anew; how many messages went through."""
    with ThreadPoolExecutor() as threads:
        looking = threads.submit(finds, at, "common")
        number = _use(at, first)
        count, behind = looking.result()
        assert behind or count == MESSAGES // 2  # where it waits too long, it says how much is missing
    assert finds(at, "common") == (MESSAGES // 2, 0)
    return number - first


def _use(at: Hub, number: int) -> int:
    took: list[float] = []
    seen: list[list[str]] = []
    ends = time.monotonic() + 60
    while [BEING_MADE] not in seen or seen[-1]:
        assert time.monotonic() < ends, (seen, at.output())
        begun = time.monotonic()
        at.send("worker", f"job{number} to do", "scout")
        [item] = at.claim("worker")
        assert item["message"]["text"] == f"job{number} to do"
        assert at.lease(item["lease"]["token"], "ack").status == 200
        took.append(time.monotonic() - begun)
        number += 1
        seen.append(problems(at))
    # Three commits and three answers, most of them between two steps of work on the index.
    assert sorted(took)[len(took) // 2] < 3 * TENS_OF_MS * MARGIN, took
    return number


def test_mail_goes_on_and_searches_come_back() -> None:
    dice = random.Random(1)
    with hub() as at:
        at.claim("worker")
        at.claim("box")
        for number in range(MESSAGES):
            words = " ".join(f"w{dice.randrange(100_000)}" for _ in range(LETTERS // 7))
            at.send("box", f"{'common' if number % 2 else 'other'} text {words}", "scout")
        eventually(lambda: finds(at, "common") == (MESSAGES // 2, 0), 30)
        path = at.folder / "angelia.db"

        at.stop()
        overwrite(path, "search_data", which=slice(0, None, 7))
        at.start()
        done = use_until_whole(at, 0)
        assert finds(at, f"job{done - 1}") == (1, 0)
        assert told(at) == (1, 1)

        at.stop()
        at.start()
        assert finds(at, "common") == (MESSAGES // 2, 0)
        overwrite(path, "search_idx", which=slice(None))
        at.send("worker", "wakes the index", "scout")
        [item] = at.claim("worker")
        assert at.lease(item["lease"]["token"], "ack").status == 200
        more = use_until_whole(at, done)
        assert finds(at, f"job{done + more - 1}") == (1, 0)
        assert told(at) == (2, 2)
        assert problems(at) == []
        looked = at.run("doctor")
        assert (looked.returncode, "search index" in looked.stdout) == (0, False), looked
        assert at.run("backup").returncode == 0
        assert len(at.inbox("box", limit=1000)["deliveries"]) == MESSAGES
