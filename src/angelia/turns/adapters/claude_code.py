"""Claude Code by its command line: a process for each turn, one session of its own for each conversation.

What must stay true:

- Answered only by a result that says success, no error, and a model that ran: ``subtype`` alone says success of errors,
  and a local command (``/help``) says it of nothing.
- The prompt is a block of its own, and our mark is the block behind it. Claude Code reads commands and ``@path`` in the
  last block only; in any other form a sender's ``@path`` puts that file before the model, unasked and from anywhere.
- A session that is gone is begun anew once, and the route says so; any other failure leaves the session as it is.
"""

import asyncio
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from angelia.model.failure import Reason
from angelia.protocol.json import encode
from angelia.turns.adapters import claude_transcript, program
from angelia.turns.adapters.json_output import Event, Printed, at, listen, mark
from angelia.turns.adapters.port import Answered, Failed, Found, Kind, Lost, Options, Outcome, Tools, Turn, Usage
from angelia.turns.adapters.statuses import is_failure, reason_of, words

ROUTE = "command line"
NEW_SESSION = f"{ROUTE}, in a new conversation: Claude Code does not have the one before any more"
_FIXED = ("-p", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json")
_NEEDED = ("--input-format", "--output-format", "--session-id", "--resume", "--verbose")
# What a person's own arguments may not hold: it would take the turn away from us.
_OWN = (*_FIXED, "--print", "--session-id", "--resume", "-r", "--continue", "-c", "--fork-session", "--model", "--bg",
        "--background", "--no-session-persistence", "--replay-user-messages", "--include-partial-messages")  # fmt: skip
_SESSION = re.compile(r"[0-9A-Fa-f-]{36}")

# How a turn ended, in Claude Code's own words: `terminal_reason` and `subtype` of the result …
_ENDINGS = {
    "prompt_too_long": Reason.CONTEXT_OVERFLOW,
    "blocking_limit": Reason.CONTEXT_OVERFLOW,
    "rapid_refill_breaker": Reason.CONTEXT_OVERFLOW,
    "error_max_turns": Reason.AGENT_BLOCKED,
    "error_max_budget_usd": Reason.AGENT_BLOCKED,
}
# … what only its text tells, which it writes itself …
_TEXTS = {
    "Prompt is too long": Reason.CONTEXT_OVERFLOW,
    "Not logged in": Reason.MISSING_CONFIG,
    "Credit balance is too low": Reason.PROVIDER_QUOTA_LIMIT,
    "You've hit your": Reason.PROVIDER_QUOTA_LIMIT,
    "You're out of": Reason.PROVIDER_QUOTA_LIMIT,
}
# … and the class of the error, on the last message. `rate_limit` is left to its text: it may be an empty account.
_CLASSES = {
    "authentication_failed": Reason.PROVIDER_AUTH_OR_ACCESS,
    "oauth_org_not_allowed": Reason.PROVIDER_AUTH_OR_ACCESS,
    "account_on_hold": Reason.PROVIDER_AUTH_OR_ACCESS,
    "verification_required": Reason.PROVIDER_AUTH_OR_ACCESS,
    "cloud_credential_error": Reason.PROVIDER_AUTH_OR_ACCESS,
    "billing_error": Reason.PROVIDER_QUOTA_LIMIT,
    "model_not_found": Reason.MODEL_UNAVAILABLE,
    "overloaded": Reason.PROVIDER_SERVER_ERROR,
    "server_error": Reason.PROVIDER_SERVER_ERROR,
}


class ClaudeCodeOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """``program``: None is ``claude`` in the hub's PATH. ``folder``: where it works; None is the home. ``arguments``:
    more of its own, such as ``["--permission-mode", "acceptEdits"]``."""

    program: str | None = None
    folder: str | None = None
    model: str | None = None
    arguments: tuple[str, ...] = ()


@dataclass(slots=True)
class _Heard:
    """What was heard of a turn, event by event."""

    turn: Turn
    session: str | None = None
    model: str | None = None
    error: str | None = None
    result: Event | None = None

    def see(self, event: Event) -> bool:
        kind = event.get("type")
        if kind == "system" and event.get("subtype") == "init":
            self._begin(event.get("session_id"))
        elif kind == "assistant" and event.get("parent_tool_use_id") is None:
            error, model = event.get("error"), at(event, "message", "model")
            self.error = error if isinstance(error, str) else None
            self.model = model if isinstance(model, str) and self.error is None else self.model
        elif kind == "result":
            self.result = self.result or event
        return kind == "result"

    def _begin(self, session: object) -> None:
        if isinstance(session, str) and _SESSION.fullmatch(session):
            self.session = session
            if session != self.turn.session:
                self.turn.begun(session)


@dataclass(slots=True)
class ClaudeCode:
    """One agent that is Claude Code. ``_last``: attempt and session of the turn that this process began last."""

    options: ClaudeCodeOptions
    tools: Tools
    _last: tuple[str, str | None] = field(default=("", None))

    async def run(self, turn: Turn) -> Outcome:
        """Run it; see ``Adapter``."""
        found = program.locate("claude", self.options.program, self.tools)
        if found is None:
            return program.not_found("Claude Code", ROUTE)
        session = turn.session if turn.session and _SESSION.fullmatch(turn.session) else None
        try:
            before = await self._spent(session)
            heard, printed = await self._hear(found, turn, session)
            if session and _is_gone(heard, printed):
                before = 0.0
                heard, printed = await self._hear(found, turn, None)
                return _outcome(heard, printed, NEW_SESSION, before)
        except OSError as error:
            return program.not_started("Claude Code", ROUTE, error)
        return _outcome(heard, printed, ROUTE, before)

    async def _hear(self, found: str, turn: Turn, session: str | None) -> tuple[_Heard, Printed]:
        options = self.options
        named = ("--resume", session) if session else ("--session-id", str(uuid.uuid4()))
        model = ("--model", options.model) if options.model else ()
        heard = _Heard(turn)
        printed = await listen(
            self.tools.children,
            [found, *_FIXED, *named, *model, *options.arguments],
            stdin=_input(turn),
            see=heard.see,
            environment={**self.tools.environment, **turn.environment},
            folder=options.folder or self.tools.home,
            note=turn.key,
        )
        self._last = (turn.key, heard.session)
        return heard, printed

    async def _spent(self, session: str | None) -> float | None:
        """What the session had cost before, which its results go on counting; None where nobody can say."""
        if session is None:
            return 0.0
        path = await asyncio.to_thread(claude_transcript.find, self._environment, session)
        return await asyncio.to_thread(claude_transcript.spent, path) if path else None

    @property
    def _environment(self) -> Mapping[str, str]:
        return {"HOME": self.tools.home, **self.tools.environment}

    async def recall(self, turn: Turn) -> Outcome | None:
        """Read the session's transcript; what had begun and did not end there was cut off, and nobody can say more."""
        session = self._last[1] if self._last[0] == turn.key else turn.session
        if session is None or not _SESSION.fullmatch(session):
            return None
        with suppress(OSError):
            path = await asyncio.to_thread(claude_transcript.find, self._environment, session)
            if path is not None:
                return _recalled(await asyncio.to_thread(claude_transcript.told_of, path, mark(turn)))
        return None

    async def close(self) -> None:
        """Nothing is warm."""


def _input(turn: Turn) -> bytes:
    """The turn as one line. Of a message's blocks, only the last is searched for what Claude Code itself obeys."""
    blocks = [{"type": "text", "text": turn.prompt}, {"type": "text", "text": mark(turn)}]
    return encode({"type": "user", "message": {"role": "user", "content": blocks}}) + b"\n"


def _is_gone(heard: _Heard, printed: Printed) -> bool:
    if heard.session is not None:
        return False
    errors = at(heard.result, "errors")
    said = [printed.rest, *(errors if isinstance(errors, list) else [])]
    return any(isinstance(text, str) and "No conversation found with session ID" in text for text in said)


def _outcome(heard: _Heard, printed: Printed, route: str, before: float | None) -> Outcome:
    result = heard.result
    if result is None and printed.killed:
        return Lost("Claude Code was ended by something else in the middle of its turn.", route)
    if result is None:
        text = f"Claude Code ended with exit code {printed.code} and without a result."
        return Failed(text, route, output=printed.rest, began=heard.session is not None)
    said = result.get("result")
    if result.get("subtype") != "success" or result.get("is_error") is not False:
        ending = [result.get("terminal_reason"), result.get("subtype")]
        return _failed(ending, heard.error, result.get("api_error_status"), said, printed.rest, route)
    if result.get("num_turns") == 0:
        return Failed("Claude Code took it for a command of its own, and no model ran.", route, output=printed.rest)
    if not isinstance(said, str) or not said:
        return Failed("Claude Code ended its turn without a word.", route, output=printed.rest)
    return Answered(said, route + _denied(result), _usage(result, heard.model, before))


def _failed(ending: list[object], error: object, status: object, text: object, rest: str, route: str) -> Failed:
    """A failure by what Claude Code says of it, the surest first; what is left, its words tell."""
    said = text if isinstance(text, str) else ""
    told = [_ENDINGS[word] for word in ending if isinstance(word, str) and word in _ENDINGS]
    told += [meant for phrase, meant in _TEXTS.items() if phrase in said]
    reason = told[0] if told else None
    if isinstance(status, int) and is_failure(status):
        reason, said = reason or reason_of(status), words(status, said)
        shown = f"HTTP {status}"
    else:
        shown = error if isinstance(error, str) else next((str(word) for word in ending if word), "no reason given")
    reason = reason or (_CLASSES.get(error) if isinstance(error, str) else None)
    return Failed(f"Claude Code ended its turn with an error ({shown}).", route, reason, f"{said}\n{rest}")


def _recalled(told: claude_transcript.Told) -> Outcome | None:
    route = "its own transcript"
    if not told.found:
        text = "It had not reached Claude Code's conversation."
        return Failed(text, route, reason=Reason.RUNTIME_OFFLINE, began=False)
    if told.failure is not None:
        row, texts = told.failure, at(told.failure, "message", "content")
        said = "".join(str(at(block, "text") or "") for block in texts) if isinstance(texts, list) else ""
        return _failed([], row.get("error"), row.get("apiErrorStatus"), said, "", route)
    return Answered(told.answer, route, Usage(model=told.model)) if told.answer else None


def _denied(result: Event) -> str:
    """Which tools it was not allowed: it ends well all the same, and only this says why it did not do as asked."""
    denials = result.get("permission_denials")
    names = {str(at(denial, "tool_name")) for denial in denials} if isinstance(denials, list) else set()
    return f"; not allowed: {', '.join(sorted(names))}" if names else ""


def _usage(result: Event, model: str | None, before: float | None) -> Usage:
    """``usage`` is of this turn, ``total_cost_usd`` of all the session's."""
    used, total = result.get("usage"), result.get("total_cost_usd")
    tokens = [at(used, f"{kind}input_tokens") for kind in ("", "cache_creation_", "cache_read_")]
    output = at(used, "output_tokens")
    cost = total - before if isinstance(total, int | float) and before is not None else None
    return Usage(
        input_tokens=sum(number for number in tokens if isinstance(number, int)) if used else None,
        output_tokens=output if isinstance(output, int) else None,
        cost_usd=round(cost, 9) if cost is not None and cost >= 0 else None,
        model=model,
    )


def check(options: ClaudeCodeOptions, tools: Tools) -> str | None:
    """What is wrong with the options; whether the program is there is found out by ``detect``, and by each turn."""
    return program.check("claude", options.program, options.folder, _OWN, options.arguments)


async def detect(options: ClaudeCodeOptions, tools: Tools) -> Found:
    """Look for the program, and ask it for its version and what it can do."""
    needs = program.Needs("claude", "Claude Code", "npm install -g @anthropic-ai/claude-code", {("--help",): _NEEDED})
    return await program.detect(needs, options.program, options.folder, tools, ROUTE)


KIND = Kind(
    name="claude_code",
    title="Claude Code",
    options=ClaudeCodeOptions,
    make=ClaudeCode,
    detect=detect,
    check=check,
    reports=("input_tokens", "output_tokens", "cost_usd", "model"),
)
