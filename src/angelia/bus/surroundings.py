"""What a program that the hub starts sees of the hub's own environment: one rule for turns, links and looks at agents.

What must stay true:

- Only what is named here, or by the owner (``pass_environment``): what programs need to be found and to reach their
  person, the network and the machine's services, and what the agents that are known here read of theirs. So a program
  sees the same whether the hub runs as a service or in a shell, and no secret that happened to stand there.
- Never, whoever names it: what is ours (``ANGELIA_…``), which only that very turn is given anew; what names a session,
  for the hub may have been started from inside an agent, and what it starts must not take itself for that one; and the
  variables that a connection or an adapter takes a secret from.
- Connections and adapters come and go while the hub runs, so which variables those are is asked when a program starts.

How a program is started does not belong here (``turns/processes.py``, ``links/process.py``).
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from angelia.bus.core import Bus
from angelia.model.connection import Connection
from angelia.protocol.adapters import secrets_in

_OURS = "ANGELIA_"
_ALWAYS = ("HOME", "PATH")  # no program does without; whoever names one for a secret is mistaken
# By names, in which * stands for any text. Whole families only of agents, and of what their models need: in those of
# other tools there are tokens, too.
_OF_THE_PERSON = (
    "HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_CONFIG_HOME",
    "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS",
    "XDG_SESSION_TYPE", "XDG_CURRENT_DESKTOP", "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK", "GNUPGHOME", "GIT_SSH", "GIT_SSH_COMMAND",
)  # fmt: skip
_OF_THE_NETWORK = (
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "NIX_SSL_CERT_FILE",
    "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "CONTAINER_HOST",
    "KUBECONFIG", "WSL_DISTRO_NAME", "WSL_INTEROP", "WSLENV",
)  # fmt: skip
_OF_PLACES = (
    "LD_LIBRARY_PATH", "NIX_PATH", "NIX_PROFILES", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_EXE", "CONDA_DEFAULT_ENV",
    "PYENV_ROOT", "NVM_DIR", "NVM_BIN", "FNM_DIR", "FNM_MULTISHELL_PATH", "VOLTA_HOME", "ASDF_DIR", "ASDF_DATA_DIR",
    "MISE_DATA_DIR", "MISE_CONFIG_DIR", "BUN_INSTALL", "NPM_CONFIG_PREFIX", "CARGO_HOME", "RUSTUP_HOME", "GOPATH",
    "JAVA_HOME",
)  # fmt: skip
_OF_AGENTS = (
    "HERMES_*", "OPENCLAW_*", "CLAUDE_*", "CODEX_*", "OPENCODE_*", "GEMINI_*", "ANTHROPIC_*", "OPENAI_*",
    "AZURE_OPENAI_*", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_PROFILE",
    "AWS_REGION", "OLLAMA_HOST", "*_API_KEY", "*_BASE_URL",
)  # fmt: skip
PASSED = (*_OF_THE_PERSON, *_OF_THE_NETWORK, *_OF_PLACES, *_OF_AGENTS)
_OTHERS_SESSIONS = (
    "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ACCESS_TOKEN", "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT", "CLAUDE_ENV_FILE", "CLAUDE_PROJECT_DIR", "CODEX_SANDBOX", "CODEX_THREAD_ID",
    "GEMINI_CLI", "HERMES_RESUME_UNANSWERED_TURN", "HERMES_SESSION_ID", "HERMES_SESSION_KEY", "HERMES_SESSION_PROFILE",
    "HERMES_TURN_AUTHOR", "HERMES_UI_SESSION_ID", "OPENCODE", "OPENCODE_PID", "OPENCODE_SESSION_ID",
)  # fmt: skip


def surroundings(environ: Mapping[str, str], more: Sequence[str] = (), own: str | None = None) -> dict[str, str]:
    """What a program gets of the hub's environment; a home and a path in any case.

    ``more``: what the owner lets pass beside ``PASSED``. ``own``: the folder of ``angelia`` itself, so that what is
    woken can answer by it; the last one that is looked into.
    """
    passed = (*PASSED, *more)
    kept = {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in passed)
        and not name.startswith(_OURS)
        and name not in _OTHERS_SESSIONS
    }
    kept.setdefault("HOME", os.path.expanduser("~"))
    kept.setdefault("PATH", os.defpath)
    if own is not None and own not in kept["PATH"].split(os.pathsep):
        kept["PATH"] += os.pathsep + own
    return kept


def variables_for_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """What an adapter may be told to take a secret from: all of it but what is ours."""
    return {name: value for name, value in environ.items() if not name.startswith(_OURS)}


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
