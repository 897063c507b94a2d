"""``angelia service``: let the system run the hub, from login on and again after a crash.

What must stay true: it does the same twice and then nothing; it writes and removes one file, which bears its mark, and
leaves alone whatever does not. Where no service manager can be reached it writes the file and says what to type.
"""

import os
import pwd
import sys
import time

from angelia.cli import exits, launchd, parse, say, session, supervised, systemd
from angelia.cli.exits import Refused
from angelia.cli.supervised import MARK, NotDone, Service
from angelia.settings import Settings
from angelia.storage import folder
from angelia.storage.lock import Holder, who_holds

KINDS = {"linux": "systemd", "darwin": "launchd"}
READY_SECONDS = 20.0
_LOOK_SECONDS = 0.1


def run(argv: list[str], settings: Settings) -> int:
    """The command."""
    made = parse.parser(
        "service",
        "Let the system run the hub: a systemd user unit, or launchd's agent on macOS. It starts when you log in and\n"
        "again after a crash. What variables and flags say now for the hub is kept in it.",
        "angelia service install\nangelia service install --print\nANGELIA_PORT=18901 angelia service install",
    )
    made.add_argument("what", choices=("install", "uninstall", "status"), help="what to do")
    made.add_argument("--print", action="store_true", help="with install: show the file, and change nothing")
    made.add_argument("--kind", choices=("systemd", "launchd"), help="for which of them (this system's)")
    given = parse.parse(made, argv)
    session.owners_only(settings)
    if given.print and given.what != "install":
        raise exits.UsageError("--print goes with install")
    service = _service(settings, given.kind)
    if given.what == "install":
        supervised.check_installed()
    if given.print:
        print(service.text, end="")
        return exits.DONE
    if given.what == "install":
        return _install(service, settings)
    if given.what == "uninstall":
        return _uninstall(service)
    return _status(service, settings, as_json=given.json)


def _service(settings: Settings, kind: str | None) -> Service:
    kind = kind or KINDS.get(sys.platform)
    if kind is None:
        raise Refused("this system has neither systemd nor launchd; run angelia up by whatever starts programs here")
    environment = supervised.environment(settings, sys.platform)
    command = supervised.command(settings.data_dir)
    if kind == "launchd":
        agents = os.path.join(os.path.expanduser("~"), "Library", "LaunchAgents")
        return launchd.service(agents, command, environment, settings.data_dir)
    units = os.path.join(os.path.dirname(settings.config_dir), "systemd", "user")
    return systemd.service(units, command, environment)


def _install(service: Service, settings: Settings) -> int:
    folder.prepare(settings.data_dir)
    old = _ours(service)
    if old != service.text:
        _write(service)
    say.line(f"{'unchanged' if old == service.text else 'changed' if old else 'installed'}: {service.path}")
    holder = who_holds(settings.data_dir)
    try:
        active = supervised.succeeds(service.active)
        for words in (*service.reload, *service.enable):
            supervised.run(words)
        if active:
            if old != service.text:
                say.aside(f"it runs on as it was until: {service.restart}")
            return exits.DONE
        if holder is not None:
            ending = session.command(settings, "down")
            starting = " && ".join(" ".join(words) for words in service.start)
            say.aside(f"A hub serves the folder already: {holder}. Hand it over: {ending} && {starting}")
            return exits.DONE
        for words in service.start:
            supervised.run(words)
    except NotDone as error:
        say.aside(f"{error}. It is not started; where {service.kind} runs, type:")
        for words in (*service.reload, *service.enable, *service.start):
            print(f"  {' '.join(words)}", file=sys.stderr)
        return exits.NO
    return _started(service, settings)


def _started(service: Service, settings: Settings) -> int:
    """Wait until it serves."""
    ends = time.monotonic() + READY_SECONDS
    while time.monotonic() < ends:
        holder = who_holds(settings.data_dir)
        if holder is not None and holder.ready:
            say.line(f"it serves: {holder}")
            if service.kind == "systemd" and not _lingers():
                say.aside("it ends when you log out; to let it run on, and from boot: loginctl enable-linger")
            return exits.DONE
        time.sleep(_LOOK_SECONDS)
    say.aside(f"it does not serve yet; see why: {service.look}")
    return exits.NO


def _uninstall(service: Service) -> int:
    if _ours(service) is None:
        say.line(f"not installed: there is no {service.path}")
        return exits.DONE
    try:
        if service.kind == "systemd" or supervised.succeeds(service.active):  # launchd has no word for "if it runs"
            for words in service.remove:
                supervised.run(words)
    except NotDone as error:
        say.aside(f"{error}. The file is removed all the same")
    os.unlink(service.path)
    _unlink_wanted(service)
    for words in service.reload:
        supervised.succeeds(words)
    say.line(f"removed: {service.path}; the data folder and all mail stay")
    return exits.DONE


def _unlink_wanted(service: Service) -> None:
    """Where systemd could not be asked, the link by which it would start the unit is still there."""
    parent, name = os.path.split(service.path)
    link = os.path.join(parent, "default.target.wants", name)
    if os.path.islink(link) and not os.path.exists(link):
        os.unlink(link)


def _status(service: Service, settings: Settings, *, as_json: bool) -> int:
    text = _ours(service)
    active = supervised.succeeds(service.active)
    holder = who_holds(settings.data_dir)
    if as_json:
        say.data({
            "kind": service.kind, "path": service.path, "installed": text is not None, "active": active,
            "current": text == service.text, "serves": holder is not None and holder.ready,
        })  # fmt: skip
    elif text is None:
        say.line(f"not installed: there is no {service.path}")
    else:
        say.line(f"{'runs' if active else 'does not run'}: {service.path}")
        if text != service.text:
            say.line("it is not what angelia service install would write now")
        if not active:
            say.line(f"see why: {service.look}")
    if not as_json:
        say.line(_serves(holder, settings))
    return exits.DONE if active else exits.NO


def _serves(holder: Holder | None, settings: Settings) -> str:
    return f"the folder is served: {holder}" if holder is not None else f"nobody serves {settings.data_dir}"


def _ours(service: Service) -> str | None:
    """The file that stands there; None where there is none. ``Refused`` where it is not ours."""
    try:
        with open(service.path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    if MARK not in text:
        raise Refused(f"{service.path} was not made by angelia service install; nothing was changed")
    return text


def _write(service: Service) -> None:
    os.makedirs(os.path.dirname(service.path), mode=0o755, exist_ok=True)
    fresh = f"{service.path}.new"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(service.text)
    os.replace(fresh, service.path)


def _lingers() -> bool:
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return True  # a user without a name: nothing useful can be said
    return os.path.exists(f"/var/lib/systemd/linger/{name}")
