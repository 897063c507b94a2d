"""Event streams and what a reader must make of them: one table for our parser and others' (browsers, httpx-sse).

What must stay true: a case says nothing about our parser, only what the WHATWG standard demands; the bytes begin at the
start of a stream; names are unique. `expected` holds (data, event type, last event id).
"""

from typing import NamedTuple

BOM = b"\xef\xbb\xbf"


class Case(NamedTuple):
    """One stream: its bytes, the events it must yield, and the reconnection time it must leave (None: unchanged)."""

    name: str
    stream: bytes
    expected: list[tuple[str, str, str]]
    retry_ms: int | None = None


def _one(data: str, event: str = "message", last_id: str = "") -> list[tuple[str, str, str]]:
    return [(data, event, last_id)]


LINE_ENDS = [
    Case("lf", b"data: a\n\ndata: b\n\n", [*_one("a"), *_one("b")]),
    Case("cr", b"data: a\r\rdata: b\r\r", [*_one("a"), *_one("b")]),
    Case("crlf", b"data: a\r\n\r\ndata: b\r\n\r\n", [*_one("a"), *_one("b")]),
    Case("lf then crlf", b"data: a\n\r\ndata: b\n\r\n", [*_one("a"), *_one("b")]),
    Case("crlf then lf", b"data: a\r\n\ndata: b\r\n\n", [*_one("a"), *_one("b")]),
    Case("crlf then cr", b"data: a\r\n\rdata: b\r\n\r", [*_one("a"), *_one("b")]),
    Case("cr then crlf", b"data: a\r\r\ndata: b\r\r\n", [*_one("a"), *_one("b")]),
    Case("cr then lf is one end", b"data: a\r\ndata: b\r\n\r\n", _one("a\nb")),
    Case("lf then cr is two ends", b"data: a\n\rdata: b\n\r", [*_one("a"), *_one("b")]),
    Case("all in one block", b"data: a\rdata: b\ndata: c\r\ndata: d\n\n", _one("a\nb\nc\nd")),
    Case("blank lines alone", b"\n\r\r\n\n\r\n", []),
    Case("blank lines between", b"data: a\n\n\n\r\n\rdata: b\n\n", [*_one("a"), *_one("b")]),
    Case("other separators are text", b"data: a\x0bb\x0cc\x1c\x1d\x1e\xc2\x85\xe2\x80\xa8\xe2\x80\xa9z\n\n",
         _one("a\x0bb\x0cc\x1c\x1d\x1e\x85\u2028\u2029z")),
]  # fmt: skip

BYTE_ORDER_MARK = [
    Case("bom", BOM + b"data: a\n\n", _one("a")),
    Case("bom alone", BOM, []),
    Case("bom twice spoils the first line", BOM + BOM + b"data: a\ndata: b\n\n", _one("b")),
    Case("bom later is part of a name", b"\n" + BOM + b"data: a\n\ndata: b\n\n", _one("b")),
    Case("bom within data is data", b"data: " + BOM + b"a\n\n", _one("\ufeffa")),
    Case("bom before a comment", BOM + b": hi\ndata: a\n\n", _one("a")),
    Case("bom before a blank line", BOM + b"\ndata: a\n\n", _one("a")),
    Case("half a bom is part of a name", b"\xef\xbbdata: a\n\ndata: b\n\n", _one("b")),
    Case("half a bom, then a line end", b"\xef\xbb\ndata: b\n\n", _one("b")),
]

DATA = [
    Case("nothing", b"", []),
    Case("no space after the colon", b"data:a\n\n", _one("a")),
    Case("one space is dropped", b"data:  a \n\n", _one(" a ")),
    Case("a tab is kept", b"data:\ta\n\n", _one("\ta")),
    Case("data without a colon", b"data\n\n", _one("")),
    Case("two of them", b"data\ndata\n\n", _one("\n")),
    Case("empty data", b"data:\n\n", _one("")),
    Case("only the space", b"data: \n\n", _one("")),
    Case("empty lines first and last", b"data:\ndata: a\ndata\n\n", _one("\na\n")),
    Case("colons in the value", b"data: a:b::c\ndata::\n\n", _one("a:b::c\n:")),
    Case("many lines", b"data: a\ndata: b\ndata: c\n\n", _one("a\nb\nc")),
    Case("a field in between", b"data: a\nid: 1\ndata: b\n\n", _one("a\nb", last_id="1")),
    Case("json", b'data: {"text":"a\\nb","n":[1,2]}\n\n', _one('{"text":"a\\nb","n":[1,2]}')),
    Case("nul is data", b"data: a\0b\n\n", _one("a\0b")),
    Case("cut off before the blank line", b"data: a\n\ndata: b\n", _one("a")),
    Case("cut off within a line", b"data: a\n\ndata: b", _one("a")),
    Case("cut off within crlf", b"data: a\r\n\r\ndata: b\r", _one("a")),
    Case("data is not kept", b"data: a\n\nid: 1\n\ndata: b\n\n", [*_one("a"), *_one("b", last_id="1")]),
]

NAMES = [
    Case("event type", b"event: add\ndata: a\n\ndata: b\n\n", [*_one("a", "add"), *_one("b")]),
    Case("event type after the data", b"data: a\nevent: add\n\n", _one("a", "add")),
    Case("the last event type counts", b"event: x\nevent: add\ndata: a\n\n", _one("a", "add")),
    Case("an emptied event type", b"event: x\nevent\ndata: a\n\n", _one("a")),
    Case("event type without data is forgotten", b"event: add\n\ndata: a\n\n", _one("a")),
    Case("unknown fields", b"foo: 1\nfoo\n foo: 2\ndata: a\nDATA: b\ndata : c\n data: d\nxdata: e\n\n", _one("a")),
    Case("comments", b":\n: one\n:data: two\n::\ndata: a\n: three\n\n", _one("a")),
    Case("a comment ends no block", b"data: a\n: keepalive\ndata: b\n\n", _one("a\nb")),
    Case("a comment block is no event", b": connected\n\n: keepalive\n\ndata: a\n\n", _one("a")),
    Case("a line of one space is a field", b"data: a\n \ndata: b\n\n", _one("a\nb")),
]

IDS = [
    Case("id", b"id: 7-1\ndata: a\n\n", _one("a", last_id="7-1")),
    Case("id is kept", b"id: 1\ndata: a\n\ndata: b\n\n: x\n\ndata: c\n\n",
         [*_one("a", last_id="1"), *_one("b", last_id="1"), *_one("c", last_id="1")]),
    Case("id after the data", b"data: a\nid: 1\n\n", _one("a", last_id="1")),
    Case("the last id counts", b"id: 1\nid: 2\ndata: a\n\n", _one("a", last_id="2")),
    Case("id emptied by a colon", b"id: 1\ndata: a\n\nid:\ndata: b\n\n", [*_one("a", last_id="1"), *_one("b")]),
    Case("id emptied by its name", b"id: 1\ndata: a\n\nid\ndata: b\n\n", [*_one("a", last_id="1"), *_one("b")]),
    Case("id with nul is ignored", b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\nid: \0\ndata: c\n\n",
         [*_one("a", last_id="1"), *_one("b", last_id="1"), *_one("c", last_id="1")]),
    Case("id of spaces", b"id:   \ndata: a\n\n", _one("a", last_id="  ")),
    Case("id that is not ascii", "id: …✓\ndata: a\n\n".encode(), _one("a", last_id="…✓")),
    Case("ID is no id", b"ID: 1\ndata: a\n\n", _one("a")),
]  # fmt: skip

RETRY = [
    Case("retry", b"retry: 1500\n\n", [], 1500),
    Case("retry counts before the blank line", b"retry:7\n", [], 7),
    Case("retry of zero", b"retry: 0\n\n", [], 0),
    Case("retry is decimal", b"retry: 0010\n\n", [], 10),
    Case("the last good retry counts", b"retry: 10\nretry: 1x\nretry: 20\nretry: -3\nretry\n\n", [], 20),
    *(
        Case(f"retry is not {bad!r}", b"retry: %b\ndata: a\n\n" % bad, _one("a"))
        for bad in (b"", b"x", b"1000x", b"-1", b"+1", b"1.5", b"1e3", b"0x10", b"1 ", b" 1", b"1_000", "٣".encode())
    ),
    Case("retry of eleven digits is bounded", b"retry: 99999999999\n\n", [], 2**31 - 1),
    Case("retry of six thousand digits is bounded", b"retry: %b\n\n" % (b"9" * 6000), [], 2**31 - 1),
]

UTF_8 = [
    Case("two, three and four bytes", "data: ü€😀 👩\u200d💻\n\n".encode(), _one("ü€😀 👩\u200d💻")),
    Case("an event type", "event: ü😀\ndata: a\n\n".encode(), _one("a", "ü😀")),
    Case("a stray byte", b"data: a\x80b\xffc\n\n", _one("a\ufffdb\ufffdc")),
    Case("an overlong form", b"data: \xc0\xafx\n\n", _one("\ufffd\ufffdx")),
    Case("a surrogate", b"data: \xed\xa0\x80x\n\n", _one("\ufffd\ufffd\ufffdx")),
    Case("cut short by a line end", b"data: \xf0\x9f\x98\ndata: x\n\n", _one("\ufffd\nx")),
    Case("cut short by a letter", b"data: \xe2\x82x\n\n", _one("\ufffdx")),
    Case("a bad byte in an id", b"id: 1\xff\ndata: a\n\n", _one("a", last_id="1\ufffd")),
    Case("a bad byte in a name", b"data\xff: a\ndata: b\n\n", _one("b")),
]

CASES = [*LINE_ENDS, *BYTE_ORDER_MARK, *DATA, *NAMES, *IDS, *RETRY, *UTF_8]
