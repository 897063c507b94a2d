"""A store's file that somebody removes or replaces under a hub that runs: the hub notices, accepts no more into it, and
ends, instead of going on into a file that nobody finds or making an empty store in its place."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.hub import MARGIN, Answer, Hub, hub

NOTICED_SECONDS = 10.0  # a beat of an idle hub; one at work notices within a second
NAMES = ("angelia.db", "angelia.db-wal", "angelia.db-shm")


def removed(folder: Path) -> None:
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)


def main_file_removed(folder: Path) -> None:
    (folder / "angelia.db").unlink()


def replaced(folder: Path) -> None:
    """As by a copy that somebody moves over it."""
    (folder / "copy").write_bytes((folder / "angelia.db").read_bytes())
    (folder / "copy").rename(folder / "angelia.db")


def send(at: Hub) -> Answer | None:
    """None where nobody answers any more."""
    with contextlib.suppress(OSError):
        return at.call("POST", "/v1/messages", {"to": "hermes", "text": "after", "from": "ann"})
    return None


def send_until_refused(at: Hub) -> int:
    """How many were accepted meanwhile."""
    accepted, ends = 0, time.monotonic() + NOTICED_SECONDS * MARGIN
    while (answer := send(at)) is not None and answer.status == 201:
        assert time.monotonic() < ends
        accepted += 1
        time.sleep(0.05)  # it looks once a second
    if answer is not None:
        assert (answer.status, answer.code) in ((503, "unwell"), (503, "stopping"))
        assert "othing was stored" in answer.json["detail"]
    return accepted


def ended(at: Hub) -> None:
    assert at.process is not None
    assert at.process.wait(NOTICED_SECONDS * MARGIN) == 3
    at.process = None
    said = at.output()
    assert "was removed or replaced while the hub ran" in said
    assert "the store's file was removed or replaced" in said
    assert "where rows lie" not in said


def texts(at: Hub) -> list[str]:
    return [each["message"]["text"] for each in at.call("GET", "/v1/agents/hermes/inbox").json["deliveries"]]


@pytest.mark.parametrize("take_away", [removed, main_file_removed, replaced])
def test_a_hub_at_work_accepts_nothing_more_and_ends(take_away: Callable[[Path], None]) -> None:
    with hub() as at:
        at.send("hermes", "before", "ann")
        take_away(at.folder)
        is_there = (at.folder / "angelia.db").exists()
        send_until_refused(at)
        ended(at)
        assert (at.folder / "angelia.db").exists() is is_there, "nothing is made in its place"


def test_what_was_accepted_is_brought_out_of_a_log_that_was_removed() -> None:
    with hub() as at:
        at.send("hermes", "before", "ann")
        (at.folder / "angelia.db-wal").unlink()
        accepted = send_until_refused(at)
        ended(at)
        at.start()
        assert texts(at) == ["before", *["after"] * accepted]


def test_an_idle_hub_notices_too() -> None:
    with hub() as at:
        at.send("hermes", "before", "ann")
        removed(at.folder)
        ended(at)
        assert not (at.folder / "angelia.db").exists()


def test_what_was_taken_away_and_is_put_back_holds_all_that_was_accepted() -> None:
    with hub() as at:
        at.send("hermes", "before", "ann")
        aside = at.base / "aside"
        aside.mkdir()
        for name in NAMES:
            (at.folder / name).rename(aside / name)
        ended(at)
        for name in NAMES:
            (aside / name).rename(at.folder / name)
        at.start()
        assert texts(at) == ["before"]
