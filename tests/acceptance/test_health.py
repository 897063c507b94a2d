"""Health is true, from outside (promise 17): where a real fault lets nobody write, `GET /health` says in time what
fails, a send is refused and not stored, and all is well again by itself when the fault is over.

The fault is another program that holds the store's write lock, as a copy or a curious person may (F069).
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.acceptance.hub import MARGIN, Answer, Hub, Stream, environment, eventually, hub

OLD_SECONDS = 5.0  # so old the self-test is at most
LOOK_SECONDS = 2.0  # and so long a look waits for a store that does nothing
BUSY_SECONDS = 10.0  # a write waits so long for another program
WHO = ("product", "version", "instance", "epoch", "data_dir", "pid")

HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_program_writes(at: Hub) -> Iterator[None]:
    """Another process holds the write lock of the hub's store while this lasts."""
    words = [sys.executable, "-c", HOLDER, str(at.folder / "angelia.db")]
    with subprocess.Popen(words, env=environment(at.base), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            yield
        finally:
            holder.kill()


def look(at: Hub) -> Answer:
    """What health says: soon, whatever it says, and it was found out lately."""
    begun = time.monotonic()
    answer = at.get("/health")
    assert time.monotonic() - begun < LOOK_SECONDS * MARGIN
    tested = datetime.fromisoformat(answer.json["self_test"]["at"])
    assert (datetime.now(UTC) - tested).total_seconds() < OLD_SECONDS * MARGIN
    assert (answer.status, answer.json["status"]) in ((200, "ok"), (503, "unwell"))
    return answer


def send(at: Hub, text: str) -> Answer:
    return at.post("/v1/messages", {"to": "box", "text": text, "from": "sender"}, seconds=4 * BUSY_SECONDS)


def says(at: Hub, status: int) -> Any:
    """Health once it has this status, which is in time."""
    seconds = (OLD_SECONDS + LOOK_SECONDS) * MARGIN
    return eventually(lambda: (found := look(at)).status == status and found, seconds, f"health says {status}").json


@pytest.mark.timeout(90)
def test_while_nobody_can_write_health_says_so_and_it_is_well_again_by_itself() -> None:
    """F069. What is said while the store is held, and after it."""
    with hub() as at, Stream(at, "/subscribe?agent=box") as stream, ThreadPoolExecutor(1) as pool:
        assert send(at, "before").status == 201
        before = look(at)
        assert before.status == 200
        with another_program_writes(at):
            sending = pool.submit(send, at, "meanwhile")
            unwell = says(at, 503)
            assert unwell["failing"].startswith("writing "), unwell
            assert unwell["code"] == "unwell"
            assert f"unwell: {unwell['failing']}" in at.run("status").stdout
            refused = sending.result(4 * BUSY_SECONDS)
            assert (refused.status, refused.code) == (503, "unwell")
            assert "Another program keeps the store busy" in refused.json["detail"]
            assert "Nothing was stored" in refused.json["detail"]
            assert look(at).status == 503
        well = says(at, 200)
        assert "failing" not in well
        assert [said[key] for said in (unwell, well) for key in WHO] == [before.json[key] for key in WHO] * 2
        assert send(at, "after").status == 201
        assert [each.json["text"] for each in stream.messages(2)] == ["before", "after"]
        assert "replaces itself" not in at.output()
