"""What a person typed, as phrases: every text is a query."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from angelia.model.query import Phrase, read_phrases


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("", []),
        ("  \n\t ", []),
        ("green build", [Phrase("green"), Phrase("build")]),
        ("green  green", [Phrase("green")]),
        ('the "green build" now', [Phrase("the"), Phrase("green build"), Phrase("now")]),
        ('"green build', [Phrase("green"), Phrase("build")]),
        ('5" disk', [Phrase("5"), Phrase("disk")]),
        ('""', []),
        ("a AND -b (c) NOT:d", [Phrase("a"), Phrase("AND"), Phrase("-b"), Phrase("(c)"), Phrase("NOT:d")]),
        ("deploy*", [Phrase("deploy", begins=True)]),
        ("deploy**", [Phrase("deploy", begins=True)]),
        ("de*", [Phrase("de")]),
        ("dé.pl*", [Phrase("dé.pl", begins=True)]),
        ("...*", [Phrase("...")]),
        ("dep-*", [Phrase("dep-")]),
        ('"deploy*"', [Phrase("deploy*")]),
        ("*", []),
        ("a\0b", [Phrase("a"), Phrase("b")]),
        ("\ud800x", [Phrase("?x")]),
    ],
)
def test_phrases(text: str, phrases: list[Phrase]) -> None:
    assert list(read_phrases(text)) == phrases


@given(some.text())
def test_every_text_is_a_query(text: str) -> None:
    for phrase in read_phrases(text):
        assert phrase.text.strip()
        assert '"' not in phrase.text
        assert "\0" not in phrase.text
        phrase.text.encode()
