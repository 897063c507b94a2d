"""Whatever a stranger sends: a decoder says what it is or refuses it in its own words, in time linear in its length.

The corpus is small and read by people: a file is an input, with escapes as in Python where its name ends in `.esc`.
Hypothesis changes it. `make soak` does so for longer.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.decoders import CHECKS

CORPUS = Path(__file__).parent / "corpus"
EXAMPLES, SOAK_EXAMPLES = 120, 20_000
# What has broken decoders before: ends of lines, halves of things, depth, numbers out of range, signs that hide.
PIECES = [
    b"\r", b"\n", b"\r\n\r\n", b"\0", b"\x1b[31m", b"\xc2\x9b", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf",
    b"\xe2\x80\xae", b"\xf3\xa0\x81\x81", b"\xf0\x9f\xa4\x96", b'"', b"\\", b"\\ud83d", b"\\u0000", b"{", b"}",
    b"[", b"]", b",", b":", b"null", b"true", b"-0", b"1e999", b"9" * 400, b"9" * 5000, b"0.1", b"[" * 40,
    b'{"a":' * 40, b"data:", b"id:", b"%00", b"%ff", b"&", b"=", b"+", b"@", b"(@a@b): ", b".", b"*",
]  # fmt: skip
# In place of a value in JSON.
VALUES: list[Any] = [
    None, True, 0, -1, 2**31, 2**53, 2**63, 2**64, 10**400, 1.5, 1e308, "", " ", "x" * 600, "\ud83d", "\0\r\n", "a@b",
    "-", "0" * 32, [], {}, [[[]]], {"a": {"b": [None]}},
]  # fmt: skip
GROWTH, MARGIN = 8, 3  # eight times the length in at most three times eight the time; in squares it would be 64
LEAST_SECONDS = 0.003  # below it one measures the machine


def inputs(name: str) -> list[bytes]:
    """The corpus of a decoder."""
    found = [(path.suffix, path.read_bytes()) for path in sorted((CORPUS / name).iterdir())]
    return [data.decode("unicode_escape").encode("latin-1") if end == ".esc" else data for end, data in found]


def test_every_decoder_has_a_corpus() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(CHECKS)
    assert all(len(inputs(name)) >= 4 for name in CHECKS)


@st.composite
def changed(draw: st.DrawFn, name: str) -> bytes:
    """An input of the corpus, with other values in it; or cut, repeated, overwritten and mixed with another."""
    known = inputs(name)
    data = draw(st.sampled_from(known))
    if draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            data = _with_another_value(draw, data)
        return data
    for _ in range(draw(st.integers(0, 6))):
        at, to = sorted(draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data)))))
        match draw(st.sampled_from(["put", "put", "cut", "double", "over", "mix"])):
            case "put":
                data = data[:at] + draw(st.sampled_from(PIECES) | st.binary(max_size=4)) + data[at:]
            case "cut":
                data = data[:at] + data[to:]
            case "double":
                data = data[:to] + data[at:to] * draw(st.integers(1, 4)) + data[to:]
            case "over":
                data = data[:at] + draw(st.sampled_from(PIECES)) + data[to:]
            case _:
                data = data[:at] + draw(st.sampled_from(known))
    return data[:100_000]


def _with_another_value(draw: st.DrawFn, data: bytes) -> bytes:
    """JSON with one value in it replaced or left out; what is none, as it is."""
    try:
        whole = [json.loads(data)]
    except ValueError:
        return data
    places: list[tuple[Any, Any]] = [(whole, 0)]
    for parent, key in places:
        inner = parent[key]
        if isinstance(inner, dict | list):
            places += [(inner, each) for each in (list(inner) if isinstance(inner, dict) else range(len(inner)))]
    parent, key = draw(st.sampled_from(places))
    if parent is not whole and draw(st.integers(0, 4)) == 0:
        del parent[key]
    else:
        parent[key] = draw(st.sampled_from(VALUES))
    return json.dumps(whole[0], ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("name", CHECKS)
def test_the_corpus_is_taken_or_refused(name: str) -> None:
    for data in inputs(name):
        CHECKS[name](data)


@pytest.mark.parametrize("name", CHECKS)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_so_is_what_becomes_of_it(name: str, data: st.DataObject) -> None:
    CHECKS[name](data.draw(changed(name)))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CHECKS)
@settings(max_examples=SOAK_EXAMPLES, derandomize=False)
@given(data=st.data())
def test_so_is_very_much_of_it(name: str, data: st.DataObject) -> None:
    CHECKS[name](data.draw(changed(name)))


@pytest.mark.parametrize("name", CHECKS)
def test_it_takes_time_in_proportion(name: str) -> None:
    """Each input over and over, and each of the hard pieces."""
    for data in [*inputs(name), *PIECES]:
        short = (data * (8192 // len(data) + 1))[:8192]
        long = (data * (GROWTH * 8192 // len(data) + 1))[: GROWTH * 8192]
        once, grown = _seconds(name, short), _seconds(name, long)
        assert grown <= max(once, LEAST_SECONDS) * GROWTH * MARGIN, (data[:80], once, grown)


def _seconds(name: str, data: bytes) -> float:
    """Of the processor, the least of three."""
    found = []
    for _ in range(3):
        begun = time.process_time()
        CHECKS[name](data)
        found.append(time.process_time() - begun)
    return min(found)
