"""JSON that this hub carries, and JSON that it refuses."""

import json as plain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from angelia.model.errors import BadJson, BadRequest
from angelia.protocol.json import compact, struct, value

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_a_body_means_what_the_sender_wrote(sent: object) -> None:
    try:
        written = plain.dumps(sent, indent=1).encode()
        kept = compact(written, 32)
    except (BadJson, UnicodeEncodeError):
        return
    assert plain.loads(kept) == sent


@given(VALUES)
def test_compacting_twice_changes_nothing(sent: object) -> None:
    try:
        once = compact(plain.dumps(sent).encode(), 32)
    except BadJson:
        return
    assert compact(once, 32) == once


@pytest.mark.parametrize(
    "bad", [b"", b"{", b"nul", b"NaN", b"Infinity", b"{'a':1}", b'"\xff"', b'"\\ud800"', b"1e999", b"[1,]", b"1 2"]
)
def test_what_is_no_json_is_refused(bad: bytes) -> None:
    with pytest.raises(BadJson, match="Nothing was stored"):
        value(bad, 32)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_32_passes_and_33_is_refused(opening: bytes, closing: bytes) -> None:
    assert compact(opening * 32 + b"1" + closing * 32, 32)
    with pytest.raises(BadJson, match="deeper than 32"):
        value(opening * 33 + b"1" + closing * 33, 32)


def test_absurd_depth_is_refused_and_not_walked() -> None:
    with pytest.raises(BadJson):
        value(b"[" * 1_000_000, 32)
    with pytest.raises(BadJson):
        value(b"[" * 1_000_000 + b"]" * 1_000_000, 32)


class _Asked(Struct, forbid_unknown_fields=True):
    name: str
    count: int = 0


def test_a_request_has_the_shape_that_is_asked_for() -> None:
    assert struct(b'{"name":"a"}', _Asked, 32) == _Asked("a")


@pytest.mark.parametrize("bad", [b'{"name":1}', b"{}", b'{"name":"a","cuont":1}', b"[]", b"1"])
def test_another_shape_is_a_bad_request_that_names_the_field(bad: bytes) -> None:
    with pytest.raises(BadRequest, match="Nothing was stored"):
        struct(bad, _Asked, 32)


def test_no_json_at_all_is_bad_json() -> None:
    with pytest.raises(BadJson):
        struct(b'{"name":', _Asked, 32)
