"""What a person looks for: words, and phrases in quotes.

What must stay true: every text is a query. Nothing in it is an operator or an error: ``AND``, ``-``, ``(`` and ``:``
are signs like any others, a quote without its other half is a space. Two things are read: what stands between quotes
belongs together, and a word of three letters or more that ends with ``*`` is the beginning of a word. What a word is
made of, and that case and accents do not count, is the store's business.
"""

import re
from dataclasses import dataclass

PREFIX_LETTERS = 3  # shorter beginnings are those of half the words there are

_PIECE = re.compile(r'"([^"]*)"|([^\s"]+)')


@dataclass(frozen=True, slots=True)
class Phrase:
    """What must stand together, in this order; ``begins``: its last word may go on. It holds no quotes and no NUL."""

    text: str
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """All phrases must be there. ``sender`` and ``recipient`` (lower case) narrow it down; None is anybody."""

    phrases: tuple[Phrase, ...] = ()
    sender: str | None = None
    recipient: str | None = None


def read_phrases(text: str) -> tuple[Phrase, ...]:
    """The phrases of what a person typed. A repeat is left out: it would find nothing else."""
    text = text.replace("\0", " ").encode("utf-8", "replace").decode()  # no lone surrogate gets to a database
    found = [_phrase(quoted, plain) for quoted, plain in _PIECE.findall(text)]
    return tuple(dict.fromkeys(phrase for phrase in found if phrase.text))


def _phrase(quoted: str, plain: str) -> Phrase:
    if quoted:
        return Phrase(quoted.strip())
    stem = plain.rstrip("*")
    letters = sum(sign.isalnum() for sign in stem)
    return Phrase(stem, begins=stem != plain and letters >= PREFIX_LETTERS and stem[-1].isalnum())
