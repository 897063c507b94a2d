"""OpenCode as an agent: by its HTTP server where one is named, else by its command line.

What must stay true: with a ``url`` nothing else is tried: a session of that server is in no other. A password stands in
a file or in a variable of the hub's, never in the options, and is read anew for each turn. How a turn is run stands in
``opencode_server`` and ``opencode_cli``, what its answers mean in ``opencode_answers``.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from angelia.turns.adapters import opencode_cli, opencode_server
from angelia.turns.adapters.opencode_cli import CommandLine
from angelia.turns.adapters.opencode_http import Calls
from angelia.turns.adapters.opencode_server import Server
from angelia.turns.adapters.port import Adapter, Found, Kind, Options, Outcome, Tools, Turn
from angelia.turns.adapters.program import wrong_variables
from angelia.turns.adapters.secret_file import secret_in, wrong_with

HELP_BYTES = 256 * 1024
NEEDED_FLAGS = ("--format", "--session", "--print-logs")
_MODEL = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_./:@-]+", re.ASCII)
_SERVE = "opencode serve --hostname 127.0.0.1 --port 4096"


class OpenCodeOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """``url``: of a server; without one, ``program`` is run for each turn (None: the ``opencode`` in the hub's PATH).

    ``password_file``, ``password_env``: where the server's password is found (user ``opencode``). ``folder``: the
    project that it works in; None is the home, or the server's own. ``model``: provider/model; None is its own choice.
    ``permissions``: what is said when it asks leave for something. ``environment``: more variables.
    """

    url: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    program: str | None = None
    folder: str | None = None
    model: str | None = None
    permissions: Literal["deny", "allow"] = "deny"
    environment: dict[str, str] = msgspec.field(default_factory=dict)


class _ByServer:
    """One agent at a server. Fills ``Adapter``."""

    def __init__(self, options: OpenCodeOptions, tools: Tools) -> None:
        """Asks nothing."""
        self._options, self._tools = options, tools

    async def run(self, turn: Turn) -> Outcome:
        """See ``Adapter``."""
        return await self._server().run(turn)

    async def recall(self, turn: Turn) -> Outcome | None:
        """See ``Adapter``."""
        return await self._server().recall(turn)

    async def close(self) -> None:
        """Nothing is warm."""

    def _server(self) -> Server:
        options = self._options
        reply = "once" if options.permissions == "allow" else "reject"
        return Server(_calls(options, self._tools), model=options.model, reply=reply)


def make(options: OpenCodeOptions, tools: Tools) -> Adapter:
    """The adapter for these options."""
    if options.url is not None:
        return _ByServer(options, tools)
    return CommandLine(
        replace(tools, environment=_environment(options, tools)),
        _program(options, tools) or "/opencode",  # which is not there, and each turn says so
        folder=options.folder or tools.home,
        model=options.model,
        auto=options.permissions == "allow",
    )


async def detect(options: OpenCodeOptions, tools: Tools) -> Found:
    """Look for the server, or for the program and the flags that are needed."""
    return await (_detect_server(options, tools) if options.url else _detect_program(options, tools))


async def _detect_server(options: OpenCodeOptions, tools: Tools) -> Found:
    problem = None
    version = None
    try:
        version = await Server(_calls(options, tools), model=None, reply="reject").version()
    except PermissionError:
        problem = f"The server at {options.url} asks for another password; set password_file or password_env."
    if version is None and problem is None:
        problem = f"No OpenCode server answers at {options.url}; start one: {_SERVE}"
    return Found(options.url, version, (opencode_server.ROUTE,) if problem is None else (), problem)


async def _detect_program(options: OpenCodeOptions, tools: Tools) -> Found:
    program = _program(options, tools)
    if program is None:
        return Found(problem="There is no 'opencode' in the hub's PATH; install it, or give its 'program'.")
    try:
        version = await _printed(options, tools, program, "--version")
        usage = await _printed(options, tools, program, "run", "--help")
    except OSError as error:
        return Found(program, problem=f"{program} cannot be run: {error.strerror}.")
    needed = [*NEEDED_FLAGS, *(["--auto"] if options.permissions == "allow" else [])]
    missing = [flag for flag in needed if flag not in usage]
    if missing:
        what = f"This OpenCode ({version.strip()[:40]}) knows no {', '.join(missing)}; upgrade it: opencode upgrade"
        return Found(program, version.strip()[:40] or None, problem=what)
    notes = ("a server would answer faster: give its 'url'",)
    return Found(program, version.strip()[:40] or None, (opencode_cli.ROUTE,), notes=notes)


async def _printed(options: OpenCodeOptions, tools: Tools, *argv: str) -> str:
    ended = await tools.children.run(
        argv,
        environment=_environment(options, tools),
        folder=options.folder or tools.home,
        limit_bytes=HELP_BYTES,
    )
    return (ended.stdout + ended.stderr).decode("utf-8", "replace")


def check(options: OpenCodeOptions, tools: Tools) -> str | None:
    """What is wrong with the options, as a sentence."""
    if options.url is not None and not _is_url(options.url):
        return f"url is '{options.url[:80]}'; it is like http://127.0.0.1:4096, without a name or password in it."
    if options.password_file and options.password_env:
        return "Give password_file or password_env, not both."
    if options.password_env and options.password_env not in tools.variables:
        return f"The hub has no variable {options.password_env[:80]} (password_env)."
    for name in ("program", "folder", "password_file"):
        path = getattr(options, name)
        if path is not None and (not os.path.isabs(path) or "\0" in path):
            return f"{name} is '{path[:80]}'; it is a whole path, which begins with /."
    if options.password_file and (wrong := wrong_with(options.password_file)) is not None:
        return wrong
    if options.model is not None and not _MODEL.fullmatch(options.model):
        return f"model is '{options.model[:80]}'; it is provider/model."
    return wrong_variables(options.environment)


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url and not (parts.query or parts.fragment)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain and has_port and "@" not in parts.netloc


def _calls(options: OpenCodeOptions, tools: Tools) -> Calls:
    password = tools.variables.get(options.password_env) if options.password_env else None
    if options.password_file:
        password = secret_in(options.password_file)
    return Calls(options.url or "", password, options.folder)


def _program(options: OpenCodeOptions, tools: Tools) -> str | None:
    return options.program or shutil.which("opencode", path=_environment(options, tools).get("PATH"))


def _environment(options: OpenCodeOptions, tools: Tools) -> Mapping[str, str]:
    return {**tools.environment, **options.environment}


KIND = Kind(
    name="opencode",
    title="OpenCode",
    options=OpenCodeOptions,
    make=make,
    detect=detect,
    check=check,
    reports=("input_tokens", "output_tokens", "cost_usd", "model"),
)
