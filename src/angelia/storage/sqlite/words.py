"""The words that a message is found by: its text, the strings of its body, who sent it and who got it.

What must stay true: what is looked for is cut into words by the same rule as what was written. A message gives the same
entries each time, part for part, whatever bits of it flipped on the disk.
"""

import re
from collections.abc import Iterator
from typing import Any

import apsw
import msgspec

from angelia.storage.sqlite.connect import NO_TEXT, Desk, in_a_line
from angelia.storage.sqlite.queries import SQL
from angelia.storage.sqlite.rows import Row

PARTS = 512  # rowids that a message has in the index: for 8 million letters, more than any message holds by default
PART_LETTERS = 16_384  # a millisecond of work
OVERLAP_LETTERS = 1_024  # words that stand so near to one another are found together, wherever the text is cut
NAMED = 100  # recipients that the index knows one by one; a message to more is looked at itself

# Signs of scripts without spaces between words, and pictures: each is a word.
_ALONE = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2190-\u2bff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U0001f000-\U0001faff\U00020000-\U0003ffff])"
)
_MAILBOXES = SQL["mailboxes_of"]
_json = msgspec.json.Decoder().decode


def spread(text: str) -> str:
    """The text as it is given to the index, or looked for in it."""
    return text if text.isascii() else _ALONE.sub(r" \1 ", text)


def sender_word(name: str) -> str:
    """The word that stands for a sender."""
    return "xf" + name.encode().hex()


def recipient_word(name: str) -> str:
    """The word that stands for a recipient."""
    return "xt" + name.encode().hex()


MANY_WORD = "xmany"  # a message with more recipients than are named


class Unread(Exception):
    """It is messages or deliveries that cannot be read."""


def entries(desk: Desk, row: Row) -> Iterator[tuple[int, str, str]]:
    """The rows of the index for one message."""
    number, sender, recipient, text, body = row
    boxes = _mailboxes(desk, number)
    names = {recipient_word(box) for box in boxes} if len(boxes) <= NAMED else {MANY_WORD}
    names.add(recipient_word(_lower(recipient)))
    who = " ".join([sender_word(_lower(sender)), *sorted(names)])
    whole = spread("\n".join([(text or b"").decode("utf-8", "replace"), *_strings_of(body)]))
    starts = range(0, max(len(whole) - OVERLAP_LETTERS, 1), PART_LETTERS - OVERLAP_LETTERS)
    for part, start in enumerate(starts[:PARTS]):
        yield number * PARTS + part, whole[start : start + PART_LETTERS], who


def _mailboxes(desk: Desk, number: int) -> list[str]:
    try:
        return [box for (box,) in desk.run(_MAILBOXES, (number, NAMED + 1))]
    except apsw.CorruptError as error:
        if str(error) != NO_TEXT:
            raise Unread(in_a_line(error)) from error
        return []  # it is set aside soon, and then this is looked at again


def _lower(name: bytes) -> str:
    """A name, of which bits may have flipped on the disk."""
    return name.decode("utf-8", "replace").lower()


def _strings_of(body: bytes | None) -> Iterator[str]:
    """The strings of a body; none where it is no JSON any more."""
    try:
        return _strings(_json(body)) if body else iter(())
    except msgspec.MsgspecError:
        return iter(())


def _strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, but the names of members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
