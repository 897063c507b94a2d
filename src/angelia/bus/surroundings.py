"""What a program that the hub starts sees of the hub's own environment: one rule for turns, links and looks at agents.

What must stay true:

- All of it, since programs need theirs (keys of providers, ``SSH_AUTH_SOCK``, ``DOCKER_HOST``), but for three things:
  what is ours (``ANGELIA_…``), which only that very turn is given anew; what names a session, for the hub may have been
  started from inside an agent, and what it starts must not take itself for that one; and the variables that a
  connection or an adapter takes a secret from.
- Connections and adapters come and go while the hub runs, so which variables those are is asked when a program starts.

How a program is started does not belong here (``turns/processes.py``, ``links/process.py``).
"""

import os
from collections.abc import Iterable, Mapping

from angelia.bus.core import Bus
from angelia.model.connection import Connection
from angelia.protocol.adapters import secrets_in

_OURS = "ANGELIA_"
_ALWAYS = ("HOME", "PATH")  # no program does without; whoever names one for a secret is mistaken
_OTHERS_SESSIONS = (
    "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_SSE_PORT", "CODEX_THREAD_ID",
    "GEMINI_CLI", "HERMES_RESUME_UNANSWERED_TURN", "HERMES_SESSION_ID", "HERMES_SESSION_KEY", "HERMES_SESSION_PROFILE",
    "HERMES_TURN_AUTHOR", "HERMES_UI_SESSION_ID", "OPENCODE", "OPENCODE_PID", "OPENCODE_SESSION_ID",
)  # fmt: skip


def surroundings(environ: Mapping[str, str], own: str | None = None) -> dict[str, str]:
    """The hub's environment, without what is ours or names a session; with a home and a path in any case.

    ``own``: the folder of ``angelia`` itself, so that what is woken can answer by it; the last one that is looked into.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_OURS)}
    kept = {name: value for name, value in kept.items() if name not in _OTHERS_SESSIONS}
    kept.setdefault("HOME", os.path.expanduser("~"))
    kept.setdefault("PATH", os.defpath)
    if own is not None and own not in kept["PATH"].split(os.pathsep):
        kept["PATH"] += os.pathsep + own
    return kept


def secret_variables(bus: Bus, fixed: Iterable[Connection] = ()) -> frozenset[str]:
    """The variables that adapters and connections take secrets from, as those are now. What begins with ``ANGELIA_`` is
    none of them: that of the hub is handed to nobody, and a turn's own is its own.

    ``fixed``: connections of the settings, which are not kept yet while the hub starts."""
    found: set[str] = set()
    for agent in bus.directory.agents.values():
        if agent.adapter is not None:
            found |= secrets_in(agent.adapter)
    for connection in (*bus.neighbours.connections.values(), *fixed):
        found |= connection.secret_variables
    return frozenset(name for name in found if not name.startswith(_OURS) and name not in _ALWAYS)


def without(names: frozenset[str], environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without some variables."""
    return {name: value for name, value in environment.items() if name not in names}
