"""What a terminal gets to see. `visible` is the only way for a peer's text to reach one.

What must stay true:

- Of what `visible` returns, a terminal acts on nothing but newline and tab, and a person sees every character: what is
  hidden, turns the direction of writing or is no character at all stands there as an escape such as `\\x1b`, `\\u202e`.
- The same on every version of Python: the characters are listed here. A test compares the list with Unicode's.
- `visible` twice is `visible` once, so `table` and `colour`, which call it, take text in either state.

An escape cannot be told from the same letters in the text: this is for reading, not for storing. Every command imports
this file, so it imports next to nothing. What to say, and whether to colour, is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from unicodedata import combining, east_asian_width

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` would take longer to load than all the rest
    from typing import Literal, TextIO

    Colour = Literal["red", "green", "yellow", "blue", "grey", "bold"]
else:
    Colour = str

_SGR: dict[Colour, int] = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "grey": 90, "bold": 1}
_LEAST = 6  # letters by which a name may still be known
NAME = 36  # letters of a handle in a table; as much as leaves room for the rest
_PLAIN = {ord("\n"): " ", ord("\t"): " "}
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}

# Inside a class of a regular expression. Controls except newline and tab; then, in Unicode's order, format characters
# (category Cf), the rest that Unicode calls default ignorable (drawn as nothing: fillers, selectors, code points
# reserved for such), line and paragraph separator, lone surrogates, and code points that are no characters.
_HIDDEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff" + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(17))
)
# Where a hidden character has a sense, and shows it: in scripts whose letters join (Arabic to Myanmar, Khmer,
# Mongolian), and among pictures.
_JOINING = r"\u0620-\u06dc\u06de-\u06ff\u0710-\u088f\u08a0-\u08e1\u08e3-\u109f\u1780-\u17b3\u17b6-\u180a\u1820-\u18aa"
_PICTURE = r"\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"


def visible(text: str, *, multiline: bool = True) -> str:
    """Make a text safe and honest to print.

    In: any text, of whatever origin. Out: the same with everything a reader would not see, or a terminal would obey,
    as an escape. Newline and tab stay, and CRLF becomes a newline, unless `multiline` is False, as it should be
    wherever a text shares its line with others: names, titles, rows.
    """
    if text.isascii() and (text.isprintable() or (multiline and text.translate(_PLAIN).isprintable())):
        return text
    if multiline and "\r\n" in text:
        text = text.replace("\r\n", "\n")
    return _finder(multiline).sub(_escaped, text)


def colour(text: str, name: Colour, stream: TextIO, *, enabled: bool) -> str:
    """Colour a text, made visible, for a stream: only when `enabled` (the user's wish) and the stream is a terminal."""
    text = visible(text)
    return f"\x1b[{_SGR[name]}m{text}\x1b[0m" if enabled and stream.isatty() else text


def table(rows: Iterable[Sequence[str]], headers: Sequence[str]) -> str:
    """Lay out rows in aligned columns, a line each, under their headers; cells are made visible, each on one line.

    Every row has as many cells as there are headers, or ValueError is raised. The last line has no newline.
    """
    lines = [[visible(cell, multiline=False) for cell in row] for row in [headers, *rows]]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def within(rows: Sequence[Sequence[str]], headers: Sequence[str], most: int, names: Sequence[int]) -> list[list[str]]:
    """Rows whose table is at most ``most`` wide: the widest of the columns ``names`` are shortened."""
    lines = [[visible(cell, multiline=False) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(headers, *lines, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - most
    for _ in range(excess):
        widest = max(names, key=lambda name: widths[name])
        widths[widest] = max(widths[widest] - 1, _LEAST)
    return [
        [fitted(cell, widths[place]) if place in names else cell for place, cell in enumerate(line)] for line in lines
    ]


def fitted(text: str, most: int) -> str:
    """A text on one line of at most so many letters, without its middle where it is longer."""
    text = visible(text, multiline=False)
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 1]}…{text[-end:]}"


def ago(ms: int) -> str:
    """Say in a word how long ago something was. In: its age in milliseconds; a negative one is a clock that differs."""
    seconds = ms // 1000
    if seconds < 1:
        return "now"
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 48 * 3600 else f"{seconds // 86400} d"


@cache
def _finder(multiline: bool) -> re.Pattern[str]:
    """Finds what has to be escaped. Made when first needed: it takes 2 ms, and plain text does without."""
    # The class comes first, so that the search runs through plain text at full speed; then what may have ended with it.
    hidden = _HIDDEN if multiline else _HIDDEN + r"\n\t"
    sensible = [
        f"[{_JOINING}][\u200c\u200d](?=[{_JOINING}])",
        f"[{_PICTURE}]\u200d(?=[{_PICTURE}])",
        f"[{_PICTURE}]\ufe0f\u200d(?=[{_PICTURE}])",
        f"[{_PICTURE}][\ufe0e\ufe0f]",
        "[0-9#*]\ufe0f(?=\u20e3)",
    ]
    return re.compile(f"[{hidden}]" + "".join(f"(?<!{ending})" for ending in sensible))


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"


def _width(text: str) -> int:
    """How many cells of a terminal a visible text takes, near enough to align columns."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(c) or c in "\u200c\u200d\ufe0e\ufe0f" else 1 + (east_asian_width(c) in "WF") for c in text
    )
