"""The tests' own reader of answers and streams: the same in whatever pieces the bytes come."""

import pytest

from tests.rigs.wire import BadAnswer, Event, Events, Incoming, request

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;x=y\r\n\r\nmore\r\n0\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
)
PLAIN = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nabcrest"
STREAM = (
    ": connected\nretry: 2000\n\nid: e-1\ndata: {\"a\":\ndata: 1}\n\nevent: bye\r\ndata: {}\r\n\r\n: é\n\nid: e-2\n\n"
).encode()  # fmt: skip


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_chunked_answer(size: int) -> None:
    answer, body, left = Incoming(), b"", b""
    for piece in pieces(CHUNKED, size):
        if answer.complete:
            left += piece
        else:
            body += answer.feed(piece)
    assert (answer.status, body, answer.complete) == (200, b"hello\r\nmore", True)
    assert answer.rest + left == b"HTTP/1.1 204 No Content\r\n\r\n"
    assert answer.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_an_answer_of_known_length(size: int) -> None:
    answer, body = Incoming(), b""
    for piece in pieces(PLAIN[:-4], size):
        body += answer.feed(piece)
    assert (answer.status, body, answer.complete) == (404, b"abc", True)


def test_what_follows_an_answer_is_kept() -> None:
    answer = Incoming()
    assert answer.feed(PLAIN) == b"abc"
    assert (answer.complete, answer.rest) == (True, b"rest")


def test_an_answer_that_was_cut_off_is_not_whole() -> None:
    for whole in (CHUNKED[:-40], PLAIN[:-6]):
        answer = Incoming()
        answer.feed(whole)
        assert not answer.end()


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    answer = Incoming()
    assert answer.feed(b"HTTP/1.0 200 OK\r\n\r\nall") == b"all"
    assert answer.end()


def test_what_is_no_answer() -> None:
    with pytest.raises(BadAnswer):
        Incoming().feed(b"SSH-2.0-x\r\n\r\n")


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_a_stream_of_events(size: int) -> None:
    events = Events()
    found = [event for piece in pieces(STREAM, size) for event in events.feed(piece)]
    assert found == [
        Event("comment", "connected"), Event("message", '{"a":\n1}', "e-1"), Event("bye", "{}"), Event("comment", "é"),
    ]  # fmt: skip
    assert found[1].json == {"a": 1}
    assert (events.retry, events.last_id) == (2000, "e-2")


def test_a_request() -> None:
    made = request("POST", "/x", b"{}", host="h", headers={"A": "b"})
    assert made == b"POST /x HTTP/1.1\r\nHost: h\r\nA: b\r\nContent-Length: 2\r\n\r\n{}"
