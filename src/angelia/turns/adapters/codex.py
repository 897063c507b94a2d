"""Codex by its command line: a process for each turn, one thread of its own for each conversation.

What must stay true:

- Answered only by ``turn.completed`` and something that the agent said; items of type ``error`` may be warnings.
- A thread belongs to one writer. Where it is open elsewhere, nothing ran, and the text says so; no new one is begun.
- A thread that is gone is begun anew once, and the route says so. Codex takes a name that it does not know for a wish
  for a new thread, and says nothing: so a name that is no thread's id is never asked for.
"""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from angelia.model.failure import Reason
from angelia.turns.adapters import codex_rollout, program
from angelia.turns.adapters.json_output import Event, Printed, at, listen, mark
from angelia.turns.adapters.port import Answered, Failed, Found, Kind, Lost, Options, Outcome, Tools, Turn, Usage
from angelia.turns.adapters.statuses import is_failure, reason_of, words

ROUTE = "command line"
NEW_THREAD = f"{ROUTE}, in a new conversation: Codex does not have the one before any more"
_FIXED = ("exec", "--json", "--skip-git-repo-check")
_NEEDED = {("exec", "--help"): ("--json", "--skip-git-repo-check", "resume"), ("exec", "resume", "--help"): ("stdin",)}
# What a person's own arguments may not hold: it would take the turn away from us.
_OWN = (*_FIXED, "-", "resume", "fork", "--last", "--ephemeral", "--worktree", "--model", "-m", "--sandbox", "-s",
        "--output-schema", "--remote")  # fmt: skip
_THREAD = re.compile(r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}")

# Codex' own classes of errors, as its record of the thread has them; those with a status of HTTP are told by that …
_CLASSES = {
    "context_window_exceeded": Reason.CONTEXT_OVERFLOW,
    "usage_limit_exceeded": Reason.PROVIDER_QUOTA_LIMIT,
    "unauthorized": Reason.PROVIDER_AUTH_OR_ACCESS,
    "server_overloaded": Reason.PROVIDER_SERVER_ERROR,
    "internal_server_error": Reason.PROVIDER_SERVER_ERROR,
    "response_stream_connection_failed": Reason.PROVIDER_SERVER_ERROR,
    "response_stream_disconnected": Reason.PROVIDER_SERVER_ERROR,
    "http_connection_failed": Reason.PROVIDER_SERVER_ERROR,
    "response_too_many_failed_attempts": Reason.PROVIDER_SERVER_ERROR,
}
# … and its own words, for what it puts in the class `other`, or where it keeps no record.
_TEXTS = {
    "Missing environment variable": Reason.MISSING_CONFIG,
    "ran out of room in the model's context window": Reason.CONTEXT_OVERFLOW,
    "hit your usage limit": Reason.PROVIDER_QUOTA_LIMIT,
    "currently experiencing high demand": Reason.PROVIDER_SERVER_ERROR,
    "stream disconnected before completion": Reason.PROVIDER_SERVER_ERROR,
}


class CodexOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """``program``: None is ``codex`` in the hub's PATH. ``folder``: where it works; None is the home. ``sandbox``: what
    its commands may do (``read-only``, ``workspace-write`` …); None is what its own configuration says. ``arguments``:
    more of its own, such as ``["--profile", "bus"]``."""

    program: str | None = None
    folder: str | None = None
    model: str | None = None
    sandbox: str | None = None
    arguments: tuple[str, ...] = ()


@dataclass(slots=True)
class _Heard:
    """What was heard of a turn, event by event."""

    turn: Turn
    thread: str | None = None
    began: bool = False
    answer: str | None = None
    error: str | None = None
    completed: bool = False

    def see(self, event: Event) -> bool:
        kind = event.get("type")
        if kind == "thread.started":
            self._begin(event.get("thread_id"))
        elif kind == "turn.started":
            self.began = True
        elif kind == "item.completed" and at(event, "item", "type") == "agent_message":
            self.answer = str(at(event, "item", "text") or "")
        elif kind == "turn.failed":
            self.error = str(at(event, "error", "message") or "")
        elif kind == "turn.completed":
            self.completed = True
        return kind in ("turn.failed", "turn.completed")

    def _begin(self, thread: object) -> None:
        if isinstance(thread, str) and _THREAD.fullmatch(thread):
            self.thread = thread
            if thread != self.turn.session:
                self.turn.begun(thread)


@dataclass(slots=True)
class Codex:
    """One agent that is Codex. ``_last``: attempt and thread of the turn that this process began last."""

    options: CodexOptions
    tools: Tools
    _last: tuple[str, str | None] = field(default=("", None))

    async def run(self, turn: Turn) -> Outcome:
        """Run it; see ``Adapter``."""
        found = program.locate("codex", self.options.program, self.tools)
        if found is None:
            return program.not_found("Codex", ROUTE)
        thread = turn.session if turn.session and _THREAD.fullmatch(turn.session) else None
        route = ROUTE
        try:
            heard, printed = await self._hear(found, turn, thread)
            if thread and heard.thread is None and "no rollout found for thread" in printed.rest:
                route = NEW_THREAD
                heard, printed = await self._hear(found, turn, None)
        except OSError as error:
            return program.not_started("Codex", ROUTE, error)
        return await self._outcome(heard, printed, route)

    async def _hear(self, found: str, turn: Turn, thread: str | None) -> tuple[_Heard, Printed]:
        options = self.options
        sandbox = ("--sandbox", options.sandbox) if options.sandbox else ()
        model = ("--model", options.model) if options.model else ()
        resume = ("resume", thread) if thread else ()
        heard = _Heard(turn)
        printed = await listen(
            self.tools.children,
            [found, *_FIXED, *sandbox, *model, *options.arguments, *resume, "-"],
            stdin=f"{turn.prompt}\n{mark(turn)}\n".encode(),
            see=heard.see,
            environment={**self.tools.environment, **turn.environment},
            folder=options.folder or self.tools.home,
            note=turn.key,
        )
        self._last = (turn.key, heard.thread)
        return heard, printed

    async def _outcome(self, heard: _Heard, printed: Printed, route: str) -> Outcome:
        if not printed.told:
            return _ended_early(heard, printed, route)
        told = await self._told(heard.thread, heard.turn) or codex_rollout.Told()
        if not heard.completed:
            return _failed(heard.error or "", told.error_class, printed.rest, route)
        if not heard.answer:
            return Failed("Codex ended its turn without a word.", route, output=printed.rest)
        return Answered(heard.answer, route, _usage(told))

    async def _told(self, thread: str | None, turn: Turn) -> codex_rollout.Told | None:
        """What the thread's record says of a turn; None where there is none, or it has none of it."""
        with suppress(OSError):
            path = await self._record(thread)
            return await asyncio.to_thread(codex_rollout.told_of, path, mark(turn)) if path else None
        return None

    async def _record(self, thread: str | None) -> Path | None:
        if thread is None or not _THREAD.fullmatch(thread):
            return None
        environment = {"HOME": self.tools.home, **self.tools.environment}
        return await asyncio.to_thread(codex_rollout.find, environment, thread)

    async def recall(self, turn: Turn) -> Outcome | None:
        """Read the thread's record; what had begun and did not end there was cut off, and nobody can say more."""
        thread = self._last[1] if self._last[0] == turn.key else turn.session
        with suppress(OSError):
            path = await self._record(thread)
            if path is not None:
                return _recalled(await asyncio.to_thread(codex_rollout.told_of, path, mark(turn)))
        return None

    async def close(self) -> None:
        """Nothing is warm."""


def _ended_early(heard: _Heard, printed: Printed, route: str) -> Outcome:
    """It never said how its turn ended."""
    if printed.killed:
        return Lost("Codex was ended by something else in the middle of its turn.", route)
    if "already has an active writer" in printed.rest:
        text = "Its Codex thread is open somewhere else, which would have to be closed first; nothing ran."
        return Failed(text, route, Reason.TARGET_SESSION_LIVE, printed.rest, began=False)
    text = f"Codex ended with exit code {printed.code}, in the middle of its turn or before it."
    return Failed(text, route, output=printed.rest, began=heard.began)


def _failed(message: str, error_class: object, rest: str, route: str) -> Failed:
    """A failure by what Codex says of it, the surest first; what is left, its words tell."""
    name, status = _class(error_class)
    reason = next((reason for text, reason in _TEXTS.items() if text in message), None)
    said = message
    if is_failure(status):
        reason, said = reason or reason_of(status), words(status, message)
    else:
        reason = reason or _CLASSES.get(name)
    shown = f"HTTP {status}" if is_failure(status) else name or "no class given"
    return Failed(f"Codex ended its turn with an error ({shown}).", route, reason, f"{said}\n{rest}")


def _class(error_class: object) -> tuple[str, int]:
    """The name of a class of errors and the status in it; "" and 0 where there is none."""
    if isinstance(error_class, dict) and len(error_class) == 1:
        name, about = next(iter(error_class.items()))
        status = at(about, "http_status_code")
        return str(name), status if isinstance(status, int) else 0
    return (error_class, 0) if isinstance(error_class, str) else ("", 0)


def _recalled(told: codex_rollout.Told | None) -> Outcome | None:
    route = "its own record"
    if told is None:
        text = "It had not reached Codex's thread."
        return Failed(text, route, reason=Reason.RUNTIME_OFFLINE, began=False)
    if told.error is not None:
        return _failed(told.error, told.error_class, "", route)
    return Answered(told.answer, route, _usage(told)) if told.answer else None


def _usage(told: codex_rollout.Told) -> Usage:
    return Usage(input_tokens=told.input_tokens, output_tokens=told.output_tokens, model=told.model)


def check(options: CodexOptions, tools: Tools) -> str | None:
    """What is wrong with the options; whether the program is there is found out by ``detect``, and by each turn."""
    return program.check("codex", options.program, options.folder, _OWN, options.arguments)


async def detect(options: CodexOptions, tools: Tools) -> Found:
    """Look for the program, and ask it for its version and what it can do."""
    needs = program.Needs("codex", "Codex", "npm install -g @openai/codex", _NEEDED)
    return await program.detect(needs, options.program, options.folder, tools, ROUTE)


KIND = Kind(
    name="codex",
    title="Codex",
    options=CodexOptions,
    make=Codex,
    detect=detect,
    check=check,
    reports=("input_tokens", "output_tokens", "model"),
)
