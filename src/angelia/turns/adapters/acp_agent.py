"""An agent that speaks the Agent Client Protocol: one warm process for all of its turns, and what their ends mean.

What must stay true:

- The process is started for the first turn and used again. Where it turns out to have ended before it can have had the
  prompt, one new one is started; where it ends afterwards, the turn is lost. One that did not stop when asked, or broke
  a rule, is ended.
- ``end_turn`` is the agent's word that the turn ended well. It is believed, but for an agent that is known to end so
  when its model refused: Hermes then says the refusal as its answer and, unlike else, no number of tokens.
- The protocol's past (``session/load``) tells what was said, and not how a turn ended; so ``recall`` knows nothing.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Literal

from acp import RequestError

from angelia.model.failure import Reason
from angelia.turns.adapters.acp_session import LINE_BYTES, Ended, NeverHeard, Peer, Refused, Said
from angelia.turns.adapters.port import Answered, Failed, Found, Lost, Outcome, Tools, Turn, Usage
from angelia.turns.adapters.statuses import is_failure, reason_of, words

ROUTE = "ACP"
# Of a turn's time. An agent that has told nothing by then is ended while there is time left to say why: what it logged
# of its provider may come out only with its end (Gemini CLI).
PATIENCE = 0.8
AUTH_REQUIRED = -32000
# Of the hub's variables for a turn only those hold for a process that outlives it.
LASTING = ("ANGELIA_AGENT", "ANGELIA_URL", "ANGELIA_TOKEN", "ANGELIA_CONVERSATION")
_STOPS: Mapping[str, tuple[str, Reason]] = {
    "refusal": ("The agent refused to go on.", Reason.AGENT_BLOCKED),
    "cancelled": ("The agent's turn was stopped at its own side.", Reason.CANCELLED),
    "max_tokens": ("The agent's answer hit its model's limit of tokens and is not whole.", Reason.UNKNOWN),
    "max_turn_requests": ("The agent hit its limit of model calls for one turn.", Reason.UNKNOWN),
}
# What Hermes 0.19 says in place of an answer, from its first letter on.
_HERMES_ERROR = re.compile(r"HTTP \d{3}\b|API call failed|Context length exceeded|Error[: ]|.{0,80}Connection error")
_CUT_OFF = re.compile(r"fetch failed|connection (?:error|dropped|reset|closed)|socket hang up|ECONN", re.IGNORECASE)
_STATUS = re.compile(r"\bstatus(?: code)?:? (\d{3})\b", re.IGNORECASE)
_STATUS_FIELDS = ("status", "statusCode", "status_code", "httpStatus", "code")


class AcpAgent:
    """One agent. ``argv``: its program, by its whole path; ``folder``: where its sessions work."""

    def __init__(
        self,
        tools: Tools,
        argv: list[str],
        *,
        folder: str,
        environment: Mapping[str, str],
        permissions: Literal["deny", "allow"],
    ) -> None:
        """Starts nothing."""
        self._tools, self._argv, self._folder, self._environment = tools, argv, folder, environment
        self._allow = permissions == "allow"
        self._peer: Peer | None = None

    async def run(self, turn: Turn) -> Outcome:
        """Run one turn; see ``Adapter``."""
        try:
            ends = asyncio.get_running_loop().time() + turn.seconds * PATIENCE
            outcome = await self._once(turn, ends)
            if outcome is None:  # what was warm had ended
                outcome = await self._once(turn, ends)
        finally:
            if self._peer is not None and not self._peer.sound:
                await self.close()
        return outcome or _not_begun("The agent ended before it was given the message.")

    async def recall(self, turn: Turn) -> Outcome | None:
        """See above."""
        return None

    async def close(self) -> None:
        """End the process."""
        peer, self._peer = self._peer, None
        if peer is not None:
            await peer.end()

    async def hello(self, tokens: Mapping[str, str]) -> Peer:
        """The warm process, started where there is none. Raises ``OSError``, ``NeverHeard`` or ``RequestError``."""
        if self._peer is None:
            environment = {**self._tools.environment, **self._environment, **tokens}
            child = await self._tools.children.start(
                self._argv,
                environment=environment,
                folder=self._folder,
                line_bytes=LINE_BYTES,
                note=f"acp-{environment.get('ANGELIA_AGENT', 'detect')}",
            )
            self._peer = Peer(child, allow=self._allow)
            self._peer.sound = False  # until it has said hello
            await self._peer.begin()
            self._peer.sound = True
        return self._peer

    async def _once(self, turn: Turn, ends: float) -> Outcome | None:
        """One try; None where a process that was warm had ended, and another try is right."""
        was_warm = self._peer is not None
        try:
            peer = await self.hello({name: turn.environment[name] for name in LASTING if name in turn.environment})
            peer.sound = False
            session, note = await peer.enter(turn.session, self._folder)
            if session != turn.session:
                turn.begun(session)
            patience = max(ends - asyncio.get_running_loop().time(), 0)
            end = await peer.prompt(session, turn.prompt, patience)
        except OSError as error:
            return _not_begun(f"The agent's program could not be started: {error.strerror}.", Reason.MISSING_CONFIG)
        except RequestError as error:
            failed = refused(Refused(error.code, str(error), error.data), ROUTE)
            return Failed(failed.text, ROUTE, reason=failed.reason, output=failed.output, began=False)
        except NeverHeard as error:
            log = self._peer.last_words() if self._peer is not None else ""
            await self.close()
            return None if was_warm else _not_begun(str(error), output=log)
        return outcome_of(end, peer.name, f"{ROUTE}, {note}" if note else ROUTE)


async def look(agent: AcpAgent, program: str) -> Found:
    """Start the agent, let it say what it is, and end it."""
    try:
        peer = await agent.hello({})
    except OSError as error:
        return Found(program, problem=f"{program} cannot be started: {error.strerror}.")
    except RequestError as error:
        return Found(program, problem=f"{program} refused to begin: {error}")
    except NeverHeard as error:
        return Found(program, problem=f"{program} does not speak the protocol; are its arguments right? {error}")
    finally:
        await agent.close()
    notes = () if peer.resumes else ("its conversations end with its process: it cannot load them again",)
    return Found(program, peer.version or None, (ROUTE,), notes=notes)


def outcome_of(end: Said | Refused | Ended, name: str, route: str) -> Outcome:
    """What the end of a prompt means. ``name``: what the agent calls itself."""
    if isinstance(end, Refused):
        return refused(end, route)
    if isinstance(end, Said):
        return _said(end, name, route)
    if end.how == "too much":
        return Failed("The agent's answer is too long.", route, reason=Reason.TOO_LARGE)
    if end.how == "gone":
        return Lost("The agent's process ended in the middle of the turn.", route)
    if not end.log:
        text = "The agent told nothing until its time was nearly over, and was ended."
        return Failed(text, route, reason=Reason.DELIVERY_TIMEOUT)
    text = "The agent could not get an answer from its model in time; its own retries were ended."
    found = _STATUS.search(end.log)
    status = int(found[1]) if found else 0
    output = words(status, end.log) if is_failure(status) else end.log
    return Failed(text, route, reason=reason_of(status) or _cut_off(end.log), output=output)


def refused(end: Refused, route: str) -> Failed:
    """What a JSON-RPC error means. Its words may hold a key, so they are for the classifier alone."""
    status = _status(end)
    text = f"The agent answered with error {status or end.code}."
    details = end.message if end.data is None else f"{end.message} {end.data}"
    if end.code == AUTH_REQUIRED:
        return Failed(text, route, reason=Reason.PROVIDER_AUTH_OR_ACCESS, output=details)
    output = words(status, details) if status else details
    return Failed(text, route, reason=reason_of(status) or _cut_off(details), output=output)


def _said(end: Said, name: str, route: str) -> Outcome:
    stop = str(end.result.get("stopReason"))
    if stop in _STOPS:
        text, reason = _STOPS[stop]
        return Failed(text, route, reason=reason)
    if stop != "end_turn":
        return Failed("The agent ended its turn in a way that the hub does not know.", route, reason=Reason.UNKNOWN)
    if not end.text.strip():
        return Failed("The agent ended its turn without a word.", route, reason=Reason.UNKNOWN)
    if name == "hermes-agent" and end.result.get("usage") is None and _HERMES_ERROR.match(end.text):
        text = "The agent's model gave no answer, and the agent said only that."
        return Failed(text, route, reason=_cut_off(end.text), output=end.text)
    return Answered(end.text, route, _usage(end.result))


def _usage(result: dict[str, Any]) -> Usage:
    """What a turn cost, as the protocol's drafts say it, or as Gemini CLI does."""
    usage = result.get("usage")
    if isinstance(usage, dict):
        return Usage(input_tokens=_number(usage.get("inputTokens")), output_tokens=_number(usage.get("outputTokens")))
    quota = _dict(_dict(result.get("_meta")).get("quota"))
    count = _dict(quota.get("token_count"))
    models = quota.get("model_usage")
    model = _dict(models[0]).get("model") if isinstance(models, list) and models else None
    return Usage(
        input_tokens=_number(count.get("input_tokens")),
        output_tokens=_number(count.get("output_tokens")),
        model=model if isinstance(model, str) else None,
    )


def _status(end: Refused) -> int:
    """The HTTP status that an error carries: as its code, or in its data; 0 for none."""
    for value in (end.code, *(_dict(end.data).get(name) for name in _STATUS_FIELDS)):
        if isinstance(value, int) and is_failure(value):
            return value
    return 0


def _cut_off(text: str) -> Reason | None:
    return Reason.PROVIDER_SERVER_ERROR if _CUT_OFF.search(text) else None


def _not_begun(text: str, reason: Reason = Reason.RUNTIME_OFFLINE, *, output: str = "") -> Failed:
    return Failed(text, ROUTE, reason=reason, output=output, began=False)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
