"""What `contract.py` hands to schemathesis: names, ids and leases that exist, in place of some that it made up.

What must stay true: a third of the names and ids stay as they were made up, and so does nearly all else; nothing waits;
no request writes outside its hub's folder. `world.json` lies where schemathesis runs.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import schemathesis

WORLD: dict[str, list[str]] = json.loads(Path("world.json").read_text())
WAIT_SECONDS = 0.02
NAMES = {"handle", "from", "to", "agent"}
MOSTLY_REFUSED = ("thread", "in_reply_to", "ttl_seconds", "id", "lane")
IDS = {"id", "in_reply_to", "thread"}


@schemathesis.hook
def before_call(context: object, case: Any, kwargs: object) -> None:
    """Change a request that is about to go out."""
    if case.path in ("/v1/messages", "/v1/ask") and isinstance(case.body, dict) and _die(case.path, case.body) % 2:
        for name in MOSTLY_REFUSED:
            case.body.pop(name, None)
    for part in (case.path_parameters, case.query, case.body):
        if isinstance(part, dict):
            for name, value in list(part.items()):
                part[name] = _instead(case.path, str(name), value)


def _die(*of: object) -> int:
    """A number by chance, and the same for the same."""
    return zlib.crc32(repr(of).encode("utf-8", "surrogatepass"))


def _instead(path: str, name: str, value: object) -> object:
    if name in ("wait", "wait_seconds", "delay_seconds"):
        return min(value, WAIT_SECONDS) if isinstance(value, int | float) else value
    if name == "file":
        return None
    die = _die(path, name, value)
    kind = "names" if name in NAMES else "ids" if name in IDS else "leases" if name == "token" else None
    known = WORLD.get(kind or "", [])
    return known[die // 3 % len(known)] if known and die % 3 else value
