"""The hub as a launchd agent of this user.

What must stay true: launchd starts again what ended with anything but 0, and knows no code that it lets be (it does so
every 10 s, for ever). So a small shell stands between the two: it passes the signal on that ends the hub, waits for it,
and says 0 to launchd where a restart does not help: wrong settings (78), a folder or port that is somebody else's (3).
"""

import os
import plistlib
from collections.abc import Mapping, Sequence

from angelia.cli.exits import TAKEN, WRONG_SETTINGS
from angelia.cli.supervised import MARK, Service

LABEL = "angelia.hub"
# The signal may come before the hub is there. A trap ends a wait with a code of its own, so after a signal it is waited
# again: a shell still knows how a child of its ended, or says 127, and then what was known stays. (A signal that meets
# the hub's process before it has become Python is lost on it; launchd ends it then, when its patience does.)
WRAPPER = f"""\
hub='' told=''
trap 'told=yes; test -z "$hub" || kill -TERM "$hub"' TERM INT HUP
"$@" &
hub=$!
test -z "$told" || kill -TERM "$hub"
code=0
wait "$hub" || code=$?
while test -n "$told"; do
  told='' again=0
  wait "$hub" 2>/dev/null || again=$?
  test "$again" -eq 127 || code=$again
done
case $code in {TAKEN}|{WRONG_SETTINGS}) exit 0 ;; esac
exit "$code"
"""


def service(folder: str, command: Sequence[str], environment: Mapping[str, str], data_dir: str) -> Service:
    """The agent; ``folder`` is where this user's agents stand."""
    path, domain = f"{folder}/{LABEL}.plist", f"gui/{os.getuid()}"
    return Service(
        kind="launchd",
        path=path,
        text=agent(command, environment, data_dir),
        reload=(),
        enable=(),
        start=(("launchctl", "bootstrap", domain, path),),
        remove=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
        active=("launchctl", "print", f"{domain}/{LABEL}"),
        restart=f"launchctl bootout {domain}/{LABEL}; launchctl bootstrap {domain} {path}",
        look=f"launchctl print {domain}/{LABEL}; tail {data_dir}/hub.log",
    )


def agent(command: Sequence[str], environment: Mapping[str, str], data_dir: str) -> str:
    """The agent's file."""
    log = os.path.join(data_dir, "hub.log")
    told: dict[str, object] = {
        "Label": LABEL,
        "ProgramArguments": ["/bin/sh", "-c", WRAPPER, "angelia", *command],
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": 15,  # the hub is gone within 3 s
        "Umask": 0o077,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    if environment:
        told["EnvironmentVariables"] = dict(environment)
    head, doctype, rest = plistlib.dumps(told, sort_keys=False).decode().split("\n", 2)
    return f"{head}\n{doctype}\n<!-- {MARK}; removed by: angelia service uninstall -->\n{rest}"
