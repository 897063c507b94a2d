"""Frames of a gateway: each is a request or has an answer, under the id that it came with."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.protocol.jsonrpc import Request, error, event, read_frame, result

LIMIT, DEPTH = 10_000, 16
IDS = st.none() | st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def read(frame: bytes | dict[str, Any] | list[Any]) -> Request | bytes | None:
    return read_frame(frame if isinstance(frame, bytes) else json.dumps(frame).encode(), max_bytes=LIMIT, depth=DEPTH)


def refusal(frame: bytes | dict[str, Any] | list[Any]) -> tuple[object, int]:
    answer = read(frame)
    assert isinstance(answer, bytes)
    told = json.loads(answer)
    assert told["jsonrpc"] == "2.0"
    assert told["error"]["message"].endswith(".")
    assert told["error"]["data"]["reason"] in ("unknown", "invalid_params")
    return told["id"], told["error"]["code"]


def test_a_call_is_read_with_its_id_and_its_params() -> None:
    frame = b'{"jsonrpc":"2.0","id":7,"method":"bot_relay.outbox.drain","params":{"profile":"ops"}}'
    assert read(frame) == Request(7, "bot_relay.outbox.drain", {"profile": "ops"})


@pytest.mark.parametrize(
    "call", [{"method": "m"}, {"id": None, "method": "m", "params": None}, {"method": "m", "x": 1}]
)
def test_params_that_are_null_are_none_and_unknown_members_are_left_alone(call: dict[str, Any]) -> None:
    """7.2 null params ⇒ {}; a request without an id is one with id null; extra members are ignored."""
    assert read(call) == Request(None, "m", {})


@pytest.mark.parametrize("frame", [b"", b"  ", b"\n", b"\r\n\t"])
def test_a_blank_frame_is_left_alone(frame: bytes) -> None:
    assert read(frame) is None


@pytest.mark.parametrize(
    "frame", [b"{", b"not json", b'{"id":1,"method":"m"', b'"\xff"', b"\xff\xfe", b"[1,", b"{}{}", b"[" * 9_000]
)
def test_what_is_no_json_has_an_answer_without_an_id(frame: bytes) -> None:
    """7.2 -32700."""
    assert refusal(frame) == (None, -32700)


@pytest.mark.parametrize("frame", [b"[]", b'[{"id":1,"method":"m"}]', b"1", b'"m"', b"null", b"true"])
def test_there_are_no_batches_and_a_call_is_an_object(frame: bytes) -> None:
    """7.2 -32600."""
    assert refusal(frame) == (None, -32600)


@pytest.mark.parametrize("method", [{}, {"method": ""}, {"method": None}, {"method": 1}, {"method": ["m"]}])
def test_a_call_without_a_method_is_answered_under_its_id(method: dict[str, Any]) -> None:
    """7.2 -32600 for an empty method."""
    assert refusal({"id": "a", **method}) == ("a", -32600)


@pytest.mark.parametrize("params", [[], [1], "x", 1, 0, False, ""])
def test_params_that_are_no_object_are_refused_under_the_id(params: object) -> None:
    """7.2 -32602; falsy ones, too."""
    assert refusal({"id": 3, "method": "m", "params": params}) == (3, -32602)


@pytest.mark.parametrize("id", [[], {}, True, False, [1]])
def test_an_id_of_another_type_is_refused_and_never_echoed(id: object) -> None:
    assert refusal({"id": id, "method": "m"}) == (None, -32600)


@given(IDS)
def test_an_id_comes_back_as_it_was(id: Any) -> None:
    request = read({"id": id, "method": "m"})
    assert isinstance(request, Request)
    for answer in (result(request.id, {}), error(request.id, 5092, "no.")):
        echoed = json.loads(answer)["id"]
        assert echoed == id
        assert type(echoed) is type(id)


def test_a_frame_that_is_too_large_or_too_deep_is_refused_unread() -> None:
    assert refusal(b'{"id":1,"method":"m","params":{"x":"' + b"a" * LIMIT + b'"}}') == (None, -32600)
    deep = {"id": 1, "method": "m", "params": {"x": json.loads("[" * DEPTH + "]" * DEPTH)}}
    assert refusal(deep) == (None, -32700)


def test_a_message_with_half_an_emoji_is_read() -> None:
    """A browser cuts texts between the halves; the caller would wait for an answer that never comes."""
    request = read(b'{"id":1,"method":"m","params":{"message":"cut \\ud83d"}}')
    assert request == Request(1, "m", {"message": "cut \ufffd"})


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_frame_is_a_request_or_has_an_answer(frame: bytes) -> None:
    answer = read(frame)
    if isinstance(answer, bytes):
        assert json.loads(answer)["error"]["code"] in (-32700, -32600, -32602)
    else:
        assert isinstance(answer, Request) or not frame.strip()


@given(IDS, VALUES)
def test_what_is_written_is_one_line_of_json(id: Any, value: object) -> None:
    """The same bytes are a frame and, on standard output, a line."""
    for written in (result(id, value), error(id, 1, "x", {"x": value}), event("t", value)):
        assert b"\n" not in written
        json.loads(written)


def test_the_shapes_are_those_of_hermes() -> None:
    """7.2 and 13: the worked trace."""
    assert result(2, {"envelopes": []}) == b'{"jsonrpc":"2.0","id":2,"result":{"envelopes":[]}}'
    assert (
        error(3, 5096, "target_busy: …", {"reason": "target_busy"})
        == (
            '{"jsonrpc":"2.0","id":3,"error":{"code":5096,"message":"target_busy: …","data":{"reason":"target_busy"}}}'
        ).encode()
    )
    assert error(3, 4090, "x.") == (
        b'{"jsonrpc":"2.0","id":3,"error":{"code":4090,"message":"x.","data":{"reason":"unknown"}}}'
    )
    assert event("bot_relay.outbox.pending", {}) == (
        b'{"jsonrpc":"2.0","method":"event","params":{"type":"bot_relay.outbox.pending","payload":{}}}'
    )
    assert b'"type":"x","session_id":"s","payload":1' in event("x", 1, session_id="s")


def test_an_error_does_not_repeat_a_token() -> None:
    token = "aVery1Kn0wnToken-of_43_signs-LikeOthers8888"
    assert json.loads(error(1, -32601, f"There is no method '{token}'."))["error"]["message"] == (
        "There is no method '(token)'."
    )
