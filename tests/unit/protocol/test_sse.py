"""The table of streams at every chunking; the encoder against the parser; the parser against the standard's text."""

import re
import time
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from angelia.protocol import sse
from tests.unit.protocol.sse_cases import BOM, CASES, Case

MIB = 1024 * 1024
# Far above what linear work takes (some 3 s byte by byte), far below what quadratic work would.
LINEAR_SECONDS = 30

NASTY = st.sampled_from(
    ["\r", "\n", "\r\n", "\n\r", "\u2028", "\x85", "\0", "\ufeff", "👩\u200d💻", ":", " ", "data: x", "id: 9"]
)
TEXTS = st.lists(NASTY | st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=12).map("".join)
ONE_LINE = TEXTS.map(lambda text: re.sub("[\r\n\0]", "", text))
FIELDS = [b"data", b"id", b"event", b"retry", b":", b" ", b"\r", b"\n", b"\r\n", b"\n\n", b"\0", b"1", b"x"]
LETTERS = [BOM, BOM[:1], BOM[1:2], BOM[2:], b"\xff", b"\xf0\x9f", "😀".encode(), "\u2028".encode()]
STREAMS = st.lists(st.sampled_from(FIELDS + LETTERS), max_size=40).map(b"".join)


def read(chunks: Iterable[bytes], parser: sse.Parser | None = None) -> list[sse.Event]:
    parser = parser or sse.Parser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def by(size: int, stream: bytes) -> Iterable[bytes]:
    return (stream[start : start + size] for start in range(0, len(stream), size))


def one_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


# ---- the table


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_table_at_every_chunking(case: Case) -> None:
    stream = case.stream
    chunkings = [[stream], list(by(1, stream)), list(by(2, stream)), list(by(3, stream))]
    chunkings += [[stream[:cut], stream[cut:]] for cut in range(1, min(len(stream), 300))]
    chunkings += [[piece for byte in by(1, stream) for piece in (b"", byte, b"")]]
    for chunks in chunkings:
        parser = sse.Parser()
        assert read(chunks, parser) == case.expected, chunks
        assert parser.retry_ms == case.retry_ms, chunks


def test_the_table_names_each_case_once() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))


def test_a_byte_order_mark_in_three_pieces() -> None:
    assert read([BOM[:1], BOM[1:2], BOM[2:], b"data: a\n\n"]) == [sse.Event("a")]


def test_an_event_is_handed_out_with_the_cr_that_ends_it() -> None:
    parser = sse.Parser()
    assert parser.feed(b"data: a\r\n\r") == [sse.Event("a")]
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\n") == []


def test_a_block_that_was_cut_off_leaves_no_id() -> None:
    parser = sse.Parser()
    parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")
    assert parser.last_event_id == "1"
    parser.feed(b"\n")
    assert parser.last_event_id == "2"


def test_a_block_with_nothing_but_an_id_moves_the_place() -> None:
    parser = sse.Parser()
    assert parser.feed(b"id: 5\n\n") == []
    assert parser.last_event_id == "5"


def test_a_resumed_stream_keeps_its_place_until_an_id_comes() -> None:
    parser = sse.Parser(last_event_id="41")
    assert parser.feed(b"data: notice\n\nid: 42\ndata: a\n\n") == [
        sse.Event("notice", "message", "41"),
        sse.Event("a", "message", "42"),
    ]


# ---- the parser against the standard's text, done the slow way


def by_the_book(stream: bytes) -> tuple[list[tuple[str, str, str]], int | None]:
    """The whole stream at once: decode, drop one byte order mark, cut into lines, interpret."""
    events, data, kind, last_id, retry = [], "", "", "", None
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    for line in re.split("\r\n|\n|\r", text)[:-1]:
        if line == "":
            if data:
                events.append((data[:-1], kind or "message", last_id))
            data, kind = "", ""
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                data += value + "\n"
            elif name == "event":
                kind = value
            elif name == "id" and "\0" not in value:
                last_id = value
            elif name == "retry" and re.fullmatch("[0-9]+", value):
                retry = min(int(value), sse.MAX_RETRY_MS)
    return events, retry


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_book_agrees_with_the_table(case: Case) -> None:
    if "six thousand" not in case.name:
        assert by_the_book(case.stream) == (case.expected, case.retry_ms)


@settings(max_examples=500, deadline=None)
@given(STREAMS | st.binary(max_size=60), st.lists(st.integers(0, 160), max_size=12))
def test_any_stream_cut_anywhere_reads_as_the_book_says(stream: bytes, cuts: list[int]) -> None:
    borders = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(borders)]
    events, retry = by_the_book(stream)
    parser = sse.Parser()
    assert read(chunks, parser) == events
    assert parser.retry_ms == retry


# ---- bounds


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    ("lines", "held"),
    [
        (b"data: 12345\n", 11),
        (b"data:\ndata\ndata: \n", 2 + 6),  # the line, and an LF for each line of data before it
        (b"id: 1234567\n", 11),
        (b": a comment\n", 11),
        (b"unknown: 12\n", 11),
    ],
)
def test_the_bound_is_passed_at_the_same_byte_however_cut(lines: bytes, held: int, size: int) -> None:
    read(by(size, lines + b"\n"), sse.Parser(max_event_bytes=held))
    parser = sse.Parser(max_event_bytes=held - 1)
    with pytest.raises(sse.EventTooLarge) as raised:
        read(by(size, lines + b"\n"), parser)
    assert raised.value.limit == held - 1
    with pytest.raises(sse.EventTooLarge):
        parser.feed(b"\n\ndata: a\n\n")


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_many_short_lines_of_data_are_bounded_as_one(size: int) -> None:
    with pytest.raises(sse.EventTooLarge):
        read(by(size, b"data: ab\n" * 400), sse.Parser(max_event_bytes=1000))


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_line_that_never_ends_is_bounded(size: int) -> None:
    with pytest.raises(sse.EventTooLarge):
        read(by(size, b":" * 4096), sse.Parser(max_event_bytes=1000))


def test_the_bound_holds_for_each_event_and_not_for_the_stream() -> None:
    stream = b": keepalive\n" * 300 + b"data: 0123456789\n\n" * 300
    assert len(read([stream], sse.Parser(max_event_bytes=40))) == 300


def test_events_complete_before_one_too_large_are_not_lost() -> None:
    parser = sse.Parser(max_event_bytes=20)
    chunk = b"id: 1\ndata: a\n\nid: 2\ndata: " + b"b" * 30 + b"\n\nid: 3\ndata: c\n\n"
    assert parser.feed(chunk) == [sse.Event("a", "message", "1")]
    assert parser.last_event_id == "1"
    with pytest.raises(sse.EventTooLarge):
        parser.feed(b"")


@pytest.mark.parametrize("size", [5 * MIB * 2, 65536, 7])
@pytest.mark.parametrize("line", [5 * MIB, 50], ids=["one line", "many lines"])
def test_five_mebibytes_take_linear_time(line: int, size: int) -> None:
    data = b"\n".join([b"x" * line] * (5 * MIB // line))
    assert timed_read(by(size, sse.event(data))) == [sse.Event(data.decode())]


def test_five_mebibytes_take_linear_time_byte_by_byte() -> None:
    assert timed_read(by(1, sse.event(b"x" * 5 * MIB))) == [sse.Event("x" * 5 * MIB)]


def timed_read(chunks: Iterable[bytes]) -> list[sse.Event]:
    parser, events = sse.Parser(), []
    deadline = time.monotonic() + LINEAR_SECONDS
    for number, chunk in enumerate(chunks):
        events += parser.feed(chunk)
        assert number % 1000 or time.monotonic() < deadline, f"after {number} chunks"
    return events


# ---- the encoder


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (sse.event(b'{"a":1}'), b'data: {"a":1}\n\n'),
        (sse.event(b""), b"data: \n\n"),
        (sse.event(b"a", id="7-1"), b"id: 7-1\ndata: a\n\n"),
        (sse.event(b"a", event="bye"), b"event: bye\ndata: a\n\n"),
        (sse.event(b"a", "7-1", "bye"), b"id: 7-1\nevent: bye\ndata: a\n\n"),
        (sse.event(b"a", id=""), b"id: \ndata: a\n\n"),
        (sse.event(b"a\r\nb\rc\nd"), b"data: a\ndata: b\ndata: c\ndata: d\n\n"),
        (sse.event(b"\n\r"), b"data: \ndata: \ndata: \n\n"),
        (sse.comment("keep"), b": keep\n"),
        (sse.comment("a\r\nb\rc\n"), b": a\n: b\n: c\n: \n"),
        (sse.retry(0), b"retry: 0\n"),
        (sse.connected(2000), b": connected\nretry: 2000\n"),
        (sse.KEEPALIVE, b": keepalive\n"),
    ],
)
def test_the_bytes_on_the_wire(encoded: bytes, expected: bytes) -> None:
    assert encoded == expected


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b", "\n", "1\n\ndata: forged", "\ud800"])
def test_an_id_or_a_type_that_could_forge_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match=r"must not hold|surrogates"):
        sse.event(b"a", id=bad)
    with pytest.raises(ValueError, match=r"must not hold|surrogates"):
        sse.event(b"a", event=bad)


def test_a_negative_reconnection_time_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        sse.retry(-1)


@settings(deadline=None)
@given(TEXTS, st.none() | ONE_LINE, st.none() | ONE_LINE, st.integers(1, 9))
@example("a\r\n\r\nid: 9\ndata: forged\n\n", "1", "t", 1)
@example("\u2028data: forged\x85\0", None, None, 2)
def test_what_is_encoded_is_read_back(data: str, last_id: str | None, kind: str | None, size: int) -> None:
    before, after = sse.event(b"before", id="b"), sse.event(b"after", id="a")
    stream = before + sse.event(data.encode(), last_id, kind) + after
    expected = sse.Event(one_line_ends(data), kind or "message", "b" if last_id is None else last_id)
    assert read(by(size, stream)) == [sse.Event("before", "message", "b"), expected, sse.Event("after", "message", "a")]


@settings(deadline=None)
@given(TEXTS, st.integers(1, 5))
@example("a\n\ndata: forged\nid: 9\nretry: 1\n\n", 1)
def test_a_comment_says_nothing_to_a_reader(text: str, size: int) -> None:
    parser = sse.Parser()
    stream = sse.connected(5) + sse.comment(text) + sse.event(b"a") + sse.KEEPALIVE
    assert read(by(size, stream), parser) == [sse.Event("a")]
    assert parser.retry_ms == 5
