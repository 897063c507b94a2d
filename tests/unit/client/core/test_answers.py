"""What an answer means, as one table."""

from typing import Any

import pytest

from angelia.client.core.answers import TRY_AGAIN, answered, json_bytes, may_pass, part, query, refusal
from angelia.client.errors import (
    AskFailed,
    ClientError,
    HubError,
    LeaseLost,
    LostHub,
    NoHub,
    NotAHub,
    OutboxError,
    Superseded,
    TimedOut,
)
from tests.fakes.script import WHERE, absent, another, lost, no, ok, silent

FINE = [
    (200, b'{"a": 1}', {"a": 1}),
    (201, b"{}", {}),
    (202, '{"ü": "🐝"}'.encode(), {"ü": "🐝"}),
]
REFUSED: list[tuple[int, bytes, type[ClientError], str]] = [
    (200, b"", LostHub, "cut off"),
    (200, b"<html>", NotAHub, "JSON"),
    (200, b"[1, 2]", NotAHub, "JSON"),
    (200, b"\xff", NotAHub, "JSON"),
    (200, b"[" * 100_000, NotAHub, "JSON"),
    (204, b"", LostHub, "cut off"),
    (301, b"", NotAHub, "301"),
    (307, b"<html>", NotAHub, "307"),
    (404, b"Not found", NotAHub, "404"),
    (404, b'{"detail": "other"}', NotAHub, "404"),
    (400, b'{"code": 17}', NotAHub, "400"),
    (502, b"Bad gateway", LostHub, "proxy"),
    (503, b"", LostHub, "proxy"),
    (504, b"<html>", LostHub, "proxy"),
    (500, b"<html>", NotAHub, "500"),
    (*no(404, "unknown_agent"), HubError, "Because"),
    (*no(503, "stopping"), HubError, "Because"),
    (*no(409, "lease_lost"), LeaseLost, "Because"),
    (*no(409, "id_reused"), HubError, "Because"),
]


@pytest.mark.parametrize(("status", "content", "data"), FINE)
def test_a_good_answer_is_its_object(status: int, content: bytes, data: Any) -> None:
    assert answered(status, content, WHERE) == data


@pytest.mark.parametrize(("status", "content", "kind", "says"), REFUSED)
def test_any_other_answer_is_an_error(status: int, content: bytes, kind: type[ClientError], says: str) -> None:
    with pytest.raises(ClientError, match=says) as caught:
        answered(status, content, WHERE)
    assert type(caught.value) is kind


def test_a_refusal_keeps_what_helps() -> None:
    with pytest.raises(HubError) as caught:
        answered(*no(404, "unknown_agent", suggestions=["hermes"]), WHERE)
    assert (caught.value.status, caught.value.code) == (404, "unknown_agent")
    assert caught.value.extra == {"suggestions": ["hermes"]}


def test_a_redirect_says_where_it_points_and_cannot_forge_a_line() -> None:
    told = str(refusal(307, None, WHERE, "http://evil/\x1b[2J\n"))
    assert "http://evil/" in told
    assert "\x1b" not in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("error", "later"),
    [(absent(), True), (lost(), True), (silent(), True), (another(), True)]
    + [(Superseded("scout"), False), (AskFailed("7", "x", ""), False), (OutboxError("out", "x"), False)]
    + [(refusal(status, {"code": "x"}, WHERE), status in TRY_AGAIN) for status in (400, 401, 403, 404, 409, 413, 421)]
    + [(refusal(status, {"code": "x"}, WHERE), True) for status in (408, 425, 429, 500, 502, 503, 504, 507)],
)
def test_what_may_pass(error: ClientError, later: bool) -> None:
    assert may_pass(error) is later


def test_the_tree_of_errors() -> None:
    assert issubclass(LeaseLost, HubError)
    assert issubclass(NotAHub, NoHub)
    assert issubclass(LostHub, NoHub)
    assert not issubclass(TimedOut, NoHub)


def test_a_body_is_compact_utf_8() -> None:
    assert json_bytes({"a": ["ü", None, 1.5]}) == '{"a":["ü",null,1.5]}'.encode()
    for wrong in (float("nan"), "\ud800"):
        with pytest.raises(ValueError, match=r"JSON|surrogate"):
            json_bytes(wrong)
    with pytest.raises(TypeError):
        json_bytes({1, 2})


def test_paths() -> None:
    assert part("../a b/ç?x#y") == "..%2Fa%20b%2F%C3%A7%3Fx%23y"
    assert query({"a": None}) == ""
    assert query({"a": "b c", "n": 0}) == "?a=b+c&n=0"
    assert ok({}) == (200, b"{}")
