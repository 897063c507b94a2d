"""What commands print, and how: answers on stdout, everything else on stderr; JSON for programs, words for people.

What must stay true: what a peer or a hub said reaches a terminal only through ``show.visible``. JSON is written in
ASCII alone, so that it holds no sign that a terminal obeys and no line end within an object.
"""

from __future__ import annotations

import json
import sys

from angelia.cli import exits
from angelia.cli.show import visible
from angelia.client.errors import AskFailed, ClientError, HubError


def line(text: str) -> None:
    """One line of an answer."""
    print(visible(text, multiline=False))


def lines(text: str) -> None:
    """An answer of several lines, such as a table."""
    print(visible(text))


def text(words: str) -> None:
    """A peer's text: to a terminal made visible, to a file or a pipe as it is; with a newline at its end."""
    if sys.stdout.isatty():
        print(visible(words))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(words.encode("utf-8", "backslashreplace") + (b"" if words.endswith("\n") else b"\n"))
    sys.stdout.buffer.flush()


def data(answer: object) -> None:
    """One JSON value on a line of its own."""
    print(json.dumps(answer, ensure_ascii=True))


def aside(words: str) -> None:
    """Something for people, beside the answer."""
    print(f"angelia: {visible(words, multiline=False)}", file=sys.stderr, flush=True)


def trouble(error: Exception, *, as_json: bool) -> None:
    """Why a command did not do what it should; a token that somebody typed into a wrong place is not repeated."""
    from angelia.model.tokens import masked  # noqa: PLC0415 - for those commands alone that fail

    if as_json:
        described = _described(error)
        described["detail"] = masked(str(described["detail"]))
        print(json.dumps({"error": described}, ensure_ascii=True), file=sys.stderr)
        return
    words = str(error) or type(error).__name__
    if isinstance(error, HubError):
        words = f"{error.detail} ({error.code})"
    elif isinstance(error, AskFailed):
        words = f"{error.text or 'it failed'} ({error.reason})"
    aside(masked(words))
    message_id = getattr(error, "message_id", "")
    if message_id:
        aside(f"what became of it: angelia message {message_id}")


def fault(code: str, words: str, *, as_json: bool) -> None:
    """The same, where there is no error but a sentence."""
    if as_json:
        print(json.dumps({"error": {"code": code, "detail": words}}, ensure_ascii=True), file=sys.stderr)
    else:
        aside(words)


def _described(error: Exception) -> dict[str, object]:
    described: dict[str, object] = {"code": exits.word_of(error), "detail": str(error) or type(error).__name__}
    if isinstance(error, HubError):
        described = {"status": error.status, "code": error.code, "title": error.title, "detail": error.detail}
        described.update({key: value for key, value in error.extra.items() if key not in described})
    if isinstance(error, ClientError) and error.message_id:
        described["id"] = error.message_id
    return described
