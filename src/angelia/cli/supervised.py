"""What a service of either kind is made of: the command that it runs, the environment that it needs, its file's mark.

What must stay true: the service serves the folder, with the settings, that whoever installs it means now; it depends on
no shell's environment but what somebody has set there for the hub. No token ever stands in a service's file.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from angelia.cli.exits import Refused
from angelia.settings import FIELDS, Settings, called, config_dir

MARK = "Made by: angelia service install"
# What commands need and a hub does not; the folder stands in the command itself.
_NOT_A_HUBS = ("agent", "data_dir", "hub_url", "token")
_SECONDS = 60.0


class Service(NamedTuple):
    """One kind of service, for one data folder. Commands are run in their order; ``reload`` after the file changed."""

    kind: str
    path: str
    text: str
    reload: tuple[Sequence[str], ...]
    enable: tuple[Sequence[str], ...]
    start: tuple[Sequence[str], ...]
    remove: tuple[Sequence[str], ...]
    active: Sequence[str]
    restart: str
    look: str


class NotDone(Exception):
    """A command of the service manager's failed; the text says which, and what it said."""


def command(data_dir: str) -> list[str]:
    """What serves the folder, by absolute paths. -P: no file in the home folder is taken for a module of ours."""
    return [sys.executable, "-P", "-m", "angelia", "up", "--data-dir", data_dir]


def check_installed() -> None:
    """Raise ``Refused`` where this Python finds Angelia only with the help of this shell, which a service has not."""
    found = subprocess.run([sys.executable, "-P", "-c", "import angelia"], env={}, capture_output=True, check=False)
    if found.returncode != 0:
        raise Refused(f"angelia is not installed for {sys.executable}: a service would not find it. Install it, by pip")


def environment(settings: Settings, platform: str) -> dict[str, str]:
    """The variables for what a variable or a flag has set, and for a settings file that is not in its usual place."""
    told: dict[str, str] = {}
    for name, where in settings.origins.items():
        if where.startswith(("--", "ANGELIA_")) and name not in _NOT_A_HUBS:
            if name in FIELDS:
                told[called(name)[1]] = _word(getattr(settings, name))
            else:
                limit = name.removeprefix("limits.")
                told[f"ANGELIA_LIMITS_{limit.upper()}"] = _word(settings.limits[limit])
    usual = os.path.join(config_dir({}, platform), "angelia.toml")
    if settings.config_file not in (None, usual):
        told["ANGELIA_CONFIG"] = str(settings.config_file)
    return dict(sorted(told.items()))


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def run(words: Sequence[str]) -> str:
    """Run a command of the service manager's; what it printed. Raises ``NotDone``."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise NotDone(f"there is no {words[0]} here") from None
    except subprocess.TimeoutExpired:
        raise NotDone(f"{' '.join(words)} did not end within {_SECONDS:g} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or f"it ended with {done.returncode}").splitlines()[-1]
        raise NotDone(f"{' '.join(words)}: {said}")
    return done.stdout


def succeeds(words: Sequence[str]) -> bool:
    """Whether a command that only asks says yes."""
    try:
        run(words)
    except NotDone:
        return False
    return True
