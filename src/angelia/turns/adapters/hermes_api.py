"""Hermes' own API server: one turn over HTTP, and what its sessions remember. Known from Hermes 0.19 and its source.

What must stay true:

- The turn is streamed, because Hermes interrupts a streamed one when its caller goes away and lets any other run on.
  It notices at its next word or keep-alive, 30 s later at most.
- Status 200 says nothing. A turn ended well when the stream says ``finish_reason`` ``stop``, holds no ``error`` and no
  ``hermes`` part, and its text is not one of Hermes' own error texts at its start with no token that a model wrote.
- A stream that breaks off is a turn that nobody knows of; a connection that was refused is none.
- The key rides in a header, texts in a body, names in quoted path parts.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from angelia.model.failure import Reason
from angelia.protocol.foreign_json import Malformed, read, write
from angelia.protocol.sse import EventTooLarge, Parser
from angelia.turns.adapters.hermes_http import Broken, Server, Unreachable, asked, get
from angelia.turns.adapters.port import Answered, Failed, Lost, Outcome, Turn, Usage

ROUTE = "API server"
ANSWER_CHARS = 16 * 1024 * 1024  # far above what a hub stores as one answer
TEXT_CHARS = 65_536  # of one message; Hermes drops what is longer and says nothing
NOTICE_SECONDS = 45.0  # Hermes writes a keep-alive each 30 s, and the model's call has to return
LOOK_SECONDS = 1.0
# What Hermes says in a model's place when the provider did not answer. Only at the start, and only where no model
# wrote a token: an agent may well talk about such texts.
ERROR_TEXT = re.compile(
    r"(?:⚠️ ?)?(?:HTTP [45]\d\d: |API call failed after \d+ retries|Context length exceeded \(|Error: HTTP [45]\d\d)"
)
# What a session is called: it came in a body, and goes out in a header.
_SESSION = re.compile(r"[!-~]{1,256}", re.ASCII)
_UNTOLD = (Unreachable, Broken, Malformed, PermissionError, TimeoutError)
_CUT = re.compile(r"(?:^|: )connection error\.?$", re.IGNORECASE)


@dataclass(slots=True)
class _Said:
    """A streamed turn, as far as it has come."""

    text: list[str] = field(default_factory=list)
    chars: int = 0
    finish: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    done: bool = False

    def take(self, name: str, data: str) -> None:
        if name == "hermes.tool.progress":
            self.text.clear()  # what was said before a tool ran is no part of the answer
            return
        if data == "[DONE]":
            self.done = True
            return
        chunk = _mapping(read(data.encode()))
        for choice in _list(chunk.get("choices")):
            choice = _mapping(choice)
            if isinstance(content := _mapping(choice.get("delta")).get("content"), str):
                self.text.append(content)
                self.chars += len(content)
            if isinstance(finish := choice.get("finish_reason"), str):
                self.finish = finish
        self.usage = _mapping(chunk.get("usage")) or self.usage
        told = _mapping(chunk.get("error")) or _mapping(chunk.get("hermes"))
        if told:
            self.error = str(told.get("message") or told.get("error") or "It did not finish.")


async def run(server: Server, turn: Turn) -> Outcome:
    """Run ``turn`` in the session ``turn.session``, or a new one named ``turn.conversation``."""
    if len(turn.stamped) > TEXT_CHARS:
        text = f"Hermes' API server takes {TEXT_CHARS} characters; the text has {len(turn.stamped)}."
        return Failed(text, ROUTE, Reason.TOO_LARGE, began=False)
    session = turn.session or turn.conversation
    body = write({"model": "hermes-agent", "stream": True, "messages": [{"role": "user", "content": turn.stamped}]})
    said = _Said()
    try:
        async with asked(server, "POST", "/v1/chat/completions", body, {"X-Hermes-Session-Id": session}) as answer:
            if answer.status != 200:
                return _refused(answer.status, answer.header("retry-after"), await answer.whole())
            turn.begun(answer.header("x-hermes-session-id") or session)
            parser = Parser()
            async for piece in answer.pieces():
                for event in parser.feed(piece):
                    said.take(event.event, event.data)
                if said.chars > ANSWER_CHARS:
                    return Failed("Hermes' answer is too long to be kept.", ROUTE, Reason.TOO_LARGE)
    except Unreachable as error:
        return Failed(f"Hermes' API server is not there: {error}.", ROUTE, Reason.RUNTIME_OFFLINE, began=False)
    except (Broken, Malformed, EventTooLarge) as error:
        if not said.done:
            return Lost(f"The connection to Hermes was lost while its turn ran: {error}.", ROUTE)
    return await _outcome(server, session, turn, said)


async def _outcome(server: Server, session: str, turn: Turn, said: _Said) -> Outcome:
    """What a stream that was read to its end amounts to."""
    text = "".join(said.text).strip()
    if said.finish is None:
        return Lost("Hermes' stream ended before its turn did.", ROUTE)
    unwritten = not said.usage.get("completion_tokens")
    if said.finish != "stop" or said.error is not None or (unwritten and ERROR_TEXT.match(text)):
        output = said.error or text
        cut = said.finish == "length"
        return Failed("Hermes' answer was cut off." if cut else "Hermes' turn failed.", ROUTE, typed(output), output)
    moved, last = await _afterwards(server, session, wants_text=not text)
    if moved:
        turn.begun(moved)
    usage = Usage(_count(said.usage.get("prompt_tokens")), _count(said.usage.get("completion_tokens")))
    return Answered(text or last, ROUTE, usage)


async def _afterwards(server: Server, session: str, *, wants_text: bool) -> tuple[str | None, str]:
    """The session that a compacted one goes on in, if it was; and the last answer, if nothing of it was streamed."""
    try:
        about = _mapping(_mapping(await get(server, f"/api/sessions/{quote(session, safe='')}")).get("session"))
        if not wants_text and about.get("end_reason") != "compression":
            return None, ""
        moved, rows = await history(server, session)
    except _UNTOLD:
        return None, ""  # the turn is over and well: what this would have told is a comfort
    answer = _text(rows[-1]) if rows and rows[-1].get("role") == "assistant" else ""
    return (moved if moved != session and _SESSION.fullmatch(moved) else None), answer


async def recall(server: Server, turn: Turn) -> Outcome | None:
    """What became of ``turn``: its text is looked for in the session, not before the message was written.

    Hermes keeps no key with a text, so where it stands there twice nobody can say. A turn whose caller went away is
    interrupted, and one that a dying Hermes ran is not taken up again: an answer that is not there within the time
    that Hermes needs to notice does not come any more.
    """
    ends = asyncio.get_running_loop().time() + min(turn.seconds, NOTICE_SECONDS)
    while True:
        try:
            _, rows = await history(server, turn.session or turn.conversation)
        except _UNTOLD:
            rows = []
        ours = [at for at, row in enumerate(rows) if _is_ours(row, turn)]
        answer = _answer(rows[ours[0] + 1 :]) if len(ours) == 1 else None
        if answer is not None:
            return Answered(answer, f"{ROUTE}, its history")
        if len(ours) > 1 or asyncio.get_running_loop().time() >= ends:
            return None
        await asyncio.sleep(LOOK_SECONDS)


async def history(server: Server, session: str) -> tuple[str, list[Mapping[str, Any]]]:
    """The session as it goes on, if it was compacted, and its rows. Raises as ``get``."""
    found = _mapping(await get(server, f"/api/sessions/{quote(session, safe='')}/messages"))
    rows = [_mapping(row) for row in _list(found.get("data"))]
    return str(found.get("session_id") or session), rows


async def version(server: Server) -> str | None:
    """What the server says that it is; None where nobody serves. Raises ``PermissionError`` for a refused key."""
    try:
        about = _mapping(await get(server, "/health"))
        await get(server, "/v1/models")
    except (Unreachable, Broken, Malformed, TimeoutError):
        return None
    return str(about.get("version") or "unknown")


def typed(output: str) -> Reason | None:
    """The reason where Hermes' words are its own; None where the runner's classifier reads them as well."""
    return Reason.PROVIDER_SERVER_ERROR if _CUT.search(output.strip()) else None


def _is_ours(row: Mapping[str, Any], turn: Turn) -> bool:
    at = row.get("timestamp")
    recent = isinstance(at, int | float) and at * 1000 >= turn.message.created_at
    return row.get("role") == "user" and recent and _text(row) == turn.stamped


def _answer(rows: list[Mapping[str, Any]]) -> str | None:
    """The last thing said before the next user's text, if the model had finished saying it."""
    text = None
    for row in rows:
        if row.get("role") == "user":
            break
        if row.get("role") == "assistant":
            text = _text(row) if row.get("finish_reason") == "stop" else None
    return text


def _refused(status: int, retry_after: str, body: bytes) -> Failed:
    """The server did not run it."""
    try:
        said = str(_mapping(_mapping(read(body)).get("error")).get("message") or "")
    except Malformed:
        said = ""
    text = f"Hermes' API server refused it with status {status}."
    wait = float(retry_after) if retry_after.isdigit() else None
    if status in (401, 403):
        return Failed(f"{text} Its key is not the one given.", ROUTE, Reason.MISSING_CONFIG, said, False)
    if status == 413:
        return Failed(text, ROUTE, Reason.TOO_LARGE, said, False)
    if status == 429:  # it has its own bound of turns at once
        return Failed(text, ROUTE, Reason.TARGET_BUSY, said, False, wait)
    if status == 503:
        return Failed(text, ROUTE, Reason.RUNTIME_OFFLINE, said, False, wait)
    if status == 404:
        return Failed(f"{text} It serves no such profile.", ROUTE, Reason.MISSING_CONFIG, said, False)
    return Failed(text, ROUTE, typed(said), said, began=status >= 500)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(row: Mapping[str, Any]) -> str:
    content = row.get("content")
    if isinstance(content, list):
        content = "\n".join(str(_mapping(part).get("text") or "") for part in content)
    return content if isinstance(content, str) else ""
