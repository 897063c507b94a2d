"""OpenCode by its command line: ``opencode run`` for each turn, the text on its standard input.

What must stay true: exit code 0 alone is no answer: there is text, the last step is over, and no error was told. A
program that a signal ended is *lost*. Its lines of JSON are read as they come and only what counts of them is kept.
"""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.turns.adapters.opencode_answers import SESSION, failure, in_history, stalled, usage
from angelia.turns.adapters.port import Answered, Failed, Lost, Outcome, Tools, Turn, Usage
from angelia.turns.child import Running

ROUTE = "command line"
LINE_BYTES = 16 * 1024 * 1024  # one event; a tool's output stands in one, too
EXPORT_BYTES = 64 * 1024 * 1024  # a whole session
LINGER_SECONDS = 2.0  # from its last line to its end, or from its end to its last line
PATIENCE = 0.8  # of a turn's time, as in opencode_server
LOOK_SECONDS = 0.5  # from then on, between two looks at its log
_ANSWER_BYTES = Limits().reply_bytes
_LOGGED = re.compile(r'^.*level=ERROR.*message="stream error".*error\.error="(.*)"$', re.MULTILINE)


class Gone(Exception):
    """The session that was asked for is not there; nothing ran."""


@dataclass(slots=True)
class _Story:
    """What its lines told so far. ``texts``: of the last message; ``mark``: its log, as it was at the last line."""

    session: str | None = None
    message: str | None = None
    texts: list[str] = field(default_factory=list)
    size: int = 0
    error: object = None
    ended: bool = False
    too_long: bool = False
    mark: str = ""
    spent: Usage = field(default_factory=Usage)

    def hear(self, line: bytes) -> None:
        """Take one line; what is no event of OpenCode's is passed over."""
        try:
            event: Any = msgspec.json.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            return
        if not isinstance(event, dict):
            return
        session, part = event.get("sessionID"), event.get("part")
        if self.session is None and isinstance(session, str) and SESSION.fullmatch(session):
            self.session = session
        part = part if isinstance(part, dict) else {}
        if part.get("messageID") not in (None, self.message):
            self.message, self.texts, self.size, self.ended = part["messageID"], [], 0, False
        if event.get("type") == "text":
            text = str(part.get("text") or "")
            self.texts.append(text)
            self.size += len(text.encode("utf-8", "replace"))
            self.too_long = self.too_long or self.size > _ANSWER_BYTES
        elif event.get("type") == "step_finish":
            self.ended = part.get("reason") not in (None, "tool-calls", "unknown")
            self.spent = usage(part)
        elif event.get("type") == "error" and self.error is None:
            self.error = event.get("error") or {}  # later ones are what came of it


class CommandLine:
    """One agent. ``program``: its whole path."""

    def __init__(self, tools: Tools, program: str, *, folder: str, model: str | None, auto: bool) -> None:
        """``auto``: what it asks leave for is granted."""
        self._tools, self._program, self._folder = tools, program, folder
        self._options = (["--model", model] if model else []) + (["--auto"] if auto else [])

    async def run(self, turn: Turn) -> Outcome:
        """Run one turn; see ``Adapter``."""
        session = turn.session if turn.session and SESSION.fullmatch(turn.session) else None
        try:
            return await self._once(turn, session, ROUTE)
        except Gone:
            return await self._once(turn, None, f"{ROUTE}, a new session (the old one is gone)")

    async def recall(self, turn: Turn) -> Outcome | None:
        """Read what the session says of it; nothing runs any more, since the hub ends what it starts."""
        if turn.session is None or not SESSION.fullmatch(turn.session):
            return None
        try:
            ended = await self._tools.children.run(
                [self._program, "export", turn.session],
                environment=self._tools.environment,
                folder=self._folder,
                limit_bytes=EXPORT_BYTES,
            )
            session = msgspec.json.decode(ended.stdout)
        except (OSError, msgspec.MsgspecError, RecursionError):
            return None
        messages = session.get("messages") if isinstance(session, dict) else None
        return in_history(messages, turn, f"{ROUTE}, from its history")[1] if isinstance(messages, list) else None

    async def close(self) -> None:
        """Nothing is warm."""

    def argv(self, session: str | None) -> Sequence[str]:
        """The fixed argument list; ``session`` has passed ``SESSION``. Its errors are logged, for ``stalled``."""
        start = [self._program, "run", "--format", "json", "--print-logs", "--log-level", "ERROR"]
        return [*start, *self._options, *(["--session", session] if session else [])]

    async def _once(self, turn: Turn, session: str | None, route: str) -> Outcome:
        try:
            child = await self._tools.children.start(
                self.argv(session),
                environment={**self._tools.environment, **turn.environment},
                folder=self._folder,
                line_bytes=LINE_BYTES,
                note=turn.key,
            )
        except OSError as error:
            text = f"OpenCode could not be started: {error.strerror}."
            return Failed(text, route, reason=Reason.MISSING_CONFIG, began=False)
        story = _Story()
        try:
            code, stuck = await _talk(child, turn, story)
        finally:
            await child.end()
        return _outcome(story, code, stuck, child.last_words(), route)


async def _talk(child: Running, turn: Turn, story: _Story) -> tuple[int | None, str | None]:
    """Give it the text and hear it out. Out: its exit code, None where it did not end by itself; and what its model's
    provider said last, where it went on asking in vain."""
    async with asyncio.TaskGroup() as tasks:
        talk = [
            tasks.create_task(_write(child, turn.prompt)),
            tasks.create_task(_read(child, turn, story)),
        ]
        ended = tasks.create_task(child.wait())
        first, _ = await asyncio.wait(
            {talk[1], ended}, timeout=turn.seconds * PATIENCE, return_when=asyncio.FIRST_COMPLETED
        )
        stuck = None
        while not first and not story.ended:  # where it has: it said all, and does not end
            stuck = _in_vain(child.last_words(), story)
            if stuck is not None:
                break
            first, _ = await asyncio.wait({talk[1], ended}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if first:
            await asyncio.wait({talk[1], ended}, timeout=LINGER_SECONDS)
        code = ended.result() if ended.done() else None
        for task in (*talk, ended):
            task.cancel()
    return code, stuck


async def _write(child: Running, text: str) -> None:
    with suppress(OSError):  # it ended before it had read all: its end says why
        child.stdin.write(text.encode("utf-8", "replace"))
        await child.stdin.drain()
        child.stdin.close()


async def _read(child: Running, turn: Turn, story: _Story) -> None:
    """Until its last line, or one too many."""
    try:
        while not story.too_long and (line := await child.stdout.readline()):
            new = story.session is None
            story.hear(line)
            story.mark = child.last_words()
            if new and story.session is not None:
                turn.begun(story.session)
    except ValueError:  # a line that is longer than LINE_BYTES
        story.too_long = True
    except OSError:
        return


def _in_vain(log: str, story: _Story) -> str | None:
    """The last error of its model that it logged since it last told something: it tries that again by itself."""
    found = list(_LOGGED.finditer(log))
    return found[-1][1] if found and found[-1][0] not in story.mark else None


def _outcome(story: _Story, code: int | None, stuck: str | None, log: str, route: str) -> Outcome:
    if story.too_long:
        return Failed("OpenCode's answer is too long.", route, reason=Reason.TOO_LARGE)
    if story.error is not None:
        return failure(story.error, route)
    text = "\n\n".join(part for part in story.texts if part)
    if stuck is not None:
        return stalled(stuck, route)
    if code == 0 or (code is None and story.ended):
        if text and story.ended:
            return Answered(text, route, story.spent)
        return Failed("OpenCode ended its turn without a word.", route, reason=Reason.UNKNOWN)
    if code is None or code < 0:
        return Lost("OpenCode was ended from outside in the middle of its turn.", route)
    if "Session not found" in log:
        raise Gone
    return Failed(f"OpenCode ended with exit code {code}.", route, output=log)
