"""The environment that programs get which the hub starts.

What must stay true: nothing of ours is in it that was not given to that very turn, and nothing that names a session:
the hub may have been started from inside an agent, and what it wakes must not take itself for that one.
"""

import os
from collections.abc import Mapping

_OTHERS_SESSIONS = (
    "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_SSE_PORT", "CODEX_THREAD_ID",
    "GEMINI_CLI", "HERMES_RESUME_UNANSWERED_TURN", "HERMES_SESSION_ID", "HERMES_SESSION_KEY", "HERMES_SESSION_PROFILE",
    "HERMES_TURN_AUTHOR", "HERMES_UI_SESSION_ID", "OPENCODE", "OPENCODE_PID", "OPENCODE_SESSION_ID",
)  # fmt: skip


def surroundings(environ: Mapping[str, str], own: str | None = None) -> dict[str, str]:
    """The hub's own environment, without what is ours or names a session; with a home and a path in any case.

    ``own``: the folder of ``angelia`` itself, so that what is woken can answer by it; the last one that is looked into.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith("ANGELIA_")}
    kept = {name: value for name, value in kept.items() if name not in _OTHERS_SESSIONS}
    kept.setdefault("HOME", os.path.expanduser("~"))
    kept.setdefault("PATH", os.defpath)
    if own is not None and own not in kept["PATH"].split(os.pathsep):
        kept["PATH"] += os.pathsep + own
    return kept
