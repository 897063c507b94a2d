"""The journal: what is finished stays finished, through a crash at any byte."""

import os
import stat
from pathlib import Path

import pytest

from angelia.client.journal import Journal


def an_id(number: int) -> str:
    return f"{number:032x}"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "listen" / "scout")


def opened(path: str, kept: int = 10_000) -> Journal:
    journal = Journal(path, kept=kept)
    assert journal.take()
    return journal


def test_what_was_finished_is_known_by_the_next(path: str) -> None:
    first = opened(path)
    first.finish(an_id(1), "7f3a09c1-41")
    first.finish(an_id(2), "7f3a09c1-42")
    first.close()
    second = opened(path)
    assert an_id(1) in second
    assert an_id(2) in second
    assert an_id(3) not in second
    assert second.last_event_id == "7f3a09c1-42"
    second.close()


def test_it_is_private(path: str) -> None:
    journal = opened(path)
    journal.finish(an_id(1))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    journal.close()


def test_it_survives_being_cut_off_at_every_byte(path: str) -> None:
    journal = opened(path)
    for number in range(3):
        journal.finish(an_id(number), f"e-{number}")
    journal.close()
    whole = Path(path).read_bytes()
    for length in range(len(whole) + 1):
        Path(path).write_bytes(whole[:length])
        journal = opened(path)
        known = whole[:length].count(b"\n")
        assert len(journal) == known
        journal.finish(an_id(99), "e-99")
        journal.close()
        again = opened(path)
        assert len(again) == known + 1
        assert again.last_event_id == "e-99"
        again.close()


def test_lines_that_make_no_sense_are_passed_over(path: str) -> None:
    os.makedirs(os.path.dirname(path))
    Path(path).write_bytes(b"\0\0\0\n" + an_id(1).encode() + b" e-1\nnonsense\n\xff\xfe\n\n")
    journal = opened(path)
    assert len(journal) == 1
    assert an_id(1) in journal
    journal.close()


def test_it_keeps_the_newest_and_stays_small(path: str) -> None:
    journal = opened(path, kept=10)
    largest = 0
    for number in range(100):
        journal.finish(an_id(number), f"e-{number}")
        largest = max(largest, os.path.getsize(path))
    assert largest <= 20 * 40
    journal.close()
    again = opened(path, kept=10)
    assert [number for number in range(100) if an_id(number) in again] == list(range(90, 100))
    assert again.last_event_id == "e-99"
    again.finish(an_id(100), "e-100")
    assert an_id(90) not in again
    again.close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_it_belongs_to_one_at_a_time(path: str) -> None:
    first, second = opened(path), Journal(path)
    assert not second.take()
    first.finish(an_id(1))
    first.close()
    assert second.take()
    assert an_id(1) in second
    second.close()


def test_an_event_id_that_would_break_its_line_is_left_out(path: str) -> None:
    journal = opened(path)
    journal.finish(an_id(1), "e-1")
    journal.finish(an_id(2), "e 2\nffff")
    assert journal.last_event_id == "e-1"
    journal.close()
    again = opened(path)
    assert len(again) == 2
    again.close()


def test_what_is_no_id_is_refused(path: str) -> None:
    journal = opened(path)
    for wrong in ("", "x", an_id(1).upper() + "A", an_id(1) + "\n"):
        with pytest.raises(ValueError, match="no id"):
            journal.finish(wrong)
    journal.close()
    with pytest.raises(ValueError, match="not open"):
        journal.finish(an_id(1))


def test_a_link_in_its_place_is_not_followed(path: str, tmp_path: Path) -> None:
    os.makedirs(os.path.dirname(path))
    os.symlink(tmp_path / "elsewhere", path)
    journal = Journal(path)
    with pytest.raises(OSError, match=r"symbolic|levels"):
        journal.take()
    journal.close()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk to try it on")
def test_a_full_disk_is_said_and_the_id_is_known_all_the_same(path: str) -> None:
    journal = opened(path)
    full = os.open("/dev/full", os.O_RDWR)
    assert journal._file is not None
    os.dup2(full, journal._file)
    os.close(full)
    with pytest.raises(OSError, match="space"):
        journal.finish(an_id(1))
    assert an_id(1) in journal
    journal.close()
