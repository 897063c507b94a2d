"""A message's text and body, from the command line, stdin or a file, exactly as they were.

What must stay true: nothing is stripped, converted or cut. What is no UTF-8 is refused, with the place where it is not.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace

from angelia.cli.exits import UsageError
from angelia.client.calls import ABSENT

# Far above what any hub takes: its own limit is the one that is told; this only keeps a wrong file out of memory.
MOST_BYTES = 64 * 1024 * 1024


def add_arguments(made: ArgumentParser) -> None:
    """The arguments that ``read`` reads."""
    made.add_argument("text", nargs="?", type=str, metavar="TEXT", help="the text; - takes it from stdin")
    made.add_argument("--file", metavar="F", help="take the text from a file (- is stdin)")
    made.add_argument("--body", metavar="JSON", help="any JSON beside the text, or instead of it")


def read(given: Namespace) -> tuple[str | None, object]:
    """Text and body as they were given: None and ``ABSENT`` for what was not."""
    if given.text is not None and given.file is not None:
        raise UsageError("there is a TEXT and a --file: give one of them")
    body = _json(given.body) if given.body is not None else ABSENT
    if given.file is not None:
        return _text(_content(given.file), given.file if given.file != "-" else "stdin"), body
    if given.text == "-":
        return _text(_content("-"), "stdin"), body
    if given.text is None:
        if body is ABSENT:
            raise UsageError("there is nothing to send: give TEXT, - for stdin, --file F or --body JSON")
        return None, body
    # Bytes of the command line that are no UTF-8 come as lone surrogates.
    return _text(given.text.encode("utf-8", "surrogateescape"), "TEXT"), body


def _content(path: str) -> bytes:
    try:
        if path == "-" and sys.stdin is None:
            raise UsageError("stdin is closed")
        if path == "-":
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise UsageError(f"{path if path != '-' else 'stdin'} holds more than {MOST_BYTES} bytes")
    return content


def _text(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is no UTF-8: byte 0x{content[error.start]:02x} at {error.start}") from None


def _json(word: str) -> object:
    try:
        return json.loads(word, parse_constant=_refused, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--body is no JSON: {error}") from None


def _refused(word: str) -> object:
    raise ValueError(f"{word} is no number that JSON knows")


def _finite(word: str) -> float:
    number = float(word)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{word[:40]} is larger than any number that can be kept")
    return number
