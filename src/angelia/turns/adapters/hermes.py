"""Hermes Agent: its command line where that takes a text from a file, else its API server.

What must stay true: Hermes gets the text as its own relay would write it (``Turn.stamped``), and never in an argument.
Of a Hermes that can do neither it is said so, with how to turn one on. The hub and Hermes' own processes hold one lock
for each profile, in the folder that ``lock_place`` names.
"""

import os
import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from angelia.model.failure import Reason
from angelia.turns.adapters import hermes_api, hermes_cli
from angelia.turns.adapters.hermes_http import Server
from angelia.turns.adapters.port import Failed, Found, Kind, Options, Outcome, Tools, Turn
from angelia.turns.adapters.secret_file import secret_in, wrong_with

DEFAULT = "default"
PORT = "8642"  # Hermes' own choice for its API server
HELP = (
    "Hermes takes no text: this release has no --query-file, and its API server is off. Put API_SERVER_ENABLED=true "
    "and API_SERVER_KEY=<16 or more random characters> into the .env file in Hermes' home and run `hermes gateway run`."
)
_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_ON = frozenset({"1", "true", "yes", "on"})


class HermesOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """``home``: Hermes' files (else HERMES_HOME, else ~/.hermes). ``profile``: whose turn it is. ``program``: the
    ``hermes`` to run (else the one in PATH). ``api_url``, and the key in a file or a variable of the hub's: where its
    API server is (else as the .env file in its home says)."""

    home: str | None = None
    profile: str = DEFAULT
    program: str | None = None
    api_url: str | None = None
    api_key_file: str | None = None
    api_key_env: str | None = None


class Hermes:
    """One profile of one Hermes. Fills ``Adapter``."""

    def __init__(self, options: HermesOptions, tools: Tools) -> None:
        """Takes how it is reached, and what the hub lends."""
        self._options, self._tools = options, tools
        self._looked: tuple[object, bool] = (None, False)  # which file was asked for its help, and what that told

    async def run(self, turn: Turn) -> Outcome:
        """See ``Adapter``."""
        options, tools = self._options, self._tools
        program, server = _program(options, tools), _server(options, tools)
        if program is not None and await self._takes_files(program):
            home = _other_home(options, tools)
            title = hermes_cli.TITLE if options.conversation == "agent" else f"{hermes_cli.TITLE} {turn.conversation}"
            return await hermes_cli.run(program, options.profile, home, turn, tools, title)
        if server is not None:
            return await hermes_api.run(server, turn)
        return Failed(HELP, "none", Reason.MISSING_CONFIG, began=False)

    async def recall(self, turn: Turn) -> Outcome | None:
        """See ``Adapter``. What the command line ran, only Hermes' files know, and they are its own."""
        program, server = _program(self._options, self._tools), _server(self._options, self._tools)
        if server is None or (program is not None and await self._takes_files(program)):
            return None
        return await hermes_api.recall(server, turn)

    async def close(self) -> None:
        """Nothing is warm."""

    async def _takes_files(self, program: str) -> bool:
        """As ``hermes_cli.takes_files``, asked again only when the program is another file than before."""
        try:
            stat = os.stat(program)
        except OSError:
            return False
        home = _other_home(self._options, self._tools)
        seen = (program, stat.st_ino, stat.st_mtime_ns)
        if self._looked[0] != seen:
            self._looked = (seen, await hermes_cli.takes_files(program, self._tools, home))
        return self._looked[1]


async def detect(options: HermesOptions, tools: Tools) -> Found:
    """Which Hermes there is, and the ways that would work now."""
    program, server = _program(options, tools), _server(options, tools)
    home = _other_home(options, tools)
    ways, notes = [], []
    version = await hermes_cli.version(program, tools, home) if program is not None else None
    if program is not None and await hermes_cli.takes_files(program, tools, home):
        ways.append(hermes_cli.ROUTE)
    problem = HELP if program is not None or server is not None else f"There is no Hermes in PATH. {HELP}"
    if server is not None:
        try:
            serves = await hermes_api.version(server)
        except PermissionError:
            serves, problem = None, f"Hermes' API server at {server.url} refuses the key that was given."
        else:
            problem = f"Hermes' API server is set up and does not run at {server.url}: start `hermes gateway run`."
        if serves is not None:
            ways.append(hermes_api.ROUTE)
            notes.append(f"API server at {server.url}, Hermes {serves}")
    return Found(program, version, tuple(ways), None if ways else problem, tuple(notes))


def check(options: HermesOptions, tools: Tools) -> str | None:
    """What is wrong with the options."""
    if _PROFILE.fullmatch(options.profile) is None:
        return f"'{options.profile[:80]}' is no name of a Hermes profile: letters, digits, '_' and '-'."
    if options.program is not None and not os.access(options.program, os.X_OK):
        return f"There is no program {options.program}."
    if options.home is not None and not Path(options.home).is_dir():
        return f"There is no folder {options.home}."
    if options.api_url is not None:
        url = urlsplit(options.api_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            return f"'{options.api_url}' is no address of an API server: http://HOST:PORT."
        if options.api_key_file is None and options.api_key_env is None:
            return "An api_url needs its key, in api_key_file or api_key_env."
    if options.api_key_file is not None and (wrong := wrong_with(options.api_key_file)) is not None:
        return wrong
    if options.profile != DEFAULT and not (_root(options, tools) / "profiles" / options.profile).is_dir():
        return f"Hermes has no profile {options.profile} in {_root(options, tools)}."
    return None


def lock_place(options: HermesOptions, tools: Tools | None = None) -> tuple[str, str]:
    """The folder of the turn locks that this Hermes shares with the hub, and the profile that the lock is named by."""
    return str(_root(options, tools) / "bot_relay" / "locks"), options.profile


def _root(options: HermesOptions, tools: Tools | None) -> Path:
    """The root of Hermes' files: its home, or where that is one profile's, the home that the profile belongs to."""
    given = options.home or (tools.environment.get("HERMES_HOME") if tools else None)
    home = Path(given) if given else Path(tools.home if tools else "~") / ".hermes"
    home = home.expanduser()
    return home.parent.parent if home.parent.name == "profiles" else home


def _other_home(options: HermesOptions, tools: Tools) -> str | None:
    """The root to hand to Hermes as its home; None where it finds the right one by itself."""
    return None if options.home is None else str(_root(options, tools))


def _program(options: HermesOptions, tools: Tools) -> str | None:
    found = options.program or shutil.which("hermes", path=tools.environment.get("PATH", os.defpath))
    return os.path.abspath(found) if found else None


def _server(options: HermesOptions, tools: Tools) -> Server | None:
    """The API server that the options name, else the one that a .env file of this Hermes turns on; None without key.
    Raises ``UnfitSecret``."""
    key = tools.variables.get(options.api_key_env) if options.api_key_env else None
    if options.api_key_file is not None:
        key = secret_in(options.api_key_file).splitlines()[0]
    if options.api_url is not None:
        return Server(options.api_url, key) if key else None
    root = _root(options, tools)
    homes = [(root, "" if options.profile == DEFAULT else f"/p/{options.profile}")]
    if options.profile != DEFAULT:
        homes.insert(0, (root / "profiles" / options.profile, ""))  # a gateway of its own comes first
    for home, path in homes:
        told = _variables(home / ".env")
        if told.get("API_SERVER_ENABLED", "").lower() in _ON and (key or told.get("API_SERVER_KEY")):
            host = told.get("API_SERVER_HOST") or "127.0.0.1"
            host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
            return Server(f"http://{host}:{told.get('API_SERVER_PORT') or PORT}{path}", key or told["API_SERVER_KEY"])
    return Server(f"http://127.0.0.1:{PORT}{homes[-1][1]}", key) if key else None


def _variables(path: Path) -> dict[str, str]:
    """What a .env file sets; nothing where there is none that may be read."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.strip().removeprefix("export ").partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, equals, value in pairs if equals}


KIND = Kind(
    name="hermes",
    title="Hermes Agent",
    options=HermesOptions,
    make=Hermes,
    detect=detect,
    check=check,
    lock=lock_place,
    reports=("input_tokens", "output_tokens"),
)
