"""The hub as a systemd user unit.

What must stay true: systemd starts again what crashed, and never what a restart does not help: wrong settings (78) and
a folder or port that is somebody else's (3). The hardening takes neither privileges nor user namespaces, so that the
unit starts wherever a user's systemd runs.
"""

from collections.abc import Mapping, Sequence

from angelia.cli.exits import TAKEN, WRONG_SETTINGS, Refused
from angelia.cli.supervised import MARK, Service

UNIT = "angelia.service"
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+=:,@")
_CONTROL = ("systemctl", "--user")


def service(folder: str, command: Sequence[str], environment: Mapping[str, str]) -> Service:
    """The unit; ``folder`` is where this user's units stand."""
    return Service(
        kind="systemd",
        path=f"{folder}/{UNIT}",
        text=unit(command, environment),
        reload=((*_CONTROL, "daemon-reload"),),
        enable=((*_CONTROL, "enable", UNIT),),
        start=((*_CONTROL, "start", UNIT),),
        remove=((*_CONTROL, "disable", "--now", UNIT),),
        active=(*_CONTROL, "is-active", UNIT),
        restart=f"systemctl --user restart {UNIT}",
        look=f"systemctl --user status {UNIT}; journalctl --user -u {UNIT}",
    )


def unit(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The unit's file."""
    line = " ".join(_word(word, dollar="$$") for word in command)
    told = "".join(f"Environment={_word(f'{name}={value}', dollar='$')}\n" for name, value in environment.items())
    return f"""\
# {MARK}; it is written anew by that, and removed by: angelia service uninstall
# Changes of your own: systemctl --user edit {UNIT}
[Unit]
Description=Angelia, the message bus of your agents
Documentation=man:angelia(1)
StartLimitIntervalSec=120
StartLimitBurst=5

[Service]
Type=exec
ExecStart={line}
{told}SyslogIdentifier=angelia
Restart=on-failure
RestartSec=2
# A restart does not help where settings are wrong, or the folder or the port is somebody else's.
RestartPreventExitStatus={WRONG_SETTINGS} {TAKEN}
# Asked to end, the hub is gone within 3 s; what it has accepted is on the disk in any case.
KillMode=mixed
TimeoutStopSec=15
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK

[Install]
WantedBy=default.target
"""


def _word(word: str, *, dollar: str) -> str:
    """A word as it stands in a unit: quoted, with nothing in it that systemd would put something else for."""
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in word):
        raise Refused(f"{word!r} holds a control character, and cannot stand in a unit")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", dollar)
    return escaped if escaped and set(escaped) <= _PLAIN else f'"{escaped}"'
