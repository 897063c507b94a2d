"""Any agent that speaks the Agent Client Protocol over its standard input and output: Gemini CLI and many others.

What must stay true: the package ``agent-client-protocol`` is loaded when such an agent is used and not before; where it
is missing, that is said with what helps. How a turn is run stands in ``acp_agent``, the protocol in ``acp_session``.
"""

import importlib.util
import os
from typing import TYPE_CHECKING, Literal

import msgspec

from angelia.turns.adapters.port import Adapter, Found, Kind, Options, Tools
from angelia.turns.adapters.program import wrong_variables

if TYPE_CHECKING:
    from angelia.turns.adapters.acp_agent import AcpAgent

MISSING = "Agents of the kind 'acp' need one package more: pip install 'angelia[acp]'"


class AcpOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """``argv``: the program, by its whole path, and what makes it speak the protocol (``gemini --acp``).

    ``folder``: where its sessions work; None is the home. ``permissions``: what is said when it asks leave for
    something. ``environment``: more variables.
    """

    argv: list[str]
    folder: str | None = None
    permissions: Literal["deny", "allow"] = "deny"
    environment: dict[str, str] = msgspec.field(default_factory=dict)


def make(options: AcpOptions, tools: Tools) -> Adapter:
    """The adapter for these options."""
    return _agent(options, tools)


def _agent(options: AcpOptions, tools: Tools) -> "AcpAgent":
    from angelia.turns.adapters.acp_agent import AcpAgent  # noqa: PLC0415 - loads the package, which may be missing

    return AcpAgent(
        tools,
        options.argv,
        folder=options.folder or tools.home,
        environment=options.environment,
        permissions=options.permissions,
    )


async def detect(options: AcpOptions, tools: Tools) -> Found:
    """Start the program and let it say what it is: a flag that it does not know shows here, and so does its version."""
    program = options.argv[0]
    if not _has_package():
        return Found(program, problem=MISSING)
    from angelia.turns.adapters.acp_agent import look  # noqa: PLC0415 - as above

    return await look(_agent(options, tools), program)


def check(options: AcpOptions, tools: Tools) -> str | None:
    """What is wrong with the options, as a sentence."""
    if not _has_package():
        return MISSING
    if not options.argv or not os.path.isabs(options.argv[0]):
        return "argv begins with the whole path of a program, such as /usr/local/bin/gemini, then --acp."
    if options.folder is not None and not os.path.isabs(options.folder):
        return "folder is a whole path, which begins with /."
    if any("\0" in word for word in (*options.argv, options.folder or "")):
        return "argv and folder hold no NUL."
    return wrong_variables(options.environment)


def _has_package() -> bool:
    return importlib.util.find_spec("acp") is not None


KIND = Kind(
    name="acp",
    title="any agent of the Agent Client Protocol",
    options=AcpOptions,
    make=make,
    detect=detect,
    check=check,
    reports=("input_tokens", "output_tokens", "model"),
)
