"""The only reader of the environment and of the configuration file; everything else is handed plain values.

What must stay true:

- A setting comes from the flag, else from ``ANGELIA_<NAME>``, else from ``angelia.toml``, else from the default here.
- A wrong value raises ``SettingsError``, which names where it stands, what is wrong and what is allowed (exit 78).
- ``Settings`` is frozen, its names carry their units, and paths in it are absolute plain strings.
- Every command pays for this import, so it takes nothing that is slow to load: no dataclasses, no pathlib, and
  ``tomllib`` only when there is a file to read.
"""

import os
import sys
from collections.abc import Callable, Mapping

from angelia import values as read

Environment = Mapping[str, str]

EXIT_WRONG_SETTINGS = 78
PORT = 18900
# What the kernel's sockaddr_un holds, the ending NUL included.
_SOCKET_PATH_BYTES = {"darwin": 104, "linux": 108}


class SettingsError(Exception):
    """A setting that cannot be used. ``where`` is the flag, variable or file and key that it was read from."""

    exit_code = EXIT_WRONG_SETTINGS

    def __init__(self, where: str, problem: str, allowed: str = "") -> None:
        """Takes the three things that a person needs to mend it."""
        super().__init__(f"{where}: {problem}." + (f" Allowed: {allowed}." if allowed else ""))
        self.where, self.problem, self.allowed = where, problem, allowed


class Settings:
    """Everything that can be chosen, read once. ``origins`` says where each value that is no default came from."""

    __slots__ = (
        "agent", "allowed_hosts", "behind_proxy", "config_dir", "config_file", "connections", "data_dir", "durability",
        "hermes_connection", "hermes_home", "hosts", "hub_name", "hub_url", "keepalive_seconds", "limits", "log_json",
        "log_level", "no_color", "origins", "overrides", "pass_environment", "port", "runtime_dir", "socket_path",
        "stop_seconds", "tls_certificate", "tls_key", "token", "turn_of", "unknown_variables",
    )  # fmt: skip

    agent: str | None
    allowed_hosts: tuple[str, ...]
    behind_proxy: bool
    config_dir: str
    config_file: str | None
    connections: Mapping[str, Mapping[str, object]]
    data_dir: str
    durability: str
    hermes_connection: str
    hermes_home: str | None
    hosts: tuple[str, ...]
    hub_name: str
    hub_url: str | None
    keepalive_seconds: float
    limits: Mapping[str, int | float]
    log_json: bool
    log_level: str
    no_color: bool
    origins: Mapping[str, str]
    overrides: Mapping[str, object]
    pass_environment: tuple[str, ...]
    port: int
    runtime_dir: str
    socket_path: str
    stop_seconds: float
    tls_certificate: str | None
    tls_key: str | None
    token: str | None
    turn_of: str | None
    unknown_variables: tuple[str, ...]

    def __init__(self, values: Mapping[str, object]) -> None:
        """Takes a value for every name; ``load`` makes them."""
        for name in self.__slots__:
            object.__setattr__(self, name, values[name])

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings are frozen: {name} cannot be changed")

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__slots__ if name not in ("token", "overrides")}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def changed(self, overrides: Mapping[str, object]) -> "Settings":
        """These settings, read again with more flags: a command's own after those that stood before its name."""
        return load({**self.overrides, **{name: value for name, value in overrides.items() if value is not None}})

    @property
    def beyond_loopback(self) -> tuple[str, ...]:
        """The hosts that other machines can reach."""
        return tuple(host for host in self.hosts if not is_loopback(host))

    def where(self, name: str) -> str:
        """Where a setting's value came from, in words."""
        return self.origins.get(name, "the default")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    return host.startswith("127.") or host == "::1"


class Field:
    """One setting: how its value is read, what is allowed, its default, and what it is for (the docs show it)."""

    __slots__ = ("allowed", "default", "parse", "purpose")

    def __init__(self, parse: Callable[[object], object], default: object, allowed: str, purpose: str) -> None:
        """Takes them in that order."""
        self.parse, self.default, self.allowed, self.purpose = parse, default, allowed, purpose


LEVELS = ("debug", "info", "warning", "error")
FIELDS: dict[str, Field] = {
    "data_dir": Field(read.path, None, "an absolute path", "the folder that this hub owns"),
    "port": Field(read.port, PORT, "0 to 65535 (0: any free one)", "the TCP port"),
    "hosts": Field(
        read.hosts, ("127.0.0.1", "::1"), "a list of IP addresses, or localhost", "the addresses to listen on"
    ),
    "allowed_hosts": Field(read.words, (), "a list of names", "further names that a Host header may say"),
    "behind_proxy": Field(read.flag, False, "true or false", "a proxy in front of the hub does TLS"),
    "tls_certificate": Field(read.path, None, "a PEM file", "the certificate chain for TLS"),
    "tls_key": Field(read.path, None, "a PEM file", "its key, which others may not use; a group may read it"),
    "hub_url": Field(read.url, None, "http://…, https://… or unix:/…", "the hub that commands talk to"),
    "agent": Field(read.text, None, "an agent's name", "whom commands act as"),
    "token": Field(read.text, None, "a token", "that agent's token"),
    "durability": Field(
        read.one_of("full", "normal"),
        "full",
        "full or normal",
        "full: each commit is on the disk before it is answered",
    ),
    "hermes_home": Field(
        read.path_or_off,
        None,
        "a folder, or off",
        "the Hermes install whose agents reach those here (else HERMES_HOME)",
    ),
    "hermes_connection": Field(
        read.name, "angelia", "1 to 64 letters, digits, _ or -", "as which connection that Hermes knows this hub"
    ),
    "hub_name": Field(
        read.free_name,
        None,
        "1 to 64 letters, digits, _ or -",
        "what other hubs call this one (else its machine's name)",
    ),
    "pass_environment": Field(
        read.variables,
        (),
        "a list of names, in which * stands for any text",
        "further variables of the hub's environment that the programs it starts get",
    ),
    "keepalive_seconds": Field(read.seconds, 15.0, "0.1 to 3600", "how often a silent stream says that it lives"),
    "stop_seconds": Field(
        read.seconds, 2.0, "0.1 to 3600", "how long open connections may take to end when the hub stops"
    ),
    "log_level": Field(read.one_of(*LEVELS), "info", ", ".join(LEVELS), "how much the hub tells"),
    "log_json": Field(read.flag, False, "true or false", "the log is JSON, an object a line"),
}
_NOT_IN_FILE = ("token",)  # files are shared and committed by mistake
_SHORT_NAMES = {
    "hub_url": ("--hub", "ANGELIA_URL"),
    "agent": ("--as", "ANGELIA_AGENT"),
    "hosts": ("--host", "ANGELIA_HOSTS"),  # said once for each
}
NOT_SETTINGS = {
    "ANGELIA_CONFIG": "the configuration file, where it is not angelia.toml in its usual place",
    "ANGELIA_LIMITS_…": "a limit, by its name in capitals",
    "NO_COLOR": "no colours",
    **dict.fromkeys(
        ("ANGELIA_FROM", "ANGELIA_VERIFIED", "ANGELIA_ID", "ANGELIA_THREAD", "ANGELIA_INTENT", "ANGELIA_KIND",
         "ANGELIA_ATTEMPT", "ANGELIA_CONVERSATION", "ANGELIA_BODY"),
        "told to a program that a message wakes (angelia join --command)",
    ),
}  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- reading


def load(overrides: Mapping[str, object], environ: Environment | None = None, platform: str = sys.platform) -> Settings:
    """Read every setting. ``overrides`` are the flags by setting name; None means that the flag was not given."""
    env = os.environ if environ is None else environ
    flags = {name: value for name, value in overrides.items() if value is not None}
    file, table = _read_file(env, platform)
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for name, field in FIELDS.items():
        flag, variable = called(name)
        if name in flags:
            where, raw = flag, flags[name]
        elif env.get(variable, "") != "":
            where, raw = variable, env[variable]
        elif name in table:
            where, raw = f"{file}, {name}", table[name]
        else:
            values[name] = field.default
            continue
        try:
            values[name] = field.parse(raw)
        except ValueError as error:
            raise SettingsError(where, str(error), field.allowed) from None
        origins[name] = where
    values["limits"] = _limits(env, file, table, origins)
    values["connections"] = _connections(file, table, origins)
    values["hub_name"] = values["hub_name"] or read.host_name(os.uname().nodename)
    _settle_paths(values, origins, env, platform)
    values.update(
        config_dir=config_dir(env, platform),
        config_file=file,
        origins=origins,
        overrides=flags,
        no_color=bool(env.get("NO_COLOR")),
        turn_of=_turn_of(env),
    )
    values["unknown_variables"] = tuple(sorted(name for name in env if _is_unknown(name)))
    return Settings(values)


def _turn_of(env: Environment) -> str | None:
    """Whose turn this runs in, by what the hub tells the programs that it wakes (turns/telling.py); None: in none."""
    agent = env.get("ANGELIA_AGENT")
    if env.get("ANGELIA_CONVERSATION") or (agent and env.get("ANGELIA_ID")):
        return agent or "an agent"
    return None


def environment() -> dict[str, str]:
    """All of it, for the one who hands it on to programs (bus/surroundings.py)."""
    return dict(os.environ)


def called(name: str) -> tuple[str, str]:
    """The flag and the variable of a setting."""
    return _SHORT_NAMES.get(name) or (f"--{name.replace('_', '-')}", f"ANGELIA_{name.upper()}")


def _is_unknown(variable: str) -> bool:
    if not variable.startswith("ANGELIA_") or variable in NOT_SETTINGS or variable.startswith("ANGELIA_LIMITS_"):
        return False
    return all(variable != called(name)[1] for name in FIELDS)


def _read_file(env: Environment, platform: str) -> tuple[str | None, dict[str, object]]:
    chosen = env.get("ANGELIA_CONFIG")
    path = os.path.abspath(os.path.expanduser(chosen or os.path.join(config_dir(env, platform), "angelia.toml")))
    try:
        with open(path, "rb") as file:
            content = file.read().decode()
    except FileNotFoundError:
        if chosen:
            raise SettingsError("ANGELIA_CONFIG", f"there is no file {path}") from None
        return None, {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(path, f"cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    import tomllib  # noqa: PLC0415 - 10 ms that only those pay who have a file

    try:
        table = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(path, f"is no TOML: {error}") from None
    for name in table:
        if name in _NOT_IN_FILE:
            raise SettingsError(f"{path}, {name}", "does not belong in a file", f"the variable {called(name)[1]}")
        if name not in FIELDS and name not in ("limits", "connections"):
            known = ", ".join(
                [*(name for name in FIELDS if name not in _NOT_IN_FILE), "[limits]", "[connections.NAME]"]
            )
            raise SettingsError(f"{path}, {name}", "no setting has that name", known)
    return path, table


def _limits(
    env: Environment, file: str | None, table: Mapping[str, object], origins: dict[str, str]
) -> dict[str, int | float]:
    """Limits that are set, by name. That the names exist is checked by the hub, which alone loads the limits."""
    section = table.get("limits", {})
    if not isinstance(section, dict):
        raise SettingsError(f"{file}, limits", "is no table", "[limits] with a line for each limit")
    found: dict[str, tuple[str, object]] = {name: (f"{file}, limits.{name}", raw) for name, raw in section.items()}
    for variable in env:
        if variable.startswith("ANGELIA_LIMITS_") and env[variable] != "":
            found[variable.removeprefix("ANGELIA_LIMITS_").lower()] = (variable, env[variable])
    limits: dict[str, int | float] = {}
    for name, (where, raw) in found.items():
        try:
            number = read.number(raw)
        except ValueError as error:
            raise SettingsError(where, str(error), "a number") from None
        if not 0 < number < 2**53:
            raise SettingsError(where, f"{raw!r} is out of range", "a number above 0")
        limits[name] = int(number) if number == int(number) else number
        origins[f"limits.{name}"] = where
    return limits


def _connections(
    file: str | None, table: Mapping[str, object], origins: dict[str, str]
) -> dict[str, dict[str, object]]:
    """The tables ``[connections.NAME]``, each as it stands there. What they say is checked by the hub, which alone
    dials (``connections.py``)."""
    section = table.get("connections", {})
    shape = "[connections.NAME] with a line for each of its settings"
    if not isinstance(section, dict):
        raise SettingsError(f"{file}, connections", "is no table", shape)
    found: dict[str, dict[str, object]] = {}
    for name, fields in section.items():
        where = f"{file}, connections.{name}"
        if not isinstance(fields, dict):
            raise SettingsError(where, "is no table", shape)
        try:
            read.free_name(name)
        except ValueError as error:
            raise SettingsError(where, str(error), "1 to 64 letters, digits, _ or -, and no reserved name") from None
        if name.lower() in (other.lower() for other in found):
            raise SettingsError(where, "is there twice; capitals make no difference", "each name once")
        found[name] = fields
        origins[f"connections.{name}"] = where
    return found


# -------------------------------------------------------------------------------------------------------------- folders


def config_dir(env: Environment, platform: str) -> str:
    """Where ``angelia.toml`` stands."""
    return _home_dir(env, platform, "XDG_CONFIG_HOME", "~/.config")


def _home_dir(env: Environment, platform: str, variable: str, default: str) -> str:
    home = env.get("HOME") or os.path.expanduser("~")
    if platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "angelia")
    base = env.get(variable, "")
    if not os.path.isabs(base):  # the XDG specification has relative ones ignored
        base = os.path.join(home, default.removeprefix("~/"))
    return os.path.join(base, "angelia")


def _settle_paths(values: dict[str, object], origins: Mapping[str, str], env: Environment, platform: str) -> None:
    """Make paths absolute, with links followed in the data folder's own, and find the places that depend on it."""
    for name in ("data_dir", "tls_certificate", "tls_key"):
        path = values[name]
        if isinstance(path, str):
            if not os.path.isabs(path) and not origins[name].startswith(("--", "ANGELIA_")):
                raise SettingsError(origins[name], f"{path!r} depends on where it is read", "an absolute path")
            values[name] = os.path.abspath(path)
    data_dir = values["data_dir"] or _home_dir(env, platform, "XDG_DATA_HOME", "~/.local/share")
    values["data_dir"] = os.path.realpath(str(data_dir))
    home = values["hermes_home"] or env.get("HERMES_HOME") or os.path.join(env.get("HOME") or "~", ".hermes")
    values["hermes_home"] = None if home == "off" else os.path.abspath(os.path.expanduser(str(home)))
    values["runtime_dir"] = _runtime_dir(env)
    values["socket_path"] = socket_path(str(values["data_dir"]), str(values["runtime_dir"]), platform)


def _runtime_dir(env: Environment) -> str:
    base = env.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(base):
        return os.path.join(base, "angelia")
    temporary = env.get("TMPDIR", "")
    return os.path.join(temporary if os.path.isabs(temporary) else "/tmp", f"angelia-{os.getuid()}")


def socket_path(data_dir: str, runtime_dir: str, platform: str = sys.platform) -> str:
    """Where the hub's Unix socket stands: in the data folder, unless the kernel has no room for that path.

    A hub that runs tells the path that it uses in ``<data>/hub.json``; that one counts, since the runtime folder may
    be another in another session.
    """
    path = os.path.join(data_dir, "hub.sock")
    room = _SOCKET_PATH_BYTES.get(platform, 104)
    if len(os.fsencode(path)) < room:
        return path
    import hashlib  # noqa: PLC0415 - only for long paths

    name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16] + ".sock"
    for folder in (runtime_dir, f"/tmp/angelia-{os.getuid()}"):
        path = os.path.join(folder, name)
        if len(os.fsencode(path)) < room:
            return path
    raise AssertionError("a path under /tmp is short")
