"""Installs the real agents of the lab into one folder, by the ordinary clients of their registries.

``python -m tests.lab.install FOLDER`` takes about 75 s and 2.5 GB; what is there already is left as it is. Node comes
from npm too, for no distribution has one that is new enough for all of them. ``write_homes`` writes the configuration
that makes each of them talk to the stand-in model, and to nobody else; ``environment`` is what they are started with.
Nothing is installed outside of the folder, and nothing here runs an agent: that is ``conftest.py``'s part.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from tests.lab.dialects import CONTEXT_TOKENS, MODEL
from tests.lab.model import FAULTS, PORT

# The versions that docs/agents speaks of.
NODE = "24.21.0"
NPM = {
    "openclaw": "openclaw@2026.9.6",
    "codex": "@openai/codex@0.171.0",
    "claude": "@anthropic-ai/claude-code@2.1.332",
    "gemini": "@google/gemini-cli@0.61.0",
    "opencode": "opencode-ai@1.18.33",
}
HERMES = ("hermes-agent==0.19.0", "aiohttp==3.14.1", "mcp==1.26.0", "agent-client-protocol==0.9.0")

URL = f"http://127.0.0.1:{PORT}"
KEY = "sk-fake"
GATEWAY_TOKEN = "gw-test-token"
HERMES_KEY = "hermes-test-key-0123456789abcdef"  # Hermes refuses to serve with fewer than 16 characters
# OpenClaw leaves a provider alone for a minute once it refused: each fault has an agent with a provider of its own.
FAULTY = tuple(word.lower().replace("_", "-") for word in (*FAULTS, "DROP"))


def install(folder: Path) -> None:
    """Install what is missing below ``folder``. Raises ``CalledProcessError`` where npm or pip fails."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node24/node_modules/node/bin/node").exists():
        _npm(folder / "node24", f"node@{NODE}", "")
    for name, package in NPM.items():
        if not (folder / name / "node_modules").exists():
            _npm(folder / name, package, str(folder / "node24/node_modules/node/bin"))
    if not (folder / "hermes/bin/hermes").exists():
        venv.create(folder / "hermes", with_pip=True)
        subprocess.run([folder / "hermes/bin/pip", "install", "-q", *HERMES], check=True)
    write_homes(folder / "home")


def _npm(folder: Path, package: str, path: str) -> None:
    """Install a package with the npm of this machine, by the node that is found first in ``path``."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("the lab needs npm")
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text('{"private": true}')
    path = os.pathsep.join([*filter(None, [path]), str(Path(npm).parent), os.defpath])
    command = ["env", f"PATH={path}", npm, "install", "--no-audit", "--no-fund", package]
    subprocess.run(command, cwd=folder, check=True)


def environment(folder: Path, home: Path) -> dict[str, str]:
    """Variables for an agent of the lab in ``folder`` whose home is ``home``. Its programs come first in PATH."""
    programs = ["node24/node_modules/node/bin", *(f"{name}/node_modules/.bin" for name in NPM), "hermes/bin"]
    return {
        "PATH": os.pathsep.join([*(str(folder / path) for path in programs), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(home),
        "HERMES_HOME": str(home / ".hermes"),
        "CODEX_HOME": str(home / ".codex"),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "ANTHROPIC_BASE_URL": URL,
        "ANTHROPIC_API_KEY": KEY,
        "FAKE_KEY": KEY,
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": URL,
        # Nothing that would look for the world outside, and wait for it in vain.
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "OPENCLAW_DISABLE_BONJOUR": "1",
        "PIP_RETRIES": "0",
        "HERMES_DISABLE_LAZY_INSTALLS": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


def write_homes(home: Path) -> None:
    """Write each agent's configuration below ``home``: a new home, without a past."""
    (home / "proj").mkdir(parents=True, exist_ok=True)
    for path, text in {
        ".openclaw/openclaw.json": json.dumps(openclaw()),
        ".hermes/config.yaml": _HERMES_CONFIG,
        ".hermes/.env": f"API_SERVER_ENABLED=true\nAPI_SERVER_KEY={HERMES_KEY}\nAPI_SERVER_PORT=8642\n",
        ".codex/config.toml": _CODEX_CONFIG,
        ".gemini/settings.json": json.dumps(_GEMINI_SETTINGS),
        ".config/opencode/opencode.json": json.dumps(_OPENCODE),
    }.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)


def openclaw() -> dict[str, Any]:
    """OpenClaw's configuration: its agents are ``main``, ``second`` and one for each fault."""
    about = {"input": ["text"], "reasoning": False, "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}
    models = [{"id": MODEL, "name": MODEL, "contextWindow": CONTEXT_TOKENS, "maxTokens": 8192, **about}]
    provider = {"baseUrl": f"{URL}/v1", "apiKey": KEY, "api": "openai-completions", "models": models}
    names = ("main", "second", *FAULTY)
    return {
        "gateway": {"mode": "local", "bind": "loopback", "auth": {"mode": "token", "token": GATEWAY_TOKEN}},
        "models": {"mode": "merge", "providers": dict.fromkeys(names, provider)},
        "agents": {
            "defaults": {"model": {"primary": f"main/{MODEL}"}, "skipBootstrap": True},
            "ownership": "explicit",
            "entries": {name: {"model": f"{name}/{MODEL}"} for name in names},
        },
    }


_HERMES_CONFIG = f"""\
model: {{default: {MODEL}, provider: custom, base_url: "{URL}/v1", api_key: {KEY}, context_length: {CONTEXT_TOKENS}}}
security: {{tirith_enabled: false, allow_lazy_installs: false}}
"""
_CODEX_CONFIG = f"""\
model = "{MODEL}"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "{URL}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
[analytics]
enabled = false
"""
_GEMINI_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
    "telemetry": {"enabled": False},
}
_OPENCODE = {
    "autoupdate": False,
    "share": "disabled",
    "model": f"fake/{MODEL}",
    "small_model": f"fake/{MODEL}",
    "provider": {
        "fake": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Fake",
            "options": {"baseURL": f"{URL}/v1", "apiKey": KEY},
            "models": {MODEL: {"name": MODEL, "limit": {"context": CONTEXT_TOKENS, "output": 8192}}},
        }
    },
}


if __name__ == "__main__":
    install(Path(sys.argv[1]).resolve())
    print(f"The lab stands in {sys.argv[1]}. Next: pytest tests/lab --lab {sys.argv[1]}")
