"""The kinds of agents that a turn can be run with: one literal table, and how a specification is read by it.

What must stay true: a kind's module is loaded when the kind is used and not before, so that a hub without such an
agent pays nothing for it. What does not fit is refused with a sentence that says what would, before anything is stored.
"""

import importlib
from typing import Any, cast

import msgspec

from angelia.model.errors import BadRequest
from angelia.turns.adapters.port import Kind, Options, Tools

MOST_SECONDS = 86_400  # a day: what takes longer is no answer to a message

KINDS = {
    "command": "angelia.turns.adapters.command",
    "webhook": "angelia.turns.adapters.webhook",
    "hermes": "angelia.turns.adapters.hermes",
    "openclaw": "angelia.turns.adapters.openclaw",
    "claude_code": "angelia.turns.adapters.claude_code",
    "codex": "angelia.turns.adapters.codex",
    "opencode": "angelia.turns.adapters.opencode",
    "acp": "angelia.turns.adapters.acp",
}


def load(name: str) -> Kind:
    """The kind of this name. Raises ``BadRequest`` where there is none, or a package of its own is missing here."""
    if name not in KINDS:
        raise BadRequest(f"There is no kind of agent '{name[:80]}'. There are: {', '.join(KINDS)}.")
    try:
        module = importlib.import_module(KINDS[name])
    except ModuleNotFoundError as error:
        raise BadRequest(f"The kind '{name}' needs the Python package '{error.name}', which is not here.") from error
    return cast(Kind, module.KIND)


def read(spec: bytes | dict[str, Any], tools: Tools) -> tuple[Kind, Options]:
    """The kind that ``{"kind": …}`` names, and its options, as they can be used. Raises ``BadRequest``."""
    rest = _object(spec)
    name = rest.pop("kind", None)
    if not isinstance(name, str):
        raise BadRequest(f"An adapter says its 'kind', one of: {', '.join(KINDS)}.")
    kind = load(name)
    known = ", ".join(field.encode_name for field in msgspec.structs.fields(kind.options))
    try:
        options = msgspec.convert(rest, kind.options)
    except msgspec.ValidationError as error:
        raise BadRequest(f"These are no options of the kind '{name}': {error}. It takes: {known}.") from None
    wrong = _check(options) or kind.check(options, tools)
    if wrong:
        raise BadRequest(wrong)
    return kind, options


def _object(spec: bytes | dict[str, Any]) -> dict[str, Any]:
    if isinstance(spec, dict):
        return dict(spec)
    try:
        return msgspec.json.decode(spec, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadRequest(f"An adapter is a JSON object: {error}.") from None


def _check(options: Options) -> str | None:
    """What is wrong with the options that every kind takes."""
    seconds = options.timeout_seconds
    if options.conversation not in ("agent", "thread"):
        return f"conversation is '{options.conversation[:80]}'; it is 'agent' or 'thread'."
    if seconds is not None and not 0 < seconds <= MOST_SECONDS:
        return f"timeout_seconds is {seconds}; it is more than 0, and at most {MOST_SECONDS}."
    return None
