"""The hub's log: readable, and never in the way."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from angelia.cli.hub_log import FILE_BYTES, LINES_WAITING, HubLog, end_of


@contextmanager
def logging_to(path: Path, err: int) -> Iterator[HubLog]:
    out = os.dup(err)
    handler = HubLog(str(path), out=out, err=err)
    try:
        yield handler
    finally:
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
    assert lines[0].endswith(r" info: from a\x0ab\x1b[31m\x9b")
    assert lines[1] == "a log line could not be made: 'that %d %d'"
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
        for _ in range(LINES_WAITING + 5000):
            handler.emit(record("x" * 100))
        os.set_blocking(reader, False)
        taken = b""
        while b"dropped" not in taken:
            try:
                taken += os.read(reader, 65536)
            except BlockingIOError:
                handler.emit(record("and another"))
    os.close(writer)
    os.close(reader)
    assert b"lines were dropped: nobody read them)" in taken


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


def test_the_end_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "hub.log").write_text("old\n" + "".join(f"{number}\n" for number in range(30)))
    assert end_of(str(tmp_path / "hub.log"), 4, 3) == "27\n28\n29"
    assert end_of(str(tmp_path / "none"), 0) == ""
