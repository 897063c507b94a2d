"""The hub's log: readable, and never in the way."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from angelia.cli.hub_log import FILE_BYTES, LINES_WAITING, HubLog, end_of

MARGIN = 3  # its moment may be too short for a machine that is busy


@contextmanager
def logging_to(path: Path, err: int, **how: Any) -> Iterator[HubLog]:
    out = os.dup(err)
    handler = HubLog(str(path), out=out, err=err, **how)
    try:
        yield handler
    finally:
        for _ in range(MARGIN):
            handler.finish()
        os.close(out)


def record(text: str, *args: object, trouble: BaseException | None = None) -> logging.LogRecord:
    info = (type(trouble), trouble, None) if trouble else None
    return logging.LogRecord("angelia", logging.INFO, "file", 1, text, args, info)


def test_an_event_is_one_line_and_no_terminal_obeys_it(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with logging_to(tmp_path / "hub.log", writer) as handler:
        handler.emit(record("from %s", "a\nb\x1b[31m\x9b"))
        handler.emit(record("that %d %d", "x"))
        handler.emit(record("failed", trouble=ValueError("why\x07")))
    os.close(writer)
    with open(reader, "rb") as pipe:
        lines = pipe.read().decode().splitlines()
    assert lines[0].endswith(r" info: from a\nb\x1b[31m\x9b")
    assert lines[1][20:] == "info: a log line could not be made: 'that %d %d'"
    assert lines[2].endswith(" info: failed")
    assert lines[3] == r"    ValueError: why\x07"


def test_when_nobody_reads_any_more_it_goes_on_in_the_file(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with logging_to(tmp_path / "hub.log", writer) as handler:
        handler.emit(record("one"))
        handler.emit(record("two"))
    assert [line[-3:] for line in (tmp_path / "hub.log").read_text().splitlines()] == ["one", "two"]
    assert os.path.samestat(os.fstat(writer), (tmp_path / "hub.log").stat())
    os.close(writer)


def test_when_there_is_no_file_either_it_goes_on_without(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with logging_to(tmp_path / "none" / "hub.log", writer) as handler:
        handler.emit(record("one"))
    os.close(writer)


def test_who_does_not_read_holds_nothing_up(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with logging_to(tmp_path / "hub.log", writer) as handler:
        for number in range(LINES_WAITING + 5000):
            handler.emit(record("x" * 100 + " %d", number))
        os.set_blocking(reader, False)
        taken = b""
        while b"dropped" not in taken:
            try:
                taken += os.read(reader, 65536)
            except BlockingIOError:
                handler.emit(record("and another after %d", len(taken)))
    os.close(writer)
    os.close(reader)
    assert b"lines were dropped: nobody read them" in taken


def test_its_own_file_does_not_grow_without_end(tmp_path: Path) -> None:
    path = tmp_path / "hub.log"
    path.write_bytes(b"x" * (FILE_BYTES + 1))
    err = os.open(path, os.O_WRONLY | os.O_APPEND)
    with logging_to(path, err) as handler:
        handler.emit(record("after"))
    os.close(err)
    assert path.read_text().endswith("info: after\n")
    assert path.stat().st_size < 100
    assert (tmp_path / "hub.log.1").stat().st_size == FILE_BYTES + 1


def test_a_file_of_somebody_elses_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_bytes(b"x" * (FILE_BYTES + 1))
    (tmp_path / "hub.log").touch()
    err = os.open(path, os.O_WRONLY | os.O_APPEND)
    with logging_to(tmp_path / "hub.log", err) as handler:
        handler.emit(record("after"))
    os.close(err)
    assert path.stat().st_size > FILE_BYTES + 1


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_is_said_again_is_counted_and_told_once_a_minute(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    time = Time()
    with logging_to(tmp_path / "hub.log", writer, clock=time) as handler, open(reader, "rb") as pipe:
        for _ in range(38):
            handler.emit(record("the disk is %s", "full"))
        assert pipe.readline().endswith(b" info: the disk is full\n")
        time.now += 60
        handler.emit(record("something else"))
        # Whichever the writing thread comes to first: the new line, or the end of the minute.
        both = {pipe.readline().partition(b" info: ")[2] for _ in range(2)}
        assert both == {b"something else\n", b"the disk is full \xe2\x80\xa6 37 more times in the last minute\n"}
        handler.emit(record("the disk is full"))
        time.now += 5
        handler.finish()
        assert pipe.readline().endswith(b" info: the disk is full \xe2\x80\xa6 1 more time in the last 5 s\n")
    os.close(writer)


def test_the_last_line_about_a_subject_says_how_it_stands(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    time = Time()
    with logging_to(tmp_path / "hub.log", writer, clock=time) as handler:
        for state in ["connected", "no longer connected"] * 20 + ["connected"]:
            said = record("%s is %s", "garage", state)
            said.subject = "connection garage"
            handler.emit(said)
        time.now += 5
    os.close(writer)
    with open(reader, "rb") as pipe:
        lines = [line.partition(" info: ")[2] for line in pipe.read().decode().splitlines()]
    assert lines[:3] == ["garage is connected", "garage is no longer connected", "garage is connected"]
    assert lines[-1] == "garage is connected … the last of 32 more lines on it in the last 5 s"
    assert len(lines) == 10


def test_a_flood_of_one_line_that_nobody_reads_costs_no_memory(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with logging_to(tmp_path / "hub.log", writer) as handler:
        for number in range(200):  # more than a pipe holds: the thread stands
            handler.emit(record("x" * 1000 + " %d", number))
        for _ in range(5000):
            handler.emit(record("the same"))
        assert handler._waiting.qsize() <= 202
        os.close(reader)
    os.close(writer)


def test_who_asks_for_every_detail_gets_each(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with logging_to(tmp_path / "hub.log", writer) as handler:
        for _ in range(3):
            handler.emit(logging.LogRecord("angelia", logging.DEBUG, "file", 1, "again", (), None))
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert len(pipe.read().splitlines()) == 3


def test_in_json_every_line_is_one_object(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    time = Time()
    with logging_to(tmp_path / "hub.log", writer, clock=time, in_json=True) as handler:
        handler.emit(record("the hub serves on %s, data folder %s", "http://h\n\x1b[31m", "/d"))
        handler.emit(record("failed", trouble=ValueError("why")))
        handler.emit(record("failed", trouble=ValueError("why")))
        time.now += 12
    os.close(writer)
    with open(reader, "rb") as pipe:
        found = [json.loads(line) for line in pipe.read().splitlines()]
    assert [each["event"] for each in found] == ["the_hub_serves_on", "failed", "failed"]
    assert found[0]["message"] == r"the hub serves on http://h\n\x1b[31m, data folder /d"
    assert (found[0]["level"], found[0]["part"], found[0]["at"][-1]) == ("info", "angelia", "Z")
    assert found[1]["trace"][-1] == "ValueError: why"
    assert (found[2]["times"], found[2]["seconds"], "trace" in found[2]) == (1, 12, False)


def test_the_end_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "hub.log").write_text("old\n" + "".join(f"{number}\n" for number in range(30)))
    assert end_of(str(tmp_path / "hub.log"), 4, 3) == "27\n28\n29"
    assert end_of(str(tmp_path / "none"), 0) == ""
