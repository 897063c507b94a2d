"""JSON of other programs: one value or one error, whatever the bytes are."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.protocol.foreign_json import Malformed, read, write

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)


def whole(content: object) -> object:
    """The same with each half of a pair as U+FFFD, as any strict reader has it."""
    if isinstance(content, str):
        return content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(content, list):
        return [whole(child) for child in content]
    if isinstance(content, dict):
        return {whole(key): whole(child) for key, child in content.items()}
    return content


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        read(data)


@given(VALUES)
def test_what_python_or_a_browser_writes_is_read(content: object) -> None:
    """Both escape half of a pair, which strict parsers refuse; a file with one is not lost."""
    assert read(json.dumps(content).encode()) == whole(content)


@given(VALUES)
def test_what_is_written_here_is_json_for_everybody(content: object) -> None:
    assert json.loads(write(content)) == content


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b'"\\ud83d"', "\ufffd"),
        (b'"\\ud83d\\ude00 \\ude00"', "😀 \ufffd"),
        (b'"\\\\ud83d \\ud83d"', "\\ud83d \ufffd"),
        (b'"\\\\\\ud83dx"', "\\\ufffdx"),
    ],
)
def test_a_mark_or_a_cut_emoji_does_not_cost_the_file(data: bytes, expected: object) -> None:
    """2 some builds read BOM-tolerantly."""
    assert read(data) == expected


@pytest.mark.parametrize(
    "data", [b"", b" ", b"{", b"nul", b"NaN", b'"\xff"', b"[" * 100_000, b"1" * 5_000, b"1e999", b"{} {}", b'"\\ud83d']
)
def test_what_is_no_json_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        read(data)
    assert "Nothing was stored" not in str(caught.value)


def test_deeper_than_the_bound_is_malformed() -> None:
    assert read(b"[" * 3 + b"]" * 3, 3) == [[[]]]
    with pytest.raises(Malformed, match="deeper than 3"):
        read(b"[" * 4 + b"]" * 4, 3)
